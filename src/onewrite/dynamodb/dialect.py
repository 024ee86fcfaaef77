"""The requests of a guarded write on DynamoDB: the caller's own call, with the conditions and changes of each part of the write. Pure.

`add_parts` lists the parts. Each part has its condition, change, and values in one function. To add a part, write a function here
and one in the dialect of the other engine, and add a field to `Write`.

Two writes of the same shape (see `_describe_shape`) differ only in values and in the names of sources and steps. They share one
plan, in which a function of the write supplies each value or name that differs.

Every slot of a ledger is a top-level attribute, because one update can't both create a nested path and write to it. If a name needs
no placeholder, the expression contains the name itself, because each placeholder costs 5 to 10 microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, cast

from boto3.dynamodb.conditions import ConditionBase

from onewrite.core.flow import Call
from onewrite.core.label import OUTBOX, STEPS, TOKEN, TOMBSTONE
from onewrite.core.ledgers.entry import Advance, Change, Entry, Remember
from onewrite.core.ledgers.seen_ids import UNNAMED, hash_message
from onewrite.core.write import Begins, Burial, Finishes, NoStepAtAll, Withdraws, Write
from onewrite.dynamodb.expression import (
    USE_LESS,
    check_arguments,
    check_limits,
    check_names,
    check_roots,
    format_condition,
    merge_update,
    read_condition,
    read_mapping,
    read_update,
)
from onewrite.dynamodb.layout import locate_slot, locate_step
from onewrite.dynamodb.values import MAX_NUMBER, MIN_NUMBER, Convert, Members, sendable
from onewrite.errors import InvalidMessage, InvalidUpdate

# A name of this form doesn't need a placeholder, because no reserved word has an underscore.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)
_MAX_REPEATED = 6  # the longest name, in characters, that a write of several messages repeats without a placeholder
_MAX_PLANS = 1024  # enough for every call in the caller's source code, at each position of a ledger's ring
_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"

# The lean client retries a write only if one of these values identifies the call that wrote.
TOKEN_VALUE, STEP_VALUE = ":ow_token", ":ow_step"

Read: TypeAlias = Callable[[Write], Any]
"""Reads a value or an attribute name that differs between writes of the same shape."""
RequestBuilder: TypeAlias = Callable[[Write, Mapping[str, Any], Convert], Call]
"""Builds the request of a write: `build_update`, `build_put`, or `build_change`."""


# --- the requests ------------------------------------------------------------------------------------------------------


def build_update(write: Write, native: Mapping[str, Any], convert: Convert = sendable, *, exists: bool = False) -> Call:
    """Build the caller's update with onewrite's parts. Pass `exists=True` if the item must exist."""
    plan, kwargs = _merge(write, native, convert, tuple(read_mapping(native, "Key")) if exists else ())
    kwargs["UpdateExpression"] = plan.update
    if "Key" in native:  # if it's missing, the driver raises
        kwargs["Key"] = convert(native["Key"] or {})
    return Call("update_item", (), kwargs)


def build_put(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Build a put that creates an item and never replaces one."""
    item = read_mapping(native, "Item")
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    check_roots(write.entry.terms, {}, item)
    # A put doesn't show which attributes are the key, so require that none of those exists that can be part of a key.
    keys = [name for name, value in item.items() if not isinstance(value, bool | AbstractSet | Mapping | list | None)]
    plan, kwargs = _merge(write, native, convert, tuple(keys), creates=True)
    kwargs["Item"] = convert({**item, **cast("PutDraft", plan.draft).read_item(write)})
    return Call("put_item", (), kwargs)


