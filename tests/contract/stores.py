"""Every store behind one small shop, so that one suite says what all of them promise.

An order has a number `n` that each message adds to, and may be `closed`.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import aioboto3
import boto3
import pymongo
from aiobotocore.session import get_session

from onewrite import Message, Outcome
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.ledger import Ledger
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing import mongomock_collection, moto_table
from onewrite.testing.servers.engines import Dynoxide, Mongod
from onewrite.testing.standins.mongomock_truth import AsyncStandInCollection

NOW = 1_790_000_000.0
AWS: dict[str, Any] = {"region_name": "eu-west-1", "aws_access_key_id": "dummy", "aws_secret_access_key": "dummy"}
TABLE: dict[str, Any] = {
    "TableName": "orders",
    "KeySchema": [{"AttributeName": "orderId", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "orderId", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Shop(Protocol):
    """What the suite does to a store."""

    name: str
    clock: Clock

    def add(
        self, message: Message, order: str, amount: int = 1, *, if_open: bool = False, create: bool = True
    ) -> Outcome: ...
    def add_and_return(self, message: Message, order: str, amount: int = 1) -> Outcome: ...
    def add_measured(self, message: Message, order: str) -> Outcome: ...
    def create(self, message: Message, order: str, n: int = 0) -> Outcome: ...
    def touch(self, message: Message, order: str, field: str) -> Outcome: ...
    def record(self, message: Message, order: str) -> Outcome: ...
    def seen(self, message: Message, order: str) -> Outcome: ...
    def seen_in_part(self, message: Message, order: str) -> Outcome: ...
    def explain(self, message: Message, order: str) -> dict[str, Any]: ...
    def get(self, order: str) -> dict[str, Any] | None: ...
    def without_ledger(self, entity: dict[str, Any]) -> dict[str, Any]: ...
    def raw(self, order: str) -> dict[str, Any] | None: ...
    def put_raw(self, order: str, **fields: Any) -> None: ...


Done = Callable[[Any], Any]


class Place:
    """Where one test is alone in a store that all share: its orders have its name in front, and its time is its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock = Clock()


