"""Whatever a worker does not settle can be found in its log, by the id and the source of the message."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from onewrite import Applied, BeginOutcome, Begun, Busy, Deferred, Message, Missing, Rejected, TakenOver, Uncertain
from onewrite.aws_lambda import sqs_handler
from onewrite.sqs import Worker, state
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime, client_error
from tests.support.seams import worker_in

EPOCH = 1_790_000_000.0
MOST = 3
NAMED = "message evt-1 of source order-7, sequence 2"
LAST = f"This was the last delivery, {MOST} of {MOST}: the queue moves the message to orders-dead."


def identity(record: Any) -> Message:
    return Message(record["body"], source="order-7", sequence=2)


def worker(sqs: FakeSqs, handler: Any, **options: Any) -> Worker:
    return worker_in(sqs.time, URL, handler, client=sqs, **{"timeout": 100, "in_flight": 4, "drain_seconds": 1, **options})


@pytest.fixture
def mortal(time: VirtualTime) -> FakeSqs:
    """A queue with one message, which it moves to its dead-letter queue after three deliveries."""
    sqs = FakeSqs(time, most_receives=MOST)
    sqs.send("evt-1")
    return sqs


def until_it_is_dead(sqs: FakeSqs, handler: Any, **options: Any) -> None:
    """Work until all that is left is in the dead-letter queue."""
    patient = worker(sqs, handler, **options)
    sqs.after = lambda method: patient.stop() if method == "receive_message" and not sqs.messages else None
    patient.run()
    assert sqs.dead


def last_words(caplog: pytest.LogCaptureFixture) -> str:
    """The one line that says that the queue gives a message up."""
    [last] = [text for text in warnings(caplog) if text.endswith(LAST)]
    return last


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


ANSWERS: list[Callable[[Message, float], BeginOutcome]] = [
    lambda message, _: Deferred(message, 1),
    lambda message, _: Missing(message),
    lambda message, _: Rejected(message, settled=False),
    lambda message, now: Busy(message, now + 1200),  # longer than a message waits at hand
    lambda message, _: Uncertain(message, EPOCH, "fence", "key"),
    lambda message, _: TakenOver(message),
    lambda message, _: Begun(message, "key", "fence", EPOCH, EPOCH + 60),
]
KINDS = ["Deferred", "Missing", "Rejected", "Busy", "Uncertain", "TakenOver", "Begun"]


@pytest.mark.parametrize("is_group", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize(("answer", "kind"), [*zip(ANSWERS, KINDS, strict=True)], ids=KINDS)
def test_each_dead_message_is_logged_with_its_outcome(
    answer: Callable[[Message, float], BeginOutcome],
    kind: str,
    is_group: bool,
    mortal: FakeSqs,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock: Any = lambda: EPOCH + mortal.time.now  # noqa: E731  # it is one line
    one: Any = sqs_handler(identity, clock=clock)(lambda message: answer(message, clock()))
    group: Any = sqs_handler(identity, group_by=lambda message: message.source, clock=clock)(
        lambda messages: [answer(message, clock()) for message in messages]
    )
    until_it_is_dead(mortal, group if is_group else one)
    last = last_words(caplog)
    assert NAMED in last
    assert f"attempt {MOST}: {kind}" in last
    if kind in ("Uncertain", "TakenOver", "Begun"):  # what is held at hand is tried more often than it is delivered
        assert [text for text in warnings(caplog) if f"attempt {MOST}: " in text] == [last]


def fails(_: Message) -> None:
    raise ValueError


def test_dead_message_is_logged_with_its_error(mortal: FakeSqs, caplog: pytest.LogCaptureFixture) -> None:
    until_it_is_dead(mortal, sqs_handler(identity)(fails))
    assert f"{NAMED}, attempt 3: ValueError at test_sqs_traces.py:" in last_words(caplog)
    assert caplog.records[-1].__dict__["onewrite"]["last_delivery"]


def test_dead_message_is_logged_if_it_never_began(time: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    sqs = FakeSqs(time, fifo=True, most_receives=MOST)
    sqs.send("evt-1", group="g")
    behind = sqs.send("evt-2", group="g")
    until_it_is_dead(sqs, sqs_handler(identity)(fails))
    assert sqs.dead == [sqs.dead[0], behind]
    assert [text for text in warnings(caplog) if text.endswith(LAST) and f"record {behind.id}; " in text]


def test_dead_message_is_logged_if_workers_kept_stopping(mortal: FakeSqs, caplog: pytest.LogCaptureFixture) -> None:
    """As by one deployment after the other: each of them costs a delivery."""
    caplog.set_level(logging.INFO)
    workers: list[Worker] = []

    def defer(message: Message) -> BeginOutcome:
        workers[-1].stop()
        return Deferred(message, 1)

    for _ in range(MOST):
        workers.append(worker(mortal, sqs_handler(identity)(defer), wait=0))
        workers[-1].run()
    told = [record for record in caplog.records if "because the worker is stopping" in record.getMessage()]
    assert [record.levelname for record in told] == ["INFO", "INFO", "WARNING"]
    assert all(NAMED in record.getMessage() for record in told)
    assert told[-1].getMessage().endswith(LAST)


@pytest.mark.parametrize("why", ["no progress", "no room", "long lease"])
def test_returned_message_is_logged_without_a_redrive_policy(
    why: str, sqs: FakeSqs, time: VirtualTime, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = sqs.send("evt-1")
    answer = ANSWERS[3] if why == "long lease" else ANSWERS[0]
    handler = sqs_handler(identity, clock=lambda: EPOCH + time.now)(lambda message: answer(message, EPOCH + time.now))
    monkeypatch.setattr(state, "MAX_DEFERRED", 0 if why == "no room" else 10)
    patient = worker(sqs, handler)
    sqs.after = lambda method: patient.stop() if method == "receive_message" and stored.receives == 2 else None
    patient.run()
    [first, *_] = warnings(caplog)
    assert NAMED in first
    assert "goes back to the queue" in first
    details = next(record for record in caplog.records if record.levelno == logging.WARNING).__dict__["onewrite"]
    [failure] = details["failures"]
    assert (failure["message"], failure["source"], failure["sequence"]) == ("evt-1", "order-7", 2)


def test_deferred_message_logs_no_warning_if_applied_later(sqs: FakeSqs, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tries: list[str] = []

    def early(message: Message) -> BeginOutcome:
        tries.append(message.id)
        return Deferred(message, 1) if len(tries) < 4 else Applied(message)

    sqs.send("evt-1")
    patient = worker(sqs, sqs_handler(identity)(early))
    sqs.after = lambda method: patient.stop() if method == "delete_message_batch" else None
    patient.run()
    assert warnings(caplog) == []
    assert caplog.text.count(f"{NAMED}, attempt 1: Deferred (message 1 of its source") == 3


def test_failing_log_filter_loses_only_log_lines(
    time: VirtualTime, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    sqs = FakeSqs(time, most_receives=MOST)
    for body in ("good", "slow", "bad", "early"):
        sqs.send(body)
    tries: Counter[str] = Counter()

    def each(message: Message) -> BeginOutcome:
        tries[message.id] += 1
        if message.id == "bad":
            raise ValueError
        time.sleep(200 if tries["slow"] == 1 and message.id == "slow" else 0)  # twice the timeout
        return Deferred(message, 1) if message.id == "early" else Applied(message)

    def hook(*_: object) -> None:
        raise ValueError

    def logs_nothing(_: logging.LogRecord) -> bool:
        raise AttributeError

    methods = ["receive_message", "delete_message_batch", "change_message_visibility_batch"]

    def first_fails(method: str) -> None:
        if method in methods:
            methods.remove(method)
            raise client_error("ServiceUnavailable", 503)

    sqs.before = first_fails
    sqs.refuse = lambda *_: False if time.now < 20 else None
    logger = logging.getLogger("onewrite")
    logger.addFilter(logs_nothing)
    try:
        until_it_is_dead(sqs, sqs_handler(identity)(each), on_outcome=hook)
    finally:
        logger.removeFilter(logs_nothing)
    assert sorted(stored.body for stored in sqs.dead) == ["bad", "early"]
    assert caplog.records == []
    assert set(capsys.readouterr().err.splitlines()) == {"onewrite: a log line was lost: AttributeError"}
