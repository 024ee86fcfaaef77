"""How many bytes DynamoDB counts for an item. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Context, Decimal
from typing import Any, cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.values import read_bytes

MAX_ITEM_BYTES = 400 * 1024  # the quota of an item, with the names of its attributes

_MAX_NUMBER_BYTES = 21
_DIGITS = Context(prec=38)  # as many as a number may have


def item_size(item: Mapping[str, Any]) -> int:
    """Return the bytes of an item of plain values. Its names count as well."""
    return sum([len(name.encode()) + value_size(value) for name, value in item.items()])


def value_size(value: Any) -> int:
    """Return the bytes of a plain value. A list or a map takes three bytes, and one more for each member."""
    match value:
        case str():
            return len(value.encode())
        case bytes() | bytearray() | Binary():
            return len(read_bytes(value) if isinstance(value, Binary) else value)
        case Decimal() | int() if not isinstance(value, bool):
            return _number_size(Decimal(value))
        case AbstractSet():
            return sum([value_size(member) for member in cast("AbstractSet[Any]", value)])
        case list():
            return 3 + sum([1 + value_size(member) for member in cast("list[Any]", value)])
        case dict():
            members = cast("dict[str, Any]", value)
            return 3 + len(members) + item_size(members)
        case _:
            return 1


def _number_size(number: Decimal) -> int:
    """The digits before and after the point are stored in pairs, a byte for each, without the zeros at both ends.

    A byte more is the exponent, and one is the sign of a negative number. AWS documents this only roughly. It is what
    https://github.com/zaccharles/dynamodb-calculator has found by measuring on AWS.
    """
    if not number:
        return 1
    sign, digits, exponent = number.normalize(_DIGITS).as_tuple()
    half_a_pair = cast("int", exponent) % 2
    pairs = (len(digits) + half_a_pair + 1) // 2
    return min(1 + pairs + sign, _MAX_NUMBER_BYTES)
