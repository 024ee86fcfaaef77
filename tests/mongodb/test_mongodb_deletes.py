"""A delete from a collection: the one request that it takes, and the collections in which it could not keep its promise."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onewrite import Applied, ConfigurationError, InvalidUpdate, Message, Missing, Rejected, SeenIds, Tombstones
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb.settings import check_unique_indexes
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.faults import Faults

NOW = 1_790_000_000.0
TOMBSTONES = Tombstones(timedelta(days=1))
M1, M2, M3 = Message("m1"), Message("m2"), Message("m3")


def guarded(collection: Any, **more: Any) -> GuardedCollection:
    return GuardedCollection(collection, SeenIds(), clock=lambda: NOW, tombstones=TOMBSTONES, **more)


def test_a_delete_takes_one_request_once_the_indexes_are_known() -> None:
    collection = mongomock_collection()
    collection.insert_one({"_id": 1, "n": 1})
    faults = Faults(collection)
    stock = guarded(faults.store)
    stock.delete_one(M1, {"_id": 1})
    assert [request.method for request in faults.requests] == ["index_information", "update_one"]
    stock.find_one_and_delete(M2, {"_id": 2})
    assert [request.method for request in faults.requests][2:] == ["find_one_and_update"]


def test_conditional_delete_leaves_no_tombstone_if_entity_is_missing() -> None:
    collection = mongomock_collection()
    stock = guarded(collection)
    assert stock.delete_one(M1, {"_id": 1, "left": 0}) == Missing(M1)
    assert collection.count_documents({}) == 0
    stock.update_one(M2, {"_id": 1}, {"$set": {"left": 1}}, upsert=True)
    assert stock.delete_one(M1, {"_id": 1, "left": 0}) == Rejected(M1, {"_id": 1, "left": 1})
    assert isinstance(stock.delete_one(M1, {"_id": 1, "left": 1}), Applied)


def test_reads_skip_deleted_entities_with_any_filter() -> None:
    collection = mongomock_collection()
    stock = guarded(collection)
    for n in (1, 2):
        stock.insert_one(M1, {"_id": n, "kind": "a"})
    stock.delete_one(M2, {"_id": 1})
    assert stock.find_one({}, sort=[("_id", 1)]) == {"_id": 2, "kind": "a"}
    assert stock.find_one(1) is None  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # pymongo takes the value of _id too
    assert stock.find_one(2, projection={"kind": 1}) == {"_id": 2, "kind": "a"}  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


INDEXES: dict[str, Any] = {
    "with the id": {"key": [("a", 1), ("_id", 1)], "unique": True},
    "partial": {"key": [("a", 1)], "unique": True, "partialFilterExpression": {"a": {"$exists": True}}},
    "sparse": {"key": [("a", 1)], "unique": True, "sparse": True},
    "sparse of two": {"key": [("a", 1), ("b", 1)], "unique": True, "sparse": True},
    "of a part of the identity": {"key": [("email", 1)], "unique": True},
    "with the identity": {"key": [("tenant", 1), ("email", 1), ("a", 1)], "unique": True},
}
OF_A, OF_BOTH = "{'a': {'$exists': True}}", "{'a': {'$exists': True}, 'b.c': {'$exists': True}}"
UNFIT: dict[str, Any] = {
    "of two fields": ({"key": [("a", 1), ("b.c", -1)], "unique": True}, OF_BOTH),
    "of a field and a part of the identity": ({"key": [("tenant", 1), ("a", 1)], "unique": True}, OF_A),
    "sparse, but of a part of the identity": ({"key": [("tenant", 1), ("a", 1)], "unique": True, "sparse": True}, OF_A),
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_index_without_equal_tombstones_is_accepted(index: Any) -> None:
    check_unique_indexes({"i": index}, ("tenant", "email"))


@pytest.mark.parametrize(("index", "partial"), UNFIT.values(), ids=UNFIT)
def test_index_with_equal_tombstones_is_named_with_its_remedy(index: Any, partial: str) -> None:
    with pytest.raises(ConfigurationError, match="'by_a'") as raised:
        check_unique_indexes({"by_a": index}, ("tenant", "email"))
    assert f"partialFilterExpression={partial}" in str(raised.value)


def test_delete_is_refused_if_an_index_has_equal_tombstones() -> None:
    collection = mongomock_collection()
    collection.create_index([("email", 1)], unique=True)
    collection.insert_one({"_id": 1, "email": "a@b"})
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="email"):
            guarded(collection).delete_one(M1, {"_id": 1})
    assert collection.find_one({}) == {"_id": 1, "email": "a@b"}


def test_invalid_delete_is_refused_before_sending() -> None:
    faults = Faults(mongomock_collection())
    stock = guarded(faults.store)
    with pytest.raises(InvalidUpdate, match="identifies one entity"):
        stock.delete_one(M1, {"n": 1})
    for option in ("upsert", "return_document", "array_filters"):
        with pytest.raises(InvalidUpdate, match=f"doesn't accept {option}"):
            stock.find_one_and_delete(M1, {"_id": 1}, **{option: True})  # type: ignore[arg-type]
    assert faults.requests == ()
