"""Calls that stand still at every request."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from onewrite import ConfigurationError
from onewrite.core.clock import random_name
from onewrite.testing.explorer.calls import CallThreads, Reply, current_call
from onewrite.testing.taps.faults import Crash
from onewrite.testing.taps.traffic import Request

PATIENCE = 60.0  # seconds until a test that hangs fails


@pytest.fixture
def threads() -> Iterator[CallThreads]:
    threads = CallThreads(timeout=PATIENCE)
    yield threads
    threads.close()


def send(name: str) -> Any:
    call = current_call.get()
    assert call is not None
    return call.ask(Request("store", name, {}, None, writes=True))


def test_a_call_that_dies_sends_nothing_more(threads: CallThreads) -> None:
    refused: list[BaseException] = []

    def handle(message: str) -> str:
        try:
            send(message)
        finally:
            for _ in range(2):
                try:
                    send("clean up")
                except BaseException as error:  # as people write it
                    refused.append(error)
        return "never"

    call = threads.begin(handle, "m1", "m1")
    call.die()
    assert call.has_ended
    assert call.has_died
    assert isinstance(call.result.error, Crash)
    assert [str(error) for error in refused] == ["The process is dead, and does not send clean up store."] * 2


def test_threads_are_used_again(threads: CallThreads) -> None:
    names = set()
    for _ in range(5):
        call = threads.begin(lambda _: threading.get_ident(), "m", "m")
        names.add(call.result.value)
        threads.release(call)
    assert len(names) == 1


def test_a_handler_sees_the_context_of_its_caller_and_leaves_none(threads: CallThreads) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("outside")

    def handle(_: str) -> str:
        before = variable.get()
        variable.set("inside")
        return before

    for _ in range(2):
        call = threads.begin(handle, "m", "m")
        assert call.result.value == "outside"
        threads.release(call)
    assert variable.get() == "outside"


def test_a_call_that_neither_asks_nor_ends_is_named_and_left_behind() -> None:
    threads = CallThreads(timeout=PATIENCE)
    let_go = threading.Event()
    call = threads.begin(send, "m1", "m1, delivery 1")

    def hang(_: str) -> None:
        with suppress(BaseException):
            send("first")
        let_go.wait()

    stuck = threads.begin(hang, "m2", "m2, delivery 1")
    stuck.thread.timeout = 0.05
    with pytest.raises(ConfigurationError, match=r"m2, delivery 1 has neither sent a request nor returned for 0.05 seconds"):
        stuck.resume(Reply())
    threads.release(stuck)  # gives it a moment to die, which it does not use
    threads.release(call)
    assert call.has_died
    let_go.set()
    threads.close()


async def asend(name: str) -> Any:
    await asyncio.sleep(0)
    return send(name)


def test_the_tasks_of_a_coroutine_count_their_attempts_together(threads: CallThreads) -> None:
    async def attempt() -> str:
        await asyncio.sleep(0)
        return random_name()

    async def handle(_: str) -> tuple[str, str]:
        return await asyncio.gather(attempt(), attempt())

    for _ in range(2):
        call = threads.begin(handle, "m1", "m1, delivery 1")
        assert call.result.value == ["m1, delivery 1, attempt 1", "m1, delivery 1, attempt 2"]
        threads.release(call)


def test_closing_ends_the_threads() -> None:
    others = {*threading.enumerate()}  # of other tests: some of them may end meanwhile
    threads = CallThreads(timeout=PATIENCE)
    handlers: list[Callable[[Any], Any]] = [send, lambda name: asend(name)]  # noqa: PLW0108  # one that is no coroutine function
    for handler in handlers:
        call = threads.begin(handler, "m", "m")
        assert len(started(others)) == 1
        call.resume(Reply())
        threads.release(call)
    threads.close()
    for thread in started(others):
        thread.join(PATIENCE)
    assert started(others) == []


def started(others: set[threading.Thread]) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each not in others and each.name == "onewrite explorer"]
