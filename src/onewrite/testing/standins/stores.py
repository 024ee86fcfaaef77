"""Opens the stand-ins that tests use: a table on moto, a collection on mongomock.

Neither library is atomic under threads, and both respond to some requests differently from the engine. Here, a lock makes every call
atomic, updates are all or nothing, and calls whose results are known to be wrong raise `UnsupportedByStandIn`. docs/standins.md lists
the worst of the remaining differences. Lost responses and failovers need a server: see `servers`.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import cache, partial
from json import dumps
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.errors import needed_by

_REGION = "eu-west-1"
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "dummy",
    "AWS_SECRET_ACCESS_KEY": "dummy",
    "AWS_SESSION_TOKEN": "dummy",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
# Names, and beginnings of names such as AWS_ENDPOINT_URL_DYNAMODB.
_REDIRECTING = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL")


MakeTable: TypeAlias = Callable[..., Any]  # its arguments are those of `moto_table`
MakeCollection: TypeAlias = Callable[..., Any]  # its arguments are those of `mongomock_collection`


def moto_table(
    name: str = "orders",
    key: str = "orderId",
    *,
    sort_key: str | None = None,
    types: Mapping[str, str] | None = None,
    **native: Any,
) -> Any:
    """Return an empty boto3 Table on moto, which exists until its `with` block ends.

    Without a block, the table exists as long as you use it or its client. A table of the fixture `moto_table` exists until the test ends.
    Every client that is created meanwhile can use it, such as `boto3.client("dynamodb")`. You need neither credentials nor a region.

    `key` is the name of the partition key, and `sort_key` the name of the sort key, if the table has one. Both are strings unless `types`
    contains a different type, as in `moto_table("lines", "orderId", sort_key="line", types={"line": "N"})`. Other arguments of `create_table`, such as
    `GlobalSecondaryIndexes`, are passed on. Several tables can be open at once. A second table of the same name replaces the first.
    """
    with ExitStack() as stack:
        make = stack.enter_context(moto_tables())
        table = make(name, key, sort_key=sort_key, types=types, **native)
        close = stack.pop_all().close
    table.close_stand_in = close
    weakref.finalize(table.meta.client, close)  # a guarded store keeps the client, but possibly not the Table
    if (opened := _opened_tables.get()) is not None:
        opened.callback(close)
    return table


_opened_tables: ContextVar[ExitStack | None] = ContextVar("onewrite.testing.opened_tables", default=None)


@contextmanager
def closing_opened_tables() -> Generator[None, None, None]:
    """At the end of the block, close every table that was opened in it. Reference cycles could keep one open, and moto active, for long."""
    with ExitStack() as opened:
        token = _opened_tables.set(opened)
        try:
            yield
        finally:
            _opened_tables.reset(token)


@contextmanager
def moto_tables() -> Generator[MakeTable, None, None]:
    """Create tables that are removed when the block ends. Creating one again is faster than a write to it."""
    with _shared_mock.open() as account, ExitStack() as made:

        def make(name: str = "orders", key: str = "orderId", **options: Any) -> Any:
            table = account.put(table_request(name, key, **options))
            made.callback(table.close_stand_in)
            return table

        yield make


class _Account:
    """moto's DynamoDB in one region."""

    _empty: dict[str, Any] = {}  # noqa: RUF012  # empty tables by definition, which are copied because moto creates a table slowly

    def __init__(self, region: str) -> None:
        from moto.core.models import DEFAULT_ACCOUNT_ID, patch_client  # pyright: ignore[reportUnknownVariableType]  # its argument has no type
        from moto.dynamodb.models import dynamodb_backends

        self.closed = False
        self._region = region
        self._tables: dict[str, Any] = dynamodb_backends[DEFAULT_ACCOUNT_ID][region].tables
        self._resource = boto3_session(region).resource("dynamodb")
        self._client = self._resource.meta.client
        # An engine's client might have created the session before moto was imported. The requests would then go to AWS, not to moto.
        patch_client(self._client)
        self._client.meta.events.register("before-parameter-build.dynamodb", self._check_open)
        self._table_class: Any = None
        self._numbers = itertools.count()
        self._newest: dict[str, int] = {}  # the number of the last table that was created with each name

    def put(self, request: Mapping[str, Any]) -> Any:
        """Create an empty table, which replaces an existing table of this name, and return it."""
        name = request["TableName"]
        definition = dumps([self._region, request], sort_keys=True, default=repr)
        if definition not in self._empty:
            self._tables.pop(name, None)
            self._client.create_table(**request)
            self._empty[definition] = self._tables[name]
        self._tables[name] = deepcopy(self._empty[definition])
        if self._table_class is None:
            kind = cast("Any", type(self._resource.Table(name)))  # boto3 creates a new class for each call

            def enter(table: Any) -> Any:
                return table

            def leave(table: Any, *_: object) -> None:
                table.close_stand_in()

            methods = {"__enter__": enter, "__exit__": leave, "__module__": kind.__module__}
            self._table_class = type(kind.__name__, (kind,), methods)
        table = self._table_class(name, client=self._copy_client())
        self._newest[name] = number = next(self._numbers)
        table.close_stand_in = partial(self._remove, name, number)
        return table

    def _copy_client(self) -> Any:
        """Return a client object that shares everything with the account's client. A table exists as long as its own object does."""
        original: Any = self._client
        client: Any = object.__new__(
            original.__class__
        )  # botocore's __getattr__ doesn't survive `copy`, and a new client takes long
        client.__dict__.update(original.__dict__)
        return client

    def _remove(self, name: str, number: int) -> None:
        if self._newest.get(name) == number:  # a newer table with this name stays
            self._tables.pop(name, None)

    def close(self) -> None:
        self.closed = True
        self._client.close()

    def _check_open(self, **_: Any) -> None:
        if self.closed:
            raise ConfigurationError(
                "This moto_table is closed. Use it only inside its `with` block, or inside the test if it comes from the fixture."
            )


