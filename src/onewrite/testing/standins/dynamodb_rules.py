"""DynamoDB's rules for values and expressions, which moto does not keep. Pure: each check raises what DynamoDB answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, TypeAlias, cast

from onewrite.dynamodb.writing.expression import LONGEST_EXPRESSION, check_limits
from onewrite.dynamodb.writing.size import LARGEST_ITEM, item_size
from onewrite.errors import InvalidUpdate

Value: TypeAlias = dict[str, Any]  # {"S": "text"}: DynamoDB's typed form

_LONGEST_PLACEHOLDER = 255
_MOST_OPERANDS_OF_IN = 100
_MOST_DIGITS = 38
_LARGEST_EXPONENT, _SMALLEST_EXPONENT = 125, -130
_DEEPEST = 32

EXACT = Context(prec=300)  # the sum of two numbers has 256 digits at most: 1E125 + 1E-130
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_IN = re.compile(r"\bIN\s*\(([^()]*)\)", re.IGNORECASE)
_EXPRESSIONS = (
    "UpdateExpression",
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
)
_INVALID = "One or more parameter values were invalid"


class InvalidRequest(Exception):
    """DynamoDB refuses this request with a ValidationException."""


def check_request(body: Mapping[str, Any]) -> None:
    """Refuse what DynamoDB refuses before it reads any item, and write numbers as DynamoDB stores them."""
    for operation in _operations(body):
        for name in _EXPRESSIONS:
            if isinstance(text := operation.get(name), str):
                _check_expression(name, text)
        for argument in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            _check_placeholders(argument, _mapping(operation, argument))
        for name, value in _mapping(operation, "Key").items():
            _check_key(name, value)
        for name, value in _mapping(operation, "ExpressionAttributeValues").items():
            _check_placed(name, value)
        if item := operation.get("Item"):
            for value in item.values():
                check_value(value)
            if is_too_large(item):
                raise InvalidRequest("Item size has exceeded the maximum allowed size")


def _operations(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The request itself, and each operation in a transaction or a batch."""
    yield body
    for action in cast("Sequence[Mapping[str, Any]]", body.get("TransactItems") or ()):
        yield from action.values()
    for batch in _mapping(body, "RequestItems").values():
        if isinstance(batch, list):  # of a BatchWriteItem; a BatchGetItem has a mapping here
            for write in cast("list[Mapping[str, Any]]", batch):
                yield from write.values()


def _mapping(operation: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", operation.get(name) or {})


def _check_expression(name: str, text: str) -> None:
    bytes_ = len(text.encode())
    if bytes_ > LONGEST_EXPRESSION:
        raise InvalidRequest(
            f"Invalid {name}: Expression size has exceeded the maximum allowed size; expression size: {bytes_}"
        )
    try:
        check_limits(name, text)
    except InvalidUpdate as error:
        raise InvalidRequest(f"Invalid {name}: The expression contains too many operators: {error}") from error
    for operands in _IN.findall(text):
        if (count := operands.count(",") + 1) > _MOST_OPERANDS_OF_IN:
            raise InvalidRequest(
                f"Invalid {name}: The IN operator is provided with too many operands; number of operands: {count}"
            )


def _check_placeholders(argument: str, placeholders: Mapping[str, Any]) -> None:
    for name in placeholders:
        if len(name.encode()) > _LONGEST_PLACEHOLDER:
            raise InvalidRequest(
                f"{argument} contains invalid key: The placeholder has {len(name.encode())} bytes, and may have "
                f"{_LONGEST_PLACEHOLDER}: {name}"
            )


def _check_key(name: str, value: Value) -> None:
    check_value(value)
    if value.get("S") == "" or value.get("B") == b"":
        raise InvalidRequest(
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty "
            f"string value. Key: {name}"
        )


def _check_placed(name: str, value: Value) -> None:
    try:
        check_value(value)
    except InvalidRequest as error:
        raise InvalidRequest(f"ExpressionAttributeValues contains invalid value: {error} for key {name}") from error


def check_value(value: Value, depth: int = 0) -> None:
    """Refuse what cannot be stored. Numbers in it are rewritten in place."""
    if depth > _DEEPEST:
        raise InvalidRequest(
            "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit"
        )
    ((kind, held),) = value.items()
    match kind:
        case "N":
            value[kind] = number(held)
        case "NS" | "SS" | "BS":
            members = [number(member) for member in held] if kind == "NS" else held
            _check_set(kind, members)
            value[kind] = members
        case "M":
            for member in held.values():
                check_value(member, depth + 1)
        case "L":
            for member in held:
                check_value(member, depth + 1)
        case _:
            pass


def _check_set(kind: str, members: Sequence[Any]) -> None:
    if not members:
        word = {"NS": "number", "SS": "string", "BS": "binary"}[kind]
        raise InvalidRequest(f"{_INVALID}: An {word} set  may not be empty")
    if len(set(members)) < len(members):
        shown = f"Input collection [{', '.join(map(str, members))}] contains duplicates."
        raise InvalidRequest(f"{_INVALID}: {shown}" if kind == "SS" else "Input collection contains duplicates")


def number(text: str) -> str:
    """A number as DynamoDB stores it: at most 38 digits, without exponent and without zeros at either end."""
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"The parameter cannot be converted to a numeric value: {text}")
    value = EXACT.create_decimal(text).normalize(EXACT)
    if not value:
        return "0"
    if value.adjusted() > _LARGEST_EXPONENT:
        raise InvalidRequest("Number overflow. Attempting to store a number with magnitude larger than supported range")
    if value.adjusted() < _SMALLEST_EXPONENT:
        raise InvalidRequest("Number underflow. Attempting to store a number with magnitude smaller than supported range")
    if len(value.as_tuple().digits) > _MOST_DIGITS:
        raise InvalidRequest("Attempting to store more than 38 significant digits in a Number")
    return f"{value:f}"


def is_too_large(item: Mapping[str, Value]) -> bool:
    return item_size({name: _plain(value) for name, value in item.items()}) > LARGEST_ITEM


def _plain(value: Value) -> Any:
    """boto3 converts values too, but refuses a number whose text has more than 38 digits, of which the last are zeros."""
    ((kind, held),) = value.items()
    match kind:
        case "N":
            return Decimal(held)
        case "NS":
            return frozenset(map(Decimal, held))
        case "SS" | "BS":
            return frozenset(held)
        case "L":
            return [_plain(member) for member in held]
        case "M":
            return {name: _plain(member) for name, member in held.items()}
        case "NULL":
            return None
        case _:
            return held
