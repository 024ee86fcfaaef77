"""What each part of a guarded write asks of an item, and what it changes in it: condition, change and values in one place. Pure.

`add_parts` is the list of the parts. A new part is one function here, one in the dialect of the other engine, and a field of `Write`.

Every slot of a ledger is a top-level attribute, because a nested path could not be created and written in one draft. Names
that an expression takes as they are go into it as they are: each placeholder costs 5 to 10 microseconds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast

from onewrite.core.label import OUTBOX, STEPS, TOKEN, TOMBSTONE
from onewrite.core.ledgers.entry import Advance, Entry, Remember
from onewrite.core.step import step_mark
from onewrite.core.write import Begins, Finishes, NoStep, NoStepAtAll, Withdraws, Write
from onewrite.dynamodb.layout import name_of, name_of_step
from onewrite.dynamodb.values import Members
from onewrite.errors import InvalidMessage

# A name of this form needs no placeholder: no reserved word has an underscore.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)
_MIN_NUMBER, _MAX_NUMBER = -(10**38), 10**38  # DynamoDB numbers have 38 digits
_MAX_REPEATED = 6  # characters of a name that a write of several messages repeats as it is

# The lean client sends a write a second time only if one of these values tells whose write it is.
TOKEN_VALUE, STEP_VALUE = ":ow_token", ":ow_step"


class Draft:
    """An update as the parts of a write put it together. `exclusions`: what no item may hold."""

    __slots__ = ("clauses", "conditions", "exclusions", "names", "repeats", "values")

    def __init__(self, *, repeats: bool = False) -> None:
        """`repeats`: names occur again and again in it, so long ones are placeholders."""
        self.repeats = repeats
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.conditions: list[str] = []
        self.exclusions: list[str] = []
        self.clauses: dict[str, list[str]] = {}

    @property
    def condition(self) -> str:
        if not self.exclusions:
            return " AND ".join(self.conditions)
        # One NOT for all leaves room for twice as many.
        nothing = f"NOT ({' OR '.join(self.exclusions)})" if len(self.exclusions) > 1 else f"NOT {self.exclusions[0]}"
        return " AND ".join([*self.conditions, nothing])

    def name(self, attribute: str) -> str:
        """Return the attribute as an expression has it: its name, or a placeholder for it."""
        if _is_word(attribute) and not (self.repeats and len(attribute) > _MAX_REPEATED):
            return attribute
        for placeholder, name in self.names.items():
            if name == attribute:
                return placeholder
        placeholder = f"#ow_{len(self.names)}"
        self.names[placeholder] = attribute
        return placeholder

    def value(self, value: Any, placeholder: str = "") -> str:
        """Return the placeholder of a value."""
        placeholder = placeholder or f":ow_{len(self.values)}"
        self.values[placeholder] = value
        return placeholder

    def ask(self, *conditions: str) -> None:
        self.conditions.extend(conditions)

    def exclude(self, attribute: str, marks: list[str]) -> None:
        """Ask that the set holds none of these marks, which are placeholders."""
        self.exclusions.extend([f"contains({attribute},{mark})" for mark in marks])

    def change(self, clause: str, text: str) -> None:
        self.clauses.setdefault(clause, []).append(text)

    def set(self, attribute: str, value: Any, placeholder: str | None = None) -> None:
        """`placeholder`: that of the value, if a condition has it."""
        self.change("SET", f"{self.name(attribute)}={placeholder or self.value(value)}")

    def set_once(self, attribute: str, value: Any) -> None:
        name = self.name(attribute)
        self.change("SET", f"{name}=if_not_exists({name},{self.value(value)})")

    def append(self, attribute: str, members: list[Any]) -> None:
        name = self.name(attribute)
        self.change("SET", f"{name}=list_append(if_not_exists({name},{self.value([])}),{self.value(members)})")

    def add(self, attribute: str, members: Members) -> None:
        self.change("ADD", f"{self.name(attribute)} {self.value(members)}")

    def remove(self, *attributes: str) -> None:
        for attribute in attributes:
            self.change("REMOVE", self.name(attribute))


class PutDraft(Draft):
    """A put as the parts of a write put it together: what an update would change is in the item itself."""

    __slots__ = ("item",)

    def __init__(self) -> None:
        super().__init__()
        self.item: dict[str, Any] = {}

    def set(self, attribute: str, value: Any, placeholder: str | None = None) -> None:  # noqa: ARG002  # as an update has it
        self.item[attribute] = value

    def set_once(self, attribute: str, value: Any) -> None:
        self.item[attribute] = value

    def append(self, attribute: str, members: list[Any]) -> None:
        self.item[attribute] = members

    def add(self, attribute: str, members: Members) -> None:
        self.item[attribute] = members

    def remove(self, *attributes: str) -> None:
        """There is nothing to remove."""


@lru_cache(maxsize=1024)
def _is_word(attribute: str) -> bool:
    return _WORD.fullmatch(attribute) is not None


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
    if type(step) is NoStep or isinstance(step, NoStep | NoStepAtAll | Begins):
        draft.ask(f"attribute_not_exists({TOMBSTONE})")
        if isinstance(step, NoStepAtAll):
            draft.ask(f"attribute_not_exists({STEPS})")
            return
        ledgers = write.entry.terms.attributes
        for message in (write.message, *write.other_messages):
            draft.exclude(STEPS, [draft.value(step_mark(ledger, message)) for ledger in ledgers])
        if isinstance(step, Begins):
            _check_number(write.message.sequence)  # which the step keeps, also where the ledger does not look at it
            mark = step_mark(write.entry.terms.attribute, write.message)
            draft.set(name_of_step(mark), None, draft.value(step.step.as_fields(), STEP_VALUE))
            draft.add(STEPS, Members((mark,)))
        return
    # The fence alone says that the effect is this worker's to record.
    mark = step_mark(step.ledger, write.message)
    draft.ask(f"{draft.name(name_of_step(mark))}.{draft.name('fence')}={draft.value(step.fence)}")
    draft.remove(name_of_step(mark))
    draft.change("DELETE", f"{STEPS} {draft.value(Members((mark,)))}")


def add_labels(write: Write, draft: Draft) -> None:
    """The ledger must be kept as this store keeps it."""
    for label in write.entry.terms.labels:
        attribute = name_of(label.slot)
        name, accepted = draft.name(attribute), [draft.value(text) for text in label.accepts]
        draft.ask(f"({' OR '.join([f'attribute_not_exists({name})', *[f'{name}={text}' for text in accepted]])})")
        if not isinstance(write.step, Withdraws):
            draft.set(attribute, label.text, accepted[0])  # the first of those that it accepts is its own


def add_ledger(write: Write, draft: Draft) -> None:
    entry, step = write.entry, write.step
    if isinstance(step, Finishes):  # the step let the message in: only the order is asked
        if isinstance(entry.own, Advance):
            _add_advance(entry.own, draft, writes=True, overtaken=step.overtaken)
    else:
        writes = not isinstance(step, Begins | Withdraws)
        written = len(entry.written_changes) if writes else 0
        for place, change in enumerate(entry.changes):
            if isinstance(change, Advance):
                _add_advance(change, draft, writes=place < written)
            else:
                marks = [draft.value(mark) for mark in (change.mark, *change.aliases)]
                for slot in change.sets.live:
                    draft.exclude(draft.name(name_of(slot)), marks)
        if not writes:
            return
    if isinstance(entry.own, Remember):
        draft.add(name_of(entry.own.sets.present), Members([change.mark for change in entry.written_changes]))
        draft.remove(*[name_of(slot) for slot in entry.dead])


def _add_advance(change: Advance, draft: Draft, *, writes: bool, overtaken: bool = False) -> None:
    """The mark must be before the message's. If others have moved it past the message while a step was open, it stays there."""
    _check_number(change.mark)
    _check_number(change.reaches)
    attribute = name_of(change.slot)
    name = draft.name(attribute)
    if overtaken:
        draft.ask(f"{name}>={draft.value(change.mark)}")
        return
    first: str | None = None
    if change.rule == "below":
        first = draft.value(change.mark)
        is_before = f"{name}<{first}"
        if change.has_digits:
            size, zero = draft.value(len(cast("str", change.mark))), draft.value("0")
            is_before = f"(size({name})={size} AND {name}>={zero} AND {is_before})"
    else:
        before = int(change.mark) - 1
        _check_number(before)
        is_before = f"{name}={draft.value(before)}"
    draft.ask(is_before if change.rule == "next" else f"(attribute_not_exists({name}) OR {is_before})")
    if writes:
        draft.set(attribute, change.reaches, first if change.last is None else None)


