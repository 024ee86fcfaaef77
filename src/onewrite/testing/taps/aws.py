"""The tap on a boto3 or aiobotocore client or Table.

All requests of a client, its paginators, its waiters, and a Table go through the client's method `_make_api_call`. A tapped client
is therefore a copy of the client with a different `_make_api_call`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeAlias, cast

from onewrite.testing.taps.everywhere import send_lean_requests_by_tapped_clients
from onewrite.testing.taps.traffic import Gate, Key, Request

# --- clients ----------------------------------------------------------------------------------------------------------
#
# What the explorer reads from a boto3 or aiobotocore client besides its requests, and how it creates a second client for the same endpoint.

_PLAIN = "dynamodb-attr-value-input"  # the handler that lets a resource's client accept plain values


def find_service(client: Any) -> str:
    return client.meta.service_model.service_name  # type: ignore[no-any-return]  # a client is of any type here


def is_dynamodb_client(client: Any) -> bool:
    return find_service(client) == "dynamodb"


def takes_plain_values(client: Any) -> bool:
    """Whether the client belongs to a boto3 resource or Table. Other clients take typed values, such as {"S": "text"}."""
    return _PLAIN in client.meta.events._emitter._unique_id_handlers


def make_twin(client: Any, *, plain: bool = False) -> Any:
    """Return a blocking client of the same service, with the same endpoint, region and credentials."""
    credentials = client._request_signer._credentials
    keys = (credentials.access_key, credentials.secret_key, credentials.token)
    return _create_client(find_service(client), client.meta.region_name, client.meta.endpoint_url, keys, plain)


@lru_cache(maxsize=32)
def _create_client(service: str, region: str, endpoint: str, credentials: tuple[str, str, str | None], plain: bool) -> Any:  # noqa: FBT001  # private
    import boto3

    access_key, secret_key, token = credentials
    session: Any = boto3.Session(aws_access_key_id=access_key, aws_secret_access_key=secret_key, aws_session_token=token)
    connection = (session.resource if plain else session.client)(service, region_name=region, endpoint_url=endpoint)
    return connection.meta.client if plain else connection


# --- batches of which a part is left ----------------------------------------------------------------------------------
#
# Batches that DynamoDB processes in part: it reports success, and returns the unprocessed writes or keys. These functions are pure.

_LEFT_IN = {"BatchWriteItem": "UnprocessedItems", "BatchGetItem": "UnprocessedKeys"}


def is_batch(request: Request) -> bool:
    """Whether DynamoDB can leave part of the request unprocessed. It rejects a malformed batch instead."""
    return (
        request.method in _LEFT_IN
        and bool(request.tables)
        and all(map(_list_parts, request.arguments["RequestItems"].values()))
    )


def leave_one_out(request: Request, *, first: bool = False) -> tuple[Request | None, dict[str, Any]]:
    """Return the request without its last (or first) write or key, or None if there is only one, and the response's name for that write or key."""
    tables = dict(request.arguments["RequestItems"])
    table = next(iter(tables)) if first else [*tables][-1]
    batch = tables[table]
    left, *others = _list_parts(batch) if first else reversed(_list_parts(batch))
    tables |= {table: _replace_parts(batch, others if first else others[::-1])}
    items = {name: parts for name, parts in tables.items() if _list_parts(parts)}
    rest = replace(request, arguments={**request.arguments, "RequestItems": items}) if items else None
    return rest, {table: _replace_parts(batch, [left])}


def _list_parts(batch: Any) -> Sequence[Any]:
    """Return the writes or keys of one table in a batch. A read's keys are stored next to its options."""
    return cast("Sequence[Any]", batch["Keys"] if isinstance(batch, Mapping) else batch)


def _replace_parts(batch: Any, parts: Sequence[Any]) -> Any:
    return {**cast("Mapping[str, Any]", batch), "Keys": parts} if isinstance(batch, Mapping) else parts


