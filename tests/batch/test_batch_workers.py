"""The workers of a batch: threads, tasks, the deadline, and exceptions that end the program."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from onewrite import Applied, ConfigurationError, Message, Outcome
from onewrite.aws_lambda import Report, kinesis_handler, sqs_handler
from onewrite.batch.handler import HandlerFunction
from onewrite.core.flow import Call, Flow, arun, run
from tests.support.batches import Clock, Context, by_name, fifo, identifiers, kinesis, sqs
from tests.support.seams import measure_by

TIMEOUT = 20.0  # seconds until a test that hangs fails


def names(report: Report) -> list[str]:
    return [result.record["body"] for result in report.results]


class Barrier:
    """Lets records go on only when this many of them are under way at the same time."""

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties, timeout=TIMEOUT)

    def __call__(self, message: Message) -> Outcome:
        self._barrier.wait()
        return Applied(message)


# ---------------------------------------------------------------- threads


def test_records_of_a_standard_queue_are_processed_in_threads() -> None:
    report = sqs_handler(by_name, max_workers=4)(Barrier(4)).run(sqs("abcdefgh"))
    assert identifiers(report.response) == []
    assert names(report) == list("abcdefgh")  # the results are in the batch's order


def test_number_of_threads_is_limited() -> None:
    lock, under_way, most = threading.Lock(), [0], [0]

    def each(message: Message) -> None:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        threading.Event().wait(0.001)
        with lock:
            under_way[0] -= 1

    sqs_handler(by_name, max_workers=3)(each)(sqs("abcdefghijklmnopqrst"))
    assert most[0] <= 3


def test_stream_is_processed_one_by_one() -> None:
    threads = set()
    handler = kinesis_handler(by_name, max_workers=5)(lambda _: threads.add(threading.current_thread()))
    handler(kinesis("abcdef"))
    assert threads == {threading.current_thread()}


context: ContextVar[str] = ContextVar("context")


@pytest.mark.parametrize("workers", [1, 4])
def test_function_runs_in_the_callers_context(workers: int) -> None:
    """Log contexts and tracers keep their state in it."""
    seen: list[str] = []
    token = context.set("request 1")
    try:
        sqs_handler(by_name, max_workers=workers)(lambda _: seen.append(context.get()))(sqs("abcd"))
    finally:
        context.reset(token)
    assert seen == ["request 1"] * 4


class Panic(BaseException):
    """Neither an Exception nor an exit, as what PyO3 raises for a panic of Rust."""


EXITS = [SystemExit(3), KeyboardInterrupt(), Panic()]


@pytest.mark.parametrize("error", EXITS, ids=repr)
@pytest.mark.parametrize("workers", [1, 3])
def test_exit_ends_the_batch(error: BaseException, workers: int) -> None:
    begun: list[str] = []

    def each(message: Message) -> Outcome:
        begun.append(message.id)
        if message.id == "b":
            raise error
        return Applied(message)

    with pytest.raises(type(error)) as caught:
        sqs_handler(by_name, max_workers=workers)(each)(sqs("abcde"))
    assert caught.value is error
    assert workers > 1 or begun == ["a", "b"]


@pytest.fixture(autouse=True)
def _can_be_interrupted() -> Iterator[None]:
    """A background process of a shell inherits that SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(message: Message) -> Outcome:
    if message.id == "b":
        signal.raise_signal(signal.SIGINT)
    return Applied(message)


@pytest.mark.parametrize("workers", [1, 3])
def test_ctrl_c_ends_the_batch(workers: int) -> None:
    seen, begun = list[str](), threading.Event()

    def each(message: Message) -> Outcome:
        seen.append(message.id)
        if threading.current_thread() is threading.main_thread():
            begun.set()
            signal.raise_signal(signal.SIGINT)
        begun.wait(TIMEOUT)
        return Applied(message)

    with pytest.raises(KeyboardInterrupt):
        sqs_handler(by_name, max_workers=workers)(each)(sqs("abcdefgh"))
    assert workers > 1 or seen == ["a"]


def test_single_record_raises_an_exit() -> None:
    handler = sqs_handler(by_name)(interrupting)
    a, b = sqs("ab")["Records"]
    assert handler.process(a).outcomes == (Applied(Message("a", body="a")),)
    with pytest.raises(KeyboardInterrupt):
        handler.process(b)


