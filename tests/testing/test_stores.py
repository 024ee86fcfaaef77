"""The guarded stores around clients that only answer: how they are put together, and where their requests go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest
from pymongo import MongoClient, WriteConcern

from onewrite import ConfigurationError, HighWaterMark, InvalidUpdate, Message, SeenIds
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection

M1 = Message("m1", "s", sequence=1)
KEY: dict[str, Any] = {"Key": {"orderId": "o-1"}}


class Table:
    name = "orders"

    def update_item(self, **_: Any) -> Any:
        raise AssertionError


class AsyncTable(Table):
    async def update_item(self, **_: Any) -> Any:
        raise AssertionError


class Collection:
    write_concern = WriteConcern()

    def with_options(self, **_: Any) -> Collection:
        return self

    def update_one(self, query: Any, update: Any) -> Any:
        raise AssertionError


class AsyncCollection(Collection):
    async def update_one(self, query: Any, update: Any) -> Any:
        raise AssertionError


class Unacknowledged(Collection):
    write_concern = WriteConcern(w=0)


def test_missing_or_repeated_table_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name with table_name"):
        GuardedTable(cast("Any", SimpleNamespace(update_item=print)), SeenIds())
    with pytest.raises(ConfigurationError, match="A Table has a name already"):
        GuardedTable(Table(), SeenIds(), table_name="orders")


def test_collection_with_unacknowledged_writes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="w=0"):
        GuardedCollection(Unacknowledged(), SeenIds())
    with pytest.raises(ConfigurationError, match="durability='none'"):
        GuardedCollection(Collection(), SeenIds(), durability=cast("Any", "none"))


@pytest.mark.parametrize(("guard", "client"), [(GuardedTable, AsyncTable), (GuardedCollection, AsyncCollection)])
def test_async_client_is_refused_by_blocking_guard(guard: Any, client: type[Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{client.__name__} is asynchronous. Guard it with AsyncGuarded"):
        guard(client(), SeenIds())


def test_blocking_client_is_refused_by_async_guard() -> None:
    table = boto3.resource("dynamodb", region_name="eu-west-1").Table("orders")
    with pytest.raises(ConfigurationError, match=r"isn't asynchronous\. Guard it with Guarded"):
        AsyncGuardedTable(table, SeenIds())
    client: MongoClient[Any] = MongoClient(connect=False)
    with client, pytest.raises(ConfigurationError, match=r"Collection isn't asynchronous\. Guard it with Guarded"):
        AsyncGuardedCollection(client["shop"]["stock"], SeenIds())


@pytest.mark.parametrize("method", ["replace_one", "find_one_and_replace", "update_many"])
def test_a_method_that_erases_ledgers_is_refused(method: str) -> None:
    with pytest.raises(InvalidUpdate, match="update_one"):
        getattr(GuardedCollection(Collection(), SeenIds()), method)(M1, {"_id": 1}, {"a": 1})
    with pytest.raises(InvalidUpdate, match="update_one"):
        asyncio.run(getattr(AsyncGuardedCollection(AsyncCollection(), SeenIds()), method)(M1, {"_id": 1}, {"a": 1}))


def test_table_requests_are_sent_by_the_client() -> None:
    asked: list[dict[str, Any]] = []

    def update_item(**request: Any) -> dict[str, Any]:
        asked.append(request)
        return {}

    client = SimpleNamespace(update_item=update_item, get_item=lambda **_: {})
    table: Any = SimpleNamespace(name="orders", meta=SimpleNamespace(client=client), update_item=pytest.fail)
    guarded = GuardedTable(table, HighWaterMark())
    guarded.update_item(M1, **KEY, UpdateExpression="REMOVE n")
    assert [(each["TableName"], each["Key"]) for each in asked] == [("orders", {"orderId": "o-1"})]
    assert guarded.get_item(**KEY) is None
