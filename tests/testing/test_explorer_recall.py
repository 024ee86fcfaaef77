"""What a handler does is recalled instead of run: what is found stays the same, and is never lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from onewrite import Message, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore
from onewrite.testing.standins.stores import mongomock_collection

Handler: TypeAlias = Callable[[Message], Any]

ONE = [Message("m1", body=1)]
TWO = [*ONE, Message("m2", body=10)]
C1 = {"_id": "c1"}


def customers() -> Any:
    return mongomock_collection("customers")


def credit(collection: Any) -> Any:
    return [document.get("n") for document in collection.find({})]


def counting(collection: Any) -> Handler:
    """What it sends depends on what it keeps in memory."""
    calls: list[str] = []

    def handle(message: Message) -> None:
        calls.append(message.id)
        change = {"$inc": {"n": message.body}, "$set": {"calls": len(calls)}}
        collection.update_one(C1, change, upsert=True)

    return handle


def test_the_handler_seldom_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"

    def build(collection: Any) -> Handler:
        store = GuardedCollection(collection, SeenIds())

        def handle(message: Message) -> Any:
            with runs.open("a") as file:
                file.write(".")
            return [store.update_one(message.part(part), C1, {"$inc": {"n": 1}}, upsert=True) for part in "ab"]

        return handle

    report = explore(build, TWO, customers, credit)
    report.assert_effectively_once()
    assert report.exhausted
    assert len(runs.read_text()) < report.schedules / 2


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_store_that_reads_its_indexes_once_is_recalled(*, asynchronous: bool) -> None:
    def build(collection: Any) -> Handler:
        known: list[Any] = []

        def handle(message: Message) -> None:
            if not known:
                known.append(collection.index_information())
            collection.update_one({"_id": message.id}, {"$set": {"n": 1}}, upsert=True)

        async def ahandle(message: Message) -> None:
            if not known:
                known.append(await collection.index_information())
            await collection.update_one({"_id": message.id}, {"$set": {"n": 1}}, upsert=True)

        return ahandle if asynchronous else handle

    def count(collection: Any) -> Any:
        return collection.count_documents({})

    report = explore(build, TWO, lambda: mongomock_collection("customers", asynchronous=asynchronous), count)
    report.assert_effectively_once()
    assert report.exhausted
    assert report.pruned


def test_a_counterexample_is_kept_if_a_later_build_fails() -> None:
    kept = 0
    for most in range(30, 90, 4):
        built: list[Any] = []

        def build(collection: Any, built: list[Any] = built, most: int = most) -> Handler:
            built.append(collection)
            if len(built) > most:
                raise RuntimeError("no more handlers")
            return counting(collection)

        try:
            report = explore(build, TWO, customers, credit)
        except RuntimeError:
            assert kept == 0, "a counterexample had been found with fewer handlers"
            continue
        assert report.counterexample is not None
        kept += 1
    assert kept


# --- what is left behind ----------------------------------------------------------------------------------------------
