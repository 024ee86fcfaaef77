"""The conditions and changes that a guarded write adds to the caller's own call, on any engine. Pure.

`list_conditions` and `list_changes` are the guarantee: the entity meets every condition, and gets every change, in one write, or the
write doesn't happen. Each engine's `dialect.py` spells every kind of condition and change in its own language, and knows nothing else
of ledgers, effects, and outboxes. To add a part to a write, add its conditions and changes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from onewrite.core.label import OUTBOX, TOKEN, TOMBSTONE, Label, Slot
from onewrite.core.ledgers.entry import Advance, Remember
from onewrite.core.write import Begins, Burial, Finishes, NoEffect, NoEffectAtAll, Withdraws, Write

# --- conditions --------------------------------------------------------------------------------------------------------


class Absent(NamedTuple):
    """The field is absent."""

    name: str


class HasFence(NamedTuple):
    """The effect with this hash is open, and has this fence."""

    effect_hash: str
    fence: str


class LacksEffects(NamedTuple):
    """None of these effects is open."""

    effect_hashes: Sequence[str]


class OnlyEffects(NamedTuple):
    """Exactly these effects are open, by their hashes, each as it was read."""

    effects: tuple[tuple[str, Any], ...]


class Lacks(NamedTuple):
    """None of the sets contains any of the marks."""

    slots: Sequence[Slot]
    marks: Sequence[str]


class IsPast(NamedTuple):
    """The stored mark is at this one or past it."""

    slot: Slot
    mark: int | str


class OutboxFits(NamedTuple):
    """The entity has the outbox with this label, or none. Otherwise, events would be appended to a different one."""

    label: str


Condition: TypeAlias = Absent | HasFence | LacksEffects | OnlyEffects | Label | Lacks | Advance | IsPast | OutboxFits
"""A `Label`: the stored label is absent or one that it accepts. An `Advance`: the stored mark is before its mark, by its rule."""


# --- changes -----------------------------------------------------------------------------------------------------------


class Set(NamedTuple):
    """Set the slot."""

    slot: Slot
    value: Any


class SetOnce(NamedTuple):
    """Set the field if it's absent."""

    name: str
    value: Any


class Append(NamedTuple):
    """Append to the list."""

    name: str
    values: Sequence[Any]


class AddMarks(NamedTuple):
    """Add the marks to the set."""

    slot: Slot
    marks: Sequence[str]


class Remove(NamedTuple):
    """Remove the slots."""

    slots: Sequence[Slot]


class OpenEffect(NamedTuple):
    """Store the effect."""

    effect_hash: str
    fields: dict[str, Any]


class EndEffects(NamedTuple):
    """Remove the effects. `are_all`: the entity has no other ones."""

    effect_hashes: Sequence[str]
    are_all: bool = False


Change: TypeAlias = Set | SetOnce | Append | AddMarks | Remove | OpenEffect | EndEffects | Burial
"""A `Burial`: turn the entity into its tombstone."""


# --- the guarantee -----------------------------------------------------------------------------------------------------


def list_conditions(write: Write) -> Iterator[Condition]:
    """Yield the conditions of a write, in addition to the caller's own."""
    entry, effect = write.entry, write.effect
    match effect:
        case Finishes() | Withdraws():
            yield HasFence(write.effect_hash, effect.fence)  # the fence alone proves that this worker can finish the effect
        case NoEffectAtAll(unsent):
            yield Absent(TOMBSTONE)
            yield OnlyEffects(unsent)
        case NoEffect() | Begins():
            yield Absent(TOMBSTONE)
            yield LacksEffects(write.hash_effects(*write.messages))
    yield from entry.terms.labels
    if not isinstance(effect, Finishes):
        for change in entry.checked:
            yield Lacks(change.sets.live, (change.mark, *change.aliases)) if isinstance(change, Remember) else change
    elif isinstance(entry.own, Advance):  # only the order matters, because the begin already checked the message
        yield IsPast(entry.own.slot, entry.own.mark) if effect.overtaken else entry.own
    if write.emission is not None and write.has_outbox_condition:
        yield OutboxFits(write.emission.label)


def list_changes(write: Write) -> Iterator[Change]:
    """Yield the changes of a write, in addition to the caller's own."""
    effect, emission = write.effect, write.emission
    match effect:
        case NoEffect() | NoEffectAtAll(()):
            pass
        case NoEffectAtAll(unsent):
            yield EndEffects([effect_hash for effect_hash, _ in unsent], are_all=True)
        case Begins():
            yield OpenEffect(write.effect_hash, effect.effect.as_fields())
        case Finishes() | Withdraws():
            yield EndEffects((write.effect_hash,))
    if not isinstance(effect, Withdraws):
        for label in write.entry.terms.labels:
            yield Set(label.slot, label.text)
        if not isinstance(effect, Begins):
            yield from _list_ledger_changes(write)
    if write.token is not None:
        yield Set(_TOKEN, write.token)
    if emission is not None and emission.events:
        yield Set(_OUTBOX_LABEL, emission.label)
        yield Append(OUTBOX.events, emission.events)
        # Both keep the oldest event's values. The index then shows that event's age, and the entity stays in one partition.
        yield SetOnce(OUTBOX.due, emission.due)
        yield SetOnce(OUTBOX.shard, emission.shard)
    if write.burial is not None:
        yield write.burial


def _list_ledger_changes(write: Write) -> Iterator[Change]:
    """Yield the changes that record the messages."""
    entry, effect = write.entry, write.effect
    if isinstance(entry.own, Remember):
        yield AddMarks(entry.own.sets.present, [change.mark for change in entry.written if isinstance(change, Remember)])
        yield Remove(entry.dead)
    elif not (isinstance(effect, Finishes) and effect.overtaken):  # then later messages have moved the mark, which stays
        # Several messages of one source move its mark to the last one's.
        for slot, mark in {change.slot: change.mark for change in entry.written if isinstance(change, Advance)}.items():
            yield Set(slot, mark)


_TOKEN, _OUTBOX_LABEL = Slot(TOKEN), Slot(OUTBOX.label)
