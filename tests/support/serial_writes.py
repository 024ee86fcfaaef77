"""Guarded writes of single messages to one entity in memory, and whether what callers were told is what some order of them gives.

The search is exact: it tries every order of the writes that agrees with each answer, and compares the end with what the entity holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from onewrite import Applied, Busy, Deferred, Message, Outcome, Rejected, Stale
from onewrite.core.label import Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import ABSENT, Advance, Entry, Remember

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
    """`limit`: what `n` may not exceed, if there is a limit. `begun_messages` are those whose effect nobody finishes."""

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
        return refusal, entity
    if rules.limit is not None and entity.n + amount(message) > rules.limit:
        return Rejected(message), gaining(entity, entry) if entry.own.requires_predecessor else entity
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


def gaining(entity: Entity, entry: Entry) -> Entity:
    """The entity with the marks of all messages of which the entry is."""
    marks: dict[Slot, Any] = dict(entity.marks) | {label.slot: label.text for label in entry.terms.labels}
    for slot in entry.dead:
        marks.pop(slot, None)
    for change in entry.written:
        if isinstance(change, Advance):
            marks[change.slot] = change.mark
        elif isinstance(change, Remember):
            marks[change.sets.present] = marks.get(change.sets.present, frozenset()) | {change.mark}
    return entity._replace(exists=True, marks=tuple(sorted(marks.items())))


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