def add_remainder(request: Request, answer: Mapping[str, Any] | None, remainder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response to the whole request, which reports the remainder as unprocessed.

    `answer` is the response to the part that was sent. It is None if nothing was sent, because the batch had only one write or key.
    """
    member = _LEFT_IN[request.method]
    if answer is None:
        responses: dict[str, Any] = {} if request.writes else {"Responses": {}}
        answer = {"ResponseMetadata": {"HTTPStatusCode": 200, "RetryAttempts": 0}, **responses}
    unprocessed = dict(answer.get(member, {}))
    for table, batch in remainder.items():
        parts = _list_parts(unprocessed[table]) if table in unprocessed else ()  # the database can leave some, too
        unprocessed[table] = _replace_parts(batch, [*parts, *_list_parts(batch)])
    return {**answer, member: unprocessed}


# --- DynamoDB ---------------------------------------------------------------------------------------------------------

Item: TypeAlias = Mapping[str, Any]
KeyNames: TypeAlias = tuple[str, ...] | None  # None: not known

_READS = ("Get", "BatchGet", "TransactGet", "Query", "Scan", "Describe", "List")
_SELECT = re.compile(r"\s*(select|exists)\b", re.IGNORECASE)
_ITEM_METHODS = frozenset({"GetItem", "UpdateItem", "DeleteItem", "PutItem"})


def find_client(store: Any) -> Any:
    kind = cast("type[Any]", type(store))
    return store if hasattr(kind, "_make_api_call") else store.meta.client


def send(store: Any, request: Request) -> Any:
    return find_client(store)._make_api_call(request.method, dict(request.arguments))


def tap(store: Any, gate: Gate, name: str | None, *, awaited: bool) -> Any:
    client = find_client(store)
    send_lean_requests_by_tapped_clients()
    call = _AsyncApiCall if awaited else _ApiCall
    clone = make_copy(client)
    clone._make_api_call = call(client, gate, name or ("dynamodb" if client is store else store.name))
    if client is store:
        return clone
    table = make_copy(store)
    table.meta = store.meta.copy()
    table.meta.client = clone
    return table


def make_copy(thing: Any) -> Any:
    """Return a shallow copy. `copy.copy` fails on a client, whose `__getattr__` it calls before the copy has any attributes."""
    kind = cast("type[Any]", type(thing))
    clone: Any = object.__new__(kind)
    clone.__dict__.update(thing.__dict__)
    return clone


@contextmanager
def raised_by(client: Any) -> Generator[None, None, None]:
    """Raise an error of the service with this client's own class, even if a different client raised it.

    The classes in `client.exceptions` belong to the session that created the client.
    """
    try:
        yield
    except Exception as error:
        response = getattr(error, "response", None)
        if not isinstance(response, Mapping) or not hasattr(error, "operation_name"):
            raise
        service_error = cast("Any", error)
        kind = client.exceptions.from_code(service_error.response.get("Error", {}).get("Code"))
        if type(service_error) is kind:
            raise
        raise kind(service_error.response, service_error.operation_name) from None


class _ApiCall:
    """Replaces a client's `_make_api_call`."""

    def __init__(self, client: Any, gate: Gate, store: str) -> None:
        self.__wrapped__ = client._make_api_call
        self._client = client
        self._gate = gate
        self._store = store

    def __call__(self, method: str, arguments: Item) -> Any:
        with raised_by(self._client):
            return self._gate(make_request(self._store, method, arguments, {}))


async def awaited_from(client: Any, answer: Callable[[], Any]) -> Any:
    """Await a response, and raise its error with this client's class."""
    with raised_by(client):
        return await answer()


class _AsyncApiCall(_ApiCall):
    async def __call__(self, method: str, arguments: Item) -> Any:
        request = make_request(self._store, method, arguments, {})
        return await awaited_from(self._client, partial(self._gate, request))


def make_request(store: str, method: str, arguments: Item, key_names: Mapping[str, KeyNames]) -> Request:
    """Return an API call as a request. `key_names` contains the key attributes of each table."""
    entities = _list_entities(method, arguments)
    keys = [
        _make_key(table, (key_names.get(table) or ()) if is_whole else values, values)
        for table, values, is_whole in entities or ()
    ]
    whole_table = [_read_table_name(arguments["TableName"])] if entities is None and "TableName" in arguments else []
    tables = dict.fromkeys([*whole_table, *[table for table, _, _ in entities or ()]])
    entity_keys = None if entities is None or None in keys else cast("tuple[Key, ...]", tuple(keys))
    return Request(store, method, arguments, entity_keys, writes=not _is_read(method, arguments), tables=tuple(tables))


def add_keys(request: Request, key_names: Mapping[str, KeyNames]) -> Request:
    """Return the request with its entities' keys. For a `PutItem`, they depend on the table's key attributes."""
    return replace(request, keys=make_request(request.store, request.method, request.arguments, key_names).keys)


def _is_read(method: str, arguments: Item) -> bool:
    if method == "ExecuteStatement":
        return _SELECT.match(str(arguments.get("Statement"))) is not None
    return method.startswith(_READS)


def _read_table_name(name: object) -> str:
    """Return the name of a table, given its name or ARN."""
    return str(name).rpartition(":table/")[2]


_Entity: TypeAlias = tuple[str, Item, bool]  # its table, and its key or the whole item


def _list_entities(method: str, arguments: Item) -> list[_Entity] | None:
    """Return the entities that a call names, or None if it may touch any entity."""
    try:
        if method in _ITEM_METHODS:
            return [_read_entity(arguments)]
        if method in ("TransactWriteItems", "TransactGetItems"):
            actions = [action for item in arguments["TransactItems"] for action in item.values()]
            return [_read_entity(action) for action in actions]
        if method == "BatchWriteItem":
            changes = [(table, change) for table, write in _list_parts_by_table(arguments) for change in write.values()]
            return [_read_entity({"TableName": table, **change}) for table, change in changes]
        if method == "BatchGetItem":
            return [(_read_table_name(table), key, False) for table, key in _list_parts_by_table(arguments)]
    except (KeyError, TypeError, AttributeError):
        pass  # a malformed request, which botocore will refuse
    return None


def _read_entity(action: Item) -> _Entity:
    return _read_table_name(action["TableName"]), action["Key" if "Key" in action else "Item"], "Key" not in action


def _list_parts_by_table(batch: Item) -> Iterator[tuple[str, Any]]:
    for table, parts in batch["RequestItems"].items():
        for part in _list_parts(parts):
            yield table, part


def _make_key(table: str, names: Iterable[str], values: Item) -> Key | None:
    value = find_key_value(names, values)
    return None if value is None else (table, value)


def find_key_value(names: Iterable[str], values: Item) -> Hashable:
    """Return the value of a key with these attributes, or None if the key is incomplete or malformed. DynamoDB refuses such a request."""
    from onewrite.dynamodb.layout import canonical
    from onewrite.dynamodb.values import is_typed, plain_values

    try:
        key = {name: values[name] for name in names}
        plain_key = plain_values(key) if all(map(is_typed, key.values())) else key
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None
    parts = tuple(value for _, _, value in cast("Iterable[tuple[str, str, Hashable]]", canonical(plain_key)))
    return parts[0] if len(parts) == 1 else parts or None


# --- other services ---------------------------------------------------------------------------------------------------
#
# Requests to AWS services other than DynamoDB, such as sending a message or reading a secret. These functions are pure.

_SERVICE_READS = ("Get", "List", "Describe", "Head")
# The arguments that name a request's target. An ARN and a URL end with the name.
_NAMES = (
    *("QueueUrl", "QueueName", "TopicArn", "TargetArn", "EventBusName", "StreamName", "StreamARN", "DeliveryStreamName"),
    *("Bucket", "FunctionName", "stateMachineArn"),
)


def make_service_request(store: str, method: str, arguments: Mapping[str, Any]) -> Request:
    """Return an API call as a request. Queues, topics, and buckets take the place of tables, and have no keys."""
    targets = dict.fromkeys(_read_last_part(arguments[name]) for name in _NAMES if isinstance(arguments.get(name), str))
    return Request(store, method, arguments, keys=None, writes=not method.startswith(_SERVICE_READS), tables=tuple(targets))


def _read_last_part(name: str) -> str:
    """Return the name at the end of an ARN or a URL."""
    last = name.rstrip("/").rpartition("/")[2]
    return last.rpartition(":")[2] if name.startswith("arn:") else last
