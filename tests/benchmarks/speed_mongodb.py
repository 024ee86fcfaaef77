"""A fresh message on MongoDB: ours against the same guarded updates with pymongo alone, at the same write concern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pymongo import MongoClient, WriteConcern

from onewrite import HighWaterMark, Message, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers import Mongod
from tests.benchmarks.measure import Contender, Plan, Row, message_ids, ratio, take_turns

BUSINESS: dict[str, Any] = {"$set": {"status": "SHIPPED"}, "$inc": {"shipments": 1}}
DURABLE = WriteConcern("majority", j=True)


def rows(plan: Plan) -> Iterator[Row]:
    with Mongod() as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["shop"].orders
        collection.insert_many([{"_id": plan.key(n, turn)} for n in range(4) for turn in range(plan.warmup)])
        yield from _marks(plan, collection)
        yield from _ids(plan, collection)


def _marks(plan: Plan, collection: Any) -> Iterator[Row]:
    guarded = GuardedCollection(collection, HighWaterMark())
    durable = collection.with_options(write_concern=DURABLE)
    contenders: dict[str, Contender] = {
        "guarded": lambda turn: guarded.update_one(
            Message(f"message-{turn}", sequence=turn + 1), {"_id": plan.key(0, turn)}, BUSINESS
        ),
        "by hand": lambda turn: durable.update_one(
            {"_id": plan.key(1, turn), "$or": [{"mark": {"$exists": False}}, {"mark": {"$lt": turn + 1}}]},
            {"$set": {"status": "SHIPPED", "mark": turn + 1}, "$inc": {"shipments": 1}},
        ),
    }
    took = take_turns(contenders, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    yield ratio("HighWaterMark, mongod", "by hand", took["guarded"], took["by hand"], target=1.03)


def _ids(plan: Plan, collection: Any) -> Iterator[Row]:
    ids = message_ids(plan.warmup + plan.rounds, plan.seed)
    guarded = GuardedCollection(collection, SeenIds())
    durable = collection.with_options(write_concern=DURABLE)
    contenders: dict[str, Contender] = {
        "guarded": lambda turn: guarded.update_one(Message(ids[turn]), {"_id": plan.key(2, turn)}, BUSINESS),
        "by hand": lambda turn: durable.update_one(
            {"_id": plan.key(3, turn), "ids": {"$ne": ids[turn]}}, {**BUSINESS, "$push": {"ids": ids[turn]}}
        ),
    }
    took = take_turns(contenders, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    yield ratio("SeenIds, mongod", "by hand, one array for ever", took["guarded"], took["by hand"], target=1.03)
