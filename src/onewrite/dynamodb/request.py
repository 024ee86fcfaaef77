"""Compiles a message's entry into the native call that the caller wrote. Pure.

Every slot of a ledger is a top-level attribute, because a nested path could not be created and written in one request. Names
that an expression takes as they are go into it as they are: each placeholder costs 5 to 10 microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

from onewrite.dynamodb.attempt import Attempt
from onewrite.dynamodb.emit import outbox_condition, outbox_constants, outbox_sets, outbox_values, stored_outbox
from onewrite.dynamodb.expression import RESERVED, check_limits, merge_update, read_condition, read_update
from onewrite.dynamodb.layout import attempts_name, belongs, name_of
from onewrite.dynamodb.values import Convert, Members, sendable
from onewrite.entry import Advance, AdvanceShape, Entry, Remember, RememberShape, Shape, Terms
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.event import EmissionShape
from onewrite.flow import Call
from onewrite.label import STEPS, TOMBSTONE, Label, is_shared
from onewrite.ring import Ring

_OURS = re.compile(r"[#:]ow_\w+")
# A name of this form needs no placeholder: no reserved word has an underscore.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)
_BEYOND = 10**38  # DynamoDB numbers have 38 digits
_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"
# The types in which a handler may keep ids by hand.
_COLLECTIONS = {":ow_ss": "SS", ":ow_ns": "NS", ":ow_bs": "BS", ":ow_list": "L"}
_LEGACY = frozenset({"AttributeUpdates", "Expected", "ConditionalOperator"})


def guard_update(attempt: Attempt, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    if "Item" in native:
        raise InvalidUpdate("update_item takes no Item: give it an UpdateExpression, or create with put_item.")
    native, names, values, form = _read(attempt, native, convert)
    names = {**names, **form.names, **_names(attempt.entry)}
    kwargs = {
        **native,
        "UpdateExpression": form.update,
        "ConditionExpression": form.condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {**values, **form.values, **_converted(_values(attempt), convert)},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if not names:  # DynamoDB refuses an empty map
        del kwargs["ExpressionAttributeNames"]
    if "Key" in native:  # without it, the driver says what is missing
        kwargs["Key"] = _converted(_mapping(native, "Key"), convert)
    return Call("update_item", (), kwargs)


def guard_put(attempt: Attempt, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Compile a put that creates an item, and never replaces one."""
    item = _mapping(native, "Item")
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    _check_roots(attempt.entry.terms, _outbox_names(attempt), {}, item)
    native, names, values, form = _read(attempt, native, convert)
    keys, ours = possible_keys(item), {**form.values, **_converted(_values(attempt), convert)}
    values = {**values, **_only(form.used, ours)}
    kwargs = {
        **native,
        "Item": {**_converted(item, convert), **_stored(attempt, ours), **_emitted(attempt, convert)},
        "ConditionExpression": _absent(keys, form.condition),
        "ExpressionAttributeNames": {**names, **keys, **_only(form.used, {**form.names, **_names(attempt.entry)})},
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return Call("put_item", (), kwargs)


def _emitted(attempt: Attempt, convert: Convert) -> dict[str, Any]:
    emission = attempt.emission
    return {} if emission is None or not emission.events else _converted(stored_outbox(emission), convert)


def _converted(values: Mapping[str, Any], convert: Convert) -> dict[str, Any]:
    return {name: convert(name, value) for name, value in values.items()}


def guard_record(attempt: Attempt, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Compile an update of an existing item that changes nothing but its ledger."""
    keys = {f"#k{n}": name for n, name in enumerate(_mapping(native, "Key"))}
    named = {name: native[name] for name in ("TableName", "Key") if name in native}
    there = " AND ".join([f"attribute_exists({key})" for key in keys])
    return guard_update(attempt, {**named, "ConditionExpression": there, "ExpressionAttributeNames": keys}, convert)


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


# --- our part of the expressions ---------------------------------------------------------------------------------------


class _Words:
    """Writes attribute names into an expression: as they are where the language allows that, else as placeholders."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        if _WORD.fullmatch(name):
            return name
        placeholder = f"#ow_{len(self.names)}"
        self.names[placeholder] = name
        return placeholder


def _conditions(shape: Shape, words: _Words, *, exact: bool) -> list[str]:
    """What the ledger asks of the entity, each part to be joined by AND."""
    # Hardly any entity has a step open. So a write asks for its own message's, which takes a value, only where there is one.
    parts = [
        f"attribute_not_exists({TOMBSTONE})",
        f"NOT contains({STEPS},:ow_o)" if exact else f"attribute_not_exists({STEPS})",
    ]
    for n, label in enumerate(shape.terms.labels):
        name = words(name_of(label.slot))
        equal = [f"{name}={value}" for value in _label_values(n, label)]
        parts.append(f"({' OR '.join([f'attribute_not_exists({name})', *equal])})")
    parts.extend([f"attribute_not_exists({words(name_of(slot))})" for slot in shape.terms.no_label])
    if shape.terms.no_set is not None:
        name = words(name_of(shape.terms.no_set))
        parts.extend([f"NOT attribute_type({name},{kind})" for kind in _COLLECTIONS])
    for n, change in enumerate(shape.changes):
        parts.extend(_lacks(change, n, words) if isinstance(change, RememberShape) else [_is_past(change, n)])
    return parts


def _lacks(change: RememberShape, n: int, words: _Words) -> list[str]:
    marks = [f":ow_m{n}", *[f":ow_m{n}_{alias}" for alias in range(change.aliases)]]
    return [f"NOT contains({words(name_of(slot))},{mark})" for slot in change.sets.live for mark in marks]


def _is_past(change: AdvanceShape, n: int) -> str:
    mark, absent = f"#ow_m{n}", f"attribute_not_exists(#ow_m{n})"
    if change.rule == "absent":
        return absent
    if change.rule == "next":
        return f"{mark}=:ow_p"
    below = f"{mark}<:ow_m{n}"
    if change.has_digits:
        below = f"(size({mark})=:ow_n{n} AND {mark}>=:ow_z AND {below})"
    return f"({absent} OR {below})"


def _clauses(shape: Shape, ring: Ring, words: _Words) -> dict[str, str]:
    """What the ledger adds to the clauses of the update."""
    own = shape.changes[0]
    sets = [f"{words(name_of(label.slot))}=:ow_l{n}" for n, label in enumerate(shape.terms.labels)]
    adds: list[str] = []
    removes = [words(name_of(slot)) for slot in shape.dead]
    if isinstance(own, RememberShape):
        adds.append(f"{words(name_of(own.sets.present))} :ow_s")
    else:
        sets.append("#ow_m0=:ow_m0")
    attribute = shape.terms.attribute
    adds.append(f"{words(attempts_name(attribute, ring.present))} :ow_a")
    removes.extend([words(attempts_name(attribute, slot)) for slot in ring.dead])
    return {"SET": ",".join(sets), "ADD": ",".join(adds), "REMOVE": ",".join(removes)}


def _label_values(n: int, label: Label) -> list[str]:
    return [f":ow_l{n}", *[f":ow_l{n}_{other}" for other in range(1, len(label.accepts))]]


def _constants(terms: Terms) -> dict[str, str]:
    """The values that are the same for all messages."""
    values = {} if terms.no_set is None else {**_COLLECTIONS}
    for n, label in enumerate(terms.labels):
        values.update(zip(_label_values(n, label), label.accepts, strict=True))
    return values


def _names(entry: Entry) -> dict[str, str]:
    """The names of the attributes that hold marks, by their placeholders. They contain the source."""
    if not entry.also:  # the usual case
        return {"#ow_m0": name_of(entry.own.slot)} if isinstance(entry.own, Advance) else {}
    changes = enumerate(entry.changes)
    return {f"#ow_m{n}": name_of(change.slot) for n, change in changes if isinstance(change, Advance)}


def _values(attempt: Attempt) -> dict[str, Any]:
    """The values of this message."""
    entry = attempt.entry
    values: dict[str, Any] = {":ow_a": Members((attempt.token,))}
    if attempt.exact:
        values[":ow_o"] = attempt.step_mark
    if attempt.emission is not None and attempt.emission.events:
        values.update(outbox_values(attempt.emission))
    if isinstance(entry.own, Remember):
        values[":ow_s"] = Members((entry.own.mark,))
    for n, change in enumerate(entry.changes):
        values[f":ow_m{n}"] = change.mark
        if isinstance(change, Remember):
            values.update({f":ow_m{n}_{alias}": mark for alias, mark in enumerate(change.aliases)})
        else:
            values.update(_mark_values(change, n))
    return values


def _mark_values(change: Advance, n: int) -> dict[str, str | int]:
    mark = change.mark
    if isinstance(mark, str):
        return {f":ow_n{n}": len(mark), ":ow_z": "0"} if change.has_digits else {}
    if abs(mark) >= _BEYOND:
        raise InvalidMessage(f"Sequence {mark} has more than the 38 digits of a DynamoDB number: use onewrite.sortable(n).")
    return {":ow_p": mark - 1} if change.rule == "next" else {}


def _stored(attempt: Attempt, ours: Mapping[str, Any]) -> dict[str, Any]:
    """What a new entity's ledger looks like, its values being those of the request."""
    entry, own = attempt.entry, attempt.entry.own
    held = {name_of(label.slot): ours[f":ow_l{n}"] for n, label in enumerate(entry.terms.labels)}
    held[attempts_name(entry.terms.attribute, attempt.ring.present)] = ours[":ow_a"]
    if isinstance(own, Remember):
        return {**held, name_of(own.sets.present): ours[":ow_s"]}
    return {**held, name_of(own.slot): ours[":ow_m0"]}


# --- the caller's part -------------------------------------------------------------------------------------------------

_Read: TypeAlias = tuple[Mapping[str, Any], Mapping[str, str], Mapping[str, Any], "_Form"]


def _read(attempt: Attempt, native: Mapping[str, Any], convert: Convert) -> _Read:
    """The caller's call, its names, its converted values, and its expressions with the ledger's merged in."""
    if isinstance(native.get("ConditionExpression"), ConditionBase):
        native = written_out(native)
    names, values = _mapping(native, "ExpressionAttributeNames"), _mapping(native, "ExpressionAttributeValues")
    written = _Written(
        tuple(native), native.get("UpdateExpression"), native.get("ConditionExpression"), tuple(names.items()), tuple(values)
    )
    emits = None if attempt.emission is None else attempt.emission.shape
    wanted = _Wanted(attempt.entry.shape, attempt.ring, emits, attempt.exact)
    try:
        form = _form(wanted, convert, written)
    except TypeError:  # a part of the call is not hashable, so it cannot be a key of the cache
        form = _form.__wrapped__(wanted, convert, written)
    return native, names, _converted(values, convert), form


class _Wanted(NamedTuple):
    """What decides the text of our part."""

    shape: Shape
    ring: Ring
    emits: EmissionShape | None
    exact: bool


class _Written(NamedTuple):
    """The part of a native call that is nearly always the same literal text in the caller's source code."""

    arguments: tuple[str, ...]
    update: str | None
    condition: str | None
    names: tuple[tuple[str, str], ...]
    values: tuple[str, ...]


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
    shape, ring, emits, exact = wanted
    words, names, outbox = _Words(), dict(written.names), () if emits is None else emits.names
    _check_arguments(written.arguments)
    _check_types(written, names)
    _check_placeholders([*names, *written.values])
    theirs = None if written.update is None else read_update(written.update)
    if theirs is not None:
        _check_roots(shape.terms, outbox, names, theirs.roots)
    parts, clauses = _conditions(shape, words, exact=exact), _clauses(shape, ring, words)
    constants = _constants(shape.terms)
    if emits is not None and emits.emits:
        parts.append(outbox_condition(emits, words))
        clauses["SET"] = ",".join([clauses["SET"], *outbox_sets(emits, words)])
        constants |= outbox_constants()
    conditions = " AND ".join(parts)
    used = frozenset(_OURS.findall(conditions))
    merged = merge_update(theirs, clauses)
    if written.condition is not None:
        read = read_condition(written.condition)
        _check_roots(shape.terms, outbox, names, read.roots)
        conditions = f"{conditions} AND {read.text}"
    check_limits("UpdateExpression", merged)
    check_limits("ConditionExpression", conditions)
    return _Form(merged, conditions, words.names, _converted(constants, convert), used)


def _check_arguments(arguments: tuple[str, ...]) -> None:
    for name in arguments:
        if name in _LEGACY:
            raise InvalidUpdate(f"{name} is the old way, which DynamoDB does not mix with expressions: write expressions.")


def _check_types(written: _Written, names: Mapping[str, object]) -> None:
    expressions: dict[str, object] = {"UpdateExpression": written.update, "ConditionExpression": written.condition}
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


def _outbox_names(attempt: Attempt) -> tuple[str, ...]:
    return () if attempt.emission is None else attempt.emission.shape.names


def _check_roots(terms: Terms, outbox: tuple[str, ...], names: Mapping[str, str], roots: Iterable[str]) -> None:
    _check_placeholders(roots)
    for root in roots:
        name = names.get(root, root)
        if belongs(terms, name) or name in outbox or is_shared(name):
            owner = "outbox" if name in outbox else "ledger"
            raise InvalidUpdate(
                f"This call touches {name!r}, which belongs to the {owner}: leave it out, or give the {owner} another attribute."
            )
