"""The worker and the effects of a message: it waits for another worker's effect, and says what an operator must look up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from math import nan
from typing import Any

import pytest

from onewrite import Applied, BeginOutcome, Begun, Busy, Deferred, Message, Rejected, SeenIds, TakenOver, Uncertain
from onewrite.aws_lambda import sqs_handler
from onewrite.mongodb import GuardedCollection
from onewrite.testing import mongomock_collection
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.seams import worker_in

EPOCH = 1_790_000_000.0  # what the clock on the wall shows when the worker's own shows 0
MESSAGE = Message("m")
KEY = "charge-7f3a"


def uncertain(message: Message = MESSAGE) -> Uncertain:
    return Uncertain(message, EPOCH - 90, "fence", KEY)


def begun(message: Message = MESSAGE) -> Begun:
    return Begun(message, KEY, "fence", EPOCH, EPOCH + 60)


class Script:
    """A function that gives these answers in turn, each made of the message, and then Applied; it notes when it was asked."""

    def __init__(self, time: VirtualTime, *answers: Callable[[Message], BeginOutcome]) -> None:
        self._time, self._left = time, list(answers)
        self.moments: list[float] = []
        self.seen: list[str] = []

    def __call__(self, message: Message) -> BeginOutcome:
        self.moments.append(self._time.now)
        self.seen.append(message.id)
        return self._left.pop(0)(message) if self._left else Applied(message)


def busy_for(time: VirtualTime, seconds: float) -> Callable[[Message], BeginOutcome]:
    return lambda message: Busy(message, EPOCH + time.now + seconds)


def work(sqs: FakeSqs, script: Callable[[Message], Any], *, done: bool = True, **options: Any) -> None:
    """Until the queue is empty, or else until it stops by itself because there is nothing to receive."""
    handler: Any = sqs_handler(lambda record: Message(record["body"]), clock=lambda: EPOCH + sqs.time.now)(script)
    patient = worker_in(sqs.time, URL, handler, client=sqs, **{"in_flight": 1, "stop_when_empty": not done, **options})
    if done:
        sqs.after = lambda method: patient.stop() if method == "delete_message_batch" and not sqs.messages else None
    patient.run()


def hidden(sqs: FakeSqs) -> list[int]:
    """The seconds for which messages were hidden."""
    asked = sqs.requests_of("change_message_visibility_batch")
    return [entry["VisibilityTimeout"] for request in asked for entry in request["Entries"]]


def test_worker_keeps_a_message_for_ten_leases(sqs: FakeSqs, time: VirtualTime) -> None:
    """They take longer than the five minutes after which a deferred message goes back."""
    stored = sqs.send("m")
    script = Script(time, *[busy_for(time, 59.0)] * 10)
    work(sqs, script)
    assert script.moments == [60 * number for number in range(11)]
    assert stored.receives == 1


def test_message_returns_to_the_queue_until_a_long_lease_ends(sqs: FakeSqs, time: VirtualTime) -> None:
    stored = sqs.send("m")
    script = Script(time, busy_for(time, 3600.0))
    work(sqs, script, wait=20)
    assert script.moments == [0, 3601]
    assert (stored.receives, hidden(sqs)) == (2, [3601])


def test_busy_message_returns_to_the_queue_within_twelve_hours(sqs: FakeSqs, time: VirtualTime) -> None:
    def slow_once(message: Message) -> BeginOutcome:
        if not script.moments:
            time.sleep(12 * 3600 - 100)
        return script(message)

    stored = sqs.send("m")
    script = Script(time, busy_for(time, 300.0))
    work(sqs, slow_once, timeout=12 * 3600)
    assert hidden(sqs)[-1] == 100
    assert stored.receives == 2


def test_busy_message_blocks_its_fifo_group_only(time: VirtualTime) -> None:
    fifo = FakeSqs(time, fifo=True)
    for body in ("a1", "a2", "b1"):
        fifo.send(body, group=body[0])
    script = Script(time, busy_for(time, 60.0))
    work(fifo, script)
    assert script.seen == ["a1", "b1", "a1", "a2"]


def test_uncertain_message_returns_for_longer_each_time(
    sqs: FakeSqs, time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.send("m")
    script = Script(time, uncertain, uncertain, uncertain)
    with caplog.at_level(logging.WARNING, "onewrite"):
        work(sqs, script, backoff=lambda tries: 10.0 * tries)
    assert script.moments == [0, 10, 30, 60]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert all("message m," in line and f"the key {KEY} at the provider" in line and "2026-09-21T" in line for line in said)


@pytest.mark.parametrize("key_valid_for", [timedelta(hours=23), timedelta(0)], ids=["with keys", "without keys"])
def test_store_and_worker_agree_on_the_end_of_a_lease(
    sqs: FakeSqs, time: VirtualTime, key_valid_for: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    """The first delivery fails in the middle of its effect. Those after it wait for its lease, and not for the queue."""
    moments: list[float] = []
    with mongomock_collection("orders") as collection:
        orders = GuardedCollection(collection, SeenIds(), clock=lambda: EPOCH + time.now)
        collection.insert_one({"_id": "o"})

        def pay(message: Message) -> BeginOutcome:
            moments.append(time.now)
            effect = orders.begin_effect(
                message, "charge", {"_id": "o"}, lease=timedelta(seconds=200), key_valid_for=key_valid_for
            )
            if len(moments) == 1:
                raise ValueError
            if isinstance(effect, Begun) or (isinstance(effect, Uncertain) and len(moments) == 4):  # looked up by then
                return orders.update_one(message, {"_id": "o"}, {"$inc": {"n": 1}}, finishes=effect)
            return effect

        stored = sqs.send("m")
        with caplog.at_level(logging.WARNING, "onewrite"):
            work(sqs, pay, backoff=lambda _: 10.0)
        assert moments == ([0, 30, 201] if key_valid_for else [0, 30, 201, 211])
        assert stored.receives == (2 if key_valid_for else 3)
        assert orders.find_one({"_id": "o"}) == {"_id": "o", "n": 1}
        assert any("look up the key" in record.getMessage() for record in caplog.records) == (not key_valid_for)


@pytest.mark.parametrize(
    ("outcomes", "seconds"),
    [
        ((Deferred(MESSAGE, 1), Busy(MESSAGE, EPOCH + 20), Busy(MESSAGE, EPOCH + 50), Busy(MESSAGE, EPOCH)), 51),
        ((TakenOver(MESSAGE), Busy(MESSAGE, EPOCH + 20)), 21),
        ((Busy(MESSAGE, EPOCH + 20), uncertain()), 7),
        ((uncertain(), begun()), 40),
        ((Deferred(MESSAGE, 1), TakenOver(MESSAGE)), 7),
        ((Rejected(MESSAGE, settled=False),), 7),
        ((Busy(MESSAGE, nan),), 1),
        ((Busy(MESSAGE, EPOCH - 5),), 1),
    ],
)
def test_strongest_outcome_and_latest_lease_decide(
    outcomes: tuple[BeginOutcome, ...], seconds: int, sqs: FakeSqs, time: VirtualTime
) -> None:
    moments: list[float] = []

    def answer(message: Message) -> list[BeginOutcome]:
        moments.append(time.now)
        return [Applied(message)] if len(moments) > 1 else [*outcomes]

    sqs.send("m")
    work(sqs, answer, visibility_timeout=40, backoff=lambda _: 7.0)
    assert moments == [0, seconds]
