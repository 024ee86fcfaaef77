"""Patches moto so that it answers as DynamoDB does where moto is known to answer otherwise.

Every request to DynamoDB goes through one method of moto's, whichever client sends it. There a lock makes it atomic, because moto
checks a condition and then writes, and another thread could write in between.

What is made right: keys of the wrong type, those of indexes included; filters by a key; batches of too many writes, of writes to two tables, and of two writes of one item; projections
in transactions and AttributesToGet; what begins_with and BETWEEN take; the size limit of an item and the limits of expressions; numbers, in requests and in what is computed; sets with
duplicates; empty keys; comparisons of different types and of missing attributes; overlapping paths; paths below a scalar; an update
without an expression; an update that only removes attributes from an item that is not there; a write that fails halfway; the token
of a transaction. An answer has no date, since a test may give its stores another clock.

What is refused with `StandInLies`: PartiQL, empty attribute names, also in maps, and every request at which moto itself fails.

What stays wrong: the consumed capacity where it is asked for, which of two mistakes in one request is named, `UPDATED_OLD` of a nested path, the reason of a transaction that fails for another cause
than a condition, time to live, streams, throttling, and conflicts between transactions.
"""

from __future__ import annotations

import operator
import re
import threading
from base64 import b64decode
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from decimal import localcontext
from functools import wraps
from itertools import combinations
from typing import Any, NoReturn, TypeAlias, cast
from unittest import mock

from moto.core.responses import ActionResult
from moto.dynamodb.comparisons import (
    AttributeValue,
    FuncBetween,
    FuncContains,
    FuncIn,
    FuncSize,
    OpEqual,
    OpGreaterThan,
    OpGreaterThanOrEqual,
    OpLessThan,
    OpLessThanOrEqual,
    OpNotEqual,
)
from moto.dynamodb.exceptions import (
    DuplicateUpdateExpression,
    DynamodbException,
    InvalidConditionExpression,
    InvalidUpdateExpressionInvalidDocumentPath,
    MockValidationException,
    ResourceNotFoundException,
    TransactionCanceledException,
)
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, LimitedSizeDict
from moto.dynamodb.parsing import ast_nodes
from moto.dynamodb.parsing.validators import OverlappingPathsValidator
from moto.dynamodb.responses import DynamoHandler, DynamoResult, ProjectionExpressionParser

from onewrite.dynamodb.expression import read_update
from onewrite.testing.errors import StandInLies
from onewrite.testing.standins.dynamodb_rules import (
    EXACT,
    InvalidRequest,
    Schema,
    check_batch_write,
    check_filter,
    check_index_keys,
    check_keys,
    check_request,
    has_empty_name,
    is_too_large,
    number,
)

# --- conditions -------------------------------------------------------------------------------------------------------
#
# Conditions as DynamoDB evaluates them. Values of different types are not equal, and a missing attribute equals nothing.

Item: TypeAlias = Any
Operand: TypeAlias = Any

_SIZED = ("S", "B", "SS", "NS", "BS", "L", "M")
_ORDERED = ("S", "N", "B")
_ORDERS: dict[Any, Callable[[Any, Any], bool]] = {
    OpLessThan: operator.lt,
    OpLessThanOrEqual: operator.le,
    OpGreaterThan: operator.gt,
    OpGreaterThanOrEqual: operator.ge,
}


def comparisons() -> Iterator[tuple[Any, str, Callable[[Any, Item], Any]]]:
    """The methods of moto that are replaced: the class, the name, and the function that takes its place."""
    yield FuncSize, "expr", _size
    yield OpEqual, "expr", lambda op, item: _equal(op.lhs, op.rhs, item)
    yield OpNotEqual, "expr", lambda op, item: not _equal(op.lhs, op.rhs, item)
    yield FuncIn, "expr", lambda func, item: any(_equal(func.attr, value, item) for value in func.possible_values)
    yield FuncBetween, "expr", _between
    yield FuncContains, "expr", _contains(FuncContains.expr)
    for kind, order in _ORDERS.items():
        yield kind, "expr", _ordered(order)


