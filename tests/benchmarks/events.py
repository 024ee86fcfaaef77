"""What it costs to emit an event with a write, against the ways without an outbox in the entity; and what relays do and waste.

Each write of a contender goes to an entity of its own, so one event is pending at a time, as where a relay keeps up.
"""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pymongo import MongoClient

from onewrite import Event, Message, Outbox, SeenIds
from onewrite.core.flow import Flow
from onewrite.core.pending import Box
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import typed_values
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.benchmarks.measure import Contender, Plan, Row, message_ids, ratio, take_turns
from tests.benchmarks.speed_dynamodb import BUSINESS as DYNAMODB_UPDATE
from tests.benchmarks.speed_mongodb import BUSINESS as MONGODB_UPDATE
from tests.benchmarks.speed_mongodb import DURABLE
from tests.engines.stores import create_table_with_outbox

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PAYMENT = Event("OrderPaid", {"cents": 1250, "currency": "EUR"})
WITH_INDEX = Outbox("shop/orders", index="pending")
PLAIN = Outbox("shop/orders")
TABLE = "orders-of-the-benchmarks"
INDEXED = "orders-with-an-index"  # the same request writes to the index too, if the table has one
OWN_OUTBOX = "outbox"
AGAINST_NONE, AGAINST_TRANSACTION, AGAINST_INSERTS = 1.10, 0.80, 0.60
_ENTITIES, _EVENTS = 100, 10  # that have something pending when relays begin, and how much
_TURNS = 5

Emit = Callable[[str, int], object]  # to the entity of this name, by the message of this number


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as dynoxide, _tables(dynoxide) as client:
        yield from _on_dynamodb(plan, client)
        table = GuardedTable(client, SeenIds(), table_name=INDEXED, outbox=WITH_INDEX)
        yield from _relays("dynoxide", table, lambda entity, n: _add_item(table, entity, n))
    with Mongod() as mongod, MongoClient[dict[str, Any]](mongod.uri) as mongo:
        yield from _on_mongodb(plan, mongo)
        collection = mongo.shop.relayed
        collection.create_index("ow_due", sparse=True)
        documents = GuardedCollection(collection, SeenIds(), outbox=PLAIN)
        yield from _relays("mongod", documents, lambda entity, n: _add_document(documents, entity, n))


# ---------------------------------------------------------------- emits


@contextmanager
def _tables(server: Dynoxide) -> Iterator[DynamoDBClient]:
    client = server.client()
    create_table_with_outbox(client, INDEXED)
    for name in (TABLE, OWN_OUTBOX):
        client.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    yield client
    client.close()


def _on_dynamodb(plan: Plan, client: DynamoDBClient) -> Iterator[Row]:
    def store(table: str, outbox: Outbox | None = None) -> GuardedTable:
        return GuardedTable(client, SeenIds(), table_name=table, outbox=outbox)

    def entities(table: str, name: str) -> list[dict[str, Any]]:
        """They exist before the clock runs."""
        keys = [{"id": f"{name} {turn:06d}"} for turn in range(plan.warmup + plan.rounds)]
        for key in keys:
            client.put_item(TableName=table, Item=typed_values(key))
        return keys

    def writer(table: str, outbox: Outbox, name: str, **emit: Any) -> Contender:
        ours, keys, messages = store(table, outbox), entities(table, name), _messages(plan)
        return lambda turn: ours.update_item(messages[turn], Key=keys[turn], **DYNAMODB_UPDATE, **emit)

    def by_hand(name: str, **emit: Any) -> Contender:
        """The same request, composed before the clock runs."""
        ours, keys = store(TABLE, PLAIN), entities(TABLE, name)
        requests = [_explain(ours, message, key, **emit) for message, key in zip(_messages(plan), keys, strict=True)]
        return lambda turn: client.update_item(**requests[turn])

    def in_a_transaction(name: str) -> Contender:
        requests = _transactions(plan, store(TABLE), entities(TABLE, name))
        return lambda turn: client.transact_write_items(TransactItems=requests[turn])

    ways = (("emit, dynoxide", TABLE, PLAIN), ("emit with the sparse index, dynoxide", INDEXED, WITH_INDEX))
    rival = "the same guarded write without"
    for what, table, outbox in ways:
        ours = writer(table, outbox, f"{what}, ours", emit=[PAYMENT])
        yield _duel(plan, what, ours, rival, writer(table, outbox, f"{what}, theirs"), AGAINST_NONE)
    emitter, plain = by_hand("by hand, ours", emit=[PAYMENT]), by_hand("by hand, theirs")
    yield _duel(plan, "emit by hand, dynoxide", emitter, "the same by hand without", plain, None)
    rival = "TransactWriteItems of entity and outbox item"
    for what, table, outbox in ways:
        ours = writer(table, outbox, f"{what}, beside a transaction", emit=[PAYMENT])
        yield _duel(plan, what, ours, rival, in_a_transaction(f"transaction beside {what}"), AGAINST_TRANSACTION)


