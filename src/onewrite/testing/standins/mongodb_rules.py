"""MongoDB's rules for updates and upserts, which mongomock does not keep. Pure: each check raises what the server answers."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal, localcontext
from functools import cmp_to_key
from typing import Any, Final, NamedTuple, TypeAlias, cast

import bson
import mongomock
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.decimal128 import create_decimal128_context
from pymongo.errors import DuplicateKeyError, OperationFailure, WriteError

from onewrite.testing.errors import StandInLies

REMEDY = "Run this test on mongod()"

# --- values -----------------------------------------------------------------------------------------------------------
#
# How MongoDB compares values: by type first, numbers by their value whatever their type, and documents with the order of their keys. Pure.

# A value may be anything that BSON holds.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false


Document: TypeAlias = Mapping[str, Any]

MISSING: Final = object()  # a field that is not there

# The order of types: https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/
_NULL, _NUMBER, _TEXT, _DOCUMENT, _ARRAY = 1, 2, 3, 4, 5
_RANKS: Mapping[type, int] = {
    bytes: 6, Binary: 6, ObjectId: 7, dt.datetime: 9, Timestamp: 10, re.Pattern: 11, Regex: 11, Code: 12,
}  # fmt: skip
_NAMES = {
    0: "minKey", _NULL: "null", _TEXT: "string", _DOCUMENT: "object", _ARRAY: "array", 6: "binData", 7: "objectId", 8: "bool", 9: "date",
    10: "timestamp", 11: "regex", 12: "javascript", 99: "maxKey",
}  # fmt: skip
_INT32 = 2**31


def rank(value: object) -> int:
    """The place of its type in the order of types. Values of different ranks are never equal."""
    if value is MISSING or value is None:
        return _NULL
    if isinstance(value, bool):
        return 8
    if isinstance(value, int | float | Decimal128):
        return _NUMBER
    if isinstance(value, str) and not isinstance(value, Code):
        return _TEXT
    if isinstance(value, Mapping | DBRef):
        return _DOCUMENT
    if isinstance(value, list | tuple):
        return _ARRAY
    if isinstance(value, MinKey):
        return 0
    if isinstance(value, MaxKey):
        return 99
    return _RANKS.get(type(value), 50)


def compare(one: Any, other: Any) -> int:
    """Less than 0 if the first comes before the second, 0 if they are equal."""
    kind = rank(one)
    if kind != rank(other):
        return -1 if kind < rank(other) else 1
    if kind == _NUMBER:
        return _compare_numbers(one, other)
    if kind == _DOCUMENT:
        return _compare_fields(_fields(one), _fields(other))
    if kind == _ARRAY:
        return _compare_members(one, other)
    if kind in (_NULL, 0, 99):
        return 0
    left, right = _plain(one), _plain(other)
    return int(left > right) - int(left < right)


def equal(one: object, other: object) -> bool:
    return compare(one, other) == 0


in_order = cmp_to_key(compare)  # a key for `sorted`


def is_same(one: Document, other: Document) -> bool:
    """Are these the same bytes, so an update from one to the other changes nothing?"""
    return bson.encode(one) == bson.encode(other)


def type_name(value: object) -> str:
    """What MongoDB calls its type."""
    if isinstance(value, float):
        return "double"
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if -_INT32 <= value < _INT32 and not isinstance(value, Int64) else "long"
    if isinstance(value, Decimal128):
        return "decimal"
    return _NAMES.get(rank(value), type(value).__name__)


def is_number(value: object) -> bool:
    return rank(value) == _NUMBER


def is_pattern(value: object) -> bool:
    """Is it a regular expression, of Python's or of BSON's?"""
    return isinstance(value, re.Pattern | Regex)


def as_decimal(number: Any) -> Decimal:
    return number.to_decimal() if isinstance(number, Decimal128) else Decimal(number)


def _compare_numbers(one: Any, other: Any) -> int:
    left, right = as_decimal(one), as_decimal(other)
    if left.is_nan() or right.is_nan():  # NaN equals itself, and comes before all other numbers
        return int(right.is_nan()) - int(left.is_nan())
    return int(left > right) - int(left < right)


def _fields(value: Any) -> list[tuple[str, Any]]:
    document: Document = value.as_doc() if isinstance(value, DBRef) else value
    return list(document.items())


def _compare_fields(one: Sequence[tuple[str, Any]], other: Sequence[tuple[str, Any]]) -> int:
    for (name, value), (other_name, other_value) in zip(one, other, strict=False):
        ranks = (rank(value), name), (rank(other_value), other_name)
        if ranks[0] != ranks[1]:
            return -1 if ranks[0] < ranks[1] else 1
        if (order := compare(value, other_value)) != 0:
            return order
    return len(one) - len(other)


def _compare_members(one: Sequence[Any], other: Sequence[Any]) -> int:
    for value, other_value in zip(one, other, strict=False):
        if (order := compare(value, other_value)) != 0:
            return order
    return len(one) - len(other)


def _plain(value: Any) -> Any:
    """The value in a form that Python compares as MongoDB does."""
    match value:
        case dt.datetime():
            # What is stored has milliseconds, and is in UTC.
            utc = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
            return utc.replace(microsecond=utc.microsecond // 1000 * 1000)
        case bytes():
            return len(value), getattr(value, "subtype", 0), bytes(value)
        case re.Pattern() | Regex():
            return value.pattern, int(value.flags) & ~re.UNICODE
        case Timestamp():
            return value.time, value.inc
        case ObjectId() | str():
            return value
        case _:
            return repr(value)


def is_finite(number: Any) -> bool:
    return math.isfinite(float(as_decimal(number)))


def value_at_path(value: Any, path: Sequence[str]) -> Any:
    """What a field path such as "$a.b" gives: of an array on its way, what the documents in it have there."""
    if not path:
        return value
    if isinstance(value, list):
        values = [value_at_path(member, path) for member in cast("list[Any]", value) if isinstance(member, Mapping)]
        return [inner for inner in values if inner is not MISSING]
    if not isinstance(value, Mapping) or path[0] not in value:
        return MISSING
    return value_at_path(cast("Document", value)[path[0]], path[1:])


# --- filters ----------------------------------------------------------------------------------------------------------
#
# Which documents a filter matches, as MongoDB decides it, in place of mongomock's own rules. Pure.
#
# `matcher` reads the filter first, so a wrong one is refused whatever the collection holds.

Matches: TypeAlias = Callable[[Any], bool]  # of a document, or of one value
Expression: TypeAlias = Callable[[Any, Any], Any]  # what an aggregation expression gives for a document

_ORDERS: Mapping[str, Callable[[int], bool]] = {
    "$gt": lambda order: order > 0,
    "$gte": lambda order: order >= 0,
    "$lt": lambda order: order < 0,
    "$lte": lambda order: order <= 0,
}
_OPTIONS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_TYPES = {
    1: "double", 2: "string", 3: "object", 4: "array", 5: "binData", 7: "objectId", 8: "bool", 9: "date", 10: "null", 11: "regex",
    13: "javascript", 16: "int", 17: "timestamp", 18: "long", 19: "decimal", -1: "minKey", 127: "maxKey",
}  # fmt: skip
_NUMBERS = ("int", "long", "double", "decimal")
_NOT_HERE = frozenset({
    "$text", "$where", "$jsonSchema", "$near", "$nearSphere", "$geoWithin", "$geoIntersects", "$bitsAllSet", "$bitsAllClear",
    "$bitsAnySet", "$bitsAnyClear", "$rand", "$sampleRate", "$alwaysTrue", "$alwaysFalse", "$within", "$uniqueDocs", "$maxDistance",
    "$minDistance",
})  # fmt: skip


def matcher(query: Any, evaluate: Expression) -> Matches:
    """Tells which documents the filter matches. `evaluate` gives the value of an `$expr`."""
    if not isinstance(query, Mapping):
        raise _bad("the match filter must be an expression in an object")
    parts = [_part(name, condition, evaluate) for name, condition in cast("Document", query).items()]
    return lambda document: all(part(document) for part in parts)


def value_matcher(condition: Any, evaluate: Expression) -> Matches:
    """Tells which values a condition matches, as `$pull` and `$elemMatch` ask it of the members of an array."""
    return _on_values(condition, evaluate, lambda value: [value])


def is_condition(condition: object) -> bool:
    """Is this a document of operators, such as {"$gt": 1}?"""
    return isinstance(condition, Mapping) and str(next(iter(cast("Document", condition)), "")).startswith("$")


def _bad(text: str, code: int = 2) -> OperationFailure:
    return OperationFailure(text, code, {"ok": 0.0, "code": code, "errmsg": text})


def _part(name: str, condition: Any, evaluate: Expression) -> Matches:
    match name:
        case "$and" | "$or" | "$nor":
            if not isinstance(condition, list) or not condition:
                raise _bad(f"{name} must be a nonempty array")
            parts = [matcher(query, evaluate) for query in cast("list[Any]", condition)]
            if name == "$and":
                return lambda document: all(part(document) for part in parts)
            is_or = name == "$or"
            return lambda document: any(part(document) for part in parts) is is_or
        case "$expr":
            return lambda document: _is_true(evaluate(condition, document))
        case "$comment":
            return lambda _: True
        case _ if name in _NOT_HERE:
            raise StandInLies(f"mongomock does not know {name}. {REMEDY}.")
        case _ if name.startswith("$"):
            raise _bad(f"unknown top level operator: {name}")
        case _:
            parts_of_path = name.split(".")
            return _on_values(condition, evaluate, lambda document: list(_values_at(document, parts_of_path)))


class _Whole(tuple[Any, ...]):
    """An array whose members do not count, because it is itself a member of an array."""

    __slots__ = ()


def _values_at(value: Any, parts: Sequence[str]) -> Iterator[Any]:
    """The values at a path, which goes through the documents of every array on its way."""
    if not parts:
        yield value
    elif isinstance(value, Mapping):
        document = cast("Document", value)
        if parts[0] in document:
            yield from _values_at(document[parts[0]], parts[1:])
        else:
            yield MISSING
    elif isinstance(value, list):
        members = cast("list[Any]", value)
        if parts[0].isdigit() and int(parts[0]) < len(members):
            member = members[int(parts[0])]
            # Where the path ends at a place in an array, an array at that place counts as a whole.
            yield from [_Whole(member)] if len(parts) == 1 and isinstance(member, list) else _values_at(member, parts[1:])
        for member in members:
            if isinstance(member, Mapping):
                yield from _values_at(member, parts)
    else:
        yield MISSING


def _on_values(condition: Any, evaluate: Expression, values_of: Callable[[Any], list[Any]]) -> Matches:
    if not is_condition(condition):
        predicate = _any(_equals(condition))
        return lambda document: predicate(values_of(document))
    predicate = _all(_with_pattern(condition), evaluate)
    return lambda document: predicate(values_of(document))


Predicate: TypeAlias = Callable[[list[Any]], bool]  # of the values at a path


def _with_pattern(condition: Any) -> dict[str, Any]:
    """The operators of a condition, in which $regex has its $options."""
    operators: dict[str, Any] = dict(cast("Document", condition))
    if "$regex" in operators:
        operators["$regex"] = _pattern(operators["$regex"], operators.pop("$options", ""))
    return operators


def _all(operators: Mapping[str, Any], evaluate: Expression) -> Predicate:
    predicates = [_operator(name, argument, evaluate) for name, argument in operators.items()]
    return lambda values: all(predicate(values) for predicate in predicates)


def _any(test: Matches) -> Predicate:
    """Is it true of one of the values, or of a member of one that is an array?"""

    def predicate(values: list[Any]) -> bool:
        for value in values:
            if test(value) or (isinstance(value, list) and any(test(member) for member in cast("list[Any]", value))):
                return True
        return False

    return predicate


def _not(predicate: Predicate) -> Predicate:
    return lambda values: not predicate(values)


def _operator(name: str, argument: Any, evaluate: Expression) -> Predicate:
    match name:
        case "$eq":
            return _any(_equals(argument, patterns=False))
        case "$ne":
            if is_pattern(argument):
                raise _bad("Can't have regex as arg to $ne.")
            return _not(_any(_equals(argument, patterns=False)))
        case "$gt" | "$gte" | "$lt" | "$lte":
            return _any(_compares(_ORDERS[name], argument))
        case "$in" | "$nin":
            if not isinstance(argument, list):
                raise _bad(f"{name} needs an array")
            if any(is_condition(member) for member in cast("list[Any]", argument)):
                raise _bad(f"cannot nest $ under {name}")
            tests = [_equals(member) for member in cast("list[Any]", argument)]
            predicate = _any(lambda value: any(test(value) for test in tests))
            return predicate if name == "$in" else _not(predicate)
        case "$exists":
            exists = _is_true(argument)
            return lambda values: any(value is not MISSING for value in values) is exists
        case "$not":
            return _not(_inner_condition(argument, evaluate))
        case "$regex":
            return _any(_equals(argument))
        case "$mod":
            return _any(_remainder(argument))
        case "$type":
            return _of_type(argument)
        case "$size":
            return _of_size(argument)
        case "$all":
            return _all_of(argument, evaluate)
        case "$elemMatch":
            return _with_member(argument, evaluate)
        case "$options":
            raise _bad("$options needs a $regex")
        case _ if name in _NOT_HERE:
            raise StandInLies(f"mongomock does not know {name}. {REMEDY}.")
        case _:
            raise _bad(f"unknown operator: {name}")


def _equals(operand: Any, *, patterns: bool = True) -> Matches:
    if patterns and is_pattern(operand):
        pattern = _pattern(operand, "")
        return lambda value: (
            (isinstance(value, str) and pattern.search(value) is not None) or (is_pattern(value) and equal(value, operand))
        )
    if isinstance(operand, tuple):
        operand = list(cast("tuple[Any, ...]", operand))
    return lambda value: equal(value, operand)


def _compares(holds: Callable[[int], bool], limit: Any) -> Matches:
    if is_pattern(limit):
        raise _bad("Can't have RegEx as arg to predicate over field.")
    kind = rank(limit)
    if is_number(limit) and as_decimal(limit).is_nan():
        return lambda value: holds(0) and is_number(value) and equal(value, limit)

    def test(value: Any) -> bool:
        if (rank(value) != kind and kind not in (0, 99)) or (is_number(value) and as_decimal(value).is_nan()):
            return False
        return holds(compare(value, limit))

    return test


def _inner_condition(argument: Any, evaluate: Expression) -> Predicate:
    if is_pattern(argument):
        return _any(_equals(argument))
    if not isinstance(argument, Mapping):
        raise _bad("$not needs a regex or a document")
    if not argument:
        raise _bad("$not cannot be empty")
    operators = _with_pattern(argument)
    if wrong_names := [name for name in operators if not name.startswith("$")]:
        raise _bad(f"unknown operator: {wrong_names[0]}")
    return _all(operators, evaluate)


def _remainder(argument: Any) -> Matches:
    if not isinstance(argument, list) or len(cast("list[Any]", argument)) != 2:  # noqa: PLR2004  # divisor and remainder
        raise _bad("malformed mod, needs to be an array of two numbers")
    if not all(is_number(number) for number in cast("list[Any]", argument)):
        raise _bad("malformed mod, divisor and remainder must be numbers")
    divisor, remainder = (int(as_decimal(number)) for number in cast("list[Any]", argument))
    if divisor == 0:
        raise _bad("divisor cannot be 0")

    def test(value: Any) -> bool:
        if not is_number(value) or not is_finite(value):
            return False
        whole = int(as_decimal(value))
        return (abs(whole) % abs(divisor)) * (-1 if whole < 0 else 1) == remainder

    return test


def _of_type(argument: Any) -> Predicate:
    types = cast("list[Any]", argument) if isinstance(argument, list) else [argument]
    names: list[str] = []
    for kind in types:
        name = _TYPES.get(int(kind)) if is_number(kind) else kind
        if name not in (*_TYPES.values(), "number"):
            raise _bad(f"Unknown type name alias: {kind}")
        names += _NUMBERS if name == "number" else (cast("str", name),)
    return _any(lambda value: value is not MISSING and type_name(value) in names)


def _of_size(argument: Any) -> Predicate:
    if not is_number(argument) or int(as_decimal(argument)) != as_decimal(argument):
        raise _bad(f"Failed to parse $size. Expected a number in: $size: {argument!r}")
    if argument < 0:
        raise _bad(f"Failed to parse $size. Expected a non-negative number in: $size: {argument!r}")
    return lambda values: any(
        isinstance(value, list | _Whole) and len(cast("list[Any]", value)) == argument for value in values
    )


def _all_of(argument: Any, evaluate: Expression) -> Predicate:
    if not isinstance(argument, list):
        raise _bad("$all needs an array")
    predicates: list[Predicate] = []
    for condition in cast("list[Any]", argument):
        if isinstance(condition, Mapping) and "$elemMatch" in condition:
            predicates.append(_with_member(cast("Document", condition)["$elemMatch"], evaluate))
        elif is_condition(condition):
            raise _bad("no $ expressions in $all")
        else:
            predicates.append(_any(_equals(condition)))
    return lambda values: bool(predicates) and all(predicate(values) for predicate in predicates)


def _with_member(argument: Any, evaluate: Expression) -> Predicate:
    """Is one of the values an array with a member that matches on its own?"""
    if not isinstance(argument, Mapping):
        raise _bad("$elemMatch needs an Object")
    if is_condition(argument) and next(iter(cast("Document", argument))) not in ("$and", "$or", "$nor", "$expr"):
        # Of a member that is an array, the members of that array do not count.
        test = _on_values(argument, evaluate, lambda member: [_Whole(member)] if isinstance(member, list) else [member])
        return lambda values: any(test(member) for value in values for member in _members(value))
    matches = matcher(argument, evaluate)
    return lambda values: any(
        matches(member) for value in values for member in _members(value) if isinstance(member, Mapping | list)
    )


def _members(value: Any) -> list[Any]:
    return list(cast("list[Any]", value)) if isinstance(value, list | _Whole) else []


def _pattern(value: Any, options: str) -> re.Pattern[str]:
    flags = 0
    for letter in options:
        if letter not in _OPTIONS:
            raise _bad(f"invalid flag in regex options: {letter}", 51108)
        flags |= _OPTIONS[letter]
    if isinstance(value, Regex):
        return re.compile(cast("str", value.pattern), value.flags | flags)
    if isinstance(value, re.Pattern):
        return re.compile(cast("str", value.pattern), (value.flags & ~re.UNICODE) | flags)
    if not isinstance(value, str):
        raise _bad("$regex has to be a string")
    return re.compile(value, flags)


def _is_true(value: Any) -> bool:
    """Everything is but false, null and 0."""
    return not (value is MISSING or value is None or value is False or (is_number(value) and as_decimal(value) == 0))


# --- updates ----------------------------------------------------------------------------------------------------------
#
# What an update makes of a document, as MongoDB does it, in place of mongomock's own operators. Pure.
#
# MongoDB reads all operators first and then goes through the paths in order, numbers among them by their value. That shows in the order
# of the fields that an update adds.

_LONGEST = 2**63
_MOST_PADDING = 1_500_000
_NO_CREATING = ("$unset", "$pull", "$pullAll", "$pop")
_OPERATORS = frozenset({
    "$set", "$unset", "$inc", "$mul", "$min", "$max", "$push", "$addToSet", "$pull", "$pullAll", "$pop", "$rename", "$setOnInsert",
    "$currentDate",
})  # fmt: skip
_UPDATES_NOT_HERE = frozenset({"$bit"})


class _Change(NamedTuple):
    path: tuple[str, ...]
    operator: str
    argument: Any


def check_operators(update: Document) -> None:
    for operator, fields in update.items():
        if operator in _UPDATES_NOT_HERE:
            raise StandInLies(f"mongomock does not know {operator} (ValueError). {REMEDY}.")
        if operator not in _OPERATORS:
            raise write_error(
                9,
                f"Unknown modifier: {operator}. Expected a valid update modifier or pipeline-style update specified as an array",
            )
        if not isinstance(fields, Mapping):
            raise write_error(9, f"Modifiers operate on fields but we found type {type_name(fields)} instead.")


def update_document(
    document: Document, update: Document, evaluate: Expression, *, inserts: bool, now: Callable[[], dt.datetime]
) -> dict[str, Any]:
    """The document after the update. The one that is given stays as it is."""
    check_operators(update)
    result: dict[str, Any] = deepcopy(dict(document))

    def places(change: _Change) -> list[tuple[int, int, str]]:
        return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in change.path]

    changes = sorted(_changes(update), key=places)
    for change in changes:
        if change.operator == "$setOnInsert" and not inserts:
            continue
        if change.operator == "$rename":
            _rename(result, change)
        else:
            _apply(result, change, evaluate, now)
    if "_id" in document and not is_same({"_id": document["_id"]}, {"_id": result.get("_id")}):
        raise write_error(66, "Performing an update on the path '_id' would modify the immutable field '_id'")
    return result


def _changes(update: Document) -> Iterator[_Change]:
    for operator, fields in update.items():
        for path, argument in cast("Document", fields).items() if isinstance(fields, Mapping) else ():
            place = argument if operator == "$rename" and isinstance(argument, str) else path
            yield _Change(tuple(place.split(".")), operator, path if operator == "$rename" else argument)


def _apply(document: dict[str, Any], change: _Change, evaluate: Expression, now: Callable[[], dt.datetime]) -> None:
    holder, last = _holder(document, change)
    if holder is None:
        return
    value = _get(holder, last)
    new = _new_value(document, change, value, evaluate, now)
    if new is MISSING:
        _remove(holder, last)
    elif new is not value:
        _set(holder, last, new, change.path)


def _holder(document: dict[str, Any], change: _Change) -> tuple[Any, str]:
    """What holds the last part of the path, made where it is missing; None if there is nothing to do."""
    path, operator, _ = change
    at: Any = document
    creates = operator not in _NO_CREATING
    for place, part in enumerate(path):
        is_blocked = not part.isdigit() if isinstance(at, list) else not isinstance(at, Mapping)
        if is_blocked:
            if operator == "$unset":
                return None, part
            raise _traversal_error(path, place, part, at, creates=creates)
        if place == len(path) - 1:
            return at, part
        inner = _get(at, part)
        if inner is MISSING:
            if not creates:
                return None, part
            inner = {}
            _set(at, part, inner, path)
        at = inner
    raise AssertionError(path)  # a path has one part at least


def _traversal_error(path: Sequence[str], place: int, part: str, at: Any, *, creates: bool) -> WriteError:
    element = f"{{{path[place - 1]}: {at!r}}}"
    if creates:
        return write_error(28, f"Cannot create field '{part}' in element {element}")
    return write_error(28, f"Cannot use the part ({part}) of ({'.'.join(path)}) to traverse the element ({element})")


def _get(holder: Any, part: str) -> Any:
    if isinstance(holder, list):
        members = cast("list[Any]", holder)
        return members[int(part)] if int(part) < len(members) else MISSING
    return holder.get(part, MISSING)


def _set(holder: Any, part: str, value: Any, path: Sequence[str]) -> None:
    if not isinstance(holder, list):
        holder[part] = value
        return
    members, place = cast("list[Any]", holder), int(part)
    if place - len(members) > _MOST_PADDING:
        raise write_error(2, f"Can't backfill more than {_MOST_PADDING} elements at {'.'.join(path)}")
    members.extend([None] * (place + 1 - len(members)))
    members[place] = value


def _remove(holder: Any, part: str) -> None:
    if not isinstance(holder, list):
        holder.pop(part, None)
    elif int(part) < len(cast("list[Any]", holder)):
        holder[int(part)] = None


def _new_value(document: Document, change: _Change, value: Any, evaluate: Expression, now: Callable[[], dt.datetime]) -> Any:
    """What the operator makes of a value. MISSING removes it, and the value itself leaves it."""
    path, operator, argument = change
    match operator:
        case "$set" | "$setOnInsert":
            return deepcopy(argument)
        case "$unset":
            return MISSING
        case "$inc" | "$mul":
            return _calculate(document, path, operator, argument, value)
        case "$min" | "$max":
            if value is MISSING:
                return deepcopy(argument)
            order = compare(argument, value)
            return deepcopy(argument) if (order < 0 if operator == "$min" else order > 0) else value
        case "$currentDate":
            return _date(argument, now)
        case "$push":
            return _push(_array(path, operator, value), argument)
        case "$addToSet":
            return _with_members(_array(path, operator, value), argument)
        case _:
            return value if value is MISSING else _without_members(path, operator, argument, value, evaluate)


def _array(path: Sequence[str], operator: str, value: Any) -> list[Any]:
    if value is MISSING:
        return []
    if not isinstance(value, list):
        code = 14 if operator == "$pop" else 2
        raise write_error(
            code, f"The field '{'.'.join(path)}' must be an array but is of type {type_name(value)}: {operator}"
        )
    return cast("list[Any]", value)


def _calculate(document: Document, path: Sequence[str], operator: str, argument: Any, value: Any) -> Any:
    if value is MISSING:
        if operator == "$inc":
            return argument
        value = 0
    if not is_number(value):
        raise write_error(
            14,
            f"Cannot apply {operator} to a value of non-numeric type. {{_id: {document.get('_id')!r}}} has the field "
            f"'{path[-1]}' of non-numeric type {type_name(value)}",
        )
    if isinstance(value, Decimal128) or isinstance(argument, Decimal128):
        one, other = _operand(value), _operand(argument)
        with localcontext(create_decimal128_context()):
            return Decimal128(one + other if operator == "$inc" else one * other)
    result: Any = value + argument if operator == "$inc" else value * argument
    if isinstance(result, float):
        return result
    if not -_LONGEST <= result < _LONGEST:
        raise write_error(
            2,
            f"Failed to apply {operator} operations to current value ({value}) for document {{_id: {document.get('_id')!r}}}",
        )
    return Int64(result) if isinstance(value, Int64) or isinstance(argument, Int64) else result


def _operand(number: Any) -> Decimal:
    """A number beside a decimal. A double counts with 15 digits."""
    return Decimal(f"{number:.14e}") if isinstance(number, float) else as_decimal(number)


def _date(argument: Any, now: Callable[[], dt.datetime]) -> Any:
    if argument is True or argument is False or argument == {"$type": "date"}:
        return now()
    if argument == {"$type": "timestamp"}:
        return Timestamp(int(now().replace(tzinfo=dt.UTC).timestamp()), 1)
    raise write_error(
        2, f"{argument!r} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression"
    )


def _push(members: list[Any], argument: Any) -> list[Any]:
    if not (isinstance(argument, Mapping) and "$each" in argument):
        return [*members, deepcopy(argument)]
    options = cast("Document", argument)
    if unknown := [name for name in options if name not in ("$each", "$slice", "$position", "$sort")]:
        raise write_error(2, f"Unrecognized clause in $push: {unknown[0]}")
    if not isinstance(options["$each"], list):
        raise write_error(
            2, f"The argument to $each in $push must be an array but it was of type: {type_name(options['$each'])}"
        )
    new = deepcopy(cast("list[Any]", options["$each"]))
    place = options.get("$position", len(members))
    at = max(len(members) + place, 0) if place < 0 else place
    result = [*members[:at], *new, *members[at:]]
    if "$sort" in options:
        result = _in_order(result, options["$sort"])
    if "$slice" in options:
        slice_ = options["$slice"]
        result = result[:slice_] if slice_ >= 0 else result[slice_:]
    return result


def _in_order(members: list[Any], by: Any) -> list[Any]:
    if not isinstance(by, Mapping):
        return sorted(members, key=in_order, reverse=by == -1)
    for path, direction in reversed(list(cast("Document", by).items())):

        def at_path(member: Any, path: str = path) -> Any:
            return in_order(field_at(member, path))

        members = sorted(members, key=at_path, reverse=direction == -1)
    return members


def field_at(value: Any, path: str) -> Any:
    """What a dotted path leads to through documents alone, or None."""
    for part in path.split("."):
        value = cast("Document", value).get(part) if isinstance(value, Mapping) else None
    return value


def _with_members(members: list[Any], argument: Any) -> list[Any]:
    new: Any = [argument]
    if isinstance(argument, Mapping) and "$each" in argument:
        new = cast("Document", argument)["$each"]
        if not isinstance(new, list):
            raise write_error(14, f"The argument to $each in $addToSet must be an array but it was of type {type_name(new)}")
    result = list(members)
    for value in new:
        if not any(equal(value, member) for member in result):
            result.append(deepcopy(value))
    return result if len(result) > len(members) or not members else members


def _without_members(path: Sequence[str], operator: str, argument: Any, value: Any, evaluate: Expression) -> Any:
    members = _array(path, operator, value)
    if operator == "$pop":
        return members[:-1] if equal(argument, 1) else members[1:]
    if operator == "$pullAll":
        if not isinstance(argument, list):
            raise write_error(2, f"$pullAll requires an array argument but was given a {type_name(argument)}")
        rest = [member for member in members if not any(equal(operand, member) for operand in cast("list[Any]", argument))]
    else:
        rest = [member for member in members if not _is_pulled(member, argument, evaluate)]
    return members if len(rest) == len(members) else rest


def _is_pulled(member: Any, argument: Any, evaluate: Expression) -> bool:
    if isinstance(argument, Mapping) and not is_condition(argument):
        return isinstance(member, Mapping) and matcher(argument, evaluate)(member)
    if is_condition(argument) or not isinstance(argument, list | Mapping):
        # The members of a member that is an array do not count for a value.
        whole = isinstance(member, list) and not is_condition(argument)
        return value_matcher(argument, evaluate)(tuple(cast("list[Any]", member)) if whole else member)
    return equal(member, argument)


def _cannot_traverse(source: str, part: str, at: object) -> WriteError:
    return write_error(28, f"cannot use the part ({part} of {source}) to traverse the element ({at!r})")


def _rename(document: dict[str, Any], change: _Change) -> None:
    source = cast("str", change.argument)
    if not isinstance(cast("Any", source), str):
        raise write_error(2, "The 'to' field for $rename must be a string")
    at: Any = document
    parts = source.split(".")
    for part in parts[:-1]:
        if isinstance(at, list) and not part.isdigit():
            raise _cannot_traverse(source, part, at)
        if isinstance(at, list):
            raise write_error(
                2, f"The source field cannot be an array element, '{source}' in doc with _id: {document.get('_id')!r}"
            )
        if not isinstance(at, Mapping):
            raise _cannot_traverse(source, part, at)
        if part not in at:
            return
        at = cast("Any", at)[part]
    if isinstance(at, list) and parts[-1].isdigit():
        raise write_error(
            2, f"The source field cannot be an array element, '{source}' in doc with _id: {document.get('_id')!r}"
        )
    if not isinstance(at, dict):
        raise _cannot_traverse(source, parts[-1], at)
    if parts[-1] not in at:
        return
    value = cast("dict[str, Any]", at)[parts[-1]]
    holder: Any = document
    for part in change.path[:-1]:
        holder = cast("Any", holder).get(part) if isinstance(holder, Mapping) else holder
    if isinstance(holder, list):
        raise write_error(
            2,
            f"The destination field cannot be an array element, '{'.'.join(change.path)}' in doc with _id: {document.get('_id')!r}",
        )
    target, last = _holder(document, change)
    cast("dict[str, Any]", at).pop(parts[-1])
    _set(target, last, value, change.path)


# ---------------------------------------------------------------- of stages of a pipeline


def paths_to_set(fields: Document, before: str = "") -> Iterator[tuple[str, Any]]:
    """The paths that $set sets, and the expressions: a document in it names the fields that are set, and keeps the others."""
    for name, expression in fields.items():
        if isinstance(expression, Mapping) and expression and not is_condition(expression):
            yield from paths_to_set(cast("Document", expression), f"{before}{name}.")
        else:
            yield f"{before}{name}", expression


def put_at_path(document: Any, path: Sequence[str], value: Any, *, creates: bool = True) -> None:
    """Set what is at the path, in each document of an array on its way. MISSING removes it."""
    if isinstance(document, list):
        for place, member in enumerate(cast("list[Any]", document)):
            if isinstance(member, dict | list):
                put_at_path(member, path, value, creates=creates)
            elif creates:
                cast("list[Any]", document)[place] = {}
                put_at_path(cast("list[Any]", document)[place], path, value)
    elif len(path) == 1 and value is MISSING:
        document.pop(path[0], None)
    elif len(path) == 1:
        document[path[0]] = deepcopy(value)
    else:
        if not isinstance(document.get(path[0]), dict | list):
            if not creates:
                return
            document[path[0]] = {}
        put_at_path(document[path[0]], path[1:], value, creates=creates)


# --- collections ------------------------------------------------------------------------------------------------------

_COMPARISONS: Mapping[str, Callable[[int], bool]] = {
    "$eq": lambda order: order == 0,
    "$ne": lambda order: order != 0,
    **_ORDERS,
    "$cmp": bool,
}


def write_error(code: int, text: str) -> WriteError:
    return WriteError(text, code, {"index": 0, "code": code, "errmsg": text})


def duplicate_key(collection: str, index: str, values: Document) -> DuplicateKeyError:
    """The error, with details that say which index refused the document."""
    key = ", ".join(f"{name}: {value!r}" for name, value in values.items())
    text = f"E11000 duplicate key error collection: {collection} index: {index} dup key: {{ {key} }}"
    pattern = dict.fromkeys(values, 1)
    details = {"index": 0, "code": 11000, "errmsg": text, "keyPattern": pattern, "keyValue": dict(values)}
    return DuplicateKeyError(text, 11000, details)


def check_update(update: Document | Sequence[Document]) -> None:
    """Refuse paths that overlap, whether of one operator or of two, and paths with an empty part."""
    if not isinstance(update, Mapping):
        for stage in update:
            _check_stage(stage)
        return
    for old, new in cast("Document", update.get("$rename") or {}).items():
        if old == new:
            raise write_error(2, f'The source and target field for $rename must differ: {old}: "{new}"')
    for operator in ("$inc", "$mul"):
        for path, argument in cast("Document", update.get(operator) or {}).items():
            if not is_number(argument):
                word = "increment" if operator == "$inc" else "multiply"
                raise write_error(14, f"Cannot {word} with non-numeric argument: {{{path}: {argument!r}}}")
    for path, argument in cast("Document", update.get("$pop") or {}).items():
        if not equal(argument, 1) and not equal(argument, -1):
            raise write_error(9, f"$pop expects 1 or -1, found: {{{path}: {argument!r}}}")
    renamed_paths = [*_paths({"$rename": update.get("$rename")})]
    earlier_paths: list[str] = []
    for path in _paths(update):
        dollars = _dollars(path)
        if "$" in dollars and (dollars.count("$") > 1 or path.startswith("$") or path in renamed_paths):
            raise write_error(2, f"Cannot have the positional (i.e. '$') element there, or twice, in the path '{path}'")
        if not all(path.split(".")):
            raise write_error(56, f"The update path '{path}' contains an empty field name, which is not allowed.")
        for other in earlier_paths:
            if _overlap(path, other):
                raise _conflict(path, other)
        earlier_paths.append(path)


def _check_stage(stage: Document) -> None:
    """Refuse a stage of a pipeline that sets or removes a path and what is below it."""
    unset_paths, fields = stage.get("$unset"), stage.get("$set") or stage.get("$addFields")
    paths = list(cast("Sequence[str]", unset_paths if isinstance(unset_paths, list | tuple) else fields or ()))
    for place, path in enumerate(paths):
        for other in paths[:place]:
            if _overlap(path, other):
                code = 40176 if unset_paths is None else 31249 if len(path) > len(other) else 31250
                raise write_error(code, f"Path collision at {path}: specification contains two conflicting paths")


def _paths(update: Document) -> Iterator[str]:
    for operator, fields in update.items():
        if operator.startswith("$") and isinstance(fields, Mapping):
            for path, value in cast("Document", fields).items():
                yield path
                if operator == "$rename":
                    yield value


def _conflict(path: str, other: str) -> WriteError:
    return write_error(40, f"Updating the path '{path}' would create a conflict at '{min(path, other, key=len)}'")


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def is_positional(update: Document) -> bool:
    """Does a path of it depend on which member of an array the filter has found?"""
    return any(map(_dollars, _paths(update)))


def _dollars(path: str) -> list[str]:
    return [part for part in path.split(".") if part.startswith("$")]


def at_matched_place(update: Document, query: Document, document: Document | None, evaluate: Expression) -> Document:
    """The update with a number for the `$` in paths such as `a.$.b`: the place of the member that the filter has found.

    `document` is None for one that an upsert creates, in which nothing was found.
    """
    check_operators(update)
    if other_parts := {part for path in _paths(update) for part in _dollars(path)} - {"$"}:
        raise StandInLies(f"Paths with {min(other_parts)} are not known here. {REMEDY}.")
    array, place = _matched_place(query, document or {}, evaluate)
    result: dict[str, dict[str, Any]] = {operator: {} for operator in update}
    for operator, fields in update.items():
        for path, argument in cast("Document", fields).items():
            is_below = f"{path}.".startswith(f"{array}.$.")
            new_path = f"{array}.{place}{path[len(array) + 2 :]}" if is_below else path
            if new_path in result[operator]:
                raise _conflict(new_path, new_path)
            result[operator][new_path] = argument
    if other_path := next((path for path in _paths(result) if "$" in path.split(".")), None):
        raise StandInLies(f"The path {other_path} after {dict(query)!r} is not known here. {REMEDY}.")
    check_update(result)
    return result


def _matched_place(query: Document, document: Document, evaluate: Expression) -> tuple[str, int]:
    """The array, and the place of its first member for which the filter is true.

    Of several conditions on arrays, and of one that no single member decides, only MongoDB's plan for the query says which place it takes.
    """
    conditions = [
        (array, path, operator, argument)
        for path, operator, argument in _conditions(query)
        if (array := _first_array(document, path)) is not None
    ]
    if not conditions:
        raise write_error(2, "The positional operator did not find the match needed from the query.")
    (array, path, operator, argument), *others = conditions
    rest = path[len(array) + 1 :]
    operands = cast("list[Any]", argument) if operator == "$in" else [argument]
    is_decided = operator in _OF_ONE_MEMBER and not any(isinstance(operand, list | tuple) for operand in operands)
    if others or not is_decided or (operator == "$elemMatch" and rest) or any(map(str.isdigit, rest.split("."))):
        raise StandInLies(f"Which member `$` stands for after {dict(query)!r} is not known here. {REMEDY}.")
    matches = matcher({path: {operator: argument}}, evaluate)
    members = cast("list[Any]", field_at(document, array))
    return array, next(place for place, member in enumerate(members) if matches(_at_path(array, [member])))


_OF_ONE_MEMBER = frozenset({"$eq", "$gt", "$gte", "$lt", "$lte", "$in", "$regex", "$elemMatch"})
_NEGATIONS = frozenset({"$ne", "$nin", "$not"})  # nothing is found by these


def _conditions(query: Document) -> Iterator[tuple[str, str, Any]]:
    """What a filter asks of paths, one by one: the path, the operator and its argument. In an `$or`, that is the operator."""
    for name, condition in query.items():
        if name in ("$and", "$or"):
            for part in cast("Sequence[Document]", condition):
                yield from [(path, operator if name == "$and" else name, of) for path, operator, of in _conditions(part)]
        elif not name.startswith("$"):
            value_operator = "$regex" if is_pattern(condition) else "$eq"
            for operator, argument in (condition if is_condition(condition) else {value_operator: condition}).items():
                if operator not in _NEGATIONS and (operator, argument) != ("$exists", False):
                    yield name, operator, argument


def _first_array(document: Document, path: str) -> str | None:
    """The path of the first array that is on the way along this one."""
    parts = path.split(".")
    paths = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return next((path for path in paths if isinstance(field_at(document, path), list)), None)


def _at_path(path: str, value: Any) -> Any:
    """A document with the value at the path, and nothing else."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return value


