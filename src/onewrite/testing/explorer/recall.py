"""Record the handler's behavior after each sequence of responses. Known deliveries then don't have to run.

A handler without memory between deliveries behaves the same whenever it receives the same responses. Its calls can therefore be
recalled instead of made: `Recall` records the behavior of the calls that are made, and `CallFromMemory` repeats it.

A handler might still keep data in memory, such as a set of IDs, a cache, or an open circuit breaker. The explorer can't read that
memory, which can be in a module, in a thread, or in the environment. It checks instead whether the memory affects the handler: it
compares each call with the recorded behavior, and raises `WrongModeError` if the handler behaved differently after the same
responses. It makes such calls when a handler is likely to have data in memory. Before the search, it delivers each message twice,
and after each kind of failure, and runs some random schedules. After the search, it runs more random schedules, and `proof` runs
each kind of delivery once more, with other deliveries after it and within it.

After a `WrongModeError`, the recorded behavior is discarded. The exploration starts again, and runs every schedule within the
bounds from its start, in newly built handlers. It skips no schedule, so it assumes nothing about memory. If the limit on the number
of schedules ends it early, the report says so. An incorrect handler can pass only if its memory affects a
schedule, but none of the calls that are made.
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
    remove_frames,
)
from onewrite.testing.explorer.deliverables import read_outcomes
from onewrite.testing.explorer.modes import Obstacle, WrongModeError
from onewrite.testing.explorer.schedule import Delivery
from onewrite.testing.model.contents import NotCanonicalError, canonical
from onewrite.testing.model.machine import copy_request, make_repeater
from onewrite.testing.taps.traffic import Request

# --- equal responses --------------------------------------------------------------------------------------------------


def make_comparable(answer: Reply) -> Hashable:
    """Return a value that is equal for equal responses. A response without a canonical form isn't equal to any other.

    Of the response metadata, only the number of retries is compared. The rest differs with each request.
    """
    value: Any = answer.value
    if answer.error is not None:
        value = (type(answer.error).__name__, str(answer.error), getattr(answer.error, "response", None))
    try:
        return canonical(_omit_metadata(value), ordered=True)
    except NotCanonicalError:
        return object()


def _omit_metadata(value: Any) -> Any:
    """Return a DynamoDB response without its metadata, together with the number of retries. Return other values as they are."""
    if isinstance(value, tuple):
        return [_omit_metadata(part) for part in cast("tuple[Any, ...]", value)]
    if isinstance(value, dict):
        rest = {name: inner for name, inner in cast("dict[str, Any]", value).items() if name != "ResponseMetadata"}
        return rest, cast("dict[str, Any]", value).get("ResponseMetadata", {}).get("RetryAttempts", 0)
    return value


# --- histories --------------------------------------------------------------------------------------------------------


class UnknownError(Exception):
    """The handler's behavior after these responses isn't recorded yet."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.history = history


@dataclass(slots=True, eq=False)
class History:
    """A message, the responses that its handler has received so far, and, once known, the handler's behavior after them.

    `request_index` is the index of the pending request that got the last response. A handler that waits for several requests at
    once can behave differently if the responses come in a different order.
    """

    number: int  # unique within an exploration
    delivery: Delivery  # the first delivery with this history
    parts: tuple[int, ...]
    before: History | None = None
    request_index: int = 0
    answer: Reply = field(default_factory=Reply)  # the last response
    faulty: bool = False  # whether the last response has only ever come from a fault
    does: Hashable = None  # the handler's requests and end, in comparable form; None if unknown
    stop: Standstill = field(default_factory=Standstill)
    keys: tuple[Hashable, ...] = ()
    result: Reply = field(default_factory=Reply)
    outcomes: list[object] = field(default_factory=list[object])
    failures: list[str] = field(default_factory=list[str])
    after: dict[tuple[int, Hashable], History] = field(default_factory=dict["tuple[int, Hashable]", "History"])


_MAX_PAUSED = 8  # calls, each with a thread


