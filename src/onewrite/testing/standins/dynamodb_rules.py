"""DynamoDB's rules for values and expressions, which moto does not keep. Pure: each check raises what DynamoDB answers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal
from itertools import combinations
from typing import Any, TypeAlias, cast

from onewrite.dynamodb.expression import LONGEST_EXPRESSION, check_limits, read_update
from onewrite.dynamodb.size import LARGEST_ITEM, item_size
from onewrite.errors import InvalidUpdate

Value: TypeAlias = dict[str, Any]  # {"S": "text"}: DynamoDB's typed form

Schema: TypeAlias = Mapping[str, str]  # the types of a table's key attributes

_LONGEST_PLACEHOLDER = 255
_MOST_WRITES = 25  # in a BatchWriteItem, over all its tables
_MOST_OPERANDS_OF_IN = 100
_MOST_DIGITS = 38
_LARGEST_EXPONENT, _SMALLEST_EXPONENT = 125, -130
_DEEPEST = 32

EXACT = Context(prec=300)  # the sum of two numbers has 256 digits at most: 1E125 + 1E-130
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_IN = re.compile(r"\bIN\s*\(([^()]*)\)", re.IGNORECASE)
_BEGINS_WITH = re.compile(r"\bbegins_with\s*\([^,()]+,\s*(:\w+)\s*\)")
_BETWEEN = re.compile(r"\bBETWEEN\s+(:\w+)\s+AND\s+(:\w+)", re.IGNORECASE)
_VALUE = re.compile(r":\w+")
_PLACEHOLDER = re.compile(r"[#:]\w+")
_TAKES: Mapping[str, tuple[str, ...]] = {"ADD": ("N", "NS", "SS", "BS"), "DELETE": ("NS", "SS", "BS")}
_WORDS = {"S": "STRING", "N": "NUMBER", "B": "BINARY", "BOOL": "BOOLEAN", "L": "LIST", "M": "MAP"}
_PART = re.compile(r"#?[\w-]+|\[\d+\]")  # of a document path
_EXPRESSIONS = (
    "UpdateExpression",
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
)
_FIRST_NAMES = re.compile(r"(?<![\w.:#])#?[A-Za-z_]\w*(?!\w*\s*\()")  # of paths, and no functions
_INVALID = "One or more parameter values were invalid"


class InvalidRequest(Exception):
    """DynamoDB refuses this request with a ValidationException."""


def check_request(body: Mapping[str, Any]) -> None:
    """Refuse what DynamoDB refuses before it reads any item, and write numbers as DynamoDB stores them."""
    for operation in _operations(body):
        for name in _EXPRESSIONS:
            if isinstance(text := operation.get(name), str):
                _check_expression(name, text)
                _check_operands(name, text, _mapping(operation, "ExpressionAttributeValues"))
                if name == "UpdateExpression":
                    _check_changes(text, _mapping(operation, "ExpressionAttributeValues"))
                if name == "ProjectionExpression":
                    _check_projection(text, _mapping(operation, "ExpressionAttributeNames"))
        for argument in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            _check_placeholders(argument, _mapping(operation, argument))
            _check_used(argument, operation)
        for name, value in _mapping(operation, "Key").items():
            _check_key(name, value)
        for name, value in _mapping(operation, "ExpressionAttributeValues").items():
            _check_placed(name, value)
        if item := operation.get("Item"):
            for value in item.values():
                check_value(value)
            if is_too_large(item):
                raise InvalidRequest("Item size has exceeded the maximum allowed size")


def has_empty_name(body: Mapping[str, Any]) -> bool:
    """Does the request give an empty name to an attribute, or to something in a map?"""
    for operation in _operations(body):
        item, values = _mapping(operation, "Item"), _mapping(operation, "ExpressionAttributeValues")
        if "" in item or "" in _mapping(operation, "ExpressionAttributeNames").values():
            return True
        if any(map(_holds_empty_name, (*item.values(), *values.values()))):
            return True
    return False


def _holds_empty_name(value: Value) -> bool:
    ((kind, content),) = value.items()
    if kind == "M" and "" in content:
        return True
    return any(map(_holds_empty_name, content.values() if kind == "M" else content if kind == "L" else ()))


def check_batch_write(batches: Mapping[str, Sequence[Mapping[str, Any]]], keys: Mapping[str, Sequence[str]]) -> None:
    """Refuse a BatchWriteItem with too many writes, with none, or with two of one item."""
    for table, writes in batches.items():
        if not 1 <= len(writes) <= _MOST_WRITES:
            raise InvalidRequest(
                f"1 validation error detected: Value '{{{table}=[...]}}' at 'requestItems' failed to satisfy constraint: Map value must "
                f"satisfy constraint: [Member must have length less than or equal to {_MOST_WRITES}, Member must have length greater "
                "than or equal to 1]"
            )
    if sum(map(len, batches.values())) > _MOST_WRITES:
        raise InvalidRequest("Too many items requested for the BatchWriteItem call")
    for table, writes in batches.items():
        written_items: list[Mapping[str, Any]] = [
            operation.get("Item") or operation.get("Key") or {} for write in writes for operation in write.values()
        ]
        items = [tuple([repr(item.get(name)) for name in keys.get(table, ())]) for item in written_items]
        if table in keys and len(set(items)) < len(items):
            raise InvalidRequest("Provided list of item keys contains duplicates")


def check_keys(operation: Mapping[str, Any], schema: Schema) -> None:
    """Refuse a key that is not as the table has it, whether in a `Key` or in an `Item`."""
    item = operation.get("Item")
    if item is not None:
        for name, kind in schema.items():
            if name not in item:
                raise InvalidRequest(f"{_INVALID}: Missing the key {name} in the item")
            if kind not in item[name]:
                raise InvalidRequest(
                    f"{_INVALID}: Type mismatch for key {name} expected: {kind} actual: {next(iter(item[name]))}"
                )
    keys = [operation["Key"]] if "Key" in operation else operation.get("Keys") or []
    for key in keys:
        if key.keys() != schema.keys() or any(kind not in key[name] for name, kind in schema.items()):
            raise InvalidRequest("The provided key element does not match the schema")


def check_index_keys(operation: Mapping[str, Any], types: Schema) -> None:
    """Refuse an `Item` with an attribute that is the key of an index, and not of its type, or empty."""
    for name, value in _mapping(operation, "Item").items():
        if name in types and types[name] not in value:
            raise InvalidRequest(
                f"{_INVALID}: Type mismatch for Index Key {name} Expected: {types[name]} Actual: {next(iter(value))}"
            )
        if name in types and value[types[name]] in ("", b""):
            raise InvalidRequest(
                f"{_INVALID}. A value specified for a secondary index key is not supported. The AttributeValue for a key attribute cannot "
                f"contain an empty string value. IndexKey: {name}"
            )


def check_filter(body: Mapping[str, Any], keys: Collection[str]) -> None:
    """Refuse a Query that filters by a key attribute of its table or index."""
    names = _mapping(body, "ExpressionAttributeNames")
    for name in _FIRST_NAMES.findall(str(body.get("FilterExpression", ""))):
        if names.get(name, name) in keys:
            raise InvalidRequest(
                "Filter Expression can only contain non-primary key attributes: Primary key attribute: "
                f"{names.get(name, name)}"
            )


def _operations(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The request itself, and each operation in a transaction or a batch."""
    yield body
    for action in cast("Sequence[Mapping[str, Any]]", body.get("TransactItems") or ()):
        yield from action.values()
    for batch in _mapping(body, "RequestItems").values():
        if isinstance(batch, list):  # of a BatchWriteItem; a BatchGetItem has a mapping here
            for write in cast("list[Mapping[str, Any]]", batch):
                yield from write.values()


