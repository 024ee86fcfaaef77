"""Patches moto so it answers as DynamoDB does where moto is known to answer otherwise.

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
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from decimal import localcontext
from functools import partial, wraps
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

# --- patches ----------------------------------------------------------------------------------------------------------
#
# A patch takes the place of a method of moto's, and is given that method as its first argument.

Patch: TypeAlias = Callable[..., Any]
Original: TypeAlias = Callable[..., Any]

_REMEDY = "Run this test on dynoxide() or dynamodb_local()"
_lock = threading.RLock()


@contextmanager
def patch_moto() -> Generator[None, None, None]:
    """Patch moto until the block ends."""
    with ExitStack() as stack:
        for owner, name, patch in [*_requests(), *_writes(), *_conditions()]:
            stack.enter_context(mock.patch.object(owner, name, _in_place_of(getattr(owner, name), patch)))
        yield


def _in_place_of(original: Original, patch: Patch) -> Callable[..., Any]:
    @wraps(original)
    def patched_method(*args: Any, **kwargs: Any) -> Any:
        return patch(original, *args, **kwargs)

    return patched_method


# ---------------------------------------------------------------- requests


def _requests() -> Iterator[tuple[Any, str, Patch]]:
    yield DynamoHandler, "call_action", _atomic
    for name in ("put_item", "get_item", "delete_item", "query", "scan", "batch_get_item"):
        yield DynamoHandler, name, _check_and_answer
    patches: dict[str, Patch] = {
        "batch_write_item": _by_table,
        "transact_get_items": _project,
        "update_item": _with_right_attributes,
        "transact_write_items": partial(_once_per_token, {}),
    }
    for name, patch in patches.items():
        yield DynamoHandler, name, partial(_check_and_apply, patch)
    for name in ("execute_statement", "execute_transaction", "batch_execute_statement"):
        yield DynamoHandler, name, _refuse_partiql


def _atomic(original: Original, handler: Any) -> Any:
    handler.response_headers.pop("date", None)  # see the docstring of this module
    with _lock, localcontext(EXACT):  # moto adds numbers in the decimal context of the thread
        try:
            return original(handler)
        except StandInLies:
            raise
        except Exception as error:
            raise StandInLies(
                f"moto fails at this request, which DynamoDB answers ({type(error).__name__}: {error}). {_REMEDY}."
            ) from error


def _check_and_apply(patch: Patch, original: Original, handler: Any) -> Any:
    return _check_and_answer(partial(patch, original), handler)


def _check_and_answer(original: Original, handler: Any) -> Any:
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
        # The same said with an expression: moto ignores AttributesToGet in some requests.
        names = {f"#attribute{place}": name for place, name in enumerate(body.pop("AttributesToGet"))}
        body.update(ProjectionExpression=", ".join(names), ExpressionAttributeNames=names)
    answer = original(handler)
    for name in ("ConsumedCapacity", "ItemCollectionMetrics"):
        if body.get(f"Return{name}", "NONE") == "NONE":
            answer.result.pop(name, None)
    return answer


def _table(handler: Any, name: str) -> Any:
    """None if there is no such table. It may be called by its ARN."""
    return handler.dynamodb_backend.tables.get(name.rpartition("/")[2])


def _own_keys(table: Any) -> list[str]:
    return [name for name in (table.hash_key_attr, table.range_key_attr) if name]


def _check_item(table: Any, operation: Mapping[str, Any]) -> None:
    """Refuse keys of the table and of its indexes that are not as the table has them."""
    types: Schema = {definition["AttributeName"]: definition["AttributeType"] for definition in table.attr}
    check_keys(operation, {name: types[name] for name in _own_keys(table)})
    check_index_keys(operation, types)


def _check_keys(handler: Any) -> None:
    body = handler.body
    batches: dict[str, Any] = body.get("RequestItems") or {}
    tables = {name: table for name in (body.get("TableName"), *batches) if name and (table := _table(handler, name))}
    if "KeyConditionExpression" in body and (table := tables.get(body["TableName"])):
        indexes = {
            index.name: [part["AttributeName"] for part in index.schema] for index in (*table.global_indexes, *table.indexes)
        }
        check_filter(body, indexes.get(body.get("IndexName"), _own_keys(table)))
    if any(isinstance(batch, list) for batch in batches.values()):
        check_batch_write(batches, {name: _own_keys(table) for name, table in tables.items()})
    for name, table in tables.items():
        batch: Any = batches.get(name, body)
        writes = cast("list[Mapping[str, Any]]", batch) if isinstance(batch, list) else [{"": batch}]
        for operation in [operation for write in writes for operation in write.values()]:
            _check_item(table, operation)


def _check_transaction(handler: Any) -> None:
    """DynamoDB names the operations that are wrong by the reasons for which it cancels the transaction."""
    actions = handler.body["TransactItems"]
    reasons: list[tuple[str | None, str | None, None]] = []
    for operation in [operation for action in actions for operation in action.values()]:
        table = _table(handler, operation["TableName"])
        if table is None:
            raise ResourceNotFoundException
        try:
            _check_item(table, operation)
            reasons.append((None, None, None))
        except InvalidRequest as error:
            reasons.append(("ValidationError", str(error), None))
    if any(code for code, _, _ in reasons):
        raise TransactionCanceledException(reasons)
    keys = [(action["Get"]["TableName"], repr(action["Get"]["Key"])) for action in actions if "Get" in action]
    if len(set(keys)) < len(keys):
        raise InvalidRequest("Transaction request cannot include multiple operations on one item")


def _by_table(original: Original, handler: Any) -> Any:
    """moto takes writes to two tables for one write done twice, if their keys are equal."""
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
    capacity = [entry for answer in answers for entry in answer.get("ConsumedCapacity", [])]
    return ActionResult({**answers[0], "ConsumedCapacity": capacity})


def _project(original: Original, handler: Any) -> Any:
    """moto ignores the projections of a transaction."""
    answer = original(handler)
    for place, action in enumerate(handler.body["TransactItems"]):
        get = action["Get"]
        if "ProjectionExpression" in get and answer.result["Responses"][place]:
            projection = ProjectionExpressionParser(get["ProjectionExpression"], get.get("ExpressionAttributeNames") or {})
            reply = _describe(handler.dynamodb_backend.get_item(get["TableName"], get["Key"], projection.parse()))
            answer.result["Responses"][place] = reply if reply.get("Item") else {}
    return answer


_SET_WHOLE = re.compile(r"(?:SET|,)\s*(#?\w+)\s*=", re.IGNORECASE)


def _with_right_attributes(original: Original, handler: Any) -> Any:
    """moto's UPDATED_NEW has the key, and leaves out an attribute that was set to what it was."""
    body = handler.body
    if "UpdateExpression" not in body:
        # DynamoDB makes an item of the key alone. moto would make half of one and fail.
        body.setdefault("AttributeUpdates", {})
    answer = original(handler)
    attributes = answer.result.get("Attributes", {})
    item = handler.dynamodb_backend.get_item(body["TableName"], body["Key"])
    if body.get("ReturnValues") == "UPDATED_NEW":
        for name in body["Key"]:
            attributes.pop(name, None)
        item_attributes: dict[str, Any] = {} if item is None else _describe(item)["Item"]
        names: dict[str, str] = body.get("ExpressionAttributeNames") or {}
        for path in cast("list[str]", _SET_WHOLE.findall(body.get("UpdateExpression", ""))):
            name = names.get(path, path)
            if name in item_attributes:
                attributes.setdefault(name, item_attributes[name])
        answer.result["Attributes"] = attributes
    if not attributes or item is None:
        answer.result.pop("Attributes", None)
    return answer


