"""The guarded stores around clients that only answer: how they are put together, and what they do when all else fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pymongo import WriteConcern
from pymongo.errors import DuplicateKeyError

from onewrite import (
    ConfigurationError,
    EntityTooLarge,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    Message,
    SeenIds,
    sortable,
)
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection

M1 = Message("m1", sequence=1)
KEY = {"Key": {"orderId": "o-1"}}


class Table:
    """A table that takes no more, and may not be read."""

    name = "orders"

    def update_item(self, **_: Any) -> Any:
        raise _client_error("ValidationException", "Item size to update has exceeded the maximum allowed size")

    def get_item(self, **_: Any) -> Any:
        raise _client_error("AccessDeniedException", "not allowed")


class Collection:
    """A collection where another unique index refuses every write, as a stand-in reports it: without details."""

    def __init__(self, concern: WriteConcern | None = None) -> None:
        self.write_concern = concern or WriteConcern()
        self.requests: list[str] = []

    def with_options(self, **_: Any) -> Collection:
        return self

    def insert_one(self, document: Any) -> Any:
        self.requests.append("insert")
        raise DuplicateKeyError("E11000", 11000)

    def update_one(self, query: Any, update: Any, *, upsert: bool) -> Any:
        self.requests.append("upsert" if upsert else "update")
        if upsert:
            raise DuplicateKeyError("E11000", 11000)
        return _Unmatched

    def find_one(self, query: Any) -> Any:
        self.requests.append("find")


class _Unmatched:
    matched_count = 0
    upserted_id = None


def _client_error(code: str, text: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": text}}, "UpdateItem")


# --- putting together -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", [GuardedTable, AsyncGuardedTable])
def test_a_table_is_named_once_and_has_a_ledger(guard: Any) -> None:
    with pytest.raises(ConfigurationError, match="say which one with table_name"):
        guard(object(), SeenIds())
    with pytest.raises(ConfigurationError, match="A Table knows its own name"):
        guard(Table(), SeenIds(), table_name="orders")
    with pytest.raises(ConfigurationError, match="is no ledger"):
        guard(Table(), "messageIDs")


@pytest.mark.parametrize("guard", [GuardedCollection, AsyncGuardedCollection])
def test_a_collection_writes_for_sure_and_has_a_ledger(guard: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no ledger"):
        guard(Collection(), "messageIDs")
    with pytest.raises(ConfigurationError, match="reads a dot"):
        guard(Collection(), SeenIds(attribute="a.b"))
    with pytest.raises(ConfigurationError, match="w=0"):
        guard(Collection(WriteConcern(w=0)), SeenIds())
    with pytest.raises(ConfigurationError, match="durability='none'"):
        guard(Collection(), SeenIds(), durability="none")


def test_what_would_erase_a_ledger_or_mark_many_is_refused_with_the_remedy() -> None:
    guarded, asynchronous = GuardedCollection(Collection(), SeenIds()), AsyncGuardedCollection(Collection(), SeenIds())
    for method in ("replace_one", "find_one_and_replace", "update_many"):
        with pytest.raises(InvalidUpdate, match="update_one"):
            getattr(guarded, method)(M1, {"_id": 1}, {"a": 1})
        with pytest.raises(InvalidUpdate, match="update_one"):
            asyncio.run(getattr(asynchronous, method)(M1, {"_id": 1}, {"a": 1}))


def test_each_method_of_a_table_takes_its_own_native_call_only() -> None:
    guarded = GuardedTable(Table(), SeenIds())
    with pytest.raises(InvalidUpdate, match="update_item takes no Item"):
        guarded.update_item(M1, Item={"orderId": "o-1"})
    with pytest.raises(InvalidUpdate, match="put_item needs the Item"):
        guarded.put_item(M1, **KEY)
    with pytest.raises(InvalidUpdate, match="record changes nothing but the ledger"):
        guarded.record(M1, **KEY, UpdateExpression="REMOVE n")


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
    assert collection.requests == ["insert", "find"] * 6 + ["upsert", "find", "update", "find"] * 3


def test_a_number_of_too_many_digits_is_an_invalid_message() -> None:
    with pytest.raises(InvalidMessage, match="more digits"):
        sortable(10**5000)


@pytest.mark.parametrize("attribute", ["", "_id", "$a", "a\0", 5])
def test_a_ledger_needs_a_field_of_its_own(attribute: Any) -> None:
    for ledger in (SeenIds, HighWaterMark, InSequence):
        with pytest.raises(ConfigurationError, match="name a field"):
            ledger(attribute=attribute)
