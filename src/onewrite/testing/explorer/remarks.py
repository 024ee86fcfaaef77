"""Remarks: what the reader of a report should know besides the result. Some of them mean that the test could not have failed."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.label import OUTBOX, is_ours
from onewrite.outcome import Applied, Deferred, Duplicate, Missing, Rejected, Stale
from onewrite.testing.explorer.calls import Reply
from onewrite.testing.explorer.subject import Subject
from onewrite.testing.explorer.trial import ROUNDS, Trial, TrialStep
from onewrite.testing.taps.traffic import Key, Request, commute, is_guarded

Order: TypeAlias = Sequence[int]

_MOST_ORDERS = 24  # all orders of four messages, to look for one in which nothing is raised, and each message does something
_SHOWN = 3  # requests
_CREATIONS = ("insert_one", "PutItem")
_COMPARISONS = ("COMPARE_OP", "CONTAINS_OP", "IS_OP")

# With a remark of these kinds, wrong handlers pass the test as well.
VACUOUS = ("unobserved", "idle", "unchecked", "untried")
# These say that something is probably not meant. The test can still fail.
DOUBTFUL = ("unapplied", "early", "unseen", "cancelled", "beside", "raises", "memory", "tasks")
NOTE = "note"  # how the exploration went


@dataclass(frozen=True, slots=True)
class Remark:
    """What the reader of a report should know. Its `kind` is what `assert_effectively_once(accept=...)` takes.

    | kind | fails the assertion | what it says |
    |---|---|---|
    | `"unobserved"` | yes | no message changes what `observe` sees |
    | `"idle"` | yes | a message changes nothing, for instance because another one has the same id |
    | `"unchecked"` | yes | the invariant checks nothing |
    | `"untried"` | yes | the bounds leave one schedule, in which nothing goes wrong |
    | `"unapplied"` | warns | a message writes to an entity twice, and the second write never happens |
    | `"early"` | warns | a message does nothing where it comes before, or after, another one |
    | `"unseen"` | warns | a message changes the stores, but nothing that `observe` sees |
    | `"cancelled"` | warns | all messages together change nothing that `observe` sees |
    | `"beside"` | warns | `observe` asks none of the stores |
    | `"raises"` | warns | a message raises although nothing disturbs it |
    | `"memory"` | warns | what the handler keeps in memory has survived its crashes |
    | `"tasks"` | warns | it makes a difference which task of a delivery comes first |
    | `"note"` | no | how the exploration went |
    """

    kind: str
    text: str

    @property
    def is_vacuous(self) -> bool:
        """Would wrong handlers pass this test as well?"""
        return self.kind in VACUOUS

    @property
    def is_doubtful(self) -> bool:
        return self.kind in DOUBTFUL

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class _Course:
    """What came of a part when it was processed, and processed again until it was settled."""

    error: BaseException | None = None  # what its first failed delivery raised
    changed: bool = False  # it has changed what a store holds, or what `observe` sees
    seen: bool = False  # it has changed what `observe` sees
    unapplied: Request | None = None  # a write that was taken for a duplicate of an earlier one of the same delivery
    outcomes: list[object] = field(default_factory=list[object])
    finds_nothing: bool = False  # it has asked for an entity that is not there, or has tried to change one
    is_forestalled: bool = False  # it has sent a creation of what another message has made by an upsert
    only_creates: bool = True  # all that it writes are creations

    @property
    def lost(self) -> bool:
        """Has it done nothing for good, because an entity was not there yet, or was there already?"""
        if self.changed or self.error is not None:
            return False
        return self.is_forestalled or (self.finds_nothing and not self.says_why)

    @property
    def says_why(self) -> bool:
        """Did a guarded store say that it is right to change nothing?"""
        return any(isinstance(outcome, Rejected | Missing | Stale | Deferred) for outcome in self.outcomes)


Courses: TypeAlias = Mapping[int, _Course]


class _Processed(NamedTuple):
    """What came of an order of the parts."""

    courses: Courses
    end: object  # what `observe` sees then


def remarks_on(
    subject: Subject,
    orders: Iterator[Order],
    observed: Callable[[], object],
    *,
    written: Sequence[Request],
    cancels_out: bool,
) -> Iterator[Remark]:
    """What to say about messages that raise or change nothing. The first of the orders is the one in which they were given.

    `written` is what they write when nothing disturbs them. `cancels_out`: in the end, `observe` sees what it saw at first.
    """
    given = next(orders)
    first = _processed(subject, given, observed)
    in_each_order = [first, *[_processed(subject, order, observed) for order in islice(orders, _MOST_ORDERS)]]
    courses, *others = (tried.courses for tried in in_each_order)
    raised = {part: course.error for part, course in courses.items() if course.error is not None}
    # A handler may raise to ask for another order. Then there is an order in which it need not.
    if raised and all(any(course.error is not None for course in tried.values()) for tried in others):
        for part, error in raised.items():
            text = (
                f"{_name(subject, part)} raises {in_words(error)} although nothing disturbs it, and is done only when it is "
                "delivered again. If that is not meant, mend it: a queue gives up a message after some failures."
            )
            yield Remark("raises", text)
    for part, course in courses.items():
        if course.unapplied is not None:
            text = (
                f"{_name(subject, part)} writes to one entity twice, and the second write never happens: {course.unapplied} is taken for a "
                'duplicate of the first. Give each write a part of its own, as in message.part("receipt").'
            )
            yield Remark("unapplied", text)
    # A message may have nothing to do before another one has come. Then there is an order in which all have something to do.
    better = next((tried for tried in (courses, *others) if all(map(_acts, tried.values()))), courses)
    seen = {part for tried in (courses, *others) for part, course in tried.items() if course.seen}
    for part in given:
        ends = [tried.end for tried in in_each_order if tried.courses[part].changed]
        # An upsert that has forestalled a creation may itself have written all that the creation would have.
        lost = (
            tried.courses
            for tried in in_each_order
            if tried.courses[part].lost and not (tried.courses[part].is_forestalled and tried.end in ends)
        )
        yield from islice((_on_early(subject, part, tried) for tried in lost if ends), 1)
    for place, part in enumerate(given):
        if not _acts(better[part]) and not _wins_elsewhere(part, first, in_each_order):
            yield Remark("idle", _on_idle(subject, part, given[:place], better[part]))
    if not seen:
        yield Remark("unobserved", _on_unobserved(subject, courses, written, observed))
        return
    if cancels_out:
        yield Remark(
            "cancelled",
            "In the end, observe() sees what it saw before the first message, so a handler that never does anything would pass. Give "
            "messages that do not cancel each other out, or let observe() see more of what they do.",
        )
    for part, course in better.items():
        if course.changed and part not in seen and not course.says_why:
            text = f"{_name(subject, part)} changes nothing that observe() sees: if it takes effect twice, nobody notices."
            yield Remark("unseen", text)


def remark_on_invariant(invariant: Callable[..., Any], *, asks: bool) -> Iterator[Remark]:
    """What to say about an invariant that returned None each time, and that asks the stores or does not."""
    if _throws_away_a_comparison(invariant):
        yield Remark("unchecked", "The invariant compares, and does nothing with the result: return it, or assert it.")
    elif not asks:
        yield Remark("unchecked", "The invariant returns None each time, and asks none of the stores: it checks nothing.")


def _throws_away_a_comparison(function: Callable[..., Any]) -> bool:
    """Does its code have a comparison for a statement, such as `left >= 0` where `return left >= 0` is meant?"""
    code = getattr(inspect.unwrap(function), "__code__", None)
    names = [] if code is None else [one.opname for one in dis.get_instructions(code)]
    return any(one in _COMPARISONS and other == "POP_TOP" for one, other in pairwise(names))


def in_words(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _acts(course: _Course) -> bool:
    return course.changed or course.says_why


def _wins_elsewhere(part: int, loser: _Processed, in_each_order: Sequence[_Processed]) -> bool:
    """Does a part that changes nothing in one order only create in another, where it comes first, and does the end show that?

    Two want one seat. Who takes one message for another by mistake ends alike in both orders, does more than create, or is a Duplicate.
    """
    if any(isinstance(outcome, Duplicate) for outcome in loser.courses[part].outcomes):
        return False
    others = ((tried.courses[part], tried.end) for tried in in_each_order)
    return any(course.changed and course.only_creates and end != loser.end for course, end in others)


def _on_early(subject: Subject, part: int, courses: Courses) -> Remark:
    """About a part that came too early, or too late, to have its effect. The courses are in the order of the parts."""
    order = list(courses)
    place = order.index(part)
    earlier, later = (", ".join(_name(subject, other) for other in some) for some in (order[:place], order[place + 1 :]))
    if courses[part].is_forestalled:
        applied = any(isinstance(outcome, Applied) for outcome in courses[part].outcomes)
        text = (
            f"{_name(subject, part)} {'is Applied and writes nothing but its mark' if applied else 'is refused for good'} where it comes "
            f"after {earlier}, which has created its entity: what it writes elsewhere is lost. If that is not meant, let the others not "
            "create the entity: without an upsert they are Missing, and come again."
        )
    else:
        where = f"before {later}" if later else f"after {earlier}"
        text = (
            f"{_name(subject, part)} finds nothing and does nothing where it comes {where}, and never comes again. If its effect is lost "
            "by that, raise there, or let a guarded write answer Missing: both bring it back."
        )
    return Remark("early", text)


def _on_unobserved(subject: Subject, courses: Courses, written: Sequence[Request], observed: Callable[[], object]) -> str:
    value = observed()
    looked = subject.asked
    what = "No message changes what observe() sees"
    if value is None:
        what += ", which is None: perhaps it lacks a return"
    elif not looked:
        what += ": it asks none of the stores"
    refusals = [type(outcome).__name__ for course in courses.values() for outcome in course.outcomes if course.says_why]
    if refusals and all(course.says_why for course in courses.values()):
        return f"{what}. Each message was {', '.join(dict.fromkeys(refusals))}: does world() put in what they need?"
    if looked and written:
        what += f". It asks {_listed(looked)}; the handler writes {_listed(written)}"
    return f"{what}. A handler that does everything twice would pass. Let observe() return what the handler changes."


def _listed(requests: Sequence[Request]) -> str:
    names = list(dict.fromkeys(map(str, requests)))
    return ", ".join([*names[:_SHOWN], *(["others"] if len(names) > _SHOWN else [])])


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


def _processed(subject: Subject, order: Order, observed: Callable[[], object]) -> _Processed:
    """Process the parts in this order, one at a time, and again those that are not settled by then."""
    courses = {part: _Course() for part in order}
    trial = Trial(subject)
    upserted: set[Key] = set()  # what was made in this order, but not by a creation
    try:
        for _ in range(ROUNDS):
            for part in [part for part in order if part not in trial.progress.settled]:
                _process(trial, part, courses[part], lambda: (subject.machine.state, observed()), upserted)
        return _Processed(courses, observed())
    finally:
        trial.abandon()


def _process(
    trial: Trial, part: int, course: _Course, seen: Callable[[], tuple[Hashable, object]], upserted: set[Key]
) -> None:
    before, first, held = seen(), len(trial.steps), trial.keys_held()
    owner = next(message for message, parts in enumerate(trial.progress.parts) if part in parts)
    answer: Reply = trial.deliver(owner, (part,))
    after, left = seen(), trial.keys_held()
    writes = [
        step.taken.request for step in trial.steps[first:] if step.taken.request is not None and step.taken.request.writes
    ]
    course.only_creates = course.only_creates and all(map(_is_creation, writes))
    # Of a guarded creation that finds its entity there, nothing is left but its mark.
    if not (writes and all(_sets_on_insert(write) and set(write.keys or ()) & upserted & held for write in writes)):
        course.changed = course.changed or after != before
        course.seen = course.seen or after[1] != before[1]
    course.error = course.error or answer.error
    course.outcomes += trial.steps[-1].outcomes
    course.unapplied = course.unapplied or _unapplied(trial.steps[first:])
    created: set[Key] = set()
    for step in trial.steps[first:]:
        request = step.taken.request
        if request is None:
            continue
        keys = set(request.keys or ())
        if _is_creation(request):
            created |= keys
            # What has another key is refused by a unique index, and so is for one of those that were made.
            made = (
                upserted
                if not keys & held and any(isinstance(one, Rejected) for one in course.outcomes)
                else keys & upserted
            )
            course.is_forestalled = course.is_forestalled or bool(made)
        else:
            is_absent = bool(keys) and not keys & (held | left)
            nothing = (
                is_absent or (not request.writes and any(_is_nothing(request, answer) for answer in step.answers))
            ) and not _is_for_a_relay(request)
            course.finds_nothing = course.finds_nothing or nothing
    upserted |= left - held - created


def _is_creation(request: Request) -> bool:
    return request.method in _CREATIONS or _sets_on_insert(request)


def _sets_on_insert(request: Request) -> bool:
    """Does it write nothing to a document that is there, but perhaps the mark of a guarded write?"""
    update = request.arguments.get("update")
    if not isinstance(update, Mapping) or "$setOnInsert" not in update:
        return False
    changes = cast("Mapping[str, Mapping[str, object]]", update)
    fields = {path.partition(".")[0] for name, change in changes.items() if name != "$setOnInsert" for path in change}
    return all(is_ours(field) and field not in OUTBOX for field in fields)


def _is_for_a_relay(request: Request) -> bool:
    """Does it ask for what is pending? That there is none yet is no loss: an event has its own doorbell."""
    asked = str(request.arguments)
    return not request.writes and (OUTBOX.events in asked or OUTBOX.due in asked)


def _is_nothing(request: Request, answer: Reply) -> bool:
    """Is this the answer to a reading that has found nothing?"""
    if answer.error is not None:
        return False
    if request.method == "GetItem":
        return "Item" not in answer.value
    if request.method in ("Query", "Scan"):
        return not answer.value["Items"]
    return answer.value is None or answer.value in (0, [])


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
            if (is_guarded(request) or request.method in _CREATIONS) and not all(
                commute(request, earlier) for earlier in written
            ):
                return request
            written.append(request)
    return None


def _name(subject: Subject, part: int) -> str:
    ids: list[Any] = [name for deliverable in subject.deliverables for name in deliverable.ids]
    return str(ids[part])
