"""What exploring a handler costs: for each schedule, and how many of them pruning leaves.

The stand-ins are in this process, and an exploration waits for nothing else: what counts is the time on the clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.explorer.explore import explore
from onewrite.testing.explorer.judge import Judge
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.explorer.search import Search
from onewrite.testing.explorer.subject import Subject
from onewrite.testing.standins.stores import moto_tables, new_collection
from tests.benchmarks.measure import Plan, Row

ON_MONGOMOCK = 1e6 / 300  # microseconds
ON_MOTO = 1e6 / 150
_EXPLORATIONS = 7  # to one median
_MOST = 100_000  # without pruning: a minute or two
MESSAGES = [Message("m1", body=30), Message("m2", body=50)]


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # an exploration is as long as it is
    yield _per_schedule("mongomock", _one_write_on_mongodb, new_collection, _mongodb_state, ON_MONGOMOCK)
    with moto_tables() as make:
        yield _per_schedule("moto", _one_write_on_dynamodb, make, _dynamodb_state, ON_MOTO)
        for writes in (1, 2):
            yield _pruned(f"{writes} on DynamoDB, each message the same", _writes_on_dynamodb(writes, apart=False), make)
            yield _pruned(f"{writes} on DynamoDB, each message others", _writes_on_dynamodb(writes, apart=True), make)


def _one_write_on_mongodb(collection: Any) -> Callable[[Message], object]:
    guarded = GuardedCollection(collection, SeenIds())
    return lambda message: guarded.update_one(message, {"_id": "o-1"}, {"$inc": {"paid": message.body}}, upsert=True)


def _mongodb_state(collection: Any) -> object:
    return collection.find_one({"_id": "o-1"}, {"paid": 1})


def _one_write_on_dynamodb(table: Any) -> Callable[[Message], object]:
    return _writes_on_dynamodb(1, apart=False)(table)


def _dynamodb_state(table: Any) -> object:
    return table.get_item(Key={"orderId": "o-1"}).get("Item", {}).get("paid")


def _writes_on_dynamodb(count: int, *, apart: bool) -> Callable[[Any], Callable[[Message], object]]:
    """A handler that writes so many entities, with a guard on each."""

    def build(table: Any) -> Callable[[Message], object]:
        guarded = GuardedTable(table, SeenIds())

        def write(message: Message, number: int) -> object:
            key = {"orderId": f"{message.id if apart else 'o'}-{number}"}
            values = {":cents": message.body}
            return guarded.update_item(
                message, Key=key, UpdateExpression="ADD paid :cents", ExpressionAttributeValues=values
            )

        return lambda message: [write(message, number) for number in range(1, count + 1)]

    return build


def _per_schedule(
    where: str,
    build: Callable[[Any], Callable[[Message], object]],
    world: Callable[[], Any],
    observe: Callable[[Any], object],
    target: float,
) -> Row:
    """Of whole explorations, with what the explorer learns about the store, and the states that it compares with."""
    reports = [explore(build, MESSAGES, world, observe) for _ in range(_EXPLORATIONS)]
    if not all(report.ok and report.exhausted for report in reports):
        raise AssertionError(reports[0])
    took = [report.seconds / report.schedules * 1e6 for report in reports]
    what = f"a schedule of one guarded write, {where}"
    against = f"{reports[0].schedules} within the default bounds"
    return Row(what, against, statistics.median(took), min(took), max(took), "us", target)


def _pruned(what: str, build: Callable[[Any], Callable[[Message], object]], world: Callable[[], Any]) -> Row:
    run, whole = (_schedules(build, world, prune=prune) for prune in (True, False))
    against = f"without pruning ({'over ' if whole == _MOST else ''}{whole})"
    return Row(f"schedules, guarded writes: {what} ({run})", against, run / whole, run / whole, run / whole, "x")


def _schedules(build: Callable[[Any], Callable[[Message], object]], world: Callable[[], Any], *, prune: bool) -> int:
    with closing(Subject(build, MESSAGES, world, Bounds(), timeout=30)) as subject:
        judge = Judge(subject, lambda _: None)
        judge.prepare()
        return sum(1 for _ in islice(Search(judge, prune=prune), _MOST))