def _check_operands(name: str, text: str, values: Mapping[str, Any]) -> None:
    """Refuse values of types that an operator never takes, which DynamoDB sees before it reads any item."""

    def kind(placeholder: str) -> str | None:
        return next(iter(values[placeholder]), None) if placeholder in values else None

    for placeholder in _BEGINS_WITH.findall(text):
        if kind(placeholder) not in (None, "S", "B"):
            raise InvalidRequest(
                f"Invalid {name}: Incorrect operand type for operator or function; operator or function: begins_with, operand type: "
                f"{kind(placeholder)}"
            )
    for lower, upper in _BETWEEN.findall(text):
        low, high = values.get(lower), values.get(upper)
        if low is None or high is None:
            continue
        if kind(lower) != kind(upper):
            raise InvalidRequest(
                f"Invalid {name}: The BETWEEN operator requires same data type for lower and upper bounds; lower bound operand: "
                f"AttributeValue: {low}, upper bound operand: AttributeValue: {high}"
            )
        one, other = (Decimal(end["N"]) if "N" in end else next(iter(end.values())) for end in (low, high))
        if kind(lower) in ("S", "N", "B") and one > other:
            raise InvalidRequest(
                f"Invalid {name}: The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound "
                f"operand: AttributeValue: {low}, upper bound operand: AttributeValue: {high}"
            )


