"""What a decorator makes of a function of one message: a handler of batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from inspect import isawaitable
from itertools import filterfalse, islice
from typing import Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar, cast

from onewrite.batch import workers
from onewrite.batch.function import R, WrongReturn, checked, close_coroutine, is_async
from onewrite.batch.lanes import Lanes, ordered
from onewrite.batch.report import (
    MOST_FAILURES,
    EveryRecordFailed,
    Failure,
    NotSettled,
    Report,
    Result,
    as_returned,
    failure_of,
    is_settled,
    line_in,
    log_batch,
    logger,
)
from onewrite.batch.source import Response, Source
from onewrite.batch.workers import NoticedInterrupts, interrupts, is_interrupt
from onewrite.clock import checked_clock
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.flow import meter
from onewrite.identity import Identity, Skip, record_id
from onewrite.message import Message
from onewrite.metrics import Hook
from onewrite.outcome import Answer

_Known: TypeAlias = tuple[Message, ...] | Skip | BaseException
"""What the identity said of a record."""
_End: TypeAlias = tuple[Answer, ...] | BaseException
"""How a call of the function ended."""
_Steps: TypeAlias = Generator[Message, _End | None, Result]
"""Yields the messages of a record, is sent how the call with each has ended, and returns what became of the record."""
T = TypeVar("T")

_ASK_FOR_TIME_AFTER = (
    0.1  # seconds of reading messages ahead; an identity that only parses a body takes far less for a batch
)


class Delivery(Protocol):
    """Whoever has a record processed, and must be able to name its messages meanwhile."""

    messages: tuple[Message, ...]


class Options(TypedDict, total=False):
    """The options that each decorator takes, with the same meaning as those of `Handler`."""

    max_workers: int
    margin: float
    raise_when_all_fail: bool
    on_outcome: Hook | None
    log_exceptions: bool
    clock: Callable[[], float]


class Handler(Generic[R]):
    """What Lambda calls with a batch.

    - `max_workers`: how many records of a standard queue, groups of a FIFO queue or partitions of Kafka are processed at a
      time, in threads, or in tasks if the function is `async`. A stream is processed one record after the other, whatever
      the number.
    - `margin`: no record is begun when fewer seconds than this are left to the invocation. After a slow record it grows to
      one and a half times the seconds that the record took. The function's timeout must be longer than that.
    - `raise_when_all_fail`: raise `EveryRecordFailed` instead of returning every record.
    - `on_outcome(message, outcome, seconds)`: called each time that a message was processed, in the thread that did it. The
      message is None if the identity failed or skipped the record. The outcome is what the function returned, or a `Skip`, or
      the exception that was raised.
    - `log_exceptions`: log the traceback of each failure too. It may quote a body.
    - `clock`: gives epoch seconds, for the age of messages and for the time until a step's lease is over.
    """

    _checked: Callable[[object, Any], object] = staticmethod(checked)  # what a call has returned, and what it was given

    def __init__(
        self,
        each: Callable[..., R],
        source: Source,
        identity: Identity,
        *,
        max_workers: int = 1,
        margin: float = 1.0,  # enough for a few requests and for sending the answer
        raise_when_all_fail: bool = False,
        on_outcome: Hook | None = None,
        log_exceptions: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check(each, identity, max_workers, margin, on_outcome)
        self.each, self.source, self._called = each, source, each
        self._identity = identity
        self._max_workers = max_workers
        self._margin = margin
        self._raise_when_all_fail = raise_when_all_fail
        self._on_outcome = on_outcome
        self._log_exceptions = log_exceptions
        self.clock, self._monotonic = checked_clock(clock), time.monotonic
        self.is_async = is_async(each)
        self.name = getattr(each, "__qualname__", type(each).__name__)

    def __call__(self, event: Any, context: Any = None) -> Response:
        """Process a batch, and answer with the records that must come again; or raise `NotSettled` where nobody reads the answer."""
        report = self.run(event, context)
        if (report.failed or report.returned) and not self.source.reads_answer(event):
            raise self._not_settled(report)
        if self._raise_when_all_fail and report.failed and not report.settled:
            raise EveryRecordFailed(f"{self.name}: none of {report.size} records was settled.")
        return report.response

    def run(self, event: Any, context: Any = None) -> Report:
        """Process a batch, and return all that is known about it. Lambda's answer is `response`."""
        started, now = self._monotonic(), self.clock()
        records, of_each = self.source.open(event)
        batch, remaining = self._work_through(records, of_each, _time_left(context))
        if (outside := meter.get()) is not None:
            outside.requests += batch.requests
        if batch.exit is not None:
            raise batch.exit
        report = self._report(records, remaining, batch, now, self._monotonic() - started)
        log_batch(self.name, self.source, report, [*map(self.failure, islice(report.failed, MOST_FAILURES))])
        return report

    def process(self, record: Any, delivery: Delivery | None = None) -> Result:
        """Process one record outside a batch, and say what became of it. Only a real SIGINT is raised from here.

        `delivery` is told which messages are in the record before they are processed.
        """
        with NoticedInterrupts():
            return self._run(self._steps(record, None, delivery))

    async def aprocess(self, record: Any, delivery: Delivery | None = None) -> Result:
        """As `process`, for an asynchronous function. Only the cancellation of the task that awaits this is raised."""
        return await self._arun(self._steps(record, None, delivery), workers.task_is_cancelled)

    def failure(self, result: Result) -> Failure:
        """What is said of a result that is not settled: as a line of a log by `str()`, or as JSON."""
        attempt = self.source.attempt(result.record)
        return failure_of(result, self.each, attempt, with_traceback=self._log_exceptions)

    def _work_through(
        self, records: Sequence[Any], of_each: Sequence[Hashable], left: Callable[[], float] | None
    ) -> tuple[workers.Shared[Any], Sequence[int]]:
        """What became of the records, which have these lanes, and which of them come again."""
        known: list[_Known | None] = [None] * len(records)
        lanes, in_order = Lanes(of_each), of_each.count(None) < len(of_each)
        if not in_order and len(records) > 1:
            known[:] = self._read_ahead(records, left, self._identified)
            lanes = Lanes(*ordered([_only_message(each) for each in known]), strict=False)
        batch = workers.Batch(lanes, left, self._margin, tries_again=not in_order and len(records) > 1)

        def steps(position: int) -> _Steps:
            first, known[position] = known[position], None  # Another try reads the message anew: the function may change it.
            return self._steps(records[position], first)

        self._work(batch, steps, 1 if self._max_workers == 1 else min(self._max_workers, lanes.width))
        return batch, lanes.remaining

    def _read_ahead(
        self, records: Sequence[Any], left: Callable[[], float] | None, read: Callable[[Any], T]
    ) -> Iterator[T | None]:
        """What is read from all records, to know their order. Those for which there is no time will not be taken either."""
        asked, in_time = self._monotonic(), True
        with NoticedInterrupts():
            for record in records:
                yield read(record) if in_time else None
                if left is not None and self._monotonic() - asked > _ASK_FOR_TIME_AFTER:
                    asked, in_time = self._monotonic(), in_time and left() >= self._margin

    def _work(self, batch: workers.Shared[T], steps: Callable[[int], Generator[Any, Any, T]], count: int) -> None:
        """With so many workers. `steps` are those of what a worker has taken."""

        def process(taken: int) -> T:
            return self._run(steps(taken))

        async def aprocess(taken: int) -> T:
            return await self._arun(steps(taken), workers.batch_is_cancelled)

        if self.is_async:
            workers.in_tasks(batch, aprocess, count)
        elif count > 1:
            workers.in_threads(batch, process, count)
        else:
            with NoticedInterrupts():
                workers.work(batch, process)

    def _run(self, steps: Generator[Any, Any, T]) -> T:
        end: Any = None
        try:
            while True:
                end = self._call(steps.send(end))
        except StopIteration as done:
            return cast("T", done.value)

    async def _arun(self, steps: Generator[Any, Any, T], is_cancelled: Callable[[], bool]) -> T:
        end: Any = None
        try:
            while True:
                end = await self._acall(steps.send(end), is_cancelled)
        except StopIteration as done:
            return cast("T", done.value)

    def _steps(self, record: Any, known: _Known | None, delivery: Delivery | None = None) -> _Steps:
        """The messages of a record in turn, until one is not settled: what comes after it must not overtake it."""
        started = self._monotonic()
        found = self._identified(record) if known is None else known
        message, outcomes, error = None, tuple[Answer, ...](), None
        if delivery is not None and isinstance(found, tuple):
            delivery.messages = found
        for message in found if isinstance(found, tuple) else ():
            began = self._monotonic()
            end = cast("_End", (yield message))
            if self._on_outcome is not None:
                self._tell(message, end, self._monotonic() - began)
            if isinstance(end, BaseException):
                error = end
                break
            outcomes += end
            if not all(map(is_settled, end)):
                break
        seconds = self._monotonic() - started
        if not isinstance(found, tuple):
            if self._on_outcome is not None:
                self._tell(None, found, seconds)
            error = found if isinstance(found, BaseException) else None
        return Result(record, record_id(record), message, outcomes, error, seconds, skipped=isinstance(found, Skip))

    def _identified(self, record: Any) -> _Known:
        before = interrupts()
        try:
            if not isinstance(record, dict):
                kind = type(record).__name__
                raise InvalidMessage(f"The record is a {kind}, not an object: nothing can be read from it.")  # noqa: TRY301  # it is known as one that failed
            content = cast("dict[str, Any]", record)
            if (screened := self.source.screen(content)) is not None:
                return screened
            found = cast("object", self._identity(content))
            return (found,) if isinstance(found, Message) else _several(found)
        except BaseException as error:
            if is_interrupt(error, before):
                raise
            return error

    def _call(self, given: Any) -> Any:
        before = interrupts()
        try:
            return self._checked(self._called(given), given)
        except BaseException as error:
            if is_interrupt(error, before):
                raise
            return error

    async def _acall(self, given: Any, is_cancelled: Callable[[], bool]) -> Any:
        try:
            returned: Any = self._called(given)
            return self._checked(await returned if isawaitable(returned) else returned, given)
        except BaseException as error:
            # A coroutine that is being closed is given GeneratorExit, and must not go on.
            if isinstance(error, GeneratorExit) or (not isinstance(error, Exception) and is_cancelled()):
                raise
            return error

    def _tell(self, message: Message | None, end: _End | Skip, seconds: float) -> None:
        """Call the hook. A record does not fail because the hook raised an exception."""
        hook, before = cast("Hook", self._on_outcome), interrupts()
        try:
            hook(message, end if isinstance(end, Skip) else as_returned(end), seconds)
        except BaseException as error:
            if is_interrupt(error, before):
                raise
            where = line_in(error, hook)
            logger.warning("%s: on_outcome raised %s at %s", self.name, type(error).__name__, where)

    def _not_settled(self, report: Report) -> NotSettled:
        """What Lambda logs of the invocation. An exception of the function is its cause only where exceptions are logged."""
        count = len(report.failed) + len(report.returned)
        first = f" First {self.failure(report.failed[0])}." if report.failed else ""
        raised = NotSettled(
            f"{self.name}: {count} of {report.size} records must come again, which {self.source.name} learns by this error.{first}"
        )
        raised.__cause__ = report.failed[0].error if report.failed and self._log_exceptions else None
        return raised

    def _report(
        self, records: Sequence[Any], remaining: Sequence[int], batch: workers.Shared[Any], now: float, seconds: float
    ) -> Report:
        sent = [*filterfalse(math.isnan, map(self.source.sent, records))]
        return Report(
            response=self.source.response(map(records.__getitem__, remaining)),
            results=tuple(map(batch.results.__getitem__, sorted(batch.results))),
            returned=tuple(map(records.__getitem__, filterfalse(batch.results.__contains__, remaining))),
            oldest_seconds=max(0.0, now - min(sent)) if sent else None,
            requests=batch.requests,
            seconds=seconds,
        )


