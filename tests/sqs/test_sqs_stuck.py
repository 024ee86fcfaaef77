"""A worker must not look alive and do nothing: whatever blocks, it is noticed, named, and told, and the messages go to others."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from http.client import HTTPConnection
from typing import Any

import pytest

from onewrite import Applied, Message
from onewrite.aws_lambda import sqs_handler
from onewrite.sqs import Worker, WorkerStuck
from onewrite.sqs.journal import Journal
from onewrite.sqs.state import WorkerState
from onewrite.testing.servers.process import find_free_port
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.seams import worker_in

PATIENCE = 30.0  # real seconds, for threads on a busy machine
SILENCE = 30.0  # virtual seconds after which a worker that does not stir says so
TIMEOUT = 100.0
LINE = r"test_sqs_stuck\.py:\d+ "  # of the user's, as this file stands for


class Block:
    """Blocks a thread until the test is over. The queue's clock goes on meanwhile."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.over = threading.Event()

    def __call__(self) -> None:
        self._time.leave_behind()
        assert self.over.wait(PATIENCE)

    def leave_behind(self) -> None:
        """For a thread that blocks in a way of its own."""
        self._time.leave_behind()


@pytest.fixture
def block(time: VirtualTime) -> Iterator[Block]:
    """At the end all threads of the worker end too: what is released must not go on by itself."""
    found, before = Block(time), {*threading.enumerate()}
    yield found
    found.over.set()
    time.let_go()
    for thread in {*threading.enumerate()} - before:
        if thread.name.startswith("onewrite-"):
            thread.join(PATIENCE)
            assert not thread.is_alive(), thread.name


def identity(record: Any) -> Message:
    return Message(record["body"], source="shop")


def worker(sqs: FakeSqs, handler: Any, **options: Any) -> Worker:
    return worker_in(
        sqs.time, URL, handler, client=sqs, **{"timeout": TIMEOUT, "drain_seconds": 1, "in_flight": 4, **options}
    )


def run(stuck: Worker) -> bool:
    """Run it, or raise what it raises; a worker that does neither fails the test instead of hanging it."""
    end: Future[bool] = Future()

    def work() -> None:
        try:
            end.set_result(stuck.run())
        except BaseException as error:
            end.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return end.result(PATIENCE)


