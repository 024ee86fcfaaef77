"""The workers of a batch. The same loop runs in the calling thread, in several threads, or in tasks.

A worker takes a record, has it processed, says how it ended, and takes the next one. With `group_by` it takes a group instead.
`order` decides which it may take. This module adds the lock, the deadline, and what happens when the program is to end.

What is no `Exception` ends the batch: SystemExit, KeyboardInterrupt and, for an asynchronous function, the cancellation of the whole
batch. Then nothing more is taken, what is under way ends, and it is raised from the handler.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from onewrite.batch.order import Lanes, SecondTries, Unit
from onewrite.batch.report import Result
from onewrite.core.flow import Meter, meter
from onewrite.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
# What is done with what a worker has taken, and the results. It raises only what ends the batch.
Process: TypeAlias = Callable[[int], Mapping[int, Result]]
AsyncProcess: TypeAlias = Callable[[int], Awaitable[Mapping[int, Result]]]

# How many times the slowest record so far must fit into the time that is left. The next one may be slower, and after the
# last one the answer must still be sent.
_SAFETY_FACTOR = 1.5


class _ThisThread(threading.local):
    """The event loop of this thread."""

    runner: asyncio.Runner | None = None


_this_thread = _ThisThread()


class Deadline:
    """Whether there is time for more. `time_left` is in seconds, and None if there is no deadline."""

    def __init__(self, time_left: Callable[[], float] | None, margin: float) -> None:
        self.is_known = time_left is not None
        self._time_left, self._margin = time_left, margin
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        return self._time_left is not None and self._time_left() < self._margin

    def took(self, seconds: float) -> None:
        if self.is_known:
            with self._lock:
                self._margin = max(self._margin, seconds * _SAFETY_FACTOR)


class Batch:
    """What the workers of one batch share. `results` are those of its records by their positions, of which some are `settled`.

    A worker takes the position of a record; or, from `count` on, the number of a unit. `tries_again`: a deferred record is tried
    again, by itself, as soon as the one before it is in.
    """

    def __init__(self, lanes: Lanes, deadline: Deadline, count: int, units: Sequence[Unit], *, tries_again: bool) -> None:
        self.results: dict[int, Result] = {}
        self.settled_positions: set[int] = set()
        self.requests = 0
        self.exit: BaseException | None = None
        self._lanes, self._deadline, self._count, self._units = lanes, deadline, count, units
        self._second_tries = SecondTries() if tries_again else None
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """What to process next. None: nothing, or nothing until something else ends."""
        with self._lock:
            if self._deadline.is_known and not self._lanes.is_empty and self._deadline.is_over:
                self._lanes.close()
            number = self._lanes.take()
            if self._second_tries is not None and number is not None:
                if number < self._count:
                    self._second_tries.begin(number)
                else:
                    for position in self._units[number - self._count].positions:
                        self._second_tries.begin(position)
            return number

    def end(self, number: int, results: Mapping[int, Result]) -> None:
        """What was taken has ended. `results` are those of the records of which nothing is left to do."""
        with self._lock:
            retries: list[int] = []
            is_settled, tries = True, self._second_tries
            for position, result in results.items():
                self.results[position] = result
                if result.settled:
                    self.settled_positions.add(position)
                else:
                    is_settled = False
                if tries is not None and result.outcomes:
                    retries += tries.settle(result.outcomes)
            if tries is not None and not is_settled:
                retries += [
                    position
                    for position, result in results.items()
                    if position not in self.settled_positions and tries.defer(position, result.outcomes)
                ]
            if retries:
                self._lanes.take_again(retries)
            self._lanes.end(number, is_done=is_settled)

    def add_requests(self, requests: int) -> None:
        with self._lock:
            self.requests += requests

    def stop(self, error: BaseException) -> None:
        with self._lock:
            self._lanes.close()
            if self.exit is None:
                self.exit = error


def work(batch: Batch, process: Process) -> None:
    counter = Meter()
    token = meter.set(counter)
    try:
        while (number := batch.take()) is not None:
            batch.end(number, process(number))
    except BaseException as error:
        batch.stop(error)
    finally:
        meter.reset(token)
        batch.add_requests(counter.requests)


async def awork(batch: Batch, process: AsyncProcess) -> None:
    counter = Meter()
    meter.set(counter)  # Each task has a context of its own, which ends with it.
    try:
        while (number := batch.take()) is not None:
            batch.end(number, await process(number))
    except BaseException as error:
        batch.stop(error)
    finally:
        batch.add_requests(counter.requests)


def in_threads(batch: Batch, process: Process, workers: int) -> None:
    """The calling thread is one of the workers. Each of the others has a copy of its context."""
    threads: list[threading.Thread] = []
    try:
        for _ in range(workers - 1):
            thread = threading.Thread(target=copy_context().run, args=(work, batch, process), name="onewrite")
            thread.start()
            threads.append(thread)
        work(batch, process)
        _join(threads)
    except BaseException as error:  # no more threads can be started, or Ctrl-C while this one waits
        batch.stop(error)
        _join(threads)


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def in_tasks(batch: Batch, process: AsyncProcess, workers: int) -> None:
    """The event loop stays open for the next batch in this thread, because asynchronous clients are bound to their loop."""
    import asyncio  # noqa: PLC0415  # only handlers of asynchronous functions need it, and boto3 does not import it

    async def all_workers() -> None:
        await asyncio.gather(*(awork(batch, process) for _ in range(workers)))

    run_in_loop(all_workers)


def run_in_loop(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an asynchronous function to its end in the event loop of this thread."""
    runner = runner_of_this_thread()
    try:
        return runner.run(function(), context=copy_context())
    except BaseException:
        # The loop was left, by Ctrl-C or by an exit of a task, and tasks of this batch may still be in it. The next batch has another one.
        _this_thread.runner = None
        runner.close()
        raise


def runner_of_this_thread() -> asyncio.Runner:
    """The same at each call, so what was made in its event loop can be used again."""
    import asyncio  # noqa: PLC0415  # as in in_tasks

    with suppress(RuntimeError):  # there is none, as it should be
        asyncio.get_running_loop()
        raise ConfigurationError(
            "The handler of an async function or of an AsyncRelay runs its own event loop, and one is running here already: "
            "call it with `await asyncio.to_thread(handler, event, context)`, or await handler.aprocess(record) or handler.each(message)."
        )
    if _this_thread.runner is None:
        _this_thread.runner = asyncio.Runner()
        # When the thread ends its loop is collected, and asyncio warns of a loop that is still open then.
        weakref.finalize(_this_thread.runner, _this_thread.runner.get_loop().close)
    return _this_thread.runner


def is_inner_cancellation(error: BaseException) -> bool:
    """Whether something that the current task has awaited was cancelled, and not the task itself, as by a time limit around it."""
    import asyncio  # noqa: PLC0415  # as in in_tasks

    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or not task.cancelling()
