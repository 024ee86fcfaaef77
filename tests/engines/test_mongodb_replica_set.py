"""MongoDB: a primary that is alone for a while answers for what a majority holds, or not at all.

Two of three members are frozen. What the primary writes meanwhile is lost if it fails: no redelivery may be settled by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, ExecutionTimeout, WriteConcernError, WTimeoutError

from onewrite import Applied, Duplicate, InSequence, Message, Outcome, Rejected, SeenIds
from onewrite.mongodb import GuardedCollection
from tests.engines.ledgers import AnyLedger
from tests.engines.stores import places
from tests.support.engines import mongod_binary, require
from tests.support.replica_set import ReplicaSet

Documents = Collection[dict[str, Any]]
M1, M2 = (Message(f"m-{n}", source="s", sequence=n) for n in (1, 2))
UNCONFIRMED = (WTimeoutError, WriteConcernError, ExecutionTimeout)
SOON = 150  # milliseconds
ledgers = pytest.mark.parametrize("ledger", [SeenIds(), InSequence()], ids=["SeenIds", "InSequence"])


@pytest.fixture(scope="module")
def replica_set() -> Iterator[ReplicaSet]:
    require(mongod_binary)
    with ReplicaSet() as members:
        yield members


@pytest.fixture(scope="module")
def client(replica_set: ReplicaSet) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](replica_set.uri) as client:
        yield client


@pytest.fixture
def documents(client: MongoClient[dict[str, Any]]) -> Documents:
    """A collection that all members know; its writes are waited for, but not for long."""
    name = next(places)
    client.test.get_collection(name, write_concern=WriteConcern(w=3)).insert_one({"_id": "any"})
    return client.test.get_collection(name, write_concern=WriteConcern(wtimeout=SOON))


def fast(documents: Documents, ledger: AnyLedger) -> GuardedCollection:
    """A writer whom the primary alone suffices."""
    concern = WriteConcern(w=1, j=False)
    return GuardedCollection(documents.with_options(write_concern=concern), ledger, durability="acknowledged")


def insert(guarded: GuardedCollection, message: Message = M1) -> Outcome:
    return guarded.insert_one(message, {"_id": "e", "n": 1}, rejected_ok=True)


Write = Callable[[GuardedCollection, Message], Outcome]
WRITES: dict[str, Write] = {
    "insert_one": insert,
    "update_one": lambda c, m: c.update_one(m, {"_id": "e"}, {"$inc": {"n": 1}}),
    "upsert": lambda c, m: c.update_one(m, {"_id": "e"}, {"$inc": {"n": 1}}, upsert=True),
    "find_one_and_update": lambda c, m: c.find_one_and_update(m, {"_id": "e"}, {"$inc": {"n": 1}}),
    "remember": lambda c, m: c.remember(m, {"_id": "e"}),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@ledgers
@pytest.mark.few(1)
def test_insert_and_retry_raise_the_driver_error_without_a_majority(
    replica_set: ReplicaSet, documents: Documents, ledger: AnyLedger
) -> None:
    guarded = GuardedCollection(documents, ledger)
    with replica_set.freeze_secondaries():
        with pytest.raises(UNCONFIRMED):
            insert(guarded)
        with pytest.raises((*UNCONFIRMED, DuplicateKeyError)):  # no majority has an entity to look at
            insert(guarded)
    assert insert(guarded) == Duplicate(M1, {"_id": "e", "n": 1})


@writes
@ledgers
@pytest.mark.few(2)
def test_redelivery_raises_if_its_mark_has_no_majority(
    replica_set: ReplicaSet, documents: Documents, ledger: AnyLedger, write: Write
) -> None:
    guarded = GuardedCollection(documents, ledger)
    insert(guarded, M1)
    with replica_set.freeze_secondaries():
        assert isinstance(WRITES["update_one"](fast(documents, ledger), M2), Applied)
        with pytest.raises(UNCONFIRMED):
            write(guarded, M2)
    assert write(guarded, M2) == Duplicate(M2, {"_id": "e", "n": 2})


def test_refused_insert_raises_if_other_writes_are_unconfirmed(replica_set: ReplicaSet, documents: Documents) -> None:
    """What is not confirmed yet may be the mark of this very message."""
    guarded = GuardedCollection(documents, SeenIds())
    insert(guarded, M1)
    with replica_set.freeze_secondaries():
        documents.with_options(write_concern=WriteConcern(w=1)).insert_one({"_id": "beside"})
        with pytest.raises(UNCONFIRMED):
            insert(guarded, M2)
    assert insert(guarded, M2) == Rejected(M2, {"_id": "e", "n": 1}, settled=True)


@ledgers
def test_redelivered_confirmed_insert_is_a_duplicate_without_a_majority(
    replica_set: ReplicaSet, documents: Documents, ledger: AnyLedger
) -> None:
    guarded = GuardedCollection(documents, ledger)
    insert(guarded, M1)
    with replica_set.freeze_secondaries():
        assert insert(guarded, M1) == Duplicate(M1, {"_id": "e", "n": 1})
