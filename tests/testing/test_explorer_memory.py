"""What a process is to the explorer, and that it notices a handler that goes by its memory."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias

import pytest
from botocore.exceptions import ClientError
from pymongo.errors import DuplicateKeyError

from onewrite import Message, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.standins.stores import mongomock_collection
from tests.support.handlers import build_from

Handler: TypeAlias = Callable[[Message], Any]

M1, M2 = Message("m1", body=1), Message("m2", body=10)
C1 = {"_id": "c1"}

# --- what a process is ------------------------------------------------------------------------------------------------


def customers() -> Any:
    return mongomock_collection("customers")


def credit(collection: Any) -> Any:
    return (collection.find_one(C1) or {}).get("n", 0)


def explored(build: Callable[[Any], Handler], messages: Any = (M1,), **options: Any) -> Exploration:
    given: dict[str, Any] = {"world": customers, "observe": credit, **options}
    return explore(build, messages=messages, **given)


def add_guarded(collection: Any, message: Message) -> Any:
    guarded = GuardedCollection(collection, SeenIds())
    return guarded.update_one(message, C1, {"$inc": {"n": message.body}}, upsert=True)


def test_memory_of_a_crashed_process_is_discarded() -> None:
    def build(collection: Any) -> Handler:
        died: list[str] = []

        def handle(message: Message) -> None:
            if message.id in died:
                return  # only in the process that it has died in
            died.append(message.id)
            add_guarded(collection, message)
            died.remove(message.id)

        return handle

    report = explored(build, concurrency=1)
    assert report.counterexample is not None
    assert "CRASH" not in str(report)  # a failure that it survives goes wrong, and a crash does not


def test_delivery_continues_in_its_process_if_another_crashes() -> None:
    """Each process tells its deliveries its number. A delivery that changes its process would notice."""
    processes = itertools.count()

    def build(collection: Any) -> Handler:
        process = next(processes)
        at: dict[str, int] = {}

        def handle(message: Message) -> None:
            at[message.id] = process
            collection.find_one(C1)
            assert at[message.id] == process
            add_guarded(collection, message)

        return handle

    explored(build, (M1, M2), faults=2, deliveries=1).assert_effectively_once()


@pytest.mark.parametrize("faults", [1, 2])
def test_build_does_not_reset_state_within_a_schedule(faults: int) -> None:
    mails: list[str] = []

    def build(collection: Any) -> Handler:
        mails.clear()

        def handle(message: Message) -> Any:
            mails.append(message.id)
            return add_guarded(collection, message)

        return handle

    # Emptied in between, it would end without any mail where the process has died after the write.
    some = explored(build, observe=lambda _: bool(mails), faults=faults, concurrency=1)
    some.assert_effectively_once()
    assert explored(build, observe=lambda _: len(mails), faults=faults, concurrency=1).counterexample is not None


# --- what is proven of a handler that is recalled -----------------------------------------------------------------------


def test_state_in_environment_variables_is_found(monkeypatch: pytest.MonkeyPatch, moto_table: Any) -> None:
    def build(table: Any) -> Handler:
        monkeypatch.delenv("ONEWRITE_THROTTLED", raising=False)

        def handle(message: Message) -> None:
            if os.environ.pop("ONEWRITE_THROTTLED", None) is not None:
                return  # gives the message up, and says that it is done
            try:
                table.put_item(Item={"id": message.id})
            except ClientError as error:
                if "Throughput" in error.response.get("Error", {}).get("Code", ""):
                    monkeypatch.setenv("ONEWRITE_THROTTLED", "1")
                raise

        return handle

    report = explore(build, [M1, Message("m2")], lambda: moto_table("orders", "id"), lambda table: table.scan()["Items"])
    assert report.counterexample is not None
    assert [step.words.partition(",")[0] for step in report.counterexample.steps] == ["PutItem orders m1: throttled"]


def test_delivery_sleeps_on_the_explorer_clock() -> None:
    slept: list[float] = []

    def build(collection: Any) -> Handler:
        def rest() -> None:
            begin = time.monotonic()
            time.sleep(0.01)
            slept.append(time.monotonic() - begin)

        thread = threading.Thread(target=rest)
        thread.start()
        thread.join()

        def handle(message: Message) -> Any:
            time.sleep(3600)
            return add_guarded(collection, message)

        return handle

    explored(build).assert_effectively_once()
    assert min(slept) >= 0.01


@pytest.mark.slow
def test_deliveries_that_wait_with_a_timeout_take_turns() -> None:
    timeouts: list[str] = []

    def build(collection: Any) -> Handler:
        lock = threading.Lock()

        def handle(message: Message) -> Any:
            if not lock.acquire(timeout=1):
                timeouts.append(message.id)
                raise TimeoutError
            try:
                return add_guarded(collection, message)
            finally:
                lock.release()

        return handle

    explored(build, (M1, M2)).assert_effectively_once()
    assert len(timeouts) < 10


def test_index_that_build_creates_is_there_in_each_schedule() -> None:
    def build(events: Any) -> Any:
        events.create_index("event", unique=True)

        def handle(message: Message) -> None:
            with suppress(DuplicateKeyError):
                events.insert_one({"event": message.id})

        return handle

    world = partial(mongomock_collection, "events")
    explore(build, [Message("m1")], world, lambda events: events.count_documents({})).assert_effectively_once()


def test_sleep_imported_by_name_takes_no_real_time() -> None:
    module: Any = ModuleType("a_users_module")
    sys.modules[module.__name__] = module
    exec("from time import sleep", vars(module))  # noqa: S102  # as a user's module does

    def handle(collection: Any, message: Message) -> None:
        module.sleep(3600)
        collection.update_one({"_id": message.id}, {"$set": {"n": 1}}, upsert=True)

    try:
        explore(
            build_from(handle), [Message("m1")], mongomock_collection, lambda c: c.count_documents({})
        ).assert_effectively_once()
        assert module.sleep is time.sleep
    finally:
        del sys.modules[module.__name__]
