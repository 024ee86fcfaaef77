"""Calls of the handler that stop at every request, so that the explorer decides which of them goes on.

Each call has a thread of its own. It runs until it is about to send a request, or until it ends. Then it waits, and the
explorer goes on. A coroutine is run by an event loop of that thread and stops in the same way, so that requests which it
gathers are sent one after the other.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from onewrite.errors import ConfigurationError
from onewrite.flow import Meter, meter
from onewrite.testing.explorer.handler.determined import determine
from onewrite.testing.taps.everywhere import Listener, listener
from onewrite.testing.taps.faults import Crash
from onewrite.testing.taps.mongodb.transaction_names import Owner, current_owner
from onewrite.testing.taps.traffic import Request

_SECONDS_TO_DIE = 1.0  # a call that is told to die and has not ended by then keeps its thread, and the explorer goes on


class Answer(NamedTuple):
    """What came of a request or of a call: the value that was returned, or the exception that was raised."""

    value: Any = None
    error: BaseException | None = None
    form: Hashable = None  # equal for answers that are the same; None if it has not been made
    faulty: bool = False  # a fault has made it what it is


class HandlerCall:
    """One call of the handler. Either `request` is what it is about to send, or it has `ended`."""

    def __init__(self, thread: _CallThread, name: str, known: Iterable[Answer] = ()) -> None:
        self.asked: list[Request] = []  # what it has sent so far, and what it is about to send
        self.compared = 0  # how many of these have been compared with what is remembered of earlier calls
        self.request: Request | None = None
        self.key: Hashable = None  # of the request, where somebody has made it
        self.ended = False
        self.died = False
        self.result = Answer()
        self.outcomes: list[object] = []  # what guarded stores returned, also where the handler does not return it
        self.thread = thread
        self.name = name
        self._answer = Answer()
        self._known = iter(known)  # the answers to its first requests

    # --- called from the explorer's thread ---

    def resume(self, answer: Answer) -> None:
        """Let the call go on with this answer until its next request or its end."""
        self._answer = answer
        self.thread.give_turn(self.name)

    def die(self) -> None:
        """Raise `Crash` in the handler. What it tries to send after that is not sent."""
        self.died = True
        if not self.thread.is_lost:
            self.resume(Answer(error=Crash(f"The process died at {self.request}.")))

    # --- called from the handler's thread ---

    def run(self, handler: Callable[[Any], Any], message: Any) -> None:
        current_call.set(self)
        current_owner.set(Owner(self.name))
        meter.set(Meter(results=self.outcomes))
        try:
            returned = handler(message)
            if inspect.isawaitable(returned):
                returned = self.thread.complete(returned)
            self.result = Answer(returned)
        except BaseException as error:
            self.result = Answer(error=error)
        self.ended = True

    @property
    def runs_in_this_thread(self) -> bool:
        return threading.get_ident() == self.thread.ident and not self.ended

    def ask(self, request: Request) -> Any:
        """Wait until the explorer answers the request, and return the answer or raise the exception in it."""
        if self.died:
            raise Crash(f"The process is dead, and does not send {request}.")
        self.asked.append(request)
        known = next(self._known, None)
        if known is None:
            self.request = request
            self.thread.return_turn()
            self.request = None
        answer = known or self._answer
        if answer.error is not None:
            raise answer.error
        return answer.value


current_call: contextvars.ContextVar[HandlerCall | None] = contextvars.ContextVar("onewrite.testing.call", default=None)


# --- threads ----------------------------------------------------------------------------------------------------------


class CallThreads:
    """The threads in which calls run. A thread is used again when its call has ended."""

    def __init__(self, timeout: float, now: float = 0.0, hears: Listener | None = None) -> None:
        self._timeout = timeout
        self._now = now  # the time for stores that are given no clock
        self._hears = hears  # what handlers send by clients that the explorer did not give them
        self.names_used = False  # a guarded table has put the name of a call into a request
        self._idle: list[_CallThread] = []

    def begin(self, handler: Callable[[Any], Any], message: Any, name: str, known: Iterable[Answer] = ()) -> HandlerCall:
        """Call the handler, and return when it is about to send its first request without a known answer, or has ended."""
        thread = self._idle.pop() if self._idle else _CallThread(self._timeout)
        call = HandlerCall(thread, name, known)
        context = contextvars.copy_context()  # so that the handler sees the context variables of the test
        context.run(determine, name, self._now, self._use_name)
        context.run(listener.set, self._hears)
        thread.job = lambda: context.run(call.run, handler, message)
        call.resume(Answer())
        return call

    def release(self, call: HandlerCall) -> None:
        """Take back the thread of a call. A call that has not ended dies first."""
        thread = call.thread
        if not call.ended:
            thread.timeout = _SECONDS_TO_DIE
            with suppress(ConfigurationError):
                call.die()
            thread.timeout = self._timeout
        if not thread.is_lost:
            self._idle.append(thread)

    def _use_name(self) -> None:
        self.names_used = True

    def close(self) -> None:
        for thread in self._idle:
            thread.stop()
        self._idle.clear()


class _CallThread:
    """A thread that takes turns with the explorer's thread by means of two locks. Queues would be far slower."""

    def __init__(self, timeout: float) -> None:
        self.job: Callable[[], None] | None = None
        self.timeout = timeout
        self._calls_turn, self._explorers_turn = threading.Lock(), threading.Lock()
        self._calls_turn.acquire()
        self._explorers_turn.acquire()
        self._loop: asyncio.Runner | None = None
        self.is_lost = False  # it did not return its turn in time: it is not used again, and ends when its job ends
        thread = threading.Thread(target=self._work, name="onewrite explorer", daemon=True)
        thread.start()
        self.ident = thread.ident

    # --- called from the explorer's thread ---

    def give_turn(self, name: str) -> None:
        """Let the job go on until it returns its turn."""
        self._calls_turn.release()
        if not self._explorers_turn.acquire(timeout=self.timeout):
            self.is_lost = True
            raise ConfigurationError(
                f"{name} has neither sent a request nor returned for {self.timeout:g} seconds. It probably waits for "
                "something that cannot happen while the other deliveries stand still, such as another thread, or a lock that "
                "another delivery holds. If it is only slow, raise timeout=. If deliveries of your process never overlap, "
                "explore with concurrency=1."
            )

    def stop(self) -> None:
        self.job = None
        self._calls_turn.release()

    # --- called from this thread ---

    def return_turn(self) -> None:
        """Let the explorer go on, and wait for the next turn."""
        self._explorers_turn.release()
        self._calls_turn.acquire()

    def complete(self, awaitable: Awaitable[Any]) -> Any:
        """The result of what a coroutine handler has returned."""
        if self._loop is None:
            self._loop = asyncio.Runner()
        return self._loop.run(_without_tasks_left(awaitable), context=contextvars.copy_context())

    def _work(self) -> None:
        self._calls_turn.acquire()
        while self.job is not None:
            self.job()
            if self.is_lost:
                break
            self.return_turn()
        if self._loop is not None:
            self._loop.close()


async def _without_tasks_left(awaitable: Awaitable[Any]) -> Any:
    """Await it, and cancel the tasks that it has left, so that they do not run during the next call of this thread."""
    try:
        return await awaitable
    finally:
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def in_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
