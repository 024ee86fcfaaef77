"""The worker against a queue in memory: what it does with a batch, how it waits, and how it stops."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Any, cast

import boto3
import pytest
from botocore.exceptions import NoRegionError

from onewrite import Applied, ConfigurationError, Deferred, Duplicate, Message, Missing, Outcome
from onewrite.aws_lambda import kinesis_handler, sqs_handler
from onewrite.batch.handler import HandlerFunction, find_handler
from onewrite.sqs import QueueRefused, Worker, WorkerStuck, backoff
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime, client_error, lost_connection
from tests.support.seams import worker_in

PATIENCE = 30.0  # real seconds, for threads on a busy machine


def by_body(record: Any) -> Message:
    return Message(record["body"], body=record)


class Ledger:
    """An entity that knows what was applied to it, and a handler that does what it is told with each message."""

    def __init__(self, act: Callable[[Message], None] = lambda _: None) -> None:
        self.effects: Counter[str] = Counter()
        self.seen: list[str] = []
        self._act = act

    def __call__(self, message: Message) -> Outcome:
        self.seen.append(message.id)
        self._act(message)
        if self.effects[message.id]:
            return Duplicate(message)
        self.effects[message.id] += 1
        return Applied(message)


def worker(sqs: FakeSqs, handle: Callable[[Message], Any] | HandlerFunction[Any, Any], **options: Any) -> Worker:
    """A worker with one slot that ends when the queue is empty, and has the same clock as the queue."""
    handler: Any = (
        handle if find_handler(handle) is not None else sqs_handler(by_body)(cast("Callable[[Message], Any]", handle))
    )
    arguments = {"stop_when_empty": True, "in_flight": 1, **options}
    return worker_in(sqs.time, URL, handler, client=sqs, **arguments)


class Barrier:
    """Holds a thread at a point until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()

    def __call__(self, *_: Any) -> None:
        self.reached.set()
        assert self.released.wait(PATIENCE)

    def then(self, act: Callable[[], None]) -> None:
        """Do this as soon as a thread is held."""

        def wait() -> None:
            assert self.reached.wait(PATIENCE)
            act()

        threading.Thread(target=wait).start()