def _transactions(plan: Plan, store: GuardedTable, keys: list[dict[str, Any]]) -> list[list[Any]]:
    """The same guarded write, by hand, with an item in an outbox table. It is composed before the clock runs."""
    transactions: list[list[Any]] = []
    for message, key in zip(_messages(plan), keys, strict=True):
        update = _explain(store, message, key)
        event = {
            "id": {"S": message.child("event")},
            "type": {"S": PAYMENT.type},
            "body": {"S": '{"cents":1250,"currency":"EUR"}'},
        }
        transactions.append([{"Update": update}, {"Put": {"TableName": OWN_OUTBOX, "Item": event}}])
    return transactions


def _on_mongodb(plan: Plan, mongo: MongoClient[dict[str, Any]]) -> Iterator[Row]:
    collection = mongo.shop.orders
    store = GuardedCollection(collection, SeenIds(), outbox=PLAIN)
    durable_orders, orders, outbox = (
        mongo.shop.get_collection(name, write_concern=DURABLE) for name in ("orders", "classic", OWN_OUTBOX)
    )
    messages = _messages(plan)
    names = ("ours", "theirs", "emitted by hand", "by hand")
    collection.insert_many([{"_id": f"{name} {turn:06d}"} for name in names for turn in range(len(messages))])
    orders.insert_one({"_id": "first"})
    outbox.insert_one({"_id": "first"})

    def updater(name: str, **emit: Any) -> Contender:
        return lambda turn: store.update_one(messages[turn], {"_id": f"{name} {turn:06d}"}, MONGODB_UPDATE, **emit)

    def explain(message: Message, query: Any, emit: Any) -> Any:
        return store.explain("update_one", message, query, MONGODB_UPDATE, **emit)

    def by_hand(name: str, **emit: Any) -> Contender:
        """The same request, composed before the clock runs."""
        turns = enumerate(messages)
        requests = [explain(name, {"_id": f"{name} {turn:06d}"}, emit) for turn, name in turns]
        return lambda turn: durable_orders.update_one(requests[turn]["filter"], requests[turn]["update"])

    def insert(turn: int) -> object:
        return store.insert_one(messages[turn], {"_id": f"new {turn:06d}", "status": "PAID"}, emit=[PAYMENT])

    def insert_by_hand(turn: int) -> object:
        return durable_orders.insert_one({**document, "_id": f"by hand, new {turn:06d}"})

    def in_a_transaction(turn: int) -> object:
        number = f"{next(numbers):06d}"
        event = {"_id": messages[turn].child(number), "type": PAYMENT.type, "body": '{"cents":1250,"currency":"EUR"}'}
        with mongo.start_session() as session, session.start_transaction(write_concern=DURABLE):
            orders.insert_one({"_id": f"new {number}", "status": "PAID"}, session=session)
            return outbox.insert_one(event, session=session)

    rival = "the same guarded write without"
    yield _duel(plan, "emit, mongod", updater("ours", emit=[PAYMENT]), rival, updater("theirs"), AGAINST_NONE)
    emitter = by_hand("emitted by hand", emit=[PAYMENT])
    yield _duel(plan, "emit by hand, mongod", emitter, "the same by hand without", by_hand("by hand"), None)
    rival, numbers = "a transaction of two inserts", itertools.count()
    yield _duel(plan, "insert and emit, mongod", insert, rival, in_a_transaction, AGAINST_INSERTS)
    document = collection.find_one({"_id": "new 000000"}) or {}
    yield _duel(plan, "insert of the same by hand, mongod", insert_by_hand, rival, in_a_transaction, None)


