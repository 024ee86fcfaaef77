"""A guarded collection on mongomock as it is, without the stand-in that mends it: many tests have one."""

from __future__ import annotations

from typing import Any

import mongomock
import pytest
from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from onewrite import Applied, ConfigurationError, Duplicate, HighWaterMark, InSequence, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore

M1 = Message("m1", source="s", sequence=1)


@pytest.fixture
def orders() -> Any:
    return mongomock.MongoClient().shop.orders


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(retention=None), HighWaterMark(), InSequence()], ids=str)
def test_every_write_method_takes_effect_once(orders: Any, ledger: Ledger) -> None:
    guarded = GuardedCollection(orders, ledger)
    for expected in (Applied, Duplicate):
        assert isinstance(guarded.insert_one(M1, {"_id": "inserted", "n": 1}), expected)
        assert isinstance(guarded.update_one(M1, {"_id": "updated"}, {"$inc": {"n": 1}}, upsert=True), expected)
        assert isinstance(guarded.find_one_and_update(M1, {"_id": "found"}, {"$inc": {"n": 1}}, upsert=True), expected)
        assert isinstance(guarded.remember(M1, {"_id": "recorded"}), expected)
        assert isinstance(guarded.preview(M1, {"_id": "recorded"}), Duplicate)
    for name in ("inserted", "updated", "found"):
        assert guarded.find_one({"_id": name}) == {"_id": name, "n": 1}


def test_fields_with_a_unique_index_identify_an_entity(orders: Any) -> None:
    guarded = GuardedCollection(orders, SeenIds(), key=("email",))
    with pytest.raises(ConfigurationError, match="unique index"):
        guarded.update_one(M1, {"email": "a@b"}, {"$inc": {"n": 1}}, upsert=True)
    orders.create_index("email", unique=True)
    for expected in (Applied, Duplicate):
        assert isinstance(guarded.update_one(M1, {"email": "a@b"}, {"$inc": {"n": 1}}, upsert=True), expected)


def test_unnamed_unique_index_violation_is_raised(orders: Any) -> None:
    orders.create_index("email", unique=True)
    orders.insert_one({"_id": "other", "email": "a@b"})
    guarded = GuardedCollection(orders, SeenIds())
    with pytest.raises(DuplicateKeyError):
        guarded.insert_one(M1, {"_id": "o-1", "email": "a@b"})
    with pytest.raises(DuplicateKeyError):
        guarded.update_one(M1, {"_id": "o-1"}, {"$set": {"email": "a@b"}}, upsert=True)
    assert orders.count_documents({}) == 1


def test_explored_bulk_write_is_performed(orders: Any) -> None:
    def handle(message: Message) -> None:
        orders.bulk_write([UpdateOne({"_id": message.id}, {"$set": {"n": 1}}, upsert=True)])

    report = explore(lambda _: handle, [M1], lambda: orders, lambda _: orders.count_documents({}))
    report.assert_effectively_once()
