"""Patches moto so that guarded writes run on it, and refuses requests whose results are known to be wrong.

Every client's requests to DynamoDB go through one method of moto. There, a lock makes a request atomic, because moto first checks a
condition and then writes, so a different thread could write in between. A response has no date, because a test can pass its own
clock to stores.

docs/standins.md lists the worst differences that remain between moto and DynamoDB. The others are:

- It also accepts too many digits, too deep nesting, and values of the wrong type for `begins_with`, `BETWEEN`, `ADD`,
  `DELETE`, or an index key.
- `put_item` refuses an item from 405,000 bytes on, DynamoDB from 409,600. The consumed capacity is wrong.
- `contains` doesn't find a part of a binary value, and a missing attribute equals another missing one.
- A batch that writes one key to two tables is refused.
- Some invalid transactions are reported as failed conditions, and a missing table cancels a transaction if a `Delete` or
  `ConditionCheck` names it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from decimal import localcontext
from functools import partial, wraps
from typing import Any, TypeAlias, cast
from unittest import mock

from boto3.dynamodb.types import DYNAMODB_CONTEXT
from moto.core.responses import ActionResult
from moto.dynamodb.comparisons import FuncSize, OpEqual, OpGreaterThan, OpGreaterThanOrEqual, OpLessThan, OpLessThanOrEqual
from moto.dynamodb.exceptions import InvalidUpdateExpressionInvalidDocumentPath, ItemSizeToUpdateTooLarge
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.responses import DynamoHandler

from onewrite.dynamodb.expression import MAX_EXPRESSION_BYTES, read_update
from onewrite.dynamodb.values import MAX_ITEM_BYTES
from onewrite.testing.errors import UnsupportedByStandIn

# --- patches ----------------------------------------------------------------------------------------------------------
#
# A patch replaces a method of moto, and gets that method as its first argument.

Patch: TypeAlias = Callable[..., Any]
Original: TypeAlias = Callable[..., Any]

_REMEDY = "Run this test on dynoxide()"
_MAX_WRITES = 25  # in a BatchWriteItem, over all its tables
_lock = threading.RLock()


@contextmanager
def patch_moto() -> Generator[None, None, None]:
    """Patch moto until the block ends."""
    with ExitStack() as stack:
        for owner, name, patch in _list_patches():
            stack.enter_context(mock.patch.object(owner, name, _make_replacement(getattr(owner, name), patch)))
        yield


def _make_replacement(original: Original, patch: Patch) -> Callable[..., Any]:
    @wraps(original)
    def patched_method(*args: Any, **kwargs: Any) -> Any:
        return patch(original, *args, **kwargs)

    return patched_method


def _list_patches() -> Iterator[tuple[Any, str, Patch]]:
    yield DynamoHandler, "call_action", _call_atomically
    yield DynamoHandler, "transact_write_items", partial(_transact_once, {})
    yield DynamoDBBackend, "get_keys_value", _refuse_wrong_keys
    yield DynamoDBBackend, "update_item", _update_all_or_nothing
    yield DynamoType, "__setitem__", _refuse_scalars
    yield FuncSize, "expr", _measure_size
    for comparison in (OpEqual, OpLessThan, OpLessThanOrEqual, OpGreaterThan, OpGreaterThanOrEqual):
        yield comparison, "expr", _compare


def _call_atomically(original: Original, handler: Any) -> Any:
    """Perform one request at a time, and refuse a request that moto answers differently from DynamoDB."""
    _refuse_differences(handler._get_action(), handler.params)
    handler.response_headers.pop("date", None)  # see the module's docstring
    # moto adds numbers in the thread's decimal context, which would round them. This context refuses to round.
    with _lock, localcontext(DYNAMODB_CONTEXT):
        try:
            return original(handler)
        except UnsupportedByStandIn:
            raise
        except Exception as error:
            raise UnsupportedByStandIn(
                f"moto fails at this request ({type(error).__name__}: {error}), which DynamoDB supports. {_REMEDY}."
            ) from error


# --- refusals ---------------------------------------------------------------------------------------------------------

Request: TypeAlias = Mapping[str, Any]

# For each known difference: what moto does, and how to recognize the request.
DIFFERENCES: Mapping[str, Callable[[str, Request], bool]] = {
    "answers a failed condition in PartiQL with success": lambda action, _: "Execute" in action,
    "ignores AttributesToGet": lambda _, request: "AttributesToGet" in request,
    "stores AttributeUpdates with other types": lambda _, request: "AttributeUpdates" in request,
    "ignores ProjectionExpression in a transaction": (
        lambda action, request: action == "TransactGetItems" and "ProjectionExpression" in request
    ),
    "returns other attributes for UPDATED_NEW and UPDATED_OLD": (
        lambda _, request: str(request.get("ReturnValues")).startswith("UPDATED")
    ),
    f"accepts more than {_MAX_WRITES} writes in a batch": (
        lambda action, request: action == "BatchWriteItem" and sum(map(len, request["RequestItems"].values())) > _MAX_WRITES
    ),
    f"accepts an expression of more than {MAX_EXPRESSION_BYTES} bytes": lambda _, request: any(
        name.endswith("Expression") and len(text.encode()) > MAX_EXPRESSION_BYTES for name, text in request.items()
    ),
}


def _refuse_differences(action: str, body: Request) -> None:
    for request in _list_requests(body):
        for difference, is_asked_for in DIFFERENCES.items():
            if is_asked_for(action, request):
                raise UnsupportedByStandIn(f"moto {difference}, and DynamoDB doesn't. {_REMEDY}.")


def _list_requests(body: Mapping[str, Any]) -> Iterator[Request]:
    """Yield the request itself, and each request in a transaction or a batch of reads."""
    yield body
    for action in body.get("TransactItems") or ():
        yield from action.values()
    batches: Mapping[str, Any] = body.get("RequestItems") or {}
    yield from [batch for batch in batches.values() if isinstance(batch, Mapping)]


def _refuse_wrong_keys(original: Original, backend: Any, table: Any, keys: Mapping[str, Any]) -> Any:
    types = {definition["AttributeName"]: definition["AttributeType"] for definition in table.attr}
    for name, value in keys.items():
        if name in types and (types[name] not in value or "" in value.values()):
            raise UnsupportedByStandIn(
                f"moto accepts the key {name}={value}, and DynamoDB doesn't, because it's empty or has another type. {_REMEDY}."
            )
    return original(backend, table, keys)


# --- writes -----------------------------------------------------------------------------------------------------------


def _transact_once(actions_by_token: dict[str, Any], original: Original, handler: Any) -> Any:
    """Do a transaction once per token. DynamoDB remembers a token for ten minutes, moto's patch until the last table is closed."""
    token, actions = handler.body.get("ClientRequestToken"), handler.body["TransactItems"]
    if token in actions_by_token:
        if actions_by_token[token] != actions:
            raise UnsupportedByStandIn(f"moto doesn't support IdempotentParameterMismatchException. {_REMEDY}.")
        return ActionResult({})
    actions_before = deepcopy(actions)
    answer = original(handler)
    if token:
        actions_by_token[token] = actions_before
    return answer


