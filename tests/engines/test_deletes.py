"""Deletes on real engines: an item without room for a mark, and tombstones under a collation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from onewrite import Applied, Duplicate, EntityTooLarge, Event, Gone, Message, Outbox, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from tests.engines.stores import places

TOMBSTONES = Tombstones(timedelta(days=30))
_ADD: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}


def test_full_item_can_be_deleted(dynamo: Any, table: str) -> None:
    orders = GuardedTable(dynamo, SeenIds(), table_name=table, tombstones=TOMBSTONES)
    full = {"id": "e", "large": "x" * 300_000, "larger": "y" * 109_560}
    dynamo.put_item(TableName=table, Item={name: {"S": value} for name, value in full.items()})
    with pytest.raises(EntityTooLarge):
        orders.update_item(Message("m"), Key={"id": "e"}, **_ADD)
    outcome = orders.delete_item(Message("d"), Key={"id": "e"}, ReturnValues="ALL_OLD")
    assert isinstance(outcome, Applied)
    assert outcome.entity == full
    assert orders.update_item(Message("m"), Key={"id": "e"}, **_ADD) == Gone(Message("m"))


@pytest.mark.parametrize("collation", [{"locale": "en", "alternate": "shifted"}, {"locale": "en", "strength": 2}], ids=repr)
@pytest.mark.parametrize("of_collection", [True, False], ids=["of the collection", "of the call"])
def test_tombstone_is_the_same_under_any_collation(
    mongo: MongoClient[dict[str, Any]], collation: dict[str, Any], of_collection: bool
) -> None:
    own: Any = {"collation": collation} if of_collection else {}
    collection = mongo.test.create_collection(next(places), **own)
    orders = GuardedCollection(collection, SeenIds(), tombstones=TOMBSTONES, outbox=Outbox("shop/orders"))
    paid = [Event("Paid", {"cents": 1})]
    of_the_callers = {"OW_note": 1, "ow-note": 1, "owner": "ann"}
    assert isinstance(orders.update_one(Message("m"), {"_id": 1}, {"$set": of_the_callers}, upsert=True, emit=paid), Applied)
    native: Any = {} if of_collection else {"collation": collation}
    assert isinstance(orders.delete_one(Message("d"), {"_id": 1}, **native), Applied)
    (left,) = collection.find()
    assert left.keys() == {"_id", "ow_tombstone", "ow_l", "ow_r", "ow_o", "ow_events", "ow_due"}
    assert isinstance(orders.update_one(Message("m"), {"_id": 1}, {"$set": {"n": 1}}), Duplicate)
