"""What a message costs in requests, counted on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from onewrite import Applied, Deferred, Duplicate, InSequence, Message, Missing, Outcome, Rejected, Stale
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import dynamo_client
from tests.engines.ledgers import LEDGERS, AnyLedger, ledgers, uncounted_ledgers
from tests.engines.stores import addition, increment
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import FaultProxy

M = {n: Message(f"m-{n}", source="s", sequence=n) for n in range(1, 6)}

upserts = pytest.mark.parametrize("upsert", [False, True], ids=["update", "upsert"])


# ---------------------------------------------------------------- DynamoDB


@pytest.fixture
def guarded(fault_proxy: FaultProxy, table: str) -> Iterator[Callable[[AnyLedger], GuardedTable]]:
    client = dynamo_client(fault_proxy.endpoint)
    yield lambda ledger: GuardedTable(client, ledger, table_name=table)
    client.close()


def add(table: GuardedTable, message: Message, **native: Any) -> Outcome:
    return table.update_item(message, **addition(message, "e"), **native)


@ledgers
def test_dynamodb_needs_one_request_for_each_message_fresh_or_duplicate(
    guarded: Callable[[AnyLedger], GuardedTable], ledger: AnyLedger, fault_proxy: FaultProxy
) -> None:
    table = guarded(ledger)
    assert [type(add(table, M[n])) for n in (1, 2, 2)] == [Applied, Applied, Duplicate]
    assert [type(table.record(M[n], Key={"id": "e"})) for n in (3, 3)] == [Applied, Duplicate]
    assert fault_proxy.operations == ["UpdateItem"] * 5


@ledgers
def test_dynamodb_needs_one_request_for_a_creation_and_for_its_duplicate(
    guarded: Callable[[AnyLedger], GuardedTable], ledger: AnyLedger, fault_proxy: FaultProxy
) -> None:
    table = guarded(ledger)
    assert [type(table.put_item(M[1], Item={"id": "e"})) for _ in range(2)] == [Applied, Duplicate]
    assert fault_proxy.operations == ["PutItem"] * 2


def test_dynamodb_needs_one_request_for_what_is_stale_or_deferred(
    guarded: Callable[[AnyLedger], GuardedTable], fault_proxy: FaultProxy
) -> None:
    table = guarded(InSequence())
    add(table, M[1])
    add(table, M[2])
    assert isinstance(add(table, M[1]), Stale)
    assert isinstance(add(table, M[5]), Deferred)
    assert fault_proxy.operations == ["UpdateItem"] * 4


@ledgers
def test_dynamodb_needs_one_request_for_what_is_rejected_and_one_more_where_the_source_counts(
    guarded: Callable[[AnyLedger], GuardedTable], ledger: AnyLedger, fault_proxy: FaultProxy
) -> None:
    table = guarded(ledger)
    add(table, M[1])
    assert isinstance(add(table, M[2], ConditionExpression="attribute_not_exists(n)"), Rejected)
    assert fault_proxy.operations == ["UpdateItem"] * (3 if isinstance(ledger, InSequence) else 2)


@ledgers
def test_dynamodb_needs_one_request_for_a_creation_that_is_rejected(
    guarded: Callable[[AnyLedger], GuardedTable], ledger: AnyLedger, fault_proxy: FaultProxy
) -> None:
    table = guarded(ledger)
    table.put_item(M[1], Item={"id": "e"})
    assert isinstance(table.put_item(M[2], Item={"id": "e"}), Rejected)
    assert fault_proxy.operations == ["PutItem"] * 2


# ---------------------------------------------------------------- MongoDB


@pytest.fixture
def behind(
    mongo_proxy: MongoProxy, collection: Collection[dict[str, Any]]
) -> Iterator[Callable[[AnyLedger], GuardedCollection]]:
    with MongoClient[dict[str, Any]](mongo_proxy.uri) as client:
        yield lambda ledger: GuardedCollection(client.test[collection.name], ledger)


def inc(guarded: GuardedCollection, message: Message, *, upsert: bool, **condition: Any) -> Outcome:
    return guarded.update_one(message, {"_id": "e", **condition}, increment(message), upsert=upsert)


def requests(proxy: MongoProxy, work: Callable[[], Outcome], expected: type[Outcome]) -> list[str]:
    before = len(proxy.operations)
    assert isinstance(work(), expected)
    return proxy.operations[before:]


@upserts
@ledgers
def test_mongodb_needs_one_request_for_a_fresh_message_and_two_at_most_for_a_duplicate(
    behind: Callable[[AnyLedger], GuardedCollection], ledger: AnyLedger, upsert: bool, mongo_proxy: MongoProxy
) -> None:
    guarded = behind(ledger)
    assert requests(mongo_proxy, lambda: inc(guarded, M[1], upsert=True), Applied) == ["update"]
    assert requests(mongo_proxy, lambda: inc(guarded, M[2], upsert=upsert), Applied) == ["update"]
    assert requests(mongo_proxy, lambda: inc(guarded, M[2], upsert=upsert), Duplicate) in (["update"], ["update", "find"])


@ledgers
def test_mongodb_needs_one_request_for_a_creation_and_two_at_most_for_its_duplicate(
    behind: Callable[[AnyLedger], GuardedCollection], ledger: AnyLedger, mongo_proxy: MongoProxy
) -> None:
    guarded = behind(ledger)
    assert requests(mongo_proxy, lambda: guarded.insert_one(M[1], {"_id": "e"}), Applied) == ["insert"]
    assert requests(mongo_proxy, lambda: guarded.insert_one(M[1], {"_id": "e"}), Duplicate) == ["insert", "find"]


@upserts
def test_mongodb_needs_two_requests_at_most_for_what_is_stale_or_deferred(
    behind: Callable[[AnyLedger], GuardedCollection], upsert: bool, mongo_proxy: MongoProxy
) -> None:
    guarded = behind(InSequence())
    inc(guarded, M[1], upsert=True)
    inc(guarded, M[2], upsert=True)
    assert len(requests(mongo_proxy, lambda: inc(guarded, M[1], upsert=upsert), Stale)) <= 2
    assert len(requests(mongo_proxy, lambda: inc(guarded, M[5], upsert=upsert), Deferred)) <= 2


@uncounted_ledgers
def test_mongodb_needs_three_requests_at_most_for_what_is_rejected(
    behind: Callable[[AnyLedger], GuardedCollection], ledger: AnyLedger, mongo_proxy: MongoProxy
) -> None:
    guarded = behind(ledger)
    inc(guarded, M[1], upsert=True)
    # The last one tells a refusal from a document made meanwhile.
    assert len(requests(mongo_proxy, lambda: inc(guarded, M[2], upsert=False, n=7), Rejected)) <= 3


@pytest.mark.parametrize(
    ("ledger", "upsert"),
    [*((ledger, True) for ledger in LEDGERS.values()), (InSequence(), False)],
    ids=[*(f"{name}-upsert" for name in LEDGERS), "InSequence-update"],
)
def test_mongodb_asks_twice_before_it_rejects_what_may_have_lost_a_race(
    behind: Callable[[AnyLedger], GuardedCollection], ledger: AnyLedger, upsert: bool, mongo_proxy: MongoProxy
) -> None:
    """A condition that fails looks like a lost creation, or like a gap that was just filled: the write goes out again."""
    guarded = behind(ledger)
    inc(guarded, M[1], upsert=True)
    most = 6 if isinstance(ledger, InSequence) else 5  # the refusal is remembered
    assert len(requests(mongo_proxy, lambda: inc(guarded, M[2], upsert=upsert, n=7), Rejected)) <= most


@ledgers
def test_mongodb_needs_two_requests_at_most_where_there_is_no_entity(
    behind: Callable[[AnyLedger], GuardedCollection], ledger: AnyLedger, mongo_proxy: MongoProxy
) -> None:
    guarded = behind(ledger)
    assert len(requests(mongo_proxy, lambda: inc(guarded, M[1], upsert=False), Missing)) <= 2