def _update_all_or_nothing(
    original: Original, backend: Any, table_name: str, key: Any, update_expression: str, *args: Any, **kwargs: Any
) -> Any:
    """Update an item. If the update fails, restore the item, because moto keeps the changes before the failure."""
    before = deepcopy(backend.get_item(table_name, key))
    try:
        item = original(backend, table_name, key, update_expression, *args, **kwargs)
        _check_size(item)
    except BaseException:
        _put_back(backend, table_name, key, before)
        raise
    if before is None and update_expression and list(read_update(update_expression).clauses) == ["REMOVE"]:
        _put_back(backend, table_name, key, item=None)  # DynamoDB doesn't create the item
    return item


def _check_size(item: Any) -> None:
    """Raise if the item is too large. moto limits attributes that are set, but not additions to a set or a list."""
    if item.size() > MAX_ITEM_BYTES:
        raise ItemSizeToUpdateTooLarge


def _put_back(backend: Any, table_name: str, key: Any, item: Any) -> None:
    """Restore an item, or delete it if `item` is None. With a sort key, moto keeps the items in two levels."""
    table = backend.get_table(table_name)
    hash_key, range_key = backend.get_keys_value(table, key)
    if item is None:
        table.delete_item(hash_key, range_key)
    elif range_key is None:
        table.items[hash_key] = item
    else:
        table.items[hash_key][range_key] = item


def _refuse_scalars(original: Original, value: Any, key: Any, new_value: Any) -> Any:
    """Refuse a write below a scalar, or to a name in a list. moto ignores such a write and reports success."""
    if value.type not in ("L", "M") or (value.type == "L" and not str(key).isdigit()):
        raise InvalidUpdateExpressionInvalidDocumentPath
    return original(value, key, new_value)


def _compare(original: Original, comparison: Any, item: Any) -> bool:
    """Compare existing values of one type. Others are neither equal nor in any order."""
    operands = (comparison.lhs, comparison.rhs)
    kinds = {"N" if isinstance(operand, FuncSize) else operand.get_type(item) for operand in operands}
    return bool(len(kinds) == 1 and None not in kinds and original(comparison, item))


def _measure_size(original: Original, function: Any, item: Any) -> int | None:
    """Return the size, or None for a value without one."""
    try:
        return cast("int", original(function, item))
    except ValueError:
        return None