def _kind(operand: Operand, item: Item) -> str | None:
    """The type of an operand. None if it is missing."""
    if isinstance(operand, FuncSize):
        return None if _size(operand, item) is None else "N"
    return cast("str | None", operand.get_type(item))


def _size(func: Any, item: Item) -> int | None:
    return len(func.attr.expr(item)) if func.attr.get_type(item) in _SIZED else None


def _equal(one: Operand, other: Operand, item: Item) -> bool:
    kind = _kind(one, item)
    return bool(kind is not None and kind == _kind(other, item) and one.expr(item) == other.expr(item))


def _ordered(order: Callable[[Any, Any], bool]) -> Callable[[Any, Item], bool]:
    def expr(op: Any, item: Item) -> bool:
        return _comparable(item, op.OP, op.lhs, op.rhs) and order(op.lhs.expr(item), op.rhs.expr(item))

    return expr


def _between(func: Any, item: Item) -> bool:
    if not _comparable(item, "BETWEEN", func.attr, func.start, func.end):
        return False
    return bool(func.start.expr(item) <= func.attr.expr(item) <= func.end.expr(item))


def _contains(original: Callable[[Any, Item], bool]) -> Callable[[Any, Item], bool]:
    """moto knows no binary value that contains another."""

    def expr(func: Any, item: Item) -> bool:
        kinds = _kind(func.attr, item), _kind(func.operand, item)
        if kinds == ("B", "B"):
            return bytes(_raw(func.operand.expr(item))) in bytes(_raw(func.attr.expr(item)))
        return original(func, item)

    return expr


def _raw(value: Any) -> bytes:
    """Of a binary value, which moto keeps in base64."""
    return b64decode(value) if isinstance(value, str) else bytes(getattr(value, "value", value))


def _comparable(item: Item, name: str, *operands: Operand) -> bool:
    for operand in operands:
        if isinstance(operand, AttributeValue) and operand.type not in _ORDERED:
            raise InvalidConditionExpression(
                f"Incorrect operand type for operator or function; operator: {name}, operand type: {operand.type}"
            )
    kinds = {_kind(operand, item) for operand in operands}
    return len(kinds) == 1 and kinds <= set(_ORDERED)


# --- patches ----------------------------------------------------------------------------------------------------------

Patch: TypeAlias = tuple[Any, str, Callable[..., Any]]

_REMEDY = "Run this test on dynoxide() or dynamodb_local()"
_CHECKED = ("put_item", "get_item", "delete_item", "query", "scan", "batch_get_item")
_SET_WHOLE = re.compile(r"(?:SET|,)\s*(#?\w+)\s*=", re.IGNORECASE)
_PARTIQL = ("execute_statement", "execute_transaction", "batch_execute_statement")
_ACTIONS = [getattr(ast_nodes, f"UpdateExpression{clause}Action") for clause in ("Set", "Remove", "Add", "Delete")]


@contextmanager
def patched() -> Generator[None, None, None]:
    """Patch moto until the block ends."""
    with ExitStack() as stack:
        for owner, name, patch in [*_requests(), *_writes(), *comparisons()]:
            stack.enter_context(mock.patch.object(owner, name, patch))
        yield


# ---------------------------------------------------------------- requests


def _requests() -> Iterator[Patch]:
    yield DynamoHandler, "call_action", _atomic(DynamoHandler.call_action)
    for name in _CHECKED:
        yield DynamoHandler, name, _checked(getattr(DynamoHandler, name))
    yield DynamoHandler, "batch_write_item", _checked(_by_table(DynamoHandler.batch_write_item))
    yield DynamoHandler, "transact_get_items", _checked(_projected(DynamoHandler.transact_get_items))
    yield DynamoHandler, "update_item", _checked(_update(DynamoHandler.update_item))
    yield DynamoHandler, "transact_write_items", _checked(_once_per_token(DynamoHandler.transact_write_items))
    for name in _PARTIQL:
        yield DynamoHandler, name, _refuse_partiql


