"""Requests of one message, counted by a proxy between the driver and the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pymongo import MongoClient

from onewrite import Applied, Duplicate, HighWaterMark, InSequence, Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, Mongod, dynamo_client, dynamo_resource
from tests.benchmarks.measure import Plan, Row, expect
from tests.benchmarks.speed_dynamodb import BUSINESS as DYNAMODB_UPDATE
from tests.benchmarks.speed_dynamodb import TABLE, orders
from tests.benchmarks.speed_mongodb import BUSINESS as MONGODB_UPDATE
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import FaultProxy

LEDGERS: dict[str, Any] = {
    "SeenIds": SeenIds(),
    "SeenIds(None)": SeenIds(retention=None),
    "HighWaterMark": HighWaterMark(),
    "InSequence": InSequence(),
}

Deliver = Callable[[Message], Outcome]


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # one message shows it
    yield from _dynamodb()
    yield from _mongodb()


def _dynamodb() -> Iterator[Row]:
    with Dynoxide() as server, orders(server), FaultProxy("127.0.0.1", server.port) as proxy:
        client, resource = dynamo_client(proxy.endpoint), dynamo_resource(proxy.endpoint)
        table = resource.Table(TABLE)
        ways: dict[str, Deliver] = {}
        for name, ledger in LEDGERS.items():
            ways[f"{name}, client"] = _update_item(GuardedTable(client, ledger, table_name=TABLE), f"{name} client")
            ways[f"{name}, Table"] = _update_item(GuardedTable(table, ledger), f"{name} Table")
        yield from _count("DynamoDB", ways, proxy.operations, duplicates=1)
        client.close()
        resource.meta.client.close()


def _mongodb() -> Iterator[Row]:
    with (
        Mongod() as server,
        MongoProxy("127.0.0.1", server.port) as proxy,
        MongoClient[dict[str, Any]](proxy.uri) as client,
    ):
        collection = client["shop"].orders
        ways: dict[str, Deliver] = {}
        for name, ledger in LEDGERS.items():
            store = GuardedCollection(collection, ledger)
            collection.insert_one({"_id": name})
            ways[name] = _update_one(store, name, upsert=False)
            ways[f"{name}, upsert"] = _update_one(store, f"{name} new", upsert=True)
        yield from _count("MongoDB", ways, proxy.operations, duplicates=2)


def _count(engine: str, ways: Mapping[str, Deliver], operations: list[str], *, duplicates: int) -> Iterator[Row]:
    """The most and the least requests of all the ways to write."""
    fresh_counts = [_requests(deliver, Applied, operations) for deliver in ways.values()]
    duplicate_counts = [_requests(deliver, Duplicate, operations) for deliver in ways.values()]
    against = f"{len(ways)} ways to write"
    yield Row(f"{engine}: a fresh message", against, max(fresh_counts), min(fresh_counts), max(fresh_counts), "requests", 1)
    yield Row(
        f"{engine}: a duplicate",
        against,
        max(duplicate_counts),
        min(duplicate_counts),
        max(duplicate_counts),
        "requests",
        duplicates,
    )


def _requests(deliver: Deliver, kind: type[Outcome], operations: list[str]) -> int:
    count_before = len(operations)
    expect(kind, deliver(Message("message-1", "s", sequence=1)))
    return len(operations) - count_before


def _update_item(store: GuardedTable, key: str) -> Deliver:
    return lambda message: store.update_item(message, Key={"id": key}, **DYNAMODB_UPDATE)


def _update_one(store: GuardedCollection, key: str, *, upsert: bool) -> Deliver:
    return lambda message: store.update_one(message, {"_id": key}, MONGODB_UPDATE, upsert=upsert)