def _duel(plan: Plan, what: str, ours: Contender, rival: str, theirs: Contender, target: float | None) -> Row:
    took = take_turns({"ours": ours, "theirs": theirs}, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    return ratio(what, rival, took["ours"], took["theirs"], target=target)


def _messages(plan: Plan) -> list[Message]:
    return [Message(name) for name in message_ids(plan.warmup + plan.rounds, plan.seed)]


# ---------------------------------------------------------------- relays


def _add_item(table: GuardedTable, entity: str, n: int) -> object:
    update: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
    return table.update_item(Message(f"m{n}"), Key={"id": entity}, emit=[PAYMENT] * _EVENTS, **update)


def _add_document(documents: GuardedCollection, entity: str, n: int) -> object:
    return documents.update_one(Message(f"m{n}"), {"_id": entity}, {"$inc": {"n": 1}}, upsert=True, emit=[PAYMENT] * _EVENTS)


def _relays(engine: str, store: Any, emit: Emit) -> Iterator[Row]:
    for relays in (1, 2, 3):
        results = sorted([_relay_all(f"{relays}-{turn}", store, relays, emit) for turn in range(_TURNS)])
        middle, events = results[_TURNS // 2], _ENTITIES * _EVENTS
        what = f"{relays} relays at once, {engine}" if relays > 1 else f"a relay, {engine}"
        if relays == 1:
            microseconds = [took * 1e6 / events for took, _, _ in results]
            yield Row(what, "an event", microseconds[_TURNS // 2], microseconds[0], microseconds[-1], "us")
            continue
        for place, name in ((1, "copies beside each event"), (2, "lost clears for each event")):
            shares = [result[place] / events for result in results]
            yield Row(what, name, middle[place] / events, min(shares), max(shares), "x")


def _relay_all(name: str, store: Any, relays: int, emit: Emit) -> tuple[float, int, int]:
    """Seconds, copies and lost clears of so many relays that begin at once, where nobody has published for a while."""
    for entity in range(_ENTITIES):
        emit(f"{name}-{entity}", entity)
    batch_sizes: list[int] = []
    lost_clears: list[Box] = []
    begin = threading.Barrier(relays + 1)

    def publish(events: list[Outgoing]) -> None:
        batch_sizes.append(len(events))

    def sweep(relay: Relay) -> None:
        begin.wait()
        relay.sweep()

    made = [Relay(_Counting(store, lost_clears), publish) for _ in range(relays)]
    with ThreadPoolExecutor(relays) as pool:
        sweeps = [pool.submit(sweep, relay) for relay in made]
        begin.wait()
        start = time.perf_counter()
        for pending_sweep in sweeps:
            pending_sweep.result()
        took = time.perf_counter() - start
    return took, sum(batch_sizes) - _ENTITIES * _EVENTS, len(lost_clears)


class _Counting:
    """A store that keeps what its relays' clears have found instead of what they had read."""

    outboxes: Any = None  # a relay asks the class for it

    def __init__(self, store: Any, lost_clears: list[Box]) -> None:
        self.outboxes = copy.copy(store.outboxes)
        clear = self.outboxes.clear

        def count_lost(box: Box, count: int, now: float) -> Flow[Box | None]:
            box_now = yield from clear(box, count, now)
            lost_clears.extend([] if box_now is None else [box_now])
            return box_now

        self.outboxes.clear = count_lost


def _explain(store: GuardedTable, message: Message, key: Any, **emit: Any) -> Any:
    return store.explain("update_item", message, Key=key, **DYNAMODB_UPDATE, **emit)
