"""Values of an item: their conversion from plain Python values to DynamoDB's typed ones and back, and their size.

boto3 converts them, except for the most common types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from decimal import Context, Decimal
from typing import Any, TypeAlias, cast

from boto3.dynamodb.transform import copy_dynamodb_params
from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

from onewrite.core.write import Unreadable
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.lean.insides import read_event_handlers

Convert: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Converts named values to the form that a Table or a client accepts."""


class _ExactNumbers(TypeDeserializer):
    """A deserializer for numbers whose stored string has more than 38 digits, such as 1E+125 written out. boto3 raises for them."""

    def _deserialize_n(self, value: str) -> Decimal:
        number = Decimal(value)
        # The number can be sent again only without trailing zeros.
        return number if len(value) <= _MAX_DIGITS else number.normalize(_EXACT)


_MAX_DIGITS = 38  # DynamoDB stores no more digits of a number
STORED_PRECISION = Context(prec=_MAX_DIGITS)
_EXACT = Context(prec=200)  # more than the digits of any number that is written out
_serialize = TypeSerializer().serialize
_deserialize = _ExactNumbers().deserialize
# Integers of 38 digits. DynamoDB stores no more, and boto3 raises for others.
MIN_NUMBER, MAX_NUMBER = -(10**38) + 1, 10**38 - 1


class Members(AbstractSet[Any]):
    """A set with a fixed order. The same call sends the same bytes, even with a different hash seed."""

    __slots__ = ("members",)

    def __init__(self, members: Iterable[Any]) -> None:
        self.members: tuple[Any, ...] = tuple(members)

    def __contains__(self, member: object) -> bool:
        return member in self.members

    def __iter__(self) -> Iterator[Any]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __deepcopy__(self, memo: object) -> Members:
        return self  # it never changes, and boto3 copies every parameter of a Table's call

    def __repr__(self) -> str:
        return "{" + ", ".join(map(repr, self.members)) + "}"


# Nearly all values have these types, and are sent unchanged.
_PLAIN = frozenset({str, int, bytes, bool, Decimal, Members})


def sendable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a caller's values in the form that a Table accepts."""
    return {name: value if type(value) in _PLAIN else _make_sendable_value(name, value) for name, value in values.items()}


def _make_sendable_value(name: str, value: Any) -> Any:
    """Return the value with its sets in a fixed order. Raise for an empty set, which DynamoDB doesn't store."""
    if type(value) in _PLAIN:
        return value
    match value:
        case AbstractSet():
            if not value:
                raise InvalidUpdate(f"{name} is an empty set, which DynamoDB can't store. REMOVE the attribute instead.")
            return Members(sorted(cast("AbstractSet[object]", value), key=repr))
        case Mapping():
            return {
                inner: _make_sendable_value(name, member) for inner, member in cast("Mapping[str, object]", value).items()
            }
        case list() | tuple():
            return [_make_sendable_value(name, member) for member in cast("list[object]", value)]
        case _:
            return value


def typed_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a caller's values in the typed form that a client accepts."""
    typed: dict[str, Any] = {}
    for name, value in values.items():
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]  # of any value
        if kind is str:
            typed[name] = {"S": value}
        elif kind is int and MIN_NUMBER <= value <= MAX_NUMBER:
            typed[name] = {"N": str(value)}
        elif kind is Members and len(value.members) == 1 and type(value.members[0]) is str:
            typed[name] = {"SS": [*value.members]}
        else:
            typed[name] = _make_typed_value(name, value)
    return typed


def _make_typed_value(name: str, value: Any) -> dict[str, Any]:
    """Return a caller's value in typed form. Raise if it's typed already."""
    kind = cast("type[object]", type(value))
    if kind is Members and {*map(type, value.members)} == {str}:
        return {"SS": [*value.members]}
    if is_typed(value):
        raise InvalidUpdate(
            f"{name} is {{{next(iter(value))!r}: ...}}, a typed value. A guarded client takes plain values, like a Table, and would store this "
            "as a map. "
            "Pass the plain value, or create the store with typed=True. To store such a map, use a Table."
        )
    return _make_typed_member(name, value)


