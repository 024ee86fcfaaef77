"""What the handler does after which answers, so a delivery need not be run where that is known.

A handler that keeps nothing in memory from one delivery to the next does the same whenever it has been given the same answers. So
its calls can be recalled instead of made: `RecordedCall` makes a call and remembers what it does, and `CallFromMemory` tells what it
would do.

A handler may keep something in memory all the same, such as a set of ids, a cache, or an open circuit breaker. Nobody reads that memory:
it may be anywhere, as in a module, in a thread or in the environment. What counts is whether the handler goes by it. So each call that is
made is compared with what is remembered, and `NotRecallableError` says that the handler did something else after the same answers. Such
calls are made where a handler is likely to have something in memory: before the search each message is delivered twice, after each way
to fail, and some schedules are drawn at random. After the search more are drawn, and `proof` runs each kind of delivery once more, with
others after it and within it.

After a `NotRecallableError` nothing that was remembered counts. The exploration begins again, and runs every schedule within the bounds
from its start, in handlers that were just built. No schedule is left out there, so nothing is assumed about memory, and if the number of
schedules is limited before the last, the report says that not all were run. A wrong handler could pass only if it went by its memory in a
schedule, but in none of the calls that are made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias, cast

from onewrite.testing.explorer.calls import (
    NEVER_SENT,
    TIME_PASSES,
    HandlerCall,
    PendingRequest,
    Reply,
    Standstill,
    without_frames,
)
from onewrite.testing.explorer.deliverables import outcomes_of
from onewrite.testing.explorer.schedule import Delivery
from onewrite.testing.model.contents import NotCanonicalError, canonical
from onewrite.testing.model.machine import copy_request, repeater_of
from onewrite.testing.taps.traffic import Request

# --- equal answers ----------------------------------------------------------------------------------------------------
#
# Tells whether two answers are the same.


def comparable(answer: Reply) -> Hashable:
    """Return a value that is equal for equal answers. An answer without a canonical form equals no other.

    Of the response metadata only the number of retries counts. The rest differs from one request to the next.
    """
    value: Any = answer.value
    if answer.error is not None:
        value = (type(answer.error).__name__, str(answer.error), getattr(answer.error, "response", None))
    try:
        return canonical(_without_metadata(value), ordered=True)
    except NotCanonicalError:
        return object()


def _without_metadata(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_metadata(part) for part in cast("tuple[Any, ...]", value)]
    if isinstance(value, dict):
        rest = {name: inner for name, inner in cast("dict[str, Any]", value).items() if name != "ResponseMetadata"}
        return rest, cast("dict[str, Any]", value).get("ResponseMetadata", {}).get("RetryAttempts", 0)
    return value


# --- histories --------------------------------------------------------------------------------------------------------


class NotRecallableError(Exception):
    """The handler's behavior doesn't follow from the responses that it has been given."""


class MustRunError(Exception):
    """The result of a request depends on more than the store's contents, so a trial can't be forked: the handler must run."""


class UnknownError(Exception):
    """The handler's behavior after these responses has not been seen yet."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.history = history


@dataclass(slots=True, eq=False)
class History:
    """A message and the answers that its handler has been given since, and what the handler then does, once it is known.

    `request_index` says which of the requests that were pending got the last answer: a handler that waits for several at once may do
    something else when they are answered in another order.
    """

    number: int  # no two histories of an exploration have the same
    delivery: Delivery  # and the parts of its message that it brings
    parts: tuple[int, ...]
    before: History | None = None
    request_index: int = 0
    answer: Reply = field(default_factory=Reply)  # the last one
    faulty: bool = False  # the last answer was never given but by a fault
    does: Hashable = None  # what it asks, and how it ends; None if that is not known
    stop: Standstill = field(default_factory=Standstill)
    keys: tuple[Hashable, ...] = ()
    result: Reply = field(default_factory=Reply)
    outcomes: list[object] = field(default_factory=list[object])
    failures: list[str] = field(default_factory=list[str])
    after: dict[tuple[int, Hashable], History] = field(default_factory=dict["tuple[int, Hashable]", "History"])


