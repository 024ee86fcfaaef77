"""Which documents a filter matches, as MongoDB decides it, in place of mongomock's own rules. Pure.

`matcher` reads the filter first, so that a wrong one is refused whatever the collection holds.
"""

# A value may be anything that BSON holds.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from bson import Regex
from pymongo.errors import OperationFailure

from onewrite.testing.errors import StandInLies
from onewrite.testing.standins.collection_methods import REMEDY
from onewrite.testing.standins.mongodb_values import (
    MISSING,
    Document,
    as_decimal,
    compare,
    equal,
    is_finite,
    is_number,
    is_pattern,
    rank,
    type_name,
)

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
_NOT_HERE = frozenset(
    [
        "$text",
        "$where",
        "$jsonSchema",
        "$near",
        "$nearSphere",
        "$geoWithin",
        "$geoIntersects",
        "$bitsAllSet",
        "$bitsAllClear",
        "$bitsAnySet",
        "$bitsAnyClear",
        "$rand",
        "$sampleRate",
        "$alwaysTrue",
        "$alwaysFalse",
        "$within",
        "$uniqueDocs",
        "$maxDistance",
        "$minDistance",
    ]
)


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
            parts = [matcher(one, evaluate) for one in cast("list[Any]", condition)]
            if name == "$and":
                return lambda document: all(part(document) for part in parts)
            wanted = name == "$or"
            return lambda document: any(part(document) for part in parts) is wanted
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
            return _any(_ordered(_ORDERS[name], argument))
        case "$in" | "$nin":
            if not isinstance(argument, list):
                raise _bad(f"{name} needs an array")
            if any(is_condition(one) for one in cast("list[Any]", argument)):
                raise _bad(f"cannot nest $ under {name}")
            tests = [_equals(one) for one in cast("list[Any]", argument)]
            found = _any(lambda value: any(test(value) for test in tests))
            return found if name == "$in" else _not(found)
        case "$exists":
            wanted = _is_true(argument)
            return lambda values: any(value is not MISSING for value in values) is wanted
        case "$not":
            return _not(_negated(argument, evaluate))
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


def _equals(wanted: Any, *, patterns: bool = True) -> Matches:
    if patterns and is_pattern(wanted):
        pattern = _pattern(wanted, "")
        return lambda value: (
            (isinstance(value, str) and pattern.search(value) is not None) or (is_pattern(value) and equal(value, wanted))
        )
    if isinstance(wanted, tuple):
        wanted = list(cast("tuple[Any, ...]", wanted))
    return lambda value: equal(value, wanted)


def _ordered(holds: Callable[[int], bool], limit: Any) -> Matches:
    if is_pattern(limit):
        raise _bad("Can't have RegEx as arg to predicate over field.")
    kind = rank(limit)
    if is_number(limit) and as_decimal(limit).is_nan():
        return lambda value: holds(0) and is_number(value) and equal(value, limit)

    def test(value: Any) -> bool:
        if rank(value) != kind or (is_number(value) and as_decimal(value).is_nan()):
            return False
        return holds(compare(value, limit))

    return test


def _negated(argument: Any, evaluate: Expression) -> Predicate:
    if is_pattern(argument):
        return _any(_equals(argument))
    if not isinstance(argument, Mapping):
        raise _bad("$not needs a regex or a document")
    if not argument:
        raise _bad("$not cannot be empty")
    operators = _with_pattern(argument)
    if wrong := [name for name in operators if not name.startswith("$")]:
        raise _bad(f"unknown operator: {wrong[0]}")
    return _all(operators, evaluate)


def _remainder(argument: Any) -> Matches:
    if not isinstance(argument, list) or len(cast("list[Any]", argument)) != 2:  # noqa: PLR2004  # divisor and remainder
        raise _bad("malformed mod, needs to be an array of two numbers")
    if not all(is_number(one) for one in cast("list[Any]", argument)):
        raise _bad("malformed mod, divisor and remainder must be numbers")
    divisor, remainder = (int(as_decimal(one)) for one in cast("list[Any]", argument))
    if divisor == 0:
        raise _bad("divisor cannot be 0")

    def test(value: Any) -> bool:
        if not is_number(value) or not is_finite(value):
            return False
        whole = int(as_decimal(value))
        return (abs(whole) % abs(divisor)) * (-1 if whole < 0 else 1) == remainder

    return test


def _of_type(argument: Any) -> Predicate:
    given = cast("list[Any]", argument) if isinstance(argument, list) else [argument]
    names: list[str] = []
    for one in given:
        name = _TYPES.get(int(one)) if is_number(one) else one
        if name not in (*_TYPES.values(), "number"):
            raise _bad(f"Unknown type name alias: {one}")
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
    for one in cast("list[Any]", argument):
        if isinstance(one, Mapping) and "$elemMatch" in one:
            predicates.append(_with_member(cast("Document", one)["$elemMatch"], evaluate))
        elif is_condition(one):
            raise _bad("no $ expressions in $all")
        else:
            predicates.append(_any(_equals(one)))
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
