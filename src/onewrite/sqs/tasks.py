"""The driver of an asynchronous function. Tasks process the messages in one event loop, which has its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, suppress
from math import inf

from onewrite.process.failures import find_coroutine_line, find_thread_line
from onewrite.process.watch import BEAT, SILENCE, Watch, WorkerStuck
from onewrite.sqs.waiting import Load

_LOOP = "loop"
_SILENT = (
    "An `async` function blocks the event loop, so no message can begin or continue. Await the call, or run it with asyncio.to_thread. The "
    "loop hasn't responded"
)


class Tasks:
    """One task for each load in progress.

    `begin` creates tasks for the ready loads. An error in a context of `failing` ends the worker.
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
        self.refusal: str | None = None  # why the system refused the loop's thread
        self._last_sign = -inf  # when the loop was last asked for a sign
        self._end: Future[None] = Future()

    def wake(self) -> None:
        """Begin the ready messages. The caller holds the worker's lock. If the system refuses the loop's thread, the next round tries again."""
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=self._run, args=(loop,), name="onewrite-tasks", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                loop.close()
                self.refusal = f"{error}. No message can begin"
                return
            self._loop, self._thread, self.refusal = loop, thread, None
        if not self._is_woken:
            self._is_woken = True
            self._call_soon(self._begin)

    def close(self) -> None:
        """Begin nothing more, and cancel the tasks in progress."""
        with suppress(InvalidStateError):  # raised if the loop has already ended
            self._end.set_result(None)

    def cancel(self, load: Load) -> None:
        """Cancel the task of a load, unless the task has ended in the meantime."""
        if load.task is not None:
            self._call_soon(load.task.cancel)

    def ask_for_a_sign(self, now: float) -> None:
        """Ask the loop for a sign every few seconds. A blocking call holds up the sign exactly as it holds up the messages."""
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
            return find_thread_line(self._thread.ident, self._function)
        return find_coroutine_line(load.task.get_coro(), self._function)

    def _call_soon(self, act: Callable[[], object]) -> None:
        """Call `act` in the loop, unless the loop has ended."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(act)

    # ------------------------------------------------------------ in the loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the event loop until `close`. The loop's thread runs this. If the user's code ends the loop, the worker ends."""

        async def wait_for_end() -> None:
            await asyncio.wrap_future(self._end)

        with self._failing(), asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                runner.run(wait_for_end())
            except (Exception, asyncio.CancelledError) as error:
                raise WorkerStuck(f"The handler ended the event loop with {error!r}. Restart the worker.") from error

    def _begin(self) -> None:
        """Create tasks for the ready loads."""
        self._is_woken = False  # before taking the loads, because more can become ready in the meantime
        self._begin_ready()