def until(true: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    limit = monotonic() + PATIENCE
    while not true():
        assert monotonic() < limit
        threading.Event().wait(0.001)


def failing(method: str, *errors: BaseException) -> Callable[[str], None]:
    """For `before` and `after`: the first requests of this name fail."""
    left = list(errors)

    def hook(asked: str) -> None:
        if asked == method and left:
            raise left.pop(0)

    return hook


# ---------------------------------------------------------------- the loop


def test_every_message_is_processed_and_deleted_in_batches(sqs: FakeSqs) -> None:
    for number in range(25):
        sqs.send(f"m{number}")
    ledger = Ledger()
    assert worker(sqs, ledger).run() is True
    assert sorted(ledger.effects) == sorted(f"m{number}" for number in range(25))
    assert set(ledger.effects.values()) == {1}
    assert sqs.messages == []
    assert [len(request["Entries"]) for request in sqs.requests_of("delete_message_batch")] == [10, 10, 5]
    assert sqs.requests_of("change_message_visibility_batch") == []


@pytest.mark.parametrize(
    ("options", "number", "wait", "visibility"),
    [
        ({"in_flight": 10}, 10, 20, 30),
        ({"wait": 7, "visibility_timeout": 90}, 1, 7, 90),
        ({"stop_when_empty": True}, 1, 3, 30),
    ],
    ids=["plain", "chosen", "until empty"],
)
def test_messages_are_received_with_all_attributes_by_long_polling(
    options: dict[str, Any], number: int, wait: int, visibility: int, sqs: FakeSqs
) -> None:
    sqs.send("m")
    patient = worker(sqs, Ledger(), **{"stop_when_empty": False, **options})
    sqs.after = lambda method: patient.stop() if method == "delete_message_batch" else None
    assert patient.run() is True
    assert sqs.requests_of("receive_message")[0] == {
        "QueueUrl": URL,
        "MaxNumberOfMessages": number,
        "WaitTimeSeconds": wait,
        "VisibilityTimeout": visibility,
        "MessageSystemAttributeNames": ["All"],
        "MessageAttributeNames": ["All"],
    }


def test_failed_message_is_redelivered_after_its_visibility_timeout(sqs: FakeSqs, time: VirtualTime) -> None:
    moments: list[float] = []

    def fail_twice(message: Message) -> Outcome:
        moments.append(time.now)
        if len(moments) < 3:
            raise ValueError
        return Applied(message)

    sqs.send("bad")
    stubborn = worker(sqs, fail_twice, stop_when_empty=False, visibility_timeout=40)
    sqs.after = lambda method: stubborn.stop() if method == "delete_message_batch" else None
    stubborn.run()
    assert moments == [0, 40, 80]
    assert sqs.requests_of("change_message_visibility_batch") == []


@pytest.mark.parametrize("exit_", [SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("how", ["plain", "asynchronous", "in a task"])
def test_exit_ends_the_worker_and_settles_nothing(exit_: BaseException, how: str, sqs: FakeSqs, time: VirtualTime) -> None:
    def leave(message: Message) -> None:
        if message.id == "bad":
            raise exit_

    async def leave_later(message: Message) -> None:
        leave(message)

    async def aleave(message: Message) -> None:
        await (asyncio.create_task(leave_later(message)) if how == "in a task" else leave_later(message))

    for body in ("a", "bad", "b"):
        sqs.send(body)
    with pytest.raises(type(exit_)) as caught:
        worker(sqs, leave if how == "plain" else aleave, wait=0).run()
    assert caught.value is exit_
    assert "bad" in [stored.body for stored in sqs.messages]
    assert time.now < 5  # it does not wait for what will not end


# ---------------------------------------------------------------- a slow handler


def test_slow_handler_keeps_its_messages_hidden_from_other_workers(sqs: FakeSqs, time: VirtualTime) -> None:
    seen_meanwhile: list[Any] = []

    def slow(message: Message) -> Outcome:
        for _ in range(20):
            time.sleep(29)
            seen_meanwhile.extend(sqs._visible())
        return Applied(message)

    for body in ("a", "b"):
        sqs.send(body)
    assert worker(sqs, slow, in_flight=2, timeout=43_200).run() is True
    assert seen_meanwhile == []
    assert sqs.messages == []
    extended = [request["Entries"] for request in sqs.requests_of("change_message_visibility_batch")]
    assert len(extended[0]) == 2  # both in one request; the last one may come when one of them has just ended
    assert {entry["VisibilityTimeout"] for entries in extended for entry in entries} == {30}


def test_message_returns_to_the_queue_if_its_extension_ends(sqs: FakeSqs, time: VirtualTime) -> None:
    """Otherwise it might hide the message for long that has just been told to come again soon."""

    def before(method: str) -> None:
        if method == "change_message_visibility_batch":
            time.sleep(4)  # The timeout of the message strikes within the first extension.

    def hang(_: Message) -> None:
        time.sleep(400)

    sqs.send("m")
    sqs.before = before
    stuck = worker(sqs, hang, timeout=12, in_flight=1)
    with pytest.raises(WorkerStuck):
        stuck.run()
    told = [request["Entries"][0]["VisibilityTimeout"] for request in sqs.requests_of("change_message_visibility_batch")]
    assert told == [30, 0]
    assert sqs.messages[0].visible_at <= time.now


@pytest.mark.parametrize("fails", ["request", "entry"])
def test_failed_extension_is_retried_in_time(fails: str, sqs: FakeSqs, time: VirtualTime) -> None:
    def slow(message: Message) -> None:
        time.sleep(100)

    sqs.send("a")
    sqs.send("b")
    if fails == "request":
        sqs.before = failing("change_message_visibility_batch", *[client_error("InternalError", 500)] * 2)
    refusals = [False, None, False]
    sqs.refuse = lambda kind, _: refusals.pop(0) if kind == "hide" and fails == "entry" and refusals else None
    ledger = Ledger(slow)
    worker(sqs, ledger, in_flight=2).run()
    assert sorted(ledger.seen) == ["a", "b"]
    assert sqs.messages == []


# ---------------------------------------------------------------- requests that fail


def test_entries_that_fail_are_deleted_by_another_request(sqs: FakeSqs) -> None:
    for number in range(4):
        sqs.send(f"m{number}")
    refusals = [None, False, None, False, False]
    sqs.refuse = lambda kind, _: refusals.pop(0) if kind == "delete" and refusals else None
    worker(sqs, Ledger()).run()
    assert sqs.messages == []
    assert [len(request["Entries"]) for request in sqs.requests_of("delete_message_batch")] == [4, 2, 1]


def test_refused_deletion_is_logged_and_not_repeated(sqs: FakeSqs, caplog: pytest.LogCaptureFixture) -> None:
    sqs.send("m")
    refusals = [True]
    sqs.refuse = lambda kind, _: refusals.pop() if kind == "delete" and refusals else None
    ledger = Ledger()
    worker(sqs, ledger).run()
    assert len(sqs.requests_of("delete_message_batch")) == 1
    assert "delete_message_batch" in caplog.text
    assert [stored.body for stored in sqs.messages] == ["m"]


@pytest.mark.parametrize("error", [client_error("RequestThrottled"), client_error("Any", 503), lost_connection()], ids=str)
@pytest.mark.parametrize("lost", ["request", "answer"])
def test_lost_deletion_is_sent_again(sqs: FakeSqs, error: Exception, lost: str) -> None:
    sqs.send("m")
    hook = failing("delete_message_batch", error)
    sqs.before, sqs.after = (hook, sqs.after) if lost == "request" else (sqs.before, hook)
    ledger = Ledger()
    worker(sqs, ledger).run()
    assert sqs.messages == []
    assert ledger.seen == ["m"]


@pytest.mark.parametrize("error", [client_error("RequestThrottled"), client_error("Any", 500), lost_connection()], ids=str)
def test_failing_receive_is_repeated_after_a_pause(
    sqs: FakeSqs, time: VirtualTime, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.send("m")
    sqs.before = failing("receive_message", *[error] * 9)
    moments: list[float] = []
    ledger = Ledger(lambda _: moments.append(time.now))
    assert worker(sqs, ledger).run() is True
    assert ledger.effects == {"m": 1}
    assert moments == [9 * 5]
    assert caplog.text.count(str(error)) == 9
    assert caplog.text.count("No action is needed unless this repeats") == 2
    assert "9 requests in a row failed, and the worker keeps trying. Check the network" in caplog.text


@pytest.mark.parametrize(
    "error",
    [client_error("AWS.SimpleQueueService.NonExistentQueue"), client_error("AccessDenied", 403), NoRegionError()],
    ids=str,
)
@pytest.mark.parametrize("method", ["get_queue_attributes", "receive_message", "delete_message_batch"])
def test_permanent_refusal_by_sqs_ends_the_worker(sqs: FakeSqs, method: str, error: Exception) -> None:
    sqs.send("good")
    sqs.send("early")
    sqs.before = failing(method, error)
    kind = ConfigurationError if method == "get_queue_attributes" else QueueRefused  # which another start may mend
    with pytest.raises(kind, match="sqs:DeleteMessage") as caught:
        worker(sqs, lambda message: Applied(message) if message.id == "good" else Deferred(message, 1)).run()
    assert URL in str(caught.value)
    assert str(error) in str(caught.value)
    assert caught.value.__cause__ is error


PASSING = [client_error("RequestThrottled"), client_error("InternalError", 500), lost_connection()]


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_worker_starts_if_sqs_fails_at_first(sqs: FakeSqs, error: Exception) -> None:
    sqs.send("m")
    sqs.before = failing("get_queue_attributes", *[error] * 4)
    worker(sqs, Ledger()).run()
    assert sqs.messages == []


@pytest.mark.parametrize("method", ["receive_message", "delete_message_batch"])
def test_empty_page_of_a_proxy_is_not_an_empty_queue(
    method: str, sqs: FakeSqs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sqs.send("m")
    respond, pages = getattr(FakeSqs, method), [{"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": {}}}] * 2
    monkeypatch.setattr(FakeSqs, method, lambda self, **request: pages.pop() if pages else respond(self, **request))
    worker(sqs, Ledger()).run()
    assert sqs.messages == []
    assert caplog.text.count("Something else than SQS sent it, such as a proxy") == 2


def test_response_without_attributes_is_reported_with_the_remedy(sqs: FakeSqs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeSqs, "get_queue_attributes", lambda *_, **__: {})
    with pytest.raises(ConfigurationError, match=r"has no attributes of a queue\. Check the URL"):
        worker(sqs, Ledger()).run()


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_failing_start_is_not_reported_as_a_wrong_option(sqs: FakeSqs, error: Exception) -> None:
    sqs.before = failing("get_queue_attributes", *[error] * 5)
    with pytest.raises(QueueRefused, match=r"SQS failed 5 times, at last with: .* Start the worker again") as caught:
        worker(sqs, Ledger()).run()
    assert caught.value.__cause__ is error


# ---------------------------------------------------------------- FIFO


def test_each_fifo_receive_has_a_name_for_its_retries(fifo: FakeSqs) -> None:
    fifo.send("a", group="g")
    worker(fifo, Ledger()).run()
    names = [request["ReceiveRequestAttemptId"] for request in fifo.requests_of("receive_message")]
    assert len({*names}) == len(names) > 1


def test_deferred_fifo_message_is_retried_before_its_visibility_timeout(fifo: FakeSqs, time: VirtualTime) -> None:
    moments: list[float] = []

    def early_once(message: Message) -> Outcome:
        moments.append(time.now)
        return Deferred(message, 1) if len(moments) == 1 else Applied(message)

    for body in ("a1", "a2", "a3"):
        fifo.send(body, group="a")
    worker(fifo, early_once, visibility_timeout=600).run()
    assert fifo.messages == []
    assert moments == [0, 1, 1, 1]


# ---------------------------------------------------------------- stopping


def test_stopping_worker_finishes_messages_in_progress_and_returns_others(sqs: FakeSqs, time: VirtualTime) -> None:
    def act(_: Message) -> None:
        stopping.stop()
        time.sleep(4)

    for body in "abcdefg":
        sqs.send(body)
    stopping = worker(sqs, Ledger(act), stop_when_empty=False, drain_seconds=11, in_flight=2)
    assert stopping.run() is True
    assert len(sqs.messages) >= 5
    assert all(stored.visible_at <= time.now for stored in sqs.messages)


def test_messages_of_a_late_poll_return_to_the_queue(sqs: FakeSqs) -> None:
    """The message is given back if the process lives on. Otherwise it comes when its visibility timeout ends."""
    sqs.send("m")
    poll, given_back = Barrier(), threading.Event()
    sqs.before = lambda method: poll() if method == "receive_message" else None
    sqs.after = lambda method: given_back.set() if method == "change_message_visibility_batch" else None
    ledger = Ledger()
    stopping = worker(sqs, ledger, drain_seconds=0)
    poll.then(stopping.stop)
    assert stopping.run() is True
    assert sqs.requests_of("change_message_visibility_batch") == []
    poll.released.set()
    assert given_back.wait(PATIENCE)
    assert ledger.seen == []


def test_stopping_is_logged_once(sqs: FakeSqs, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    sqs.send("m")
    hanging = Barrier()
    stopping = worker(sqs, Ledger(hanging), stop_when_empty=False, drain_seconds=12.5)

    def ask_twice() -> None:
        stopping.stop()
        until(lambda: "is stopping" in caplog.text)
        stopping.stop()
        hanging.released.set()

    hanging.then(ask_twice)
    stopping.run()
    said = [record.getMessage() for record in caplog.records if "the worker" in record.msg]
    assert said == [f"{URL}: the worker {what}" for what in ("begins", "is stopping within 12.5 seconds", "has stopped")]


def test_worker_ends_without_a_handler_that_outlasts_the_drain(sqs: FakeSqs, caplog: pytest.LogCaptureFixture) -> None:
    sqs.send("m")
    hanging = Barrier()
    deleted = threading.Event()
    sqs.after = lambda method: deleted.set() if method == "delete_message_batch" else None
    stopping = worker(sqs, Ledger(hanging), drain_seconds=0)
    hanging.then(stopping.stop)
    assert stopping.run() is False
    assert "stopped before these messages finished, and they are redelivered: record message-1, message m" in caplog.text
    assert [stored.body for stored in sqs.messages] == ["m"]
    hanging.released.set()  # If the process lives on after all, the batch does too.
    assert deleted.wait(PATIENCE)


def signal_main_thread(number: signal.Signals, heard: Callable[[], bool]) -> None:
    """Send it as the system does, and wait until it has been handled."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)
    until(heard)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_worker_and_restores_earlier_handlers(sqs: FakeSqs, number: signal.Signals) -> None:
    former = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    sqs.send("a")
    sqs.send("b")
    ledger = Ledger(lambda _: signal_main_thread(number, lambda: signalled._stop.is_wanted))
    signalled = worker(sqs, ledger, stop_when_empty=False, drain_seconds=0.9)
    assert signalled.run() is True
    assert ledger.seen == ["a"]
    assert [stored.body for stored in sqs.messages] == ["b"]
    assert {each: signal.getsignal(each) for each in former} == former


def test_second_signal_ends_the_worker_immediately(sqs: FakeSqs) -> None:
    sqs.send("m")
    hanging = Barrier()
    impatient = worker(sqs, Ledger(hanging), stop_when_empty=False)

    def signal_twice() -> None:
        signal_main_thread(signal.SIGTERM, lambda: impatient._stop.is_wanted)
        signal_main_thread(signal.SIGTERM, lambda: impatient._stop.deadline == sqs.time.now)

    hanging.then(signal_twice)
    assert impatient.run() is False
    hanging.released.set()


# ---------------------------------------------------------------- what hangs, what waits, and who takes turns


def test_hanging_message_returns_to_the_queue_without_blocking_others(
    sqs: FakeSqs, time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    def hang_once(message: Message) -> None:
        if message.id == "m3" and not sqs.requests_of("change_message_visibility_batch"):
            time.sleep(1000)

    stored = [sqs.send(f"m{number}") for number in range(50)]
    assert worker(sqs, Ledger(hang_once), in_flight=10, timeout=20, visibility_timeout=3600).run() is True
    assert sqs.messages == []
    assert stored[3].receives == 2
    assert max(each.receives for each in stored if each is not stored[3]) == 1
    assert re.search(r"not finished after 20 seconds.* at .*: record message-4, message m3$", caplog.text, re.MULTILINE)


def test_worker_ends_if_most_slots_are_lost(sqs: FakeSqs, time: VirtualTime) -> None:
    for body in ("a", "b", "c"):
        sqs.send(body)
    stuck = worker(sqs, lambda _: time.sleep(inf), in_flight=4, timeout=60, drain_seconds=1)
    with pytest.raises(WorkerStuck, match=r"3 of 4 slots.* 60 seconds.*message-1, message a at"):
        stuck.run()
    assert time.now <= 62
    # They were given back. A request for messages that was still under way may have taken them once more, and hides them shortly.
    assert all(stored.visible_at <= time.now + sqs.visibility for stored in sqs.messages)


def test_overdue_task_is_cancelled_and_frees_its_slot(caplog: pytest.LogCaptureFixture) -> None:
    sqs = FakeSqs(VirtualTime())
    tries: list[str] = []

    async def hang_once(message: Message) -> Outcome:
        tries.append(message.id)
        if tries.count(message.id) == 1:
            await asyncio.Event().wait()
        return Applied(message)

    for number in range(5):
        sqs.send(f"m{number}")
    handler = sqs_handler(by_body)(hang_once)
    assert Worker(URL, handler, client=RealTime(sqs), in_flight=5, timeout=1.5, wait=0, stop_when_empty=True).run() is True
    assert caplog.text.count("not finished after 1.5 seconds") == 5
    assert sorted(tries) == sorted([f"m{number}" for number in range(5)] * 2)
    assert sqs.messages == []


class RealTime:
    """A queue whose clock shows the real time, and which never waits: for event loops, whose time is not virtual."""

    def __init__(self, sqs: FakeSqs) -> None:
        self._sqs = sqs

    def __getattr__(self, name: str) -> Any:
        self._sqs.time.now = monotonic()
        return getattr(self._sqs, name)


def test_deferred_message_returns_to_the_queue_after_five_minutes(sqs: FakeSqs, time: VirtualTime) -> None:
    stored = sqs.send("early")
    tries: list[float] = []

    def too_early(message: Message) -> Outcome:
        tries.append(time.now)
        return Deferred(message, 1)

    waiting = worker(sqs, too_early, stop_when_empty=False, backoff=lambda count: backoff(count, jitter=lambda: 0.0))
    sqs.after = lambda method: waiting.stop() if method == "receive_message" and stored.receives == 2 else None
    waiting.run()
    assert tries[:10] == [0, 1, 3, 7, 15, 31, 63, 127, 255, 512] or tries[:9] == [0, 1, 3, 7, 15, 31, 63, 127, 255]
    assert time.now > 300


def arriving(sqs: FakeSqs, bodies: Iterable[tuple[float, str]], until: Callable[[], bool], waiting: Worker) -> None:
    """Run it while these messages arrive, each at its time, and until this is true."""
    left = deque(bodies)

    def before(method: str) -> None:
        while method == "receive_message" and left and left[0][0] <= sqs.time.now:
            sqs.send(left.popleft()[1])
        if until():
            waiting.stop()

    sqs.before = before
    waiting.run()


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (lambda entity, _: Message(entity), Missing),
        (lambda entity, _: Message(entity, "shop"), Missing),
        (lambda entity, number: Message(entity, "shop", number), Missing),
        (lambda entity, _: Message(entity, "shop", 2 if entity == "lost" else 1), Missing),
        (lambda entity, _: Message(entity, "", 2 if entity == "lost" else 1), lambda message: Deferred(message, 1)),
    ],
    ids=["no source", "one", "one that counts all", "one that counts per entity", "only a count"],
)
def test_message_of_a_missing_entity_becomes_dead_after_few_attempts(
    name: Callable[[str, int], Message], answer: Callable[[Message], Outcome], time: VirtualTime
) -> None:
    sqs = FakeSqs(time, most_receives=1)
    lost = sqs.send("lost")
    tries: list[float] = []

    def handle(message: Message) -> Outcome:
        time.sleep(1)  # Something else is settled during each of the tries.
        if message.id != "lost":
            return Applied(message)
        tries.append(time.now)
        return answer(message)

    handler = sqs_handler(lambda record: name(record["body"], int(record["messageId"].partition("-")[2])))(handle)
    waiting = worker(sqs, handler, in_flight=4, stop_when_empty=False)
    arriving(sqs, [(moment, f"e-{moment}") for moment in range(1000)], lambda: bool(sqs.dead) or time.now > 1000, waiting)
    assert sqs.dead == [lost]
    assert 200 < max(tries) < 900
    assert len(tries) < 25


@pytest.mark.parametrize(
    ("early", "late"),
    [(["lost-1", "a-5", "a-6", "a-7"], "a-4"), (["lost-3", "a-5", "a-6"], "a-4"), (["lost-", "a-"], "a-4")],
    ids=["behind a lost one", "over a lost one", "without numbers"],
)
def test_waiting_message_begins_once_its_predecessor_is_settled(
    early: list[str], late: str, sqs: FakeSqs, time: VirtualTime
) -> None:
    last: list[str] = []
    moments: list[float] = []

    def in_order(message: Message) -> Outcome:
        if message.id.startswith("lost") or (message.id != late and not last):
            return Missing(message)
        last.append(message.id)
        moments.append(time.now)
        return Applied(message)

    def numbered(record: Any) -> Message:
        number = record["body"].partition("-")[2]
        return Message(record["body"], "shop", int(number) if number else None)

    for body in early:
        sqs.send(body)
    waiting = worker(sqs, sqs_handler(numbered)(in_order), in_flight=4, stop_when_empty=False)
    arriving(sqs, [(200, late)], lambda: len(last) == len(early), waiting)
    assert last == [late, *early[1:]]
    assert max(moments) == min(moments) >= 200


# ---------------------------------------------------------------- how it is put together


def plain_function(message: Message) -> None:
    """No decorator."""


async def asynchronous_function(*_: object) -> None:
    """Nobody awaits it."""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"handler": plain_function}, "sqs_handler"),
        ({"handler": None}, "sqs_handler"),
        ({"handler": kinesis_handler(by_body)(plain_function)}, "Kinesis"),
        ({"in_flight": True}, "in_flight must be an int between 1 and 10000, got True"),
        ({"timeout": True}, "timeout must be a number between"),
        ({"in_flight": 0}, "in_flight must be an int between 1 and 10000, got 0"),
        ({"timeout": 0}, "timeout must be a number between"),
        ({"health_port": 65_536}, "health_port"),
        ({"wait": -1}, "wait"),
        ({"visibility_timeout": 0}, "visibility_timeout"),
        ({"drain_seconds": None}, "drain_seconds must be a number between .*, got None"),
        ({"backoff": 30}, "backoff=30: expected a plain function"),
        ({"backoff": asyncio.sleep}, "backoff=.*: expected a plain function"),
        ({"on_outcome": 5}, "on_outcome=5: expected a plain function"),
        ({"on_outcome": asynchronous_function}, "on_outcome=.*: expected a plain function"),
    ],
)
def test_wrong_arguments_are_refused_at_once(options: dict[str, Any], complaint: str) -> None:
    arguments = {"queue_url": URL, "handler": sqs_handler(by_body)(plain_function), **options}
    with pytest.raises(ConfigurationError, match=complaint):
        Worker(**arguments)


def test_worker_runs_only_once(sqs: FakeSqs) -> None:
    once = worker(sqs, Ledger())
    assert once.run() is True
    with pytest.raises(ConfigurationError, match=r"runs only once\. Create a new Worker"):
        once.run()


def test_worker_stopped_before_it_runs_sends_no_request(sqs: FakeSqs) -> None:
    stopped = worker(sqs, Ledger())
    stopped.stop()
    assert stopped.run() is True
    assert sqs.requests == []


def test_visibility_timeout_of_zero_is_refused(time: VirtualTime) -> None:
    sqs = FakeSqs(time, visibility=0)
    with pytest.raises(ConfigurationError, match="visibility timeout"):
        worker(sqs, Ledger()).run()
    sqs.send("m")
    worker(sqs, Ledger(), visibility_timeout=30).run()
    assert sqs.messages == []


def test_worker_without_client_creates_boto3_client_in_run(sqs: FakeSqs, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def client(service: str, **_: object) -> FakeSqs:
        made.append(service)
        return sqs

    monkeypatch.setattr(boto3, "client", client)
    handler = sqs_handler(by_body)(plain_function)
    lazy = worker_in(sqs.time, URL, handler, stop_when_empty=True)
    assert made == []
    lazy.run()
    assert made == ["sqs"]
