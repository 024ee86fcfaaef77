"""Every store behind one small shop, so one suite says what all of them promise.

An order has a number `n` that each message adds to, and may be `closed`.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias

import boto3
import pymongo
import pytest
from aiobotocore.session import get_session

import onewrite.dynamodb
import onewrite.mongodb
from onewrite import BeginOutcome, Begun, Busy, Event, Message, Outbox, Outcome, Tombstones, Uncertain
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.outbox import AsyncRelay, FlushReport, Outgoing, PendingEntity, Relay, SweepReport
from onewrite.testing import mongomock_collection, moto_table
from onewrite.testing.standins.collection import AsyncStandInCollection
from tests.contract.endpoints import COLLECTIONS, DUMMIES, TABLE, TABLES, CollectionPlace, TablePlace
from tests.support.batches import Clock

NOW = 1_790_000_000.0
# An effect that takes a minute at most, at a provider that recognises a key for a day.
EFFECT = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(days=1)}


Done = Callable[[Any], Any]


@dataclass
class Adding:
    """The write of a batch: it adds the amount of each message, which is its body, to `n`. `asked` are the ids that it was given.

    `limit`: what `n` may not exceed. `emit` makes the event of each message.
    """

    creates: bool = True
    limit: int | None = None
    final: Mapping[str, bool] = field(default_factory=dict[str, bool])
    emit: Callable[[Message], Event] | None = None
    asked: list[list[str]] = field(default_factory=list[list[str]])

    def amount(self, fresh: Sequence[Message]) -> int:
        self.asked.append([message.id for message in fresh])
        return sum([1 if message.body is None else int(message.body) for message in fresh])

    def events(self, fresh: Sequence[Message]) -> dict[str, Any]:
        emitted = {} if self.emit is None else {"emit": [self.emit(message) for message in fresh]}
        return {**emitted, **self.final}


class Place:
    """Where one test is alone in a store that all share: its orders have its name in front, and its time is its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock = Clock(NOW)


