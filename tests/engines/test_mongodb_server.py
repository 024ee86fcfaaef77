"""MongoDB: races, indexes, write concerns, transactions and native options, as only a real server has them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.collation import Collation
from pymongo.collection import Collection
from pymongo.errors import WriteConcernError, WTimeoutError
from pymongo.monitoring import CommandListener, CommandStartedEvent

from onewrite import (
    Applied,
    Duplicate,
    HighWaterMark,
    InSequence,
    InvalidUpdate,
    Message,
    Outcome,
    Rejected,
    SeenIds,
    Tombstones,
)
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Mongod
from tests.engines.ledgers import AnyLedger, ledgers
from tests.engines.stores import Commands, failing, increment, mongo_state
from tests.support.engines import mongod_binary, require

pytestmark = pytest.mark.measured

Documents = Collection[dict[str, Any]]
Client = MongoClient[dict[str, Any]]
M1, M2, M3 = (Message(f"m-{n}", source="s", sequence=n) for n in (1, 2, 3))


def inc(guarded: GuardedCollection, message: Message, entity: str = "e", **native: Any) -> Outcome:
    return guarded.update_one(message, {"_id": entity}, increment(message), **native)


# ---------------------------------------------------------------- races


@pytest.mark.parametrize("writer", ["update_one", "find_one_and_update"])
def test_every_message_of_a_creation_race_is_applied(collection: Documents, writer: str) -> None:
    guarded = GuardedCollection(collection, SeenIds())
    threads, rounds = 8, 40
    together = threading.Barrier(threads)

    def race(thread: int) -> list[Outcome]:
        outcomes = []
        for n in range(rounds):
            message = Message(f"{n}-{thread}")
            together.wait(30)
            write = getattr(guarded, writer)
            outcomes.append(write(message, {"_id": f"e-{n}"}, increment(message), upsert=True))
        return outcomes

    with ThreadPoolExecutor(threads) as pool:
        outcomes = [outcome for done in pool.map(race, range(threads)) for outcome in done]
    assert {type(outcome) for outcome in outcomes} == {Applied}
    for n in range(rounds):
        state = mongo_state(collection, f"e-{n}")
        assert (state.n, sorted(state.effects)) == (threads, [f"{n}-{thread}" for thread in range(threads)])


class SlowReads(CommandListener):
    """Holds each read back, so that other threads write between a refused write and the read of its reason."""

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find":
            time.sleep(0.002)

    def succeeded(self, event: object) -> None: ...
    def failed(self, event: object) -> None: ...


def test_racing_sequence_refuses_a_message_only_by_its_condition(mongod: Mongod, collection: Documents) -> None:
    """A message's condition holds only right after its predecessor, so a refusal at any other moment would be wrong."""
    last, threads = 60, 8
    collection.insert_one({"_id": "e", "n": 0})
    client = Client(mongod.uri, event_listeners=[SlowReads()])
    guarded = GuardedCollection(client.test[collection.name], InSequence())
    together = threading.Barrier(threads)

    def deliver(n: int) -> Outcome:
        condition = {"n": {"$lt": 0}} if n % 5 == 0 else {"n": n - 1 - (n - 1) // 5}  # every fifth one is refused
        return guarded.update_one(Message(f"m-{n}", "s", n), {"_id": "e", **condition}, {"$inc": {"n": 1}}, rejected_ok=True)

    def race(thread: int) -> list[tuple[int, Outcome]]:
        outcomes: list[tuple[int, Outcome]] = []
        together.wait(30)
        for first in range(1, last + 1):
            n = min(last, first + thread % 3)  # some threads are ahead of the gap that others close
            while not outcomes or outcomes[-1][0] != n or not outcomes[-1][1].settled:
                outcomes.append((n, deliver(n)))
        return outcomes

    with client, ThreadPoolExecutor(threads) as pool:
        outcomes = [outcome for done in pool.map(race, range(threads)) for outcome in done]
    assert {n for n, outcome in outcomes if isinstance(outcome, Rejected)} == set(range(5, last + 1, 5))
    applied = sorted(n for n, outcome in outcomes if isinstance(outcome, Applied))
    assert applied == [n for n in range(1, last + 1) if n % 5]


# ---------------------------------------------------------------- write concern


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def watched(mongod: Mongod, collection: Documents, commands: Commands) -> Iterator[Documents]:
    with Client(mongod.uri, event_listeners=[commands]) as client:
        yield client.test[collection.name]


def test_writes_and_reads_request_a_majority(watched: Documents, commands: Commands) -> None:
    guarded = GuardedCollection(watched.with_options(write_concern=WriteConcern(w=1, wtimeout=9000)), SeenIds())
    inc(guarded, M1, upsert=True)
    inc(guarded, M1, upsert=True)
    guarded.find_one_and_update(M2, {"_id": "e"}, increment(M2))
    guarded.insert_one(M1, {"_id": "new"})
    writes = [command for command in commands.sent if {"update", "insert", "findAndModify"} & set(command)]
    assert [command["writeConcern"] for command in writes] == [{"w": "majority", "j": True, "wtimeout": 9000}] * 4
    assert [command["readConcern"] for command in commands.sent if "find" in command] == [{"level": "majority"}]


def test_store_reads_the_indexes_of_its_collection_once(watched: Documents, commands: Commands) -> None:
    watched.create_index("email", unique=True, sparse=True)
    hashed = GuardedCollection(watched, SeenIds())
    readable = GuardedCollection(watched, SeenIds(readable=True))
    named = GuardedCollection(watched, SeenIds(), key=("email",))
    commands.sent.clear()
    for message in (M1, M1, M2):
        inc(hashed, message, upsert=True)
    assert not {"listCollections", "listIndexes"} & {next(iter(command)) for command in commands.sent}
    for message in (M1, M2, M3):
        inc(readable, message, "readable", upsert=True)
        named.update_one(message, {"email": "a@b"}, increment(message), upsert=True)
        named.insert_one(message, {"_id": message.id})
    asked = Counter(next(iter(command)) for command in commands.sent)
    assert (asked["listCollections"], asked["listIndexes"]) == (0, 2)


def test_acknowledged_durability_keeps_the_collection_write_concern(watched: Documents, commands: Commands) -> None:
    concern = WriteConcern(w=1, j=False)
    guarded = GuardedCollection(watched.with_options(write_concern=concern), SeenIds(), durability="acknowledged")
    inc(guarded, M1, upsert=True)
    assert [command["writeConcern"] for command in commands.sent] == [{"w": 1, "j": False}]


# The server does the write and says that the others did not follow.
UNMET = {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}}


