"""Compiles: a message's entry, folded into the native call that the caller wrote. Pure.

Each ledger slot is a top-level attribute, `messageIDs.r0` or `events.@order-7`, the dot being part of the name: a nested path
could not be created and written in one request. Beside the mark stands the token of this very attempt. botocore retries by
itself, and a try whose answer got lost makes the next one fail at its own mark; the token in the returned image tells whose
mark it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, cast

from onewrite.dynamodb.expression import RESERVED, check_limits, merge_update, read_condition, read_update
from onewrite.dynamodb.values import Members
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.ledger import Advance, Entry, Mark, Remember

_PLAIN = frozenset({str, int, bytes, bool, Decimal})  # nearly all values: nothing to look into
_BEYOND = 10**38  # DynamoDB numbers have 38 digits
_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"
_LEGACY = ("AttributeUpdates", "Expected", "ConditionalOperator")


@dataclass(frozen=True, slots=True)
class Guarded:
    """A request in plain Python values, with what is needed to read its refusal."""

    method: Literal["update_item", "put_item"]
    entry: Entry
    attempt: str
    kwargs: dict[str, Any]


def attribute_of(attribute: str, slot: str) -> str:
    return f"{attribute}.{slot}" if slot else attribute


def attempt_attribute(attribute: str, entry: Entry) -> str:
    """Where the last attempt's token is, for a mark, and for a set that is kept for ever: its ids stay alone in it."""
    return f"{attribute}.~{entry.slot[1:]}" if entry.slot else f"{attribute}.attempt"


def attempt_mark(attempt: str, mark: Mark) -> Mark:
    """A token as a member of a set of marks, which all begin with a digit."""
    return f"~{attempt}" if isinstance(mark, str) else b"~" + attempt.encode()


def is_ledger(attribute: str, name: str) -> bool:
    return name == attribute or name.startswith(attribute + ".")


