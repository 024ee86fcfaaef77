"""The handler of batches. Without `group_by`, each message is a group of its own.

A record passes through `run`, which opens the event; `read`, which finds its messages; a unit of `order`, which a worker
takes; `_steps`, which calls the function; and the `Result` in the report.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, filterfalse
from logging import WARNING
from typing import Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar, cast

from onewrite.batch import workers
from onewrite.batch.function import (
    End,
    R,
    ReturnValue,
    WrongReturn,
    check_group_return,
    check_return,
    close_coroutine,
    is_async,
    short_name,
    with_unreturned,
)
from onewrite.batch.order import Lanes, RecordState, Turn, Unit, consecutive_runs, groups, lanes_and_order, runs
from onewrite.batch.report import (
    EveryRecordFailed,
    Failure,
    NotSettled,
    Report,
    Result,
    as_returned,
    describe_failure,
    line_in,
    log_batch,
)
from onewrite.batch.source import Response, Source
from onewrite.batch.workers import Deadline, is_inner_cancellation
from onewrite.core.clock import checked_clock
from onewrite.core.event import copy_value
from onewrite.core.flow import Meter, meter
from onewrite.core.log import log
from onewrite.core.unreturned import FunctionCall
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.identity import Identity, Skip
from onewrite.identity.record import is_change
from onewrite.message import Message
from onewrite.metrics import Hook, Reported

GroupBy: TypeAlias = Callable[[Message], Hashable]
TimeLeft: TypeAlias = Callable[[], float] | None
"""A function that returns the seconds left, or None if there is no deadline."""
_CallEnd: TypeAlias = tuple[End, ...] | BaseException
"""The outcomes or the error of each message of a call, or the error of the call."""
_Steps: TypeAlias = Generator[tuple[Message, ...], _CallEnd, dict[int, Result]]
"""A generator that yields the messages of each call, receives the call's result, and returns the results by record position.
"""
R_co = TypeVar("R_co", bound=ReturnValue | Awaitable[ReturnValue], covariant=True)
M_contra = TypeVar("M_contra", contravariant=True)
C = TypeVar("C", bound=Callable[..., Any])

_NO_DEADLINE = Deadline(None, 0.0)
_READ_AHEAD_SECONDS = 0.1  # seconds of reading ahead; an identity that only parses bodies needs far less for a batch


@dataclass(slots=True)
class _Lane:
    """Records that are processed in sequence, and their results by position."""

    states: list[RecordState]
    results: dict[int, Result] = field(default_factory=dict[int, Result])

    @property
    def in_order(self) -> list[Result]:
        return [self.results[position] for position in sorted(self.results)]


class HandlerOptions(TypedDict, total=False):
    """The options of every decorator. They mean the same as those of `Handler`."""

    on_outcome: Hook | None
    log_exceptions: bool
    clock: Callable[[], float]


class Options(HandlerOptions, total=False):
    """The options of every decorator for Lambda."""

    max_workers: int
    margin: float
    raise_when_all_fail: bool


class Handler(Generic[R]):
    """A handler of batches, called by Lambda.

    - `group_by(message)`: returns the message's group, a hashable value. The function then takes a list of messages of one
      group. It returns a sequence with one Outcome for each, in the same order, or None. If it raises, it is called again
      with each message alone. If `group_by` raises, the record fails.
    - `max_workers`: the number of records of a standard queue, groups of a FIFO queue, or partitions of Kafka that are
      processed at once: in threads, or in tasks if the function is `async`. With `group_by` it counts groups. A stream is
      always processed record by record.
    - `margin`: no call begins with fewer seconds than this left in the invocation. After a slow call it grows to 1.5 times
      the seconds that the call took. The function's timeout must be longer.
    - `raise_when_all_fail`: raise `EveryRecordFailed` instead of returning every record.
    - `on_outcome(message, outcome, seconds)`: called after each message, in the thread that processed it. The message is
      None if the identity failed or skipped the record. The outcome is the function's result, including unsettled outcomes
      that it didn't return; or a `Skip`; or the exception that was raised. The messages of one call share its seconds.
    - `log_exceptions`: log the traceback of each failure too. It can quote a body.
    - `clock`: returns epoch seconds, for the age of messages and the time until a step's lease ends.
    """

    def __init__(
        self,
        each: Callable[..., R],
        source: Source,
        identity: Identity,
        *,
        group_by: GroupBy | None = None,
        max_workers: int = 1,
        margin: float = 1.0,  # enough for a few requests and for sending the response
        raise_when_all_fail: bool = False,
        on_outcome: Hook | None = None,
        log_exceptions: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not callable(each):
            raise ConfigurationError(
                f"A handler needs a function of a message, got a {type(each).__name__}. Decorate a function."
            )
        if not callable(identity):
            raise ConfigurationError(
                f"identity: expected a function of a record, got a {type(identity).__name__}. Pass one of "
                "onewrite.identity, for example json_body(id='id'), or your own function."
            )
        if group_by is not None and (not callable(group_by) or is_async(group_by)):
            raise ConfigurationError(
                f"group_by={group_by!r}: expected a plain function of a Message, for example lambda message: "
                "message.body['orderId']."
            )
        if type(max_workers) is not int or max_workers < 1:
            raise ConfigurationError(f"max_workers={max_workers!r}: expected an int of 1 or more.")
        if isinstance(margin, bool) or not isinstance(cast("object", margin), int | float) or not 0 <= margin < math.inf:
            raise ConfigurationError(f"margin={margin!r}: expected a number of seconds, 0 or more.")
        check_hook(on_outcome)
        self.each, self.source = each, source
        self._identity = identity
        self._group_by = group_by
        self._check_return = check_return if group_by is None else check_group_return
        self._max_workers = max_workers
        self._margin = margin
        self._raise_when_all_fail = raise_when_all_fail
        self._on_outcome = on_outcome
        self._log_exceptions = log_exceptions
        self.clock, self._monotonic = checked_clock(clock), time.monotonic
        self.is_async = is_async(each)
        self.name = short_name(getattr(each, "__qualname__", type(each).__name__))

    @property
    def has_groups(self) -> bool:
        """Whether the function takes several messages at once."""
        return self._group_by is not None

    def __call__(self, event: Any, context: Any = None) -> Response:
        """Process a batch and return the records to redeliver. If the source reads no response, raise `NotSettled` instead."""
        report = self.run(event, context)
        if (report.failed or report.returned) and not self.source.reads_answer(event):
            # Lambda logs this exception. Its cause can quote content, so it is attached only if exceptions are logged.
            count = len(report.failed) + len(report.returned)
            first_failure = ""
            if report.failed:
                first_failure = f" First failure: {replace(self.failure(report.failed[0]), traceback=None)}."
            raise NotSettled(
                f"{self.name}: {count} of {report.size} records must be redelivered. This exception is expected: it is how "
                f"a handler of {self.source.name} requests redelivery.{first_failure}"
            ) from (report.failed[0].error if report.failed and self._log_exceptions else None)
        if self._raise_when_all_fail and report.failed and not report.settled:
            raise EveryRecordFailed(
                f"{self.name}: none of {report.size} records was settled. The log line of this batch has the failures."
            )
        return report.response

    def run(self, event: Any, context: Any = None) -> Report:
        """Process a batch and return a full report. Lambda's response is `response`."""
        start, now = self._monotonic(), self.clock()
        records, lanes = self.source.open(event)
        batch = self._work_through(records, lanes, _time_left(context))
        if (outside := meter.get()) is not None:
            outside.requests += batch.requests
        if batch.exit is not None:
            raise batch.exit
        sent_times = [*filterfalse(math.isnan, map(self.source.sent_at, records))]
        unsettled_positions = [*filterfalse(batch.settled_positions.__contains__, range(len(records)))]
        report = Report(
            response=self.source.response(map(records.__getitem__, unsettled_positions)),
            results=tuple([batch.results[at] for at in sorted(batch.results)]),
            returned=tuple([records[at] for at in unsettled_positions if at not in batch.results]),
            oldest_seconds=max(0.0, now - min(sent_times)) if sent_times else None,
            requests=batch.requests,
            seconds=self._monotonic() - start,
        )
        log_batch(self.name, self.source, report, self.failure)
        return report

    def process(self, record: Any) -> Result:
        """Process one record outside a batch, log the result, and return it. Only exits are raised, such as
        KeyboardInterrupt.

        An async function runs in an event loop of this thread. If a loop is already running, await `aprocess`.
        """
        return self.process_in_order([record])[0]

    async def aprocess(self, record: Any) -> Result:
        """Process one record as `process` does, in the running event loop. Cancelling the awaiting task raises
        CancelledError.
        """
        return (await self.aprocess_in_order([record]))[0]

    def process_in_order(self, records: Iterable[Any]) -> list[Result]:
        """Process the records of one lane, such as a partition, in order. Return the result of each, up to the first that
        isn't settled. Later records weren't begun, or must be processed again.
        """
        if self.is_async:
            return workers.run_in_loop(lambda: self.aprocess_in_order(records))
        with self._logging(records) as lane:
            lane.results = self._run(self._steps(self._turns(lane.states), _NO_DEADLINE, in_order=True))
        return lane.in_order

    async def aprocess_in_order(self, records: Iterable[Any]) -> list[Result]:
        """Process records as `process_in_order` does, in the running event loop."""
        with self._logging(records) as lane:
            lane.results = await self._arun(self._steps(self._turns(lane.states), _NO_DEADLINE, in_order=True))
        return lane.in_order

    @contextmanager
    def _logging(self, records: Iterable[Any]) -> Generator[_Lane, None, None]:
        """Yield the records of one lane, already read, and log one line about them at the end."""
        start = self._monotonic()
        outside, counter = meter.get(), Meter()
        lane = _Lane([self.read(record, position) for position, record in enumerate(records)])
        token = meter.set(counter)
        try:
            yield lane
        finally:
            meter.reset(token)
            if outside is not None:
                outside.requests += counter.requests
        report = Report(
            response={"batchItemFailures": []},
            results=tuple(lane.in_order),
            returned=tuple([state.record for state in lane.states[len(lane.results) :]]),
            oldest_seconds=None,
            requests=counter.requests,
            seconds=self._monotonic() - start,
        )
        log_batch(self.name, self.source, report, self.failure)

    def process_together(
        self, records: Sequence[RecordState], *, in_order: bool, time_left: TimeLeft
    ) -> list[Result | None]:
        """Process records outside a batch and return each result, or None for a record that wasn't processed.

        `in_order`: the source keeps these records in order, so no record after a failure is processed.
        """
        results = self._run(self._steps_together(records, time_left, in_order=in_order))
        return [results.get(position) for position in range(len(records))]

    async def aprocess_together(
        self, records: Sequence[RecordState], *, in_order: bool, time_left: TimeLeft
    ) -> list[Result | None]:
        """Process records as `process_together` does, for an async function."""
        results = await self._arun(self._steps_together(records, time_left, in_order=in_order))
        return [results.get(position) for position in range(len(records))]

    def failure(self, result: Result) -> Failure:
        """Return a description of an unsettled result, for a log line by `str()` or as JSON."""
        attempt = self.source.attempt(result.record)
        return describe_failure(result, self.each, attempt, with_traceback=self._log_exceptions)

    def read(self, record: Any, position: int = 0) -> RecordState:
        """Return a record with its messages and their groups. An error of the identity or of `group_by` fails the record."""
        began = self._monotonic()
        messages: tuple[Message, ...] = ()
        keys: tuple[Hashable, ...] = ()
        refusal: Skip | Exception | None = None
        try:
            content = record
            if isinstance(record, dict):
                content = cast("dict[str, Any]", record)
                body = content.get("body")
                has_mutable_body = body is not None or (self._group_by is not None and is_change(content))
                if has_mutable_body and type(body) not in (str, bytes):
                    content = copy_value(content)  # the function could change the body, and a retry reads it again
            elif not self.source.takes_any_object:
                kind = type(record).__name__
                raise InvalidMessage(f"expected a dict as the record, got a {kind}, which has no key.")  # noqa: TRY301  # handled below like the identity's own errors
            answer: Any = self.source.screen(record) or self._identity(content)  # pyright: ignore[reportUnknownArgumentType]  # a record can have any fields
            if isinstance(answer, Message):
                messages = (answer,)
            elif isinstance(answer, list | tuple) and all(
                isinstance(member, Message) for member in cast("Sequence[object]", answer)
            ):
                messages = tuple(cast("Sequence[Message]", answer))
                refusal = None if messages else Skip("no messages")
            elif isinstance(answer, Skip):
                refusal = answer
            else:
                close_coroutine(cast("object", answer))
                kind = type(cast("object", answer)).__name__
                raise WrongReturn(  # noqa: TRY301  # handled below like the identity's own errors
                    f"The identity returned a {kind}. Return a Message, a sequence of them, or a Skip."
                )
            keys = messages if self._group_by is None else tuple([_group(self._group_by, message) for message in messages])
        except Exception as error:
            messages, refusal = (), error
        return RecordState(record, position, messages, refusal, keys, self.clock, self._monotonic() - began)

    def _work_through(self, records: Sequence[Any], lanes: Sequence[Hashable], time_left: TimeLeft) -> workers.Batch:
        """Process the records in these lanes. With `group_by`, workers take units, and take single records only for
        retries.
        """
        count, in_order = len(records), lanes.count(None) < len(lanes)
        deadline = Deadline(time_left, self._margin)
        states_ahead: list[RecordState | None] = [None] * count
        units: list[Unit] = []

        def steps(number: int) -> _Steps:
            if number >= count:
                return self._steps([units[number - count].turns], deadline, in_order=in_order)
            # A retry reads the messages again, because the function can change them.
            state, states_ahead[number] = states_ahead[number], None
            return self._steps(self._turns([state or self.read(records[number], number)]), deadline, in_order=True)

        def process(number: int) -> dict[int, Result]:
            return self._run(steps(number))

        order: Sequence[int] = range(count)
        if self._group_by is not None:
            self._read_ahead(records, states_ahead, time_left)
            states = [state for state in states_ahead if state is not None]
            units = runs(states, lanes) if in_order else groups(states)
            lanes_by_position = {position: unit.lane for unit in units for position in unit.positions}
            lanes = [lanes_by_position.get(position) for position in order] + [unit.lane for unit in units]
            order = range(count, len(lanes))
            states_ahead = [None] * count
        elif not in_order and count > 1:
            self._read_ahead(records, states_ahead, time_left)
            lanes, order = lanes_and_order(
                [state.messages[0] if state and len(state.messages) == 1 else None for state in states_ahead]
            )
        queue = Lanes(lanes, order, strict=in_order)
        tries_again = not in_order and (count > 1 or self._group_by is not None)  # a single record can have several groups
        batch = workers.Batch(queue, deadline, count, units, tries_again=tries_again)
        at_a_time = 1 if self._max_workers == 1 else min(self._max_workers, queue.width)
        if self.is_async:
            workers.in_tasks(batch, lambda number: self._arun(steps(number)), at_a_time)
        elif at_a_time > 1:
            workers.in_threads(batch, process, at_a_time)
        else:
            workers.work(batch, process)
        return batch

    def _read_ahead(self, records: Sequence[Any], states_ahead: list[RecordState | None], time_left: TimeLeft) -> None:
        """Read all records to find their order. Records that are left unread for lack of time won't be processed either."""
        since = self._monotonic()
        for position, record in enumerate(records):
            state = states_ahead[position] = self.read(record, position)
            state.seconds = 0.0  # the time of reading ahead says nothing about the time that the next worker needs
            if time_left is not None and self._monotonic() - since > _READ_AHEAD_SECONDS:
                if time_left() < self._margin:
                    return
                since = self._monotonic()

    def _steps_together(self, records: Sequence[RecordState], time_left: TimeLeft, *, in_order: bool) -> _Steps:
        """Process records that were read one by one, outside a batch. The results are by their positions in this list."""
        for position, state in enumerate(records):
            state.position = position  # each was read as the only one, at position 0
        units = self._turns(records) if in_order or self._group_by is None else [unit.turns for unit in groups(records)]
        # Without a margin: unlike Lambda at the end of an invocation, the worker doesn't interrupt a call.
        return self._steps(units, Deadline(time_left, 0.0), in_order=in_order)

    def _turns(self, records: Sequence[RecordState]) -> Iterable[Sequence[Turn]]:
        """Return the units of records that are processed in sequence: consecutive messages of a group, or each record alone."""
        if self._group_by is None:
            return map(RecordState.turns, records)
        return [turns for _, turns in consecutive_runs(chain.from_iterable(map(RecordState.turns, records)))]

    def _steps(self, units: Iterable[Sequence[Turn]], deadline: Deadline, *, in_order: bool) -> _Steps:
        """Process one unit after another. The results are those of the finished records.

        With `group_by` a unit is one call. If the call raises, no one knows which message is to blame. So each message is
        called alone, in order, and only those that fail alone are redelivered. That is safe because the writes are guarded:
        the effects of the failed call are Duplicates by then. Without `group_by`, each message is called alone from the
        start.

        A record's messages are called in turn until one isn't settled, because no later one must overtake it. If the source
        keeps an order, no message after a failure counts as done, even if its effect is stored: it is redelivered and is a
        Duplicate then.
        """
        results: dict[int, Result] = {}
        has_groups, began = self._group_by is not None, 0.0
        for number, turns in enumerate(units):
            if number and deadline.is_over:
                break
            unit = single_turns = turns
            error = None
            share = 0.0
            if has_groups:
                unit = [turn for turn in turns if not turn[0].has_failed]
                calls = [turn for turn in unit if turn[0].messages]
                error, share = (yield from self._call_group(calls, deadline)) if calls else (None, 0.0)
                single_turns = () if error is None else calls
            elif deadline.is_known:
                began = self._monotonic() - unit[0][0].seconds
            for state, at, _ in single_turns:
                if state.has_failed or state.refusal is not None:
                    continue
                message, seconds = state.messages[at], 0.0
                end: End | None = error  # without time left, the group's error is the error of each message
                if error is not None and not deadline.is_over:
                    fresh_state = self.read(state.record)  # the failed call can have changed the message
                    end = fresh_state.refusal if isinstance(fresh_state.refusal, Exception) else None
                    message = fresh_state.messages[at] if len(fresh_state.messages) == len(state.messages) else message
                if end is None:
                    call_began = self._monotonic()
                    call_end = yield (message,)
                    seconds = self._monotonic() - call_began
                    if error is not None:
                        deadline.took(seconds)
                    end = call_end if isinstance(call_end, BaseException) else call_end[0]
                seconds += share
                if self._on_outcome is not None:
                    self._call_hook(state.messages[at], as_returned(end), seconds)
                state.end(end, seconds)
                if in_order and state.has_failed:
                    break
            has_failed = False
            for state in (unit[0][0],) if len(unit) == 1 else dict.fromkeys([turn[0] for turn in unit]):
                if state.refusal is not None and self._on_outcome is not None:
                    self._call_hook(None, state.refusal, state.seconds)
                # A message must not overtake a failed one of the same record.
                is_over = state.has_failed or state.progress == len(state.messages)
                if is_over and not has_failed:
                    result = results[state.position] = state.result()
                    has_failed = in_order and not result.settled
            if not has_groups and deadline.is_known:
                deadline.took(self._monotonic() - began)
            if has_failed:
                break
        return results

    def _call_group(
        self, calls: Sequence[Turn], deadline: Deadline
    ) -> Generator[tuple[Message, ...], _CallEnd, tuple[BaseException | None, float]]:
        """Call the function with a group. Return the error after which each message must be called alone, if any, and each
        message's share of the seconds.
        """
        began = self._monotonic()
        end = yield tuple([state.messages[at] for state, at, _ in calls])
        seconds = self._monotonic() - began
        deadline.took(seconds)
        share = seconds / len(calls)
        if isinstance(end, BaseException) and len(calls) > 1 and not isinstance(end, WrongReturn):
            # Log this, because a function that fails for every group is slow.
            text = (
                "%s: %s at %s for a group of %s messages. Calling it with each message alone. No action is needed unless "
                "this repeats"
            )
            log(WARNING, text, self.name, type(end).__name__, line_in(end, self.each), len(calls))
            return end, share
        for place, (state, at, _) in enumerate(calls):
            message_end = end if isinstance(end, BaseException) else end[place]
            if self._on_outcome is not None:
                self._call_hook(state.messages[at], as_returned(message_end), share)
            state.end(message_end, share)
        return None, share

    def _run(self, steps: _Steps) -> dict[int, Result]:
        """Call the function for each step's messages, and return the results of the records."""
        is_single = self._group_by is None
        end = cast("Any", None)  # the end of the last call; a generator starts with None
        try:
            while True:
                messages = steps.send(end)
                try:
                    with FunctionCall(messages) as call:
                        # Pass a new list: the function owns it and can change it.
                        end = self._check_return(self.each(messages[0] if is_single else [*messages]), messages)
                        if call.guarded_calls:
                            end = with_unreturned(end, messages, call)
                except Exception as error:
                    end = error
        except StopIteration as stop:
            return cast("dict[int, Result]", stop.value)

    async def _arun(self, steps: _Steps) -> dict[int, Result]:
        """Call the function like `_run`, and await what it returns. The cancellation of the batch itself ends it."""
        is_single = self._group_by is None
        end = cast("Any", None)  # the end of the last call; a generator starts with None
        try:
            while True:
                messages = steps.send(end)
                try:
                    with FunctionCall(messages) as call:
                        value: Any = self.each(messages[0] if is_single else [*messages])
                        end = self._check_return(await value if inspect.isawaitable(value) else value, messages)
                        if call.guarded_calls:
                            end = with_unreturned(end, messages, call)
                except BaseException as error:
                    if not isinstance(error, Exception) and not is_inner_cancellation(error):
                        raise
                    end = error  # the function can have awaited a task of its own that was cancelled
        except StopIteration as stop:
            return cast("dict[int, Result]", stop.value)

    def _call_hook(self, message: Message | None, outcome: Reported, seconds: float) -> None:
        """Call the hook. If the hook raises, log it; the record doesn't fail."""
        hook = cast("Hook", self._on_outcome)
        try:
            hook(message, outcome, seconds)
        except Exception as error:
            line = line_in(error, hook)
            log(
                WARNING,
                "%s: on_outcome raised %s at %s. The record's result is unaffected, but its metrics are incomplete",
                self.name,
                type(error).__name__,
                line,
            )


