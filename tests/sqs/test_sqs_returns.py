"""Each way in which a message goes back to the queue has a line in the log that the alarm for unsettled messages counts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from onewrite import Applied, Begun, Busy, Deferred, Message, Missing, Rejected, TakenOver, Uncertain
from onewrite.aws_lambda import sqs_handler
from onewrite.operate.report import JsonLines
from onewrite.sqs import Worker
from tests.support.alarms import UNSETTLED, counted_lines
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.seams import measure_by, worker_in

EPOCH = 1_790_000_000.0  # of the handler's clock
PATIENCE = 30.0  # real seconds, on a busy machine


def by_body(record: Any) -> Message:
    if record["body"] == "unreadable":
        raise ValueError
    return Message(record["body"], "s", 1)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The log as `onewrite worker --log-format json` writes it by default."""
    written: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: written.append(JsonLines().format(record))  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO, "onewrite"):
        logging.getLogger("onewrite").addHandler(handler)
        yield written
        logging.getLogger("onewrite").removeHandler(handler)


def work(queue: FakeSqs, function: Callable[[Message], Any], **options: Any) -> Worker:
    handler = measure_by(sqs_handler(by_body, clock=lambda: EPOCH + queue.time.now)(function), queue.time)
    worker = worker_in(
        queue.time, URL, handler, client=queue, **{"in_flight": 1, "wait": 0, "stop_when_empty": True, **options}
    )
    with suppress(Exception, SystemExit):  # some of the ways end the worker
        worker.run()
    return worker


def exits(_: Message) -> None:
    raise SystemExit


def raises(_: Message) -> None:
    raise ValueError


# Each function's message goes back after its first attempt, or after the five minutes for which the worker keeps it.
FUNCTIONS: dict[str, Callable[[Message], Any]] = {
    "it raises": raises,
    "it exits": exits,
    "it returns something else": lambda _: 5,
    "deferred": lambda message: Deferred(message, 1),
    "missing": lambda message: [Missing(message)],
    "rejected": lambda message: Rejected(message, settled=False),
    "busy for long": lambda message: Busy(message, EPOCH + 3600),
    "uncertain": lambda message: Uncertain(message, EPOCH, "fence"),
    "taken over": lambda message: [TakenOver(message)],
    "begun": lambda message: Begun(message, "key", "fence", EPOCH, EPOCH),
}


@pytest.mark.parametrize("way", FUNCTIONS)
def test_unsettled_message_is_counted(way: str, sqs: FakeSqs, lines: list[str]) -> None:
    sqs.send("m")
    work(sqs, FUNCTIONS[way])
    assert len(sqs.messages) == 1
    assert counted_lines(UNSETTLED, [line for line in lines if "message-1" in line]) > 0


def test_unreadable_message_is_counted(sqs: FakeSqs, lines: list[str]) -> None:
    sqs.send("unreadable")
    work(sqs, raises)
    assert counted_lines(UNSETTLED, lines) == 1


def test_message_that_exceeds_its_timeout_is_counted_each_time(sqs: FakeSqs, time: VirtualTime, lines: list[str]) -> None:
    sqs.most_receives = 3
    sqs.send("m")
    work(sqs, lambda _: time.sleep(30), timeout=20, in_flight=7)
    assert [message.body for message in sqs.dead] == ["m"]
    assert counted_lines(UNSETTLED, lines) == 3
    assert sum("This was the last delivery, 3 of 3" in line for line in lines) == 1


def test_followers_of_a_failed_group_message_are_counted(fifo: FakeSqs, lines: list[str]) -> None:
    for body in "abc":
        fifo.send(body, group="g")
    work(fifo, raises, in_flight=3)
    (line,) = [line for line in lines if "an earlier message of its group" in line]
    assert counted_lines(UNSETTLED, [line]) == 1
    assert "record message-2; record message-3; each goes back" in line


def test_message_that_waited_too_long_is_counted(fifo: FakeSqs, time: VirtualTime, lines: list[str]) -> None:
    for body in "ab":
        fifo.send(body, group="g")
    fifo.refuse = lambda kind, _: True if kind == "hide" else None

    work(fifo, lambda _: time.sleep(40), in_flight=3)
    assert counted_lines(UNSETTLED, [line for line in lines if "SQS no longer hides it" in line]) == 1


def test_messages_of_a_stopping_worker_are_counted(fifo: FakeSqs, time: VirtualTime, lines: list[str]) -> None:
    for body in "abc":
        fifo.send(body, group="g")

    def function(message: Message) -> Applied:
        stopping.stop()
        time.sleep(2)
        return Applied(message)

    handler = measure_by(sqs_handler(by_body)(function), time)
    stopping = worker_in(time, URL, handler, client=fifo, in_flight=3)
    stopping.run()
    (line,) = [line for line in lines if "because the worker is stopping" in line]
    assert counted_lines(UNSETTLED, [line]) == 1
    assert len(fifo.messages) == 2


def test_messages_in_progress_at_the_deadline_are_counted(sqs: FakeSqs, time: VirtualTime, lines: list[str]) -> None:
    sqs.send("slow")

    released = threading.Event()

    def function(_: Message) -> None:
        stopping.stop()
        assert released.wait(PATIENCE)

    handler = measure_by(sqs_handler(by_body)(function), time)
    stopping = worker_in(time, URL, handler, client=sqs, in_flight=1, drain_seconds=0)
    assert stopping.run() is False
    released.set()
    (line,) = [line for line in lines if "stopped before these messages finished" in line]
    assert counted_lines(UNSETTLED, [line]) == 1