class _SharedMock:
    """The mock of all open tables, which ends when the last table is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stack = ExitStack()
        self._account: Any = None

    @contextmanager
    def open(self) -> Generator[_Account, None, None]:
        with self._lock:
            if not self._users:
                self._account = self._stack.enter_context(_mock_account())
            self._users += 1
        try:
            yield self._account
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._account = None
                    self._stack.close()


_shared_mock = _SharedMock()


@contextmanager
def _mock_account() -> Generator[_Account, None, None]:
    with needed_by("moto_table"):
        from moto import mock_aws

        from onewrite.testing.standins.moto_patches import patch_moto
    with _dummy_account() as region, mock_aws(), patch_moto():
        account = _Account(region)
        try:
            yield account
        finally:
            account.close()


@contextmanager
def _dummy_account() -> Generator[str, None, None]:
    """Hide the caller's own account, profile, and endpoints until the block ends. Yield the caller's region, or a default."""
    region = os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION") or _REGION
    dummies = {"AWS_DEFAULT_REGION": region, "AWS_REGION": region, **_CREDENTIALS}
    redirecting_names = [name for name in os.environ if name.startswith(_REDIRECTING)]
    original_values = {name: os.environ.pop(name, None) for name in [*dummies, *redirecting_names]}
    os.environ.update(dummies)
    try:
        yield region
    finally:
        for name, value in original_values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def mongomock_collection(name: str = "orders", *, database: str = "test", asynchronous: bool = False) -> Any:
    """Return an empty collection on mongomock. A `with` block is optional.

    With `asynchronous=True` its methods are awaited, like those of pymongo's AsyncCollection.

    Each collection has its own server. Use `collection.database` for other collections on the same server.
    """
    check_name("name", name, '"orders", the name of the collection')
    check_name("database", database, '"test", the name of the database')
    with needed_by("mongomock_collection", "testing,mongodb"):
        # Only a test that opens a collection needs mongomock.
        from onewrite.testing.standins.collection import AsyncStandInCollection, StandInClient
    client: Any = StandInClient()
    collection = client[database][name]
    return AsyncStandInCollection(collection) if asynchronous else collection


# --- the definition of a table ------------------------------------------------------------------------------------------


@cache
def boto3_session(region: str) -> Any:
    """Return one session for all calls, because each session reads the service definitions. Its dummy credentials work with all test engines."""
    import boto3

    return boto3.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name=region)  # noqa: S106  # no secret


def table_request(
    name: str, key: str, *, sort_key: str | None = None, types: Mapping[str, str] | None = None, **native: Any
) -> dict[str, Any]:
    """Return the arguments of `create_table`. The arguments in `native` have precedence. A key attribute is a string unless `types` contains it."""
    check_name("name", name, '"orders", the name of the table')
    check_name("key", key, '"orderId", the name of one attribute; that of a second one is sort_key=')
    if sort_key is not None:
        check_name("sort_key", sort_key, '"line", the name of one attribute')
    schema: list[dict[str, str]] = [{"AttributeName": key, "KeyType": "HASH"}]
    if sort_key is not None:
        schema.append({"AttributeName": sort_key, "KeyType": "RANGE"})
    request: dict[str, Any] = {"TableName": name, "KeySchema": schema, **native}
    request.setdefault("AttributeDefinitions", _define_attributes(request, types or {}))
    if "ProvisionedThroughput" not in request:
        request.setdefault("BillingMode", "PAY_PER_REQUEST")
    return request


def check_name(argument: str, value: object, example: str) -> None:
    """Raise unless the value can be a name. `example` is an example for the error."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{argument}={value!r}: expected a string, such as {example}.")


def _define_attributes(request: Mapping[str, Any], types: Mapping[str, str]) -> list[dict[str, str]]:
    key_names = list(dict.fromkeys(_list_key_attributes(request)))
    if unused := [name for name in types if name not in key_names]:
        raise ConfigurationError(
            f"types={dict(types)!r}: the table has no key attribute {', '.join(unused)}. Only key attributes have a type."
        )
    return [{"AttributeName": name, "AttributeType": types.get(name, "S")} for name in key_names]


def _list_key_attributes(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the key attributes of the table and its indexes."""
    kinds = ("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
    indexes = (index for kind in kinds for index in cast("list[Mapping[str, Any]]", request.get(kind) or []))
    for definition in (request, *indexes):
        try:
            yield from [part["AttributeName"] for part in definition["KeySchema"]]
        except (KeyError, TypeError) as error:
            raise ConfigurationError(
                f'A table or index needs a KeySchema such as [{{"AttributeName": "day", "KeyType": "HASH"}}], got {definition!r}.'
            ) from error
