"""The tasks that process the messages of an asynchronous function, in one event loop with a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from math import inf
from typing import Any, Protocol

from onewrite.batch.function import where_coroutine_stands, where_thread_stands
from onewrite.sqs.state import BEAT, Results
from onewrite.sqs.waiting import Load


class Loads(Protocol):
    """Where the tasks get loads, and bring the results. None of this waits, but `aprocess` for the function."""

    def ready_count(self) -> int:
        """How many loads may begin."""
        ...

    def take(self, *, is_last: bool) -> Load | None: ...

    async def aprocess(self, load: Load) -> Results: ...

    def failure_results(self, load: Load, error: BaseException) -> Results: ...

    def bring(self, load: Load, results: Results) -> None: ...

    def look(self) -> None: ...

    def fail(self, error: BaseException) -> None: ...

    def loop_ended(self, error: BaseException) -> None: ...


class Tasks:
    """One task for each slot that is busy.

    A task takes its load when it runs for the first time, and not when it is made: a loop that stands still has not begun what it
    will not begin.
    """

    def __init__(self, loads: Loads, function: Callable[..., Any]) -> None:
        self._loads, self._function = loads, function
        self._tasks: dict[Load, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_woken = False
        self._coming_count = 0  # tasks that have not run yet
        self._sign_wanted: float | None = None  # when the loop was asked for a sign, if it has not given one since
        self._last_sign = -inf  # when it was last asked, or gave one
        self._end: Future[None] = Future()

    def wake(self) -> None:
        """Messages are ready. The lock of the loads is held."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="onewrite-tasks", daemon=True)
            self._thread.start()
        if not self._is_woken:
            self._is_woken = True
            self._call_soon(self._begin)

    def close(self) -> None:
        """Nothing is begun any more, and what has not ended is cancelled."""
        with suppress(InvalidStateError):  # the loop has ended by itself
            self._end.set_result(None)

    def cancel(self, load: Load) -> None:
        """A task that has ended meanwhile is not touched."""
        task = self._tasks.get(load)
        if task is not None:
            self._call_soon(task.cancel)

    # ------------------------------------------------------------ whether the loop goes round

    def ask_for_a_sign(self, now: float) -> None:
        """Now and then. The sign goes through the loop as the messages do: one call that blocks holds up both."""
        if self._loop is not None and self._sign_wanted is None and now >= self._last_sign + BEAT:
            self._sign_wanted = self._last_sign = now

            def give_sign() -> None:
                self._sign_wanted = None
                self._loads.look()

            self._call_soon(give_sign)

    def _call_soon(self, act: Callable[[], object]) -> None:
        """In the loop, unless it has ended."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(act)

    def silence(self, now: float) -> float:
        """For how many seconds the loop has not answered. It takes no lock."""
        since = self._sign_wanted
        return 0.0 if since is None else now - since

    def count_anew(self, now: float) -> None:
        """The process itself stood still."""
        if self._sign_wanted is not None:
            self._sign_wanted = now

    def where_loop_stands(self) -> str | None:
        return None if self._thread is None else where_thread_stands(self._thread.ident, self._function)

    def place_of(self, load: Load) -> str | None:
        """The line of the user's code at which a task waits, or at which it keeps the loop from going round."""
        task = self._tasks.get(load)
        if task is None:
            return None
        if asyncio.current_task(self._loop) is task:
            return self.where_loop_stands()
        return where_coroutine_stands(task.get_coro(), self._function)

    # ------------------------------------------------------------ in the loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        async def until_over() -> None:
            await asyncio.wrap_future(self._end)

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                runner.run(until_over())
            except BaseException as error:  # Code of the user's has ended the loop: nothing begins any more.
                if isinstance(error, Exception | asyncio.CancelledError):
                    self._loads.loop_ended(error)
                else:
                    self._loads.fail(error)

    def _begin(self) -> None:
        self._is_woken = False  # before the look, so what becomes ready during it is not missed
        for _ in range(self._loads.ready_count() - self._coming_count):
            self._coming_count += 1
            asyncio.get_running_loop().create_task(self._process())  # The loop keeps it until it has run, and then we do.

    async def _process(self) -> None:
        self._coming_count -= 1
        load = self._loads.take(is_last=not self._coming_count)
        task = asyncio.current_task()
        if load is None or task is None:  # It was given back meanwhile.
            return
        self._tasks[load] = task
        results: Results
        try:
            results = await self._loads.aprocess(load)
        except BaseException as error:  # Whatever is raised here would end the loop, and with it all other tasks.
            if not isinstance(error, Exception | asyncio.CancelledError):
                self._loads.fail(error)
            results = self._loads.failure_results(load, error)
        self._loads.bring(load, results)
        del self._tasks[load]
