"""Makes moto answer as DynamoDB does, where it is known to do otherwise; what it cannot be made to do is refused loudly.

All of DynamoDB's requests pass one method of moto's, whichever client sends them, so that is where a lock makes them atomic:
moto checks a condition and then writes, with nothing that keeps another thread out in between.

Mended: the 400 KB of an item; the limits of expressions; numbers, in what is sent and in what is computed; sets with
duplicates; empty keys; comparisons of different types and of what is missing; overlapping paths; paths below a scalar; an update
without an expression, and one that only removes from an item that is not there; a failed write that leaves half of itself; the
token of a transaction. Left out: the date of an answer. Refused: PartiQL, and whatever makes moto itself fail.

Not mended: the consumed capacity that it answers, `UPDATED_OLD` of a nested path, the reason of a transaction that fails for
another cause than a condition, time to live, streams, throttling, conflicts between transactions.
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

from onewrite.dynamodb.expression import read_update
from onewrite.testing.errors import StandInLies
from onewrite.testing.standins.dynamodb_rules import EXACT, Refused, check_request, is_too_large, number
from onewrite.testing.standins.moto_conditions import comparisons

Patch: TypeAlias = tuple[Any, str, Callable[..., Any]]

_REMEDY = "Run this test on dynoxide() or dynamodb_local()"
_CHECKED = ("put_item", "get_item", "delete_item", "query", "scan", "batch_write_item", "batch_get_item")
_PARTIQL = ("execute_statement", "execute_transaction", "batch_execute_statement")
_ACTIONS = [getattr(ast_nodes, f"UpdateExpression{clause}Action") for clause in ("Set", "Remove", "Add", "Delete")]


@contextmanager
def patched() -> Generator[None, None, None]:
    """moto as DynamoDB is, for as long as the block lasts."""
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
    yield DynamoHandler, "transact_write_items", _checked(_once_a_token(DynamoHandler.transact_write_items))
    for name in _PARTIQL:
        yield DynamoHandler, name, _refuse_partiql


def _atomic(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    lock = threading.RLock()

    @wraps(original)
    def call_action(handler: Any) -> Any:
        handler.response_headers.pop("date", None)  # it is today's, and a test may give its stores another clock
        with lock, localcontext(EXACT):  # moto adds numbers in whatever context it finds
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
        except Refused as error:
            raise MockValidationException(str(error)) from error
        return original(handler)

    return action


def _update(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def update_item(handler: Any) -> Any:
        body = handler.body
        if "UpdateExpression" not in body:
            body.setdefault("AttributeUpdates", {})  # DynamoDB makes an item of the key alone, and moto half of one
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


def _once_a_token(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """DynamoDB knows a transaction's token for ten minutes; here it does until the last table is closed."""
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
    yield DynamoDBBackend, "update_item", _whole_or_not_at_all(DynamoDBBackend.update_item)
    yield LimitedSizeDict, "__setitem__", dict[str, Any].__setitem__  # its limit is not DynamoDB's
    yield DynamoType, "__setitem__", _inside(DynamoType.__setitem__)
    yield DynamoType, "pop", _inside(DynamoType.pop)
    validator = OverlappingPathsValidator
    yield validator, "check_for_overlapping_paths", _apart(validator.check_for_overlapping_paths)


def _whole_or_not_at_all(original: Callable[..., Any]) -> Callable[..., Any]:
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
            _settle_numbers(value)
    except Refused as error:
        raise MockValidationException(str(error)) from error
    if is_too_large({name: _typed(value) for name, value in item.attrs.items()}):
        raise MockValidationException("Item size to update has exceeded the maximum allowed size")


def _settle_numbers(value: Any) -> None:
    """What was computed, as DynamoDB stores it. Sets are not computed with."""
    if value.type == "N":
        value.value = number(value.value)
    elif value.type in ("L", "M"):
        for member in value.value if value.type == "L" else value.value.values():
            _settle_numbers(member)


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


def _inside(original: Callable[..., Any]) -> Callable[..., Any]:
    """moto writes below a scalar into nothing, and says that it did."""

    @wraps(original)
    def changed(value: Any, *args: Any, **kwargs: Any) -> Any:
        if value.type not in ("L", "M"):
            raise InvalidUpdateExpressionInvalidDocumentPath
        return original(value, *args, **kwargs)

    return changed


def _apart(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """moto sees no overlap of a path with one that is a placeholder alone."""

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
    """Of the path that an action changes; the dots between its parts have no text."""
    return tuple(names.get(part.children[0], part.children[0]) for part in action.children[0].children if part.children)
