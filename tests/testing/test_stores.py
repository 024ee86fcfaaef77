"""The guarded stores around clients that only answer: how they are put together, and what they do when all else fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from pymongo import MongoClient, WriteConcern
from pymongo.errors import DuplicateKeyError
from pymongo.results import UpdateResult

from onewrite import (
    ConfigurationError,
    EntityTooLarge,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    Message,
    SeenIds,
)
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection

M1 = Message("m1", sequence=1)
KEY: dict[str, Any] = {"Key": {"orderId": "o-1"}}


class Table:
    """A table that takes no more, and may not be read."""

    name = "orders"

    def update_item(self, **_: Any) -> Any:
        raise _client_error("ValidationException", "Item size to update has exceeded the maximum allowed size")

    def get_item(self, **_: Any) -> Any:
        raise _client_error("AccessDeniedException", "not allowed")


class Collection:
    """A collection where another unique index refuses every write, as DocumentDB reports it: without details."""

    def __init__(self, concern: WriteConcern | None = None) -> None:
        self.write_concern = concern or WriteConcern()
        self.requests: list[str] = []

    def with_options(self, **_: Any) -> Collection:
        return self

    def index_information(self) -> Any:
        self.requests.append("indexes")
        return {"_id_": {"key": [("_id", 1)]}}

    def insert_one(self, document: Any) -> Any:
        self.requests.append("insert")
        raise DuplicateKeyError("E11000", 11000)

    def update_one(self, query: Any, update: Any, *, upsert: bool = False) -> Any:
        self.requests.append("upsert" if upsert else "update")
        if upsert:
            raise DuplicateKeyError("E11000", 11000)
        return UpdateResult({"n": 0}, acknowledged=True)

    def find_one(self, query: Any) -> Any:
        self.requests.append("find")


class AsyncTable(Table):
    async def update_item(self, **_: Any) -> Any:
        raise AssertionError


class AsyncCollection(Collection):
    async def update_one(self, query: Any, update: Any, *, upsert: bool = False) -> Any:
        raise AssertionError


def _of(guard: type[object], blocking: type[Any], asynchronous: type[Any]) -> Any:
    """The client that this guard takes."""
    return asynchronous() if guard.__name__.startswith("Async") else blocking()


def _client_error(code: str, text: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}}, "UpdateItem")


# --- putting together -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", [GuardedTable, AsyncGuardedTable])
def test_a_table_is_named_once_and_has_a_ledger(guard: Any) -> None:
    with pytest.raises(ConfigurationError, match="say which one with table_name"):
        guard(SimpleNamespace(update_item=print), SeenIds())
    with pytest.raises(ConfigurationError, match="A Table knows its own name"):
        guard(Table(), SeenIds(), table_name="orders")
    with pytest.raises(ConfigurationError, match="is no ledger"):
        guard(_of(guard, Table, AsyncTable), "messageIDs")
    with pytest.raises(ConfigurationError, match=r"SeenIds is the class.*write SeenIds\(\)"):
        guard(_of(guard, Table, AsyncTable), SeenIds)


@pytest.mark.parametrize("guard", [GuardedCollection, AsyncGuardedCollection])
def test_a_collection_writes_for_sure_and_has_a_ledger(guard: Any) -> None:
    collection = _of(guard, Collection, AsyncCollection)
    with pytest.raises(ConfigurationError, match="is no ledger"):
        guard(collection, "messageIDs")
    with pytest.raises(ConfigurationError, match=r"InSequence is the class.*write InSequence\(\)"):
        guard(collection, InSequence)
    with pytest.raises(ConfigurationError, match="w=0"):
        guard(type(collection)(WriteConcern(w=0)), SeenIds())
    with pytest.raises(ConfigurationError, match="durability='none'"):
        guard(collection, SeenIds(), durability="none")


@pytest.mark.parametrize("identity", ["email", None, 5, {"email"}, [1], (b"email",)])
@pytest.mark.parametrize("guard", [GuardedCollection, AsyncGuardedCollection])
def test_the_fields_that_name_an_entity_are_named_in_a_row(guard: Any, identity: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'give the names of the fields.*\("email",\)'):
        guard(_of(guard, Collection, AsyncCollection), SeenIds(), key=identity)


@pytest.mark.parametrize(("guard", "client"), [(GuardedTable, "AsyncTable"), (GuardedCollection, "AsyncCollection")])
def test_an_asynchronous_client_is_refused_before_anything_is_sent(guard: Any, client: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{client} is asynchronous: guard it with the Async class"):
        guard(globals()[client](), SeenIds())


def test_a_drivers_blocking_client_is_refused_before_anything_is_sent() -> None:
    table = boto3.resource("dynamodb", region_name="eu-west-1").Table("orders")
    with pytest.raises(ConfigurationError, match="is not asynchronous: guard it with the class without Async"):
        AsyncGuardedTable(table, SeenIds())
    client: MongoClient[Any] = MongoClient(connect=False)
    with client, pytest.raises(ConfigurationError, match="Collection is not asynchronous: guard it with the class without"):
        AsyncGuardedCollection(client["shop"]["stock"], SeenIds())


def test_what_would_erase_a_ledger_or_mark_many_is_refused_with_the_remedy() -> None:
    guarded = GuardedCollection(Collection(), SeenIds())
    asynchronous = AsyncGuardedCollection(AsyncCollection(), SeenIds())
    for method in ("replace_one", "find_one_and_replace", "update_many"):
        with pytest.raises(InvalidUpdate, match="update_one"):
            getattr(guarded, method)(M1, {"_id": 1}, {"a": 1})
        with pytest.raises(InvalidUpdate, match="update_one"):
            asyncio.run(getattr(asynchronous, method)(M1, {"_id": 1}, {"a": 1}))


def test_each_method_of_a_table_takes_its_own_native_call_only() -> None:
    guarded = GuardedTable(Table(), SeenIds())
    with pytest.raises(InvalidUpdate, match="update_item takes no Item"):
        guarded.update_item(M1, Item={"orderId": "o-1"})  # type: ignore[call-arg]
    with pytest.raises(InvalidUpdate, match="put_item needs the Item"):
        guarded.put_item(M1, **KEY)
    with pytest.raises(InvalidUpdate, match="record changes nothing but the ledger"):
        guarded.record(M1, **KEY, UpdateExpression="REMOVE n")  # type: ignore[call-arg]


# --- when all else fails ----------------------------------------------------------------------------------------------


def test_an_entity_is_said_to_be_too_large_even_where_it_may_not_be_read() -> None:
    with pytest.raises(EntityTooLarge, match="its present size is not known"):
        GuardedTable(Table(), HighWaterMark()).update_item(M1, **KEY, UpdateExpression="REMOVE n")


def test_a_duplicate_key_that_is_never_the_entitys_own_passes_through_in_the_end() -> None:
    collection = Collection()
    guarded = GuardedCollection(collection, SeenIds())
    with pytest.raises(DuplicateKeyError):
        guarded.insert_one(M1, {"_id": 1})
    with pytest.raises(DuplicateKeyError):
        guarded.update_one(M1, {"_id": 1}, {"$set": {"a": 1}}, upsert=True)
    assert collection.requests == ["indexes"] + ["insert", "find", "update"] * 6 + ["upsert", "find", "update", "find"] * 3


# --- wrong arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["m1", None, {"id": "m1"}])
def test_a_guarded_write_takes_a_message_first(message: Any) -> None:
    table, collection = GuardedTable(Table(), SeenIds()), Collection()
    guarded = GuardedCollection(collection, SeenIds())
    calls: list[Callable[[], object]] = [
        lambda: table.update_item(message, **KEY, UpdateExpression="REMOVE n"),
        lambda: table.put_item(message, Item={"orderId": "o-1"}),
        lambda: table.record(message, **KEY),
        lambda: table.seen(message, **KEY),
        lambda: table.explain(lambda store: store.update_item(message, **KEY)),
        lambda: guarded.update_one(message, {"_id": 1}, {"$set": {"a": 1}}),
        lambda: guarded.find_one_and_update(message, {"_id": 1}, {"$set": {"a": 1}}),
        lambda: guarded.insert_one(message, {"_id": 1}),
        lambda: guarded.record(message, {"_id": 1}),
        lambda: guarded.seen(message, {"_id": 1}),
        lambda: guarded.explain(lambda store: store.update_one(message, {"_id": 1}, {"$set": {"a": 1}})),
    ]
    for call in calls:
        with pytest.raises(InvalidMessage, match=f"takes the Message first, and got a {type(message).__name__}"):
            call()
    assert collection.requests == []


def test_a_tables_requests_go_to_its_client_which_threads_may_share() -> None:
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