def _make_typed_member(name: str, value: Any) -> dict[str, Any]:
    """Return a value in boto3's typed form. The most common types don't go through boto3, which takes several times as long.

    `name` is the name of the outermost value, for errors.
    """
    kind = cast("type[object]", type(value))
    if kind is str:
        return {"S": value}
    if kind is int and MIN_NUMBER <= value <= MAX_NUMBER:
        return {"N": str(value)}
    if kind is dict:
        return {"M": {inner: _make_typed_member(name, member) for inner, member in value.items()}}
    if kind is list:
        return {"L": [_make_typed_member(name, member) for member in value]}
    return cast("dict[str, Any]", _serialize(_make_sendable_value(name, value)))


_TYPES: dict[str, type | tuple[type, ...]] = {
    "S": str, "N": str, "B": (bytes, bytearray), "SS": (list, tuple, set), "NS": (list, tuple, set), "BS": (list, tuple, set),
    "M": Mapping, "L": (list, tuple), "BOOL": bool, "NULL": bool,
}  # fmt: skip


def is_typed(value: object) -> bool:
    """Whether this is a typed value, such as {"S": "text"}."""
    if not isinstance(value, Mapping) or len(cast("Mapping[str, object]", value)) != 1:
        return False
    ((name, inner),) = cast("Mapping[str, object]", value).items()
    return name in _TYPES and isinstance(inner, _TYPES[name])


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _make_plain_value(value) for name, value in values.items()}


def _make_plain_value(value: Any) -> Any:
    """Return the value of a typed one. The most common types don't go through boto3, which takes several times as long."""
    typed: dict[str, Any] = value
    if type(typed) is dict and len(typed) == 1:
        ((kind, inner),) = typed.items()
        if kind == "S" and type(inner) is str:
            return inner
        if kind == "M" and type(inner) is dict:
            return plain_values(cast("dict[str, Any]", inner))
        if kind == "L" and type(inner) is list:
            return [*map(_make_plain_value, cast("list[Any]", inner))]
    return _deserialize(value)


def readable_values(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return `plain_values`, or an `Unreadable` without the values whose types boto3 doesn't know. Return None if there's no item."""
    if values is None:
        return None
    try:
        return plain_values(values)
    except Exception:  # boto3 can raise any error for a type that it doesn't know
        readable = Unreadable()
        for name, value in values.items():
            with suppress(Exception):
                readable[name] = _make_plain_value(value)
        return readable


def check_low_level_client(client: object) -> None:
    """Raise if this client belongs to a boto3 resource. Such a client converts plain values itself, and would convert typed values again."""
    handlers: list[Callable[..., Any]] = []
    with suppress(AttributeError, TypeError):  # a stand-in for a client might have no handlers
        handlers = read_event_handlers(client, "provide-client-params.dynamodb.UpdateItem")
    if copy_dynamodb_params in handlers:
        raise ConfigurationError(
            "This client belongs to a boto3 resource and takes plain values, but table_name= requires a low-level client. Pass the "
            "Table itself without table_name, or boto3.client('dynamodb')."
        )


def read_bytes(binary: Binary) -> bytes:
    """Return the bytes of boto3's `Binary`."""
    return cast("bytes", cast("Any", binary).value)  # boto3's stubs don't have this attribute


def shorten_long_numbers(client: Any) -> None:
    """Shorten numbers with more than 38 digits before a Table's client reads them, because boto3 raises for them."""
    client.meta.events.register_first("after-call.dynamodb", _shorten_numbers, unique_id="onewrite-long-numbers")


def _shorten_numbers(parsed: Any, **_: Any) -> None:
    """Shorten the numbers in a parsed response, in place. botocore calls this with further arguments."""
    stack: list[Any] = [parsed]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            number, numbers = members.get("N"), members.get("NS")
            if isinstance(number, str):
                members["N"] = _shorten_number(number)
            if isinstance(numbers, list):
                members["NS"] = list(map(_shorten_number, cast("list[str]", numbers)))
            stack.extend(members.values())
        elif isinstance(value, list):
            stack.extend(cast("list[Any]", value))


def _shorten_number(number: str) -> str:
    return number if len(number) <= _MAX_DIGITS else str(Decimal(number).normalize(_EXACT))


# --- the size ----------------------------------------------------------------------------------------------------------

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
