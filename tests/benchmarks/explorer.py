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
    for writes, target in ((1, None), (2, None), (3, 3.0)):
        yield _exhaust(f"{writes} guarded, mongomock", _guarded_on_mongodb(writes), mongomock_collection, _documents, target)
    yield _exhaust("6 plain requests, mongomock", _six_plain_requests, mongomock_collection, _documents, 30.0)
    with moto_tables() as make:
        for writes in (1, 2, 3):
            yield _exhaust(f"{writes} guarded, moto", _guarded_on_dynamodb(writes), make, _items, None)


def _guarded_on_mongodb(writes: int) -> Build:
    def build(collection: Any) -> Callable[[Message], object]:
        store = GuardedCollection(collection, SeenIds())

        def handle(message: Message) -> None:
            for number in range(writes):
                part = message.part(str(number))
                store.update_one(part, {"_id": "o-1"}, {"$inc": {"paid": message.body}}, upsert=True)

        return handle

    return build


def _guarded_on_dynamodb(writes: int) -> Build:
    def build(table: Any) -> Callable[[Message], object]:
        store = GuardedTable(table, SeenIds())

        def handle(message: Message) -> None:
            for number in range(writes):
                part = message.part(str(number))
                values = {":cents": message.body}
                store.update_item(
                    part, Key={"orderId": "o-1"}, UpdateExpression="ADD paid :cents", ExpressionAttributeValues=values
                )

        return handle

    return build


def _six_plain_requests(collection: Any) -> Callable[[Message], object]:
    """Writes that may be repeated, each to a document of its own."""

    def handle(message: Message) -> None:
        for number in range(6):
            collection.update_one({"_id": number}, {"$set": {message.id: message.body}}, upsert=True)

    return handle


def _documents(collection: Any) -> object:
    return [[document.get(name) for name in ("_id", "paid", "m1", "m2")] for document in collection.find().sort("_id", 1)]


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
