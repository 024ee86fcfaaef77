"""Orders on a stand-in of DynamoDB or of MongoDB, with the three writes that the handlers use.

A payment adds to its order's amount, and its id to the order's journal. The journal is part of the business write, so it shows
how often each payment was added.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

from pymongo.errors import DuplicateKeyError

from onewrite import Applied, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import mongomock_collection, moto_table


class Shop(Protocol):
    """A shop without orders, at first."""

    # How many requests were sent to the database.
    @property
    def requests(self) -> int: ...

    # The business write and nothing else.
    def write(self, message: Message) -> None: ...

    # Store the message's id beside the orders. False: it was stored before.
    def claim(self, message: Message) -> bool: ...

    # The business write, guarded by onewrite. False: the order holds the message already.
    def guarded_write(self, message: Message) -> bool: ...

    # The order without its ledger.
    def order(self, name: str) -> dict[str, Any]: ...

    # Remove the stand-in's tables or collections.
    def close(self) -> None: ...


class DynamoShop:
    """Orders in one table on moto, and claims in another."""

    engine = "DynamoDB (moto)"

    def __init__(self, name: str) -> None:
        self.requests = 0
        self._tables = ExitStack()
        self._orders = self._tables.enter_context(moto_table(f"{name}-orders", "name"))
        self._claims = self._tables.enter_context(moto_table(f"{name}-claims", "id"))
        self._guarded_orders = GuardedTable(self._orders, SeenIds())
        self._client = self._orders.meta.client  # the tables of all shops have the same
        self._client.meta.events.register("before-parameter-build.dynamodb", self._count)

    def write(self, message: Message) -> None:
        self._orders.update_item(**self._update(message))

    def claim(self, message: Message) -> bool:
        try:
            self._claims.put_item(Item={"id": message.id}, ConditionExpression="attribute_not_exists(id)")
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def guarded_write(self, message: Message) -> bool:
        return isinstance(self._guarded_orders.update_item(message, **self._update(message)), Applied)

    def order(self, name: str) -> dict[str, Any]:
        return dict(self._guarded_orders.get_item(Key={"name": name}) or {})

    def close(self) -> None:
        self._tables.close()

    @staticmethod
    def _update(message: Message) -> dict[str, Any]:
        return {
            "Key": {"name": message.body["order"]},
            "UpdateExpression": "SET journal = list_append(if_not_exists(journal, :none), :entry) ADD cents :amount",
            "ExpressionAttributeValues": {":none": [], ":entry": [message.id], ":amount": message.body["amount"]},
        }

    def _count(self, params: dict[str, Any], **_: Any) -> None:
        self.requests += params.get("TableName") in (self._orders.name, self._claims.name)


class MongoShop:
    """Orders in one collection on mongomock, and claims in another."""

    engine = "MongoDB (mongomock)"

    def __init__(self, name: str) -> None:
        self.requests = 0
        self._server = ExitStack()
        orders = self._server.enter_context(mongomock_collection(f"{name}-orders"))
        self._orders = _CountedCollection(orders, self._count)
        self._claims = _CountedCollection(orders.database[f"{name}-claims"], self._count)
        self._guarded_orders = GuardedCollection(self._orders, SeenIds())

    def write(self, message: Message) -> None:
        self._orders.update_one(*self._update(message), upsert=True)

    def claim(self, message: Message) -> bool:
        try:
            self._claims.insert_one({"_id": message.id})
        except DuplicateKeyError:
            return False
        return True

    def guarded_write(self, message: Message) -> bool:
        return isinstance(self._guarded_orders.update_one(message, *self._update(message), upsert=True), Applied)

    def order(self, name: str) -> dict[str, Any]:
        return dict(self._guarded_orders.find_one({"_id": name}) or {})

    def close(self) -> None:
        self._server.close()

    @staticmethod
    def _update(message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"_id": message.body["order"]}, {
            "$push": {"journal": message.id},
            "$inc": {"cents": message.body["amount"]},
        }

    def _count(self) -> None:
        self.requests += 1


class _CountedCollection:
    """A collection that reports each request. pymongo has listeners for that, and mongomock has none."""

    def __init__(self, collection: Any, report: Callable[[], None]) -> None:
        self._collection, self._report = collection, report

    def with_options(self, **options: Any) -> _CountedCollection:
        return _CountedCollection(self._collection.with_options(**options), self._report)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._collection, name)
        return partial(self._send, value) if name in ("find_one", "insert_one", "update_one") else value

    def _send(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._report()
        return method(*args, **kwargs)
