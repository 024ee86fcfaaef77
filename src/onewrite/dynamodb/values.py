"""Python's values as DynamoDB's typed ones, and back. boto3 does the work; the commonest values take a short cut."""

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
from onewrite.lean.insides import read_handlers

Convert: TypeAlias = Callable[
    [Mapping[str, Any]], dict[str, Any]
]  # values by their names, as a Table or a client takes them


class _ExactNumbers(TypeDeserializer):
    """boto3 raises for a number that is stored with more than 38 digits in its text, such as 1E+125 written out."""

    def _deserialize_n(self, value: str) -> Decimal:
        number = Decimal(value)
        # Without the zeros at its end it can be sent again.
        return number if len(value) <= _DIGITS else number.normalize(_EXACT)


_DIGITS, _EXACT = 38, Context(prec=200)  # what a number has at most, and more than its text has written out
_serialize = TypeSerializer().serialize
_deserialize = _ExactNumbers().deserialize
_MIN_NUMBER, _MAX_NUMBER = -(10**38), 10**38  # with more digits than a DynamoDB number has: boto3 says so


class Members(AbstractSet[Any]):
    """A set that is sent in one order: the same call makes the same bytes, whatever the hash seed."""

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


_SETS: dict[type, str] = {str: "SS", bytes: "BS"}
# Nearly all values are of these types, and are sent as they are.
_PLAIN = frozenset({str, int, bytes, bool, Decimal, Members})


def sendable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a caller's values as a Table takes them."""
    return {name: value if type(value) in _PLAIN else _sendable_value(name, value) for name, value in values.items()}


def _sendable_value(name: str, value: Any) -> Any:
    """Return the value with its sets in one order. DynamoDB stores no empty set."""
    if type(value) in _PLAIN:
        return value
    match value:
        case AbstractSet():
            if not value:
                raise InvalidUpdate(f"{name} is an empty set, which DynamoDB does not store: REMOVE the attribute instead.")
            return Members(sorted(cast("AbstractSet[object]", value), key=repr))
        case Mapping():
            return {inner: _sendable_value(name, member) for inner, member in cast("Mapping[str, object]", value).items()}
        case list() | tuple():
            return [_sendable_value(name, member) for member in cast("list[object]", value)]
        case _:
            return value


def typed_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a caller's values as a client takes them."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]  # of any value
        if kind is str:
            result[name] = {"S": value}
        elif kind is int and _MIN_NUMBER < value < _MAX_NUMBER:
            result[name] = {"N": str(value)}
        elif kind is bytes:
            result[name] = {"B": value}
        elif (
            kind is Members and len(value.members) == 1 and (name_of_set := _SETS.get(type(value.members[0])))  # pyright: ignore[reportUnknownArgumentType]
        ):
            result[name] = {name_of_set: [*value.members]}
        else:
            result[name] = _typed_value(name, value)
    return result


def _typed_value(name: str, value: Any) -> dict[str, Any]:
    kind = cast("type[object]", type(value))
    if kind is Members:
        kinds = {*map(type, value.members)}
        if len(kinds) == 1 and (name_of_set := _SETS.get(kinds.pop())):
            return {name_of_set: [*value.members]}
    if is_typed(value):
        raise InvalidUpdate(
            f"{name} is {value!r}, a typed value: a guarded client takes plain ones, as a Table does, and would store this as a map. "
            "Give it the value alone, or make the store with typed=True. A map that looks like this can be stored through a Table."
        )
    return _typed_member(name, value)


def _typed_member(name: str, value: Any) -> dict[str, Any]:
    """Return a member as boto3 types it, which takes several times as long for the commonest types. `name`: of the whole value."""
    kind = cast("type[object]", type(value))
    if kind is str:
        return {"S": value}
    if kind is int and _MIN_NUMBER < value < _MAX_NUMBER:
        return {"N": str(value)}
    if kind is dict:
        return {"M": {inner: _typed_member(name, member) for inner, member in value.items()}}
    if kind is list:
        return {"L": [_typed_member(name, member) for member in value]}
    return cast("dict[str, Any]", _serialize(_sendable_value(name, value)))


_TYPES: dict[str, type | tuple[type, ...]] = {
    "S": str, "N": str, "B": (bytes, bytearray), "SS": (list, tuple, set), "NS": (list, tuple, set), "BS": (list, tuple, set),
    "M": Mapping, "L": (list, tuple), "BOOL": bool, "NULL": bool,
}  # fmt: skip


def is_typed(value: object) -> bool:
    """Whether this is a value as a plain client writes it, such as {"S": "text"}."""
    if not isinstance(value, Mapping) or len(cast("Mapping[str, object]", value)) != 1:
        return False
    ((name, inner),) = cast("Mapping[str, object]", value).items()
    return name in _TYPES and isinstance(inner, _TYPES[name])


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _deserialize(value) for name, value in values.items()}


def readable_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `plain_values`. An `Unreadable` lacks those of a type that boto3 does not know."""
    try:
        return plain_values(values)
    except Exception:  # what boto3 raises for what it does not know
        return Unreadable(_readable_part(values))


def _readable_part(values: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in values.items():
        with suppress(Exception):
            result[name] = _deserialize(value)
    return result


def check_low_level_client(client: object) -> None:
    """Raise if this is the client of a resource: it types values itself, and would type ours a second time."""
    handlers: list[Callable[..., Any]] = []
    with suppress(AttributeError, TypeError):  # what stands in for a client may have none
        handlers = read_handlers(client, "provide-client-params.dynamodb.UpdateItem")
    if copy_dynamodb_params in handlers:
        raise ConfigurationError(
            "This is the client of a boto3 resource, which takes plain values as a Table does, and table_name= is for a low-level one: give "
            "the Table itself without table_name, or boto3.client('dynamodb')."
        )


def read_bytes(binary: Binary) -> bytes:
    return cast("bytes", cast("Any", binary).value)  # the stubs of boto3 leave it out


def let_read_long_numbers(client: Any) -> None:
    """Let a Table's own client read numbers whose text has more than 38 digits, for which boto3 raises: write them short before it reads them."""
    client.meta.events.register_first("after-call.dynamodb", _shorten, unique_id="onewrite-long-numbers")


def _shorten(parsed: Any, **_: Any) -> None:
    stack: list[Any] = [parsed]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            number, numbers = members.get("N"), members.get("NS")
            if isinstance(number, str):
                members["N"] = _short(number)
            if isinstance(numbers, list):
                members["NS"] = list(map(_short, cast("list[str]", numbers)))
            stack.extend(members.values())
        elif isinstance(value, list):
            stack.extend(cast("list[Any]", value))


def _short(number: str) -> str:
    return number if len(number) <= _DIGITS else str(Decimal(number).normalize(_EXACT))
