"""The handler of batches. Without `group_by`, each message is a group of its own.

A record passes through `run`, which opens the event; `read`, which finds its messages; a unit of `order`, which a worker
takes; `_steps`, which calls the function; and the `Result` in the report.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, filterfalse
from logging import WARNING
from typing import Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar, cast

from onewrite.batch import workers
from onewrite.batch.function import (
    End,
    FunctionCall,
    R,
    ReturnValue,
    WrongReturn,
    close_coroutine,
    is_async,
    read_group_return,
    read_return,
)
from onewrite.batch.order import (
    HeldSources,
    Lanes,
    RecordState,
    Turn,
    Unit,
    find_order,
    make_group_units,
    make_run_units,
    split_runs,
)
from onewrite.batch.report import (
    EveryRecordFailed,
    Failure,
    NotSettled,
    Report,
    Result,
    describe_failure,
    log_batch,
    unwrap_outcomes,
)
from onewrite.batch.source import Response, Source
from onewrite.batch.workers import Deadline
from onewrite.core.clock import checked_clock
from onewrite.core.flow import Meter, meter
from onewrite.core.log import log
from onewrite.core.values import copy_value
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.identity import Identity, Skip
from onewrite.identity.record import is_change
from onewrite.message import Message
from onewrite.metrics import Hook, Reported
from onewrite.process.failures import describe_error, shorten_name
from onewrite.process.loops import is_inner_cancellation, run_in_loop

GroupBy: TypeAlias = Callable[[Message], Hashable]
TimeLeft: TypeAlias = Callable[[], float] | None
"""A function that returns the seconds left, or None if there is no deadline."""
_CallEnd: TypeAlias = Sequence[End] | BaseException
"""The end of a call for each of its messages, or the error of the call."""
_Steps: TypeAlias = Generator[tuple[Message, ...], _CallEnd, dict[int, Result]]
"""A generator that yields the messages of each call, receives the call's result, and returns the results by position."""
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
    def ordered_results(self) -> list[Result]:
        """The results in the order of the records."""
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
    - `clock`: returns epoch seconds, for the age of messages and the time until an effect's lease ends.
    """

    def __init__(
        self,
        function: Callable[..., R],
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
        if not callable(function):
            raise ConfigurationError(
                f"A handler needs a function of a message, got a {type(function).__name__}. Decorate a function."
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
        self.function, self.source = function, source
        self._identity = identity
        self._group_by = group_by
        self._read_return = read_return if group_by is None else read_group_return
        self._max_workers = max_workers
        self._margin = margin
        self._raise_when_all_fail = raise_when_all_fail
        self._on_outcome = on_outcome
        self._log_exceptions = log_exceptions
        self.clock, self._monotonic = checked_clock(clock), time.monotonic
        self.is_async = is_async(function)
        self.name = shorten_name(getattr(function, "__qualname__", type(function).__name__))

    @property
    def has_groups(self) -> bool:
        """Whether the function takes several messages at once."""
        return self._group_by is not None

    def __call__(self, event: Any, context: Any = None) -> Response:
        """Process a batch and return the records to redeliver.

        Raise `NotSettled` instead if the sender reads no response. Raise `EveryRecordFailed` if `raise_when_all_fail` asks for it.
        """
        report = self.run(event, context)
        failed = report.failed
        if (failed or report.returned) and not self.source.is_response_read(event):
            count = len(failed) + len(report.returned)
            first_failure = f" First failure: {replace(self.failure(failed[0]), traceback=None)}." if failed else ""
            # Lambda logs the cause too, which can quote content. Attach it only if exceptions are logged.
            raise NotSettled(
                f"{self.name}: {count} of {report.size} records must be redelivered. This exception is expected: it is how "
                f"a handler of {self.source.name} requests redelivery.{first_failure}"
            ) from (failed[0].error if failed and self._log_exceptions else None)
        if self._raise_when_all_fail and failed and not report.settled:
            raise EveryRecordFailed(
                f"{self.name}: none of {report.size} records was settled. The log line of this batch has the failures."
            )
        return report.response

    def run(self, event: Any, context: Any = None) -> Report:
        """Process a batch and return a full report. Lambda's response is `response`."""
        start, now = self._monotonic(), self.clock()
        records, lanes = self.source.open(event)
        batch = self._work_through(records, lanes, _make_time_left(context))
        outer_meter = meter.get()
        if outer_meter is not None:  # the function that called this handler is itself in a batch
            outer_meter.requests += batch.requests
        if batch.exit is not None:
            raise batch.exit
        sent_times = [*filterfalse(math.isnan, map(self.source.sent_at, records))]
        results = batch.results
        settled_positions = {position for position, result in results.items() if result.settled}
        report = Report(
            response=self.source.response(
                [record for position, record in enumerate(records) if position not in settled_positions]
            ),
            results=tuple([results[position] for position in sorted(results)]),
            returned=tuple([record for position, record in enumerate(records) if position not in results]),
            oldest_seconds=max(0.0, now - min(sent_times)) if sent_times else None,
            requests=batch.requests,
            seconds=self._monotonic() - start,
        )
        log_batch(self.name, self.source, report, self.failure)
        return report

    def process(self, record: Any) -> Result:
        """Process one record outside a batch, log the result, and return it.

        Only exits are raised, such as KeyboardInterrupt. An async function runs in an event loop of this thread. If a loop is
        already running, await `aprocess`.
        """
        return self.process_in_order([record])[0]

    async def aprocess(self, record: Any) -> Result:
        """Process one record as `process` does, in the running event loop.

        If the awaiting task is cancelled, CancelledError is raised.
        """
        return (await self.aprocess_in_order([record]))[0]

    def process_in_order(self, records: Iterable[Any]) -> list[Result]:
        """Process the records of one lane, such as a partition, in order.

        Return the result of each, up to the first that isn't settled. Later records weren't begun, or must be processed again.
        """
        if self.is_async:
            return run_in_loop(lambda: self.aprocess_in_order(records))
        with self._log_lane(records) as lane:
            lane.results = self._run(self._steps(self._list_turns(lane.states), _NO_DEADLINE, HeldSources(), in_order=True))
        return lane.ordered_results

    async def aprocess_in_order(self, records: Iterable[Any]) -> list[Result]:
        """Process records as `process_in_order` does, in the running event loop."""
        with self._log_lane(records) as lane:
            lane.results = await self._arun(
                self._steps(self._list_turns(lane.states), _NO_DEADLINE, HeldSources(), in_order=True)
            )
        return lane.ordered_results

    @contextmanager
    def _log_lane(self, records: Iterable[Any]) -> Generator[_Lane, None, None]:
        """Yield the records of one lane, already read. Count the requests, and log one line at the end unless an exit is raised."""
        start = self._monotonic()
        outer_meter, counter = meter.get(), Meter()
        lane = _Lane([self.read(record, position) for position, record in enumerate(records)])
        token = meter.set(counter)
        try:
            yield lane
        finally:
            meter.reset(token)
            if outer_meter is not None:
                outer_meter.requests += counter.requests
        report = Report(
            response={"batchItemFailures": []},
            results=tuple(lane.ordered_results),
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
        return self._list_results(records, results)

    async def aprocess_together(
        self, records: Sequence[RecordState], *, in_order: bool, time_left: TimeLeft
    ) -> list[Result | None]:
        """Process records as `process_together` does, for an async function."""
        results = await self._arun(self._steps_together(records, time_left, in_order=in_order))
        return self._list_results(records, results)

    @staticmethod
    def _list_results(records: Sequence[RecordState], results: Mapping[int, Result]) -> list[Result | None]:
        """Return each record's result. A held record counts as failed, because it must not be processed before the next delivery."""
        return [
            state.make_held_result() if state.is_held and position not in results else results.get(position)
            for position, state in enumerate(records)
        ]

    def failure(self, result: Result) -> Failure:
        """Return a description of an unsettled result, for a log line by `str()` or as JSON."""
        attempt = self.source.attempt(result.record)
        return describe_failure(result, self.function, attempt, with_traceback=self._log_exceptions)

    def read(self, record: Any, position: int = 0) -> RecordState:
        """Return a record with its messages and their groups. An error of the identity or of `group_by` fails the record."""
        began, group_by = self._monotonic(), self._group_by
        messages: tuple[Message, ...] = ()
        keys: tuple[Hashable, ...] = ()
        refusal: Skip | Exception | None = None
        try:
            argument = record
            if isinstance(record, dict):
                fields = cast("dict[str, Any]", record)
                body = fields.get("body")
                has_mutable_body = body is not None or (group_by is not None and is_change(fields))
                if has_mutable_body and type(body) not in (str, bytes):
                    argument = copy_value(fields)  # the function could change the body, and a retry reads it again
            elif not self.source.takes_any_object:
                kind = type(record).__name__
                raise InvalidMessage(f"expected a dict as the record, got a {kind}, which has no key.")  # noqa: TRY301  # handled below like the identity's own errors
            content: Any = self.source.screen(record) or self._identity(argument)  # pyright: ignore[reportUnknownArgumentType]  # a record can have any fields
            if isinstance(content, Message):
                messages = (content,)
            elif isinstance(content, list | tuple) and all(
                isinstance(member, Message) for member in cast("Sequence[object]", content)
            ):
                messages = tuple(cast("Sequence[Message]", content))
                refusal = None if messages else Skip("no messages")
            elif isinstance(content, Skip):
                refusal = content
            else:
                close_coroutine(cast("object", content))
                kind = type(cast("object", content)).__name__
                raise WrongReturn(  # noqa: TRY301  # handled below like the identity's own errors
                    f"The identity returned a {kind}. Return a Message, a sequence of them, or a Skip."
                )
            # Without `group_by`, each message is a group.
            keys = messages if group_by is None else tuple([_find_group(group_by, message) for message in messages])
        except Exception as error:
            messages, refusal = (), error
        return RecordState(record, position, messages, refusal, keys, self.clock, self._monotonic() - began)

    def _work_through(self, records: Sequence[Any], lanes: Sequence[Hashable], time_left: TimeLeft) -> workers.Batch:
        """Process the records in these lanes, and return the batch with their results. With `group_by`, workers take units."""
        count, in_order = len(records), lanes.count(None) < len(lanes)
        deadline = Deadline(time_left, self._margin)
        states: list[RecordState | None] = [None] * count
        units: list[Unit] = []
        held_sources = HeldSources()
        order: Sequence[int] = range(count)
        if self._group_by is not None:
            self._read_ahead(records, states, time_left)
            read_states = [state for state in states if state is not None]
            units = make_run_units(read_states, lanes) if in_order else make_group_units(read_states)
            lanes, order = [unit.lane for unit in units], range(len(units))
        elif not in_order and count > 1:
            self._read_ahead(records, states, time_left)
            lanes, order = find_order(states)

        def steps(number: int) -> _Steps:
            """Return the steps of a unit, or of a record."""
            if self._group_by is not None:
                turns = units[number].turns
            else:
                turns = (states[number] or self.read(records[number], number)).turns()
            return self._steps([turns], deadline, held_sources, in_order=in_order)

        queue = Lanes(lanes, order, strict=in_order)
        batch = workers.Batch(queue, deadline)
        worker_count = 1 if self._max_workers == 1 else min(self._max_workers, queue.width)
        if self.is_async:
            workers.work_in_tasks(batch, lambda number: self._arun(steps(number)), worker_count)
        elif worker_count > 1:
            workers.work_in_threads(batch, lambda number: self._run(steps(number)), worker_count)
        else:
            workers.work(batch, lambda number: self._run(steps(number)))
        return batch

    def _read_ahead(self, records: Sequence[Any], states: list[RecordState | None], time_left: TimeLeft) -> None:
        """Read all records to find their order. Records that are left unread for lack of time won't be processed either."""
        since = self._monotonic()
        for position, record in enumerate(records):
            state = states[position] = self.read(record, position)
            state.seconds = 0.0  # the time of reading ahead says nothing about the time that the next worker needs
            if time_left is not None and self._monotonic() - since > _READ_AHEAD_SECONDS:
                if time_left() < self._margin:
                    return
                since = self._monotonic()

    def _steps_together(self, records: Sequence[RecordState], time_left: TimeLeft, *, in_order: bool) -> _Steps:
        """Return the steps that process records that were read one by one, outside a batch. Results are by position in this list."""
        for position, state in enumerate(records):
            state.position = position  # each was read as the only one, at position 0
        if in_order or self._group_by is None:
            units = self._list_turns(records)
        else:
            units = [unit.turns for unit in make_group_units(records)]
        # Without a margin, because the worker doesn't interrupt a call as Lambda does at the end of an invocation.
        return self._steps(units, Deadline(time_left, 0.0), HeldSources(), in_order=in_order)

    def _list_turns(self, records: Sequence[RecordState]) -> Iterable[Sequence[Turn]]:
        """Return the units of records that are processed in sequence: consecutive messages of a group, or each record alone."""
        if self._group_by is None:
            return map(RecordState.turns, records)
        return [turns for _, turns in split_runs(chain.from_iterable(map(RecordState.turns, records)))]

    def _steps(
        self, units: Iterable[Sequence[Turn]], deadline: Deadline, held_sources: HeldSources, *, in_order: bool
    ) -> _Steps:
        """Process one unit after another. Return the results of the finished records.

        With `group_by` a unit is one call. If the call raises, no one knows which message is to blame. So each message is
        called alone, in order, and only those that fail alone are redelivered. That is safe because the writes are guarded,
        so the messages that the failed call has written are Duplicates by then. Without `group_by`, each message is called alone from the
        start.

        A record's messages are called in turn until one isn't settled, because no later one must overtake it. If the source
        keeps an order, no message after a failure counts as done. Even if its change is stored, it is redelivered as a
        Duplicate.
        """
        results: dict[int, Result] = {}
        has_groups, began = self._group_by is not None, 0.0
        for number, turns in enumerate(units):
            if number and deadline.is_over:  # the worker that took the first unit has checked the deadline
                break
            unit = single_turns = turns  # `single_turns`: those whose message is called alone
            error, share = None, 0.0
            if has_groups:
                unit = [turn for turn in turns if not (turn[0].has_failed or held_sources.check(turn))]
                calls = [turn for turn in unit if turn[0].messages]
                if calls:
                    error, share = yield from self._call_group(calls, deadline)
                    for state in [turn[0] for turn in calls if turn[0].has_failed]:
                        held_sources.hold(state)
                single_turns = () if error is None else calls
            elif deadline.is_known:
                began = self._monotonic() - unit[0][0].seconds  # reading the record counts too
            for turn in single_turns:
                state, at, _ = turn
                if state.has_failed or state.refusal is not None or held_sources.check(turn):
                    continue
                message, seconds = state.messages[at], 0.0
                end = None if error is None else End(error=error)  # without time left, it is the error of each message
                if error is not None and not deadline.is_over:
                    fresh_state = self.read(state.record)  # the failed call can have changed the message
                    end = End(error=fresh_state.refusal) if isinstance(fresh_state.refusal, Exception) else None
                    # Keep the message if the identity isn't deterministic and now finds a different number of messages.
                    message = fresh_state.messages[at] if len(fresh_state.messages) == len(state.messages) else message
                if end is None:
                    call_began = self._monotonic()
                    call_end = yield (message,)
                    seconds = self._monotonic() - call_began
                    if error is not None:
                        deadline.allow_for(seconds)
                    end = End(error=call_end) if isinstance(call_end, BaseException) else call_end[0]
                seconds += share
                if self._on_outcome is not None:
                    self._call_hook(state.messages[at], unwrap_outcomes(end.outcomes, end.error), seconds)
                state.end(end, seconds)
                if state.has_failed:
                    held_sources.hold(state)
                    if in_order:
                        break
            has_failed = False
            # Each record of the unit once. Most units have a single turn.
            for state in (unit[0][0],) if len(unit) == 1 else dict.fromkeys([turn[0] for turn in unit]):
                if state.refusal is not None and self._on_outcome is not None:
                    self._call_hook(None, state.refusal, state.seconds)
                # A message must not overtake a failed one of the same record.
                is_over = state.has_failed or state.progress == len(state.messages)
                if is_over and not has_failed:
                    result = results[state.position] = state.result()
                    has_failed = in_order and not result.settled
            if not has_groups and deadline.is_known:
                deadline.allow_for(self._monotonic() - began)
            if has_failed:
                break
        return results

    def _call_group(
        self, calls: Sequence[Turn], deadline: Deadline
    ) -> Generator[tuple[Message, ...], _CallEnd, tuple[BaseException | None, float]]:
        """Call the function with a group.

        Return the error after which each message must be called alone, or None, and each message's share of the seconds.
        """
        began = self._monotonic()
        end = yield tuple([state.messages[at] for state, at, _ in calls])
        seconds = self._monotonic() - began
        deadline.allow_for(seconds)
        share = seconds / len(calls)
        if isinstance(end, BaseException) and len(calls) > 1 and not isinstance(end, WrongReturn):
            # Log this, because a function that fails for every group is slow.
            text = "%s: %s for a group of %s messages. Calling it with each message alone. No action is needed unless this repeats"
            log(WARNING, text, self.name, describe_error(end, self.function), len(calls))
            return end, share
        for place, (state, at, _) in enumerate(calls):
            message_end = End(error=end) if isinstance(end, BaseException) else end[place]
            if self._on_outcome is not None:
                self._call_hook(state.messages[at], unwrap_outcomes(message_end.outcomes, message_end.error), share)
            state.end(message_end, share)
        return None, share

    def _run(self, steps: _Steps) -> dict[int, Result]:
        """Call the function for each step's messages, and return the results by record position. Exits are raised."""
        is_single = self._group_by is None
        end = cast("Any", None)  # the end of the last call; a generator starts with None
        try:
            while True:
                messages = steps.send(end)
                try:
                    with FunctionCall(messages) as call:
                        # Pass a new list, because the function owns it and can change it.
                        returned = self._read_return(self.function(messages[0] if is_single else [*messages]), messages)
                        end = call.list_ends(messages, returned)
                except Exception as error:
                    end = error
        except StopIteration as stop:
            return cast("dict[int, Result]", stop.value)

    async def _arun(self, steps: _Steps) -> dict[int, Result]:
        """Call the function like `_run`, and await what it returns. Exits are raised. A cancelled task that the function awaited is a failure."""
        is_single = self._group_by is None
        end = cast("Any", None)  # the end of the last call; a generator starts with None
        try:
            while True:
                messages = steps.send(end)
                try:
                    with FunctionCall(messages) as call:
                        value: Any = self.function(messages[0] if is_single else [*messages])
                        returned = self._read_return(await value if inspect.isawaitable(value) else value, messages)
                        end = call.list_ends(messages, returned)
                except BaseException as error:
                    # The function can have awaited a task of its own that was cancelled. That is a failure, not an exit.
                    if not isinstance(error, Exception) and not is_inner_cancellation(error):
                        raise
                    end = error
        except StopIteration as stop:
            return cast("dict[int, Result]", stop.value)

    def _call_hook(self, message: Message | None, outcome: Reported, seconds: float) -> None:
        """Call the hook. If the hook raises, log it; the record doesn't fail."""
        hook = cast("Hook", self._on_outcome)
        try:
            hook(message, outcome, seconds)
        except Exception as error:
            text = "%s: on_outcome raised %s. The record's result is unaffected, but its metrics are incomplete"
            log(WARNING, text, self.name, describe_error(error, hook))


def check_hook(on_outcome: Hook | None) -> None:
    """Raise unless this is a plain function or None."""
    if on_outcome is not None and (not callable(on_outcome) or is_async(on_outcome)):
        raise ConfigurationError(f"on_outcome={on_outcome!r}: expected a plain function of (message, outcome, seconds).")


def _find_group(group_by: GroupBy, message: Message) -> Hashable:
    """Return the message's group. Raise WrongReturn if `group_by` returned a value that can't be one."""
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


def _make_time_left(context: Any) -> TimeLeft:
    """Return a function that returns the seconds left, or None if the context has no deadline, as in a test."""
    read_milliseconds = getattr(context, "get_remaining_time_in_millis", None)
    if not callable(read_milliseconds):
        return None

    def read_seconds() -> float:
        milliseconds = read_milliseconds()
        return milliseconds / 1000 if isinstance(milliseconds, int | float) else math.inf  # a mock returns a mock

    return read_seconds


def show_options(options: type[Any]) -> Callable[[C], C]:
    """Return a decorator that names a function's `**options`, with their defaults, in its signature and so in `help()`.

    Type checkers and editors read the same names from the annotation `Unpack[options]`.
    """

    def decorate(function: C) -> C:
        signature = inspect.signature(function)
        parameters = [*signature.parameters.values()][:-1]  # without `**options`, which is always the last
        parameters += [
            parameter for name, parameter in inspect.signature(Handler).parameters.items() if name in options.__annotations__
        ]
        cast("Any", function).__signature__ = signature.replace(parameters=parameters)
        return function

    return decorate


def as_function(handler: Handler[Any]) -> Any:
    """Return the handler as a plain function of (event, context), with the name and docstring of the decorated function.

    Lambda and decorators such as Powertools' call `inspect.isfunction`, and read its name and signature.
    """

    def function(event: Any, context: Any = None) -> Response:
        return handler(event, context)

    function.__doc__ = handler.function.__doc__
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(function, name, getattr(handler.function, name, None) or getattr(type(handler.function), name))
    # Don't set __wrapped__, because the signature must be a Lambda handler's, not the decorated function's.
    for name in ("function", "source", "run", "process", "aprocess"):
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
    def function(self) -> Callable[[M_contra], R_co]:
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
