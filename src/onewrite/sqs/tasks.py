"""The driver of an asynchronous function: tasks process the messages in one event loop, which has its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, suppress
from math import inf

from onewrite.batch.function import where_coroutine_stands, where_thread_stands
from onewrite.sqs.waiting import Load
from onewrite.sqs.watch import BEAT, SILENCE, Watch, WorkerStuck

_LOOP = "loop"
_SILENT = (
    "No message can go on or begin, because an `async` function does what blocks (await it, or do it by asyncio.to_thread): the event loop has "
    "not gone round"
)


class Tasks:
    """One task for each load in progress.

    `begin` makes tasks of the loads that are ready. An error that is raised in a context of `failing` ends the worker.
    """

    def __init__(
        self,
        watch: Watch,
        function: Callable[..., object],
        timeout: float,
        *,
        begin: Callable[[], None],
        failing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._watch, self._function, self._longest_silence = watch, function, max(timeout, SILENCE)
        self._begin_ready, self._failing = begin, failing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_woken = False
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
        self._watch.begin(_LOOP, _SILENT, self._longest_silence, self._thread.ident, is_vital=True)

        def give_sign() -> None:
            self._is_sign_wanted = False
            self._watch.end(_LOOP)

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

        with self._failing(), asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                runner.run(until_over())
            except (Exception, asyncio.CancelledError) as error:
                raise WorkerStuck(f"The handler has ended the event loop by {error!r}, so no message can go on.") from error

    def _begin(self) -> None:
        self._is_woken = False  # before the loads are taken, so a load that becomes ready meanwhile is not missed
        self._begin_ready()
