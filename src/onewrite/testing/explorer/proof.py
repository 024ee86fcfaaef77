"""Check, by running the handler, that its behavior depends only on its responses, and not on earlier deliveries.

A *course* is a recorded delivery from its start to its end. A handler that opens a circuit breaker after throttling, or that gives
up a message after its second write was refused, behaves differently in the next course. There are too many sequences of courses to
run all of them. This module therefore runs three checks, in which the handler must always show the recorded behavior:

- One handler runs a course of each kind, and some more, in a random order, with as many in progress at once as the bounds allow.
  Courses are of one kind if they send the same requests and get responses of the same shape: see `_make_shape`. Each recorded kind of
  response is therefore given once more, with other courses after it.
- In newly built handlers, each message is delivered undisturbed after a course of each kind, and within the course, at each of its
  requests. The effects of one course on the handler's memory are thus tested in isolation.
- A few courses are drawn at random and run in sequence, with no more faults than the bounds allow.

The checks don't send requests to the stores, but use the recorded responses. The explorer can't read the handler's memory, so it
runs these checks for each recalled handler. They take about as much time as the search that they verify.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any, NamedTuple, cast

from onewrite.testing.explorer.calls import HandlerCall
from onewrite.testing.explorer.modes import Deliveries
from onewrite.testing.explorer.recall import History, Recall, copy_replies, copy_reply
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.explorer.subject import Subject

_MAX_PLACES = 200  # within courses: takes a second or two if the handler is slow
_RANDOM_SEQUENCES = 20
_CONTINUES_BEFORE_NEXT = 0.5  # the probability that a delivery continues before another one begins
_LONGEST = 6  # sequence, in courses: all deliveries of three messages with the default bounds


class _Course(NamedTuple):
    """A recorded delivery: its behavior at the start, and after each response up to its end."""

    histories: tuple[History, ...]
    kind: tuple[Hashable, ...]

    @property
    def message(self) -> int:
        return self.histories[0].delivery.message

    @property
    def faults(self) -> int:
        return sum(history.faulty for history in self.histories)


def prove(subject: Subject, recall: Recall) -> None:
    """Raise `WrongModeError` if the handler's behavior differs from the recorded behavior."""
    draw = Random("onewrite")
    roots = recall.roots.values()
    courses = [course for root in roots for course in _list_courses((root,), ((root.delivery.message, root.parts),))]
    by_kind = {course.kind: course for course in reversed(courses)}
    others = [course for course in courses if by_kind[course.kind] is not course]
    selection = [*by_kind.values(), *draw.sample(others, min(len(others), len(by_kind) // 2))]
    with _Process(subject, recall) as process:
        process.deliver_at_once(draw.sample(selection, len(selection)), draw)
    kinds = [course for course in by_kind.values() if course.faults <= subject.bounds.faults]
    _prove_after_each_course(subject, recall, kinds, draw)
    _prove_sequences(subject, recall, kinds, draw)


def _prove_after_each_course(subject: Subject, recall: Recall, kinds: Sequence[_Course], draw: Random) -> None:
    """Deliver each message undisturbed at each place in a course, and after its end."""
    places: dict[Hashable, tuple[_Course, int]] = {}  # one place for each kind of a course up to there
    undisturbed: dict[
        Hashable, _Course
    ] = {}  # one course for each message, and for each delivery if the handler can tell them apart
    is_alike = subject.mode.deliveries is Deliveries.ALIKE
    for course in kinds:
        for at in range(len(course.histories)):
            places.setdefault(course.kind[: at + 1], (course, at))
        if not course.faults:
            root = course.histories[0]
            undisturbed.setdefault(root.parts if is_alike else root, course)
    for one, at in draw.sample([*places.values()], min(len(places), _MAX_PLACES)):
        others = [other for other in undisturbed.values() if _may_come(subject.start.bounds, one, at, other)]
        if not others:
            continue
        with _Process(subject, recall) as process:
            for other in draw.sample(others, len(others)):
                paused = process.begin(one, at)
                process.begin(other, len(other.histories) - 1)
                paused.resume_to_end()


def _prove_sequences(subject: Subject, recall: Recall, kinds: Sequence[_Course], draw: Random) -> None:
    """Run some sequences of a few courses that the bounds allow."""
    for _ in range(_RANDOM_SEQUENCES):
        faults = subject.bounds.faults
        sequence: list[_Course] = []
        for _ in range(_LONGEST):
            sequence.append(draw.choice([course for course in kinds if course.faults <= faults]))
            faults -= sequence[-1].faults
        with _Process(subject, recall) as process:
            process.deliver_at_once(sequence, draw)


def _may_come(bounds: Bounds, one: _Course, at: int, other: _Course) -> bool:
    """Whether the bounds allow the other course to run while the first one is paused at this place, or has ended."""
    has_ended = at == len(one.histories) - 1
    return has_ended or (bounds.concurrency > 1 and (one.message != other.message or bounds.deliveries > 1))


class _Process(ExitStack):
    """A newly built handler, and its deliveries."""

    def __init__(self, subject: Subject, recall: Recall) -> None:
        super().__init__()
        self.invocation = subject.begin()
        self._subject = subject
        self._recall = recall

    def deliver_at_once(self, courses: Iterable[_Course], draw: Random) -> None:
        """Run these courses concurrently, up to the concurrency of the bounds."""
        concurrency = self._subject.start.bounds.concurrency
        running: list[_RunningCourse] = []
        for course in courses:
            running.append(self.begin(course))
            while running and (len(running) == concurrency or draw.random() < _CONTINUES_BEFORE_NEXT):
                chosen = draw.choice(running)
                if not chosen.resume():
                    running.remove(chosen)
        for rest in running:
            rest.resume_to_end()

    def begin(self, course: _Course, at: int = 0) -> _RunningCourse:
        """Run a course up to its first request, or up to the request after this many responses."""
        root = course.histories[0]
        invocation = self._subject.build() if self._subject.mode.has_own_processes else self.invocation
        call = self._subject.call(invocation, root.delivery, root.parts, copy_replies(course.histories[at]))
        running = _RunningCourse(self._subject, self._recall, course, call, at)
        self.callback(running.close)
        return running


class _RunningCourse:
    """A running course. Each time that it pauses, it is compared with the recorded behavior."""

    def __init__(self, subject: Subject, recall: Recall, course: _Course, call: HandlerCall, at: int) -> None:
        self.course = course
        self._subject = subject
        self._recall = recall
        self._call = call
        self._at = at
        self._is_open = True
        self._compare()

    def resume(self) -> bool:
        """Pass the next response to the course. Return False if the course has ended."""
        if self._is_open:
            self._pass_responses(self._at + 1)
        return self._is_open

    def resume_to_end(self) -> None:
        """Pass the other responses to the course."""
        if self._is_open:
            self._pass_responses(len(self.course.histories) - 1)

    def _pass_responses(self, last: int) -> None:
        """Pass the next responses to the course, up to this one, and compare its behavior after each."""
        (index, answer), *later = [
            (history.request_index, copy_reply(history.answer)) for history in self.course.histories[self._at + 1 : last + 1]
        ]
        self._at = last
        self._call.resume(answer, index, later)
        self._compare()

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


def _list_courses(histories: tuple[History, ...], kind: tuple[Hashable, ...]) -> Iterator[_Course]:
    """Yield the courses that begin with these histories. `kind` describes the histories."""
    last = histories[-1]
    if last.does is not None and last.stop.has_ended:
        yield _Course(histories, (*kind, last.does))
    else:
        for (index, form), history in last.after.items():
            request = last.stop.pending[index].request
            error = history.answer.error
            shape = _make_shape(form) if error is None else _describe_error(error)
            branch = index, request.method, request.tables, shape, history.faulty
            yield from _list_courses((*histories, history), (*kind, branch))


def _describe_error(error: BaseException) -> Hashable:
    """Return the error's class and its codes."""
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


def _make_shape(form: Hashable) -> Hashable:
    """Return the shape of a response, on which handlers are likely to branch.

    The shape contains names, whether values are present, and whether there are none, one, or many, but not strings or amounts.
    """
    if isinstance(form, str):
        return bool(form)
    if not isinstance(form, tuple) or not form:
        return cast("Hashable", form)
    whole = cast("tuple[Any, ...]", form)
    kind, *parts = whole
    if kind == "map":
        return kind, frozenset((name, _make_shape(value)) for name, value in parts[0])
    if kind in ("int", "float"):
        amount = float(parts[0])
        return kind, amount if amount in (0.0, 1.0) else amount > 0
    if kind in ("list", "tuple", "set"):
        return kind, min(len(parts), 2), frozenset(map(_make_shape, parts))
    if kind == "bytes":
        return kind, bool(parts[0])
    return (kind, *map(_make_shape, parts)) if isinstance(kind, str) else tuple(map(_make_shape, whole))
