"""Several guarded documents as one on a real mongod: lost answers, conflicts, and many who transfer at once."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from onewrite import Applied, Begun, ConfigurationError, Duplicate, Inbox, InvalidUpdate, Message, Outcome, Rejected, SeenIds
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection, atransact, transact
from onewrite.testing.servers.engines import Mongod
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault

pytestmark = pytest.mark.usefixtures("quick_retries")

Documents = Collection[dict[str, Any]]

M1 = Message("m-1")
COMMANDS = ["update", "commitTransaction"]


@pytest.fixture
def accounts(collection: Documents) -> Documents:
    collection.insert_many([{"_id": "ann", "cents": 100}, {"_id": "bob", "cents": 100}])
    return collection


@pytest.fixture
def proxied(mongo_proxy: MongoProxy, accounts: Documents) -> Iterator[Documents]:
    """The accounts behind the proxy."""
    options: Any = {"serverSelectionTimeoutMS": 5000, "serverMonitoringMode": "poll"}
    with MongoClient[dict[str, Any]](mongo_proxy.uri, **options) as client:
        yield client.test[accounts.name]


def moved(collection: Documents, message: Message = M1, *names: str, cents: int = 5, **options: Any) -> Outcome:
    accounts = GuardedCollection(collection, SeenIds())
    giver, taker = names or ("ann", "bob")
    given = accounts.updating({"_id": giver, "cents": {"$gte": cents}}, {"$inc": {"cents": -cents}})
    return transact(message, [given, accounts.updating({"_id": taker}, {"$inc": {"cents": cents}})], **options)


def test_message_confused_by_inbox_collation_is_an_error(accounts: Documents) -> None:
    collation = {"locale": "en", "strength": 2}
    marks = accounts.database.create_collection(f"{accounts.name}-inbox", collation=collation)
    inbox = Inbox(marks, consumer="c", retention=timedelta(days=1))
    deposit = GuardedCollection(accounts, None).updating({"_id": "ann"}, {"$inc": {"cents": 5}})
    assert isinstance(transact(Message("evt-Ab"), [deposit], inbox=inbox), Applied)
    with pytest.raises(ConfigurationError, match="compares strings by a collation"):
        transact(Message("evt-aB"), [deposit], inbox=inbox)
    assert isinstance(transact(Message("evt-Ab"), [deposit], inbox=inbox), Duplicate)
    assert balances(accounts) == [105, 100]


def balances(collection: Documents) -> list[int]:
    return [each["cents"] for each in collection.find().sort("_id", 1)]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", [Fault.DROP_REQUEST, Fault.DROP_ANSWER, Fault.RESET], ids=lambda fault: fault.name)
@pytest.mark.parametrize("times", [1, 2])
def test_transaction_is_applied_once_despite_lost_requests_or_responses(
    proxied: Documents,
    accounts: Documents,
    mongo_proxy: MongoProxy,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    fault: Fault,
    times: int,
) -> None:
    monkeypatch.setattr(mongo_proxy, "writes", frozenset({command}))
    mongo_proxy.plan(*[fault] * times)
    assert isinstance(moved(proxied), Applied)
    assert mongo_proxy.past_faults == [fault] * times
    assert isinstance(moved(proxied), Duplicate)
    assert balances(accounts) == [95, 105]


def test_transaction_is_applied_after_three_conflicts(accounts: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another transaction holds an account, and lets go when ours has met it three times."""
    met: list[int] = []
    with accounts.database.client.start_session() as other:
        other.start_transaction()
        accounts.update_one({"_id": "bob"}, {"$inc": {"cents": -100}}, session=other)

        def share() -> float:
            met.append(len(met))
            if len(met) == 3:
                other.abort_transaction()
            return 0.5

        monkeypatch.setattr("onewrite.core.clock.random", share)
        assert isinstance(moved(accounts), Applied)
    assert len(met) == 3
    assert balances(accounts) == [95, 105]


def test_conflict_is_raised_after_the_deadline(accounts: Documents) -> None:
    with accounts.database.client.start_session() as other, other.start_transaction():
        accounts.update_one({"_id": "bob"}, {"$inc": {"visits": 1}}, session=other)
        with pytest.raises(OperationFailure, match="WriteConflict"):
            moved(accounts, deadline=timedelta(seconds=0.1))
    assert isinstance(moved(accounts), Applied)
    assert balances(accounts) == [95, 105]


