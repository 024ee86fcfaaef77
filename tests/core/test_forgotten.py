"""A call that lacks an argument says which."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import boto3
import pytest
from pymongo import AsyncMongoClient, MongoClient

from onewrite import InvalidMessage, InvalidUpdate, Message, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection

M1 = Message("m1")
HERE, ADD = {"_id": 1}, {"$inc": {"n": 1}}
EFFECT: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}
TOMBSTONES = Tombstones(timedelta(days=1))
ON_MONGODB: dict[str, Any] = {
    "update_one": lambda store: store.update_one(HERE, ADD),
    "insert_one": lambda store: store.insert_one(HERE),
    "delete_one": lambda store: store.delete_one(HERE),
    "preview": lambda store: store.preview(HERE),
    "update_batch": lambda store: store.update_batch(lambda _: {"filter": HERE, "update": ADD}),
    "begin_effect": lambda store: store.begin_effect("charge", HERE, **EFFECT),
    "perform_effect": lambda store: store.perform_effect("charge", print, HERE, then=print, **EFFECT),
}
ON_DYNAMODB: dict[str, Any] = {
    "update_batch": lambda store: store.update_batch(lambda _: {"Key": HERE}),
    "begin_effect": lambda store: store.begin_effect("charge", Key=HERE, **EFFECT),
    "perform_effect": lambda store: store.perform_effect("charge", print, Key=HERE, then=print, **EFFECT),
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
    with pytest.raises(InvalidMessage, match="update_item: the message is missing"):
        orders.update_item(Key=HERE)  # type: ignore[call-arg]


FORGOTTEN: list[tuple[Any, str]] = [
    (lambda store: store.remember(M1), "remember: the argument filter is missing"),
    (lambda store: store.preview(M1), "preview: the argument filter is missing"),
    (lambda store: store.update_one(M1), "update_one: the arguments filter and update are missing"),
    (lambda store: store.update_one(M1, HERE), "update_one: the argument update is missing"),
    (lambda store: store.insert_one(M1), "insert_one: the argument document is missing"),
    (lambda store: store.update_batch([M1]), "update_batch: the argument function is missing"),
    (
        lambda store: store.begin_effect(M1, "charge", HERE),
        "begin_effect: the arguments lease and key_valid_for are missing",
    ),
    (lambda store: store.explain("update_one", M1, HERE), "update_one: the argument update is missing"),
]


@pytest.mark.parametrize(("call", "text"), FORGOTTEN, ids=[text for _, text in FORGOTTEN])
def test_error_names_the_forgotten_argument(call: Any, text: str) -> None:
    store = GuardedCollection(MongoClient[Any](connect=False).shop.stock, SeenIds())
    with pytest.raises(InvalidUpdate, match=text):
        call(store)


def test_asynchronous_call_names_the_forgotten_argument() -> None:
    store: Any = AsyncGuardedCollection(AsyncMongoClient[Any](connect=False).shop.stock, SeenIds())
    for call, text in ((store.remember(M1), "filter"), (store.update_batch([M1]), "function")):
        with pytest.raises(InvalidUpdate, match=f"the argument {text} is missing"):
            asyncio.run(call)


def test_type_error_of_an_effect_stays_itself() -> None:
    store: Any = GuardedCollection(MongoClient[Any](connect=False).shop.stock, SeenIds())
    with pytest.raises(TypeError, match="of the caller"):
        store.update_batch(_RaisesTypeError(), print)


class _RaisesTypeError:
    def __iter__(self) -> Any:
        raise TypeError("of the caller")
