"""Texts that end up in logs quote names and types, and no value of a caller's content."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import boto3
import pytest

from onewrite import Applied, Begun, Event, InvalidUpdate, Message, Outbox, Rejected, SeenIds, Stale
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing
from onewrite.testing import moto_table
from onewrite.testing.standins.stores import mongomock_collection

SECRET = "4111-1111"
PAY = Message("pay", "s", body={"card": SECRET}, attributes={"card": SECRET}, system={"card": SECRET})
KEY = {"orderId": SECRET}
DOCUMENT = {"_id": SECRET}
EFFECT = Begun(PAY, "key", "f", since=0.0, until=9.0, entity_key={"_id": "o", "orderId": "o"})
Call = Callable[[Any], Any]


def emit(body: Any, **options: Any) -> Call:
    store = GuardedCollection(mongomock_collection("orders"), SeenIds(), outbox=Outbox("shop", **options))
    return lambda _: store.update_one(PAY, DOCUMENT, {"$set": {"n": 1}}, emit=[Event("Paid", body)])


def fail(value: Any) -> Any:
    raise ValueError(value)


CALLS_OF_TABLES: dict[str, Call] = {
    "a literal": lambda store: store.update_item(PAY, Key=KEY, UpdateExpression=f"SET card = '{SECRET}'"),
    "no clause": lambda store: store.update_item(PAY, Key=KEY, UpdateExpression=f"card{SECRET}"),
    "a typed value": lambda store: store.update_item(
        PAY, Key=KEY, UpdateExpression="SET c = :c", ExpressionAttributeValues={":c": {"S": SECRET}}
    ),
    "another entity's effect": lambda store: store.remember(PAY, Key=KEY, finishes=EFFECT),
    "a wrong option": lambda store: store.remember(PAY, Key=KEY, rejected_ok=SECRET),
}
CALLS_OF_COLLECTIONS: dict[str, Call] = {
    "a stage": lambda store: store.update_one(PAY, DOCUMENT, [{"$set": {"card": SECRET}, "$unset": SECRET}]),
    "a text as a stage": lambda store: store.update_one(PAY, DOCUMENT, [SECRET]),
    "a query": lambda store: store.update_one(PAY, {"_id": {"$in": [SECRET]}}, {"$set": {"n": 1}}),
    "a computed field": lambda store: store.update_one(
        PAY, {**DOCUMENT, "$expr": {"$getField": {"$concat": [SECRET]}}}, {"$set": {"n": 1}}
    ),
    "a field's name": lambda store: store.update_one(PAY, DOCUMENT, {"$set": {SECRET.encode(): 1}}),
    "another entity's effect": lambda store: store.remember(PAY, DOCUMENT, finishes=EFFECT),
    "two entities of a batch": lambda store: store.update_batch(
        [PAY, Message("other")],
        lambda fresh: {"filter": {"_id": f"{SECRET}{len(fresh)}", "n": 5}, "update": {"$set": {"n": 1}}},
    ),
    "an event": emit({"n": float("nan"), "card": SECRET}),
    "an event's number": emit({"n": Decimal(f"{SECRET[:4]}.{'1' * 30}")}),
    "a function for an event": emit({"n": object(), "card": SECRET}, default=lambda _: fail(SECRET)),
}


@pytest.mark.parametrize("call", CALLS_OF_TABLES.values(), ids=CALLS_OF_TABLES)
def test_error_of_a_table_quotes_no_value(call: Call) -> None:
    with moto_table("orders"), pytest.raises(InvalidUpdate) as refused:
        call(GuardedTable(boto3.client("dynamodb"), SeenIds(), table_name="orders"))
    assert SECRET[:4] not in str(refused.value)


@pytest.mark.parametrize("call", CALLS_OF_COLLECTIONS.values(), ids=CALLS_OF_COLLECTIONS)
def test_error_of_a_collection_quotes_no_value(call: Call) -> None:
    collection = mongomock_collection("orders")
    collection.insert_one({**DOCUMENT, "n": 0})
    with pytest.raises(InvalidUpdate) as refused:
        call(GuardedCollection(collection, SeenIds()))
    assert SECRET[:4] not in str(refused.value)


SHOWN: list[Any] = [
    PAY,
    Applied(PAY, {"card": SECRET}, response={"card": SECRET}),
    Rejected(PAY, {"card": SECRET}),
    Stale(PAY, 3, {"card": SECRET}),
    EFFECT,
    Event("Paid", {"card": SECRET}),
    Outgoing("id", "source", "Paid", 1, "now", f'"{SECRET}"', "pay", {"card": SECRET}),
]


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: type(shown).__name__)
def test_text_of_a_value_shows_no_content(shown: object) -> None:
    assert type(shown).__name__ in repr(shown)
    assert SECRET not in f"{shown} {shown!r}"