def build_change(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Build an update of an existing item, for `Attempt.make_record` or for the begin of a step."""
    return build_update(write, native, convert, exists=True)


class _Plan(NamedTuple):
    """The common part of all writes of the same shape: the draft, and its expressions merged with the caller's."""

    draft: Draft
    update: str
    condition: str


_plans: dict[object, _Plan] = {}


def _merge(
    write: Write,
    native: Mapping[str, Any],
    convert: Convert,
    keys: tuple[str, ...],
    *,
    creates: bool = False,
) -> tuple[_Plan, dict[str, Any]]:
    """Return the plan of the write, and the caller's arguments with onewrite's condition, names, and values.

    `keys` are attributes that must exist, or that must not exist if the write creates the item.
    """
    if isinstance(native.get("ConditionExpression"), ConditionBase):
        native = format_condition(native)
    key: Any = native.get("Key") or {}
    names: Any = native.get("ExpressionAttributeNames") or {}
    values: Any = native.get("ExpressionAttributeValues") or {}
    shape: object = None
    try:
        shape = (
            _describe_shape(write),
            creates,
            keys,
            tuple(native),
            tuple(key.keys()),
            native.get("UpdateExpression"),
            native.get("ConditionExpression"),
            tuple(names.items()),
            tuple(values.keys()),
        )
        plan = _plans.get(shape)
    except (TypeError, AttributeError):  # an unhashable shape, or an argument of a wrong type, which _make_plan refuses
        plan = shape = None
    if plan is None:
        plan = _make_plan(write, native, keys, creates=creates)
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        if shape is not None:
            _plans[shape] = plan
    draft = plan.draft
    kwargs: dict[str, Any] = {**native, "ConditionExpression": plan.condition}
    for name in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        if name in native and not native[name]:  # DynamoDB refuses an empty map
            del kwargs[name]
    if draft.names:
        names = {**names}
        for placeholder, attribute in draft.names.items():
            names[placeholder] = attribute if isinstance(attribute, str) else attribute(write)
        kwargs["ExpressionAttributeNames"] = names
    values = {**values, **draft.constants}
    for placeholder, read in draft.values.items():
        values[placeholder] = read(write)
    if values:
        kwargs["ExpressionAttributeValues"] = convert(values)
    kwargs["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return plan, kwargs


def _describe_shape(write: Write) -> tuple[object, ...]:
    """Return the values on which the expressions of onewrite's parts depend. They're unhashable if no other write has the same ones."""
    entry, step, emission, burial = write.entry, write.step, write.emission, write.burial
    if type(entry.own) is not Remember or entry.also or entry.more:
        ledger: object = (len(entry.more), *map(_describe_change, entry.changes))
    else:  # nearly always
        ledger = (entry.own.sets, len(entry.own.aliases))
    return (
        entry.terms,
        ledger,
        write.token is None,
        None if emission is None else (emission.label, bool(emission.events)),
        type(step),
        (step.overtaken, step.is_unsent) if type(step) is Finishes else None,
        # Stored steps are unhashable, so a write that ends them has no shape.
        step.unsent if type(step) is NoStepAtAll else None,
        len(write.other_messages),
        None if burial is None else (burial.tombstone.ttl, burial.removes),
    )


def _describe_change(change: Change) -> tuple[object, ...]:
    """Return the values on which the expressions of one change of a ledger depend."""
    if isinstance(change, Remember):
        return change.sets, len(change.aliases)
    return change.rule, type(change.mark) is str and change.is_numeral, change.last is not None


def _make_plan(write: Write, native: Mapping[str, Any], keys: tuple[str, ...], *, creates: bool) -> _Plan:
    """Merge the caller's expressions with onewrite's parts. Raise if an expression touches onewrite's names or can't be merged."""
    if "Item" in native and not creates:
        raise InvalidUpdate("update_item doesn't accept Item. Pass an UpdateExpression, or create the item with put_item.")
    terms, names = write.entry.terms, read_mapping(native, "ExpressionAttributeNames")
    if isinstance(write.step, Finishes) and not write.step.is_unsent and "ConditionExpression" in native:
        raise InvalidUpdate(
            "A write that finishes a step can't have a condition, because a refusal would leave the effect unrecorded. Pass the "
            "condition to begin."
        )
    check_names(read_mapping(native, "Key"))
    check_arguments(native)
    update, condition = native.get("UpdateExpression"), native.get("ConditionExpression")
    user_update = None if update is None else read_update(update)
    if user_update is not None:
        check_roots(terms, names, user_update.roots)
    draft = (PutDraft if creates else Draft)(repeats=bool(write.other_messages))
    draft.ask(*[f"attribute_{'not_' if creates else ''}exists({draft.name(key)})" for key in keys])
    add_parts(write, draft)
    merged_condition = draft.condition
    if condition is not None:
        user_condition = read_condition(condition)
        check_roots(terms, names, user_condition.roots)
        merged_condition = f"{merged_condition} AND {user_condition.text}"
    merged_update = merge_update(user_update, draft.clauses)
    check_limits("UpdateExpression", merged_update)
    check_limits("ConditionExpression", merged_condition, _WIDE_ITEM if creates else USE_LESS)
    return _Plan(draft, merged_update, merged_condition)


# --- drafts ---------------------------------------------------------------------------------------


class Draft:
    """An update to which each part of a write contributes.

    - `exclusions`: terms that must all be false
    - `constants`: values that are the same in all writes of the shape
    - `own_mark`: the placeholder of the write's own mark, if the step's condition contains it
    """

    def __init__(self, *, repeats: bool = False) -> None:
        """Create an empty draft. Pass `repeats=True` if names occur many times, so long names get placeholders."""
        self.repeats = repeats
        self.names: dict[str, str | Read] = {}
        self.values: dict[str, Read] = {}
        self.constants: dict[str, Any] = {}
        self.conditions: list[str] = []
        self.exclusions: list[str] = []
        self.sets: list[str] = []
        self.adds: list[str] = []
        self.removes: list[str] = []
        self.deletes: list[str] = []
        self.own_mark = ""

    @property
    def condition(self) -> str:
        """The condition expression of all parts."""
        if not self.exclusions:
            return " AND ".join(self.conditions)
        # A single NOT leaves room for twice as many terms.
        no_exclusion = f"NOT ({' OR '.join(self.exclusions)})" if len(self.exclusions) > 1 else f"NOT {self.exclusions[0]}"
        return " AND ".join([*self.conditions, no_exclusion])

    @property
    def clauses(self) -> dict[str, str]:
        clauses = {"SET": self.sets, "ADD": self.adds, "REMOVE": self.removes, "DELETE": self.deletes}
        return {clause: ",".join(texts) for clause, texts in clauses.items() if texts}

    def name(self, attribute: str | Read) -> str:
        """Return the attribute's name, or its placeholder if an expression can't contain the name."""
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
        """Return the placeholder of a value that differs between the writes of a shape."""
        placeholder = placeholder or f":ow_{len(self.values)}"
        self.values[placeholder] = read
        return placeholder

    def constant(self, value: Any) -> str:
        """Return the placeholder of a value that is the same in all writes of the shape."""
        placeholder = f":ow_c{len(self.constants)}"
        self.constants[placeholder] = value
        return placeholder

    def ask(self, *conditions: str) -> None:
        self.conditions.extend(conditions)

    def exclude(self, name: str, marks: list[str]) -> None:
        """Add the condition that the set contains none of these marks, which are placeholders."""
        self.exclusions.extend([f"contains({name},{mark})" for mark in marks])

    def set(self, attribute: str | Read, read: Read, placeholder: str | None = None) -> None:
        """Set the attribute. If a condition already contains the value, pass its `placeholder`."""
        self.sets.append(f"{self.name(attribute)}={placeholder or self.value(read)}")

    def set_once(self, attribute: str, read: Read) -> None:
        name = self.name(attribute)
        self.sets.append(f"{name}=if_not_exists({name},{self.value(read)})")

    def append(self, attribute: str, read: Read) -> None:
        name, empty_list = self.name(attribute), self.constant([])
        self.sets.append(f"{name}=list_append(if_not_exists({name},{empty_list}),{self.value(read)})")

    def add(self, attribute: str, read: Read) -> None:
        self.adds.append(f"{self.name(attribute)} {self.value(read)}")

    def remove(self, *attributes: str | Read) -> None:
        self.removes.extend(map(self.name, attributes))


class PutDraft(Draft):
    """A put to which each part of a write contributes. The changes are in the item itself."""

    def __init__(self, *, repeats: bool = False) -> None:
        super().__init__(repeats=repeats)
        self.item: list[tuple[str | Read, Read]] = []

    def set(self, attribute: str | Read, read: Read, placeholder: str | None = None) -> None:  # noqa: ARG002  # same signature as Draft.set
        self.item.append((attribute, read))

    def set_once(self, attribute: str, read: Read) -> None:
        self.set(attribute, read)

    append = add = set_once

    def remove(self, *attributes: str | Read) -> None:
        """Do nothing: a new item has nothing to remove."""

    def read_item(self, write: Write) -> dict[str, Any]:
        return {
            (attribute if isinstance(attribute, str) else attribute(write)): read(write) for attribute, read in self.item
        }


# --- the parts ---------------------------------------------------------------------------------------------------------


def add_parts(write: Write, draft: Draft) -> None:
    """Add the conditions and changes of each part."""
    add_step(write, draft)
    add_labels(write, draft)
    add_ledger(write, draft)
    add_token(write, draft)
    add_outbox(write, draft)
    add_tombstone(write, draft)


def add_step(write: Write, draft: Draft) -> None:
    """Require that the item isn't deleted and has no open step of the message, or that it has this worker's step. Change the step."""
    step = write.step
    if isinstance(step, Finishes | Withdraws):
        # The fence alone proves that this worker can record the effect.
        name = draft.name(_read_step_name)
        draft.ask(f"{name}.{draft.name('fence')}={draft.value(attrgetter('step.fence'))}")
        draft.remove(_read_step_name)
        draft.deletes.append(f"{STEPS} {draft.value(_read_step_members)}")
        return
    draft.ask(f"attribute_not_exists({TOMBSTONE})")
    if isinstance(step, NoStepAtAll):
        _end_unsent_steps(step, draft)
        return
    for ledger in write.entry.terms.attributes:
        if ledger == UNNAMED and type(write.entry.own.mark) is bytes:  # the mark is the message's hash
            first_hash = draft.own_mark = draft.value(_read_own_mark)
        else:
            first_hash = draft.value(partial(_hash_message, ledger, 0))
        places = range(1, 1 + len(write.other_messages))
        draft.exclude(STEPS, [first_hash, *[draft.value(partial(_hash_message, ledger, place)) for place in places]])
    if isinstance(step, Begins):
        draft.set(_read_step_name, _read_step, draft.value(_read_step, STEP_VALUE))
        draft.add(STEPS, _read_step_members)


def _end_unsent_steps(step: NoStepAtAll, draft: Draft) -> None:
    """Require that the item has only the unsent steps, each as it was read. Remove them."""
    if not step.unsent:
        draft.ask(f"attribute_not_exists({STEPS})")
        return
    draft.ask(f"{STEPS}={draft.constant(Members([bytes.fromhex(step_hash) for step_hash, _ in step.unsent]))}")
    for step_hash, stored_step in step.unsent:
        attribute = locate_step(bytes.fromhex(step_hash))
        draft.ask(f"{draft.name(attribute)}={draft.constant(stored_step)}")
        draft.remove(attribute)
    draft.remove(STEPS)


_read_own_mark: Read = attrgetter("entry.own.mark")


def _hash_message(ledger: str, place: int, write: Write) -> bytes:
    """Return the hash of the write's message at this place. It identifies the message's step under the ledger."""
    return hash_message(write.other_messages[place - 1] if place else write.message, ledger)


def _hash_step(write: Write) -> bytes:
    """Return the hash that identifies the step that this write begins or ends."""
    step = write.step
    ledger = step.ledger if isinstance(step, Finishes | Withdraws) else write.entry.terms.attribute
    return hash_message(write.message, ledger)


def _read_step_members(write: Write) -> Members:
    return Members((_hash_step(write),))


def _read_step_name(write: Write) -> str:
    return locate_step(_hash_step(write))


def _read_step(write: Write) -> dict[str, Any]:
    _check_number(write.message.sequence)  # the step stores the sequence even if the ledger ignores it
    return cast("Begins", write.step).step.as_fields()


def add_labels(write: Write, draft: Draft) -> None:
    """Add the condition that the stored labels match this store's configuration."""
    for label in write.entry.terms.labels:
        attribute = locate_slot(label.slot)
        name = draft.name(attribute)
        accepted = [draft.constant(text) for text in label.accepts]
        draft.ask(f"({' OR '.join([f'attribute_not_exists({name})', *[f'{name}={text}' for text in accepted]])})")
        if not isinstance(write.step, Withdraws):
            # A store writes the first of its accepted labels.
            draft.set(attribute, partial(_read_text, label.text), accepted[0])


def _read_text(text: str, _: Write) -> str:
    return text


def add_ledger(write: Write, draft: Draft) -> None:
    """Require that the ledger accepts the message, and add its marks, unless the write only begins or withdraws a step."""
    entry, step = write.entry, write.step
    if isinstance(step, Finishes):  # the begin already checked the message, so only the order matters
        if isinstance(entry.own, Advance):
            _add_advance(entry.own, 0, draft, is_written=True, is_overtaken=step.overtaken)
    else:
        has_marks = not isinstance(step, Begins | Withdraws)
        written_count = len(entry.written_changes) if has_marks else 0
        for place, change in enumerate(entry.changes):
            if isinstance(change, Advance):
                _add_advance(change, place, draft, is_written=place < written_count)
            else:
                marks = [_name_mark(place, draft)]
                marks += [draft.value(partial(_read_alias, place, alias)) for alias in range(len(change.aliases))]
                for slot in change.sets.live:
                    draft.exclude(draft.name(locate_slot(slot)), marks)
        if not has_marks:
            return
    if isinstance(entry.own, Remember):  # _add_advance has set the mark of an Advance
        draft.add(locate_slot(entry.own.sets.present), _read_marks)
        draft.remove(*[locate_slot(slot) for slot in entry.dead])


def _name_mark(place: int, draft: Draft) -> str:
    """Return the placeholder of the mark of the change at this place. That of the own mark, at place 0, might exist already."""
    if place:
        return draft.value(partial(_read_mark, place))
    return draft.own_mark or draft.value(_read_own_mark)


def _read_mark(place: int, write: Write) -> object:
    return write.entry.changes[place].mark


def _read_alias(place: int, alias: int, write: Write) -> object:
    return cast("Remember", write.entry.changes[place]).aliases[alias]


def _read_marks(write: Write) -> Members:
    entry = write.entry
    return Members([change.mark for change in entry.written_changes]) if entry.more else Members((entry.own.mark,))


def _add_advance(change: Advance, place: int, draft: Draft, *, is_written: bool, is_overtaken: bool = False) -> None:
    """Add the condition that the stored mark is before the message's mark. Pass `is_written=True` to move the mark too.

    Pass `is_overtaken=True` if later messages moved the mark past the message while its step was open: the mark must stay there.
    """

    def read(write: Write) -> Advance:
        return cast("Advance", write.entry.changes[place] if place else write.entry.own)

    def read_attribute(write: Write) -> str:
        return locate_slot(read(write).slot)

    def read_mark(write: Write) -> Any:
        return _check_number(read(write).mark)

    def read_before(write: Write) -> Any:
        return _check_number(int(read_mark(write)) - 1)

    name = draft.name(read_attribute)
    if is_overtaken:
        draft.ask(f"{name}>={draft.value(read_mark)}")
        return
    mark: str | None = None  # its placeholder
    if change.rule == "below":
        mark = draft.value(read_mark)
        comparison = f"{name}<{mark}"
        if change.is_numeral:  # strings of digits compare like numbers only if they have the same length
            size = draft.value(lambda write: len(cast("str", read(write).mark)))
            comparison = f"(size({name})={size} AND {name}>={draft.constant('0')} AND {comparison})"
    else:
        comparison = f"{name}={draft.value(read_before)}"
    draft.ask(comparison if change.rule == "next" else f"(attribute_not_exists({name}) OR {comparison})")
    if is_written:  # with the rule "below", the condition already contains the new mark, unless a fold moves it further
        draft.set(read_attribute, lambda write: _check_number(read(write).new_mark), mark if change.last is None else None)


def add_token(write: Write, draft: Draft) -> None:
    """Set the token, which lets a call recognize its own write after a lost response."""
    if write.token is None:
        return
    read_token = attrgetter("token")
    draft.set(TOKEN, read_token, None if isinstance(draft, PutDraft) else draft.value(read_token, TOKEN_VALUE))


def add_outbox(write: Write, draft: Draft) -> None:
    """Require that the entity has this outbox or none, and append the events."""
    if write.emission is None or not write.has_outbox_condition:
        return
    label = draft.constant(write.emission.label)
    name, events = draft.name(OUTBOX.label), draft.name(OUTBOX.events)
    # Otherwise, the events would be appended to a different outbox's list.
    draft.ask(f"({name}={label} OR (attribute_not_exists({name}) AND attribute_not_exists({events})))")
    if write.emission.events:
        draft.set(OUTBOX.label, attrgetter("emission.label"), label)
        draft.append(OUTBOX.events, attrgetter("emission.events"))
        # Both keep the values from the oldest event: the index shows that event's age, and the entity stays in one partition.
        draft.set_once(OUTBOX.due, attrgetter("emission.due"))
        draft.set_once(OUTBOX.shard, attrgetter("emission.shard"))


def add_tombstone(write: Write, draft: Draft) -> None:
    """In a delete, set the tombstone."""
    if write.burial is not None:
        draft.set(TOMBSTONE, lambda write: cast("Burial", write.burial).tombstone.as_fields())
        # The item's own expiry time no longer applies.
        draft.remove(write.burial.tombstone.ttl, *write.burial.removes)


def check_earlier_marks(entry: Entry) -> None:
    """Raise if a later write of the message would check a mark that can't be stored."""
    for change in entry.also:
        if type(change) is Advance:
            _check_number(change.mark)


def _check_number(mark: int | str | None) -> Any:
    """Return the mark. Raise if DynamoDB can't store it."""
    if type(mark) is int and not MIN_NUMBER <= mark <= MAX_NUMBER:
        raise InvalidMessage(
            f"Sequence {mark} has more than 38 digits, the limit of a DynamoDB number. Pass onewrite.sortable(n)."
        )
    return mark
