"""Compiles: a message's entry, folded into the native call that the caller wrote. Pure.

Each ledger slot is a top-level attribute, `messageIDs_r0` or `events.@order-7`, the dot being part of the name: a nested path
could not be created and written in one request. The slots of a ring, and the mark of who names no source, have names that an
expression takes as they are, because each placeholder costs 5 to 10 microseconds; any other source may be any text.

Beside the mark stands the token of this very attempt. botocore retries by itself, and a try whose answer got lost makes the
next one fail at its own mark; the token in the returned image tells whose mark it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

from onewrite.dynamodb.expression import RESERVED, check_limits, merge_update, read_condition, read_update
from onewrite.dynamodb.values import Members, Spell, sendable
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.flow import Call
from onewrite.ledger import FOREVER, ONLY, SLOTS, Advance, Entry, Mark, Remember, Ring, Rule

_OURS = re.compile(r"[#:]ow_\w+")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_REST = {"": "", "_mark": ONLY, "_mark_attempt": "~", **{f"_{slot}": slot for slot in SLOTS}}
_BEYOND = 10**38  # DynamoDB numbers have 38 digits
_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"
_LEGACY = frozenset({"AttributeUpdates", "Expected", "ConditionalOperator"})
_MARKS = (":ow_0", ":ow_1", ":ow_2")  # one for each lap that a ring may show


def attribute_of(attribute: str, slot: str) -> str:
    if not slot:
        return attribute
    if slot == ONLY:
        return f"{attribute}_mark"
    return f"{attribute}.{slot}" if slot[0] == "@" else f"{attribute}_{slot}"


def slot_of(attribute: str, name: str) -> str | None:
    """The slot in the attribute of that name, or None where the ledger has nothing to do with it."""
    if not name.startswith(attribute):
        return None
    rest = name[len(attribute) :]
    return rest[1:] if rest.startswith(".") else _REST.get(rest)


def attempt_attribute(attribute: str, slot: str) -> str:
    """Where the last attempt's token is, for a mark, and for a set that is kept for ever: its ids stay alone in it."""
    if slot == ONLY:
        return f"{attribute}_mark_attempt"
    return f"{attribute}.~{slot[1:]}" if slot else f"{attribute}.attempt"


def attempt_mark(attempt: str, mark: Mark) -> Mark:
    """A token as a member of a set of marks, which all begin with a digit."""
    return f"~{attempt}" if isinstance(mark, str) else b"~" + attempt.encode()