def _check_changes(text: str, values: Mapping[str, Any]) -> None:
    """Refuse what ADD and DELETE never take."""
    with suppress(InvalidUpdate):  # an expression that cannot be read is moto's to refuse
        for clause, changes in read_update(text).clauses:
            for placeholder in _VALUE.findall(changes) if clause in _TAKES else ():
                kind = next(iter(values.get(placeholder, {})), None)
                if kind is not None and kind not in _TAKES[clause]:
                    raise InvalidRequest(
                        f"Invalid UpdateExpression: Incorrect operand type for operator or function; operator: {clause}, operand type: "
                        f"{_WORDS.get(kind, kind)}"
                    )


def _check_projection(text: str, names: Mapping[str, str]) -> None:
    paths = [[names.get(part, part) for part in _PART.findall(path)] for path in text.split(",")]
    for one, other in combinations(paths, 2):
        if one[: len(other)] == other[: len(one)]:
            raise InvalidRequest(
                "Invalid ProjectionExpression: Two document paths overlap with each other; must remove or rewrite one of these paths; "
                f"path one: [{', '.join(one)}], path two: [{', '.join(other)}]"
            )


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


def _check_used(argument: str, operation: Mapping[str, Any]) -> None:
    texts = [text for name in _EXPRESSIONS if isinstance(text := operation.get(name), str)]
    placeholders = set(_PLACEHOLDER.findall(" ".join(texts)))
    unused = [name for name in _mapping(operation, argument) if name not in placeholders]
    if texts and unused:
        raise InvalidRequest(f"Value provided in {argument} unused in expressions: keys: {{{', '.join(unused)}}}")


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
    ((kind, content),) = value.items()
    match kind:
        case "N":
            value[kind] = number(content)
        case "NS" | "SS" | "BS":
            members = [number(member) for member in content] if kind == "NS" else content
            _check_set(kind, members)
            value[kind] = members
        case "M":
            for member in content.values():
                check_value(member, depth + 1)
        case "L":
            for member in content:
                check_value(member, depth + 1)
        case "NULL" if content is not True:
            raise InvalidRequest(f"{_INVALID}: Null attribute value types must have the value of true")
        case _:
            pass


def _check_set(kind: str, members: Sequence[Any]) -> None:
    if not members:
        word = {"NS": "number", "SS": "string", "BS": "binary"}[kind]
        raise InvalidRequest(f"{_INVALID}: An {word} set  may not be empty")
    if len(set(members)) < len(members):
        text = f"Input collection [{', '.join(map(str, members))}] contains duplicates."
        raise InvalidRequest(f"{_INVALID}: {text}" if kind == "SS" else "Input collection contains duplicates")


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
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return Decimal(content)
        case "NS":
            return frozenset(map(Decimal, content))
        case "SS" | "BS":
            return frozenset(content)
        case "L":
            return [_plain(member) for member in content]
        case "M":
            return {name: _plain(member) for name, member in content.items()}
        case "NULL":
            return None
        case _:
            return content
