"""What the handler does after which answers, so that a delivery need not be run where that is known.

A handler that keeps nothing in memory from one delivery to the next does the same whenever it has been given the same answers. So
its calls can be recalled instead of made: `RecordedCall` makes a call and remembers what it does, and `RecalledCall` tells what it
would do. Each call that is made is compared with what is remembered. `NotRecallableError` says that the handler did something
else, so that what it does does not follow from the answers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, cast

from onewrite.testing.explorer.handler.calls import Answer, HandlerCall
from onewrite.testing.explorer.handler.comparable import comparable
from onewrite.testing.explorer.schedule import Delivery
from onewrite.testing.model.transition import copied, repeated
from onewrite.testing.taps.traffic import Request


class NotRecallableError(Exception):
    """What the handler does does not follow from the answers that it has been given."""


class UnknownError(Exception):
    """What the handler does after these answers has not been seen yet."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.history = history


class AnyCall(Protocol):
    """One call of the handler. Either `request` is what it is about to send, or it has `ended`."""

    @property
    def request(self) -> Request | None: ...
    @property
    def key(self) -> Hashable: ...  # equal for requests that are the same; None if it has not been made
    @property
    def ended(self) -> bool: ...
    @property
    def died(self) -> bool: ...
    @property
    def result(self) -> Answer: ...
    @property
    def outcomes(self) -> list[object]: ...
    def resume(self, answer: Answer) -> None: ...
    def die(self) -> None: ...


class History:
    """A message and the answers that its handler has been given since, and what the handler then does, once it is known."""

    __slots__ = (
        "after",
        "answer",
        "before",
        "delivery",
        "does",
        "faulty",
        "number",
        "outcomes",
        "parts",
        "request",
        "result",
    )

    def __init__(self, number: int, before: History | None, answer: Answer) -> None:
        self.number = number  # no two histories of an exploration have the same
        self.before = before
        self.answer = answer  # the last one
        self.faulty = answer.faulty  # it was never given but by a fault
        self.delivery: Delivery | None = None  # that begins here, and the parts of its message that it brings
        self.parts: tuple[int, ...] = ()
        self.does: Hashable = None  # the key of the request that it sends, or that it ends; None if that is not known
        self.request: Request | None = None
        self.result = Answer()
        self.outcomes: list[object] = []
        self.after: dict[Hashable, History] = {}


class Recall:
    """All that is remembered of a handler. Deliveries of one message differ once names of attempts are used in their writes."""

    def __init__(self, key_of: Callable[[Request], Hashable], names_used: Callable[[], bool]) -> None:
        self._key_of = key_of
        self._names_used = names_used
        self._by_delivery = names_used()
        self._roots: dict[Hashable, History] = {}
        self._count = 0

    @property
    def roots(self) -> list[History]:
        return [*self._roots.values()]

    def root(self, delivery: Delivery, parts: tuple[int, ...]) -> History:
        """Where a delivery begins that brings these parts of its message."""
        key = parts, delivery.number if self._by_delivery else 0
        found = self._roots.get(key)
        if found is None:
            found = self._new(self._roots, key, None, Answer())
            found.delivery, found.parts = delivery, parts
        return found

    def after(self, history: History, answer: Answer) -> History:
        """Where a delivery goes on with this answer."""
        form = comparable(answer) if answer.form is None else answer.form
        found = history.after.get(form)
        if found is None:
            return self._new(history.after, form, history, _copied(answer))
        found.faulty = found.faulty and answer.faulty
        return found

    def note(self, history: History, call: HandlerCall) -> None:
        """Remember what the call does, or compare it with what is remembered."""
        if self._names_used() and not self._by_delivery:
            raise NotRecallableError
        does = _end(call.result) if call.request is None else self._key_of(call.request)
        if history.does is None:
            history.does = does
            history.request = None if call.request is None else copied(call.request)
            history.result, history.outcomes = call.result, call.outcomes
        elif history.does != does:
            raise NotRecallableError

    def learn(self, history: History, call: HandlerCall) -> None:
        """Note what a call does that has been given the answers of this history."""
        earlier = until(history)[:-1]
        asked = call.asked[: len(earlier)]
        # A call that goes on was compared when it stopped, which `note` did with what it is about to send.
        new = [self._key_of(request) for request in asked[call.compared :]]
        if len(asked) < len(earlier) or new != [before.does for before in earlier[call.compared :]]:
            raise NotRecallableError
        self.note(history, call)
        call.compared = len(earlier) + 1

    def _new(self, histories: dict[Hashable, History], key: Hashable, before: History | None, answer: Answer) -> History:
        self._count += 1
        histories[key] = History(self._count, before, answer)
        return histories[key]


