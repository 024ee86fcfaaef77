"""MongoDB: the driver repeats a write once, and the server knows that it is the same; what goes beyond comes as an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect

from onewrite import Applied, BeginOutcome, Begun, Busy, Duplicate, HighWaterMark, Message, Outcome, SeenIds, TakenOver
from onewrite.mongodb import GuardedCollection
from tests.engines.ledgers import AnyLedger, ledgers
from tests.engines.stores import increment, mongo_state
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault

pytestmark = pytest.mark.usefixtures("quick_retries")

Deliver = Callable[[GuardedCollection], Outcome]


class Guard(Protocol):
    def __call__(self, ledger: AnyLedger, retry: bool, clock: Callable[[], float] = ...) -> GuardedCollection: ...


M1 = Message("m-1", source="s", sequence=1)
lost = pytest.mark.parametrize("fault", [Fault.DROP_ANSWER, Fault.RESET], ids=lambda fault: fault.name)
any_loss = pytest.mark.parametrize(
    "fault", [Fault.DROP_REQUEST, Fault.DROP_ANSWER, Fault.RESET], ids=lambda fault: fault.name
)

UPDATES: dict[str, Deliver] = {
    "update": lambda c: c.update_one(M1, {"_id": "e"}, increment(M1)),
    "upsert": lambda c: c.update_one(M1, {"_id": "new"}, increment(M1), upsert=True),
    "pipeline": lambda c: c.update_one(
        M1, {"_id": "new"}, [{"$set": {"n": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}}], upsert=True
    ),
    "find_and_update": lambda c: c.find_one_and_update(M1, {"_id": "e"}, increment(M1)),
    "find_and_upsert": lambda c: c.find_one_and_update(M1, {"_id": "new"}, increment(M1), upsert=True),
    "insert": lambda c: c.insert_one(M1, {"_id": "new", "n": 1}),
    "update_batch": lambda c: c.update_batch(
        [M1], lambda _: {"filter": {"_id": "new"}, "update": increment(M1), "upsert": True}
    )[0],
}
deliveries = pytest.mark.parametrize("deliver", UPDATES.values(), ids=UPDATES)


@pytest.fixture
def existing(collection: Collection[dict[str, Any]]) -> Collection[dict[str, Any]]:
    collection.insert_one({"_id": "e", "n": 0})
    return collection


@pytest.fixture
def guard(mongo_proxy: MongoProxy, existing: Collection[dict[str, Any]]) -> Iterator[Guard]:
    """A guarded collection behind the proxy. `retry` is retryWrites."""
    clients: list[MongoClient[dict[str, Any]]] = []

    def behind(ledger: AnyLedger, retry: bool, clock: Callable[[], float] = time.time) -> GuardedCollection:
        clients.append(
            MongoClient[dict[str, Any]](
                mongo_proxy.uri, retryWrites=retry, serverSelectionTimeoutMS=5000, serverMonitoringMode="poll"
            )
        )
        return GuardedCollection(clients[-1].test[existing.name], ledger, clock=clock)

    yield behind
    for client in clients:
        client.close()


@pytest.fixture
def effects(existing: Collection[dict[str, Any]]) -> Callable[[], int]:
    """How often the effect is there, in the entity that existed and in the one that did not."""
    return lambda: sum(document["n"] for document in existing.find())


@any_loss
@deliveries
@ledgers
def test_write_is_applied_if_request_or_response_is_lost(
    guard: Guard, ledger: AnyLedger, deliver: Deliver, fault: Fault, mongo_proxy: MongoProxy, effects: Callable[[], int]
) -> None:
    collection = guard(ledger, True)
    mongo_proxy.plan(fault)
    assert isinstance(deliver(collection), Applied)
    assert len(mongo_proxy.operations) == 2
    assert isinstance(deliver(collection), Duplicate)
    assert effects() == 1


@lost
@deliveries
@ledgers
def test_redelivery_is_a_duplicate_if_response_was_lost_twice(
    guard: Guard, ledger: AnyLedger, deliver: Deliver, fault: Fault, mongo_proxy: MongoProxy, effects: Callable[[], int]
) -> None:
    collection = guard(ledger, True)
    mongo_proxy.plan(fault, fault)
    with pytest.raises(AutoReconnect):
        deliver(collection)
    assert isinstance(deliver(collection), Duplicate)
    assert effects() == 1


def test_write_is_recognized_if_another_message_follows_the_lost_response(
    guard: Guard, mongo_proxy: MongoProxy, existing: Collection[dict[str, Any]]
) -> None:
    other = GuardedCollection(existing, HighWaterMark())
    m2 = Message("m-2", source="s", sequence=2)
    mongo_proxy.plan(Fault.RESET)

    def write_the_next() -> None:
        other.update_one(m2, {"_id": "e"}, increment(m2))

    mongo_proxy.after_write = write_the_next
    outcome = guard(HighWaterMark(), True).update_one(M1, {"_id": "e"}, increment(M1))
    assert isinstance(outcome, Applied)
    assert mongo_state(existing) == (2, ["m-1", "m-2"])


# ---------------------------------------------------------------- effects

LEASE, DAY = timedelta(minutes=1), timedelta(days=1)
# How often in a row an answer gets lost until the driver gives up.
given_up = pytest.mark.parametrize(("retry", "times"), [(True, 2), (False, 1)], ids=["retryable_twice", "plain_once"])


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def pass_the_lease(self) -> None:
        self.now += LEASE.total_seconds()


def begin_effect(collection: GuardedCollection, name: str = "charge") -> BeginOutcome:
    return collection.begin_effect(M1, name, {"_id": "e"}, lease=LEASE, key_valid_for=DAY)


def begun(collection: GuardedCollection, name: str = "charge") -> Begun:
    effect = begin_effect(collection, name)
    assert isinstance(effect, Begun)
    return effect


def finish(collection: GuardedCollection, effect: Begun) -> Outcome:
    return collection.update_one(M1, {"_id": "e"}, increment(M1), finishes=effect)


def fences(collection: GuardedCollection) -> list[str]:
    """Those of the effects that are open and may be finished, after their leases."""
    return [each.fence for each in collection.open_effects({"_id": "e"}) if not isinstance(each, Busy)]


@any_loss
@ledgers
def test_effect_completes_if_each_request_or_response_is_lost(
    guard: Guard, ledger: AnyLedger, fault: Fault, mongo_proxy: MongoProxy, effects: Callable[[], int]
) -> None:
    clock = Clock()
    collection = guard(ledger, True, clock)
    mongo_proxy.plan(fault)
    effect = begun(collection)
    assert effect.first
    assert begin_effect(collection) == Busy(M1, effect.until)
    mongo_proxy.plan(fault)
    assert isinstance(finish(collection, effect), Applied)
    assert mongo_proxy.past_faults == [fault] * 2
    assert isinstance(begin_effect(collection), Duplicate)
    clock.pass_the_lease()
    assert fences(collection) == []
    assert effects() == 1


@lost
@pytest.mark.parametrize("sent", [True, False], ids=["sent", "unsent"])
def test_repeated_release_keeps_effect_of_another_worker(
    guard: Guard,
    sent: bool,
    fault: Fault,
    mongo_proxy: MongoProxy,
    existing: Collection[dict[str, Any]],
    effects: Callable[[], int],
) -> None:
    clock = Clock()
    collection, other = guard(SeenIds(), True, clock), GuardedCollection(existing, SeenIds(), clock=clock)
    effect = begun(collection)
    others: list[Begun] = []
    mongo_proxy.plan(fault)
    mongo_proxy.after_write = lambda: others.append(begun(other))
    collection.release_effect(effect, sent=sent)
    collection.release_effect(effect, sent=sent)
    assert mongo_proxy.past_faults == [fault]
    assert begin_effect(collection) == Busy(M1, others[0].until)
    assert isinstance(finish(collection, effect), TakenOver)
    assert isinstance(finish(other, others[0]), Applied)
    assert effects() == 1


@lost
@given_up
@ledgers
@pytest.mark.few(2)
def test_begin_without_response_keeps_its_key_after_the_lease(
    guard: Guard,
    ledger: AnyLedger,
    retry: bool,
    times: int,
    fault: Fault,
    mongo_proxy: MongoProxy,
    effects: Callable[[], int],
) -> None:
    clock = Clock()
    collection = guard(ledger, retry, clock)
    mongo_proxy.plan(*[fault] * times)
    with pytest.raises(AutoReconnect):
        begin_effect(collection)
    assert begin_effect(collection) == Busy(M1, clock.now + LEASE.total_seconds())
    clock.pass_the_lease()
    [lost_fence] = fences(collection)
    effect = begun(collection, "charge of a later version")
    assert not effect.first
    assert effect.fence != lost_fence
    assert effect.key == M1.child("charge")
    mongo_proxy.plan(*[fault] * times)
    with pytest.raises(AutoReconnect):
        finish(collection, effect)
    assert isinstance(finish(collection, effect), Duplicate)
    assert isinstance(begin_effect(collection), Duplicate)
    assert effects() == 1
