"""What each part of a guarded write asks of an item, and what it changes in it: condition, change and values in one place. Pure.

`add_parts` is the list of the parts. A new part is one function here, one in the dialect of the other engine, and a field of `Write`.

Two writes of one shape (see `shape_of`) differ in values, and in the names of sources and steps, only. So a part is written down once for all of them: what
differs is given as a function of the write, next to the text that it belongs to.

Every slot of a ledger is a top-level attribute, because a nested path could not be created and written in one draft. Names
that an expression takes as they are go into it as they are: each placeholder costs 5 to 10 microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, cast

from onewrite.core.event import Emission
from onewrite.core.label import OUTBOX, STEPS, TOKEN, TOMBSTONE
from onewrite.core.ledgers.entry import Advance, Entry, Mark, Remember
from onewrite.core.step import step_mark
from onewrite.core.write import Begins, Burial, Finishes, NoStep, NoStepAtAll, Withdraws, Write
from onewrite.dynamodb.layout import name_of, name_of_step
from onewrite.dynamodb.values import Members
from onewrite.errors import InvalidMessage

# A name of this form needs no placeholder: no reserved word has an underscore.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)
_MIN_NUMBER, _MAX_NUMBER = -(10**38), 10**38  # DynamoDB numbers have 38 digits
_MAX_REPEATED = 6  # characters of a name that a write of several messages repeats as it is

# The lean client sends a write a second time only if one of these values tells whose write it is.
TOKEN_VALUE, STEP_VALUE = ":ow_token", ":ow_step"


Read: TypeAlias = Callable[[Write], Any]
"""Reads what differs between two writes of one shape: a value, or the name of an attribute."""


class Draft:
    """An update as the parts of a write put it together. `exclusions`: what no item may hold."""

    __slots__ = ("adds", "conditions", "deletes", "exclusions", "names", "removes", "repeats", "sets", "values")

    def __init__(self, *, repeats: bool = False) -> None:
        """`repeats`: names occur again and again in it, so long ones are placeholders."""
        self.repeats = repeats
        self.names: dict[str, str | Read] = {}
        self.values: dict[str, Read] = {}
        self.conditions: list[str] = []
        self.exclusions: list[str] = []
        self.sets: list[str] = []
        self.adds: list[str] = []
        self.removes: list[str] = []
        self.deletes: list[str] = []

    @property
    def condition(self) -> str:
        if not self.exclusions:
            return " AND ".join(self.conditions)
        # One NOT for all leaves room for twice as many.
        nothing = f"NOT ({' OR '.join(self.exclusions)})" if len(self.exclusions) > 1 else f"NOT {self.exclusions[0]}"
        return " AND ".join([*self.conditions, nothing])

    @property
    def clauses(self) -> dict[str, str]:
        clauses = {"SET": self.sets, "ADD": self.adds, "REMOVE": self.removes, "DELETE": self.deletes}
        return {clause: ",".join(texts) for clause, texts in clauses.items() if texts}

    def name(self, attribute: str | Read) -> str:
        """Return the attribute as an expression has it: its name, or a placeholder for it."""
        if (
            isinstance(attribute, str)
            and _WORD.fullmatch(attribute)
            and not (self.repeats and len(attribute) > _MAX_REPEATED)
        ):
            return attribute
        for placeholder, name in self.names.items():
            if name == attribute:
                return placeholder
        placeholder = f"#ow_{len(self.names)}"
        self.names[placeholder] = attribute
        return placeholder

    def value(self, read: Read, placeholder: str = "") -> str:
        """Return the placeholder of a value."""
        placeholder = placeholder or f":ow_{len(self.values)}"
        self.values[placeholder] = read
        return placeholder

    def ask(self, *conditions: str) -> None:
        self.conditions.extend(conditions)

    def exclude(self, name: str, marks: list[str]) -> None:
        """Ask that the set holds none of these marks, which are placeholders."""
        self.exclusions.extend([f"contains({name},{mark})" for mark in marks])

    def set(self, attribute: str | Read, read: Read, placeholder: str | None = None) -> None:
        """`placeholder`: that of the value, if a condition has it."""
        self.sets.append(f"{self.name(attribute)}={placeholder or self.value(read)}")

    def set_once(self, attribute: str, read: Read) -> None:
        name = self.name(attribute)
        self.sets.append(f"{name}=if_not_exists({name},{self.value(read)})")

    def append(self, attribute: str, read: Read) -> None:
        name = self.name(attribute)
        nothing = self.value(lambda _: [])
        self.sets.append(f"{name}=list_append(if_not_exists({name},{nothing}),{self.value(read)})")

    def add(self, attribute: str, read: Read) -> None:
        self.adds.append(f"{self.name(attribute)} {self.value(read)}")

    def remove(self, *attributes: str | Read) -> None:
        self.removes.extend(map(self.name, attributes))


class PutDraft(Draft):
    """A put as the parts of a write put it together: what an update would change is in the item itself."""

    __slots__ = ("item",)

    def __init__(self) -> None:
        super().__init__()
        self.item: list[tuple[str | Read, Read]] = []

    def set(self, attribute: str | Read, read: Read, placeholder: str | None = None) -> None:  # noqa: ARG002  # as an update has it
        self.item.append((attribute, read))

    def set_once(self, attribute: str, read: Read) -> None:
        self.set(attribute, read)

    def append(self, attribute: str, read: Read) -> None:
        self.set(attribute, read)

    def add(self, attribute: str, read: Read) -> None:
        self.set(attribute, read)

    def remove(self, *attributes: str | Read) -> None:
        """There is nothing to remove."""

    def read_item(self, write: Write) -> dict[str, Any]:
        return {read_name(attribute, write): read(write) for attribute, read in self.item}


def read_name(attribute: str | Read, write: Write) -> str:
    return attribute if isinstance(attribute, str) else cast("str", attribute(write))


def shape_of(write: Write) -> tuple[object, ...]:
    """Return what decides the text of a write."""
    step, emission, burial = write.step, write.emission, write.burial
    return (
        *(write.entry.shape, write.token is None, None if emission is None else emission.shape, write.asks_outbox),
        *(type(step), type(step) is Finishes and step.overtaken, len(write.other_messages)),
        None if burial is None else (burial.tombstone.ttl, burial.removes),
    )


# --- the parts ---------------------------------------------------------------------------------------------------------


def add_parts(write: Write, draft: Draft) -> None:
    """Add what each part asks and changes."""
    add_step(write, draft)
    add_labels(write, draft)
    add_ledger(write, draft)
    add_token(write, draft)
    add_outbox(write, draft)
    add_tombstone(write, draft)


def add_step(write: Write, draft: Draft) -> None:
    step = write.step
    if isinstance(step, NoStep | NoStepAtAll | Begins):
        draft.ask(f"attribute_not_exists({TOMBSTONE})")
        if isinstance(step, NoStepAtAll):
            draft.ask(f"attribute_not_exists({STEPS})")
            return
        for ledger in write.entry.terms.attributes:
            draft.exclude(STEPS, [draft.value(partial(_read_own_mark, ledger))])
            for place in range(len(write.other_messages)):
                draft.exclude(STEPS, [draft.value(partial(_read_other_mark, ledger, place))])
        if isinstance(step, Begins):
            draft.set(_read_step_name, _read_step, draft.value(_read_step, STEP_VALUE))
            draft.add(STEPS, _read_step_members)
        return
    # The fence alone says that the effect is this worker's to record.
    name = draft.name(_read_step_name)
    draft.ask(f"{name}.{draft.name('fence')}={draft.value(lambda write: cast('Finishes', write.step).fence)}")
    draft.remove(_read_step_name)
    draft.deletes.append(f"{STEPS} {draft.value(_read_step_members)}")


def _read_own_mark(ledger: str, write: Write) -> bytes:
    return step_mark(ledger, write.message)


def _read_other_mark(ledger: str, place: int, write: Write) -> bytes:
    return step_mark(ledger, write.other_messages[place])


def _read_step_mark(write: Write) -> bytes:
    step = write.step
    return step_mark(step.ledger if isinstance(step, Finishes | Withdraws) else write.entry.terms.attribute, write.message)


def _read_step_name(write: Write) -> str:
    return name_of_step(_read_step_mark(write))


def _read_step_members(write: Write) -> Members:
    return Members((_read_step_mark(write),))


def _read_step(write: Write) -> dict[str, Any]:
    _check_number(write.message.sequence)  # which the step keeps, also where the ledger does not look at it
    return cast("Begins", write.step).step.as_fields()


def add_labels(write: Write, draft: Draft) -> None:
    """The ledger must be kept as this store keeps it."""
    for label in write.entry.terms.labels:
        attribute = name_of(label.slot)
        name, accepted = draft.name(attribute), [draft.value(partial(_read_constant, text)) for text in label.accepts]
        draft.ask(f"({' OR '.join([f'attribute_not_exists({name})', *[f'{name}={text}' for text in accepted]])})")
        if not isinstance(write.step, Withdraws):
            # The first of those that it accepts is its own.
            draft.set(attribute, partial(_read_constant, label.text), accepted[0])


def _read_constant(value: object, _: Write) -> object:
    return value


def add_ledger(write: Write, draft: Draft) -> None:
    entry, step = write.entry, write.step
    if isinstance(step, Finishes):  # the step let the message in: only the order is asked
        if isinstance(entry.own, Advance):
            _add_advance(entry.own, 0, draft, writes=True, overtaken=step.overtaken)
    else:
        writes = not isinstance(step, Begins | Withdraws)
        written = len(entry.written_changes) if writes else 0
        for place, change in enumerate(entry.changes):
            if isinstance(change, Advance):
                _add_advance(change, place, draft, writes=place < written)
            else:
                marks = [draft.value(partial(_read_mark, place))]
                marks += [draft.value(partial(_read_alias, place, alias)) for alias in range(len(change.aliases))]
                for slot in change.sets.live:
                    draft.exclude(draft.name(name_of(slot)), marks)
        if not writes:
            return
    if isinstance(entry.own, Remember):
        draft.add(name_of(entry.own.sets.present), _read_marks)
        draft.remove(*[name_of(slot) for slot in entry.dead])


def _read_mark(place: int, write: Write) -> Mark | int:
    return write.entry.changes[place].mark if place else write.entry.own.mark


def _read_alias(place: int, alias: int, write: Write) -> Mark:
    return cast("Remember", write.entry.changes[place]).aliases[alias]


def _read_marks(write: Write) -> Members:
    entry = write.entry
    return Members([change.mark for change in entry.written_changes] if entry.more else (entry.own.mark,))


def _add_advance(change: Advance, place: int, draft: Draft, *, writes: bool, overtaken: bool = False) -> None:
    """The mark must be before the message's. If others have moved it past the message while a step was open, it stays there."""

    def read(write: Write) -> Advance:
        advance = cast("Advance", write.entry.changes[place] if place else write.entry.own)
        _check_number(advance.mark)
        _check_number(advance.reaches)
        return advance

    def read_attribute(write: Write) -> str:
        return name_of(read(write).slot)

    def read_before(write: Write) -> int:
        before = int(read(write).mark) - 1
        _check_number(before)
        return before

    name = draft.name(read_attribute)
    if overtaken:
        draft.ask(f"{name}>={draft.value(lambda write: read(write).mark)}")
        return
    first: str | None = None
    if change.rule == "below":
        first = draft.value(lambda write: read(write).mark)
        is_before = f"{name}<{first}"
        if change.has_digits:
            size = draft.value(lambda write: len(cast("str", read(write).mark)))
            is_before = f"(size({name})={size} AND {name}>={draft.value(lambda _: '0')} AND {is_before})"
    else:
        is_before = f"{name}={draft.value(read_before)}"
    draft.ask(is_before if change.rule == "next" else f"(attribute_not_exists({name}) OR {is_before})")
    if writes:
        draft.set(read_attribute, lambda write: read(write).reaches, first if change.last is None else None)


