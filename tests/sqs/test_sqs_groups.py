"""The worker with a handler that has `group_by`: what it gathers for one call, and what becomes of each message."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from onewrite import Applied, BeginOutcome, Deferred, Message
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import Skip
from onewrite.sqs import Worker, WorkerStuck
from tests.support.batches import GroupShop, letter
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.seams import measure_by, worker_in

EPOCH = 1_790_000_000.0  # of the handler's clock


def by_place(record: Any) -> Any:
    """`a3` is the third message of the source `a`; `skip` is for nobody, and what begins with `+` has two messages."""
    body = record["body"]
    if body == "skip":
        return Skip("not for us")
    if body.startswith("+"):
        return [Message(f"{name}{body}") for name in body[1:]]
    return Message(body, body[0], int(body[1:]) if body[1:].isdigit() else None, body={"name": body})


class Shop(GroupShop):
    """Notes when each call was, and gives these answers first."""

    def __init__(self, time: VirtualTime, **answers: Callable[[Message], BeginOutcome]) -> None:
        super().__init__()
        self._time, self._answers = time, answers
        self.times: list[float] = []

    def __call__(self, messages: list[Message]) -> list[BeginOutcome]:
        self.times.append(self._time.now)
        return super().__call__(messages)

    def apply(self, message: Message) -> BeginOutcome:
        return self._answers.get(message.id, super().apply)(message)


def worker(sqs: FakeSqs, each: Any, **options: Any) -> Worker:
    """With one slot, until the queue is empty."""
    handler = measure_by(sqs_handler(by_place, group_by=letter, clock=lambda: EPOCH + sqs.time.now)(each), sqs.time)
    return worker_in(sqs.time, URL, handler, client=sqs, **{"in_flight": 1, "stop_when_empty": True, **options})


def send(sqs: FakeSqs, *bodies: str) -> None:
    """The group of a FIFO queue is the first letter."""
    for body in bodies:
        if sqs.fifo:
            sqs.send(body, group=body[0])
        else:
            sqs.send(body)


def raises(_: Message) -> BeginOutcome:
    raise ValueError


def early(message: Message) -> BeginOutcome:
    return Deferred(message, 1)


# ---------------------------------------------------------------- what one call has


def test_waiting_messages_of_a_group_are_one_call(sqs: FakeSqs, time: VirtualTime) -> None:
    send(sqs, "a1", "b1", "a2", "a3", "b2", "c1")
    shop = Shop(time)
    assert worker(sqs, shop).run() is True
    assert shop.calls == ["a1 a2 a3", "b1 b2", "c1"]
    assert sqs.messages == []
    assert [len(request["Entries"]) for request in sqs.requests_of("delete_message_batch")] == [6]


def test_adjacent_messages_of_a_fifo_group_are_one_call(fifo: FakeSqs, time: VirtualTime) -> None:
    for body in ("a1", "a2", "b1", "a3"):
        fifo.send(body, group="g")
    fifo.send("a4", group="h")
    shop = Shop(time)
    worker(fifo, shop, in_flight=2).run()
    assert [names for names in shop.calls if names != "a4"] == ["a1 a2", "b1", "a3"]
    assert "a4" in shop.calls
    assert fifo.messages == []


def test_record_belongs_to_the_group_of_its_first_message(sqs: FakeSqs, time: VirtualTime) -> None:
    send(sqs, "+ab", "a1", "b1")
    shop = Shop(time)
    worker(sqs, shop).run()
    assert shop.calls == ["a+ab a1", "b+ab", "b1"]
    assert sqs.messages == []


# ---------------------------------------------------------------- what becomes of each message


def test_failing_message_and_its_followers_are_redelivered_together(sqs: FakeSqs, time: VirtualTime) -> None:
    send(sqs, "a1", "a2", "a3", "b1")
    shop = Shop(time, a2=raises)
    worker(sqs, shop, wait=0).run()
    assert shop.calls == ["a1 a2 a3", "a1", "a2", "b1"]
    assert [stored.body for stored in sqs.messages] == ["a2", "a3"]


def test_messages_after_a_failure_in_a_fifo_group_are_redelivered(fifo: FakeSqs, time: VirtualTime) -> None:
    for body in ("a1", "a2", "a3", "b1"):
        fifo.send(body, group="g")
    shop = Shop(time, a2=raises)
    worker(fifo, shop, wait=0).run()
    assert shop.calls == ["a1 a2 a3", "a1", "a2"]
    assert [stored.body for stored in fifo.messages] == ["a2", "a3", "b1"]


def test_deferred_messages_of_a_group_are_retried_together(sqs: FakeSqs) -> None:
    tries: list[int] = []

    def each(messages: list[Message]) -> list[BeginOutcome]:
        tries.append(len(messages))
        return [Applied(each) if len(tries) > 1 or each.id == "a1" else early(each) for each in messages]

    send(sqs, "a1", "a2", "a3", "a4")
    stored = list(sqs.messages)
    worker(sqs, each).run()
    assert tries == [4, 3]
    assert sqs.messages == []
    assert {each.receives for each in stored} == {1}


def test_deferred_message_holds_back_its_fifo_group_only(fifo: FakeSqs, time: VirtualTime) -> None:
    answers = [early]
    shop = Shop(time, a2=lambda message: answers.pop()(message) if answers else Applied(message))
    for body in ("a1", "a2", "a3"):
        fifo.send(body, group="g")
    fifo.send("c1", group="h")
    worker(fifo, shop, backoff=lambda _: 10.0, wait=20).run()
    assert list(zip(shop.times, shop.calls, strict=True)) == [(0, "a1 a2 a3"), (0, "c1"), (0, "a2 a3")]
    assert fifo.messages == []


def test_overdue_group_returns_to_the_queue_as_a_whole(
    sqs: FakeSqs, time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    send(sqs, "a1", "a2", "a3")
    with caplog.at_level(logging.WARNING), pytest.raises(WorkerStuck, match="1 of 1 slots"):
        worker(sqs, lambda _: time.sleep(400), timeout=12).run()
    assert re.search("not finished after 12 seconds.* message a1 .* message a2 .* message a3", caplog.text)
    assert {stored.visible_at <= time.now for stored in sqs.messages} == {True}
    assert len(sqs.messages) == 3


def test_overdue_fifo_group_returns_to_the_queue_with_its_followers(fifo: FakeSqs, time: VirtualTime) -> None:
    for body in ("a1", "a2", "b1"):
        fifo.send(body, group="g")
    with pytest.raises(WorkerStuck):
        worker(fifo, lambda _: time.sleep(400), timeout=12).run()
    given_back = [
        entry["ReceiptHandle"]
        for request in fifo.requests_of("change_message_visibility_batch")
        for entry in request["Entries"]
        if entry["VisibilityTimeout"] == 0
    ]
    assert len(given_back) == len(set(given_back)) == 3


def test_messages_of_a_failed_group_are_retried_until_the_timeout(sqs: FakeSqs, time: VirtualTime) -> None:
    names: list[int] = []

    def each(messages: list[Message]) -> None:
        names.append(len(messages))
        time.sleep(4)
        if len(messages) > 1:
            raise ValueError

    send(sqs, "a1", "a2", "a3", "a4")
    once = worker(sqs, each, timeout=12, stop_when_empty=False, visibility_timeout=300)
    sqs.after = lambda method: once.stop() if method == "delete_message_batch" else None
    once.run()
    assert names == [4, 1]  # After these 8 seconds another call of 4 seconds, and a half more, might not end in time.
    assert [stored.body for stored in sqs.messages] == ["a2", "a3", "a4"]


def test_stopping_worker_retries_no_single_messages(sqs: FakeSqs, time: VirtualTime) -> None:
    shop = Shop(time, a3=raises)

    def each(messages: list[Message]) -> list[BeginOutcome]:
        if len(shop.calls) == 1:
            stopped.stop()
        return shop(messages)

    send(sqs, "a1", "a2", "a3")
    stopped = worker(sqs, each, stop_when_empty=False)
    assert stopped.run() is True
    assert shop.calls == ["a1 a2 a3", "a1"]
    assert [stored.body for stored in sqs.messages] == ["a2", "a3"]


@pytest.mark.parametrize("kind", ["sqs", "fifo"])
def test_stopping_worker_returns_an_unfinished_record_at_once(
    kind: str, time: VirtualTime, request: pytest.FixtureRequest
) -> None:
    queue: FakeSqs = request.getfixturevalue(kind)
    shop = Shop(time)

    def each(messages: list[Message]) -> list[BeginOutcome]:
        stopped.stop()
        time.sleep(1)  # meanwhile, the worker returns everything except this load
        return shop(messages)

    queue.send("+ab", group="g" if queue.fifo else None)  # its second message is in another call
    stopped = worker(queue, each, stop_when_empty=False)
    assert stopped.run() is True
    assert shop.calls == ["a+ab"]
    assert [stored.visible_at for stored in queue.messages] == [time.now]


def test_each_message_is_counted_and_logged_once(sqs: FakeSqs, time: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, str]] = []

    def hook(message: Message | None, outcome: Any, _: float) -> None:
        assert message is not None
        told.append((message.id, type(outcome).__name__))
        raise ZeroDivisionError

    send(sqs, "a1", "a2", "b1")
    with caplog.at_level(logging.INFO):
        worker(sqs, Shop(time, a2=raises), wait=0, on_outcome=hook).run()
    assert told == [("a1", "Duplicate"), ("a2", "ValueError"), ("b1", "Applied")]
    assert "1 Applied, 1 Duplicate, 1 Failed" in caplog.text
    assert caplog.text.count("on_outcome raised ZeroDivisionError") == 3