def _several(found: object) -> tuple[Message, ...] | Skip:
    """What an identity has returned that is not one message."""
    if isinstance(found, Skip):
        return found
    if isinstance(found, list | tuple):
        several = tuple(cast("Sequence[object]", found))
        if all(isinstance(each, Message) for each in several):
            return cast("tuple[Message, ...]", several) or Skip("no messages")
    close_coroutine(cast("object", found))
    raise WrongReturn(
        f"The identity returned a {type(cast('object', found)).__name__}, not a Message, several of them, or a Skip."
    )


def _only_message(known: _Known | None) -> Message | None:
    return known[0] if isinstance(known, tuple) and len(known) == 1 else None


def _time_left(context: Any) -> Callable[[], float] | None:
    """The seconds that are left, as a function; None if the context has no deadline, as in a test."""
    ask = getattr(context, "get_remaining_time_in_millis", None)
    if not callable(ask):
        return None

    def left() -> float:
        milliseconds = ask()
        return milliseconds / 1000 if isinstance(milliseconds, int | float) else math.inf  # A mock returns another mock.

    return left


def _check(each: object, identity: object, max_workers: object, margin: object, on_outcome: object) -> None:
    if not callable(each):
        raise ConfigurationError(f"A {type(each).__name__} is no function of a message: decorate a function.")
    if not callable(identity):
        raise ConfigurationError(
            f"identity is a {type(identity).__name__}: give one of onewrite.identity, or your own function."
        )
    if type(max_workers) is not int or max_workers < 1:
        raise ConfigurationError(f"max_workers={max_workers!r}: give an int, 1 or more.")
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 <= margin < math.inf:
        raise ConfigurationError(f"margin={margin!r}: give a number of seconds, 0 or more.")
    if on_outcome is not None and (not callable(on_outcome) or is_async(on_outcome)):
        raise ConfigurationError(f"on_outcome={on_outcome!r}: give a plain function of (message, outcome, seconds).")


def as_function(handler: Handler[Any]) -> Any:
    """The handler as a plain function of (event, context), with the name and the docstring of the decorated one.

    Lambda and the decorators around it know such: those of Powertools ask `inspect.isfunction`, and read the name and the signature.
    """

    def function(event: Any, context: Any = None) -> Response:
        return handler(event, context)

    function.__doc__ = handler.each.__doc__
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(function, name, getattr(handler.each, name, None) or getattr(type(handler.each), name))
    # No __wrapped__: the signature is the one of a Lambda handler, and not that of the decorated function.
    for name in ("each", "source", "run", "process", "aprocess"):
        setattr(function, name, getattr(handler, name))
    function.handler = handler  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]  # a function has any attribute
    return function


def handler_of(function: object) -> Handler[Any] | None:
    """The handler that a decorated function has, also below decorators that use functools.wraps. None: it has none."""
    found = cast("object", function if isinstance(function, Handler) else getattr(function, "handler", None))
    return cast("Handler[Any]", found) if isinstance(found, Handler) else None
