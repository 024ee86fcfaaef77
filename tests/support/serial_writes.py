"""Guarded writes of single messages to one entity in memory, and whether what callers were told is what some order of them gives.

The search is exact: it tries every order of the writes that agrees with each answer, and compares the end with what the entity holds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

from onewrite import Applied, Busy, Deferred, Duplicate, Message, Outcome, Rejected, Stale
from onewrite.core import write as core_write
from onewrite.core.engine import Native
from onewrite.core.flow import Do, Flow
from onewrite.core.folding import FoldedWrites, Plan, join, make_entries
from onewrite.core.label import Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Lookup, Remember
from onewrite.core.pipeline import Landed, Refusal
from onewrite.core.step import StepRequest, new_step, step_mark
from onewrite.core.write import NO_STEP, Image

NOW = 1_790_000_000.0
Verdict: TypeAlias = tuple[Any, ...]  # the name of an outcome, and what it says of the ledger


class Entity(NamedTuple):
    """What the database has. `n` is the sum of the amounts in the bodies of the messages that took effect, in the order of `effects`."""

    exists: bool = False
    n: int = 0
    effects: tuple[str, ...] = ()
    is_gone: bool = False
    marks: tuple[tuple[Slot, Any], ...] = ()  # sorted

    def look(self, slot: Slot) -> object:
        return dict(self.marks).get(slot, ABSENT)


@dataclass(frozen=True)
class Rules:
    """`limit`: what `n` may not exceed, if there is a limit. `begun` are the messages whose step nobody finishes."""

    ledger: Ledger
    limit: int | None = None
    begun_messages: tuple[Message, ...] = ()


def amount(message: Message) -> int:
    return int(message.body)


def highest(messages: Sequence[Message]) -> int:
    """The most that the messages add on their way, one after the other."""
    sums = [sum(map(amount, messages[: n + 1])) for n in range(len(messages))]
    return max(sums)


def verdict_of(outcome: Outcome) -> Verdict:
    match outcome:
        case Stale(mark=mark):
            return ("Stale", mark)
        case Deferred(expected=number):
            return ("Deferred", number)
        case _:
            return (type(outcome).__name__,)


# --- one write --------------------------------------------------------------------------------------------------------


def add(rules: Rules, entity: Entity, message: Message) -> tuple[Outcome, Entity]:
    """What becomes of the message and of the entity, if it is written now."""
    if message in rules.begun_messages:
        return Busy(message, NOW), entity
    entry = rules.ledger.entry(message, NOW)
    refusal = entry.judge(message, entity.look, is_gone=entity.is_gone)
    if refusal is not None:
        return refusal, gaining(entity, entry.passing) if moves(entry, message, entity.look, entity) else entity
    if rules.limit is not None and entity.n + amount(message) > rules.limit:
        return Rejected(message), gaining(entity, entry) if entry.own.counts else entity
    changed_entity = gaining(entity, entry)
    return Applied(message), changed_entity._replace(
        n=changed_entity.n + amount(message), effects=(*changed_entity.effects, message.id)
    )


def delete(rules: Rules, entity: Entity, message: Message) -> tuple[Outcome, Entity]:
    entry = rules.ledger.entry(message, NOW)
    refusal = entry.judge(message, entity.look, is_gone=entity.is_gone)
    if refusal is not None:
        return refusal, entity
    if rules.begun_messages:
        return Busy(message, NOW), entity
    return Applied(message), gaining(entity, entry)._replace(is_gone=True)


def moves(entry: Entry, message: Message, look_up: Lookup, entity: Entity) -> bool:
    """Does a mark that counts move over the message, which a ledger in also= holds?"""
    is_held = any(change.judge(message, look_up, None) is not None for change in entry.also)
    return entry.own.counts and is_held and not entity.is_gone and entry.own.judge(message, look_up, None) is None


def gaining(entity: Entity, entry: Entry) -> Entity:
    """The entity with the marks of all messages of which the entry is."""
    marks: dict[Slot, Any] = dict(entity.marks) | {label.slot: label.text for label in entry.terms.labels}
    for slot in entry.dead:
        marks.pop(slot, None)
    for change in entry.written_changes:
        if isinstance(change, Advance):
            marks[change.slot] = change.reaches
        elif isinstance(change, Remember):
            marks[change.sets.present] = marks.get(change.sets.present, frozenset()) | {change.mark}
    return entity._replace(exists=True, marks=tuple(sorted(marks.items())))


def lets_in(entity: Entity, entry: Entry) -> bool:
    """The condition of a write of one message or several, as an engine has it."""
    return not entity.is_gone and all(_lets_past(entity, change) for change in entry.changes)


def _lets_past(entity: Entity, change: Change) -> bool:
    if isinstance(change, Remember):
        sets: list[Any] = [entity.look(slot) for slot in change.sets.live]
        return not any(mark in marks for marks in sets if marks is not ABSENT for mark in (change.mark, *change.aliases))
    assert isinstance(change, Advance), "a fold takes no other ledgers"
    stored_mark: Any = entity.look(change.slot)
    if stored_mark is ABSENT:
        return change.rule != "next"
    return bool(stored_mark < change.mark if change.rule == "below" else stored_mark == int(change.mark) - 1)


# --- the order of several ---------------------------------------------------------------------------------------------


class Write(NamedTuple):
    """A write of which the caller was told something. None: the caller died, so it may have been done or not."""

    kind: Literal["add", "delete"]
    message: Message
    verdict: Verdict | None


_WAYS: Mapping[str, Callable[[Rules, Entity, Message], tuple[Outcome, Entity]]] = {"add": add, "delete": delete}


def is_serial(rules: Rules, start: Entity, end: Entity, writes: Sequence[Write]) -> bool:
    """Is there an order of these writes that gives what the callers were told, and leaves what there is in the end?"""
    visits: set[tuple[Entity, frozenset[int]]] = set()

    def leads_to_the_end(entity: Entity, places: frozenset[int]) -> bool:
        results = {place: _WAYS[writes[place].kind](rules, entity, writes[place].message) for place in places}
        # What changes nothing, and was told so, may as well come now.
        places_left = frozenset(
            place
            for place in places
            if results[place][1] != entity or verdict_of(results[place][0]) != writes[place].verdict
        )
        if (entity, places_left) in visits:
            return False
        visits.add((entity, places_left))
        if all(writes[place].verdict is None for place in places_left) and visible_part(entity) == visible_part(end):
            return True
        return any(
            leads_to_the_end(next_entity, places_left - {place})
            for place in sorted(places_left)
            for outcome, next_entity in [results[place]]
            if next_entity != entity and writes[place].verdict in (None, verdict_of(outcome))
        )

    return leads_to_the_end(start, frozenset(range(len(writes))))


def visible_part(entity: Entity) -> Entity:
    """What there is to see: of what was deleted, the ledger alone."""
    return entity._replace(n=0, effects=()) if entity.is_gone else entity


def in_turns(rules: Rules, start: Entity, messages: Sequence[Message]) -> tuple[list[Outcome], Entity]:
    """What single writes of the messages give, in this order."""
    entity, outcomes = start, list[Outcome]()
    for message in messages:
        outcome, entity = add(rules, entity, message)
        outcomes.append(outcome)
    return outcomes, entity


# --- several in one write ----------------------------------------------------------------------------------------------


NOTHING = Entity()


@dataclass
class Memory(FoldedWrites[Any]):
    """An engine whose entity is in memory, for folds. `writes` are the ids of each try.

    `fits`: of how many messages a write may be. `looks`: does it look after it was refused? `before`: what others do before each try.
    """

    rules: Rules
    entity: Entity = NOTHING
    most: int = 1000
    too_much, step = (), NO_STEP
    fits: int = 1000
    looks: bool = False
    before: Callable[[], object] = lambda: None
    requests: int = 0
    writes: list[list[str]] = field(default_factory=list[list[str]])

    def entry(self, message: Message) -> Entry:
        return self.rules.ledger.entry(message, NOW)

    @property
    def max_messages(self) -> int:
        return self.most

    def check_looks(self, entry: Entry) -> None:
        """Every mark can be stored here."""

    def build(self, write: Any, native: Native) -> Any:
        raise NotImplementedError

    def read_entity(self, native: Native) -> Any:
        return native["entity"]

    def canonical(self, entity: object, /) -> Hashable:
        return repr(entity)

    def write_all(self, plan: Plan, native: Native) -> Flow[Landed | Refusal | None]:
        written = [one.message for one in plan.fresh]
        assert written == (native.get("messages", written) if written else [])
        if len(written) > self.fits:
            return None
        refused_by: Entity | None = yield Do(self._try, (written, [one.message for one in plan.moved]))
        if refused_by is None:
            return Landed()
        entity: Entity = (yield Do(self._read)) if self.looks else refused_by

        attribute, request = self.rules.ledger.attribute, StepRequest("charge", timedelta(minutes=1), timedelta(0))
        steps = {
            step_mark(attribute, message).hex(): new_step(attribute, message, request, "call", NOW).as_fields()
            for message in self.rules.begun_messages
        }
        first = plan.moved[0]
        image = Image(entity.exists, entity.is_gone, None, entity.look, steps, {}, null_is_absent=False)
        return Refusal(core_write.Write(first.message, {}, NOW, first.entry, NO_STEP), image)

    def pass_one(self, message: Message, native: Native) -> Flow[Outcome | None]:
        outcome: Outcome = yield Do(self._add, (message,))
        return None if isinstance(outcome, Duplicate) else outcome

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        assert native.get("messages", [message]) == [message]
        outcome: Outcome = yield Do(self._add, (message,))
        return outcome

    def _try(self, written: list[Message], moved: list[Message]) -> Entity | None:
        self._note(written)
        entry = join(make_entries(self.rules.ledger, written, moved, NOW))
        busy = any(message in self.rules.begun_messages for message in written)
        over = self.rules.limit is not None and bool(written) and self.entity.n + highest(written) > self.rules.limit
        if busy or over or not lets_in(self.entity, entry):
            return self.entity
        changed = gaining(self.entity, entry)
        n, ids = changed.n + sum(map(amount, written)), [message.id for message in written]
        self.entity = changed._replace(n=n, effects=(*changed.effects, *ids))
        return None

    def _read(self) -> Entity:
        self.requests += 1
        return self.entity

    def _add(self, message: Message) -> Outcome:
        self._note([message])
        outcome, self.entity = add(self.rules, self.entity, message)
        return outcome

    def _note(self, written: list[Message]) -> None:
        self.before()
        self.requests += 1
        self.writes.append([message.id for message in written])
