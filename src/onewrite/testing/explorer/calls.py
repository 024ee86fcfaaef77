"""Calls of a handler that stand still at every request, so that one at a time goes on.

Each call has a thread of its own. It runs until it is about to send a request, or ends; then it waits, and whoever schedules
goes on. A coroutine is run by a loop of that thread, and stands still in the same way: its `gather` sends one request at a time.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from onewrite.errors import ConfigurationError
from onewrite.flow import Meter, meter
from onewrite.testing.taps.faults import Crash
from onewrite.testing.taps.traffic import Request

_GRACE = 1.0  # seconds that a dying call gets before its thread is left behind


class Answer(NamedTuple):
    """What a request came to: a value, or what was raised."""

    value: Any = None
    error: BaseException | None = None


class Call:
    """One call of a handler. Either `request` is what it is about to send, or it has `ended`."""

    def __init__(self, worker: _Worker, name: str) -> None:
        self.request: Request | None = None
        self.ended = False
        self.died = False
        self.result = Answer()
        self.outcomes: list[object] = []  # of guarded stores: also those that the handler keeps to itself
        self.worker = worker
        self._name = name
        self._answer = Answer()

    # --- from the scheduler's thread ---

    def resume(self, answer: Answer) -> None:
        """Let it go on with this answer until its next request or its end."""
        self._answer = answer
        self.worker.turn(self._name)

    def die(self) -> None:
        """Unwind it. What it tries to send on its way out is not sent."""
        self.died = True
        if not self.worker.is_lost:
            self.resume(Answer(error=Crash(f"The process died at {self.request}.")))

    # --- from the handler's thread ---

    def run(self, handler: Callable[[Any], Any], message: Any) -> None:
        current.set(self)
        meter.set(_Ear(self.outcomes))
        try:
            returned = handler(message)
            if inspect.isawaitable(returned):
                returned = self.worker.complete(returned)
            self.result = Answer(returned)
        except BaseException as error:
            self.result = Answer(error=error)
        self.ended = True

    @property
    def is_here(self) -> bool:
        """Is this its thread, and its turn?"""
        return threading.get_ident() == self.worker.ident and not self.ended

    def ask(self, request: Request) -> Any:
        """The gate: hand over to the scheduler, and come back with the answer."""
        if self.died:
            raise Crash(f"The process is dead, and does not send {request}.")
        self.request = request
        self.worker.wait()
        self.request = None
        value, error = self._answer
        if error is not None:
            raise error
        return value


class _Ear(Meter):
    def __init__(self, heard: list[object]) -> None:
        super().__init__()
        self._heard = heard

    def done(self, result: object) -> None:
        self._heard.append(result)


current: contextvars.ContextVar[Call | None] = contextvars.ContextVar("onewrite.testing.call", default=None)


class Crew:
    """Threads for calls, used again and again."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._idle: list[_Worker] = []

    def begin(self, handler: Callable[[Any], Any], message: Any, name: str) -> Call:
        """Call the handler, and return once it is about to send its first request or has ended."""
        worker = self._idle.pop() if self._idle else _Worker(self._timeout)
        call = Call(worker, name)
        context = contextvars.copy_context()  # here, so that the handler sees what its caller has set
        worker.job = lambda: context.run(call.run, handler, message)
        call.resume(Answer())
        return call

    def release(self, call: Call) -> None:
        """Take back the thread of a call, which dies if it has not ended."""
        worker = call.worker
        if not call.ended:
            worker.timeout = _GRACE
            with suppress(ConfigurationError):
                call.die()
            worker.timeout = self._timeout
        if not worker.is_lost:
            self._idle.append(worker)

    def close(self) -> None:
        for worker in self._idle:
            worker.stop()
        self._idle.clear()


class _Worker:
    """A thread that does a job, and two locks by which it and the scheduler take turns: far quicker than a queue."""

    def __init__(self, timeout: float) -> None:
        self.job: Callable[[], None] | None = None
        self.timeout = timeout
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._loop: asyncio.Runner | None = None
        self.is_lost = False  # it did not come back: it ends with its job, whenever that is
        thread = threading.Thread(target=self._work, name="onewrite explorer", daemon=True)
        thread.start()
        self.ident = thread.ident

    def turn(self, name: str) -> None:
        self._go.release()
        if not self._back.acquire(timeout=self.timeout):
            self.is_lost = True
            raise ConfigurationError(
                f"{name} has neither sent a request nor returned for {self.timeout:g} seconds: it waits for what cannot come "
                "while the others stand still, such as another thread or a lock that another delivery holds. If it is only "
                "slow, raise timeout=; if deliveries of your process never overlap, explore with concurrency=1."
            )

    def wait(self) -> None:
        self._back.release()
        self._go.acquire()

    def stop(self) -> None:
        self.job = None
        self._go.release()

    def complete(self, awaitable: Awaitable[Any]) -> Any:
        if self._loop is None:
            self._loop = asyncio.Runner()
        return self._loop.run(_alone(awaitable), context=contextvars.copy_context())

    def _work(self) -> None:
        self._go.acquire()
        while self.job is not None:
            self.job()
            if self.is_lost:
                break
            self.wait()
        if self._loop is not None:
            self._loop.close()


async def _alone(awaitable: Awaitable[Any]) -> Any:
    """Await, and leave no task behind for the next call of this thread."""
    try:
        return await awaitable
    finally:
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
