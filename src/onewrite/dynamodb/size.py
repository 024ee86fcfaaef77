"""Computes the size that DynamoDB counts for an item. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.values import STORED_PRECISION, read_bytes

MAX_ITEM_BYTES = 400 * 1024  # DynamoDB's quota for an item, including its attribute names

_MAX_NUMBER_BYTES = 21


def measure_item(item: Mapping[str, Any]) -> int:
    """Return the size in bytes of an item with plain values, including its attribute names."""
    return sum([len(name.encode()) + measure_value(value) for name, value in item.items()])


def measure_value(value: Any) -> int:
    """Return the size in bytes of a plain value. A list or a map takes three bytes, and one more for each member."""
    match value:
        case str():
            return len(value.encode())
        case bytes() | bytearray() | Binary():
            return len(read_bytes(value) if isinstance(value, Binary) else value)
        case Decimal() | int() if not isinstance(value, bool):
            return _measure_number(Decimal(value))
        case AbstractSet():
            return sum([measure_value(member) for member in cast("AbstractSet[Any]", value)])
        case list():
            return 3 + sum([1 + measure_value(member) for member in cast("list[Any]", value)])
        case dict():
            members = cast("dict[str, Any]", value)
            return 3 + len(members) + measure_item(members)
        case _:  # null or a boolean
            return 1


def _measure_number(number: Decimal) -> int:
    """Return the size in bytes of a number.

    The digits before and after the decimal point are stored in pairs, one byte per pair, without leading and trailing zeros. The
    exponent takes one byte, and so does the sign of a negative number. AWS documents this only roughly. The details come from
    https://github.com/zaccharles/dynamodb-calculator, which measured them on AWS.
    """
    if not number:
        return 1
    sign, digits, exponent = number.normalize(STORED_PRECISION).as_tuple()
    half_a_pair = cast("int", exponent) % 2
    pairs = (len(digits) + half_a_pair + 1) // 2
    return min(1 + pairs + sign, _MAX_NUMBER_BYTES)