def add_token(write: Write, draft: Draft) -> None:
    """A call whose response is lost recognizes its own write by the token."""
    if write.token is None:
        return
    if isinstance(draft, PutDraft):
        draft.set(TOKEN, _read_token)
    else:
        draft.set(TOKEN, _read_token, draft.value(_read_token, TOKEN_VALUE))


def _read_token(write: Write) -> bytes | None:
    return write.token


def add_outbox(write: Write, draft: Draft) -> None:
    if write.emission is None or not write.asks_outbox:
        return
    label = draft.value(lambda write: _emission(write).shape.label)
    name, events = draft.name(OUTBOX.label), draft.name(OUTBOX.events)
    # The entity's outbox must be ours, or not there at all: what stands in its place would be appended to.
    draft.ask(f"({name}={label} OR (attribute_not_exists({name}) AND attribute_not_exists({events})))")
    if write.emission.events:
        draft.set(OUTBOX.label, lambda write: _emission(write).shape.label, label)
        draft.append(OUTBOX.events, lambda write: [*_emission(write).events])
        # Both stay as the oldest event has set them: the index shows its age, and an entity stays in one partition.
        draft.set_once(OUTBOX.due, lambda write: _emission(write).due)
        draft.set_once(OUTBOX.shard, lambda write: _emission(write).shard)


def _emission(write: Write) -> Emission:
    return cast("Emission", write.emission)


def add_tombstone(write: Write, draft: Draft) -> None:
    if write.burial is not None:
        draft.set(TOMBSTONE, lambda write: cast("Burial", write.burial).tombstone.as_fields())
        # The time at which the item itself would expire does not count any more.
        draft.remove(write.burial.tombstone.ttl, *write.burial.removes)


def stored_outbox(write: Write) -> dict[str, Any]:
    """Return the outbox of a new entity."""
    creation = PutDraft()
    add_outbox(write, creation)
    return creation.read_item(write)


def check_looks(entry: Entry) -> None:
    """Refuse a message of which a write would look for a mark that cannot be stored, where this write does not look for it."""
    for change in entry.also:
        if type(change) is Advance:
            _check_number(change.mark)


def _check_number(mark: int | str | None) -> None:
    if type(mark) is int and not _MIN_NUMBER < mark < _MAX_NUMBER:
        raise InvalidMessage(f"Sequence {mark} has more than the 38 digits of a DynamoDB number: use onewrite.sortable(n).")