class Watcher(logging.Handler):
    """Looks at the health page, if there is one, whenever the log says that something does not go round."""

    def __init__(self, port: int) -> None:
        super().__init__(logging.WARNING)
        self._port, self.noticed = port, threading.Event()
        self.answers: list[tuple[int, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "hasn't responded" in record.getMessage():
            self.noticed.set()
            with (
                suppress(ConnectionRefusedError),
                closing(HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)) as connection,
            ):
                connection.request("GET", "/health")
                answer = connection.getresponse()
                self.answers.append((answer.status, json.loads(answer.read())))


@pytest.fixture
def watched() -> Iterator[Watcher]:
    """Its event is set as soon as the log says that the loop stands still."""
    watcher = Watcher(find_free_port())
    logging.getLogger("onewrite").addHandler(watcher)
    yield watcher
    logging.getLogger("onewrite").removeHandler(watcher)


# ---------------------------------------------------------------- the event loop


async def apply(message: Message) -> Applied:
    return Applied(message)


def blocking_call(block: Block) -> Any:
    async def handle(_: Message) -> None:
        block()

    return sqs_handler(identity)(handle), {}


def busy_loop(block: Block) -> Any:
    async def handle(_: Message) -> None:
        block.leave_behind()
        while not block.over.is_set():
            pass

    return sqs_handler(identity)(handle), {}


def hook_of_the_worker(block: Block) -> Any:
    return sqs_handler(identity)(apply), {"on_outcome": lambda *_: block()}


def identity_that_asks_a_service(block: Block) -> Any:
    def slow(record: Any) -> Message:
        block()
        return identity(record)

    return sqs_handler(slow)(apply), {}


LOOPS = [blocking_call, busy_loop, hook_of_the_worker, identity_that_asks_a_service]


@pytest.mark.parametrize("kind", LOOPS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("in_flight", [1, 50])
def test_blocked_event_loop_ends_the_worker_with_its_line(
    kind: Callable[[Block], Any], in_flight: int, sqs: FakeSqs, watched: Watcher, block: Block
) -> None:
    handler, options = kind(block)
    for number in range(30):
        sqs.send(f"m{number}")
    stuck = worker(sqs, handler, in_flight=in_flight, health_port=watched._port, **options)
    with pytest.raises(WorkerStuck, match=rf"hasn't responded for \d+ seconds, at {LINE}"):
        run(stuck)
    assert TIMEOUT <= sqs.time.now <= TIMEOUT + 2 * SILENCE
    [(status, page)] = watched.answers
    assert status == 503
    assert page["alive"] is False
    assert re.search(f"at {LINE}", page["why"])
    assert [each.body for each in sqs.messages if each.visible_at > sqs.time.now] == [], "all may be received by others"


@pytest.fixture
def noticed(watched: Watcher) -> threading.Event:
    return watched.noticed


def stands_still_once(noticed: threading.Event, time: VirtualTime, done: list[str]) -> Any:
    """A handler that blocks its loop until that is noticed, and then notes what it has done."""

    async def handle(message: Message) -> Applied:
        if not noticed.is_set():
            time.leave_behind()
            assert noticed.wait(PATIENCE)
            time.come_back()
        done.append(message.id)
        return Applied(message)

    return sqs_handler(identity)(handle)


def test_event_loop_finishes_its_work_after_a_block(
    sqs: FakeSqs, time: VirtualTime, noticed: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    for number in range(25):
        sqs.send(f"m{number}")
    assert run(worker(sqs, stands_still_once(noticed, time, done), timeout=3600, stop_when_empty=True))
    assert sorted(done) == sorted(f"m{number}" for number in range(25))
    assert sqs.messages == []
    assert "The event loop responds again." in caplog.text


def test_fifo_groups_keep_their_order_after_a_blocked_loop(
    fifo: FakeSqs, time: VirtualTime, noticed: threading.Event
) -> None:
    done: list[str] = []
    for number in range(12):
        fifo.send(f"{'abc'[number % 3]}{number:02}", group="abc"[number % 3])
    assert run(worker(fifo, stands_still_once(noticed, time, done), timeout=3600, stop_when_empty=True))
    for group in "abc":
        of_group = [each for each in dict.fromkeys(done) if each.startswith(group)]
        assert of_group == sorted(of_group)
    assert fifo.messages == []


def test_loop_ended_by_user_code_ends_the_worker(sqs: FakeSqs) -> None:
    async def handle(_: Message) -> None:
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.Event().wait()

    sqs.send("m")
    with pytest.raises(WorkerStuck, match="ended the event loop"):
        run(worker(sqs, sqs_handler(identity)(handle)))
    assert sqs.time.now <= TIMEOUT


# ---------------------------------------------------------------- threads


def handler_that_blocks(block: Block) -> Any:
    return sqs_handler(identity)(lambda _: block()), {}


def identity_that_blocks(block: Block) -> Any:
    identity: Any = lambda _: block()  # noqa: E731  # it is one line
    return sqs_handler(identity)(lambda _: None), {}


def group_by_that_blocks(block: Block) -> Any:
    return sqs_handler(identity, group_by=lambda _: block())(lambda _: None), {}


def group_that_blocks(block: Block) -> Any:
    return sqs_handler(identity, group_by=lambda message: message.id)(lambda _: block()), {}


THREADS = [handler_that_blocks, identity_that_blocks, group_by_that_blocks, group_that_blocks]


@pytest.mark.parametrize("kind", THREADS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("in_flight", [1, 4])
def test_blocked_threads_end_the_worker_with_their_line(
    kind: Callable[[Block], Any], in_flight: int, sqs: FakeSqs, block: Block
) -> None:
    handler, options = kind(block)
    for number in range(30):
        sqs.send(f"m{number}")
    with pytest.raises(WorkerStuck, match=f"at {LINE}"):
        run(worker(sqs, handler, in_flight=in_flight, **options))
    assert TIMEOUT <= sqs.time.now <= TIMEOUT + 2 * SILENCE


def test_tasks_that_ignore_their_cancellation_end_the_worker(sqs: FakeSqs, block: Block) -> None:
    async def handle(_: Message) -> None:
        waiting = asyncio.get_running_loop().run_in_executor(None, block)
        while not waiting.done():
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError:
                continue

    for number in range(20):
        sqs.send(str(number))
    with pytest.raises(WorkerStuck, match="haven't finished 100 seconds after they began"):
        run(worker(sqs, sqs_handler(identity)(handle), in_flight=6))
    assert sqs.time.now <= 5 * TIMEOUT


# ---------------------------------------------------------------- the worker's own threads


@pytest.mark.parametrize("method", ["receive_message", "delete_message_batch", "change_message_visibility_batch"])
def test_hanging_request_is_logged_and_ends_the_worker(
    method: str, sqs: FakeSqs, time: VirtualTime, block: Block, caplog: pytest.LogCaptureFixture
) -> None:
    hung: list[str] = []

    def hang(asked: str) -> None:
        if asked == method and (method != "change_message_visibility_batch" or not hung):
            hung.append(asked)
            block()

    def handle(message: Message) -> Applied:
        if method == "change_message_visibility_batch":
            time.sleep(25)  # so it must be hidden for longer
        return Applied(message)

    for number in range(3):
        sqs.send(f"m{number}")
    sqs.before = hang
    with pytest.raises(WorkerStuck, match=rf"{method} hasn't returned for 9\d\d seconds"):
        run(worker(sqs, sqs_handler(identity)(handle)))
    lines = [line for line in caplog.messages if "The worker waits for this call" in line]
    assert re.search(rf"{method} hasn't returned for (8|9)\d seconds", lines[0])
    assert len(lines) > 10  # each minute


def test_blocked_rounds_end_the_worker_with_their_line(
    sqs: FakeSqs, time: VirtualTime, monkeypatch: pytest.MonkeyPatch, block: Block
) -> None:
    def write_to_a_log_that_blocks(_: object) -> None:
        time.now += 2 * TIMEOUT
        block()

    monkeypatch.setattr(Journal, "sum_up", write_to_a_log_that_blocks)
    with pytest.raises(WorkerStuck, match=r"hasn't begun a round for \d+ seconds, at test_sqs_stuck\.py:\d+ "):
        run(worker(sqs, sqs_handler(identity)(lambda _: None)))


@pytest.mark.parametrize("method", ["to_hide", "end_deleting", "take_in", "to_begin"])
@pytest.mark.parametrize("is_async", [False, True])
def test_error_in_any_thread_ends_the_worker(
    method: str, is_async: bool, sqs: FakeSqs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError(method)

    async def ahandle(_: Message) -> None: ...

    monkeypatch.setattr(WorkerState, method, fail)
    sqs.send("m")
    with pytest.raises(ZeroDivisionError, match=method):
        run(worker(sqs, sqs_handler(identity)(ahandle if is_async else lambda _: None)))


def test_failed_worker_waits_for_messages_within_the_drain_only(sqs: FakeSqs, block: Block) -> None:
    begun = threading.Event()

    def fail(method: str) -> None:
        if method == "receive_message" and len(sqs.requests_of(method)) == 2:
            assert begun.wait(PATIENCE)
            raise ZeroDivisionError

    def handle(message: Message) -> Applied:
        begun.set()
        assert block.over.wait(PATIENCE)  # The clock stands still meanwhile.
        return Applied(message)

    sqs.before = fail
    sqs.send("long")

    with pytest.raises(ZeroDivisionError):
        run(worker(sqs, sqs_handler(identity)(handle), drain_seconds=0))
