"""The requests of a guarded write on DynamoDB: the caller's own call, with the conditions and changes of `core/parts.py`. Pure.

Every slot of a ledger is a top-level attribute, because one update can't both create a nested path and write to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from boto3.dynamodb.conditions import ConditionBase

from onewrite.core import parts
from onewrite.core.flow import Call
from onewrite.core.forms import Form, cut, fill, list_values, make_sample, read_form
from onewrite.core.label import EFFECTS, OUTBOX, TOKEN, TOMBSTONE, Label, Slot
from onewrite.core.ledgers.entry import Advance, Entry, Remember
from onewrite.core.parts import Change, Condition, list_changes, list_conditions
from onewrite.core.write import Burial, Finishes, Write
from onewrite.dynamodb.expression import (
    CLAUSES,
    USE_LESS,
    Placeholders,
    check_names,
    check_roots,
    format_condition,
    join_conditions,
    join_updates,
    read_mapping,
    read_placeholders,
)
from onewrite.dynamodb.layout import locate_effect, locate_slot
from onewrite.dynamodb.values import MAX_NUMBER, MIN_NUMBER, Convert, Members, sendable
from onewrite.errors import InvalidMessage, InvalidUpdate

_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"

# The lean client retries a write only if one of these values identifies the call that wrote.
TOKEN_VALUE, EFFECT_VALUE = ":ow_token", ":ow_effect"

RequestBuilder: TypeAlias = Callable[[Write, Mapping[str, Any], Convert], Call]
"""Builds the request of a write: `build_update`, `build_put`, or `build_change`."""


# --- the requests ------------------------------------------------------------------------------------------------------


def build_update(write: Write, native: Mapping[str, Any], convert: Convert = sendable, *, exists: bool = False) -> Call:
    """Build the caller's update with onewrite's conditions and changes. Pass `exists=True` if the item must exist."""
    if "Item" in native:
        raise InvalidUpdate("update_item doesn't accept Item. Pass an UpdateExpression, or create the item with put_item.")
    key = read_mapping(native, "Key")
    check_names(key)
    part = spell(write, present=key) if exists else spell_by_form(write)
    kwargs = _merge(write, native, part, convert, USE_LESS)
    kwargs["UpdateExpression"], roots = join_updates(native.get("UpdateExpression"), part.clauses)
    check_roots(write.entry.terms, read_mapping(native, "ExpressionAttributeNames"), roots)
    if "Key" in native:  # if it's missing, the driver raises
        kwargs["Key"] = convert(key)
    return Call("update_item", (), kwargs)


def build_put(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Build a put that creates an item and never replaces one."""
    item = read_mapping(native, "Item")
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    check_roots(write.entry.terms, {}, item)
    check_names(read_mapping(native, "Key"))
    # A put doesn't show which attributes are the key. Require that none of those exists that can be part of a key.
    keys = [name for name, value in item.items() if not isinstance(value, bool | AbstractSet | Mapping | list | None)]
    kwargs = _merge(write, native, spell(write, absent=keys, has_changes=False), convert, _WIDE_ITEM)
    kwargs["Item"] = convert({**item, **_make_new_attributes(list_changes(write))})
    return Call("put_item", (), kwargs)


