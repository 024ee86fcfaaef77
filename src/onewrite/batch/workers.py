"""The workers of a batch: one loop, in the calling thread, in threads, or as tasks.

A worker takes a record, has it processed, says how it ended, and takes the next. What it may take is decided in
`lanes`; here are the lock, the clock and the way out.

An exit (SystemExit, KeyboardInterrupt, GeneratorExit; the cancelling of the whole batch, where it is asynchronous) is no
failure of a record: nothing more is taken, what is under way ends, and then it leaves the handler.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from onewrite.batch.lanes import Lanes
from onewrite.batch.report import Result
from onewrite.errors import ConfigurationError
from onewrite.flow import Meter, meter

if TYPE_CHECKING:
    import asyncio

# What is done with a record. It raises exits, and nothing else.
Process: TypeAlias = Callable[[Any], Result]
AsyncProcess: TypeAlias = Callable[[Any], Awaitable[Result]]

# The slowest record is not the slowest possible, and after the last one there is the answer to send.
_CAUTION = 1.5
_EXITS = (SystemExit, KeyboardInterrupt, GeneratorExit)


class _ThisThread(threading.local):
    """This thread's event loop, and the task of the batch that is under way in it."""

    runner: asyncio.Runner | None = None
    task: asyncio.Task[Any] | None = None


_this_thread = _ThisThread()


def is_exit(error: BaseException) -> bool:
    """Whether it means the program, and not the record. In a group it counts for the whole group."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_exit, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, _EXITS)


class Batch:
    """What the workers of one batch share."""

    def __init__(self, records: Sequence[Any], lanes: Lanes, left: Callable[[], float] | None, margin: float) -> None:
        self.records = records
        self.results: dict[int, Result] = {}
        self.requests = 0
        self.exit: BaseException | None = None
        self._lanes = lanes
        self._left = left
        self._margin = margin
        self._lock = threading.Lock()

    def take(self) -> int | None:
        with self._lock:
            if self._left is not None and not self._lanes.is_empty and self._left() < self._margin:
                self._lanes.close()
            return self._lanes.take()

    def end(self, position: int, result: Result) -> None:
        with self._lock:
            self.results[position] = result
            self._margin = max(self._margin, result.seconds * _CAUTION)
            (self._lanes.settle if result.settled else self._lanes.fail)(position)

    def leave(self, requests: int) -> None:
        with self._lock:
            self.requests += requests

    def stop(self, error: BaseException) -> None:
        with self._lock:
            self._lanes.close()
            if self.exit is None:
                self.exit = error


def work(batch: Batch, process: Process) -> None:
    counting = Meter()
    token = meter.set(counting)
    try:
        while (position := batch.take()) is not None:
            batch.end(position, process(batch.records[position]))
    except BaseException as error:
        batch.stop(error)
    finally:
        meter.reset(token)
        batch.leave(counting.requests)


async def awork(batch: Batch, process: AsyncProcess) -> None:
    counting = Meter()
    meter.set(counting)  # in the context of this task alone
    try:
        while (position := batch.take()) is not None:
            batch.end(position, await process(batch.records[position]))
    except BaseException as error:
        batch.stop(error)
    finally:
        batch.leave(counting.requests)


def in_threads(batch: Batch, process: Process, workers: int) -> None:
    """The calling thread is one of the workers. Each has a copy of its context."""
    threads: list[threading.Thread] = []
    try:
        for _ in range(workers - 1):
            thread = threading.Thread(target=copy_context().run, args=(work, batch, process), name="onewrite")
            thread.start()
            threads.append(thread)
        work(batch, process)
        _join(threads)
    except BaseException as error:  # no thread to be had, or Ctrl-C while waiting
        batch.stop(error)
        _join(threads)


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def in_tasks(batch: Batch, process: AsyncProcess, workers: int) -> None:
    """The loop stays open for the next batch of this thread: clients that live on are bound to it."""
    import asyncio  # noqa: PLC0415  # boto3 does not import it, and who has no async function need not wait for it

    async def whole() -> None:
        _this_thread.task = asyncio.current_task()
        await asyncio.gather(*(awork(batch, process) for _ in range(workers)))

    _refuse_a_running_loop()
    if _this_thread.runner is None:
        _this_thread.runner = asyncio.Runner()
        # A loop that is collected open warns.
        weakref.finalize(_this_thread.runner, _this_thread.runner.get_loop().close)
    _this_thread.runner.run(whole(), context=copy_context())


def is_cancelled(error: BaseException) -> bool:
    """Whether the whole batch is being cancelled, rather than something in a record's function."""
    return not isinstance(error, Exception) and _this_thread.task is not None and _this_thread.task.cancelling() > 0


def _refuse_a_running_loop() -> None:
    import asyncio  # noqa: PLC0415  # the same

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "A batch of an async function runs its own event loop, and there is one running here: "
        "call the handler with `await asyncio.to_thread(handler, event, context)`, or await handler.each(message)."
    )
