"""The script of examples/migrating that carries a last number into a mark, on real servers, while consumers write the same entities."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pymongo.collection import Collection

from migrating.number import carry_collection, carry_table
from onewrite import HighWaterMark, Message
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.measured

ORDERS, DONE, LAST = 5, 6, 9  # orders, messages of each that were handled before, and the number of its last message
CONSUMERS = 3


class Orders(NamedTuple):
    """Orders whose own code has kept the number of the last message. Each consumer adds 1 to `n`."""

    ship: Callable[[str, Message], object]  # keeps both
    last: Callable[[str, Message], object]
    carry: Callable[[], None]
    counts: Callable[[], list[int]]


def table_of_orders(client: DynamoDBClient, server: Dynoxide, name: str) -> Orders:
    table = server.table(name)
    store = GuardedTable(client, HighWaterMark(), table_name=name)
    rise: Any = {
        "UpdateExpression": "SET version = :v ADD n :one",
        "ConditionExpression": "attribute_not_exists(version) OR version < :v",
    }

    def ship(order: str, message: Message) -> object:
        values = {":v": message.sequence, ":one": 1}
        return store.update_item(message, Key={"orderId": order}, **rise, ExpressionAttributeValues=values)

    def last(order: str, message: Message) -> object:
        add: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
        return store.update_item(message, Key={"orderId": order}, **add)

    for number in range(ORDERS):
        table.put_item(Item={"orderId": f"o-{number}", "version": DONE, "n": DONE})
    return Orders(ship, last, lambda: carry_table(table), lambda: [int(item["n"]) for item in table.scan()["Items"]])


def collection_of_orders(collection: Collection[dict[str, Any]]) -> Orders:
    store = GuardedCollection(collection, HighWaterMark())

    def ship(order: str, message: Message) -> object:
        query = {"_id": order, "version": {"$not": {"$gte": message.sequence}}}
        return store.update_one(message, query, {"$set": {"version": message.sequence}, "$inc": {"n": 1}})

    def last(order: str, message: Message) -> object:
        return store.update_one(message, {"_id": order}, {"$inc": {"n": 1}})

    collection.insert_many([{"_id": f"o-{number}", "version": DONE, "n": DONE} for number in range(ORDERS)])

    def counts() -> list[int]:
        return [document["n"] for document in collection.find()]

    return Orders(ship, last, lambda: carry_collection(collection), counts)


@pytest.fixture(params=["dynamodb", "mongodb"])
def orders(request: pytest.FixtureRequest) -> Orders:
    if request.param == "mongodb":
        return collection_of_orders(request.getfixturevalue("collection"))
    name = f"{request.getfixturevalue('table')}-orders"
    return table_of_orders(request.getfixturevalue("dynamo"), request.getfixturevalue("dynoxide"), name)


def deliver(consume: Callable[[str, Message], object], numbers: range, meanwhile: Callable[[], None]) -> None:
    """Deliver the messages of each order in sequence, each to several consumers at once, and do something else meanwhile."""
    with ThreadPoolExecutor(CONSUMERS + 1) as threads:
        other = threads.submit(meanwhile)
        for number in numbers:
            for order in [f"o-{each}" for each in range(ORDERS)]:
                message = Message(f"m-{number}", source=f"orders/{order}", sequence=number)
                list(threads.map(lambda _, order=order, message=message: consume(order, message), range(CONSUMERS)))
        other.result()


def test_each_number_is_applied_once_during_migration(orders: Orders) -> None:
    deliver(orders.ship, range(DONE - 1, LAST + 1), orders.carry)
    deliver(orders.last, range(1, LAST + 1), lambda: None)
    assert orders.counts() == [LAST] * ORDERS
