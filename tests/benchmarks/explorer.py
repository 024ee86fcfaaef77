"""What it costs to explore a handler, until every schedule within the default bounds is exhausted.

The stand-ins are in this process, and an exploration waits for nothing else: what counts is the time on the clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.explorer.explore import explore
from onewrite.testing.standins.stores import mongomock_collection, moto_tables
from tests.benchmarks.measure import Plan, Row

_EXPLORATIONS = 3  # to one median
_MANY = 1_000_000  # schedules: enough to exhaust each of these
MESSAGES = [Message("m1", body=30), Message("m2", body=50)]

Build = Callable[[Any], Callable[[Message], object]]


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # an exploration is as long as it is
    yield _exhaust("3 guarded, mongomock", _guarded_on_mongodb, mongomock_collection, _documents, 3.0)
    with moto_tables() as make:
        yield _exhaust("3 guarded, moto", _guarded_on_dynamodb, make, _items, None)


def _guarded_on_mongodb(collection: Any) -> Callable[[Message], object]:
    store = GuardedCollection(collection, SeenIds())

    def handle(message: Message) -> None:
        for number in "012":
            store.update_one(message.part(number), {"_id": "o-1"}, {"$inc": {"paid": message.body}}, upsert=True)

    return handle


def _guarded_on_dynamodb(table: Any) -> Callable[[Message], object]:
    store = GuardedTable(table, SeenIds())

    def handle(message: Message) -> None:
        add: Any = {"UpdateExpression": "ADD paid :cents", "ExpressionAttributeValues": {":cents": message.body}}
        for number in "012":
            store.update_item(message.part(number), Key={"orderId": "o-1"}, **add)

    return handle


def _documents(collection: Any) -> object:
    return [[document.get(name) for name in ("_id", "paid")] for document in collection.find().sort("_id", 1)]


def _items(table: Any) -> object:
    return [item["paid"] for item in table.scan()["Items"]]


def _exhaust(
    what: str, build: Build, world: Callable[[], Any], observe: Callable[[Any], object], target: float | None
) -> Row:
    """The seconds of whole explorations, with what the explorer learns about the store, and the states that it expects."""
    reports = [explore(build, MESSAGES, world, observe, schedules=_MANY) for _ in range(_EXPLORATIONS)]
    if not all(report.ok and report.exhausted for report in reports):
        raise AssertionError(reports[0])
    took = [report.seconds for report in reports]
    against = f"2 messages, {reports[0].schedules} schedules"
    return Row(f"exhausted: {what}", against, statistics.median(took), min(took), max(took), "s", target)
