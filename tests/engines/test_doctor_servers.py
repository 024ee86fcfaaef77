"""What the doctor reads of real servers of MongoDB, and what it does where it may not."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from pymongo.collection import Collection

from onewrite import Applied, Message, SeenIds, Tombstones
from onewrite.mongodb import GuardedCollection
from onewrite.operate.doctor.facts import EntitySample, Facts, Unread
from onewrite.operate.doctor.mongodb import read_collection
from tests.engines.stores import failing

pytestmark = pytest.mark.measured

Documents = Collection[dict[str, Any]]
_UNAUTHORIZED = 13


def look(collection: Documents, limit: int = 100) -> Facts:
    return read_collection(collection, limit, time.time)


def test_documents_are_read_with_ledgers_and_ttl(collection: Documents) -> None:
    collection.create_index("expiresAt", expireAfterSeconds=60)
    collection.create_index("status")
    store = GuardedCollection(collection, SeenIds(), tombstones=Tombstones(timedelta(days=3)))
    assert isinstance(store.update_one(Message("m"), {"_id": "guarded"}, {"$set": {"n": 1}}, upsert=True), Applied)
    assert isinstance(store.delete_one(Message("d"), {"_id": "deleted"}), Applied)
    collection.insert_one({"_id": "bare", "total": 1})
    found = look(collection)
    assert (found.expiry, found.index_keys) == (("expiresAt",), (("_id",), ("expiresAt",), ("status",)))
    assert isinstance(found.sample, EntitySample)
    entities = {image.name: image for image in found.sample.entities}
    assert {*entities['{"_id": "guarded"}'].our_fields} == {"ow_l", "ow_r"}
    assert entities['{"_id": "bare"}'].our_fields == ()
    assert "ow_tombstone" in entities['{"_id": "deleted"}'].fields


@pytest.mark.parametrize(
    ("command", "permission", "fact"),
    [
        ("listIndexes", "listIndexes", "expiry index_keys"),
        ("aggregate", "find", "sample"),
    ],
)
def test_doctor_names_missing_mongodb_permission(collection: Documents, command: str, permission: str, fact: str) -> None:
    collection.insert_one({"_id": 1})
    with failing(collection.database.client, [command], errorCode=_UNAUTHORIZED):
        found = look(collection)
    unread = {name: value for name in Facts.__slots__ if isinstance(value := getattr(found, name), Unread)}
    assert [*unread] == fact.split()
    assert {each.permission for each in unread.values()} == {permission}
