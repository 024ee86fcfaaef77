"""The workers of a batch. The same loop runs in the calling thread, in several threads, or in tasks.

A worker takes a record, or with `group_by` a unit, has it processed, and ends it. `order` decides which record is next. This
module adds the lock, the deadline, and the exit.

SystemExit, KeyboardInterrupt, and the cancellation of an async batch end the batch. No more records are taken, the records
in progress end, and then the handler raises the exception.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from logging import WARNING
from typing import TypeAlias

from onewrite.batch.order import Lanes
from onewrite.batch.report import Result, is_settled
from onewrite.core.flow import Meter, meter
from onewrite.core.log import log
from onewrite.process.loops import run_in_loop

# A function that processes a taken number and returns the results. It raises only to end the batch.
Process: TypeAlias = Callable[[int], Mapping[int, Result]]
AsyncProcess: TypeAlias = Callable[[int], Awaitable[Mapping[int, Result]]]

# The factor by which the slowest record so far must fit into the time left. The next one can be slower, and the response
# must still be sent afterward.
_SAFETY_FACTOR = 1.5


class Deadline:
    """The time limit of a batch. `time_left` returns seconds, and is None if there is no deadline."""

    def __init__(self, time_left: Callable[[], float] | None, margin: float) -> None:
        self.is_known = time_left is not None
        self._time_left, self._margin = time_left, margin
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether too little time is left to begin another call."""
        return self._time_left is not None and self._time_left() < self._margin

    def allow_for(self, seconds: float) -> None:
        """Leave enough time for another record that takes these seconds, or somewhat longer."""
        if self.is_known:
            with self._lock:
                self._margin = max(self._margin, seconds * _SAFETY_FACTOR)


class Batch:
    """The shared state of one batch's workers. `results` has the results by record position."""

    def __init__(self, lanes: Lanes, deadline: Deadline) -> None:
        self.results: dict[int, Result] = {}
        self.requests = 0
        self.exit: BaseException | None = None
        self._lanes, self._deadline = lanes, deadline
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """Return the next number to process, or None if there is none until another one ends."""
        with self._lock:
            if self._deadline.is_over:
                self._lanes.close()
            return self._lanes.take()

    def end(self, number: int, results: Mapping[int, Result]) -> None:
        """End a number. `results` are those of the finished records."""
        with self._lock:
            self.results |= results
            self._lanes.end(number, is_done=all(map(is_settled, results.values())))

    def add_requests(self, requests: int) -> None:
        with self._lock:
            self.requests += requests

    def stop(self, error: BaseException) -> None:
        """Give out no more records. The handler raises the first of these errors once the records in progress have ended."""
        with self._lock:
            self._lanes.close()
            if self.exit is None:
                self.exit = error


def work(batch: Batch, process: Process) -> None:
    """Process numbers until there is none to take. An exception that `process` raises ends the batch, and isn't raised here."""
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
    """Process numbers like `work`, in a task."""
    counter = Meter()
    meter.set(counter)  # each task has its own context, which ends with it
    try:
        while (number := batch.take()) is not None:
            batch.end(number, await process(number))
    except BaseException as error:
        batch.stop(error)
    finally:
        batch.add_requests(counter.requests)


def work_in_threads(batch: Batch, process: Process, workers: int) -> None:
    """Process the batch in threads. The calling thread is one of the workers; each other one has a copy of its context."""
    threads: list[threading.Thread] = []
    try:
        for number in range(1, workers):
            thread = threading.Thread(target=copy_context().run, args=(work, batch, process), name="onewrite")
            try:
                thread.start()
            except RuntimeError as error:
                text = "The system refused a thread (%s). %d of %d workers process the batch. Pass a smaller max_workers= to the handler."
                log(WARNING, text, error, number, workers)
                break
            threads.append(thread)
        work(batch, process)
        _join(threads)
    except BaseException as error:  # Ctrl-C during the wait
        batch.stop(error)
        _join(threads)


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def work_in_tasks(batch: Batch, process: AsyncProcess, workers: int) -> None:
    """Process the batch in tasks.

    The event loop stays open for this thread's next batch, because async clients are bound to their loop.
    """
    import asyncio

    async def all_workers() -> None:
        await asyncio.gather(*(awork(batch, process) for _ in range(workers)))

    run_in_loop(all_workers)
