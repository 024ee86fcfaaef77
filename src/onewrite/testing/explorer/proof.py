"""Proves, by running it, that what a handler does follows from the answers that it has been given, whatever it has been through.

A *course* is a delivery from its start to its end, as it is remembered. A handler that opens a circuit breaker when it is throttled,
or that gives up a message whose second write was refused, does something else in the course after that. There are too many
sequences of courses to run them all. So this looks twice:

- A course of each kind, and some more, are run in one handler, in a random order, with as many under way at once as the bounds allow.
  Of one kind are courses whose requests go the same way and get answers of the same shape, see `_shape`. So each kind of answer that
  was ever given is given once more, and then come others. Whatever the handler then does must be what is remembered.
- Where that has changed something in the handler's memory, or where its memory cannot be read, every two courses of different kinds
  are run in a handler that was just built, or many of them: one after the other, and one within the other. What comes after two courses
  that have left the same in memory is run after one of them, and first of all. Sequences of more are drawn at random. No more
  faults befall a sequence than the bounds allow. Most handlers keep nothing, and for these it would be wasted.

No store is asked anything: the answers are those that are remembered.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple, cast

from onewrite.testing.explorer.calls import HandlerCall
from onewrite.testing.explorer.memory import Form, is_readable
from onewrite.testing.explorer.recall import History, Recall, answer_of
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.explorer.subject import Subject

_MOST_PAIRS = 400
_RANDOM_SEQUENCES = 40  # sequences of more than two courses
_ENDS_BEFORE_NEXT = 0.5  # how likely a delivery goes on before another one begins
_LONGEST = 6  # of these, in courses: all deliveries of three messages with the default bounds


class _Course(NamedTuple):
    """A delivery as it is remembered: what it did at first, after the first answer, and so on to its end."""

    histories: tuple[History, ...]
    kind: Hashable

    @property
    def message(self) -> int:
        return self.histories[0].delivery.message

    @property
    def faults(self) -> int:
        return sum(history.faulty for history in self.histories)


def prove(subject: Subject, recall: Recall) -> None:
    """Raise `NotRecallableError` if the handler does something other than is remembered."""
    draw = Random("onewrite")
    courses = [*_courses(recall)]
    by_kind = {course.kind: course for course in reversed(courses)}
    others = [course for course in courses if by_kind[course.kind] is not course]
    selection = [*by_kind.values(), *draw.sample(others, min(len(others), len(by_kind) // 2))]
    with _Process(subject, recall) as process:
        before = process.invocation.memory
        unchanged = is_readable(before)
        for course in process.deliver_at_once(draw.sample(selection, len(selection)), draw):
            if by_kind[course.kind] is course:
                unchanged = unchanged and process.invocation.memory == before
    if not unchanged:
        _prove_of_several(subject, recall, [*by_kind.values()], draw)


def _prove_of_several(subject: Subject, recall: Recall, kinds: Sequence[_Course], draw: Random) -> None:
    kinds = sorted([course for course in kinds if course.faults <= subject.bounds.faults], key=attrgetter("faults"))
    cuts: dict[Form, tuple[_Course, int]] = {}  # by what the handler keeps there: the first course that is cut there
    ends: dict[Form, _Course] = {}
    for course in kinds:
        with _Process(subject, recall) as process:
            fresh = process.invocation.memory
            under_way = process.begin(course)
            for at in range(len(course.histories)):
                if at:
                    under_way.goes_on()
                cuts.setdefault(process.invocation.memory, (course, at))
            ends.setdefault(process.invocation.memory, course)
        cuts.pop(fresh, None)
        ends.pop(fresh, None)

    def pairs(cuts: Iterable[tuple[_Course, int]], others: Iterable[_Course]) -> list[tuple[_Course, int, _Course]]:
        pairs = [(one, at, other) for (one, at), other in product(cuts, others)]
        return [pair for pair in pairs if _are_possible(subject.bounds, *pair)]

    anywhere = [(course, draw.randrange(len(course.histories))) for course in kinds]
    changed = [*pairs(cuts.values(), kinds), *pairs(anywhere, ends.values())]
    # Reading may miss something.
    rest = [*pairs([(course, len(course.histories) - 1) for course in kinds], kinds), *pairs(anywhere, kinds)]
    for one, at, other in [*draw.sample(changed, len(changed)), *draw.sample(rest, len(rest))][:_MOST_PAIRS]:
        with _Process(subject, recall) as process:
            under_way = process.begin(one)
            for _ in range(at):
                under_way.goes_on()
            process.deliver(other)
            under_way.goes_on_to_its_end()
    for _ in range(_RANDOM_SEQUENCES):
        faults, sequence = subject.bounds.faults, list[_Course]()
        for _ in range(_LONGEST):
            sequence.append(draw.choice([course for course in kinds if course.faults <= faults]))
            faults -= sequence[-1].faults
        with _Process(subject, recall) as process:
            for _ in process.deliver_at_once(sequence, draw):
                pass


def _are_possible(bounds: Bounds, one: _Course, at: int, other: _Course) -> bool:
    """May the other course come while the one stands there, or after it?"""
    is_over = at == len(one.histories) - 1
    may_be_at_once = bounds.concurrency > 1 and (one.message != other.message or bounds.deliveries > 1)
    return one.faults + other.faults <= bounds.faults and (is_over or may_be_at_once)


class _Process(ExitStack):
    """A handler that was just built, and what is delivered to it."""

    def __init__(self, subject: Subject, recall: Recall) -> None:
        super().__init__()
        self.invocation = subject.begin()
        self._subject = subject
        self._recall = recall

    def deliver(self, *courses: _Course) -> None:
        """Run these courses, one after the other."""
        for course in courses:
            self.begin(course).goes_on_to_its_end()

    def deliver_at_once(self, courses: Iterable[_Course], draw: Random) -> Iterator[_Course]:
        """Run these courses, as many at once as the bounds allow. The result is each of them when it has ended."""
        under_way: list[_UnderWay] = []
        for course in courses:
            under_way.append(self.begin(course))
            while under_way and (len(under_way) == self._subject.bounds.concurrency or draw.random() < _ENDS_BEFORE_NEXT):
                delivery = draw.choice(under_way)
                if not delivery.goes_on():
                    under_way.remove(delivery)
                    yield delivery.course
        for delivery in under_way:
            delivery.goes_on_to_its_end()
            yield delivery.course

    def begin(self, course: _Course) -> _UnderWay:
        """Run a course up to its first request."""
        root = course.histories[0]
        call = self._subject.call(self.invocation, root.delivery, root.parts)
        under_way = _UnderWay(self._subject, self._recall, course, call)
        self.callback(under_way.close)
        return under_way


class _UnderWay:
    """A course that is being run. Each time that it stops, it is compared with what is remembered."""

    def __init__(self, subject: Subject, recall: Recall, course: _Course, call: HandlerCall) -> None:
        self.course = course
        self._subject = subject
        self._recall = recall
        self._call = call
        self._at = 0
        self._is_open = True
        self._compare()

    def goes_on(self) -> bool:
        """Give it its next answer. False if it has had all of them."""
        if self._is_open:
            self._at += 1
            history = self.course.histories[self._at]
            self._call.resume(answer_of(history), history.request_index)
            self._compare()
        return self._is_open

    def goes_on_to_its_end(self) -> None:
        while self.goes_on():
            pass

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._subject.threads.release(self._call)

    def _compare(self) -> None:
        try:
            self._recall.learn(self.course.histories[self._at], self._call)
        except BaseException:
            self.close()
            raise
        if self._call.has_ended:
            self.close()


# --- courses and their kinds ------------------------------------------------------------------------------------------


def _courses(recall: Recall) -> Iterator[_Course]:
    for root in recall.roots.values():
        yield from _ends((root,), ((root.delivery.message, root.parts),))


def _ends(histories: tuple[History, ...], kind: tuple[Hashable, ...]) -> Iterator[_Course]:
    """The courses that begin like this."""
    last = histories[-1]
    if last.does is not None and last.stop.has_ended:
        yield _Course(histories, (*kind, last.does))
    else:
        for (index, form), history in last.after.items():
            request = last.stop.pending[index].request
            error = history.answer.error
            shape = _shape(form) if error is None else _shape_of_error(error)
            branch = index, request.method, request.tables, shape, history.faulty
            yield from _ends((*histories, history), (*kind, branch))


def _shape_of_error(error: BaseException) -> Hashable:
    """Its class and its codes."""
    response = cast("Mapping[str, Any]", getattr(error, "response", None) or {})
    details = cast("Mapping[str, Any]", getattr(error, "details", None) or {})
    return (
        type(error).__qualname__,
        response.get("Error", {}).get("Code"),
        tuple(reason.get("Code") for reason in response.get("CancellationReasons", ())),
        "Item" in response,
        getattr(error, "code", None),
        tuple(failure.get("code") for failure in details.get("writeErrors", ())),
    )


def _shape(form: Hashable) -> Hashable:
    """What a handler is likely to tell apart: names, what is there and what is not, none, one and many; but no texts or amounts."""
    if isinstance(form, str):
        return bool(form)
    if not isinstance(form, tuple) or not form:
        return cast("Hashable", form)
    whole = cast("tuple[Any, ...]", form)
    kind, *parts = whole
    if kind == "map":
        return kind, frozenset((name, _shape(value)) for name, value in parts[0])
    if kind in ("int", "float"):
        amount = float(parts[0])
        return kind, amount if amount in (0.0, 1.0) else amount > 0
    if kind in ("list", "tuple", "set"):
        return kind, min(len(parts), 2), frozenset(map(_shape, parts))
    if kind == "bytes":
        return kind, bool(parts[0])
    return (kind, *map(_shape, parts)) if isinstance(kind, str) else tuple(map(_shape, whole))
