"""`bulk_write` under the explorer, and on a stand-in, answers as the server does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError

from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import mongomock_collection


def answer(orders: Any, requests: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """What a bulk write says, and the documents after it."""
    try:
        found = orders.bulk_write(requests).bulk_api_result
    except BulkWriteError as error:
        found = error.details
    return found, [*orders.find()]


def tapped(world: Callable[[], Any]) -> Any:
    machine = Machine(world)
    return machine.stores(machine.perform)


UPSERT, AGAIN = UpdateOne({"_id": 2}, {"$set": {"n": 1}}, upsert=True), InsertOne({"_id": 1})
EVERY = [
    InsertOne({"_id": 1, "n": 0}),
    UpdateOne({"_id": 1}, {"$inc": {"n": 1}}),
    UPSERT,
    ReplaceOne({"_id": 3}, {"n": 6}, upsert=True),
    UpdateMany({}, {"$inc": {"n": 1}}),
    DeleteOne({"_id": 2}),
    InsertOne({"_id": 4, "gone": True}),
    DeleteMany({"gone": True}),
]
STOPPED = [AGAIN, UPSERT, DeleteOne({"_id": 1}), AGAIN, AGAIN, InsertOne({"_id": 3})]


@pytest.mark.parametrize(
    "requests", [EVERY, [AGAIN, UPSERT, DeleteOne({"_id": 1})], STOPPED], ids=["every", "mixed", "stopped"]
)
def test_bulk_write_is_answered_as_by_the_server(mongod: Any, requests: list[Any]) -> None:
    explored = answer(tapped(lambda: mongod.collection("orders")), requests)
    served = answer(mongod.collection("orders"), requests)
    assert explored == served
    counts, documents = answer(tapped(mongomock_collection), requests)
    assert documents == served[1]
    assert {name: counts[name] for name in counts if name.startswith("n")}.items() <= served[0].items()
    assert counts["upserted"] == served[0]["upserted"]


def test_standin_names_upserts_by_their_operations() -> None:
    upserts = [{"index": 2, "_id": 2}, {"index": 3, "_id": 3}]
    assert answer(mongomock_collection(), EVERY)[0]["upserted"] == upserts
    assert answer(mongomock_collection(), [*EVERY[:4], AGAIN])[0]["upserted"] == upserts
