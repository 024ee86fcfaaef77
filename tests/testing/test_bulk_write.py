"""`bulk_write` under the explorer, and on a stand-in, answers as the server does."""

from __future__ import annotations

from typing import Any

from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError

from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import mongomock_collection


def test_bulk_write_of_every_kind_answers_as_the_server(mongod: Any) -> None:
    def answer(orders: Any, requests: list[Any]) -> Any:
        try:
            return orders.bulk_write(requests).bulk_api_result
        except BulkWriteError as error:
            return error.details

    upsert, again = UpdateOne({"_id": 2}, {"$set": {"n": 1}}, upsert=True), InsertOne({"_id": 1})
    every = [
        InsertOne({"_id": 1, "n": 0}),
        UpdateOne({"_id": 1}, {"$inc": {"n": 1}}),
        UpdateOne({"_id": 2}, {"$set": {"n": 5}}, upsert=True),
        ReplaceOne({"_id": 3}, {"n": 6}, upsert=True),
        UpdateMany({}, {"$inc": {"n": 1}}),
        DeleteOne({"_id": 2}),
        InsertOne({"_id": 4, "gone": True}),
        DeleteMany({"gone": True}),
    ]
    for requests in (
        every,
        [again, upsert, DeleteOne({"_id": 1})],
        [upsert, again, DeleteOne({"_id": 2}), again, InsertOne({"_id": 3})],
    ):
        for world in (lambda: mongod.collection("orders"), mongomock_collection):
            machine = Machine(world)
            tapped = machine.stores(machine.perform)
            found = answer(tapped, requests), [*tapped.find()]
            orders = mongod.collection("orders")  # the same one, empty again
            assert found == (answer(orders, requests), [*orders.find()])