def check_hook(on_outcome: Hook | None) -> None:
    if on_outcome is not None and (not callable(on_outcome) or is_async(on_outcome)):
        raise ConfigurationError(f"on_outcome={on_outcome!r}: expected a plain function of (message, outcome, seconds).")


def _group(group_by: GroupBy, message: Message) -> Hashable:
    """Return the message's group. Raise if it can't be a key of a dict."""
    key = cast("object", group_by(message))
    kind = type(key).__name__
    if inspect.isawaitable(key):
        close_coroutine(key)
        raise WrongReturn(f"group_by returned a {kind}. Pass a plain function, not an async one.")
    try:
        hash(key)
    except TypeError as error:
        raise WrongReturn(
            f"group_by returned a {kind}, which isn't hashable. Return a string, a number, or a tuple."
        ) from error
    return key


def _time_left(context: Any) -> TimeLeft:
    """Return a function that returns the seconds left, or None if the context has no deadline, as in a test."""
    ask = getattr(context, "get_remaining_time_in_millis", None)
    if not callable(ask):
        return None

    def seconds_left() -> float:
        milliseconds = ask()
        return milliseconds / 1000 if isinstance(milliseconds, int | float) else math.inf  # a mock returns another mock

    return seconds_left


def show_options(options: type[Any]) -> Callable[[C], C]:
    """Return a decorator that names a function's `**options`, with their defaults, in its signature and so in `help()`.

    Type checkers and editors read the same names from the annotation `Unpack[options]`.
    """

    def decorate(function: C) -> C:
        signature = inspect.signature(function)
        parameters = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters += [
            each for name, each in inspect.signature(Handler).parameters.items() if name in options.__annotations__
        ]
        cast("Any", function).__signature__ = signature.replace(parameters=parameters)
        return function

    return decorate