def test_single_asynchronous_record_is_awaited_and_its_cancellation_raised() -> None:
    async def each(message: Message) -> Outcome:
        if message.id == "b":
            await asyncio.sleep(TIMEOUT)
        if message.id == "c":
            raise SystemExit(3)
        return Applied(message)

    async def caller() -> None:
        handler = sqs_handler(by_name)(each)
        a, b, c = sqs("abc")["Records"]
        assert (await handler.aprocess(a)).settled
        with pytest.raises(SystemExit):
            await handler.aprocess(c)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await handler.aprocess(b)
        closed = handler.aprocess(b)
        assert inspect.iscoroutine(closed)
        closed.send(None)  # until it awaits something
        closed.close()

    asyncio.run(caller())


# ---------------------------------------------------------------- asynchronous functions


async def one(message: Message) -> Outcome:
    await asyncio.sleep(0)
    if message.id.endswith("!"):
        raise ValueError(message.id)
    return Applied(message)


def test_asynchronous_function_uses_the_same_decorator() -> None:
    assert identifiers(sqs_handler(by_name)(one)(sqs(["a", "b!", "c"]))) == ["id-b!"]
    assert identifiers(sqs_handler(by_name, max_workers=3)(one)(fifo("a1!", "b1", "a2", "b2"))) == ["id-a1!", "id-a2"]


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_concurrent_tasks_are_limited_by_max_workers(workers: int) -> None:
    under_way, most = 0, 0

    @sqs_handler(by_name, max_workers=workers)
    async def each(message: Message) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(5):
            await asyncio.sleep(0)
        under_way -= 1

    each(sqs("abcdefghij"))
    assert most == min(workers, 10)


