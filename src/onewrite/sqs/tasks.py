"""The driver of an asynchronous function: tasks process the messages in one event loop, which has its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from math import inf
from typing import Protocol

from onewrite.batch.function import where_coroutine_stands, where_thread_stands
from onewrite.sqs.state import Results
from onewrite.sqs.waiting import Load
from onewrite.sqs.watch import BEAT, SILENCE, Watch

_LOOP = "loop"
_SILENT = (
    "No message can go on or begin, because an `async` function does what blocks (await it, or do it by asyncio.to_thread): the event loop has "
    "not gone round"
)


class Loads(Protocol):
    """The source of the tasks' loads, which takes the results. Only `aprocess` waits, for the function."""

    watch: Watch

    def ready_count(self) -> int: ...
    def take(self, *, is_last: bool) -> Load | None: ...
    async def aprocess(self, load: Load) -> Results: ...
    def make_failures(self, load: Load, error: BaseException) -> Results: ...
    def bring(self, load: Load, results: Results) -> None: ...
    def look(self) -> None: ...
    def loop_ended(self, error: BaseException) -> None: ...


class Tasks:
    """One task for each slot that is busy.

    A task takes its load when it runs for the first time, and not when it is made: a loop that is blocked has not begun a load that it
    will not begin.
    """

    def __init__(self, worker: Loads, function: Callable[..., object], timeout: float) -> None:
        self._worker, self._function, self._longest_silence = worker, function, max(timeout, SILENCE)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_woken = False
        self._coming_count = 0  # tasks that have not run yet
        self._is_sign_wanted = False
        self._last_sign = -inf  # when the loop was last asked for a sign
        self._end: Future[None] = Future()

    def wake(self) -> None:
        """Begin the messages that are ready. The lock of the worker is held."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="onewrite-tasks", daemon=True)
            self._thread.start()
        if not self._is_woken:
            self._is_woken = True
            self._call_soon(self._begin)

    def close(self) -> None:
        """Begin nothing more, and cancel the tasks in progress."""
        with suppress(InvalidStateError):  # the loop has ended on its own
            self._end.set_result(None)

    def cancel(self, load: Load) -> None:
        """Cancel the task of a load, unless it has ended meanwhile."""
        if load.task is not None:
            self._call_soon(load.task.cancel)

    def ask_for_a_sign(self, now: float) -> None:
        """Ask the loop for a sign, every few seconds. It goes through the loop as the messages do: a call that blocks holds up both."""
        if self._thread is None or self._is_sign_wanted or now < self._last_sign + BEAT:
            return
        self._is_sign_wanted, self._last_sign = True, now
        self._worker.watch.begin(_LOOP, _SILENT, self._longest_silence, self._thread.ident, is_vital=True)

        def give_sign() -> None:
            self._is_sign_wanted = False
            self._worker.watch.end(_LOOP)
            self._worker.look()

        self._call_soon(give_sign)

    def find_place(self, load: Load) -> str | None:
        """Return the line of the user's code at which a task waits, or at which it blocks the loop."""
        if load.task is None or self._thread is None:
            return None
        if asyncio.current_task(self._loop) is load.task:
            return where_thread_stands(self._thread.ident, self._function)
        return where_coroutine_stands(load.task.get_coro(), self._function)

    def _call_soon(self, act: Callable[[], object]) -> None:
        """Call `act` in the loop, unless the loop has ended."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(act)

    # ------------------------------------------------------------ in the loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        async def until_over() -> None:
            await asyncio.wrap_future(self._end)

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                runner.run(until_over())
            except BaseException as error:  # The user's code has ended the loop: nothing begins any more.
                self._worker.loop_ended(error)

    def _begin(self) -> None:
        self._is_woken = False  # before the look, so what becomes ready during it is not missed
        for _ in range(self._worker.ready_count() - self._coming_count):
            self._coming_count += 1
            asyncio.get_running_loop().create_task(self._process())  # The loop keeps it until it has run, and then its load.

    async def _process(self) -> None:
        self._coming_count -= 1
        load = self._worker.take(is_last=not self._coming_count)
        if load is None:  # The message was given back meanwhile.
            return
        load.task = asyncio.current_task()
        try:
            results = await self._worker.aprocess(load)
        except BaseException as error:  # Any exception would end the loop here, and with it all other tasks.
            results = self._worker.make_failures(load, error)
        self._worker.bring(load, results)
        load.task = None