def as_function(handler: Handler[Any]) -> Any:
    """Return the handler as a plain function of (event, context), with the name and docstring of the decorated function.

    Lambda and decorators such as Powertools' expect one: they call `inspect.isfunction` and read its name and signature.
    """

    def function(event: Any, context: Any = None) -> Response:
        return handler(event, context)

    function.__doc__ = handler.each.__doc__
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(function, name, getattr(handler.each, name, None) or getattr(type(handler.each), name))
    # No __wrapped__: the signature must be a Lambda handler's, not the decorated function's.
    for name in ("each", "source", "run", "process", "aprocess"):
        setattr(function, name, getattr(handler, name))
    function.handler = handler  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]  # a function has any attribute
    return function


def find_handler(function: object) -> Handler[Any] | None:
    """Return the handler of a decorated function, also below decorators that use functools.wraps, or None."""
    handler = cast("object", function if isinstance(function, Handler) else getattr(function, "handler", None))
    return cast("Handler[Any]", handler) if isinstance(handler, Handler) else None


class HandlerFunction(Protocol[M_contra, R_co]):
    """A Lambda function made from a function of a message, or of a list of messages, with its handler's methods."""

    __name__: str

    @property
    def handler(self) -> Handler[Any]:
        """The handler that the decorator made."""
        ...

    @property
    def each(self) -> Callable[[M_contra], R_co]:
        """The decorated function."""
        ...

    @property
    def source(self) -> Source:
        """The event source of the batches."""
        ...

    def run(self, event: Any, context: Any = None) -> Report:
        """Process a batch and return a full report: see `Handler.run`."""
        ...

    def process(self, record: Any) -> Result:
        """Process one record: see `Handler.process`."""
        ...

    async def aprocess(self, record: Any) -> Result:
        """Process one record in the running event loop: see `Handler.aprocess`."""
        ...

    def __call__(self, event: Any, context: Any = None) -> Response: ...