def logged(each: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator whose wrapper is a plain function."""

    @functools.wraps(each)
    def wrapper(*args: Any) -> Any:
        return each(*args)

    return wrapper


class Callee:
    async def __call__(self, message: Message) -> Outcome:
        return await one(message)


async def two(_: object, message: Message) -> Outcome:
    return await one(message)


@pytest.mark.parametrize("each", [one, functools.partial(two, 0), Callee()])
def test_asynchronous_function_is_awaited(each: Any) -> None:
    report = sqs_handler(by_name)(each).run(sqs(["a", "b!"]))
    assert identifiers(report.response) == ["id-b!"]
    assert isinstance(report.results[1].error, ValueError)


def test_error_for_plain_wrapper_returning_coroutine_names_async_def() -> None:
    report = sqs_handler(by_name)(logged(one)).run(sqs("a"))
    assert "`async def`, and likewise the wrapper of each decorator around it" in str(report.results[0].error)


def test_event_loop_is_reused_for_the_next_batch() -> None:
    """The clients of pymongo and aiobotocore are bound to the loop."""
    loops = set()

    async def each(message: Message) -> None:
        loops.add(asyncio.get_running_loop())

    sqs_handler(by_name, max_workers=2)(each)(sqs("ab"))
    asyncio.run(asyncio.sleep(0))  # another loop, which is closed at its end
    sqs_handler(by_name)(each)(sqs("c"))
    assert len(loops) == 1


def test_event_loop_is_closed_when_its_thread_ends() -> None:
    """Otherwise asyncio would warn when the loop is collected, and warnings are errors here."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def each(message: Message) -> None:
        loops.append(asyncio.get_running_loop())

    thread = threading.Thread(target=sqs_handler(by_name)(each), args=(sqs("a"),))
    thread.start()
    thread.join()
    gc.collect()
    assert loops[0].is_closed()


def test_handler_names_the_remedy_if_a_loop_is_running() -> None:
    handler = sqs_handler(by_name)(one)

    async def caller() -> None:
        with pytest.raises(ConfigurationError, match=r"await asyncio\.to_thread"):
            handler(sqs("a"))
        assert identifiers(await asyncio.to_thread(handler, sqs("a"))) == []

    asyncio.run(caller())


@pytest.mark.parametrize("error", EXITS, ids=repr)
@pytest.mark.parametrize("how", ["itself", "in a task", "in a group"])
def test_exit_ends_an_asynchronous_batch(error: BaseException, how: str) -> None:
    begun: list[str] = []

    async def leave() -> None:
        raise error

    @sqs_handler(by_name, max_workers=2)
    async def each(message: Message) -> Outcome:
        begun.append(message.id)
        await asyncio.sleep(0)
        if message.id == "b":
            if how == "itself":
                await leave()
            if how == "in a group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(leave())
            await asyncio.create_task(leave())
        for _ in range(5):
            await asyncio.sleep(0)
        return Applied(message)

    with pytest.raises((type(error), BaseExceptionGroup)):
        each(sqs("abcde"))
    begun.clear()
    assert identifiers(each(sqs("fg"))) == []
    assert begun == ["f", "g"]  # nothing of the earlier batch is left in the loop


def test_functions_own_cancelled_task_fails_its_record_alone() -> None:
    async def each(message: Message) -> None:
        if message.id == "a":
            task = asyncio.ensure_future(asyncio.sleep(TIMEOUT))
            asyncio.get_running_loop().call_soon(task.cancel)
            await task
        if message.id == "b":
            raise asyncio.CancelledError

    assert identifiers(sqs_handler(by_name)(each)(sqs("abc"))) == ["id-a", "id-b"]


def test_second_ctrl_c_does_not_wait_for_a_task() -> None:
    async def hold_on() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(TIMEOUT)
        finally:
            signal.raise_signal(signal.SIGINT)

    async def each(message: Message) -> None:
        await asyncio.create_task(hold_on())

    with pytest.raises(KeyboardInterrupt):
        sqs_handler(by_name)(each)(sqs("ab"))
    assert identifiers(sqs_handler(by_name)(one)(sqs("a"))) == []


# ---------------------------------------------------------------- the deadline


def taking(clock: Clock, *seconds: float) -> Callable[[Message], None]:
    """A function that takes these seconds for its records."""
    durations = iter(seconds)

    def each(message: Message) -> None:
        clock.now += next(durations)

    return each


def test_no_record_is_taken_within_the_margin() -> None:
    clock = Clock()
    handler = measure_by(sqs_handler(by_name, margin=2.0)(taking(clock, 0.5, 0.5, 0.5, 0.5)), clock)
    report = handler.run(sqs("abcd"), clock.until(3.2))
    assert names(report) == ["a", "b", "c"]
    assert identifiers(report.response) == ["id-d"]
    assert [record["body"] for record in report.returned] == ["d"]


def test_margin_grows_with_the_slowest_record() -> None:
    clock = Clock()
    handler = measure_by(sqs_handler(by_name)(taking(clock, 10.0, 0.1, 0.1)), clock)
    report = handler.run(sqs("abc"), clock.until(25.05))  # 15.05 are left after the first, and 14.95 after the second
    assert names(report) == ["a", "b"]


def test_margin_starts_anew_with_each_batch() -> None:
    """Otherwise, after one very slow record, no batch would ever be begun again."""
    clock = Clock()
    handler = measure_by(sqs_handler(by_name)(taking(clock, 10.0, 0.1)), clock)
    assert names(handler.run(sqs("a"), clock.until(12.0))) == ["a"]
    assert names(handler.run(sqs("b"), clock.until(clock.now + 12.0))) == ["b"]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_deadline_holds_for_every_kind_of_worker(workers: int, asynchronous: bool) -> None:
    left = iter([9.0, 9.0, 0.5, 0.5, 0.5, 0.5])

    async def aeach(message: Message) -> None: ...

    each: Any = aeach if asynchronous else lambda _: None
    report = sqs_handler(by_name, max_workers=workers)(each).run(sqs("abcdef"), Context(lambda: next(left)))
    assert len(report.results) == 2
    assert len(report.returned) == 4


@pytest.mark.parametrize(
    "other",
    [None, object(), {}, MagicMock(), SimpleNamespace(get_remaining_time_in_millis=5)],
    ids=lambda other: type(other).__name__,
)
def test_context_without_a_deadline_sets_no_limit(other: Any) -> None:
    assert identifiers(sqs_handler(by_name)(lambda _: None)(sqs("ab"), other)) == []


# ---------------------------------------------------------------- requests


class Store:
    def update_item(self) -> None: ...


class AsyncStore:
    async def update_item(self) -> None: ...


def two_requests() -> Flow[None]:
    yield Call("update_item")
    yield Call("update_item")


@pytest.fixture(params=["alone", "threads", "tasks"])
def writing(request: pytest.FixtureRequest) -> HandlerFunction[Any, Any]:
    def each(message: Message) -> None:
        run(two_requests(), Store())

    async def aeach(message: Message) -> None:
        await arun(two_requests(), AsyncStore())

    function: Callable[[Message], Awaitable[None] | None] = aeach if request.param == "tasks" else each
    return sqs_handler(by_name, max_workers=1 if request.param == "alone" else 4)(function)


def test_requests_of_guarded_stores_are_counted(writing: Any) -> None:
    assert writing.run(sqs("abcde")).requests == 10
    assert writing.run(sqs("a")).requests == 2