def guard_update(attribute: str, entry: Entry, attempt: str, native: Mapping[str, Any], spell: Spell = sendable) -> Call:
    if "Item" in native:
        raise InvalidUpdate("update_item takes no Item: give it an UpdateExpression, or create with put_item.")
    native, names, values, form = _read(attribute, entry, native)
    values = {**values, **_values(entry, attempt)}
    kwargs = {
        **native,
        "UpdateExpression": form.update,
        "ConditionExpression": form.condition,
        "ExpressionAttributeNames": {**names, **_names(attribute, entry)},
        "ExpressionAttributeValues": {name: spell(name, value) for name, value in values.items()},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if not kwargs["ExpressionAttributeNames"]:  # DynamoDB refuses an empty map
        del kwargs["ExpressionAttributeNames"]
    if "Key" in native:  # else the driver says what is missing
        kwargs["Key"] = {name: spell(name, value) for name, value in _mapping(native, "Key").items()}
    return Call("update_item", (), kwargs)


def guard_put(attribute: str, entry: Entry, attempt: str, native: Mapping[str, Any], spell: Spell = sendable) -> Call:
    """Creates, and never replaces."""
    item = _mapping(native, "Item")
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    _check_roots(attribute, {}, item)
    native, names, values, form = _read(attribute, entry, native)
    keys, ours = _possible_keys(item), _values(entry, attempt)
    item, values = {**item, **_stored(attribute, entry, ours)}, {**values, **_only(form.used, ours)}
    kwargs = {
        **native,
        "Item": {name: spell(name, value) for name, value in item.items()},
        "ConditionExpression": _absent(keys, form.condition),
        "ExpressionAttributeNames": {**names, **keys, **_only(form.used, _names(attribute, entry))},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if values:  # as above
        kwargs["ExpressionAttributeValues"] = {name: spell(name, value) for name, value in values.items()}
    return Call("put_item", (), kwargs)


def _possible_keys(item: Mapping[str, Any]) -> dict[str, str]:
    """Nobody tells which attributes are the key. An item with the same key has them, so none that may be one may exist yet."""
    keys = [name for name, value in item.items() if not isinstance(value, bool | AbstractSet | Mapping | list | None)]
    return {f"#ow_k{n}": name for n, name in enumerate(keys)}


def _absent(keys: Iterable[str], condition: str) -> str:
    absent = " AND ".join([*[f"attribute_not_exists({key})" for key in keys], condition])
    check_limits("ConditionExpression", absent, _WIDE_ITEM)
    return absent


def _only(used: frozenset[str], held: Mapping[str, Any]) -> dict[str, Any]:
    return {placeholder: value for placeholder, value in held.items() if placeholder in used}


_Kind: TypeAlias = Ring | tuple[Rule, bool]


def _kind(entry: Entry) -> _Kind:
    """What is the same in all entries that are spelt alike: the ring, or the rule of a mark, and whether it is the only one."""
    return (entry.rule, entry.slot == ONLY) if isinstance(entry, Advance) else entry.ring


def _spell(attribute: str, kind: _Kind) -> tuple[str, dict[str, str]]:
    """The condition, and the clauses of the update."""
    return _spell_set(attribute, kind) if isinstance(kind, Ring) else _spell_mark(attribute, *kind)


def _spell_set(attribute: str, ring: Ring) -> tuple[str, dict[str, str]]:
    words = _words(attribute, ring)
    target = words[ring.slot]
    # First the type: `contains` looks for a substring in text and for an element in a list, and ADD fails at both.
    kind = f"(attribute_not_exists({target}) OR attribute_type({target},:ow_t))"
    lacks = [f"NOT contains({words[slot]},{_MARKS[place]})" for slot, place in ring.live]
    clauses = {"ADD": f"{target} :ow_m"}
    if ring is FOREVER:
        clauses["SET"] = "#ow_a=:ow_a"
    else:
        clauses["REMOVE"] = ",".join([words[slot] for slot in ring.drops])
    return " AND ".join([kind, *lacks]), clauses


def _spell_mark(attribute: str, rule: Rule, only: bool) -> tuple[str, dict[str, str]]:  # noqa: FBT001  # half of a _Kind
    mark, attempt = "#ow_0", "#ow_a"
    if only and _is_word(attribute):
        mark, attempt = attribute_of(attribute, ONLY), attempt_attribute(attribute, ONLY)
    condition = {
        "below": f"(attribute_not_exists({mark}) OR {mark}<:ow_m)",
        "absent": f"attribute_not_exists({mark})",
        "next": f"{mark}=:ow_p",
    }[rule]
    return condition, {"SET": f"{mark}=:ow_m,{attempt}=:ow_a"}


def _names(attribute: str, entry: Entry) -> dict[str, str]:
    if isinstance(entry, Remember) and entry.forgets:
        return _slot_names(attribute, entry.ring)
    if entry.slot == ONLY and _is_word(attribute):
        return {}
    return {"#ow_0": attribute_of(attribute, entry.slot), "#ow_a": attempt_attribute(attribute, entry.slot)}


@lru_cache(maxsize=64)
def _slot_names(attribute: str, ring: Ring) -> dict[str, str]:
    return (
        {}
        if _is_word(attribute)
        else {word: attribute_of(attribute, slot) for slot, word in _words(attribute, ring).items()}
    )


@lru_cache(maxsize=64)
def _is_word(attribute: str) -> bool:
    """May an expression call the attribute's slots by their names? Names of two parts are not reserved."""
    return _WORD.fullmatch(attribute) is not None


def _words(attribute: str, ring: Ring) -> dict[str, str]:
    """How an expression calls each slot."""
    slots = [*[slot for slot, _ in ring.live], *ring.drops]
    if ring is not FOREVER and _is_word(attribute):
        return {slot: attribute_of(attribute, slot) for slot in slots}
    return {slot: f"#ow_{n}" for n, slot in enumerate(slots)}


def _values(entry: Entry, attempt: str) -> dict[str, Any]:
    if isinstance(entry, Advance):
        marks: dict[str, Any] = {":ow_m": entry.mark, ":ow_a": attempt}
        if isinstance(entry.mark, int) and abs(entry.mark) >= _BEYOND:
            raise InvalidMessage(
                f"Sequence {entry.mark} has more than the 38 digits of a DynamoDB number: use onewrite.sortable(n)."
            )
        return {**marks, ":ow_p": int(entry.mark) - 1} if entry.rule == "next" else marks
    mark = entry.mark
    values: dict[str, Any] = dict(zip(_MARKS, entry.marks, strict=False))
    values[":ow_t"] = "SS" if isinstance(mark, str) else "BS"
    if entry.forgets:
        return {**values, ":ow_m": Members((mark, attempt_mark(attempt, mark)))}
    return {**values, ":ow_m": Members((mark,)), ":ow_a": attempt}


def _stored(attribute: str, entry: Entry, ours: Mapping[str, Any]) -> dict[str, Any]:
    """What a new entity's ledger looks like."""
    held = {attribute_of(attribute, entry.slot): ours[":ow_m"]}
    return held | {attempt_attribute(attribute, entry.slot): ours[":ow_a"]} if ":ow_a" in ours else held


_Read: TypeAlias = tuple[Mapping[str, Any], Mapping[str, str], Mapping[str, Any], "_Form"]


def _read(attribute: str, entry: Entry, native: Mapping[str, Any]) -> _Read:
    """The caller's call, its names and values, and its expressions with the ledger's folded in."""
    if isinstance(native.get("ConditionExpression"), ConditionBase):
        native = _written_out(native)
    names, values = _mapping(native, "ExpressionAttributeNames"), _mapping(native, "ExpressionAttributeValues")
    expressions = (native.get("UpdateExpression"), native.get("ConditionExpression"))
    placeholders = (tuple(names.items()), tuple(values))
    try:
        form = _form(attribute, _kind(entry), tuple(native), expressions, placeholders)
    except TypeError:  # something that is no text, and fits no cache
        form = _form.__wrapped__(attribute, _kind(entry), tuple(native), expressions, placeholders)
    return native, names, values, form


@dataclass(frozen=True, slots=True)
class _Form:
    """What all messages that are written by one native call have in common. `used`: our placeholders in the condition."""

    update: str
    condition: str
    used: frozenset[str]


@lru_cache(maxsize=1024)  # a native call is nearly always made of literals
def _form(
    attribute: str,
    kind: _Kind,
    arguments: tuple[str, ...],
    expressions: tuple[str | None, str | None],
    placeholders: tuple[tuple[tuple[str, str], ...], tuple[str, ...]],
) -> _Form:
    """Refuse what would touch the ledger or cannot be merged with it, and merge the rest."""
    names, values = dict(placeholders[0]), placeholders[1]
    _check_arguments(arguments)
    _check_types(expressions, names)
    _check_placeholders([*names, *values])
    update, condition = expressions
    ours, clauses = _spell(attribute, kind)
    theirs = read_update(update) if update else None
    if theirs is not None:
        _check_roots(attribute, names, theirs.roots)
    merged, conditions = merge_update(theirs, clauses), ours
    if condition is not None:
        read = read_condition(condition)
        _check_roots(attribute, names, read.roots)
        conditions = f"{ours} AND {read.text}"
    check_limits("UpdateExpression", merged)
    check_limits("ConditionExpression", conditions)
    return _Form(merged, conditions, frozenset(_OURS.findall(ours)))


def _check_arguments(arguments: tuple[str, ...]) -> None:
    for name in arguments:
        if name in _LEGACY:
            raise InvalidUpdate(f"{name} is the old way, which DynamoDB does not mix with expressions: write expressions.")


def _check_types(expressions: tuple[object, object], names: Mapping[str, object]) -> None:
    for what, text in zip(("UpdateExpression", "ConditionExpression"), expressions, strict=True):
        if text is not None and not isinstance(text, str):
            raise _mistyped(what, text, "text")
    for placeholder, name in names.items():
        if not isinstance(name, str):
            raise _mistyped(f"ExpressionAttributeNames[{placeholder!r}]", name, "an attribute's name")


def _written_out(native: Mapping[str, Any]) -> Mapping[str, Any]:
    """The call with its condition as text, where it was made with boto3's Attr."""
    built = ConditionExpressionBuilder().build_expression(native["ConditionExpression"])
    names = _joined(native, "ExpressionAttributeNames", built.attribute_name_placeholders)
    values = _joined(native, "ExpressionAttributeValues", built.attribute_value_placeholders)
    return {**native, "ConditionExpression": built.condition_expression, **names, **values}


def _joined(native: Mapping[str, Any], name: str, built: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    theirs = _mapping(native, name)
    for placeholder in built:
        if placeholder in theirs:
            raise InvalidUpdate(f"boto3's Attr makes the placeholder {placeholder} for itself: give yours another name.")
    return {name: {**theirs, **built}} if built else {}


def _mapping(native: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value: object = native.get(name) or {}
    if type(value) is not dict and not isinstance(value, Mapping):
        raise _mistyped(name, value, "a dict")
    return cast("Mapping[str, Any]", value)


def _mistyped(name: str, value: object, wanted: str) -> InvalidUpdate:
    return InvalidUpdate(f"{name} is a {type(value).__name__}: give it {wanted}.")


def _check_placeholders(placeholders: Iterable[object]) -> None:
    for placeholder in placeholders:
        if not isinstance(placeholder, str):
            raise _mistyped(repr(placeholder), placeholder, "the name of a placeholder or an attribute")
        if placeholder.startswith(RESERVED):
            raise InvalidUpdate(f"The placeholder {placeholder} begins as the ledger's own do: give it another name.")


def _check_roots(attribute: str, names: Mapping[str, str], roots: Iterable[str]) -> None:
    _check_placeholders(roots)
    for root in roots:
        if slot_of(attribute, names.get(root, root)) is not None:
            raise InvalidUpdate(
                f"This call touches {names.get(root, root)!r}, which belongs to the ledger: leave it out, or give the ledger "
                "another attribute."
            )
