"""The ways to handle a message on MongoDB, all with the same write concern."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from pymongo import MongoClient
from pymongo.errors import DuplicateKeyError

from onewrite import Message, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Mongod
from tests.benchmarks.orders import DURABLE
from tests.benchmarks.orders import MONGODB_UPDATE as BUSINESS
from tests.benchmarks.peers.bills import MongoDBProxy
from tests.benchmarks.peers.libraries import idemkit_on_mongodb
from tests.benchmarks.peers.ways import BATCH_SIZE, Deliver, Unmeasured, Way

PROCESSED_COLLECTION = "processed"


class OnMongoDB:
    name = "MongoDB"

    def __init__(self, stack: ExitStack) -> None:
        server = stack.enter_context(Mongod())
        self.port, client = server.port, server.client()
        self._orders = client.shop.orders
        client.shop.create_collection(PROCESSED_COLLECTION)  # or the first transaction would have to
        self.program = f"mongod {client.server_info()['version']}"

    def ways(self, port: int, stack: ExitStack) -> list[Way | Unmeasured]:
        client: MongoClient[dict[str, Any]] = stack.enter_context(MongoClient(_uri(port)))
        orders = client.shop.get_collection("orders", write_concern=DURABLE)

        def plainly(entity: str) -> object:
            return orders.update_one({"_id": entity}, BUSINESS)

        def by_hand(messages: Sequence[Message], entity: str) -> object:
            identity = messages[0].id
            return orders.update_one({"_id": entity, "ids": {"$ne": identity}}, {**BUSINESS, "$push": {"ids": identity}})

        store = GuardedCollection(client.shop.orders, SeenIds())
        return [
            Way("unguarded", lambda _, entity: plainly(entity), guarded=False),
            Way("an array of IDs by hand", by_hand),
            Way("onewrite", _write_guarded(store), ours=True),
            Way(f"onewrite, `update_batch` of {BATCH_SIZE}", _update_batch(store), ours=True, batch=BATCH_SIZE),
            idemkit_on_mongodb(_uri(port), stack, plainly),
            Way("a processed collection first, no transaction", _processed_first(client)),
            Way("transaction with a processed collection", _transaction(client)),
        ]

    def create(self, entities: Iterable[str], text: str = "") -> None:
        self._orders.insert_many([{"_id": entity, "text": text} for entity in entities])

    def effects(self, entities: Iterable[str]) -> int:
        return sum(
            document.get("shipments", 0) for document in self._orders.find({"_id": {"$in": [*entities]}}, {"shipments": 1})
        )

    def proxy(self, stack: ExitStack) -> MongoDBProxy:
        return stack.enter_context(MongoDBProxy(self.port))


def _uri(port: int) -> str:
    return f"mongodb://127.0.0.1:{port}/?directConnection=true"


def _update_batch(store: GuardedCollection) -> Deliver:
    """One write of all the messages: what one adds, as often as there are messages."""

    def update(entity: str, fresh: Sequence[Message]) -> dict[str, Any]:
        return {"filter": {"_id": entity}, "update": {**BUSINESS, "$inc": {"shipments": len(fresh)}}}

    return lambda messages, entity: store.update_batch([*messages], partial(update, entity))


def _write_guarded(store: GuardedCollection) -> Deliver:
    return lambda messages, entity: store.update_one(messages[0], {"_id": entity}, BUSINESS)


def _transaction(client: MongoClient[dict[str, Any]]) -> Deliver:
    """The mark and the business write, all or nothing. pymongo runs it again where another one is in its way."""

    def deliver(messages: Sequence[Message], entity: str) -> object:
        def write_both(session: Any) -> None:
            client.shop[PROCESSED_COLLECTION].insert_one({"_id": messages[0].id}, session=session)
            client.shop.orders.update_one({"_id": entity}, BUSINESS, session=session)

        with client.start_session() as session:
            try:
                return session.with_transaction(write_both, write_concern=DURABLE)
            except DuplicateKeyError:
                return None

    return deliver


def _processed_first(client: MongoClient[dict[str, Any]]) -> Deliver:
    """A message whose process ends between the two writes is lost."""
    marks, orders = (client.shop.get_collection(name, write_concern=DURABLE) for name in (PROCESSED_COLLECTION, "orders"))

    def deliver(messages: Sequence[Message], entity: str) -> object:
        try:
            marks.insert_one({"_id": f"first {messages[0].id}"})
        except DuplicateKeyError:
            return None
        return orders.update_one({"_id": entity}, BUSINESS)

    return deliver