def add_token(write: Write, draft: Draft) -> None:
    """A call whose response is lost recognizes its own write by the token."""
    if write.token is not None:
        draft.set(TOKEN, write.token, None if isinstance(draft, PutDraft) else draft.value(write.token, TOKEN_VALUE))


def add_outbox(write: Write, draft: Draft) -> None:
    emission = write.emission
    if emission is None or not write.asks_outbox:
        return
    name, events, label = draft.name(OUTBOX.label), draft.name(OUTBOX.events), draft.value(emission.shape.label)
    # The entity's outbox must be ours, or not there at all: what stands in its place would be appended to.
    draft.ask(f"({name}={label} OR (attribute_not_exists({name}) AND attribute_not_exists({events})))")
    if emission.events:
        draft.set(OUTBOX.label, emission.shape.label, label)
        draft.append(OUTBOX.events, [*emission.events])
        # Both stay as the oldest event has set them: the index shows its age, and an entity stays in one partition.
        draft.set_once(OUTBOX.due, emission.due)
        draft.set_once(OUTBOX.shard, emission.shard)


def add_tombstone(write: Write, draft: Draft) -> None:
    if write.burial is not None:
        draft.set(TOMBSTONE, write.burial.tombstone.as_fields())
        # The time at which the item itself would expire does not count any more.
        draft.remove(write.burial.tombstone.ttl, *write.burial.removes)


def stored_outbox(write: Write) -> dict[str, Any]:
    """Return the outbox of a new entity."""
    creation = PutDraft()
    add_outbox(write, creation)
    return creation.item


def check_looks(entry: Entry) -> None:
    """Refuse a message of which a write would look for a mark that cannot be stored, where this write does not look for it."""
    for change in entry.also:
        if type(change) is Advance:
            _check_number(change.mark)


def _check_number(mark: int | str | None) -> None:
    if type(mark) is int and not _MIN_NUMBER < mark < _MAX_NUMBER:
        raise InvalidMessage(f"Sequence {mark} has more than the 38 digits of a DynamoDB number: use onewrite.sortable(n).")