def guard_update(attribute: str, entry: Entry, attempt: str, native: Mapping[str, Any]) -> Guarded:
    _check_native(attribute, native)
    spelling = _spell(entry)
    kwargs = {
        **native,
        "UpdateExpression": _merged_update(native.get("UpdateExpression"), spelling),
        "ConditionExpression": _merged_condition(native.get("ConditionExpression"), spelling, 0),
        "ExpressionAttributeNames": {**_mapping(native, "ExpressionAttributeNames"), **_names(attribute, entry)},
        "ExpressionAttributeValues": {
            **_values(native, "ExpressionAttributeValues"),
            **_condition_values(entry),
            **_update_values(entry, attempt),
        },
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return Guarded("update_item", entry, attempt, kwargs)


def guard_put(attribute: str, entry: Entry, attempt: str, native: Mapping[str, Any]) -> Guarded:
    """Creates, and never replaces.

    Nobody tells which attributes are the key. An item with the same key has them, so none that may be one may exist yet.
    """
    _check_native(attribute, native)
    item = _values(native, "Item")
    _check_roots(attribute, {}, item)
    spelling = _spell(entry)
    keys = [name for name, value in item.items() if not isinstance(value, bool | AbstractSet | Mapping | list | None)]
    ours = {f"#ow_k{n}": name for n, name in enumerate(keys)}
    ours |= {name: held for name, held in _names(attribute, entry).items() if name in spelling.condition_names}
    kwargs = {
        **native,
        "Item": {**item, **_stored(attribute, entry, attempt)},
        "ConditionExpression": _merged_condition(native.get("ConditionExpression"), spelling, len(keys)),
        "ExpressionAttributeNames": {**_mapping(native, "ExpressionAttributeNames"), **ours},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if values := {**_values(native, "ExpressionAttributeValues"), **_condition_values(entry)}:
        kwargs["ExpressionAttributeValues"] = values  # DynamoDB refuses an empty map
    return Guarded("put_item", entry, attempt, kwargs)


@dataclass(frozen=True, slots=True, eq=False)
class _Spelling:
    """An entry in DynamoDB's language, save for names and values: one text for all messages of a ledger."""

    clauses: dict[str, str]
    condition: str
    condition_names: frozenset[str]


def _spell(entry: Entry) -> _Spelling:
    if isinstance(entry, Advance):
        return _spell_mark(entry.rule)
    marks = _distinct(entry)
    places = tuple([marks.index(mark) for _, mark in entry.lacks])
    target = [slot for slot, _ in entry.lacks].index(entry.slot)
    return _spell_set(places, target, len(entry.drops), forgets=entry.forgets)


@lru_cache(maxsize=64)
def _spell_set(places: tuple[int, ...], target: int, drops: int, *, forgets: bool) -> _Spelling:
    # First the type: `contains` looks for a substring in text and for an element in a list, and ADD fails at both.
    lacks = [f"NOT contains(#ow_{n},:ow_{mark})" for n, mark in enumerate(places)]
    kind = f"(attribute_not_exists(#ow_{target}) OR attribute_type(#ow_{target},:ow_t))"
    clauses = {"ADD": f"#ow_{target} :ow_m"}
    if drops:
        clauses["REMOVE"] = ",".join([f"#ow_{len(places) + n}" for n in range(drops)])
    if not forgets:
        clauses["SET"] = "#ow_a=:ow_a"
    return _Spelling(clauses, " AND ".join([kind, *lacks]), frozenset(f"#ow_{n}" for n in range(len(places))))


@lru_cache(maxsize=8)
def _spell_mark(rule: Literal["below", "absent", "next"]) -> _Spelling:
    condition = {
        "below": "(attribute_not_exists(#ow_0) OR #ow_0<:ow_m)",
        "absent": "attribute_not_exists(#ow_0)",
        "next": "#ow_0=:ow_p",
    }[rule]
    return _Spelling({"SET": "#ow_0=:ow_m,#ow_a=:ow_a"}, condition, frozenset({"#ow_0"}))


def _names(attribute: str, entry: Entry) -> dict[str, str]:
    if isinstance(entry, Remember) and entry.forgets:
        return _slot_names(attribute, (*[slot for slot, _ in entry.lacks], *entry.drops))
    return {"#ow_0": attribute_of(attribute, entry.slot), "#ow_a": attempt_attribute(attribute, entry)}


@lru_cache(maxsize=64)
def _slot_names(attribute: str, slots: tuple[str, ...]) -> dict[str, str]:
    return {f"#ow_{n}": attribute_of(attribute, slot) for n, slot in enumerate(slots)}


def _condition_values(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, Advance):
        if entry.rule == "next":
            return {":ow_p": int(entry.mark) - 1}
        return {":ow_m": entry.mark} if entry.rule == "below" else {}
    values: dict[str, Any] = {f":ow_{n}": mark for n, mark in enumerate(_distinct(entry))}
    values[":ow_t"] = "SS" if isinstance(entry.mark, str) else "BS"
    return values


def _update_values(entry: Entry, attempt: str) -> dict[str, Any]:
    if isinstance(entry, Advance):
        _check_digits(entry)
        return {":ow_m": entry.mark, ":ow_a": attempt}
    if entry.forgets:
        return {":ow_m": Members((entry.mark, attempt_mark(attempt, entry.mark)))}
    return {":ow_m": Members((entry.mark,)), ":ow_a": attempt}


def _stored(attribute: str, entry: Entry, attempt: str) -> dict[str, Any]:
    """What a new entity's ledger looks like."""
    values = _update_values(entry, attempt)
    held = {attribute_of(attribute, entry.slot): values[":ow_m"]}
    return held | {attempt_attribute(attribute, entry): attempt} if ":ow_a" in values else held


def _check_digits(entry: Advance) -> None:
    if isinstance(entry.mark, int) and abs(entry.mark) >= _BEYOND:
        raise InvalidMessage(
            f"Sequence {entry.mark} has more than the 38 digits of a DynamoDB number: use onewrite.sortable(n)."
        )


def _distinct(entry: Remember) -> list[Mark]:
    return list(dict.fromkeys([mark for _, mark in entry.lacks]))


@lru_cache(maxsize=1024)  # a caller's expression is nearly always a literal, and so is ours
def _merged_update(user: str | None, spelling: _Spelling) -> str:
    merged = merge_update(read_update(user) if user else None, spelling.clauses)
    check_limits("UpdateExpression", merged)
    return merged


@lru_cache(maxsize=1024)
def _merged_condition(user: str | None, spelling: _Spelling, keys: int) -> str:
    absent = [f"attribute_not_exists(#ow_k{n})" for n in range(keys)]
    theirs = [read_condition(user).text] if user is not None else []
    merged = " AND ".join([*absent, spelling.condition, *theirs])
    if keys:
        check_limits("ConditionExpression", merged, _WIDE_ITEM)
    else:
        check_limits("ConditionExpression", merged)
    return merged


def _mapping(native: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", native.get(name) or {})


def _values(native: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {
        inner: value if type(value) in _PLAIN else _sendable(inner, value) for inner, value in _mapping(native, name).items()
    }


def _check_native(attribute: str, native: Mapping[str, Any]) -> None:
    """Refuse what would touch the ledger, or could not be merged with it."""
    for name in _LEGACY:
        if name in native:
            raise InvalidUpdate(f"{name} is the old way, which DynamoDB does not mix with expressions: write expressions.")
    for argument in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        for name in _mapping(native, argument):
            if name.startswith(RESERVED):
                raise InvalidUpdate(f"The placeholder {name} begins as the ledger's own do: give it another name.")
    update, condition = native.get("UpdateExpression"), native.get("ConditionExpression")
    names = _mapping(native, "ExpressionAttributeNames")
    if update:
        _check_roots(attribute, names, read_update(update).roots)
    if condition is not None:
        _check_roots(attribute, names, read_condition(condition).roots)


def _check_roots(attribute: str, names: Mapping[str, str], roots: Iterable[str]) -> None:
    for root in roots:
        if root.startswith(RESERVED):
            raise InvalidUpdate(f"The placeholder {root} begins as the ledger's own do: give it another name.")
        if is_ledger(attribute, names.get(root, root)):
            raise InvalidUpdate(
                f"This call touches {names.get(root, root)!r}, which belongs to the ledger: leave it out, or give the ledger "
                "another attribute."
            )


def _sendable(name: str, value: object) -> object:
    """The caller's value with its sets in one order. DynamoDB stores no empty set."""
    match value:
        case AbstractSet():
            if not value:
                raise InvalidUpdate(f"{name} is an empty set, which DynamoDB does not store: REMOVE the attribute instead.")
            return Members(sorted(cast("AbstractSet[object]", value), key=repr))
        case Mapping():
            return {inner: _sendable(name, member) for inner, member in cast("Mapping[str, object]", value).items()}
        case list() | tuple():
            return [_sendable(name, member) for member in cast("list[object]", value)]
        case _:
            return value
