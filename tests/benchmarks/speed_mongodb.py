"""A fresh message on MongoDB: ours against the same guarded updates with pymongo alone, at the same write concern."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pymongo import MongoClient, WriteConcern

from onewrite import HighWaterMark, Message, SeenIds
from onewrite.ledger import Ledger
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers import Mongod
from tests.benchmarks.measure import Contender, Duel, Entrant, Plan, Row, fought, message_ids, numbered

BUSINESS: dict[str, Any] = {"$set": {"status": "SHIPPED"}, "$inc": {"shipments": 1}}
DURABLE = WriteConcern("majority", j=True)


def rows(plan: Plan) -> Iterator[Row]:
    with Mongod() as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["shop"].orders
        duels = [*_marks(plan, collection), *_ids(plan, collection)]
        collection.insert_many([{"_id": plan.key(n, turn)} for n in range(2 * len(duels)) for turn in range(plan.warmup)])
        yield from fought(plan, duels)


def _marks(plan: Plan, collection: Any) -> Iterator[Duel]:
    durable = collection.with_options(write_concern=DURABLE)

    def by_hand(key: Callable[[int], str]) -> Contender:
        return lambda turn: durable.update_one(
            {
                "_id": key(turn),
                "$or": [
                    {"events.one": {"$exists": False}},
                    {"events.one": {"$lt": turn + 1}, "events.one.0": {"$exists": False}},
                ],
            },
            {"$set": {"status": "SHIPPED", "events.one": turn + 1}, "$inc": {"shipments": 1}},
        )

    yield Duel(
        "HighWaterMark, mongod", "the same by hand", _guarded(collection, HighWaterMark(), numbered(plan)), by_hand, 1.03
    )


def _ids(plan: Plan, collection: Any) -> Iterator[Duel]:
    ids = message_ids(plan.warmup + plan.rounds, plan.seed)
    durable = collection.with_options(write_concern=DURABLE)

    def one_array(key: Callable[[int], str]) -> Contender:
        return lambda turn: durable.update_one(
            {"_id": key(turn), "ids": {"$ne": ids[turn]}}, {**BUSINESS, "$push": {"ids": ids[turn]}}
        )

    def by_hand(key: Callable[[int], str]) -> Contender:
        return lambda turn: durable.update_one(
            {
                "_id": key(turn),
                "seen.r4": {"$ne": f"700:{ids[turn]}".encode()},
                "seen.r0": {"$ne": f"701:{ids[turn]}".encode()},
                "seen.r1": {"$ne": f"701:{ids[turn]}".encode()},
            },
            {
                **BUSINESS,
                "$push": {"seen.r1": f"701:{ids[turn]}".encode()},
                "$unset": {"seen.r2": "", "seen.r3": "", "seen.r5": ""},
            },
        )

    guarded = _guarded(collection, SeenIds(), [Message(each) for each in ids])
    yield Duel("SeenIds, mongod", "the same by hand", guarded, by_hand, 1.03)
    yield Duel("SeenIds, mongod", "one array for ever by hand", guarded, one_array)


def _guarded(collection: Any, ledger: Ledger, messages: list[Message]) -> Entrant:
    """The messages are there already, as the handler's caller has them."""
    guarded = GuardedCollection(collection, ledger)
    return lambda key: lambda turn: guarded.update_one(messages[turn], {"_id": key(turn)}, BUSINESS)
