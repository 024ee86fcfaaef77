"""What a decorator makes of a function of one message: a handler of batches."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar, cast, get_args

from onewrite.batch import workers
from onewrite.batch.lanes import Lanes
from onewrite.batch.report import EveryRecordFailed, Report, Result, line_that_raised, log_batch, logger
from onewrite.batch.source import Response, Source
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.flow import meter
from onewrite.identity import Identity, record_id
from onewrite.message import Message
from onewrite.metrics import Hook, Reported
from onewrite.outcome import Outcome

Returned: TypeAlias = Outcome | Sequence[Outcome] | None
R = TypeVar("R", bound=Returned | Awaitable[Returned])
_End: TypeAlias = Outcome | tuple[Outcome, ...] | BaseException | None  # of one record

_OUTCOMES: tuple[type, ...] = get_args(Outcome)


class Options(TypedDict, total=False):
    """The options that each decorator takes, with the same meaning as those of `Handler`."""

    max_workers: int
    margin: float
    raise_when_all_fail: bool
    on_outcome: Hook | None
    clock: Callable[[], float]
    monotonic: Callable[[], float]


class Handler(Generic[R]):
    """What Lambda calls with a batch.

    - `max_workers`: how many records of a standard queue, groups of a FIFO queue or partitions of Kafka are processed at a
      time, in threads, or in tasks if the function is `async`. A stream is processed one record after the other, whatever
      the number.
    - `margin`: no record is begun when fewer seconds than this are left to the invocation. After a slow record it grows to
      one and a half times the seconds that the record took. The function's timeout must be longer than that.
    - `raise_when_all_fail`: raise `EveryRecordFailed` instead of returning every record.
    - `on_outcome(message, outcome, seconds)`: called for each processed record, in the thread that processed it. The message
      is None if the identity failed. The outcome is what the function returned, or the exception that it raised.
    - `clock`, `monotonic`: give epoch seconds for the age of messages, and seconds for durations.
    """

    __name__: str

    def __init__(
        self,
        each: Callable[[Message], R],
        source: Source,
        identity: Identity,
        *,
        max_workers: int = 1,
        margin: float = 1.0,  # enough for a few requests and for sending the answer
        raise_when_all_fail: bool = False,
        on_outcome: Hook | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        _check(each, identity, max_workers, margin, on_outcome)
        self.each = each
        self.source = source
        self._identity = identity
        self._max_workers = max_workers
        self._margin = margin
        self._raise_when_all_fail = raise_when_all_fail
        self._on_outcome = on_outcome
        self._clock, self._monotonic = clock, monotonic
        self.is_async = _is_async(each)
        functools.update_wrapper(self, each, updated=())  # name and docstring only: its other attributes might hide ours
        self._name = getattr(each, "__qualname__", type(each).__name__)

    def __call__(self, event: Any, context: Any = None) -> Response:
        """Process a batch, and answer with the records that must come again."""
        report = self.run(event, context)
        if self._raise_when_all_fail and report.failed and not any(result.settled for result in report.results):
            raise EveryRecordFailed(
                f"{self._name}: none of {len(report.results) + len(report.returned)} records was settled."
            )
        return report.response

    def run(self, event: Any, context: Any = None) -> Report:
        """Process a batch, and return all that is known about it. Lambda's answer is `response`."""
        started, now = self._monotonic(), self._clock()
        records, of_each = self.source.open(event)
        lanes = Lanes(of_each)
        batch = workers.Batch(records, lanes, _time_left(context), self._margin)
        self._work(batch, min(self._max_workers, lanes.width))
        if (outside := meter.get()) is not None:
            outside.requests += batch.requests
        if batch.exit is not None:
            raise batch.exit
        report = self._report(records, lanes.remaining, batch, now, self._monotonic() - started)
        log_batch(self._name, self.source, report)
        return report

    def _work(self, batch: workers.Batch, count: int) -> None:
        if self.is_async:
            workers.in_tasks(batch, self.aprocess, count)
        elif count > 1:
            workers.in_threads(batch, self.process, count)
        else:
            workers.work(batch, self.process)

    def process(self, record: Any) -> Result:
        """Process one record outside a batch, and say what became of it. Only an exit of the program is raised."""
        started, message = self._monotonic(), None
        end: _End
        try:
            message = self._identify(record)
            end = _checked(self.each(message))
        except BaseException as error:
            if workers.is_exit(error):
                raise
            end = error
        return self._result(record, message, end, self._monotonic() - started)

    async def aprocess(self, record: Any) -> Result:
        """As `process`, for an asynchronous function."""
        started, message = self._monotonic(), None
        end: _End
        try:
            message = self._identify(record)
            returned: Any = self.each(message)
            end = _checked(await returned if inspect.isawaitable(returned) else returned)
        except BaseException as error:
            if workers.is_exit(error) or workers.is_cancelled(error):
                raise
            end = error
        return self._result(record, message, end, self._monotonic() - started)

    def _identify(self, record: Any) -> Message:
        if not isinstance(record, dict):
            raise InvalidMessage(f"The record is a {type(record).__name__}, not an object: nothing can be read from it.")
        message = cast("object", self._identity(cast("dict[str, Any]", record)))
        if isinstance(message, Message):
            return message
        _close_coroutine(message)
        raise TypeError(f"The identity returned a {type(message).__name__}, not a Message.")

    def _result(self, record: Any, message: Message | None, end: _End, seconds: float) -> Result:
        if self._on_outcome is not None:
            self._call_hook(self._on_outcome, message, end, seconds)
        if isinstance(end, BaseException):
            return Result(record, record_id(record), message, (), end, seconds)
        outcomes = end if isinstance(end, tuple) else () if end is None else (end,)
        return Result(record, record_id(record), message, outcomes, None, seconds)

    def _call_hook(self, hook: Hook, message: Message | None, end: Reported, seconds: float) -> None:
        """A record does not fail because the hook raised an exception."""
        try:
            hook(message, end, seconds)
        except BaseException as error:
            if workers.is_exit(error):
                raise
            logger.warning("%s: on_outcome raised %s at %s", self._name, type(error).__name__, line_that_raised(error))

    def _report(
        self, records: Sequence[Any], remaining: Sequence[int], batch: workers.Batch, now: float, seconds: float
    ) -> Report:
        sent = [moment for moment in map(self.source.sent, records) if not math.isnan(moment)]
        return Report(
            response=self.source.response(records[position] for position in remaining),
            results=tuple(batch.results[position] for position in sorted(batch.results)),
            returned=tuple(records[position] for position in remaining if position not in batch.results),
            oldest_seconds=max(0.0, now - min(sent)) if sent else None,
            requests=batch.requests,
            seconds=seconds,
        )


