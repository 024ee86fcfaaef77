"""What two writes cost in one transaction, against two guarded writes one after the other. Each turn writes to entities of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pymongo import MongoClient

from onewrite import SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb import transact as transact_items
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import transact as transact_documents
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.benchmarks.measure import Plan, Row, fresh_messages, ratio, take_turns
from tests.engines.stores import create_table

TABLE = "accounts-of-the-benchmarks"
ADD: dict[str, Any] = {"UpdateExpression": "ADD cents :c", "ExpressionAttributeValues": {":c": 5}}


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as dynoxide:
        client = dynoxide.client()
        create_table(client, TABLE)
        table = GuardedTable(client, SeenIds(), table_name=TABLE)
        yield _duel(
            plan, "dynoxide", transact_items, table.updating, table.update_item, lambda key: {"Key": {"id": key}, **ADD}
        )
        client.close()
    with Mongod() as mongod, MongoClient[dict[str, Any]](mongod.uri) as mongo:
        store = GuardedCollection(mongo.shop.accounts, SeenIds())
        turns = range(plan.warmup + plan.rounds)
        mongo.shop.accounts.insert_many(
            [{"_id": f"{side} {n} {key}"} for side in ("ours", "theirs") for n in turns for key in "ab"]
        )

        def call(key: str) -> dict[str, Any]:
            return {"filter": {"_id": key}, "update": {"$inc": {"cents": 5}}}

        yield _duel(plan, "mongod", transact_documents, store.updating, store.update_one, call)


def _duel(
    plan: Plan,
    engine: str,
    transact: Callable[..., object],
    updating: Callable[..., object],
    update: Callable[..., object],
    call: Callable[[str], dict[str, Any]],
) -> Row:
    messages = fresh_messages(plan)

    def together(turn: int) -> object:
        return transact(messages[turn], [updating(**call(f"ours {turn} {key}")) for key in "ab"])

    def one_by_one(turn: int) -> object:
        return [update(messages[turn], **call(f"theirs {turn} {key}")) for key in "ab"][-1]

    took = take_turns({"ours": together, "theirs": one_by_one}, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    return ratio(f"transact of two, {engine}", "two guarded writes, one after the other", took["ours"], took["theirs"])
