"""The workers of a batch. The same loop runs in the calling thread, in several threads, or in tasks.

A worker takes a record, has it processed, says how it ended, and takes the next one. With `group_by` it takes a group instead.
`lanes` decides which it may take. This module adds the lock, the deadline, and what happens when the program is to end.

The end of the program ends the batch: a real SIGINT and, for an asynchronous function, the cancellation of the whole batch. Then
nothing more is taken, what is under way ends, and the exception is raised from the handler.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from onewrite.batch.lanes import Lanes, SecondTries
from onewrite.batch.report import Result
from onewrite.errors import ConfigurationError
from onewrite.flow import Meter, meter

if TYPE_CHECKING:
    import asyncio
import signal
from types import FrameType

T = TypeVar("T")
# What is done with what a worker has taken, and how that ended. It raises exceptions that end the program, and no others.
Process: TypeAlias = Callable[[int], T]
AsyncProcess: TypeAlias = Callable[[int], Awaitable[T]]

# How many times the slowest record so far must fit into the time that is left. The next one may be slower, and after the
# last one the answer must still be sent.
_SAFETY_FACTOR = 1.5


class _ThisThread(threading.local):
    """The event loop of this thread, and the task of the batch that is under way in it."""

    runner: asyncio.Runner | None = None
    task: asyncio.Task[Any] | None = None


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
        with self._lock:
            self._margin = max(self._margin, seconds * _SAFETY_FACTOR)


class Shared(ABC, Generic[T]):
    """What the workers of one batch share. `results` are those of its records, by their positions.

    `tries_again`: a deferred record is tried again as soon as the one before it is in.
    """

    def __init__(self, lanes: Lanes, deadline: Deadline, *, tries_again: bool) -> None:
        self.results: dict[int, Result] = {}
        self.requests = 0
        self.exit: BaseException | None = None
        self._lanes, self._deadline = lanes, deadline
        self._second_tries = SecondTries() if tries_again else None
        self._lock = threading.Lock()

    @abstractmethod
    def positions(self, taken: int, /) -> Sequence[int]:
        """The records of which a worker has taken something."""

    @abstractmethod
    def end(self, taken: int, ended: T, /) -> None:
        """How what was taken has ended."""

    def take(self) -> int | None:
        """What to process next. None: nothing, or nothing until something else ends."""
        with self._lock:
            if self._deadline.is_known and not self._lanes.is_empty and self._deadline.is_over:
                self._lanes.close()
            taken = self._lanes.take()
            if self._second_tries is not None and taken is not None:
                for position in self.positions(taken):
                    self._second_tries.begin(position)
            return taken

    def add_requests(self, requests: int) -> None:
        with self._lock:
            self.requests += requests

    def stop(self, error: BaseException) -> None:
        with self._lock:
            self._lanes.close()
            if self.exit is None:
                self.exit = error


class Batch(Shared[Result]):
    """A worker takes the position of a record. `time_left` is in seconds, and None if there is no deadline."""

    def __init__(self, lanes: Lanes, time_left: Callable[[], float] | None, margin: float, *, tries_again: bool) -> None:
        super().__init__(lanes, Deadline(time_left, margin), tries_again=tries_again)

    def positions(self, taken: int, /) -> Sequence[int]:
        return (taken,)

    def end(self, position: int, result: Result, /) -> None:
        with self._lock:
            self.results[position] = result
            if self._deadline.is_known:
                self._deadline.took(result.seconds)
            for other in () if self._second_tries is None else self._second_tries.settle(result.outcomes):
                self._lanes.again(other)
            if result.settled:
                self._lanes.settle(position)
                return
            self._lanes.fail(position)
            if self._second_tries is not None and self._second_tries.defer(position, result.outcomes):
                self._lanes.again(position)


def work(batch: Shared[T], process: Process[T]) -> None:
    counting = Meter()
    token = meter.set(counting)
    try:
        while (position := batch.take()) is not None:
            batch.end(position, process(position))
    except BaseException as error:
        batch.stop(error)
    finally:
        meter.reset(token)
        batch.add_requests(counting.requests)


async def awork(batch: Shared[T], process: AsyncProcess[T]) -> None:
    counting = Meter()
    meter.set(counting)  # Each task has a context of its own, which ends with it.
    try:
        while (position := batch.take()) is not None:
            batch.end(position, await process(position))
    except BaseException as error:
        batch.stop(error)
    finally:
        batch.add_requests(counting.requests)


def in_threads(batch: Shared[T], process: Process[T], workers: int) -> None:
    """The calling thread is one of the workers. Each of the others has a copy of its context."""
    threads: list[threading.Thread] = []
    try:
        with NoticedInterrupts():
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


def in_tasks(batch: Shared[T], process: AsyncProcess[T], workers: int) -> None:
    """The event loop stays open for the next batch in this thread, because asynchronous clients are bound to their loop."""
    import asyncio  # noqa: PLC0415  # only handlers of asynchronous functions need it, and boto3 does not import it

    async def all_workers() -> None:
        _this_thread.task = asyncio.current_task()
        await asyncio.gather(*(awork(batch, process) for _ in range(workers)))

    runner = runner_of_this_thread()
    before = interrupts()
    with NoticedInterrupts(_cancel_batch):
        try:
            _run(runner, all_workers())
        except BaseException:
            if interrupts() == before:
                raise
    if interrupts() > before:
        raise KeyboardInterrupt


def runner_of_this_thread() -> asyncio.Runner:
    """The same at each call, so that what was made in its event loop can be used again."""
    import asyncio  # noqa: PLC0415  # as in in_tasks

    _refuse_a_running_loop()
    if _this_thread.runner is None:
        _this_thread.runner = asyncio.Runner()
        # When the thread ends its loop is collected, and asyncio warns of a loop that is still open then.
        weakref.finalize(_this_thread.runner, _this_thread.runner.get_loop().close)
    return _this_thread.runner


def _run(runner: asyncio.Runner, workers: Coroutine[Any, Any, None]) -> None:
    """Run them to their end, though a task of the user's raises SystemExit, with which asyncio leaves the event loop.

    The record that awaits such a task has failed, and the others go on.
    """

    async def until_done(batch: asyncio.Task[Any]) -> None:
        await batch

    left_with: BaseException | None = None
    try:
        runner.run(workers, context=copy_context())
    except (SystemExit, KeyboardInterrupt) as error:
        left_with = error
    batch = cast("asyncio.Task[Any]", _this_thread.task)
    while left_with is not None and not batch.done():
        if batch.cancelling():  # A second Ctrl-C does not wait for what holds on.
            raise left_with
        with suppress(SystemExit, KeyboardInterrupt):
            runner.run(until_done(batch))


def _cancel_batch() -> bool:
    """Do so upon the first Ctrl-C, as asyncio.Runner does. False: there is nothing to cancel, or it was done before."""
    batch = _this_thread.task
    if batch is None or batch.done() or batch.cancelling():
        return False
    batch.cancel()
    batch.get_loop().call_soon_threadsafe(lambda: None)  # A loop that waits for something is woken.
    return True


def batch_is_cancelled() -> bool:
    """Whether the whole batch is being cancelled, and not only something that the function of a record awaits."""
    return _this_thread.task is not None and _this_thread.task.cancelling() > 0


def task_is_cancelled() -> bool:
    """Whether the task that awaits the record is being cancelled, as by a time limit around it."""
    import asyncio  # noqa: PLC0415  # as in in_tasks

    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _refuse_a_running_loop() -> None:
    import asyncio  # noqa: PLC0415  # as in in_tasks

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "The handler of an async function or of an AsyncRelay runs its own event loop, and one is running here already: "
        "call it with `await asyncio.to_thread(handler, event, context)`, or await handler.each(message)."
    )


# --- the end of the program ------------------------------------------------------------------------------------------
#
# Tells an exit of the program from an exception that the code of a record has raised.
#
# SystemExit or KeyboardInterrupt raised by a record's code fails that record. If it ended the batch, the records before it would
# be done again and those after it never begun, until all of them are in the dead-letter queue. Only a real signal ends the batch.


class _Seen:
    interrupts = 0  # how often this process has been interrupted while a batch was under way


def interrupts() -> int:
    return _Seen.interrupts


def is_interrupt(error: BaseException, before: int) -> bool:
    """Whether the error comes from a real SIGINT, of which there had been so many before. A group is if a member is."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_interrupt(each, before) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, KeyboardInterrupt) and _Seen.interrupts > before


class NoticedInterrupts:
    """Around a block in which a real SIGINT is counted before it raises KeyboardInterrupt, as it does by default.

    `instead` may do something else about it, and returns whether it has. If the program handles SIGINT itself, or this is no
    main thread, nothing is changed. asyncio.Runner does the same.
    """

    __slots__ = ("_instead", "_ours")

    def __init__(self, instead: Callable[[], bool] = lambda: False) -> None:
        self._instead = instead

    def __enter__(self) -> None:
        self._ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._notice)

    def __exit__(self, *_: object) -> None:
        if self._ours and signal.getsignal(signal.SIGINT) == self._notice:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        _Seen.interrupts += 1
        if not self._instead():
            signal.default_int_handler(number, frame)
