"""A call that lacks the message says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import boto3
import pytest
from pymongo import MongoClient

import onewrite
from onewrite import InvalidMessage, Message, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection

HERE, ADD = {"_id": 1}, {"$inc": {"n": 1}}
STEP: dict[str, Any] = {"lease": timedelta(minutes=1), "safe_for": timedelta(0)}
TOMBSTONES = Tombstones(timedelta(days=1))
ON_MONGODB: dict[str, Any] = {
    "update_one": lambda store: store.update_one(HERE, ADD),
    "insert_one": lambda store: store.insert_one(HERE),
    "delete_one": lambda store: store.delete_one(HERE),
    "seen": lambda store: store.seen(HERE),
    "fold": lambda store: store.fold(lambda _: {"filter": HERE, "update": ADD}),
    "begin": lambda store: store.begin("charge", HERE, **STEP),
    "perform": lambda store: store.perform("charge", print, HERE, then=print, **STEP),
}
ON_DYNAMODB: dict[str, Any] = {
    "fold": lambda store: store.fold(lambda _: {"Key": HERE}),
    "begin": lambda store: store.begin("charge", Key=HERE, **STEP),
    "perform": lambda store: store.perform("charge", print, Key=HERE, then=print, **STEP),
}


@pytest.mark.parametrize("call", ON_MONGODB.values(), ids=ON_MONGODB)
def test_collection_write_without_message_is_refused(call: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"(takes the Message|expected a list of messages) first"):
        call(GuardedCollection(MongoClient[Any](connect=False).shop.stock, SeenIds(), tombstones=TOMBSTONES))


@pytest.fixture(scope="module")
def orders() -> GuardedTable:
    return GuardedTable(boto3.client("dynamodb", region_name="us-east-1"), SeenIds(), table_name="orders")


@pytest.mark.parametrize("call", ON_DYNAMODB.values(), ids=ON_DYNAMODB)
def test_table_write_without_message_is_refused(orders: GuardedTable, call: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"(takes the Message|expected a list of messages) first"):
        call(orders)
    with pytest.raises(TypeError, match="'message'"):
        orders.update_item(Key=HERE)  # type: ignore[call-arg]


def test_call_without_another_required_argument_is_refused() -> None:
    store: Any = GuardedCollection(MongoClient[Any](connect=False).shop.stock, SeenIds())
    with pytest.raises(onewrite.InvalidUpdate, match="update"):
        store.update_one(Message("m1"), HERE)
