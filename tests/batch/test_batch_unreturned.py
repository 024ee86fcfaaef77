"""A function that forgets to return an unsettled outcome loses no message."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from onewrite import Begun, Busy, InSequence, Message, Outcome, SeenIds, Uncertain
from onewrite.aws_lambda import sqs_handler
from onewrite.metrics import list_kinds
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing.standins.collection import AsyncStandInCollection
from onewrite.testing.standins.stores import mongomock_collection
from tests.support.batches import EFFECT, by_name, identifiers, sqs
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.seams import worker_in

ENTITY = {"_id": "o"}
PAY: Any = {"$inc": {"paid": 1}}


class Orders:
    """One order, which is not there until a message places it."""

    def __init__(self) -> None:
        self.collection = mongomock_collection("orders")
        self.guarded = GuardedCollection(self.collection, SeenIds())
        awaited: Any = AsyncStandInCollection(self.collection)
        self.awaited = AsyncGuardedCollection(awaited, SeenIds())
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(int).result()  # it has its thread since before the record comes

    def place(self, message: Message) -> None:
        self.guarded.insert_one(message, {**ENTITY, "paid": 0})

    def pay(self, message: Message) -> Outcome:
        return self.guarded.update_one(message, ENTITY, PAY)

    async def apay(self, message: Message) -> Outcome:
        return await self.awaited.update_one(message, ENTITY, PAY)


@pytest.fixture
def orders() -> Orders:
    return Orders()


# --- each kind of function ----------------------------------------------------------------------------------------------


def blocking(orders: Orders, message: Message) -> None:
    orders.pay(message)


def empty_list(orders: Orders, message: Message) -> list[Outcome]:
    orders.pay(message)
    return []


def old_thread(orders: Orders, message: Message) -> None:
    orders.pool.submit(orders.pay, message).result()


async def gathering(orders: Orders, message: Message) -> None:
    await asyncio.gather(orders.apay(message), asyncio.to_thread(orders.pay, message.part("b")))


def part(orders: Orders, message: Message) -> None:
    orders.pay(message.part("payment"))


def batched(orders: Orders, message: Message) -> None:
    orders.guarded.update_batch([message], lambda _: {"filter": ENTITY, "update": PAY})


FUNCTIONS = [blocking, empty_list, old_thread, gathering, part, batched]
functions = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)


@functions
@pytest.mark.parametrize("workers", [1, 3])
def test_unreturned_missing_fails_its_record(
    function: Callable[..., Any], workers: int, orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    handler = sqs_handler(by_name, max_workers=workers)(partial(function, orders))
    report = handler.run(sqs(["m1", "m2"]))
    assert identifiers(report.response) == ["id-m1", "id-m2"]
    assert {kind for result in report.results for kind, _ in list_kinds(result.reported)} == {"Missing"}
    line = caplog.records[-1].getMessage()
    assert line.count("Missing (not returned; the entity doesn't exist") == 2
    assert line.count("test_batch_unreturned.py:") == 2


@functions
def test_none_settles_a_record_whose_writes_are_settled(function: Callable[..., Any], orders: Orders) -> None:
    orders.place(Message("place"))
    handler = sqs_handler(by_name, max_workers=3)(partial(function, orders))
    assert handler(sqs(["m1", "m2", "m1"]), None) == {"batchItemFailures": []}


def test_group_that_returns_none_fails_unsettled_messages(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    def handle(messages: list[Message]) -> None:
        for message in messages:
            if message.id == "m2":
                orders.place(message)
            elif message.id != "m3":
                orders.pay(message)

    handler = sqs_handler(by_name, group_by=lambda _: "all")(handle)
    assert identifiers(handler(sqs(["m1", "m2", "m3", "m4"]), None)) == ["id-m1"]
    assert "not returned" in caplog.records[-1].getMessage()


def test_batch_of_group_that_returns_none_fails_its_messages(orders: Orders) -> None:
    sequence = GuardedCollection(orders.collection, InSequence())

    def handle(messages: list[Message]) -> None:
        sequence.update_batch(messages, lambda fresh: {"filter": ENTITY, "update": PAY, "upsert": True})

    def by_number(record: Any) -> Message:
        return Message(record["body"], source="s", sequence=int(record["body"]))

    handler = sqs_handler(by_number, group_by=lambda _: "all")(handle)
    assert identifiers(handler(sqs(["1", "2", "5"]), None)) == ["id-5"]


# --- each kind of outcome -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rejected_ok", [False, True])
def test_refusal_settles_the_record_if_declared_final(orders: Orders, *, rejected_ok: bool) -> None:
    orders.place(Message("place"))

    def handle(message: Message) -> None:
        orders.guarded.update_one(message, {**ENTITY, "paid": 7}, PAY, rejected_ok=rejected_ok)

    assert sqs_handler(by_name)(handle).run(sqs(["m"])).response == {
        "batchItemFailures": [] if rejected_ok else [{"itemIdentifier": "id-m"}]
    }


def test_missing_ok_needs_no_return(orders: Orders) -> None:
    def handle(message: Message) -> None:
        orders.guarded.update_one(message, ENTITY, PAY, missing_ok=True)

    assert sqs_handler(by_name)(handle)(sqs(["m"]), None) == {"batchItemFailures": []}


def test_hint_needs_no_return(orders: Orders) -> None:
    orders.place(Message("place"))
    orders.guarded.begin_effect(Message("m"), "charge", ENTITY, **EFFECT)

    def handle(message: Message) -> None:
        assert isinstance(orders.guarded.preview(message, ENTITY), Busy)
        assert isinstance(orders.guarded.open_effects(ENTITY)[0], Busy)

    assert sqs_handler(by_name)(handle)(sqs(["m"]), None) == {"batchItemFailures": []}


def test_uncertain_effect_is_settled_with_its_successor(orders: Orders) -> None:
    orders.place(Message("place"))
    terms: Any = {"lease": timedelta(seconds=1), "key_valid_for": timedelta(0)}
    hour_ago = GuardedCollection(orders.collection, SeenIds(), clock=lambda: time.time() - 3600)
    hour_ago.begin_effect(Message("m"), "charge", ENTITY, **terms)

    def handle(message: Message) -> Outcome:
        lost = orders.guarded.begin_effect(message, "charge", ENTITY, **terms)
        assert isinstance(lost, Uncertain)
        begun = orders.guarded.begin_effect(message, "charge", ENTITY, after=lost, **terms)
        assert isinstance(begun, Begun)
        return orders.guarded.update_one(message, ENTITY, PAY, finishes=begun)

    assert sqs_handler(by_name)(handle)(sqs(["m"]), None) == {"batchItemFailures": []}


@pytest.mark.parametrize(
    "make",
    [
        lambda _: Message("another"),
        lambda message: Message(message.id, source="another"),
        lambda message: Message(message.child("mail")),
    ],
    ids=["id", "source", "child"],
)
def test_unsettled_write_of_its_own_message_fails_the_record(
    make: Callable[[Message], Message], orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Message) -> None:
        orders.pay(make(message))

    handler = sqs_handler(by_name)(handle)
    assert identifiers(handler(sqs(["m"]), None)) == ["id-m"]
    assert "Missing (not returned" in caplog.records[-1].getMessage()
    orders.place(Message("place"))
    assert identifiers(handler(sqs(["m"]), None)) == []


def test_returned_preview_settles_no_message(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    orders.place(Message("place"))

    def handle(message: Message) -> Outcome:
        seen = orders.guarded.preview(message, ENTITY)
        return seen if seen.settled else orders.pay(message)

    assert identifiers(sqs_handler(by_name)(handle)(sqs(["m", "place"]), None)) == ["id-m"]
    assert "Applied of preview, which writes nothing" in caplog.records[-1].getMessage()


def test_outcome_as_a_condition_is_refused_with_the_reason(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    assert identifiers(sqs_handler(by_name)(lambda message: orders.pay(message) or None)(sqs(["m"]), None)) == ["id-m"]
    assert "NoTruthValue (Missing has no truth value, because an outcome is more than yes or no." in caplog.text


# --- several deliveries at a time -----------------------------------------------------------------------------------------


def test_delivery_is_judged_by_its_own_writes(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    """Two copies of a message are in work at a time. The one that writes nothing says nothing."""
    caplog.set_level(logging.INFO)
    both, writers = threading.Barrier(2), iter([True, False])

    def handle(message: Message) -> None:
        writes = next(writers)
        both.wait(10)
        if writes:
            orders.pay(message)
        both.wait(10)

    report = sqs_handler(by_name, max_workers=2)(handle).run(sqs(["m", "m"]))
    assert sorted(len(result.outcomes) for result in report.results) == [0, 1]


def test_write_after_the_return_does_not_fail_a_later_record(orders: Orders) -> None:
    goes_on, is_done = threading.Event(), threading.Event()

    def write_late(message: Message) -> None:
        goes_on.wait(10)
        orders.pay(message)
        is_done.set()

    def handle(message: Message) -> None:
        if message.id == "m1":
            threading.Thread(target=write_late, args=(message,)).start()
        else:
            goes_on.set()
            is_done.wait(10)

    assert sqs_handler(by_name)(handle)(sqs(["m1", "m2"]), None) == {"batchItemFailures": []}


def test_worker_keeps_message_whose_outcome_is_not_returned(orders: Orders, caplog: pytest.LogCaptureFixture) -> None:
    time = VirtualTime()
    queue, tries = FakeSqs(time), list[str]()
    queue.send("pay")

    @sqs_handler(by_name)
    def handle(message: Message) -> None:
        tries.append(message.id)
        if len(tries) == 3:
            orders.place(Message("place"))
        orders.pay(message)

    worker_in(time, URL, handle, client=queue, in_flight=1, stop_when_empty=True, backoff=lambda _: 1.0).run()
    assert (len(tries), queue.messages) == (3, [])
    assert sum("not returned" in line.getMessage() for line in caplog.records) == 2
