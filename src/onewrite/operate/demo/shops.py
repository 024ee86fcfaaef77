"""Where the demo keeps its orders: on a stand-in of DynamoDB or of MongoDB, with the three writes that the handlers use.

Each event changes a number of its order, and appends its own id to the order's journal. The journal is part of the business
write, so it shows in the end how often each event took effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

from onewrite.core.ledgers import SeenIds
from onewrite.message import Message
from onewrite.outcome import Applied, Entity

_DUMMY_ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "demo",
    "AWS_SECRET_ACCESS_KEY": "demo",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
_MONGODB_REQUESTS = frozenset({"find_one", "insert_one", "update_one"})


class Engine(StrEnum):
    DYNAMODB = "dynamodb"
    MONGODB = "mongodb"


class Shop(Protocol):
    """A shop without orders, at first."""

    # How many requests were sent to the engine so far.
    @property
    def requests(self) -> int: ...

    # The business write and nothing else.
    def write(self, message: Message) -> None: ...

    # Store the message's id beside the orders. False: it was stored before.
    def claim(self, message: Message) -> bool: ...

    # The business write, guarded by onewrite. False: it says that the order holds the message already.
    def guarded_write(self, message: Message) -> bool: ...

    # The order as it is now, without its ledger.
    def order(self, name: str) -> Entity: ...


OpenShop: TypeAlias = Callable[[str, Callable[[], float]], Shop]


@contextmanager
def shops(engine: Engine) -> Generator[OpenShop, None, None]:
    """Gives a function that opens a new shop by name, on the stand-in of this engine."""
    if engine is Engine.MONGODB:
        import mongomock  # noqa: PLC0415  # The demo of DynamoDB does without it.

        client = cast("Any", mongomock.MongoClient())
        yield lambda name, clock: MongoShop(client[name], clock)
        return
    with _dummy_account():
        import boto3  # noqa: PLC0415
        from moto import mock_aws  # noqa: PLC0415

        with mock_aws():
            session = cast("Any", boto3.Session())
            yield lambda name, clock: DynamoShop(session.resource("dynamodb"), name, clock)


class DynamoShop:
    """Orders in one table, claims in another."""

    def __init__(self, database: Any, name: str, clock: Callable[[], float]) -> None:
        from onewrite.dynamodb import GuardedTable  # noqa: PLC0415

        self.requests = 0
        self._orders = _new_table(database, f"{name}-orders")
        self._claims = _new_table(database, f"{name}-claims")
        self._guarded_store = GuardedTable(self._orders, SeenIds(), clock=clock)
        events = database.meta.client.meta.events
        events.register("before-call.dynamodb", self._count)
        events.register("after-call.dynamodb", _forget_date)

    def write(self, message: Message) -> None:
        self._orders.update_item(**self._update(message))

    def claim(self, message: Message) -> bool:
        refusal = self._claims.meta.client.exceptions.ConditionalCheckFailedException
        try:
            self._claims.put_item(Item={"name": message.id}, ConditionExpression="attribute_not_exists(#name)", **_NAME)
        except refusal:
            return False
        return True

    def guarded_write(self, message: Message) -> bool:
        return isinstance(self._guarded_store.update_item(message, **self._update(message)), Applied)

    def order(self, name: str) -> Entity:
        return self._guarded_store.get_item(Key={"name": name}) or {}

    @staticmethod
    def _update(message: Message) -> dict[str, Any]:
        return {
            "Key": {"name": message.body["order"]},
            "UpdateExpression": "SET journal = list_append(if_not_exists(journal, :none), :entry) ADD #field :amount",
            "ExpressionAttributeNames": {"#field": message.body["field"]},
            "ExpressionAttributeValues": {":none": [], ":entry": [message.id], ":amount": message.body["amount"]},
        }

    def _count(self, **_: Any) -> None:
        self.requests += 1


class MongoShop:
    """Orders in one collection, claims in another."""

    def __init__(self, database: Any, clock: Callable[[], float]) -> None:
        from onewrite.mongodb import GuardedCollection  # noqa: PLC0415

        self.requests = 0
        self._orders = _CountingCollection(database["orders"], self._count)
        self._claims = _CountingCollection(database["claims"], self._count)
        self._guarded_store = GuardedCollection(self._orders, SeenIds(), clock=clock)

    def write(self, message: Message) -> None:
        self._orders.update_one(*self._update(message), upsert=True)

    def claim(self, message: Message) -> bool:
        from pymongo.errors import DuplicateKeyError  # noqa: PLC0415

        try:
            self._claims.insert_one({"_id": message.id})
        except DuplicateKeyError:
            return False
        return True

    def guarded_write(self, message: Message) -> bool:
        return isinstance(self._guarded_store.update_one(message, *self._update(message), upsert=True), Applied)

    def order(self, name: str) -> Entity:
        return self._guarded_store.find_one({"_id": name}) or {}

    @staticmethod
    def _update(message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
        body = message.body
        return {"_id": body["order"]}, {"$push": {"journal": message.id}, "$inc": {body["field"]: body["amount"]}}

    def _count(self) -> None:
        self.requests += 1


class _CountingCollection:
    """A mongomock collection that reports each request. pymongo has listeners for that, and mongomock has none."""

    def __init__(self, collection: Any, report: Callable[[], None]) -> None:
        self._collection = collection
        self._report = report

    def with_options(self, **options: Any) -> _CountingCollection:
        return _CountingCollection(self._collection.with_options(**options), self._report)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._collection, name)
        return partial(self._send, value) if name in _MONGODB_REQUESTS else value

    def _send(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._report()
        return method(*args, **kwargs)


def _forget_date(parsed: dict[str, Any], **_: Any) -> None:
    """Drop the date that moto answers with. It is today's, and onewrite would warn that the demo's clock differs from it."""
    parsed["ResponseMetadata"]["HTTPHeaders"].pop("date", None)


_NAME = {"ExpressionAttributeNames": {"#name": "name"}}  # a reserved word


def _new_table(database: Any, name: str) -> Any:
    return database.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


@contextmanager
def _dummy_account() -> Generator[None, None, None]:
    """Replace the caller's AWS account, profile and endpoints by a made-up account, for as long as the block runs."""
    before = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for name in before:
        del os.environ[name]
    os.environ.update(_DUMMY_ACCOUNT)
    try:
        yield
    finally:
        for name in _DUMMY_ACCOUNT:
            os.environ.pop(name, None)
        os.environ.update(before)
