"""The workers of a batch. The same loop runs in the calling thread, in several threads, or in tasks.

A worker takes a record, has it processed, says how it ended, and takes the next one. With `group_by` it takes a group instead.
`order` decides which it may take. This module adds the lock, the deadline, and what happens when the program is to end.

The end of the program ends the batch: a real SIGINT and, for an asynchronous function, the cancellation of the whole batch. Then
nothing more is taken, what is under way ends, and the exception is raised from the handler.
"""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from traceback import walk_tb
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from onewrite.batch.order import Lanes, SecondTries, Unit
from onewrite.batch.report import Result
from onewrite.core.flow import Meter, meter
from onewrite.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

# What is done with what a worker has taken, and the results. It raises exceptions that end the program, and no others.
Process: TypeAlias = Callable[[int], Mapping[int, Result]]
AsyncProcess: TypeAlias = Callable[[int], Awaitable[Mapping[int, Result]]]

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
        _this_thread.task = asyncio.current_task()
        await asyncio.gather(*(awork(batch, process) for _ in range(workers)))

    runner = runner_of_this_thread()
    interrupts_before = interrupts()
    try:
        _run(runner, all_workers())
    except BaseException:
        if interrupts() == interrupts_before:
            raise
    if interrupts() > interrupts_before:
        raise KeyboardInterrupt


def runner_of_this_thread() -> asyncio.Runner:
    """The same at each call, so what was made in its event loop can be used again."""
    import asyncio  # noqa: PLC0415  # as in in_tasks

    with suppress(RuntimeError):  # there is none, as it should be
        asyncio.get_running_loop()
        raise ConfigurationError(
            "The handler of an async function or of an AsyncRelay runs its own event loop, and one is running here already: "
            "call it with `await asyncio.to_thread(handler, event, context)`, or await handler.each(message)."
        )
    if _this_thread.runner is None:
        _this_thread.runner = asyncio.Runner()
        # When the thread ends its loop is collected, and asyncio warns of a loop that is still open then.
        weakref.finalize(_this_thread.runner, _this_thread.runner.get_loop().close)
    return _this_thread.runner


def _run(runner: asyncio.Runner, workers: Coroutine[Any, Any, None]) -> None:
    """Run them to their end, though the user's code stops the event loop, or a task raises SystemExit, with which asyncio leaves it.

    The record that awaits such a task has failed, and the others go on.
    """

    async def until_done(batch: asyncio.Task[Any]) -> None:
        await batch

    exit_error: BaseException | None = None
    former_batch = _this_thread.task
    try:
        runner.run(workers, context=copy_context())
    except (SystemExit, KeyboardInterrupt, RuntimeError) as error:  # the last where the loop was stopped
        if _this_thread.task is former_batch:  # They have not begun.
            raise
        exit_error = error
    batch = cast("asyncio.Task[Any]", _this_thread.task)
    while exit_error is not None and not batch.done():
        if batch.cancelling():  # A second Ctrl-C does not wait for what holds on.
            raise exit_error
        with suppress(SystemExit, KeyboardInterrupt, RuntimeError):
            runner.run(until_done(batch))


def cancel_batch() -> bool:
    """Cancel the tasks upon the first Ctrl-C, as asyncio.Runner does. False: there are none, or it was done before."""
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
    """Whether the task that awaits this is being cancelled, as by a time limit around it."""
    import asyncio  # noqa: PLC0415  # as in in_tasks

    with suppress(RuntimeError):  # there is no event loop
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return False


async def take_back_cancellation(is_cancelled: Callable[[], bool]) -> None:
    """What the function's own code has asked for must not arrive in its next call, which is innocent."""
    import asyncio  # noqa: PLC0415  # as in in_tasks

    while task_is_cancelled() and not is_cancelled():
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
        cast("asyncio.Task[Any]", asyncio.current_task()).uncancel()


# --- the end of the program ------------------------------------------------------------------------------------------
#
# Tells an exit of the program from an exception that the code of a record has raised.
#
# SystemExit or KeyboardInterrupt raised by a record's code fails that record. If it ended the batch, the records before it would
# be done again and those after it never begun, until all of them are in the dead-letter queue. Only a real signal ends the batch.


class _Interrupts:
    count = 0  # how often this process has been interrupted while a batch was under way


def interrupts() -> int:
    return _Interrupts.count


def is_interrupt(error: BaseException, interrupts_before: int) -> bool:
    """Whether the error comes from a real SIGINT, of which there had been so many before. A group is if a member is."""
    if isinstance(error, BaseExceptionGroup):
        return any(
            is_interrupt(member, interrupts_before) for member in cast("BaseExceptionGroup[BaseException]", error).exceptions
        )
    return isinstance(error, KeyboardInterrupt) and _Interrupts.count > interrupts_before


def is_from_signal(error: SystemExit) -> bool:
    """Whether the program's own handler of a signal has raised it, as far as that can be told."""
    handlers = [handler for handler in map(signal.getsignal, signal.valid_signals()) if callable(handler)]
    codes = [getattr(getattr(handler, "func", handler), "__code__", None) for handler in handlers]
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


class NoticedInterrupts:
    """Around a block in which a real SIGINT is counted before it raises KeyboardInterrupt, as it does by default.

    `instead` may do something else about it, and returns whether it has. If the program handles SIGINT itself, or this is no
    main thread, nothing is changed. asyncio.Runner does the same.
    """

    __slots__ = ("_instead", "_is_ours")

    def __init__(self, instead: Callable[[], bool] | None = None) -> None:
        self._instead = instead

    def __enter__(self) -> None:
        self._is_ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._is_ours:
            signal.signal(signal.SIGINT, self._notice)

    def __exit__(self, *_: object) -> None:
        if self._is_ours and signal.getsignal(signal.SIGINT) == self._notice:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        _Interrupts.count += 1
        if self._instead is None or not self._instead():
            signal.default_int_handler(number, frame)