def deliveries(guarded: GuardedCollection) -> dict[str, Callable[[], Outcome]]:
    return {
        "update": lambda: inc(guarded, M1),
        "upsert": lambda: inc(guarded, M1, upsert=True),
        "find_one_and_update": lambda: guarded.find_one_and_update(M1, {"_id": "e"}, increment(M1)),
        "find_one_and_upsert": lambda: guarded.find_one_and_update(M1, {"_id": "e"}, increment(M1), upsert=True),
        "insert": lambda: guarded.insert_one(M1, {"_id": "e", "n": 1}),
    }


WAYS = ["update", "upsert", "find_one_and_update", "find_one_and_upsert", "insert"]


@pytest.mark.parametrize("way", WAYS)
def test_write_without_a_majority_raises_the_driver_error(mongo: Client, collection: Documents, way: str) -> None:
    deliver = deliveries(GuardedCollection(collection, SeenIds()))[way]
    if way != "insert":
        collection.insert_one({"_id": "e"})
    writes = ("update", "insert", "findAndModify")
    with failing(mongo, writes, **UNMET), pytest.raises((WriteConcernError, WTimeoutError)):
        deliver()
    assert isinstance(deliver(), Duplicate)
    assert mongo_state(collection).n == 1


class Standalone(Mongod):
    def _make_command(self, folder: Path) -> list[str]:
        self._initiated = True  # there is no replica set to initiate
        command = super()._make_command(folder)
        return command[: command.index("--replSet")]


