"""Patches moto so that it answers as DynamoDB does where moto is known to answer otherwise.

Every request to DynamoDB goes through one method of moto's, whichever client sends it. There a lock makes it atomic, because moto
checks a condition and then writes, and another thread could write in between.

What is made right: the size limit of an item and the limits of expressions; numbers, in requests and in what is computed; sets with
duplicates; empty keys; comparisons of different types and of missing attributes; overlapping paths; paths below a scalar; an update
without an expression; an update that only removes attributes from an item that is not there; a write that fails halfway; the token
of a transaction. An answer has no date, since a test may give its stores another clock.

What is refused with `StandInLies`: PartiQL, and every request at which moto itself fails.

What stays wrong: the consumed capacity, `UPDATED_OLD` of a nested path, the reason of a transaction that fails for another cause
than a condition, time to live, streams, throttling, and conflicts between transactions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from decimal import localcontext
from functools import wraps
from itertools import combinations
from typing import Any, NoReturn, TypeAlias
from unittest import mock

from moto.core.responses import ActionResult
from moto.dynamodb.exceptions import (
    DuplicateUpdateExpression,
    DynamodbException,
    InvalidUpdateExpressionInvalidDocumentPath,
    MockValidationException,
)
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, LimitedSizeDict
from moto.dynamodb.parsing import ast_nodes
from moto.dynamodb.parsing.validators import OverlappingPathsValidator
from moto.dynamodb.responses import DynamoHandler

from onewrite.dynamodb.writing.expression import read_update
from onewrite.testing.errors import StandInLies
from onewrite.testing.standins.dynamodb_rules import EXACT, InvalidRequest, check_request, is_too_large, number
from onewrite.testing.standins.moto_conditions import comparisons

Patch: TypeAlias = tuple[Any, str, Callable[..., Any]]

_REMEDY = "Run this test on dynoxide() or dynamodb_local()"
_CHECKED = ("put_item", "get_item", "delete_item", "query", "scan", "batch_write_item", "batch_get_item")
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
        try:
            check_request(handler.body)
        except InvalidRequest as error:
            raise MockValidationException(str(error)) from error
        return original(handler)

    return action


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
        if not attributes or handler.dynamodb_backend.get_item(body["TableName"], body["Key"]) is None:
            answer.result.pop("Attributes", None)
        if body.get("ReturnConsumedCapacity", "NONE") == "NONE":
            answer.result.pop("ConsumedCapacity", None)
        return answer

    return update_item


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
    """moto ignores a write below a scalar and answers that it was done."""

    @wraps(original)
    def changed(value: Any, *args: Any, **kwargs: Any) -> Any:
        if value.type not in ("L", "M"):
            raise InvalidUpdateExpressionInvalidDocumentPath
        return original(value, *args, **kwargs)

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
