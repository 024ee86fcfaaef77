"""How MongoDB compares values: by type first, numbers by their value whatever their type, and documents with the order of their keys. Pure."""

# A value may be anything that BSON holds.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cmp_to_key
from typing import Any, Final, TypeAlias, cast

import bson
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

Document: TypeAlias = Mapping[str, Any]

MISSING: Final = object()  # a field that is not there

# The order of types: https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/
_NULL, _NUMBER, _TEXT, _DOCUMENT, _ARRAY = 1, 2, 3, 4, 5
_RANKS: Mapping[type, int] = {
    bytes: 6,
    Binary: 6,
    ObjectId: 7,
    dt.datetime: 9,
    Timestamp: 10,
    re.Pattern: 11,
    Regex: 11,
    Code: 12,
}
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


def same(one: Document, other: Document) -> bool:
    """Are these the same bytes, so that an update from one to the other changes nothing?"""
    return bson.encode(one) == bson.encode(other)


def type_name(value: object) -> str:
    """What MongoDB calls its type."""
    if isinstance(value, float):
        return "double"
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if -_INT32 <= value < _INT32 and not isinstance(value, Int64) else "long"
    if isinstance(value, Decimal128):
        return "decimal"
    names = {_NULL: "null", _TEXT: "string", _DOCUMENT: "object", _ARRAY: "array"}
    names |= {
        6: "binData",
        7: "objectId",
        8: "bool",
        9: "date",
        10: "timestamp",
        11: "regex",
        12: "javascript",
        0: "minKey",
        99: "maxKey",
    }
    return names.get(rank(value), type(value).__name__)


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
        ordered = (rank(value), name), (rank(other_value), other_name)
        if ordered[0] != ordered[1]:
            return -1 if ordered[0] < ordered[1] else 1
        if (found := compare(value, other_value)) != 0:
            return found
    return len(one) - len(other)


def _compare_members(one: Sequence[Any], other: Sequence[Any]) -> int:
    for value, other_value in zip(one, other, strict=False):
        if (found := compare(value, other_value)) != 0:
            return found
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
        found = [value_at_path(member, path) for member in cast("list[Any]", value) if isinstance(member, Mapping)]
        return [one for one in found if one is not MISSING]
    if not isinstance(value, Mapping) or path[0] not in value:
        return MISSING
    return value_at_path(cast("Document", value)[path[0]], path[1:])