class BaseShop(ABC):
    """What both engines are asked alike: a call takes what names an order, its conditions, and its change by name."""

    engine: Any
    key_name: str
    updates: str  # the method that changes an order
    returning: ClassVar[dict[str, Any]] = {}  # what asks a write for the order as it is afterwards
    in_part: ClassVar[dict[str, Any]]  # what asks a read for a part of an order

    def __init__(self, name: str, guarded: Any, raw: Any, done: Done, place: Place, target: Any = None) -> None:
        self.name, self.clock, self._place = name, place.clock, place.name
        self._target = raw if target is None else target
        self._guarded, self._raw, self._done = guarded, raw, done

    @abstractmethod
    def where(
        self, order: str, *, if_open: bool = False, create: bool = True, if_n: int | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        """The order, unless it is closed, or not there, or has another number, or one that is larger than `limit`."""

    @abstractmethod
    def adds(self, amount: int) -> dict[str, Any]: ...
    @abstractmethod
    def creates(self, create: bool) -> dict[str, Any]: ...
    @abstractmethod
    def insert(self, message: Message, entity: dict[str, Any], **options: Any) -> Outcome: ...
    @abstractmethod
    def deleting(self, shows: bool) -> Callable[..., Any]: ...

    def key(self, order: str) -> dict[str, str]:
        return {self.key_name: f"{self._place}-{order}"}

    def change(self, order: str, amount: int = 1, **conditions: Any) -> dict[str, Any]:
        return {**self.where(order, **conditions), **self.adds(amount)}

    def add(
        self, message: Message, order: str, amount: int = 1, *, if_open: bool = False, create: bool = True, **options: Any
    ) -> Outcome:
        native = self.change(order, amount, if_open=if_open, create=create)
        native |= self.creates(create and options.get("finishes") is None)
        return self._done(getattr(self._guarded, self.updates)(message, **native, **options))

    def delete(
        self,
        message: Message,
        order: str,
        *,
        if_open: bool = False,
        shows: bool = False,
        **options: Any,
    ) -> Outcome:
        method = self.deleting(shows)
        return self._done(method(message, **self.where(order, if_open=if_open), **options))

    def begin_effect(
        self, message: Message, order: str, name: str = "charge", *, if_open: bool = False, **asked: Any
    ) -> BeginOutcome:
        return self._done(
            self._guarded.begin_effect(message, name, **self.where(order, if_open=if_open), **{**EFFECT, **asked})
        )

    def perform_effect(self, message: Message, order: str, effect: Any, then: Any, **asked: Any) -> BeginOutcome:
        def arguments(amount: Any) -> Any:
            made = then(amount)
            return {**self.adds(made), **self.returning} if isinstance(made, int) else made

        native = {**self.where(order), **EFFECT, **asked}
        return self._done(self._guarded.perform_effect(message, "charge", effect, then=arguments, **native))

    def release_effect(self, effect: Begun, *, sent: bool = True) -> None:
        self._done(self._guarded.release_effect(effect, sent=sent))

    def open_effects(self, order: str) -> list[Busy | Uncertain]:
        return self._done(self._guarded.open_effects(**self.where(order)))

    def create(self, message: Message, order: str, n: int = 0, **options: Any) -> Outcome:
        return self.insert(message, {**self.key(order), "n": n, "lines": [1], "new": True}, **options)

    def create_bare(self, message: Message, order: str, **options: Any) -> Outcome:
        return self.insert(message, self.key(order), **options)

    def remember(self, message: Message, order: str, *, if_n: int | None = None, **options: Any) -> Outcome:
        return self._done(self._guarded.remember(message, **self.where(order, if_n=if_n), **options))

    def update_batch(self, messages: Sequence[Message], order: str, adding: Adding | None = None) -> list[Outcome]:
        made = adding or Adding()

        def write(fresh: list[Message]) -> dict[str, Any]:
            amount = made.amount(fresh)
            limit = None if made.limit is None else made.limit - amount
            native = self.change(order, amount, create=made.creates, limit=limit)
            return {**native, **self.creates(made.creates), **self.returning, **made.events(fresh)}

        return self.batch_by(messages, write)

    def batch_by(self, messages: Sequence[Message], function: Callable[[list[Message]], Any]) -> list[Outcome]:
        return self._done(self._guarded.update_batch(messages, function))

    def preview(self, message: Message, order: str) -> Outcome:
        return self._done(self._guarded.preview(message, **self.where(order)))

    def seen_in_part(self, message: Message, order: str) -> Outcome:
        return self._done(self._guarded.preview(message, **self.where(order), **self.in_part))

    def explain(self, message: Message, order: str) -> dict[str, Any]:
        return self._guarded.explain(self.updates, message, **self.change(order))

    def without_ledger(self, entity: dict[str, Any]) -> dict[str, Any]:
        return self._guarded.without_ledger(entity)

    def relay(self, publish: Callable[[list[Outgoing]], Any], **options: Any) -> ShopRelay:
        return ShopRelay(self._guarded, publish, self._done, self.where, options)


class DynamoShop(BaseShop):
    engine, key_name, updates = onewrite.dynamodb, "orderId", "update_item"
    returning: ClassVar = {"ReturnValues": "ALL_NEW"}
    in_part: ClassVar = {"ProjectionExpression": "n"}

    def where(
        self, order: str, *, if_open: bool = False, create: bool = True, if_n: int | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        values = {name: value for name, value in ((":n", if_n), (":limit", limit)) if value is not None}
        conditions = ["attribute_not_exists(closed)"] * if_open + ["attribute_exists(orderId)"] * (not create)
        conditions += ["n = :n"] * (":n" in values) + ["n <= :limit"] * (":limit" in values)
        native: dict[str, Any] = {"Key": self.key(order)}
        native |= {"ConditionExpression": " AND ".join(conditions)} if conditions else {}
        return native | ({"ExpressionAttributeValues": values} if values else {})

    def adds(self, amount: int) -> dict[str, Any]:
        return {"UpdateExpression": "ADD n :amount", "ExpressionAttributeValues": {":amount": amount}}

    def change(self, order: str, amount: int = 1, **conditions: Any) -> dict[str, Any]:
        values = self.where(order, **conditions).get("ExpressionAttributeValues", {})
        return {**super().change(order, amount, **conditions), "ExpressionAttributeValues": {":amount": amount, **values}}

    def creates(self, create: bool) -> dict[str, Any]:
        return {}

    def insert(self, message: Message, entity: dict[str, Any], **options: Any) -> Outcome:
        return self._done(self._guarded.put_item(message, Item=entity, **options))

    def add_and_return(self, message: Message, order: str, amount: int = 1) -> Outcome:
        return self.add(message, order, amount, ReturnValues="ALL_NEW")

    def add_measured(self, message: Message, order: str) -> Outcome:
        return self.add(message, order, ReturnConsumedCapacity="TOTAL")

    def deleting(self, shows: bool) -> Callable[..., Any]:
        return partial(self._guarded.delete_item, ReturnValues="ALL_OLD") if shows else self._guarded.delete_item

    def expiry(self, order: str) -> float | None:
        found = (self.raw(order) or {}).get("expiresAt")
        return None if found is None else float(found)

    def touch(self, message: Message, order: str, field: str) -> Outcome:
        names, values = {"#f": field}, {":v": 1}
        native = {"ExpressionAttributeNames": names, "ExpressionAttributeValues": values}
        return self._done(self._guarded.update_item(message, Key=self.key(order), UpdateExpression="SET #f = :v", **native))

    def get(self, order: str) -> dict[str, Any] | None:
        return self._done(self._guarded.get_item(Key=self.key(order), ConsistentRead=True))

    def raw(self, order: str) -> dict[str, Any] | None:
        return self._raw.get_item(Key=self.key(order), ConsistentRead=True).get("Item")

    def put_raw(self, order: str, **fields: Any) -> None:
        self._raw.put_item(Item={**self.key(order), **fields})

    def touch_raw(self, order: str, field: str) -> None:
        native = {"ExpressionAttributeNames": {"#f": field}, "ExpressionAttributeValues": {":v": 1}}
        self._raw.update_item(Key=self.key(order), UpdateExpression="SET #f = :v", **native)

    def delete_raw(self, order: str) -> None:
        self._raw.delete_item(Key=self.key(order))

    def delete_all_raw(self) -> None:
        """What other tests have left too."""
        for item in self._raw.scan()["Items"]:
            self._raw.delete_item(Key={"orderId": item["orderId"]})


class MongoShop(BaseShop):
    engine, key_name, updates = onewrite.mongodb, "_id", "update_one"
    in_part: ClassVar = {"projection": {"n": 1}}

    def where(
        self, order: str, *, if_open: bool = False, create: bool = True, if_n: int | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        conditions: dict[str, Any] = {"closed": {"$exists": False}} if if_open else {}
        conditions |= ({} if if_n is None else {"n": if_n}) | ({} if limit is None else {"n": {"$lte": limit}})
        return {"filter": self.key(order) | conditions}

    def adds(self, amount: int) -> dict[str, Any]:
        return {"update": {"$inc": {"n": amount}}}

    def creates(self, create: bool) -> dict[str, Any]:
        return {"upsert": create}

    def insert(self, message: Message, entity: dict[str, Any], **options: Any) -> Outcome:
        return self._done(self._guarded.insert_one(message, entity, **options))

    def add_and_return(self, message: Message, order: str, amount: int = 1) -> Outcome:
        native = {**self.change(order, amount), "upsert": True, "return_document": pymongo.ReturnDocument.AFTER}
        return self._done(self._guarded.find_one_and_update(message, **native))

    def add_measured(self, message: Message, order: str) -> Outcome:
        return self.add(message, order)

    def deleting(self, shows: bool) -> Callable[..., Any]:
        return self._guarded.find_one_and_delete if shows else self._guarded.delete_one

    def expiry(self, order: str) -> float | None:
        found = (self.raw(order) or {}).get("expiresAt")
        return None if found is None else found.replace(tzinfo=UTC).timestamp()

    def touch(self, message: Message, order: str, field: str) -> Outcome:
        return self._done(self._guarded.update_one(message, self.key(order), {"$set": {field: 1}}))

    def get(self, order: str) -> dict[str, Any] | None:
        return self._done(self._guarded.find_one(self.key(order)))

    def raw(self, order: str) -> dict[str, Any] | None:
        return self._raw.find_one(self.key(order))

    def put_raw(self, order: str, **fields: Any) -> None:
        self._raw.insert_one({**self.key(order), **fields})

    def touch_raw(self, order: str, field: str) -> None:
        self._raw.update_one(self.key(order), {"$set": {field: 1}})

    def delete_raw(self, order: str) -> None:
        self._raw.delete_one(self.key(order))

    def delete_all_raw(self) -> None:
        """What other tests have left too."""
        self._raw.delete_many({})


Shop: TypeAlias = DynamoShop | MongoShop
"""What the suite does to a store."""


class ShopRelay:
    """A relay of a shop, by the names of its orders."""

    def __init__(self, guarded: Any, publish: Any, done: Done, where: Callable[[str], dict[str, Any]], options: Any) -> None:
        kind: Any = AsyncRelay if type(guarded).__name__.startswith("Async") else Relay
        self._relay, self._done, self._where = kind(guarded, publish, **options), done, where

    def flush(self, order: str) -> FlushReport:
        return self._done(self._relay.flush(**self._where(order)))

    def notify(self, *orders: str) -> SweepReport:
        return self._done(self._relay.notify([next(iter(self._where(order).values())) for order in orders]))

    def skip(self, order: str, event_id: str) -> Outgoing | None:
        return self._done(self._relay.skip(**self._where(order), id=event_id))

    def restart(self, order: str) -> str | None:
        return self._done(self._relay.restart(**self._where(order)))

    def sweep(self, **options: Any) -> SweepReport:
        return self._done(self._relay.sweep(**options))

    def pending(self) -> list[PendingEntity]:
        return self._done(self._relay.pending())


class MakeShop(Protocol):
    def __call__(
        self, ledger: Ledger | None, outbox: Outbox | None = None, tombstones: Tombstones | None = None
    ) -> Shop: ...


class MakeIn(Protocol):
    def __call__(
        self, ledger: Ledger | None, place: Place, outbox: Outbox | None = None, tombstones: Tombstones | None = None
    ) -> Shop: ...


Opener = Callable[["Engines"], AbstractContextManager[MakeIn]]


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


def _making(guard: Callable[..., Any], shop_of: Callable[[Any, Place], Shop]) -> MakeIn:
    """Shops whose stores `guard` makes of a ledger and options."""

    def make(
        ledger: Ledger | None, place: Place, outbox: Outbox | None = None, tombstones: Tombstones | None = None
    ) -> Shop:
        return shop_of(guard(ledger, clock=place.clock, outbox=outbox, tombstones=tombstones), place)

    return make


@contextmanager
def _moto(engines: Engines, *, plain_client: bool) -> Iterator[MakeIn]:
    with moto_table(**TABLE) as table:
        client = boto3.client("dynamodb", **DUMMIES)
        target: Any = client if plain_client else table
        guard = partial(GuardedTable, target, **({"table_name": "orders"} if plain_client else {}))
        yield _making(guard, lambda guarded, place: DynamoShop("dynamodb", guarded, table, _same, place, target))
        client.close()


BY_ITSELF = "aioboto3 holds boto3 back, so `make aioboto3` tries it in an environment of its own"


@contextmanager
def open_tables(server: TablePlace, kind: str) -> Iterator[MakeIn]:
    with ExitStack() as stack:
        resource: Any = boto3.resource("dynamodb", **server.client)
        stack.callback(resource.meta.client.close)
        table = resource.Table(server.table)
        runner = stack.enter_context(asyncio.Runner())
        target = table if kind == "table" else _target(server, kind, stack, runner)
        done = _awaited(runner) if kind.startswith("async") else _same
        store: Any = AsyncGuardedTable if kind.startswith("async") else GuardedTable
        lean = {"lean": True} if "lean" in kind else {}
        guard = partial(store, target, table_name=server.table if kind.endswith("client") else None, **lean)
        yield _making(guard, lambda guarded, place: DynamoShop("dynamodb", guarded, table, done, place, target))


def _target(place: TablePlace, kind: str, stack: ExitStack, runner: asyncio.Runner) -> Any:
    """What a guarded table is made of: boto3's client, aiobotocore's, or aioboto3's Table."""
    if kind in ("client", "lean client"):
        client = boto3.client("dynamodb", **place.client)
        stack.callback(client.close)
        return client
    context: Any = (
        get_session().create_client("dynamodb", **place.client)
        if kind.endswith("client")
        else pytest.importorskip("aioboto3", reason=BY_ITSELF).Session().resource("dynamodb", **place.client)
    )
    opened = runner.run(context.__aenter__())
    stack.callback(lambda: runner.run(context.__aexit__(None, None, None)))
    return opened if kind.endswith("client") else runner.run(_resolved(opened.Table(place.table)))


@contextmanager
def _mongomock(engines: Engines, *, asynchronous: bool) -> Iterator[MakeIn]:
    with mongomock_collection() as collection, asyncio.Runner() as runner:
        guard: Any = (
            partial(AsyncGuardedCollection, AsyncStandInCollection(collection))
            if asynchronous
            else partial(GuardedCollection, collection)
        )
        done = _awaited(runner) if asynchronous else _same
        yield _making(guard, lambda guarded, place: MongoShop("mongomock", guarded, collection, done, place))


@contextmanager
def open_collections(server: CollectionPlace, *, asynchronous: bool) -> Iterator[MakeIn]:
    with pymongo.MongoClient[Mapping[str, Any]](server.uri) as client, asyncio.Runner() as runner:
        collection = client[server.database][server.collection]
        opened = pymongo.AsyncMongoClient[Mapping[str, Any]](server.uri) if asynchronous else None
        target = collection if opened is None else opened[server.database][server.collection]
        store: Any = GuardedCollection if opened is None else AsyncGuardedCollection
        done = _same if opened is None else _awaited(runner)
        guard = partial(store, target)
        yield _making(guard, lambda guarded, place: MongoShop("mongod", guarded, collection, done, place, target))
        if opened is not None:
            runner.run(opened.close())


def _on_server(servers: Any, name: str, opener: Any, engines: Engines) -> AbstractContextManager[MakeIn]:
    return opener(engines.get(name, servers[name]))


def _awaited(runner: asyncio.Runner) -> Done:
    def done(coroutine: Any) -> Any:
        return runner.run(coroutine, context=copy_context())  # else it would see those variables that the first one saw

    return done


async def _resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _openers() -> Iterator[tuple[str, Opener]]:
    for plain_client in (False, True):
        yield f"moto {'client' if plain_client else 'table'}", partial(_moto, plain_client=plain_client)
    for name in TABLES:
        for kind in ("table", "client", "lean client", "async client", "async table"):
            yield f"{name} {kind}", partial(_on_server, TABLES, name, partial(open_tables, kind=kind))
    for asynchronous in (False, True):
        yield f"mongomock{' async' * asynchronous}", partial(_mongomock, asynchronous=asynchronous)
    for name in COLLECTIONS:
        for asynchronous in (False, True):
            opener = partial(open_collections, asynchronous=asynchronous)
            yield f"{name}{' async' * asynchronous}", partial(_on_server, COLLECTIONS, name, opener)


OPENERS: dict[str, Opener] = dict(_openers())