class RecordedCall:
    """Makes a call, and remembers what it does."""

    def __init__(self, call: HandlerCall, recall: Recall, history: History) -> None:
        self.call = call
        self._recall = recall
        self._history = history
        recall.note(history, call)

    @property
    def request(self) -> Request | None:
        return self.call.request

    @property
    def key(self) -> Hashable:
        return self._history.does

    @property
    def ended(self) -> bool:
        return self.call.ended

    @property
    def died(self) -> bool:
        return self.call.died

    @property
    def result(self) -> Answer:
        return self.call.result

    @property
    def outcomes(self) -> list[object]:
        return self.call.outcomes

    def resume(self, answer: Answer) -> None:
        self._history = self._recall.after(self._history, answer)
        self.call.resume(answer)
        self._recall.note(self._history, self.call)

    def die(self) -> None:
        self.call.die()


class RecalledCall:
    """Does from memory what the call would do. `UnknownError` says that it has not been seen yet."""

    __slots__ = ("_recall", "died", "history")

    def __init__(self, recall: Recall, history: History) -> None:
        _check_known(history)
        self.history = history
        self.died = False
        self._recall = recall

    @property
    def request(self) -> Request | None:
        """The request. One into which the driver puts ids is copied, for each delivery puts in its own."""
        request = self.history.request
        return copied(request) if request is not None and request.method.startswith(("insert", "bulk")) else request

    @property
    def key(self) -> Hashable:
        return self.history.does

    @property
    def ended(self) -> bool:
        return self.died or self.history.request is None

    @property
    def result(self) -> Answer:
        return self.history.result

    @property
    def outcomes(self) -> list[object]:
        return self.history.outcomes

    def resume(self, answer: Answer) -> None:
        history = self._recall.after(self.history, answer)
        _check_known(history)
        self.history = history

    def die(self) -> None:
        self.died = True


def _end(result: Answer) -> Hashable:
    """Equal for calls that end in the same way."""
    value: object = result.value
    returned = repr(cast("object", value)) if isinstance(value, dict) else _kinds(value)
    return "ends", type(result.error), returned


def _kinds(returned: object) -> str:
    outcomes = cast("Sequence[object]", returned) if isinstance(returned, list | tuple) else [returned]
    return ", ".join([type(outcome).__name__ for outcome in outcomes])


def _check_known(history: History) -> None:
    if history.does is None:
        raise UnknownError(history)


def answers_of(history: History) -> list[Answer]:
    """Copies of the answers that a delivery has been given."""
    return [answer_of(later) for later in until(history)[1:]]


def answer_of(history: History) -> Answer:
    """A copy of the last one of them."""
    return _copied(history.answer)


def until(history: History) -> list[History]:
    """All histories from the beginning to this one."""
    return [*([] if history.before is None else until(history.before)), history]


def _copied(answer: Answer) -> Answer:
    """A copy, which stays the same if the handler changes what it was given."""
    again = repeated(answer.value if answer.error is None else answer.error)
    if again is None:
        raise NotRecallableError
    try:
        return Answer(again(), faulty=answer.faulty)
    except Exception as error:
        return Answer(error=error, faulty=answer.faulty)
