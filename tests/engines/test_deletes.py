"""Threads that create, update and delete the same entities at once on real engines, with workers that die in the middle."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from onewrite import Applied, Duplicate, EntityTooLarge, Event, Gone, Message, Outbox, Outcome, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Mongod
from onewrite.testing.taps.faults import Crash, Faults
from tests.engines.stores import create_table
from tests.support.examples import examples

TOMBSTONES = Tombstones(timedelta(days=30))
ENTITIES, TIMES, THREADS = examples(40), 3, 8
KINDS = ("create", "add 1", "add 2", "mine 1", "delete")
_places = (f"deletes{n}" for n in itertools.count())


class Items:
    """Orders in a table. `mine` is a service with a ledger of its own and without tombstones."""

    key = "id"

    def __init__(self, client: Any, table: str) -> None:
        self.client, self.table = client, table

    def deliver(self, kind: str, entity: str, client: Any = None) -> Outcome:
        message, key = Message(f"{kind} of {entity}"), {"id": entity}
        if kind.startswith("mine"):
            mine = GuardedTable(client or self.client, SeenIds(name="mine"), table_name=self.table)
            return mine.update_item(message, Key=key, **_ADD)
        orders = GuardedTable(client or self.client, SeenIds(), table_name=self.table, tombstones=TOMBSTONES)
        if kind == "create":
            return orders.put_item(message, Item={**key, "n": 0, "lines": ["a"]})
        return orders.delete_item(message, Key=key) if kind == "delete" else orders.update_item(message, Key=key, **_ADD)

    def faulty(self) -> Faults:
        return Faults(self.client)

    def get(self, entity: str) -> Any:
        return GuardedTable(self.client, SeenIds(), table_name=self.table).get_item(Key={"id": entity})

    def raw(self, entity: str) -> dict[str, Any]:
        item = self.client.get_item(TableName=self.table, Key={"id": {"S": entity}}, ConsistentRead=True).get("Item", {})
        return {**item, **({"expiresAt": float(item["expiresAt"]["N"])} if "expiresAt" in item else {})}


_ADD: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}


class Documents:
    """The same in a collection."""

    key = "_id"

    def __init__(self, collection: Any) -> None:
        self.collection = collection

    def deliver(self, kind: str, entity: str, collection: Any = None) -> Outcome:
        message, key = Message(f"{kind} of {entity}"), {"_id": entity}
        store = self.collection if collection is None else collection
        if kind.startswith("mine"):
            return GuardedCollection(store, SeenIds(name="mine")).update_one(message, key, {"$inc": {"n": 1}}, upsert=True)
        orders = GuardedCollection(store, SeenIds(), tombstones=TOMBSTONES)
        if kind == "create":
            return orders.insert_one(message, {**key, "n": 0, "lines": ["a"]})
        return (
            orders.delete_one(message, key)
            if kind == "delete"
            else orders.update_one(message, key, {"$inc": {"n": 1}}, upsert=True)
        )

    def faulty(self) -> Faults:
        return Faults(self.collection)

    def get(self, entity: str) -> Any:
        return GuardedCollection(self.collection, SeenIds()).find_one({"_id": entity})

    def raw(self, entity: str) -> dict[str, Any]:
        document = self.collection.find_one({"_id": entity}) or {}
        expires = document.get("expiresAt")
        return {**document, **({} if expires is None else {"expiresAt": expires.replace(tzinfo=UTC).timestamp()})}


@contextmanager
def _opened(server: Any) -> Iterator[Items | Documents]:
    if isinstance(server, Mongod):
        with MongoClient[dict[str, Any]](server.uri) as mongo:
            collection = mongo.test[next(_places)]
            # As the guide says: without a partial index the second tombstone would meet the first.
            collection.create_index(
                [("n", 1), ("email", 1)], unique=True, partialFilterExpression={"email": {"$exists": True}}
            )
            collection.create_index([("expiresAt", 1)], expireAfterSeconds=0)
            yield Documents(collection)
        return
    client, table = server.client(), next(_places)
    create_table(client, table)
    yield Items(client, table)
    client.close()


@pytest.fixture(params=["mongod", "dynoxide"])
def shop(request: pytest.FixtureRequest) -> Iterator[Items | Documents]:
    with _opened(request.getfixturevalue(request.param)) as opened:
        yield opened


def _deliver(shop: Items | Documents, kind: str, entity: str, dies_after: int | None) -> tuple[str, str]:
    try:
        if dies_after is None:
            return kind, type(shop.deliver(kind, entity)).__name__
        faults = shop.faulty()
        faults.after(dies_after, optional=True)
        return kind, type(shop.deliver(kind, entity, faults.store)).__name__
    except Crash:
        return kind, "Crash"


def test_deleted_entity_stays_deleted_despite_concurrent_writes_and_crashes(shop: Items | Documents) -> None:
    choice = random.Random(7)
    deliveries = [(kind, f"e-{n}") for n in range(ENTITIES) for kind in KINDS for _ in range(TIMES)]
    choice.shuffle(deliveries)
    deaths = [choice.choice([None, None, 1, 2]) for _ in deliveries]
    with ThreadPoolExecutor(THREADS) as pool:
        kinds, entities = zip(*deliveries, strict=True)
        answers = list(pool.map(_deliver, itertools.repeat(shop), kinds, entities, deaths))
    for (_, entity), (kind, answer) in zip(deliveries, answers, strict=True):
        assert answer in {"Applied", "Duplicate", "Gone", "Crash", "Rejected"}, (kind, entity)
        assert answer != "Rejected" or kind == "create"
    applied = Counter(one for one, (_, answer) in zip(deliveries, answers, strict=True) if answer == "Applied")
    assert max(applied.values()) == 1
    for entity in {entity for _, entity in deliveries}:  # what a worker that died has not acknowledged is redelivered
        assert type(shop.deliver("delete", entity)).__name__ in {"Applied", "Duplicate"}
        assert {type(shop.deliver(kind, entity)).__name__ for kind in KINDS} <= {"Duplicate", "Gone"}
        assert shop.get(entity) is None
        held = shop.raw(entity)
        left = {name for name in held if not name.startswith("ow_")}
        assert left == {shop.key, "expiresAt"}
        assert 29 < (held["expiresAt"] - datetime.now(UTC).timestamp()) / 86_400 <= 30.001


def test_full_item_can_be_deleted(dynamo: Any, table: str) -> None:
    orders = GuardedTable(dynamo, SeenIds(), table_name=table, tombstones=TOMBSTONES)
    full = {"id": "e", "large": "x" * 300_000, "larger": "y" * 109_560}
    dynamo.put_item(TableName=table, Item={name: {"S": value} for name, value in full.items()})
    with pytest.raises(EntityTooLarge):
        orders.update_item(Message("m"), Key={"id": "e"}, **_ADD)
    outcome = orders.delete_item(Message("d"), Key={"id": "e"}, ReturnValues="ALL_OLD")
    assert isinstance(outcome, Applied)
    assert outcome.entity == full
    assert orders.update_item(Message("m"), Key={"id": "e"}, **_ADD) == Gone(Message("m"))


@pytest.mark.parametrize("lost", [1, 2])
def test_delete_leaves_a_clean_tombstone_if_response_is_lost(dynamo: Any, table: str, lost: int) -> None:
    shop = Items(dynamo, table)
    shop.deliver("create", "e")
    faults = shop.faulty()
    faults.lose_answer(lost)
    outcome = shop.deliver("delete", "e", faults.store)
    faults.assert_all_used()
    assert isinstance(outcome, Applied)
    assert outcome.retried == (lost == 1)
    assert {name for name in shop.raw("e") if not name.startswith("ow_")} == {"id", "expiresAt"}
    assert type(shop.deliver("delete", "e")).__name__ == "Duplicate"


@pytest.mark.parametrize("collation", [{"locale": "en", "alternate": "shifted"}, {"locale": "en", "strength": 2}], ids=repr)
@pytest.mark.parametrize("of_collection", [True, False], ids=["of the collection", "of the call"])
def test_tombstone_is_the_same_under_any_collation(
    mongo: MongoClient[dict[str, Any]], collation: dict[str, Any], of_collection: bool
) -> None:
    own: Any = {"collation": collation} if of_collection else {}
    collection = mongo.test.create_collection(next(_places), **own)
    orders = GuardedCollection(collection, SeenIds(), tombstones=TOMBSTONES, outbox=Outbox("shop/orders"))
    paid = [Event("Paid", {"cents": 1})]
    of_the_callers = {"OW_note": 1, "ow-note": 1, "owner": "ann"}
    assert isinstance(orders.update_one(Message("m"), {"_id": 1}, {"$set": of_the_callers}, upsert=True, emit=paid), Applied)
    native: Any = {} if of_collection else {"collation": collation}
    assert isinstance(orders.delete_one(Message("d"), {"_id": 1}, **native), Applied)
    (left,) = collection.find()
    assert left.keys() == {"_id", "ow_tombstone", "ow_l", "ow_r", "ow_o", "ow_events", "ow_due"}
    assert isinstance(orders.update_one(Message("m"), {"_id": 1}, {"$set": {"n": 1}}), Duplicate)
