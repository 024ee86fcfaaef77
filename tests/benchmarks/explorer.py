"""What it costs to explore a handler, until every schedule within the default bounds is exhausted.

The stand-ins are in this process, and an exploration waits for nothing else: what counts is the time on the clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from onewrite import Message, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.testing.explorer.explore import explore
from onewrite.testing.standins.stores import mongomock_collection
from tests.benchmarks.measure import Plan, Row

_EXPLORATIONS = 3  # to one median
_MANY = 1_000_000  # schedules: enough to exhaust each of these
MESSAGES = [Message("m1", body=30), Message("m2", body=50)]

Build = Callable[[Any], Callable[[Message], object]]


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # an exploration is as long as it is
    yield _exhaust("one guarded write", _write_once)
    # This handler remembers messages, so each schedule is tried again with a process for each delivery.
    yield _exhaust("one guarded write, and memory", _write_once_with_memory)


def _write_once(collection: Any) -> Callable[[Message], object]:
    store = GuardedCollection(collection, SeenIds())
    return lambda message: store.update_one(message, {"_id": "o-1"}, {"$inc": {"paid": message.body}}, upsert=True)


def _write_once_with_memory(collection: Any) -> Callable[[Message], object]:
    handle, processed = _write_once(collection), set[str]()

    def handle_once(message: Message) -> object:
        if message.id in processed:
            return None
        outcome = handle(message)
        processed.add(message.id)
        return outcome

    return handle_once


def _documents(collection: Any) -> object:
    return [[document.get(name) for name in ("_id", "paid")] for document in collection.find().sort("_id", 1)]


def _exhaust(what: str, build: Build) -> Row:
    """Return the seconds of whole explorations, including what the explorer learns about the store and the expected states."""
    reports = [explore(build, MESSAGES, mongomock_collection, _documents, schedules=_MANY) for _ in range(_EXPLORATIONS)]
    if not all(report.ok and report.exhausted for report in reports):
        raise AssertionError(reports[0])
    took = [report.seconds for report in reports]
    against = f"2 messages, {reports[0].schedules} schedules"
    return Row(f"exploring {what}", against, statistics.median(took), min(took), max(took), "s")
