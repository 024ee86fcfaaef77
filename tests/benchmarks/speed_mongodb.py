"""A fresh message on MongoDB: ours against the same guarded updates with pymongo alone, at the same write concern."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

from pymongo import MongoClient, WriteConcern

from onewrite import SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Mongod
from tests.benchmarks.measure import Contender, Duel, Plan, Row, fight, fresh_messages

BUSINESS: dict[str, Any] = {"$set": {"status": "SHIPPED"}, "$inc": {"shipments": 1}}
DURABLE = WriteConcern("majority", j=True)


def rows(plan: Plan) -> Iterator[Row]:
    with Mongod() as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["shop"].orders
        duels = list(_ids(plan, collection))
        collection.insert_many([{"_id": plan.key(n, turn)} for n in range(2 * len(duels)) for turn in range(plan.warmup)])
        yield from fight(plan, duels)


def _ids(plan: Plan, collection: Any) -> Iterator[Duel]:
    messages = fresh_messages(plan)
    durable = collection.with_options(write_concern=DURABLE)

    def by_hand(key: Callable[[int], str]) -> Contender:
        return lambda turn: durable.update_one(*_filter_and_update(key(turn), messages[turn].id))

    store = GuardedCollection(collection, SeenIds())

    def ours(key: Callable[[int], str]) -> Contender:
        return lambda turn: store.update_one(messages[turn], {"_id": key(turn)}, BUSINESS)

    yield Duel("SeenIds, mongod", "the same by hand", ours, by_hand, 1.03)


def _filter_and_update(key: str, message_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    mark = blake2b(f"0:36:{message_id}".encode(), digest_size=10).digest()
    return (
        {
            "_id": key,
            "ow_l": {"$in": [None, "ow1 14d"]},
            "ow_r.r4": {"$ne": mark},
            "ow_r.r0": {"$ne": mark},
            "ow_r.r1": {"$ne": mark},
        },
        {
            "$set": {"status": "SHIPPED", "ow_l": "ow1 14d"},
            "$inc": {"shipments": 1},
            "$push": {"ow_r.r1": mark},
            "$unset": {"ow_r.r2": "", "ow_r.r3": "", "ow_r.r5": ""},
        },
    )