def build_change(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Build an update of an existing item, for `Attempt.make_ledger_write` or for the begin of an effect."""
    return build_update(write, native, convert, exists=True)


def _merge(write: Write, native: Mapping[str, Any], part: Part, convert: Convert, remedy: str) -> dict[str, Any]:
    """Return the caller's arguments with onewrite's condition, names, and values. `remedy` says how to shorten the condition."""
    if isinstance(native.get("ConditionExpression"), ConditionBase):
        native = format_condition(native)
    user_names, user_values = read_placeholders(native)
    user_condition = native.get("ConditionExpression")
    if user_condition is not None and isinstance(write.effect, Finishes) and not write.effect.is_unsent:
        raise InvalidUpdate(
            "A write that finishes an effect can't have a condition, because a refusal would leave the effect open. Pass the "
            "condition to begin_effect."
        )
    condition, roots = join_conditions(part.condition, user_condition, remedy)
    check_roots(write.entry.terms, user_names, roots)
    kwargs: dict[str, Any] = {
        **native,
        "ConditionExpression": condition,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        "ExpressionAttributeValues": convert({**user_values, **part.values}),  # a write always has values
    }
    if names := {**user_names, **part.names}:
        kwargs["ExpressionAttributeNames"] = names
    else:  # DynamoDB refuses an empty map
        kwargs.pop("ExpressionAttributeNames", None)
    return kwargs


# --- the dialect -------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Onewrite's part of a request: its condition, its clauses in the order of `CLAUSES`, and their names and values by placeholder."""

    condition: str
    clauses: tuple[str, ...]
    names: Mapping[str, str]
    values: Mapping[str, Any]


def spell(write: Write, *, present: Iterable[str] = (), absent: Iterable[str] = (), has_changes: bool = True) -> Part:
    """Return onewrite's part of the write's request. It also requires that these attributes are present or absent.

    Pass `has_changes=False` for a put, whose item contains the changes.
    """
    draft = Draft(repeats=len(write.messages) > 1)
    draft.conditions += [f"attribute_exists({draft.name(attribute)})" for attribute in present]
    draft.conditions += [f"attribute_not_exists({draft.name(attribute)})" for attribute in absent]
    draft.require(list_conditions(write))
    if has_changes:
        draft.change(list_changes(write))
    clauses = tuple([",".join(draft.clauses[clause]) for clause in CLAUSES])
    return Part(draft.condition, clauses, draft.names, draft.values)


class Draft(Placeholders):
    """The expressions to which each condition and change of a write contributes. `exclusions`: terms that must all be false."""

    def __init__(self, *, repeats: bool = False) -> None:
        """Create an empty draft. Pass `repeats=True` if names occur many times."""
        super().__init__(repeats=repeats)
        self.conditions: list[str] = []
        self.exclusions: list[str] = []
        self.clauses: dict[str, list[str]] = {"SET": [], "ADD": [], "REMOVE": [], "DELETE": []}

    @property
    def condition(self) -> str:
        """The condition expression of all conditions."""
        if not self.exclusions:
            return " AND ".join(self.conditions)
        # A single NOT leaves room for twice as many terms.
        no_exclusion = f"NOT ({' OR '.join(self.exclusions)})" if len(self.exclusions) > 1 else f"NOT {self.exclusions[0]}"
        return " AND ".join([*self.conditions, no_exclusion])

    def require(self, conditions: Iterable[Condition]) -> None:
        """Spell the conditions."""
        for condition in conditions:
            match condition:
                case parts.Absent(attribute):
                    self.conditions.append(f"attribute_not_exists({attribute})")
                case parts.LacksEffects(effect_hashes):
                    self.exclusions += [f"contains({EFFECTS},{self.value(effect_hash)})" for effect_hash in effect_hashes]
                case parts.Lacks(slots, marks):
                    members = [*map(self.value, marks)]
                    for name in map(self._name_slot, slots):
                        self.exclusions += [f"contains({name},{member})" for member in members]
                case Label(slot, _, accepted_texts):
                    name = self._name_slot(slot)
                    texts = [f"{name}={self.value(text)}" for text in accepted_texts]
                    self.conditions.append(f"({' OR '.join([f'attribute_not_exists({name})', *texts])})")
                case Advance():
                    self._require_before(condition)
                case parts.IsPast(slot, mark):
                    self.conditions.append(f"{self._name_slot(slot)}>={self.value(_check_number(mark))}")
                case parts.OutboxFits(label):
                    name, events = self.name(OUTBOX.label), self.name(OUTBOX.events)
                    is_absent = f"attribute_not_exists({name}) AND attribute_not_exists({events})"
                    self.conditions.append(f"({name}={self.value(label)} OR ({is_absent}))")
                case parts.HasFence(effect_hash, fence):
                    self.conditions.append(
                        f"{self.name(locate_effect(effect_hash))}.{self.name('fence')}={self.value(fence)}"
                    )
                case parts.OnlyEffects(()):
                    self.conditions.append(f"attribute_not_exists({EFFECTS})")
                case parts.OnlyEffects(effects):
                    hashes = [effect_hash for effect_hash, _ in effects]
                    self.conditions.append(f"{EFFECTS}={self.value(Members(hashes))}")
                    for effect_hash, (_, stored_effect) in zip(hashes, effects, strict=True):
                        self.conditions.append(f"{self.name(locate_effect(effect_hash))}={self.value(stored_effect)}")

    def change(self, changes: Iterable[Change]) -> None:
        """Spell the changes."""
        sets, adds, removes, deletes = self.clauses.values()
        for change in changes:
            match change:
                case parts.Set(slot, value):
                    placeholder = TOKEN_VALUE if slot.group == TOKEN else ""
                    sets.append(f"{self._name_slot(slot)}={self.value(_check_number(value), placeholder)}")
                case parts.AddMarks(slot, marks):
                    adds.append(f"{self._name_slot(slot)} {self.value(Members(marks))}")
                case parts.Remove(slots):
                    removes += map(self._name_slot, slots)
                case parts.Append(attribute, values):
                    name, empty_list = self.name(attribute), self.value([])
                    sets.append(f"{name}=list_append(if_not_exists({name},{empty_list}),{self.value(values)})")
                case parts.SetOnce(attribute, value):
                    name = self.name(attribute)
                    sets.append(f"{name}=if_not_exists({name},{self.value(value)})")
                case parts.OpenEffect(effect_hash, fields):
                    _check_number(fields.get("sequence"))  # the effect stores the sequence even if the ledger ignores it
                    sets.append(f"{self.name(locate_effect(effect_hash))}={self.value(fields, EFFECT_VALUE)}")
                    adds.append(f"{EFFECTS} {self.value(Members((effect_hash,)))}")
                case parts.EndEffects(effect_hashes, are_all):
                    removes += [self.name(locate_effect(effect_hash)) for effect_hash in effect_hashes]
                    if are_all:
                        removes.append(EFFECTS)
                    else:
                        deletes.append(f"{EFFECTS} {self.value(Members(effect_hashes))}")
                case Burial(fields, _, ttl, attributes):
                    sets.append(f"{TOMBSTONE}={self.value(fields)}")
                    # The item's own expiry time no longer applies.
                    removes += map(self.name, (ttl, *attributes))

    def _name_slot(self, slot: Slot) -> str:
        """Return the name of the slot's attribute, or its placeholder."""
        return self.name(locate_slot(slot))

    def _require_before(self, advance: Advance) -> None:
        """Require that the stored mark is before this one, by its rule."""
        name, mark = self._name_slot(advance.slot), _check_number(advance.mark)
        if advance.rule == "below":
            comparison = f"{name}<{self.value(mark)}"
            if advance.floor is not None:  # a mark with a different spelling isn't comparable
                comparison = f"{name}>={self.value(advance.floor)} AND {comparison}"
                if advance.is_numeral:  # strings of digits compare like numbers only if they have the same length
                    comparison = f"size({name})={self.value(len(mark))} AND {comparison}"
                comparison = f"({comparison})"
        else:
            comparison = f"{name}={self.value(_check_number(int(mark) - 1))}"
        self.conditions.append(comparison if advance.rule == "next" else f"(attribute_not_exists({name}) OR {comparison})")


def _make_new_attributes(changes: Iterable[Change]) -> dict[str, Any]:
    """Return the attributes that the changes add to a new item, which has nothing to remove and no open effect."""
    attributes: dict[str, Any] = {}
    for change in changes:
        match change:
            case parts.Set(slot, value):
                attributes[locate_slot(slot)] = _check_number(value)
            case parts.AddMarks(slot, marks):
                attributes[locate_slot(slot)] = Members(marks)
            case parts.SetOnce(name, value) | parts.Append(name, value):
                attributes[name] = value
            case _:
                pass
    return attributes


def check_marks(entry: Entry) -> None:
    """Raise if a write of the message would store or check a mark that can't be stored."""
    for change in entry.checked:
        if type(change) is Advance:
            _check_number(change.mark)
            if change.rule != "below":  # the condition compares with the number before
                _check_number(int(change.mark) - 1)


def _check_number(value: Any) -> Any:
    """Return the value. Raise if it's a number that DynamoDB can't store."""
    if type(value) is int and not MIN_NUMBER <= value <= MAX_NUMBER:
        raise InvalidMessage(
            f"Sequence {value} has more than 38 digits, the limit of a DynamoDB number. Pass onewrite.sortable(n)."
        )
    return value


# --- the cache ---------------------------------------------------------------------------------------------------------


def spell_by_form(write: Write) -> Part:
    """Return the same as `spell`, in a fraction of the time if the write is usual."""
    form = read_form(write)
    if form is None:
        return spell(write)
    check_marks(write.entry)
    condition, clauses, names, values = _make_template(form)
    own_values = _list_values(write)
    return Part(condition, clauses, fill(names, own_values), fill(values, own_values))


@lru_cache(maxsize=256)
def _make_template(form: Form) -> tuple[str, tuple[str, ...], Any, Any]:
    """Return the part of all writes of this form, with templates of its names and values."""
    sample = make_sample(form)
    (condition, clauses, names, values), sample_values = spell(sample), _list_values(sample)
    return condition, clauses, cut(names, sample_values), cut(values, sample_values)


def _list_values(write: Write) -> list[Any]:
    """Return the values of a usual write, also in the forms that only DynamoDB has."""
    own, values = write.entry.checked[0], list_values(write)
    values.append(Members((own.mark,)) if type(own) is Remember else locate_slot(own.slot))
    return values
