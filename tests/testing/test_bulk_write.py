"""`bulk_write` on a stand-in answers as the server does, and can be explored."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError

from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import mongomock_collection

COUNTS = ("inserted_count", "matched_count", "modified_count", "deleted_count", "upserted_count")


@pytest.fixture
def orders() -> Any:
    """Behind a machine, which performs each request as the explorer does."""
    machine = Machine(mongomock_collection)
    return machine.stores(machine.perform)


def numbers(result: Any) -> dict[str, Any]:
    return {name: getattr(result, name) for name in COUNTS if getattr(result, name)}


def test_bulk_write_performs_and_counts_every_operation(orders: Any) -> None:
    result = orders.bulk_write(
        [
            InsertOne({"_id": 1, "n": 0}),
            UpdateOne({"_id": 1}, {"$inc": {"n": 1}}),
            UpdateOne({"_id": 2}, {"$set": {"n": 5}}, upsert=True),
            ReplaceOne({"_id": 3}, {"n": 6}, upsert=True),
            UpdateMany({}, {"$inc": {"n": 1}}),
            DeleteOne({"_id": 2}),
            InsertOne({"_id": 4, "gone": True}),
            DeleteMany({"gone": True}),
        ]
    )
    assert numbers(result) == {
        "inserted_count": 2,
        "matched_count": 4,
        "modified_count": 4,
        "deleted_count": 2,
        "upserted_count": 2,
    }
    assert list(orders.find()) == [{"_id": 1, "n": 2}, {"_id": 3, "n": 7}]


def test_a_bulk_write_stops_at_the_first_error(orders: Any) -> None:
    requests = [InsertOne({"_id": 1}), InsertOne({"_id": 1, "again": True}), InsertOne({"_id": 2})]
    with pytest.raises(BulkWriteError) as caught:
        orders.bulk_write(requests)
    (error,) = caught.value.details["writeErrors"]
    assert (error["index"], error["code"], caught.value.details["nInserted"]) == (1, 11000, 1)
    assert list(orders.find()) == [{"_id": 1}]


def test_mixed_bulk_write_returns_same_result_as_server(mongod: Any) -> None:
    def answer(orders: Any, requests: list[Any]) -> Any:
        try:
            return orders.bulk_write(requests).bulk_api_result
        except BulkWriteError as error:
            return error.details

    upsert, again = UpdateOne({"_id": 2}, {"$set": {"n": 1}}, upsert=True), InsertOne({"_id": 1})
    for requests in (
        [again, upsert, DeleteOne({"_id": 1})],
        [upsert, again, DeleteOne({"_id": 2}), again, InsertOne({"_id": 3})],
    ):
        machine = Machine(lambda: mongod.collection("orders"))
        tapped = answer(machine.stores(machine.perform), requests)
        assert tapped == answer(mongod.collection("orders"), requests)
