"""What a message costs, by how many messages its entity has had: within the retention, and before."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import bson
from pymongo import MongoClient

from onewrite import Applied, HighWaterMark, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.benchmarks.measure import Plan, Row, expect, message_ids, ratio, take_turns
from tests.benchmarks.speed_dynamodb import BUSINESS as DYNAMODB_UPDATE
from tests.benchmarks.speed_dynamodb import TABLE, orders
from tests.benchmarks.speed_mongodb import BUSINESS as MONGODB_UPDATE
from tests.benchmarks.speed_mongodb import DURABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NEAR = 100
SPAN = 500  # messages measured from each of the two points on: twenty whole generations
_RETENTION = timedelta(hours=1)
# A generation is half of the retention and four skews of a 56th. With 25 messages in each, the live window has some 50 to 75,
# is filled long before message 100, and is equally full at any two messages that are a multiple of 25 apart.
_IN_A_GENERATION = 25
_BETWEEN = _RETENTION.total_seconds() * (1 + 4 / 56) / 2 / _IN_A_GENERATION
_START = 1_700_000_000.0
_OPLOG_POINTS = (10, 5_000)


# How many messages an entity gets within the retention of its ledger.
_RATES = (10, 100, 1_000)
_USUAL = timedelta(days=14)


def rows(plan: Plan) -> Iterator[Row]:
    yield from _by_rate()
    yield from _dynamodb(plan)
    yield from _oplog(plan)


class Stream:
    """An entity, and the steady stream of messages that it gets in simulated time.

    It has a client of its own, since a client tells the units of all its calls.
    """

    def __init__(self, client: DynamoDBClient, ledger: Any, key: str, between: float = _BETWEEN) -> None:
        self._between = between
        self._now: float = _START
        self._store = GuardedTable(client, ledger, table_name=TABLE, clock=lambda: self._now)
        self._client, self._key = client, key
        self._ids = random.Random(key)
        self._sent_count = 0
        self.units: list[float] = []
        client.meta.events.register("after-call.dynamodb.UpdateItem", self._note)

    def fill(self, messages: int) -> None:
        for turn in range(messages):
            expect(Applied, self.send(turn))
        self.units.clear()

    def send(self, _: int) -> object:
        self._sent_count += 1
        self._now += self._between
        message = Message(str(uuid.UUID(int=self._ids.getrandbits(128), version=4)), sequence=self._sent_count)
        return self._store.update_item(message, Key={"id": self._key}, ReturnConsumedCapacity="TOTAL", **DYNAMODB_UPDATE)

    def close(self) -> None:
        self._client.close()

    def _note(self, parsed: Any, **_: Any) -> None:
        self.units.append(parsed["ConsumedCapacity"]["CapacityUnits"])


def _by_rate() -> Iterator[Row]:
    """A steady stream, measured over the second retention and a half, when as much is forgotten as is added."""
    kinds: dict[str, Any] = {
        "SeenIds": SeenIds(_USUAL),
        "SeenIds(readable)": SeenIds(_USUAL, readable=True),
        "HighWaterMark": HighWaterMark(),
    }
    with Dynoxide() as server, orders(server):
        for (name, ledger), rate in itertools.product(kinds.items(), _RATES):
            stream = Stream(server.client(), ledger, f"{name} {rate}", _USUAL.total_seconds() / rate)
            stream.fill(rate)
            for turn in range(rate * 3 // 2):
                expect(Applied, stream.send(turn))
            units = sorted(stream.units)
            what = f"{name}: write units a message"
            yield Row(what, f"{rate:,} messages a retention", sum(units) / len(units), units[0], units[-1], "units")
            stream.close()
    with Mongod() as mongod, MongoClient[dict[str, Any]](mongod.uri) as client:
        for (name, ledger), rate in itertools.product(kinds.items(), _RATES):
            yield _document_bytes(client["shop"].rates, name, ledger, rate)


def _document_bytes(collection: Any, name: str, ledger: Any, rate: int) -> Row:
    key, ids, times = f"{name} {rate}", message_ids(rate * 5 // 2, 1), itertools.count(1)
    between = _USUAL.total_seconds() / rate
    store = GuardedCollection(collection, ledger, clock=lambda: _START + next(times) * between, durability="acknowledged")
    for turn, message_id in enumerate(ids):
        expect(Applied, store.update_one(Message(message_id, "s", sequence=turn), {"_id": key}, MONGODB_UPDATE, upsert=True))
    document = collection.find_one({"_id": key})
    ledger_bytes = len(bson.encode(document)) - len(bson.encode(store.without_ledger(document)))
    return Row(
        f"{name}: bytes of ledger in a document",
        f"{rate:,} messages a retention",
        ledger_bytes,
        ledger_bytes,
        ledger_bytes,
        "bytes",
    )


def _dynamodb(plan: Plan) -> Iterator[Row]:
    ledgers: dict[str, Any] = {"SeenIds": SeenIds(_RETENTION), "HighWaterMark": HighWaterMark()}
    with Dynoxide() as server, orders(server), ThreadPoolExecutor() as threads:
        near = {name: Stream(server.client(), ledger, f"{name} near") for name, ledger in ledgers.items()}
        far = {name: Stream(server.client(), ledger, f"{name} late") for name, ledger in ledgers.items()}
        fillings = [threads.submit(stream.fill, NEAR) for stream in near.values()]
        fillings += [threads.submit(stream.fill, plan.late) for stream in far.values()]
        for filling in fillings:
            filling.result()
        for name in ledgers:
            yield from _compare(plan, name, near[name], far[name])
        for stream in (*near.values(), *far.values()):
            stream.close()


def _compare(plan: Plan, name: str, near: Stream, far: Stream) -> Iterator[Row]:
    took = take_turns({"near": near.send, "far": far.send}, SPAN, warmup=0, seed=plan.seed)
    what, against = f"{name}, {SPAN} messages from {plan.late:,} on", f"from {NEAR} on"
    yield _units(f"{what}: write units", against, near.units, far.units)
    yield ratio(f"{what}: latency", against, took["far"], took["near"], target=1.1)


def _units(what: str, against: str, near: list[float], far: list[float]) -> Row:
    """Sums, since a median would hide a step from one whole unit to the next."""
    slices = [sum(far[at : at + 100]) / sum(near[at : at + 100]) for at in range(0, SPAN, 100)]
    return Row(what, against, sum(far) / sum(near), min(slices), max(slices), "x", 1.1)


def _oplog(plan: Plan) -> Iterator[Row]:
    few, many = _OPLOG_POINTS
    ids = message_ids(many, plan.seed)
    with Mongod() as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["shop"].orders
        collection.insert_many([{"_id": "ours"}, {"_id": "by hand"}])
        store = GuardedCollection(collection, SeenIds(), clock=lambda: _START)
        for message_id in ids:
            store.update_one(Message(message_id), {"_id": "ours"}, MONGODB_UPDATE)
        our_sizes = _entry_sizes(client, "ours")
        durable = collection.with_options(write_concern=DURABLE)
        by_hand = [_add_to_set(client, durable, ids[:n]) for n in _OPLOG_POINTS]
    what, against = f"oplog bytes of message {many:,}", f"of message {few}"
    if len(our_sizes) != many:
        raise RuntimeError(f"{len(our_sizes)} oplog entries for {many} messages.")
    yield _bytes(f"SeenIds, {what}", against, our_sizes[few - 1], our_sizes[-1], target=1.05)
    yield _bytes(f"$addToSet by hand, {what}", against, *by_hand, target=None)


def _bytes(what: str, against: str, few: int, many: int, *, target: float | None) -> Row:
    value = many / few
    return Row(f"{what} ({many} bytes)", f"{against} ({few})", value, value, value, "x", target)


def _add_to_set(client: MongoClient[dict[str, Any]], collection: Any, ids: list[str]) -> int:
    """The oplog bytes of the last id, the others being there already."""
    collection.update_one({"_id": "by hand"}, {"$set": {"ids": ids[:-1]}})
    collection.update_one({"_id": "by hand", "ids": {"$ne": ids[-1]}}, {**MONGODB_UPDATE, "$addToSet": {"ids": ids[-1]}})
    return _entry_sizes(client, "by hand")[-1]


def _entry_sizes(client: MongoClient[dict[str, Any]], entity: str) -> list[int]:
    """Bytes of each update of an entity in the oplog, in order."""
    updates: list[dict[str, Any]] = [{"$match": {"op": "u", "ns": "shop.orders", "o2._id": entity}}, {"$sort": {"ts": 1}}]
    entries = client["local"]["oplog.rs"].aggregate([*updates, {"$project": {"size": {"$bsonSize": "$$ROOT"}}}])
    return [entry["size"] for entry in entries]