class DynamoShop:
    def __init__(self, name: str, guarded: Any, table: Any, done: Done, place: Place) -> None:
        self.name, self.clock, self._place = name, place.clock, place.name
        self._guarded, self._table, self._done = guarded, table, done

    def add(self, message: Message, order: str, amount: int = 1, *, if_open: bool = False, create: bool = True) -> Outcome:
        conditions = ["attribute_not_exists(closed)"] * if_open + ["attribute_exists(orderId)"] * (not create)
        native = {"ConditionExpression": " AND ".join(conditions)} if conditions else {}
        return self._update(message, order, amount, **native)

    def add_and_return(self, message: Message, order: str, amount: int = 1) -> Outcome:
        return self._update(message, order, amount, ReturnValues="ALL_NEW")

    def add_measured(self, message: Message, order: str) -> Outcome:
        return self._update(message, order, 1, ReturnConsumedCapacity="TOTAL")

    def create(self, message: Message, order: str, n: int = 0) -> Outcome:
        return self._done(self._guarded.put_item(message, Item={**self._key(order), "n": n, "lines": [1], "new": True}))

    def touch(self, message: Message, order: str, field: str) -> Outcome:
        names, values = {"#f": field}, {":v": 1}
        native = {"ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
        return self._done(self._guarded.update_item(message, Key=self._key(order), UpdateExpression="SET #f = :v", **native))

    def record(self, message: Message, order: str) -> Outcome:
        return self._done(self._guarded.record(message, Key=self._key(order)))

    def seen(self, message: Message, order: str) -> Outcome:
        return self._done(self._guarded.seen(message, Key=self._key(order)))

    def seen_in_part(self, message: Message, order: str) -> Outcome:
        return self._done(self._guarded.seen(message, Key=self._key(order), ProjectionExpression="n"))

    def explain(self, message: Message, order: str) -> dict[str, Any]:
        return self._guarded.explain(message, Key=self._key(order), UpdateExpression="REMOVE n")

    def get(self, order: str) -> dict[str, Any] | None:
        return self._done(self._guarded.get_item(Key=self._key(order), ConsistentRead=True))

    def without_ledger(self, entity: dict[str, Any]) -> dict[str, Any]:
        return self._guarded.without_ledger(entity)

    def raw(self, order: str) -> dict[str, Any] | None:
        return self._table.get_item(Key=self._key(order), ConsistentRead=True).get("Item")

    def put_raw(self, order: str, **fields: Any) -> None:
        self._table.put_item(Item={**self._key(order), **fields})

    def _key(self, order: str) -> dict[str, str]:
        return {"orderId": f"{self._place}-{order}"}

    def _update(self, message: Message, order: str, amount: int, **native: Any) -> Outcome:
        values = {":amount": amount}
        return self._done(
            self._guarded.update_item(
                message,
                Key=self._key(order),
                UpdateExpression="ADD n :amount",
                ExpressionAttributeValues=values,
                **native,
            )
        )


class MongoShop:
    def __init__(self, name: str, guarded: Any, collection: Any, done: Done, place: Place) -> None:
        self.name, self.clock, self._place = name, place.clock, place.name
        self._guarded, self._collection, self._done = guarded, collection, done

    def add(self, message: Message, order: str, amount: int = 1, *, if_open: bool = False, create: bool = True) -> Outcome:
        query = self._key(order) | ({"closed": {"$exists": False}} if if_open else {})
        return self._done(self._guarded.update_one(message, query, {"$inc": {"n": amount}}, upsert=create))

    def add_and_return(self, message: Message, order: str, amount: int = 1) -> Outcome:
        native = {"upsert": True, "return_document": pymongo.ReturnDocument.AFTER}
        return self._done(self._guarded.find_one_and_update(message, self._key(order), {"$inc": {"n": amount}}, **native))

    def add_measured(self, message: Message, order: str) -> Outcome:
        return self.add(message, order)

    def create(self, message: Message, order: str, n: int = 0) -> Outcome:
        return self._done(self._guarded.insert_one(message, {**self._key(order), "n": n}))

    def touch(self, message: Message, order: str, field: str) -> Outcome:
        return self._done(self._guarded.update_one(message, self._key(order), {"$set": {field: 1}}))

    def record(self, message: Message, order: str) -> Outcome:
        return self._done(self._guarded.record(message, self._key(order)))

    def seen(self, message: Message, order: str) -> Outcome:
        return self._done(self._guarded.seen(message, self._key(order)))

    def seen_in_part(self, message: Message, order: str) -> Outcome:
        return self._done(self._guarded.seen(message, self._key(order), projection={"n": 1}))

    def explain(self, message: Message, order: str) -> dict[str, Any]:
        return self._guarded.explain(message, self._key(order), {"$unset": {"n": ""}})

    def get(self, order: str) -> dict[str, Any] | None:
        return self._done(self._guarded.find_one(self._key(order)))

    def without_ledger(self, entity: dict[str, Any]) -> dict[str, Any]:
        return self._guarded.without_ledger(entity)

    def raw(self, order: str) -> dict[str, Any] | None:
        return self._collection.find_one(self._key(order))

    def put_raw(self, order: str, **fields: Any) -> None:
        self._collection.insert_one({**self._key(order), **fields})

    def _key(self, order: str) -> dict[str, str]:
        return {"_id": f"{self._place}-{order}"}


MakeShop = Callable[[Ledger], Shop]
MakeIn = Callable[[Ledger, Place], Shop]


class Engines:
    """Servers and stand-ins, each started when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[str, Any] = {}

    def get(self, name: str, start: Callable[[], Any]) -> Any:
        if name not in self._started:
            self._started[name] = self._stack.enter_context(start())
        return self._started[name]


def _same(value: Any) -> Any:
    return value


@contextmanager
def _moto(engines: Engines, *, plain_client: bool) -> Iterator[MakeIn]:
    with moto_table(**TABLE) as table:
        client = boto3.client("dynamodb", **AWS)

        def make(ledger: Ledger, place: Place) -> Shop:
            guarded = (
                GuardedTable(client, ledger, table_name="orders", clock=place.clock)
                if plain_client
                else GuardedTable(table, ledger, clock=place.clock)
            )
            return DynamoShop("moto", guarded, table, _same, place)

        yield make
        client.close()


@contextmanager
def _dynoxide(engines: Engines, *, kind: str) -> Iterator[MakeIn]:
    server: Dynoxide = engines.get("dynoxide", Dynoxide)
    name = f"orders-{uuid.uuid4().hex}"
    resource = server.resource()
    table = resource.create_table(**{**TABLE, "TableName": name})
    with ExitStack() as stack:
        stack.callback(table.meta.client.close)
        target: Any = table
        table_name: str | None = None
        done: Done = _same
        if kind == "client":
            target, table_name = server.client(), name
            stack.callback(target.close)
        elif kind == "async client":
            runner = stack.enter_context(asyncio.Runner())
            context = get_session().create_client("dynamodb", endpoint_url=server.endpoint, **AWS)
            target, table_name = runner.run(context.__aenter__()), name
            stack.callback(lambda: runner.run(context.__aexit__(None, None, None)))
            done = _awaited(runner)
        elif kind == "async table":
            runner = stack.enter_context(asyncio.Runner())
            context = aioboto3.Session().resource("dynamodb", endpoint_url=server.endpoint, **AWS)
            opened = runner.run(context.__aenter__())
            target = runner.run(_resolved(opened.Table(name)))
            stack.callback(lambda: runner.run(context.__aexit__(None, None, None)))
            done = _awaited(runner)

        def make(ledger: Ledger, place: Place) -> Shop:
            guard: Any = AsyncGuardedTable if kind.startswith("async") else GuardedTable
            return DynamoShop(
                "dynoxide", guard(target, ledger, table_name=table_name, clock=place.clock), table, done, place
            )

        yield make


@contextmanager
def _mongomock(engines: Engines, *, asynchronous: bool) -> Iterator[MakeIn]:
    with mongomock_collection() as collection, asyncio.Runner() as runner:

        def make(ledger: Ledger, place: Place) -> Shop:
            if asynchronous:
                guarded: Any = AsyncGuardedCollection(AsyncStandInCollection(collection), ledger, clock=place.clock)
            else:
                guarded = GuardedCollection(collection, ledger, clock=place.clock)
            return MongoShop("mongomock", guarded, collection, _awaited(runner) if asynchronous else _same, place)

        yield make


@contextmanager
def _mongod(engines: Engines, *, asynchronous: bool) -> Iterator[MakeIn]:
    server: Mongod = engines.get("mongod", Mongod)
    name = f"orders-{uuid.uuid4().hex}"
    with pymongo.MongoClient[Mapping[str, Any]](server.uri) as client, asyncio.Runner() as runner:
        collection = client["shop"][name]
        opened = pymongo.AsyncMongoClient[Mapping[str, Any]](server.uri) if asynchronous else None

        def make(ledger: Ledger, place: Place) -> Shop:
            if opened is not None:
                guarded: Any = AsyncGuardedCollection(opened["shop"][name], ledger, clock=place.clock)
            else:
                guarded = GuardedCollection(collection, ledger, clock=place.clock)
            return MongoShop("mongod", guarded, collection, _same if opened is None else _awaited(runner), place)

        yield make
        if opened is not None:
            runner.run(opened.close())


def _awaited(runner: asyncio.Runner) -> Done:
    def done(coroutine: Any) -> Any:
        return runner.run(coroutine)

    return done


async def _resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


OPENERS: dict[str, Callable[[Engines], Any]] = {
    "moto table": lambda engines: _moto(engines, plain_client=False),
    "moto client": lambda engines: _moto(engines, plain_client=True),
    "dynoxide table": lambda engines: _dynoxide(engines, kind="table"),
    "dynoxide client": lambda engines: _dynoxide(engines, kind="client"),
    "dynoxide async client": lambda engines: _dynoxide(engines, kind="async client"),
    "dynoxide async table": lambda engines: _dynoxide(engines, kind="async table"),
    "mongomock": lambda engines: _mongomock(engines, asynchronous=False),
    "mongomock async": lambda engines: _mongomock(engines, asynchronous=True),
    "mongod": lambda engines: _mongod(engines, asynchronous=False),
    "mongod async": lambda engines: _mongod(engines, asynchronous=True),
}
