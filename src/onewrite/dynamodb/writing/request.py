"""Compiles a message's entry into the native call that the caller wrote. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

from onewrite.dynamodb.writing.attempt import Attempt, Part
from onewrite.dynamodb.writing.emit import outbox_condition, outbox_constants, outbox_sets, stored_outbox
from onewrite.dynamodb.writing.expression import RESERVED, check_limits, merge_update, read_condition, read_update
from onewrite.dynamodb.writing.own_part import (
    Words,
    clauses,
    conditions,
    constants,
    names_of_marks,
    step_names,
    stored_ledger,
    values_of,
)
from onewrite.dynamodb.writing.values import Convert, sendable
from onewrite.errors import InvalidUpdate
from onewrite.event import EmissionShape
from onewrite.flow import Call
from onewrite.label import OURS
from onewrite.ledgers.entry import Shape, Terms
from onewrite.ledgers.ring import Ring

_OURS = re.compile(r"[#:]ow_\w+")
_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"
_LEGACY = frozenset({"AttributeUpdates", "Expected", "ConditionalOperator"})


def guard_update(attempt: Attempt, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    if "Item" in native:
        raise InvalidUpdate("update_item takes no Item: give it an UpdateExpression, or create with put_item.")
    native, names, values, form = _read(attempt, native, convert)
    added, ours = {**form.names, **names_of_marks(attempt)}, {**form.values, **convert(values_of(attempt))}
    if attempt.part != "write":
        # A step asks less of the ledger than a write, and DynamoDB refuses what no expression uses.
        used = frozenset(_OURS.findall(f"{form.update} {form.condition}"))
        added, ours = _only(used, {**added, **step_names(attempt)}), _only(used, ours)
    kwargs: dict[str, Any] = {**native, "UpdateExpression": form.update, "ConditionExpression": form.condition}
    if names or added:
        kwargs["ExpressionAttributeNames"] = {**names, **added}
    else:  # DynamoDB refuses an empty map
        kwargs.pop("ExpressionAttributeNames", None)
    kwargs["ExpressionAttributeValues"] = {**values, **ours}
    kwargs["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if "Key" in native:  # without it, the driver says what is missing
        kwargs["Key"] = convert(checked_key(native))
    return Call("update_item", (), kwargs)


def guard_put(attempt: Attempt, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Compile a put that creates an item, and never replaces one."""
    item = _mapping(native, "Item")
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    _check_roots(attempt.entry.terms, {}, item)
    native, names, values, form = _read(attempt, native, convert)
    keys, ours = possible_keys(item), {**form.values, **convert(values_of(attempt))}
    values = {**values, **_only(form.used, ours)}
    kwargs = {
        **native,
        "Item": {**convert(item), **stored_ledger(attempt, ours), **_emitted(attempt, convert)},
        "ConditionExpression": _absent(keys, form.condition),
        "ExpressionAttributeNames": {**names, **keys, **_only(form.used, {**form.names, **names_of_marks(attempt)})},
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return Call("put_item", (), kwargs)


def _emitted(attempt: Attempt, convert: Convert) -> dict[str, Any]:
    emission = attempt.emission
    return {} if emission is None or not emission.events else convert(stored_outbox(emission))


def guard_record(attempt: Attempt, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Compile an update of an existing item that changes nothing but its ledger."""
    keys = {f"#k{n}": name for n, name in enumerate(_mapping(native, "Key"))}
    named = {name: native[name] for name in ("TableName", "Key") if name in native}
    there = " AND ".join([f"attribute_exists({key})" for key in keys])
    return guard_update(attempt, {**named, "ConditionExpression": there, "ExpressionAttributeNames": keys}, convert)


def guard_begin(attempt: Attempt, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Compile the begin of a step, in an item that is there."""
    for name in ("UpdateExpression", "ReturnValues", "Item"):
        if name in native:
            raise InvalidUpdate(
                f"begin changes nothing but the step: leave out {name}, which is for the write that finishes it."
            )
    keys = {f"#ow_k{n}": name for n, name in enumerate(_mapping(native, "Key"))}
    call = guard_update(attempt, native, convert)
    there = " AND ".join([f"attribute_exists({key})" for key in keys])
    call.kwargs["ConditionExpression"] = f"{there} AND {call.kwargs['ConditionExpression']}"
    call.kwargs["ExpressionAttributeNames"].update(keys)
    return call


def possible_keys(item: Mapping[str, Any]) -> dict[str, str]:
    """Placeholders for the attributes that may be the key, since the call does not say which are.

    An item that is there has its key: so the condition asks that none of these attributes is there.
    """
    keys = [name for name, value in item.items() if not isinstance(value, bool | AbstractSet | Mapping | list | None)]
    return {f"#ow_k{n}": name for n, name in enumerate(keys)}


def _absent(keys: Iterable[str], condition: str) -> str:
    absent = " AND ".join([*[f"attribute_not_exists({key})" for key in keys], condition])
    check_limits("ConditionExpression", absent, _WIDE_ITEM)
    return absent


def _only(used: frozenset[str], held: Mapping[str, Any]) -> dict[str, Any]:
    return {placeholder: value for placeholder, value in held.items() if placeholder in used}


# --- the caller's part -------------------------------------------------------------------------------------------------

_Read: TypeAlias = tuple[Mapping[str, Any], Mapping[str, str], Mapping[str, Any], "_Form"]


def _read(attempt: Attempt, native: Mapping[str, Any], convert: Convert) -> _Read:
    """The caller's call, its names, its converted values, and its expressions with the ledger's merged in."""
    if isinstance(native.get("ConditionExpression"), ConditionBase):
        native = written_out(native)
    names, values = _mapping(native, "ExpressionAttributeNames"), _mapping(native, "ExpressionAttributeValues")
    # Plain tuples, which take a third of the time of named ones: this is made for every message.
    wanted = (
        attempt.entry.shape,
        attempt.ring,
        None if attempt.emission is None else attempt.emission.shape,
        attempt.part,
        attempt.exact,
        len(attempt.more) if attempt.exact else bool(attempt.more),
    )
    written = (
        tuple(native),
        native.get("UpdateExpression"),
        native.get("ConditionExpression"),
        tuple(names.items()) if names else (),
        tuple(values),
    )
    try:
        form = _form(wanted, convert, written)
    except TypeError:  # a part of the call is not hashable, so it cannot be a key of the cache
        form = _form.__wrapped__(wanted, convert, written)
    return native, names, convert(values), form


# What decides the text of our part: the last is as `more` of `conditions`.
_Wanted: TypeAlias = "tuple[Shape, Ring, EmissionShape | None, Part, bool, int]"
# The part of a native call that is nearly always the same literal text in the caller's source code: its arguments, the update, the condition,
# the names and the placeholders of values.
_Written: TypeAlias = "tuple[tuple[str, ...], str | None, str | None, tuple[tuple[str, str], ...], tuple[str, ...]]"


@dataclass(frozen=True, slots=True)
class _Form:
    """What all messages that are written by one native call have in common. `used`: our placeholders in the condition."""

    update: str
    condition: str
    names: Mapping[str, str]
    values: Mapping[str, Any]
    used: frozenset[str]


@lru_cache(maxsize=1024)
def _form(wanted: _Wanted, convert: Convert, written: _Written) -> _Form:
    """Refuse what would touch the ledger or cannot be merged with it, and merge the rest."""
    shape, ring, emits, part, exact, more = wanted
    arguments, update, only_if, named, placeholders = written
    words, names = Words(), dict(named)
    _check_arguments(arguments)
    _check_types({"UpdateExpression": update, "ConditionExpression": only_if}, names)
    _check_placeholders([*names, *placeholders])
    theirs = None if update is None else read_update(update)
    if theirs is not None:
        _check_roots(shape.terms, names, theirs.roots)
    asked, ours = conditions(shape, words, part, exact=exact, more=more), clauses(shape, ring, words, part)
    values = constants(shape.terms)
    # A finish that emits must not be the first to meet another outbox.
    if emits is not None and (emits.emits or part == "begin"):
        asked.append(outbox_condition(words))
        values |= outbox_constants(emits)
    if emits is not None and emits.emits:
        ours["SET"] = ",".join([*filter(None, [ours["SET"]]), *outbox_sets(words)])
    condition = " AND ".join(asked)
    used = frozenset(_OURS.findall(condition))
    merged = merge_update(theirs, ours)
    if only_if is not None:
        read = read_condition(only_if)
        _check_roots(shape.terms, names, read.roots)
        condition = f"{condition} AND {read.text}"
    check_limits("UpdateExpression", merged)
    check_limits("ConditionExpression", condition)
    return _Form(merged, condition, words.names, convert(values), used)


def _check_arguments(arguments: tuple[str, ...]) -> None:
    for name in arguments:
        if name in _LEGACY:
            raise InvalidUpdate(f"{name} is the old way, which DynamoDB does not mix with expressions: write expressions.")


def _check_types(expressions: Mapping[str, object], names: Mapping[str, object]) -> None:
    for what, text in expressions.items():
        if text is not None and not isinstance(text, str):
            raise _mistyped(what, text, "text")
    for placeholder, name in names.items():
        if not isinstance(name, str):
            raise _mistyped(f"ExpressionAttributeNames[{placeholder!r}]", name, "an attribute's name")


def written_out(native: Mapping[str, Any]) -> Mapping[str, Any]:
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


def checked_key(native: Mapping[str, Any]) -> Mapping[str, Any]:
    """The caller's key, which has no name of ours."""
    key = _mapping(native, "Key")
    for name in key:
        if type(name) is str and name.startswith(OURS):
            raise touches_ours(name)
    return key


def _check_roots(terms: Terms, names: Mapping[str, str], roots: Iterable[str]) -> None:
    _check_placeholders(roots)
    for root in roots:
        name = names.get(root, root)
        if name.startswith(OURS):
            raise touches_ours(name)
        if name in terms.plain_sets:
            raise InvalidUpdate(
                f"This call touches {name!r}, in which the store's ledger keeps ids: leave it out, or give MessageIDs another attribute."
            )


def touches_ours(name: str) -> InvalidUpdate:
    return InvalidUpdate(
        f"This call touches {name!r}: every name that begins with {OURS} is onewrite's own, in every entity. Leave it out, or give yours "
        "another name."
    )
