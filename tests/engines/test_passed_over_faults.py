"""Both engines: a request or its response is lost, or the worker crashes, while a mark moves over a message that the old ledger holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError
from botocore.retries.standard import ExponentialBackoff
from pymongo import MongoClient, common
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect

from onewrite import Applied, Duplicate, HighWaterMark, InSequence, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb import transact as transact_items
from onewrite.mongodb import GuardedCollection, transact
from onewrite.testing.servers.engines import dynamo_client
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault, FaultProxy

OLD = SeenIds()
NEW = InSequence(also=(HighWaterMark(), OLD))
STEP: dict[str, Any] = {"lease": timedelta(minutes=1), "safe_for": timedelta(days=1)}
M1, M2, M3, M4 = (Message(f"m{n}", source="s", sequence=n) for n in range(1, 5))


class Table:
    attempts = 3  # of botocore, before it raises
    lost = BotoCoreError

    def __init__(self, proxy: FaultProxy, name: str) -> None:
        self.proxy, self.name = proxy, name
        self.client = dynamo_client(proxy.endpoint, retries={"mode": "standard", "total_max_attempts": self.attempts})

    def store(self, ledger: Any) -> Any:
        return GuardedTable(self.client, ledger, table_name=self.name)

    def add(self, store: Any, message: Message, entity: str) -> Any:
        return store.update_item(message, **self.native(entity))

    def native(self, entity: str) -> dict[str, Any]:
        return {"Key": {"id": entity}, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}

    def record(self, store: Any, message: Message, entity: str) -> Any:
        return store.record(message, Key={"id": entity})

    def begin(self, store: Any, message: Message, entity: str) -> Any:
        return store.begin(message, "charge", Key={"id": entity}, **STEP)

    def transact(self, store: Any, message: Message, entity: str) -> Any:
        return transact_items(
            message, [store.updating(**self.native(entity)), store.putting(Item={"id": f"{entity} {message.id}"})]
        )


class Documents:
    attempts = 2  # of pymongo, before it raises
    lost = AutoReconnect

    def __init__(self, proxy: MongoProxy, name: str) -> None:
        self.proxy = proxy
        self.client = MongoClient[dict[str, Any]](proxy.uri, serverSelectionTimeoutMS=5000, serverMonitoringMode="poll")
        self.collection = self.client.test[name]

    def store(self, ledger: Any) -> Any:
        return GuardedCollection(self.collection, ledger)

    def add(self, store: Any, message: Message, entity: str) -> Any:
        return store.update_one(message, **self.native(entity), upsert=True)

    def native(self, entity: str) -> dict[str, Any]:
        return {"filter": {"_id": entity}, "update": {"$inc": {"n": 1}}}

    def record(self, store: Any, message: Message, entity: str) -> Any:
        return store.record(message, {"_id": entity})

    def begin(self, store: Any, message: Message, entity: str) -> Any:
        return store.begin(message, "charge", {"_id": entity}, **STEP)

    def transact(self, store: Any, message: Message, entity: str) -> Any:
        return transact(message, [store.updating(**self.native(entity)), store.inserting({"_id": f"{entity} {message.id}"})])


VERBS: dict[str, Callable[[Any, Any, str], Any]] = {
    "update": lambda place, store, entity: place.add(store, M1, entity),
    "record": lambda place, store, entity: place.record(store, M1, entity),
    "begin": lambda place, store, entity: place.begin(store, M1, entity),
    "transact": lambda place, store, entity: place.transact(store, M1, entity),
    "fold": lambda place, store, entity: store.fold([M1, M2], lambda _: place.native(entity))[0],
}


@pytest.fixture(params=["dynamodb", "mongodb"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table | Documents]:
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)
    monkeypatch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.005)
    made: Table | Documents
    if request.param == "dynamodb":
        made = Table(request.getfixturevalue("fault_proxy"), request.getfixturevalue("table"))
    else:
        collection: Collection[dict[str, Any]] = request.getfixturevalue("collection")
        made = Documents(request.getfixturevalue("mongo_proxy"), collection.name)
    yield made
    made.client.close()


@pytest.mark.parametrize("crashes", [False, True], ids=["lost once", "crash"])
@pytest.mark.parametrize("fault", [Fault.DROP_REQUEST, Fault.DROP_ANSWER], ids=lambda fault: fault.name)
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_mark_moves_despite_fault_or_crash(
    place: Table | Documents, verb: Callable[[Any, Any, str], Any], fault: Fault, crashes: bool
) -> None:
    old, new = place.store(OLD), place.store(NEW)
    for entity in ("calm", "e"):
        assert [type(place.add(old, message, entity)) for message in (M1, M2)] == [Applied] * 2
    place.proxy.operations.clear()
    assert type(verb(place, new, "calm")) is Duplicate
    writes = [name for name in place.proxy.operations if name in place.proxy.writes]
    place.proxy.plan(*[Fault.PASS] * (len(writes) - 1), *[fault] * (place.attempts if crashes else 1))  # at the last write
    with pytest.raises(place.lost) if crashes else nullcontext():
        assert type(verb(place, new, "e")) is Duplicate
    assert place.proxy.planned_count == 0
    assert type(verb(place, new, "e")) is Duplicate
    assert [type(place.add(new, message, "e")) for message in (M2, M3, M4)] == [Duplicate, Applied, Applied]
