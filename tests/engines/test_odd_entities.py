"""A message is not dropped because an odd value is where a ledger or an outbox keeps its own.

A `Rejected` says that the caller's own condition refused the message. These writes have no condition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from pymongo.collection import Collection

from onewrite import (
    Applied,
    Begun,
    Deferred,
    Event,
    Gone,
    LedgerMismatch,
    Message,
    Outbox,
    Stale,
    Tombstones,
)
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import plain_values, typed_values
from onewrite.mongodb import GuardedCollection
from tests.engines.ledgers import AnyLedger, ledgers_slowly

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ITEM, DOCUMENT = {"id": "o"}, {"_id": "o"}
OUTBOX = Outbox("shop/orders")
TOMBSTONES = Tombstones(timedelta(days=14))
PAID = Event("OrderPaid", 1)
M1, M2 = (Message(f"m{n}", "s", sequence=n) for n in (1, 2))
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 5, "", "x", "ow1 outbox shop/orders", "ow1 marks"),
    *([], [1], [[]], ["x"], [{"x": 1}], {}, {"0": 1}, {"%": None}, {"%": 0}, {"%": []}, {"r1": {}}),
)
OURS = (
    *("messageIDs", "ow_l", "ow_r", "ow_@", "ow_all"),
    *("ow_sent", "ow_life", "ow_steps", "ow_tombstone"),
)
LEASE: dict[str, Any] = {"lease": timedelta(minutes=1), "safe_for": timedelta(days=1)}

Fields = Mapping[str, Any]
Ways = Mapping[str, Callable[[Message], object]]  # to write to an entity, without a condition


class Items:
    """One item of a table, which its tests write to beside the guarded store as well."""

    def __init__(self, client: DynamoDBClient, table: str, ledger: AnyLedger) -> None:
        self._client, self._table = client, table
        store = GuardedTable(client, ledger, table_name=table, outbox=OUTBOX, tombstones=TOMBSTONES)
        update: dict[str, Any] = {"UpdateExpression": "SET n=:n", "ExpressionAttributeValues": {":n": 1}}
        self.ways: Ways = {
            "update": lambda message: store.update_item(message, Key=ITEM, emit=[PAID], **update),
            "delete": lambda message: store.delete_item(message, Key=ITEM, emit=[PAID]),
            "begin": lambda message: store.begin(message, "charge", Key=ITEM, **LEASE),
        }

    def put(self, fields: Fields) -> None:
        self._client.put_item(TableName=self._table, Item=typed_values({**fields, **ITEM}))

    def get(self) -> Fields:
        return plain_values(self._client.get_item(TableName=self._table, Key=typed_values(ITEM)).get("Item", {}))


class Documents:
    """The same with a document of a collection."""

    def __init__(self, collection: Collection[dict[str, Any]], ledger: AnyLedger) -> None:
        self._collection = collection
        store = GuardedCollection(collection, ledger, outbox=OUTBOX, tombstones=TOMBSTONES)
        update = {"$set": {"n": 1}}
        self.ways: Ways = {
            "update": lambda message: store.update_one(message, DOCUMENT, update, emit=[PAID]),
            "pipeline": lambda message: store.update_one(message, DOCUMENT, [update], emit=[PAID]),
            "delete": lambda message: store.delete_one(message, DOCUMENT, emit=[PAID]),
            "begin": lambda message: store.begin(message, "charge", DOCUMENT, **LEASE),
        }

    def put(self, fields: Fields) -> None:
        self._collection.replace_one(DOCUMENT, {**fields, **DOCUMENT}, upsert=True)

    def get(self) -> Fields:
        return self._collection.find_one(DOCUMENT) or {}


def takes_nothing_odd_for_a_condition(place: Items | Documents, way: str, *refusals: type[Exception]) -> None:
    place.put({})
    place.ways["update"](M1)
    whole = {name: value for name, value in place.get().items() if name not in (*ITEM, *DOCUMENT)}
    for name, value, others in itertools.product({*whole, *OURS}, ODD, ({}, whole)):
        place.put({**others, name: value})
        with suppress(LedgerMismatch, *refusals):
            outcome = place.ways[way](M2 if others else M1)
            assert isinstance(outcome, Applied | Begun | Deferred | Gone | Stale), (name, value, others)


@pytest.mark.parametrize("way", ["update", "delete", "begin"])
@ledgers_slowly
@pytest.mark.slow
def test_message_is_not_dropped_for_an_odd_item(dynamo: DynamoDBClient, table: str, ledger: AnyLedger, way: str) -> None:
    # Dynoxide has words of its own for what is no list, which do not speak of types as those of DynamoDB do.
    takes_nothing_odd_for_a_condition(Items(dynamo, table, ledger), way, ClientError)


@pytest.mark.parametrize("way", ["update", "pipeline", "delete", "begin"])
@ledgers_slowly
@pytest.mark.few(1)
def test_message_is_not_dropped_for_an_odd_document(
    collection: Collection[dict[str, Any]], ledger: AnyLedger, way: str
) -> None:
    takes_nothing_odd_for_a_condition(Documents(collection, ledger), way)