def check_id(value: object) -> None:
    """Refuse what cannot be the `_id` of a document."""
    if isinstance(value, list | tuple) or is_pattern(value):
        raise write_error(53, f"The '_id' value cannot be of type {type_name(value)}")
    for name in _names(value):
        if name.startswith("$"):
            raise write_error(52, f"_id fields may not contain '$'-prefixed fields: {name} is not valid for storage.")


def _names(value: object) -> Iterator[str]:
    """The names in a document, and in the documents in it."""
    if isinstance(value, Mapping):
        for name, inner in cast("Document", value).items():
            yield name
            yield from _names(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[object]", value):
            yield from _names(inner)


def without_patterns(query: Document) -> Document:
    """The same filter with its bare regular expressions written as `$regex`, which mongomock does not put into a new document."""
    return {name: {"$regex": value} if is_pattern(value) else value for name, value in query.items()}


def equalities(query: Document) -> dict[str, Any]:
    """The fields that an upsert takes from its filter: those that must equal one value."""
    fields: dict[str, Any] = {}
    for name, value in _equalities(query):
        if any(_overlap(name, other) for other in fields):
            raise write_error(54, f"cannot infer query fields to set, path '{name}' is matched twice")
        fields[name] = value
    return fields


def _equalities(query: Document) -> Iterator[tuple[str, Any]]:
    for name, condition in query.items():
        match name, condition:
            case "$expr", _:
                raise write_error(224, "$expr is not allowed in the query predicate for an upsert")
            case "$and", _:
                for part in cast("Sequence[Document]", condition):
                    yield from _equalities(part)
            case "$or", [part]:
                yield from _equalities(cast("Document", part))
            case _, _ if name.startswith("$"):
                pass
            case _, {"$eq": value}:
                yield name, value
            case _, {"$in": [value]} if not is_pattern(value):
                yield name, value
            case _, {"$all": [*values]}:
                operands = [value for value in values if not (isinstance(value, Mapping) and "$elemMatch" in value)]
                yield from [(name, value) for value in operands if not is_pattern(value)]
            case _, {**operators} if any(str(operator).startswith("$") for operator in operators):
                pass
            case _ if is_pattern(condition):
                pass
            case _:
                yield name, condition


def known_expression(expression: Any, document: Document | None = None) -> Any:
    """An aggregation expression or a pipeline, written in a way that mongomock knows.

    If the document is known on which it is evaluated, fields are compared here, and paths
    followed through arrays: mongomock fails at a missing field, and at a value in an array that is no document.
    """
    match expression:
        case "$$NOW":
            return {"$literal": cast("Any", mongomock).utcnow()}
        case str() if (
            document is not None and expression.startswith("$") and "." in expression and not expression.startswith("$$")
        ):
            value = value_at_path(document, expression[1:].split("."))
            return expression if value is MISSING else {"$literal": value}
        case list():
            return [known_expression(part, document) for part in cast("list[object]", expression)]
        case {"$not": [operand]}:
            return {"$not": known_expression(operand, document)}
        case Mapping():
            parts = cast("Document", expression)
            if document is not None and (comparison := _comparison(parts, document)) is not None:
                return {"$literal": comparison}
            return {
                name: value if name == "$literal" else known_expression(value, document) for name, value in parts.items()
            }
        case _:
            return expression


def _comparison(expression: Document, document: Document) -> bool | int | None:
    """What a comparison of fields and constants gives. None if it is something else."""
    ((name, operands), *others) = expression.items() or [("", None)]
    if others or name not in _COMPARISONS or not isinstance(operands, list):
        return None
    values = [_operand_value(operand, document) for operand in cast("list[Any]", operands)]
    if len(values) != 2 or values[0] is None or values[1] is None:  # noqa: PLR2004  # what a comparison takes
        return None
    (one,), (other,) = values[0], values[1]
    # A field that is missing comes before null.
    order = compare(one, other) or int(other is MISSING) - int(one is MISSING)
    return order if name == "$cmp" else _COMPARISONS[name](order)


def _operand_value(operand: Any, document: Document) -> tuple[Any] | None:
    """The value of an operand that is a field or a constant."""
    match operand:
        case str() if operand.startswith("$"):
            return None if operand.startswith("$$") else (value_at_path(document, operand[1:].split(".")),)
        case {"$literal": value}:
            return (value,)
        case Mapping() | list():
            return None
        case _:
            return (operand,)


def may_be_missing(expression: object) -> bool:
    """Is this an expression that gives nothing where a field is missing? All others give null, or a value."""
    match expression:
        case str():
            return expression.startswith("$")
        case {"$cond": [_, *branches]}:
            return any(map(may_be_missing, branches))
        case {"$cond": {"then": one, "else": other}}:
            return may_be_missing(one) or may_be_missing(other)
        case {"$ifNull": [*operands]}:
            return may_be_missing(operands[-1])
        case {"$switch": _} | {"$getField": _} | {"$arrayElemAt": _} | {"$first": _} | {"$last": _} | {"$let": _}:
            return True
        case _:
            return False
