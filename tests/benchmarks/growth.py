"""What a message costs, by how many messages its entity gets within the retention."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import bson
from pymongo import MongoClient

from onewrite import Applied, HighWaterMark, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.benchmarks.measure import Plan, Row, expect, message_ids
from tests.benchmarks.speed_dynamodb import BUSINESS as DYNAMODB_UPDATE
from tests.benchmarks.speed_dynamodb import TABLE, orders
from tests.benchmarks.speed_mongodb import BUSINESS as MONGODB_UPDATE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_START = 1_700_000_000.0

# How many messages an entity gets within the retention of its ledger.
_RATES = (10, 100, 1_000)
_USUAL = timedelta(days=14)


def rows(plan: Plan) -> Iterator[Row]:
    """A steady stream, measured over the second retention and a half, when as much is forgotten as is added."""
    del plan  # a stream is as long as its rate says
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


class Stream:
    """An entity, and the steady stream of messages that it gets in simulated time.

    It has a client of its own, since a client tells the units of all its calls.
    """

    def __init__(self, client: DynamoDBClient, ledger: Any, key: str, between: float) -> None:
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
