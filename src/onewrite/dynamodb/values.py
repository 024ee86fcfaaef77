"""Python's values as DynamoDB's typed ones, and back. boto3 does the work; the commonest values take a short cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, cast

from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize
_SHORT = 10**38  # more digits than a DynamoDB number has: boto3 says so


class Members(AbstractSet[Any]):
    """A set that is sent in one order: the same call makes the same bytes, whatever the hash seed."""

    __slots__ = ("_members",)

    def __init__(self, members: Iterable[Any]) -> None:
        self._members = tuple(members)

    def __contains__(self, member: object) -> bool:
        return member in self._members

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return "{" + ", ".join(map(repr, self._members)) + "}"


def typed(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _typed(value) for name, value in values.items()}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _deserialize(value) for name, value in values.items()}


def _typed(value: Any) -> dict[str, Any]:
    kind = cast("type[object]", type(value))
    if kind is str:
        return {"S": value}
    if kind is int and -_SHORT < value < _SHORT:
        return {"N": str(value)}
    if kind is Members:
        members = list(value)
        if all(type(member) is str for member in members):
            return {"SS": members}
    if kind is list:
        return {"L": [_typed(member) for member in value]}
    return cast("dict[str, Any]", _serialize(value))


def raw(binary: Binary) -> bytes:
    return cast("bytes", cast("Any", binary).value)  # the stubs do not know it


def size(value: Any) -> int:
    """Bytes as DynamoDB counts them: names and values in UTF-8, and three bytes more for each list and map."""
    match value:
        case dict():
            members = cast("dict[str, Any]", value)
            return 3 + sum([1 + len(name.encode()) + size(member) for name, member in members.items()])
        case list():
            return 3 + sum([1 + size(member) for member in cast("list[Any]", value)])
        case AbstractSet():
            return sum([size(member) for member in cast("AbstractSet[Any]", value)])
        case str():
            return len(value.encode())
        case bytes() | bytearray():
            return len(value)
        case Binary():
            return len(raw(value))
        case Decimal() | int() if not isinstance(value, bool):
            return len(str(value)) // 2 + 2  # two digits a byte, one for the exponent
        case _:
            return 1
