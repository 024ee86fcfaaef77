"""Remarks on undisturbed processing. None of them is a failure: they say what is probably not meant."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from onewrite.outcome import Applied, Deferred, Duplicate, Missing, Rejected, Stale
from onewrite.testing.explorer.handler.calls import Answer
from onewrite.testing.explorer.trials.subject import Subject
from onewrite.testing.explorer.trials.trial import ROUNDS, Trial, TrialStep
from onewrite.testing.taps.traffic import Request, commute, is_guarded

Order: TypeAlias = Sequence[int]

_MOST_ORDERS = 24  # all orders of four messages, to look for one in which nothing is raised


@dataclass(slots=True)
class _Course:
    """What came of a part when it was processed, and processed again until it was settled."""

    error: BaseException | None = None  # what its first failed delivery raised
    changed: bool = False
    unapplied: Request | None = None  # a write that was taken for a duplicate of an earlier one of the same delivery
    outcomes: list[object] = field(default_factory=list[object])

    @property
    def says_why(self) -> bool:
        """Did a guarded store say that it is right to change nothing?"""
        return any(isinstance(outcome, Rejected | Missing | Stale | Deferred) for outcome in self.outcomes)


def remarks_on(subject: Subject, orders: Iterator[Order], observed: Callable[[], object]) -> Iterator[str]:
    """What to say about messages that raise or change nothing. The first of the orders is the one in which they were given."""
    given = next(orders)
    courses = _processed(subject, given, observed)
    raised = {part: course.error for part, course in courses.items() if course.error is not None}
    # A handler may raise to ask for another order. Then there is an order in which it need not.
    if raised and all(_raises(subject, order) for order in islice(orders, _MOST_ORDERS)):
        for part, error in raised.items():
            yield (
                f"{_name(subject, part)} raises {in_words(error)} although nothing disturbs it, and is done only when it is "
                "delivered again. If that is not meant, mend it: a queue gives up a message after some failures."
            )
    for part, course in courses.items():
        if course.unapplied is not None:
            yield (
                f"{_name(subject, part)} writes to one entity twice, and the second write never happens: {course.unapplied} is taken for a "
                'duplicate of the first. Give each write a part of its own, as in message.part("receipt").'
            )
    for place, part in enumerate(given):
        if not courses[part].changed and not courses[part].says_why:
            yield _on_idle(subject, part, given[:place], courses[part])


def in_words(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _on_idle(subject: Subject, part: int, earlier: Order, course: _Course) -> str:
    names = ", ".join(_name(subject, other) for other in earlier)
    what = f"{_name(subject, part)} changes nothing when it is processed undisturbed{f' after {names}' if names else ''}"
    if any(isinstance(outcome, Duplicate) for outcome in course.outcomes):
        what += ", because the guarded store takes it for a duplicate"
    if not earlier:
        return f"{what}. If it should, check the condition of its write, and what world() puts into the store."
    return (
        f"{what}. If it should, check by what the handler tells messages apart: an order id or a digest of the payload may be "
        "the same in two messages."
    )


def _raises(subject: Subject, order: Order) -> bool:
    return any(course.error is not None for course in _processed(subject, order, lambda: None).values())


def _processed(subject: Subject, order: Order, observed: Callable[[], object]) -> Mapping[int, _Course]:
    """Process the parts in this order, one at a time, and again those that are not settled by then."""
    courses = {part: _Course() for part in order}
    trial = Trial(subject)
    try:
        for _ in range(ROUNDS):
            for part in [part for part in order if part not in trial.progress.settled]:
                _process(trial, part, courses[part], lambda: (subject.machine.state, observed()))
    finally:
        trial.abandon()
    return courses


def _process(trial: Trial, part: int, course: _Course, seen: Callable[[], tuple[Hashable, object]]) -> None:
    before, first = seen(), len(trial.steps)
    answer: Answer = trial.deliver(_owner(trial, part), (part,))
    course.changed = course.changed or seen() != before
    course.error = course.error or answer.error
    course.outcomes += trial.steps[-1].outcomes
    course.unapplied = course.unapplied or _unapplied(trial.steps[first:])


def _unapplied(steps: Sequence[TrialStep]) -> Request | None:
    """A guarded write of this delivery that came to an entity after another write of the same message."""
    applied: set[Hashable] = set()
    was_repeated = False
    for outcome in steps[-1].outcomes:
        if isinstance(outcome, Applied):
            applied.add((outcome.message.source, outcome.message.id, outcome.message.parts))
        elif isinstance(outcome, Duplicate):
            whose = outcome.message.source, outcome.message.id, outcome.message.parts
            was_repeated = was_repeated or whose in applied
    written: list[Request] = []
    for step in steps if was_repeated else ():
        request = step.taken.request
        if request is not None and request.writes:
            if is_guarded(request) and not all(commute(request, earlier) for earlier in written):
                return request
            written.append(request)
    return None


def _owner(trial: Trial, part: int) -> int:
    return next(message for message, parts in enumerate(trial.progress.parts) if part in parts)


def _name(subject: Subject, part: int) -> str:
    ids: list[Any] = [name for deliverable in subject.deliverables for name in deliverable.ids]
    return str(ids[part])