class Recall:
    """All that is remembered of a handler. Deliveries of one message differ once names of attempts are used in their writes."""

    def __init__(self, key_of: Callable[[Request], Hashable], names_used: Callable[[], bool]) -> None:
        self._key_of = key_of
        self._names_used = names_used
        self._by_delivery = names_used()
        self._numbers = count(1)
        self.roots: dict[Hashable, History] = {}

    def root(self, delivery: Delivery, parts: tuple[int, ...]) -> History:
        """Return the beginning of a delivery with these parts of its message."""
        key = parts, delivery.number if self._by_delivery else 0
        if key not in self.roots:
            self.roots[key] = History(next(self._numbers), delivery, parts)
        return self.roots[key]

    def after(self, history: History, answer: Reply, index: int = 0) -> History:
        """Return the history of a delivery after this response to one of its pending requests."""
        key = index, comparable(answer) if answer.form is None else answer.form
        later = history.after.get(key)
        if later is None:
            copy = _copy(answer)
            later = History(next(self._numbers), history.delivery, history.parts, history, index, copy, copy.faulty)
            history.after[key] = later
        later.faulty = later.faulty and answer.faulty
        return later

    def note(self, history: History, call: HandlerCall) -> None:
        """Remember what the call does, or compare it with what is remembered."""
        if self._names_used() and not self._by_delivery:
            raise NotRecallableError
        keys, does = self._behaviour(call.stop, call.result)
        if history.does is None:
            history.does, history.keys = does, keys
            history.stop = call.stop._replace(
                pending=tuple([entry._replace(request=copy_request(entry.request)) for entry in call.stop.pending])
            )
            history.result, history.outcomes, history.failures = call.result, call.outcomes, call.failures
        elif history.does != does:
            raise NotRecallableError

    def _behaviour(self, stop: Standstill, result: Reply) -> tuple[tuple[Hashable, ...], Hashable]:
        """Return the keys of the pending requests, and a value that is equal for equal stops."""
        keys = tuple([self._key_of(entry.request) for entry in stop.pending])
        cancelled = tuple([place for place, entry in enumerate(stop.pending) if entry.cancelled])
        return keys, (keys, cancelled, stop.in_turn, stop.timers, _end(result) if stop.has_returned else None)

    def learn(self, history: History, call: HandlerCall) -> None:
        """Note what a call does that has been given the answers of this history."""
        earlier = until(history)[:-1]
        new = call.stops[call.compared_count : -1]
        if len(call.stops) != len(earlier) + 1:
            raise NotRecallableError
        # A call that goes on was compared when it stopped, which `note` did with what it is about to send.
        for before, stop in zip(earlier[call.compared_count :], new, strict=True):
            if before.does != self._behaviour(stop, call.result)[1]:
                raise NotRecallableError
        self.note(history, call)
        call.compared_count = len(earlier) + 1


class RecordedCall:
    """Makes a call, and remembers what it does. In all else it is the call."""

    def __init__(self, call: HandlerCall, recall: Recall, history: History) -> None:
        self.call = call
        self.history = history
        self._recall = recall
        recall.note(history, call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.call, name)

    @property
    def keys(self) -> tuple[Hashable, ...]:
        return self.history.keys

    def resume(self, answer: Reply, index: int = 0) -> None:
        self.history = self._recall.after(self.history, answer, index)
        self.call.resume(answer, index)
        self._recall.note(self.history, self.call)


class CallFromMemory:
    """Does from memory what the call would do. `UnknownError` says that it has not been seen yet."""

    __slots__ = ("_recall", "has_died", "history", "is_dead")

    step_name = ""  # which only a report shows, and that is made of a call that runs

    def __init__(self, recall: Recall, history: History) -> None:
        self.history = _check_known(history)
        self.has_died = self.is_dead = False
        self._recall = recall

    @property
    def stop(self) -> Standstill:
        """Return the call's present standstill. Copy its pending insertions, because the driver puts another `_id` into each delivery's own."""
        stop = self.history.stop
        if not any(entry.request.method.startswith(("insert", "bulk")) for entry in stop.pending):
            return stop
        pending = [PendingRequest(copy_request(entry.request), entry.cancelled) for entry in stop.pending]
        return stop._replace(pending=tuple(pending))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.history, name)

    @property
    def is_at_start(self) -> bool:
        return self.history.before is None

    @property
    def has_returned(self) -> bool:
        return self.has_died or self.history.stop.has_returned

    @property
    def has_ended(self) -> bool:
        return self.has_died or self.is_dead or self.history.stop.has_ended

    def resume(self, answer: Reply, index: int = 0) -> None:
        self.history = _check_known(self._recall.after(self.history, answer, index))

    def die(self) -> None:
        self.has_died = not self.history.stop.has_returned
        self.is_dead = True


AnyCall: TypeAlias = HandlerCall | RecordedCall | CallFromMemory


def _end(result: Reply) -> Hashable:
    """Return a value that is equal for calls that end in the same way."""
    value: object = result.value
    kinds = ", ".join([type(outcome).__name__ for outcome in outcomes_of(value)])
    return "ends", type(result.error), repr(cast("object", value)) if isinstance(value, dict) else kinds


def _check_known(history: History) -> History:
    if history.does is None:
        raise UnknownError(history)
    return history


def answers_of(history: History) -> list[tuple[int, Reply]]:
    """Copies of the answers that a delivery has been given, each with the place of the request among the pending ones."""
    return [(later.request_index, answer_of(later)) for later in until(history)[1:]]


def answer_of(history: History) -> Reply:
    """Return a copy of the last answer."""
    return _copy(history.answer)


def until(history: History) -> list[History]:
    """All histories from the beginning to this one."""
    return [*([] if history.before is None else until(history.before)), history]


def _copy(answer: Reply) -> Reply:
    """Return a copy, which the handler can't change."""
    if answer is TIME_PASSES or answer is NEVER_SENT:
        return answer
    repeater = repeater_of(answer.value if answer.error is None else answer.error)
    if repeater is None:
        raise NotRecallableError
    try:
        return Reply(repeater(), faulty=answer.faulty)
    except Exception as error:
        without_frames(error)
        return Reply(error=error, faulty=answer.faulty)