def test_guarded_writes_work_without_a_replica_set() -> None:
    require(mongod_binary)
    with Standalone() as server, Client(server.uri) as client:
        guarded = GuardedCollection(client.test.alone, SeenIds())
        outcomes = [inc(guarded, message, upsert=True) for message in (M1, M1, M2)]
        assert [type(outcome) for outcome in outcomes] == [Applied, Duplicate, Applied]
        assert mongo_state(client.test.alone) == (2, ["m-1", "m-2"])


# ---------------------------------------------------------------- transactions


@ledgers
def test_duplicate_does_not_abort_its_transaction(mongo: Client, collection: Documents, ledger: AnyLedger) -> None:
    collection.insert_one({"_id": "e"})
    guarded = GuardedCollection(collection, ledger)
    with mongo.start_session() as session, session.start_transaction():
        assert isinstance(inc(guarded, M1, session=session), Applied)
        assert isinstance(inc(guarded, M1, session=session), Duplicate)
        assert isinstance(inc(guarded, M2, session=session), Applied)
        collection.insert_one({"_id": "beside"}, session=session)
    assert mongo_state(collection) == (2, ["m-1", "m-2"])
    assert collection.find_one({"_id": "beside"})


@ledgers
def test_aborted_transaction_removes_the_mark(mongo: Client, collection: Documents, ledger: AnyLedger) -> None:
    collection.insert_one({"_id": "e"})
    guarded = GuardedCollection(collection, ledger)
    with mongo.start_session() as session:
        session.start_transaction()
        assert isinstance(inc(guarded, M1, session=session), Applied)
        session.abort_transaction()
    assert isinstance(inc(guarded, M1), Applied)
    assert mongo_state(collection) == (1, ["m-1"])


# ---------------------------------------------------------------- native options


@pytest.fixture
def order(collection: Documents) -> Documents:
    collection.insert_one({"_id": "e", "lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 1}], "name": "Ada"})
    return collection


NO_CASE = Collation(locale="en", strength=2)


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(None), HighWaterMark(), InSequence()], ids=str)
@pytest.mark.parametrize("collation", [NO_CASE, {"locale": "en", "strength": 2}], ids=["object", "document"])
def test_ledger_distinguishes_case_under_the_callers_collation(order: Documents, ledger: AnyLedger, collation: Any) -> None:
    guarded = GuardedCollection(order, ledger)
    order.insert_one({"_id": 7, "name": "Ada"})
    shouted = Message("M-1", source="S", sequence=1)
    for message, expected in ((M1, Applied), (M1, Duplicate), (shouted, Applied)):
        outcome = guarded.update_one(message, {"_id": 7, "name": "ADA"}, increment(message), collation=collation)
        assert isinstance(outcome, expected)
    assert [document["effects"] for document in order.find({"_id": 7})] == [["m-1", "M-1"]]


def test_id_under_a_collation_is_refused_if_ambiguous(order: Documents) -> None:
    order.insert_many([{"_id": name, "n": 0} for name in ("sku-a", "SKU-A")])
    guarded = GuardedCollection(order, SeenIds(), tombstones=Tombstones(timedelta(days=15)))
    named: Any = {"filter": {"_id": "SKU-A"}, "collation": NO_CASE}
    writes: list[Callable[[], Any]] = [
        lambda: guarded.update_one(M1, update=increment(M1), **named),
        lambda: guarded.find_one_and_update(M1, update=increment(M1), **named),
        lambda: guarded.remember(M1, **named),
        lambda: guarded.delete_one(M1, **named),
        lambda: guarded.update_batch([M1, Message("m-2")], lambda _: {"update": increment(M1), **named}),
        lambda: guarded.begin_effect(M1, "charge", lease=timedelta(minutes=1), key_valid_for=timedelta(days=1), **named),
        lambda: guarded.preview(M1, **named),
        lambda: guarded.open_effects(**named),
    ]
    for write in writes:
        with pytest.raises(InvalidUpdate, match="two entities or two marks can be equal"):
            write()
    assert list(order.find({"n": 0})) == [{"_id": name, "n": 0} for name in ("sku-a", "SKU-A")]
