"""Python's values as DynamoDB's typed ones, and back. boto3 does the work; the commonest values take a short cut."""

from __future__ import annotations

from collections.abc import Mapping, Set
from decimal import Decimal
from typing import Any, cast

from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize
_SHORT = 10**38  # more digits than a DynamoDB number has: boto3 says so


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _typed(value) for name, value in values.items()}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _deserialize(value) for name, value in values.items()}


def _typed(value: Any) -> dict[str, Any]:
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is int and -_SHORT < value < _SHORT:
        return {"N": str(value)}
    if kind is list:
        return {"L": [_typed(member) for member in value]}
    return cast("dict[str, Any]", _serialize(value))


def size(value: Any) -> int:
    """Bytes as DynamoDB counts them: names and values in UTF-8, and three bytes more for each list and map."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return 3 + sum(1 + len(name.encode()) + size(member) for name, member in members.items())
    if isinstance(value, list):
        return 3 + sum(1 + size(member) for member in cast("list[Any]", value))
    if isinstance(value, Set):
        return sum(size(member) for member in cast("Set[Any]", value))
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes | bytearray):
        return len(value)
    if isinstance(value, Binary):
        return len(value.value)
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return len(str(value)) // 2 + 2  # two digits a byte, one for the exponent
    return 1
