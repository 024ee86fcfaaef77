"""What it costs to emit an event with a write, against the same write without.

Each write of a contender goes to an entity of its own, so one event is pending at a time, as if a relay kept up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pymongo import MongoClient

from onewrite import Event, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import typed_values
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.benchmarks.measure import Contender, Plan, Row, fresh_messages, ratio, take_turns
from tests.benchmarks.orders import DYNAMODB_UPDATE, MONGODB_UPDATE
from tests.engines.stores import create_table, create_table_with_outbox

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PAYMENT = Event("OrderPaid", {"cents": 1250, "currency": "EUR"})
WITH_INDEX = Outbox("shop/orders", index="pending")
PLAIN = Outbox("shop/orders")
TABLE = "orders-of-the-benchmarks"
INDEXED = "orders-with-an-index"  # the same request writes to the index too, if the table has one


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as dynoxide, _tables(dynoxide) as client:
        yield from _on_dynamodb(plan, client)
    with Mongod() as mongod, MongoClient[dict[str, Any]](mongod.uri) as mongo:
        yield from _on_mongodb(plan, mongo)


@contextmanager
def _tables(server: Dynoxide) -> Iterator[DynamoDBClient]:
    client = server.client()
    create_table_with_outbox(client, INDEXED)
    create_table(client, TABLE)
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
        ours, keys, messages = store(table, outbox), entities(table, name), fresh_messages(plan)
        return lambda turn: ours.update_item(messages[turn], Key=keys[turn], **DYNAMODB_UPDATE, **emit)

    rival = "the same guarded write without"
    for what, table, outbox in (
        ("emit, dynoxide", TABLE, PLAIN),
        ("emit with the sparse index, dynoxide", INDEXED, WITH_INDEX),
    ):
        ours = writer(table, outbox, f"{what}, ours", emit=[PAYMENT])
        yield _duel(plan, what, ours, rival, writer(table, outbox, f"{what}, theirs"))


def _on_mongodb(plan: Plan, mongo: MongoClient[dict[str, Any]]) -> Iterator[Row]:
    store = GuardedCollection(mongo.shop.orders, SeenIds(), outbox=PLAIN)
    messages = fresh_messages(plan)
    mongo.shop.orders.insert_many(
        [{"_id": f"{name} {turn:06d}"} for name in ("ours", "theirs") for turn in range(len(messages))]
    )

    def updater(name: str, **emit: Any) -> Contender:
        return lambda turn: store.update_one(messages[turn], {"_id": f"{name} {turn:06d}"}, MONGODB_UPDATE, **emit)

    ours, rival = updater("ours", emit=[PAYMENT]), "the same guarded write without"
    yield _duel(plan, "emit, mongod", ours, rival, updater("theirs"))


def _duel(plan: Plan, what: str, ours: Contender, rival: str, theirs: Contender) -> Row:
    took = take_turns({"ours": ours, "theirs": theirs}, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    return ratio(what, rival, took["ours"], took["theirs"])
