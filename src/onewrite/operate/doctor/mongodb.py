"""Reads a collection of MongoDB and its server: how they are set up, and some of the documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from pymongo.errors import PyMongoError

from onewrite.core.flow import Call
from onewrite.mongodb.flows import LARGEST_DOCUMENT
from onewrite.mongodb.layout import with_codec
from onewrite.operate.doctor.facts import (
    ClockOffset,
    Collection,
    EntitySample,
    Facts,
    MongoDBServer,
    ReplicaSetMembers,
    Unread,
)
from onewrite.operate.doctor.reading import (
    Asking,
    Question,
    Reader,
    entity_in,
    questions_of,
    refused_by_mongodb,
)
from onewrite.operate.mongodb import LENIENT, sample

MONGODB = Asking(lambda error: isinstance(error, PyMongoError), refused_by_mongodb)


def as_users(collection: Any) -> Any:
    """The collection as its URL says, except for values that only a lenient reader takes."""
    return with_codec(collection, LENIENT)


def read_collection(collection: Any, most: int, clock: Callable[[], float]) -> Reader[Facts]:
    """`most`: how many documents are read at the most."""
    fact = Collection(f"the collection {collection.name}", collection.write_concern.document.get("w"))
    before = clock()
    reply = yield Question("the server", "hello", _admin("hello"))
    if isinstance(reply, Unread):  # no server was reached, and each further request would wait for one as long
        return Facts(
            collection=fact,
            server=reply,
            clock=reply,
            version=reply,
            members=reply,
            default_w=reply,
            expiry=reply,
            index_keys=reply,
            sample=reply,
        )
    server = _server(reply, before, clock())
    build = yield Question("the server's version", "buildInfo", _admin("buildInfo"))
    members = (yield from _read_members()) if server.kind == "replica set" else None
    default_w = (yield from _read_default()) if server.kind != "standalone" else None
    indexes = yield Question(f"the indexes of the collection {collection.name}", "listIndexes", Call("index_information"))
    keys = expiry = indexes
    after: dict[str, float] = {}
    if not isinstance(indexes, Unread):
        keys = tuple([tuple([key for key, _ in index["key"]]) for index in indexes.values()])
        # The fields of TTL indexes, and how many seconds after the time in them a document expires.
        ttl_indexes = [index for index in indexes.values() if "expireAfterSeconds" in index]
        after = {index["key"][0][0]: float(index["expireAfterSeconds"]) for index in ttl_indexes}
        expiry = tuple(after)
    return Facts(
        collection=fact,
        server=server,
        clock=server.clock,
        version=build if isinstance(build, Unread) else str(build["version"]),
        members=members,
        default_w=default_w,
        expiry=expiry,
        index_keys=keys,
        sample=(yield from _read_sample(fact.name, after, most, clock)),
    )


def _admin(command: str) -> Call:
    return Call("database.client.admin.command", (command,))


def _server(reply: Mapping[str, Any], before: float, after: float) -> MongoDBServer:
    kind = "mongos" if reply.get("msg") == "isdbgrid" else "replica set" if "setName" in reply else "standalone"
    ahead = _seconds(reply["localTime"]) - (before + after) / 2
    return MongoDBServer(kind, tuple(reply.get("arbiters", ())), ClockOffset(ahead, (after - before) / 2))


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _read_members() -> Reader[ReplicaSetMembers | Unread]:
    reply = yield Question("the members of the replica set", "replSetGetStatus", _admin("replSetGetStatus"))
    if isinstance(reply, Unread):
        return reply
    arbiters = [member["name"] for member in reply["members"] if member.get("stateStr") == "ARBITER"]
    writing = int(reply.get("writableVotingMembersCount", len(reply["members"]) - len(arbiters)))
    majority = int(reply.get("writeMajorityCount", len(reply["members"]) // 2 + 1))
    return ReplicaSetMembers(tuple(arbiters), writing, majority)


def _read_default() -> Reader[int | str | Unread]:
    what = "the server's default write concern"
    reply = yield Question(what, "getDefaultRWConcern", _admin("getDefaultRWConcern"))
    if isinstance(reply, Unread):
        return reply
    w: int | str = reply.get("defaultWriteConcern", {}).get("w", 1)  # a server that names none takes w:1
    return w


def _read_sample(
    what: str, expiry: Mapping[str, float], most: int, clock: Callable[[], float]
) -> Reader[EntitySample | Unread]:
    images = yield from questions_of(what, "find", sample(most))
    if isinstance(images, Unread):
        return images
    entities = tuple([entity_in(image, _expires(image.raw, expiry)) for image in images])
    return EntitySample(entities, ("_id",), LARGEST_DOCUMENT, clock())


def _expires(document: Mapping[str, Any], expiry: Mapping[str, float]) -> float | None:
    times = [_seconds(time) + after for field, after in expiry.items() for time in _times(document, field.split("."))]
    return min(times, default=None)


def _times(value: object, path: Sequence[str]) -> Iterator[datetime]:
    """The times that an index on this path has of a document: those in arrays too, of which TTL takes the first."""
    if isinstance(value, list):
        for member in cast("list[object]", value):
            yield from _times(member, path)
    elif path and isinstance(value, Mapping):
        yield from _times(cast("Mapping[str, object]", value).get(path[0]), path[1:])
    elif not path and isinstance(value, datetime):
        yield value