class Recall:
    """The recorded behavior of a handler. Deliveries of one message count as different if their names are used in writes."""

    def __init__(
        self, make_key: Callable[[Request], Hashable], names_used: Callable[[], bool], release: Callable[[HandlerCall], None]
    ) -> None:
        self._make_key = make_key
        self._release = release
        self._paused: dict[History, HandlerCall] = {}  # calls that wait for the response after this history
        self._names_used = names_used
        self._by_delivery = names_used()
        self._numbers = count(1)
        self.roots: dict[Hashable, History] = {}

    def root(self, delivery: Delivery, parts: tuple[int, ...]) -> History:
        """Return the history of a delivery that begins with these parts of its message."""
        key = parts, delivery.number if self._by_delivery else 0
        if key not in self.roots:
            self.roots[key] = History(next(self._numbers), delivery, parts)
        return self.roots[key]

    def after(self, history: History, answer: Reply, index: int = 0) -> History:
        """Return the history of a delivery after this response to one of its pending requests."""
        key = index, make_comparable(answer)
        later = history.after.get(key)
        if later is None:
            copy, number = copy_reply(answer), next(self._numbers)
            later = History(
                number, history.delivery, history.parts, before=history, request_index=index, answer=copy, faulty=copy.faulty
            )
            history.after[key] = later
        later.faulty = later.faulty and answer.faulty
        return later

    def note(self, history: History, call: HandlerCall) -> None:
        """Record the call's behavior, or compare it with the recorded behavior."""
        if self._names_used() and not self._by_delivery:
            raise WrongModeError(Obstacle.MEMORY)
        keys, does = self._describe_stop(call.stop, call.result)
        if history.does is None:
            history.does, history.keys = does, keys
            history.stop = call.stop._replace(
                pending=tuple([entry._replace(request=copy_request(entry.request)) for entry in call.stop.pending])
            )
            history.result, history.outcomes, history.failures = call.result, call.outcomes, call.failures
        elif history.does != does:
            raise WrongModeError(Obstacle.MEMORY)

    def _describe_stop(self, stop: Standstill, result: Reply) -> tuple[tuple[Hashable, ...], Hashable]:
        """Return the keys of the pending requests, and a value that is equal for equal stops."""
        keys = tuple([self._make_key(entry.request) for entry in stop.pending])
        cancelled = tuple([place for place, entry in enumerate(stop.pending) if entry.cancelled])
        return keys, (keys, cancelled, stop.in_turn, stop.timers, _describe_end(result) if stop.has_returned else None)

    def take_paused(self, history: History | None) -> HandlerCall | None:
        """Return a call that has received these responses, and waits for the next one, or None. The caller must keep it again."""
        return None if history is None else self._paused.pop(history, None)

    def keep_paused(self, history: History, call: HandlerCall) -> None:
        """Keep the call until it ends, because the next unknown behavior is often the next one of the same delivery."""
        self._paused[history] = call
        if call.has_ended:
            self._release(self._paused.pop(history))
        elif len(self._paused) > _MAX_PAUSED:
            self._release(self._paused.pop(next(iter(self._paused))))

    def release_paused(self) -> None:
        while self._paused:
            self._release(self._paused.popitem()[1])

    def learn(self, history: History, call: HandlerCall) -> None:
        """Record the behavior of a call that received this history's responses.

        Raise `WrongModeError` if it differs from the recorded behavior.
        """
        earlier = list_histories(history)[:-1]
        new = call.stops[call.compared_count : -1]
        if len(call.stops) != len(earlier) + 1:
            raise WrongModeError(Obstacle.MEMORY)
        # The earlier stops of a call that continues have already been compared.
        for before, stop in zip(earlier[call.compared_count :], new, strict=True):
            if before.does != self._describe_stop(stop, call.result)[1]:
                raise WrongModeError(Obstacle.MEMORY)
        self.note(history, call)
        call.compared_count = len(earlier) + 1


class CallFromMemory:
    """Repeats the recorded behavior of a call. It raises `UnknownError` if the behavior isn't recorded yet."""

    __slots__ = ("_recall", "has_died", "history", "is_dead")

    effect_name = ""  # only reports show it, and they are made from real calls

    def __init__(self, recall: Recall, history: History) -> None:
        self.history = _check_known(history)
        self.has_died = self.is_dead = False
        self._recall = recall

    @property
    def stop(self) -> Standstill:
        """Return the point at which the call pauses.

        Pending insertions are copied, because the driver adds a different `_id` for each delivery.
        """
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


AnyCall: TypeAlias = HandlerCall | CallFromMemory


def _describe_end(result: Reply) -> Hashable:
    """Return a value that is equal for calls with the same end."""
    value: object = result.value
    kinds = ", ".join([type(outcome).__name__ for outcome in read_outcomes(value)])
    return "ends", type(result.error), repr(cast("object", value)) if isinstance(value, dict) else kinds


def _check_known(history: History) -> History:
    if history.does is None:
        raise UnknownError(history)
    return history


def copy_replies(history: History) -> list[tuple[int, Reply]]:
    """Return copies of a delivery's responses, each with the request's index among the pending requests."""
    return [(later.request_index, copy_reply(later.answer)) for later in list_histories(history)[1:]]


def list_histories(last: History) -> list[History]:
    """Return all histories from the delivery's beginning to this one."""
    return [last] if last.before is None else [*list_histories(last.before), last]


def copy_reply(answer: Reply) -> Reply:
    """Return a copy of the response, so that the handler can't change the recorded one."""
    if answer is TIME_PASSES or answer is NEVER_SENT:
        return answer
    repeater = make_repeater(answer.value if answer.error is None else answer.error)
    if repeater is None:
        raise WrongModeError(Obstacle.MEMORY)
    try:
        return Reply(repeater(), faulty=answer.faulty)
    except Exception as error:
        remove_frames(error)
        return Reply(error=error, faulty=answer.faulty)
