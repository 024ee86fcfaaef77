"""What the doctor reads of real servers of MongoDB, and what it does where it may not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from onewrite import Applied, HighWaterMark, Message, SeenIds, Tombstones
from onewrite.core.ledgers.kept import LabelledLedger
from onewrite.mongodb import GuardedCollection
from onewrite.operate import main
from onewrite.operate.doctor.facts import ClockOffset, Entity, EntitySample, Facts, MongoDBServer, ReplicaSetMembers, Unread
from onewrite.operate.doctor.mongodb import MONGODB, read_collection
from onewrite.testing.servers.engines import Mongod
from tests.support.engines import mongod_binary, require

pytestmark = pytest.mark.measured

Documents = Collection[dict[str, Any]]
_UNAUTHORIZED = 13


def look(collection: Documents, most: int = 100) -> Facts:
    return MONGODB.run(read_collection(collection, most, time.time), collection)


def entities(found: Facts) -> dict[str, Entity]:
    assert isinstance(found.sample, EntitySample)
    return {each.name: each for each in found.sample.entities}


@contextmanager
def refused(collection: Documents, *commands: str) -> Iterator[None]:
    """The server refuses these commands to whoever lacks a privilege, and here that is everybody."""
    admin = collection.database.client.admin
    data = {"errorCode": _UNAUTHORIZED, "failCommands": list(commands)}
    admin.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data})
    try:
        yield
    finally:
        admin.command({"configureFailPoint": "failCommand", "mode": "off"})


def test_a_replica_set_is_read(collection: Documents) -> None:
    found = look(collection)
    assert isinstance(found.server, MongoDBServer)
    assert (found.server.kind, found.server.arbiters) == ("replica set", ())
    assert isinstance(found.server.clock, ClockOffset)
    assert abs(found.server.clock.ahead) < 60
    assert (found.members, found.default_w, found.version) == (ReplicaSetMembers((), 1, 1), "majority", "6.0.5")
    assert found.collection is not None
    assert (found.collection.w, found.expiry) == (None, ())
    assert entities(found) == {}


def test_a_standalone_is_read_and_asked_for_nothing_that_it_lacks() -> None:
    require(mongod_binary)
    with Mongod(replica_set=False) as server:
        found = look(server.collection())
        assert isinstance(found.server, MongoDBServer)
        assert (found.server.kind, found.members, found.default_w) == ("standalone", None, None)


def test_the_write_concern_of_the_collection_is_read(collection: Documents) -> None:
    found = look(collection.with_options(write_concern=WriteConcern(1))).collection
    assert found is not None
    assert found.w == 1


def test_documents_are_read_with_their_ledgers(collection: Documents) -> None:
    collection.create_index("expiresAt", expireAfterSeconds=60)
    collection.create_index("status")
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    store = GuardedCollection(collection, SeenIds(), tombstones=Tombstones(timedelta(days=3)))
    change = {"$set": {"status": "NEW", "expiresAt": moment}}
    assert isinstance(store.update_one(Message("m"), {"_id": "guarded"}, change, upsert=True), Applied)
    assert isinstance(store.delete_one(Message("d"), {"_id": "deleted"}), Applied)
    marks = GuardedCollection(collection, HighWaterMark(name="marks"))
    assert isinstance(marks.record(Message("m", sequence=1), {"_id": "guarded"}), Applied)
    collection.insert_many(
        [
            {"_id": "bare", "total": 1, "expiresAt": "never"},
            {"_id": "unlabelled", "ow_m:r": {"r0": [b"x"]}},
            {"_id": "unmarked", "ow_m:l": "ow1 14d", "ow_m:r": {"r0": []}},
            {"_id": "named so by its user", "sizes_14d": {"small": 1}, "empty_14d": {}},
        ]
    )
    result = look(collection)
    found = entities(result)
    assert result.expiry == ("expiresAt",)
    guarded = found["_id=S:guarded"]
    assert guarded.own == {"_id", "status", "expiresAt"}
    assert guarded.labels == (LabelledLedger("ow_l", "14d"), LabelledLedger("ow_marks:l", "marks"))
    assert guarded.ledger.keys() == {"ow_l", "ow_r", "ow_marks:l", "ow_marks:@"}
    assert guarded.expires == moment.timestamp() + 60
    assert (guarded.unmarked, guarded.unlabelled) == ((), ())
    assert found["_id=S:deleted"].tombstone == 3 * 86_400
    assert (found["_id=S:bare"].ledger, found["_id=S:bare"].expires) == ({}, None)
    assert found["_id=S:unlabelled"].unlabelled == ("ow_m:l",)
    assert found["_id=S:unmarked"].unmarked == ("ow_m:l",)
    assert found["_id=S:named%20so%20by%20its%20user"].unlabelled == ()


def test_the_sizes_are_those_of_bson(collection: Documents) -> None:
    store = GuardedCollection(collection, SeenIds())
    for n in range(50):
        assert isinstance(store.record(Message(f"m{n}"), {"_id": "e"}), Applied)
    (found,) = entities(look(collection)).values()
    without: Any = [{"$project": {"size": {"$bsonSize": "$$ROOT"}}}]
    assert [each["size"] for each in collection.aggregate(without)] == [found.size]
    own: Any = [{"$project": {"_id": 1}}, {"$project": {"size": {"$bsonSize": "$$ROOT"}}}]
    assert [each["size"] for each in collection.aggregate(own)] == [found.size - sum(found.ledger.values())]


def test_no_more_documents_are_read_than_were_asked_for(collection: Documents) -> None:
    collection.insert_many([{"_id": n} for n in range(9)])
    assert len(entities(look(collection, 4))) == 4


@pytest.mark.parametrize(
    ("command", "permission", "fact"),
    [
        ("replSetGetStatus", "replSetGetStatus", "members"),
        ("getDefaultRWConcern", "getDefaultRWConcern", "default_w"),
        ("listIndexes", "listIndexes", "expiry index_keys"),
        ("aggregate", "find", "sample"),
        ("buildInfo", "buildInfo", "version"),
    ],
)
def test_what_may_not_be_read_is_told_and_the_rest_is_read(
    collection: Documents, command: str, permission: str, fact: str
) -> None:
    collection.insert_one({"_id": 1})
    with refused(collection, command):
        found = look(collection)
    unread = {name: value for name in Facts.__slots__ if isinstance(value := getattr(found, name), Unread)}
    assert [*unread] == fact.split()
    assert {each.permission for each in unread.values()} == {permission}


def test_the_command_tells_what_it_found(
    mongod: Mongod, mongo: MongoClient[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    stock = mongo.shop.doctor
    stock.drop()
    store = GuardedCollection(stock, SeenIds())
    assert isinstance(store.record(Message("m"), {"_id": "e"}), Applied)
    url = mongod.uri.replace("/?", "/shop.doctor?w=1&")
    assert main(["doctor", "--collection", url, "--json"]) == 1
    found = {each["code"]: each["state"] for each in json.loads(capsys.readouterr().out)["checks"]}
    assert {code for code, state in found.items() if state == "found"} == {"write-concern", "server-version"}
    passed = {"clock", "ledger-share", "erased-ledgers", "damaged-ledgers", "later-format", "standalone", "arbiter"}
    assert {code for code, state in found.items() if state == "passed"} == passed