def _checked(returned: object) -> Outcome | tuple[Outcome, ...] | None:
    """What the function returned, if it may return that; a sequence becomes a tuple.

    An empty sequence settles the record, like None: the message changed no entity.
    """
    if returned is None or isinstance(returned, _OUTCOMES):
        return cast("Outcome | None", returned)
    kind = f"a {type(returned).__name__}"
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes | bytearray):
        raise _wrong_return(kind, returned)
    outcomes = tuple(cast("Sequence[object]", returned))
    others = [outcome for outcome in outcomes if not isinstance(outcome, _OUTCOMES)]
    if others:
        raise _wrong_return(f"{kind} with a {type(others[0]).__name__}", *others)
    return cast("tuple[Outcome, ...]", outcomes)


def _wrong_return(what: str, *values: object) -> TypeError:
    for value in values:
        _close_coroutine(value)
    remedy = ", and declare an asynchronous function with `async def`" if inspect.isawaitable(values[0]) else ""
    return TypeError(f"The function returned {what}: return an Outcome, a sequence of them, or None{remedy}.")


def _close_coroutine(value: object) -> None:
    if inspect.iscoroutine(value):
        value.close()  # Python warns of a coroutine that was neither awaited nor closed.


def _is_async(each: Any) -> bool:
    """Whether a call returns an awaitable, also if decorators or partials are around the function."""
    while each is not None:
        if inspect.iscoroutinefunction(each) or inspect.iscoroutinefunction(type(each).__call__):
            return True
        each = each.func if isinstance(each, functools.partial) else getattr(each, "__wrapped__", None)
    return False


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
    if on_outcome is not None and (not callable(on_outcome) or _is_async(on_outcome)):
        raise ConfigurationError(f"on_outcome={on_outcome!r}: give a plain function of (message, outcome, seconds).")