def _atomic(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    lock = threading.RLock()

    @wraps(original)
    def call_action(handler: Any) -> Any:
        handler.response_headers.pop("date", None)  # see the docstring of this module
        with lock, localcontext(EXACT):  # moto adds numbers in the decimal context of the thread
            try:
                return original(handler)
            except StandInLies:
                raise
            except Exception as error:
                raise StandInLies(
                    f"moto fails at this request, which DynamoDB answers ({type(error).__name__}: {error}). {_REMEDY}."
                ) from error

    return call_action


def _checked(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def action(handler: Any) -> Any:
        body = handler.body
        try:
            check_request(body)
            if "TransactItems" in body:
                _check_transaction(handler)
            else:
                _check_keys(handler)
        except InvalidRequest as error:
            raise MockValidationException(str(error)) from error
        if has_empty_name(body):
            # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.NamingRulesDataTypes.html
            raise StandInLies(
                "moto takes an empty attribute name, and in DynamoDB a name has at least one character. Give it one."
            )
        if "AttributesToGet" in body and "ProjectionExpression" not in body:
            _project(body)
        answer = original(handler)
        for asked, name in (
            ("ReturnConsumedCapacity", "ConsumedCapacity"),
            ("ReturnItemCollectionMetrics", "ItemCollectionMetrics"),
        ):
            if body.get(asked, "NONE") == "NONE":
                answer.result.pop(name, None)
        return answer

    return action


def _schema(handler: Any, table_name: str) -> Schema | None:
    """The types of the key attributes of a table. None if there is no such table."""
    table = handler.dynamodb_backend.tables.get(table_name.rpartition("/")[2])  # a table may be called by its ARN
    if table is None:
        return None
    types = {one["AttributeName"]: one["AttributeType"] for one in table.attr}
    return {name: types[name] for name in (table.hash_key_attr, table.range_key_attr) if name}


def _types(handler: Any, table_name: str) -> Schema:
    """The types of the key attributes of a table and of its indexes."""
    table = handler.dynamodb_backend.tables[table_name.rpartition("/")[2]]
    return {one["AttributeName"]: one["AttributeType"] for one in table.attr}


def _check_filter(handler: Any) -> None:
    body = handler.body
    table = handler.dynamodb_backend.tables.get(body["TableName"].rpartition("/")[2])
    if table is None:
        return
    indexes = {
        index.name: [one["AttributeName"] for one in index.schema] for index in [*table.global_indexes, *table.indexes]
    }
    own = [name for name in (table.hash_key_attr, table.range_key_attr) if name]
    check_filter(body, indexes.get(body.get("IndexName"), own))


def _check_keys(handler: Any) -> None:
    body = handler.body
    if "KeyConditionExpression" in body:
        _check_filter(handler)
    batches: dict[str, Any] = body.get("RequestItems") or {}
    schemas = {name: schema for name in (body.get("TableName"), *batches) if name and (schema := _schema(handler, name))}
    if any(isinstance(batch, list) for batch in batches.values()):
        check_batch_write(batches, schemas)
    for name, schema in schemas.items():
        batch: Any = batches.get(name, body)
        writes = cast("list[dict[str, Any]]", batch) if isinstance(batch, list) else []
        operations: list[Any] = [one for write in writes for one in write.values()] if writes else [batch]
        for operation in operations:
            check_keys(operation, schema)
            check_index_keys(operation, _types(handler, name))


def _check_transaction(handler: Any) -> None:
    """DynamoDB names the operations that are wrong by the reasons for which it cancels the transaction."""
    operations = [operation for action in handler.body["TransactItems"] for operation in action.values()]
    reasons: list[tuple[str | None, str | None, None]] = []
    for operation in operations:
        schema = _schema(handler, operation["TableName"])
        if schema is None:
            raise ResourceNotFoundException
        try:
            check_keys(operation, schema)
            check_index_keys(operation, _types(handler, operation["TableName"]))
            reasons.append((None, None, None))
        except InvalidRequest as error:
            reasons.append(("ValidationError", str(error), None))
    if any(code for code, _, _ in reasons):
        raise TransactionCanceledException(reasons)
    read = [
        (action["Get"]["TableName"], repr(action["Get"]["Key"]))
        for action in handler.body["TransactItems"]
        if "Get" in action
    ]
    if len(set(read)) < len(read):
        raise InvalidRequest("Transaction request cannot include multiple operations on one item")


def _project(body: dict[str, Any]) -> None:
    """Say with an expression what AttributesToGet says: moto ignores that in some requests."""
    names = {f"#attribute{place}": name for place, name in enumerate(body.pop("AttributesToGet"))}
    body["ProjectionExpression"] = ", ".join(names)
    body["ExpressionAttributeNames"] = names


def _by_table(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """moto takes writes to two tables for one write done twice, if their keys are equal."""

    @wraps(original)
    def batch_write_item(handler: Any) -> Any:
        body, batches = handler.body, handler.body["RequestItems"]
        for name in batches:
            handler.dynamodb_backend.get_table(name)  # it raises if there is none, before anything is written
        try:
            answers: list[Any] = []
            for name, batch in batches.items():
                body["RequestItems"] = {name: batch}
                answers.append(original(handler).result)
        finally:
            body["RequestItems"] = batches
        capacity = [one for answer in answers for one in answer.get("ConsumedCapacity", [])]
        return ActionResult({**answers[0], "ConsumedCapacity": capacity})

    return batch_write_item


def _projected(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """moto ignores the projections of a transaction."""

    @wraps(original)
    def transact_get_items(handler: Any) -> Any:
        answer = original(handler)
        for place, action in enumerate(handler.body["TransactItems"]):
            get = action["Get"]
            if "ProjectionExpression" in get and answer.result["Responses"][place]:
                projection = ProjectionExpressionParser(
                    get["ProjectionExpression"], get.get("ExpressionAttributeNames") or {}
                )
                item = handler.dynamodb_backend.get_item(get["TableName"], get["Key"], projection.parse())
                shown = _shown(item)
                answer.result["Responses"][place] = shown if shown.get("Item") else {}
        return answer

    return transact_get_items


def _update(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def update_item(handler: Any) -> Any:
        body = handler.body
        if "UpdateExpression" not in body:
            # DynamoDB makes an item of the key alone. moto would make half of one and fail.
            body.setdefault("AttributeUpdates", {})
        answer = original(handler)
        attributes = answer.result.get("Attributes", {})
        if body.get("ReturnValues") == "UPDATED_NEW":
            for name in body["Key"]:
                attributes.pop(name, None)
            _add_what_stayed_the_same(handler, attributes)
            answer.result["Attributes"] = attributes
        if not attributes or handler.dynamodb_backend.get_item(body["TableName"], body["Key"]) is None:
            answer.result.pop("Attributes", None)
        return answer

    return update_item


def _shown(item: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", DynamoResult(item.describe_attrs(attributes=None)).result)


def _add_what_stayed_the_same(handler: Any, attributes: dict[str, Any]) -> None:
    """moto leaves out of UPDATED_NEW an attribute that was set to what it was."""
    body = handler.body
    item = handler.dynamodb_backend.get_item(body["TableName"], body["Key"])
    held: dict[str, Any] = {} if item is None else _shown(item)["Item"]
    names: dict[str, str] = body.get("ExpressionAttributeNames") or {}
    for written in cast("list[str]", _SET_WHOLE.findall(body.get("UpdateExpression", ""))):
        name = names.get(written, written)
        if name in held:
            attributes.setdefault(name, held[name])


def _once_per_token(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """DynamoDB remembers the token of a transaction for ten minutes. Here it is remembered until the last table is closed."""
    done: dict[str, Any] = {}

    @wraps(original)
    def transact_write_items(handler: Any) -> Any:
        token, actions = handler.body.get("ClientRequestToken"), handler.body["TransactItems"]
        if token in done:
            if done[token] != actions:
                kind = "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException"
                raise DynamodbException(kind, "This token belongs to a request with other parameters")
            return ActionResult({})
        asked = deepcopy(actions)
        answer = original(handler)
        if token:
            done[token] = asked
        return answer

    return transact_write_items


def _refuse_partiql(_: Any) -> NoReturn:
    raise StandInLies(
        "moto is wrong about PartiQL: it answers a failed condition with success, and ignores IS MISSING. DynamoDB answers "
        f"ConditionalCheckFailedException. {_REMEDY}."
    )


# ---------------------------------------------------------------- writes


def _writes() -> Iterator[Patch]:
    yield DynamoDBBackend, "update_item", _all_or_nothing(DynamoDBBackend.update_item)
    yield LimitedSizeDict, "__setitem__", dict[str, Any].__setitem__  # moto has a limit here that DynamoDB does not have
    yield DynamoType, "__setitem__", _refusing_scalars(DynamoType.__setitem__)
    yield DynamoType, "pop", _refusing_scalars(DynamoType.pop)
    validator = OverlappingPathsValidator
    yield validator, "check_for_overlapping_paths", _refusing_overlaps(validator.check_for_overlapping_paths)


def _all_or_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def update_item(backend: Any, table_name: str, key: Any, update_expression: str, *args: Any, **kwargs: Any) -> Any:
        before = deepcopy(backend.get_item(table_name, key))
        try:
            item = original(backend, table_name, key, update_expression, *args, **kwargs)
            _check_stored(item)
        except BaseException:
            _put_back(backend, table_name, key, before)
            raise
        if before is None and update_expression and dict(read_update(update_expression).clauses).keys() == {"REMOVE"}:
            _put_back(backend, table_name, key, None)
        return item

    return update_item


def _check_stored(item: Any) -> None:
    try:
        for value in item.attrs.values():
            _normalize_numbers(value)
    except InvalidRequest as error:
        raise MockValidationException(str(error)) from error
    if is_too_large({name: _typed(value) for name, value in item.attrs.items()}):
        raise MockValidationException("Item size to update has exceeded the maximum allowed size")


def _normalize_numbers(value: Any) -> None:
    """Write computed numbers as DynamoDB stores them. Those in sets are never computed."""
    if value.type == "N":
        value.value = number(value.value)
    elif value.type in ("L", "M"):
        for member in value.value if value.type == "L" else value.value.values():
            _normalize_numbers(member)


def _typed(value: Any) -> dict[str, Any]:
    if value.type == "L":
        return {"L": [_typed(member) for member in value.value]}
    if value.type == "M":
        return {"M": {name: _typed(member) for name, member in value.value.items()}}
    return {value.type: value.value}


def _put_back(backend: Any, table_name: str, key: Any, item: Any) -> None:
    table = backend.get_table(table_name)
    hash_key, range_key = backend.get_keys_value(table, key)
    if item is None:
        table.delete_item(hash_key, range_key)
    elif range_key is None:
        table.items[hash_key] = item
    else:
        table.items[hash_key][range_key] = item


def _refusing_scalars(original: Callable[..., Any]) -> Callable[..., Any]:
    """moto ignores a write below a scalar, or to a name in a list, and answers that it was done."""

    @wraps(original)
    def changed(value: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        if value.type not in ("L", "M") or (value.type == "L" and not str(key).isdigit()):
            raise InvalidUpdateExpressionInvalidDocumentPath
        return original(value, key, *args, **kwargs)

    return changed


def _refusing_overlaps(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """moto does not notice that a path overlaps with one that is a single placeholder."""

    @wraps(original)
    def check(validator: Any, node: Any) -> Any:
        names: dict[str, str] = validator.expression_attribute_names or {}
        paths = [_parts(action, names) for action in node.find_clauses(_ACTIONS)]
        for one, other in combinations(paths, 2):
            if one[: len(other)] == other[: len(one)]:
                raise DuplicateUpdateExpression(".".join(map(str, one)), ".".join(map(str, other)))
        return original(validator, node)

    return check


def _parts(action: Any, names: dict[str, str]) -> tuple[Any, ...]:
    """The parts of the path that an action changes. The dots between them are nodes without children."""
    return tuple(names.get(part.children[0], part.children[0]) for part in action.children[0].children if part.children)
