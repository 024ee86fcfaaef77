"""Reads a collection of MongoDB and its server: how they are set up, and some of the documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import bson
from pymongo.errors import PyMongoError

from onewrite.doctor.facts import Clock, Collection, Entity, Fact, Members, Sample, Server, Unread
from onewrite.doctor.reading.asking import Asking, Question, Reader, refused_by_mongodb
from onewrite.doctor.reading.entity import entity_of, kept_in, terms_of
from onewrite.flow import Call, Do
from onewrite.label import TOMBSTONE
from onewrite.ledgers import NO_LEDGER
from onewrite.mongodb.layout import held_of, without_ledger
from onewrite.mongodb.outboxes import origin

MONGODB = Asking(lambda error: isinstance(error, PyMongoError), refused_by_mongodb)
_LARGEST_DOCUMENT = 16 * 1024 * 1024
_EMPTY_DOCUMENT = len(bson.encode({}))


class OfCollection(NamedTuple):
    """What was read of a collection and its server."""

    collection: Collection
    server: Server | Unread
    version: Fact[str] = None
    members: Fact[Members] = None
    default_w: Fact[int | str] = None
    expiry: Fact[tuple[str, ...]] = None
    sample: Fact[Sample] = None


def read_collection(collection: Any, most: int, clock: Callable[[], float]) -> Reader[OfCollection]:
    """`most`: how many documents are read at the most."""
    named = Collection(f"the collection {collection.name}", collection.write_concern.document.get("w"))
    before = clock()
    reply = yield Question("the server", "hello", _admin("hello"))
    if isinstance(reply, Unread):  # no server was reached, and each further request would wait for one as long
        return OfCollection(named, reply, reply, reply, reply, reply, reply)
    server = _server(reply, before, clock())
    build = yield Question("the server's version", "buildInfo", _admin("buildInfo"))
    version = build if isinstance(build, Unread) else str(build["version"])
    members = (yield from _read_members()) if server.kind == "replica set" else None
    default_w = (yield from _read_default()) if server.kind != "standalone" else None
    indexes = yield from _read_expiry(collection.name)
    expiry = indexes if isinstance(indexes, Unread) else tuple(indexes)
    after = {} if isinstance(indexes, Unread) else indexes
    return OfCollection(
        named, server, version, members, default_w, expiry, (yield from _read_sample(named.name, after, most, clock))
    )


def _admin(command: str) -> Call:
    return Call("database.client.admin.command", (command,))


def _server(reply: Mapping[str, Any], before: float, after: float) -> Server:
    kind = "mongos" if reply.get("msg") == "isdbgrid" else "replica set" if "setName" in reply else "standalone"
    ahead = _seconds(reply["localTime"]) - (before + after) / 2
    return Server(kind, tuple(reply.get("arbiters", ())), Clock(ahead, (after - before) / 2))


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _read_members() -> Reader[Members | Unread]:
    reply = yield Question("the members of the replica set", "replSetGetStatus", _admin("replSetGetStatus"))
    if isinstance(reply, Unread):
        return reply
    arbiters = [each["name"] for each in reply["members"] if each.get("stateStr") == "ARBITER"]
    writing = int(reply.get("writableVotingMembersCount", len(reply["members"]) - len(arbiters)))
    majority = int(reply.get("writeMajorityCount", len(reply["members"]) // 2 + 1))
    return Members(tuple(arbiters), writing, majority)


def _read_default() -> Reader[int | str | Unread]:
    what = "the server's default write concern"
    reply = yield Question(what, "getDefaultRWConcern", _admin("getDefaultRWConcern"))
    if isinstance(reply, Unread):
        return reply
    w: int | str = reply.get("defaultWriteConcern", {}).get("w", 1)  # a server that names none takes w:1
    return w


def _read_expiry(name: str) -> Reader[dict[str, float] | Unread]:
    """The fields of TTL indexes, and how many seconds after the time in them a document expires."""
    reply = yield Question(f"the indexes of the collection {name}", "listIndexes", Call("index_information"))
    if isinstance(reply, Unread):
        return reply
    found = [index for index in reply.values() if "expireAfterSeconds" in index]
    return {index["key"][0][0]: float(index["expireAfterSeconds"]) for index in found}


def _read_sample(what: str, expiry: Mapping[str, float], most: int, clock: Callable[[], float]) -> Reader[Sample | Unread]:
    call = Call("aggregate", ([{"$sample": {"size": most}}],))
    cursor = yield Question(what, "find", call)
    documents = cursor if isinstance(cursor, Unread) else (yield Question(what, "find", Do(list, (cursor,))))
    if isinstance(documents, Unread):
        return documents
    entities = tuple([_entity(document, expiry) for document in documents])
    return Sample(entities, ("_id",), _LARGEST_DOCUMENT, clock())


def _entity(document: Mapping[str, Any], expiry: Mapping[str, float]) -> Entity:
    times = [
        _seconds(value) + after for field, after in expiry.items() if isinstance(value := document.get(field), datetime)
    ]
    living = {name: value for name, value in document.items() if name != TOMBSTONE}  # what is left of a deleted one as well
    return entity_of(
        origin(document["_id"]),
        document,
        own=frozenset(without_ledger(NO_LEDGER.terms, living)),
        ledgers={kept: frozenset(held_of(terms_of(kept), document).fields) for kept in kept_in(document)},
        sizes={name: len(bson.encode({name: value})) - _EMPTY_DOCUMENT for name, value in document.items()},
        total=len(bson.encode(document)),
        expires=min(times, default=None),
    )