@pytest.mark.parametrize("query", [{"_id": "ann"}, {"_id": "ann", "cents": 100}], ids=repr)
def test_transaction_is_unsettled_if_hint_excludes_a_document(accounts: Documents, query: dict[str, Any]) -> None:
    accounts.create_index("vip", sparse=True, name="vip")
    store, add = GuardedCollection(accounts, SeenIds()), {"$inc": {"cents": 1}}
    writes = [store.updating(query, add, hint="vip"), store.updating({"_id": "bob"}, add)]
    outcome = transact(M1, writes, deadline=timedelta(seconds=0.2))
    assert (type(outcome), outcome.settled) == (Rejected, False)
    assert balances(accounts) == [100, 100]


def test_motor_transaction_is_applied_once(mongod: Mongod, accounts: Documents) -> None:
    async def main() -> list[Outcome]:
        client: Any = AsyncIOMotorClient(mongod.uri)
        store, add = AsyncGuardedCollection(client.test[accounts.name], SeenIds()), {"$inc": {"cents": 1}}
        writes = [store.updating({"_id": "ann"}, add), store.updating({"_id": "bob"}, add)]
        outcomes = [await atransact(M1, writes) for _ in range(2)]
        client.close()
        return outcomes

    first, second = asyncio.run(main())
    assert (first, type(second)) == (Applied(M1), Duplicate)
    assert balances(accounts) == [101, 101]


def test_step_is_unsettled_if_hint_excludes_its_document(accounts: Documents) -> None:
    accounts.create_index("vip", sparse=True, name="vip")
    store = GuardedCollection(accounts, SeenIds())
    step: Any = {"lease": timedelta(minutes=1), "safe_for": timedelta(0)}
    hinted: Any = {**step, "hint": "vip"}
    for query, is_settled in (
        ({"_id": "ann"}, False),
        ({"_id": "ann", "cents": 100}, False),
        ({"_id": "ann", "cents": 1}, True),
    ):
        answer = store.begin(M1, "charge", query, **hinted)
        assert (type(answer), answer.settled) == (Rejected, is_settled), query
    begun = store.begin(M1, "charge", {"_id": "ann"}, **step)
    assert isinstance(begun, Begun)
    add: dict[str, Any] = {"$inc": {"cents": 1}}
    with pytest.raises(InvalidUpdate, match="Omit hint="):
        store.update_one(M1, {"_id": "ann"}, add, finishes=begun, hint="vip")
    assert isinstance(store.update_one(M1, {"_id": "ann"}, add, finishes=begun, hint="_id_"), Applied)


def test_concurrent_transfers_conserve_the_sum_in_every_snapshot(collection: Documents) -> None:
    names = [f"account {n}" for n in range(4)]
    collection.insert_many([{"_id": name, "cents": 30} for name in names])
    draw = random.Random(14)
    orders: list[Any] = [(Message(f"t{n}"), *draw.sample(names, 2)) for n in range(40)]
    deliveries = draw.sample(orders * 3, len(orders) * 3)
    sums: set[int] = set()
    done = threading.Event()

    def look() -> None:
        client: Any = collection.database.client
        while not done.is_set():
            with client.start_session(snapshot=True) as session:
                sums.add(sum(each["cents"] for each in collection.find({}, session=session)))

    with ThreadPoolExecutor(5) as pool:
        looking = pool.submit(look)
        try:
            outcomes = list(pool.map(lambda order: moved(collection, *order, cents=10), deliveries))
        finally:
            done.set()
        looking.result()
    applied = [order for order, outcome in zip(deliveries, outcomes, strict=True) if isinstance(outcome, Applied)]
    assert {type(outcome) for outcome in outcomes} <= {Applied, Duplicate, Rejected}
    assert len({message.id for message, _, _ in applied}) == len(applied)
    assert sums == {120}
    expected = [30 + 10 * sum((taker == name) - (giver == name) for _, giver, taker in applied) for name in names]
    assert balances(collection) == expected
    assert min(expected) >= 0


def test_creation_race_applies_one_delivery(collection: Documents) -> None:
    store = GuardedCollection(collection, SeenIds())
    inbox = Inbox(collection.database[f"{collection.name} inbox"], consumer="c", retention=timedelta(days=1))
    begin = threading.Barrier(4)

    def deliver(n: int) -> Outcome:
        begin.wait()
        writes = [store.inserting({"_id": f"a{n // 4}"}), store.inserting({"_id": f"b{n // 4}"})]
        return transact(Message(f"m{n // 4}"), writes, inbox=inbox if n // 4 % 2 else None)

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(deliver, range(40)))
    for start in range(0, 40, 4):
        found = sorted(type(each).__name__ for each in outcomes[start : start + 4])
        assert found == ["Applied", "Duplicate", "Duplicate", "Duplicate"]
    assert collection.count_documents({}) == 20