def _describe(item: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", DynamoResult(item.describe_attrs(attributes=None)).result)


def _once_per_token(actions_by_token: dict[str, Any], original: Original, handler: Any) -> Any:
    """DynamoDB remembers the token of a transaction for ten minutes. Here it is remembered until the last table is closed."""
    token, actions = handler.body.get("ClientRequestToken"), handler.body["TransactItems"]
    if token in actions_by_token:
        if actions_by_token[token] != actions:
            kind = "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException"
            raise DynamodbException(kind, "This token belongs to a request with other parameters")
        return ActionResult({})
    actions_before = deepcopy(actions)
    answer = original(handler)
    if token:
        actions_by_token[token] = actions_before
    return answer


def _refuse_partiql(_original: Original, _handler: Any) -> NoReturn:
    raise StandInLies(
        "moto is wrong about PartiQL: it answers a failed condition with success, and ignores IS MISSING. DynamoDB answers "
        f"ConditionalCheckFailedException. {_REMEDY}."
    )


# ---------------------------------------------------------------- writes


def _writes() -> Iterator[tuple[Any, str, Patch]]:
    yield DynamoDBBackend, "update_item", _all_or_nothing
    yield LimitedSizeDict, "__setitem__", _without_limit
    yield DynamoType, "__setitem__", _refusing_scalars
    yield DynamoType, "pop", _refusing_scalars
    yield OverlappingPathsValidator, "check_for_overlapping_paths", _refusing_overlaps


def _without_limit(_original: Original, values: Any, key: str, value: Any) -> None:
    """moto has a limit here that DynamoDB does not have."""
    dict[str, Any].__setitem__(values, key, value)


def _all_or_nothing(
    original: Original, backend: Any, table_name: str, key: Any, update_expression: str, *args: Any, **kwargs: Any
) -> Any:
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


def _check_stored(item: Any) -> None:
    try:
        for value in item.attrs.values():
            _normalize_numbers(value)
    except InvalidRequest as error:
        raise MockValidationException(str(error)) from error
    if is_too_large({name: _typed_value(value) for name, value in item.attrs.items()}):
        raise MockValidationException("Item size to update has exceeded the maximum allowed size")


def _normalize_numbers(value: Any) -> None:
    """Write computed numbers as DynamoDB stores them. Those in sets are never computed."""
    if value.type == "N":
        value.value = number(value.value)
    elif value.type in ("L", "M"):
        for member in value.value if value.type == "L" else value.value.values():
            _normalize_numbers(member)


def _typed_value(value: Any) -> dict[str, Any]:
    if value.type == "L":
        return {"L": [_typed_value(member) for member in value.value]}
    if value.type == "M":
        return {"M": {name: _typed_value(member) for name, member in value.value.items()}}
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


def _refusing_scalars(original: Original, value: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
    """moto ignores a write below a scalar, or to a name in a list, and answers that it was done."""
    if value.type not in ("L", "M") or (value.type == "L" and not str(key).isdigit()):
        raise InvalidUpdateExpressionInvalidDocumentPath
    return original(value, key, *args, **kwargs)


_ACTIONS = [getattr(ast_nodes, f"UpdateExpression{clause}Action") for clause in ("Set", "Remove", "Add", "Delete")]


def _refusing_overlaps(original: Original, validator: Any, node: Any) -> Any:
    """moto does not notice that a path overlaps with one that is a single placeholder."""
    names: dict[str, str] = validator.expression_attribute_names or {}
    # The dots between the parts of a path are nodes without children.
    paths = [
        tuple(names.get(part.children[0], part.children[0]) for part in action.children[0].children if part.children)
        for action in node.find_clauses(_ACTIONS)
    ]
    for one, other in combinations(paths, 2):
        if one[: len(other)] == other[: len(one)]:
            raise DuplicateUpdateExpression(".".join(map(str, one)), ".".join(map(str, other)))
    return original(validator, node)


# ---------------------------------------------------------------- conditions
#
# Conditions as DynamoDB evaluates them. Values of different types are not equal, and a missing attribute equals nothing.

Item: TypeAlias = Any
Operand: TypeAlias = Any

_SIZED = ("S", "B", "SS", "NS", "BS", "L", "M")
_ORDERED = ("S", "N", "B")


def _conditions() -> Iterator[tuple[Any, str, Callable[[Original, Any, Item], Any]]]:
    yield FuncSize, "expr", lambda _, func, item: _size(func, item)
    yield OpEqual, "expr", lambda _, op, item: _equal(op.lhs, op.rhs, item)
    yield OpNotEqual, "expr", lambda _, op, item: not _equal(op.lhs, op.rhs, item)
    yield FuncIn, "expr", lambda _, func, item: any(_equal(func.attr, value, item) for value in func.possible_values)
    yield FuncBetween, "expr", _between
    yield FuncContains, "expr", _contains
    yield OpLessThan, "expr", partial(_compare, operator.lt)
    yield OpLessThanOrEqual, "expr", partial(_compare, operator.le)
    yield OpGreaterThan, "expr", partial(_compare, operator.gt)
    yield OpGreaterThanOrEqual, "expr", partial(_compare, operator.ge)


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


def _compare(order: Callable[[Any, Any], bool], _original: Original, op: Any, item: Item) -> bool:
    return _comparable(item, op.OP, op.lhs, op.rhs) and order(op.lhs.expr(item), op.rhs.expr(item))


def _between(_original: Original, func: Any, item: Item) -> bool:
    if not _comparable(item, "BETWEEN", func.attr, func.start, func.end):
        return False
    return bool(func.start.expr(item) <= func.attr.expr(item) <= func.end.expr(item))


def _contains(original: Original, func: Any, item: Item) -> bool:
    """moto knows no binary value that contains another."""
    if (_kind(func.attr, item), _kind(func.operand, item)) == ("B", "B"):
        return _raw(func.operand.expr(item)) in _raw(func.attr.expr(item))
    return cast("bool", original(func, item))


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
