"""The two classes of a relay: how they go on, and how they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from bson import Binary, CodecOptions, ObjectId, UuidRepresentation

from onewrite import ConfigurationError, Event, Message, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.outboxes import origin as origin_of_key
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.mongodb.outboxes import origin as origin_of_id
from onewrite.outbox import AsyncRelay, Outgoing, Relay, SweepReport
from onewrite.outbox.relay import changed_keys
from onewrite.testing import mongomock_collection, moto_table
from onewrite.testing.standins.collection import AsyncStandInCollection

OUTBOX = Outbox("shop/orders")


@pytest.fixture
def collection() -> Iterator[Any]:
    with mongomock_collection("orders") as found:
        yield found


def store(collection: Any) -> GuardedCollection:
    return GuardedCollection(collection, SeenIds(), outbox=OUTBOX)


def emit(collection: Any, n: int) -> None:
    store(collection).update_one(Message(f"m{n}"), {"_id": n}, {"$set": {"n": n}}, upsert=True, emit=[Event("A", n)])


class Broker:
    """Fails so often, then accepts, and stops its relay when it has seen so many."""

    def __init__(self, failures: int, stops_at: int) -> None:
        self.relay: Any = None
        self.bodies: list[str] = []
        self._failures, self._stops_at = failures, stops_at

    def __call__(self, events: list[Outgoing]) -> None:
        self._failures -= 1
        if self._failures >= 0:
            raise ConnectionError
        self.bodies += [event.body for event in events]
        if len(self.bodies) >= self._stops_at:
            self.relay.stop()


def test_what_cannot_be_read_is_listed_by_both_relays(collection: Any) -> None:
    emit(collection, 1)
    collection.update_one({"_id": 1}, {"$set": {"ow_sent": "many"}})
    assert [each.entity for each in Relay(store(collection), lambda _: None).broken()] == [{"_id": 1}]
    orders = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
    assert [each.entity for each in asyncio.run(AsyncRelay(orders, lambda _: None).broken())] == [{"_id": 1}]


def test_a_relay_runs_on_after_failures_until_it_is_stopped(collection: Any) -> None:
    told: list[SweepReport] = []
    broker = Broker(failures=3, stops_at=2)
    broker.relay = relay = Relay(store(collection), broker, clock=Ticks(), batch=1)
    emit(collection, 1)
    emit(collection, 2)
    relay.run(poll=0.001, on_pass=told.append)
    assert sorted(broker.bodies) == ["1", "2"]
    assert [swept.error is not None for swept in told][:3] == [True, True, True]
    relay.run()  # a relay that was stopped does not begin again


@pytest.mark.parametrize("poll", [-1.0, float("nan"), float("inf")])
def test_a_time_between_passes_that_is_none_is_refused(collection: Any, poll: float) -> None:
    with pytest.raises(ConfigurationError, match="a number of seconds"):
        Relay(store(collection), lambda _: None).run(poll=poll)


class Ticks:
    """A clock that goes on by two minutes each time, so nothing waits."""

    def __init__(self) -> None:
        self.now = 2_000_000_000.0

    def __call__(self) -> float:
        self.now += 120.0
        return self.now


def test_an_asynchronous_relay_runs_on_likewise_and_takes_a_publisher_of_either_kind(collection: Any) -> None:
    async def run(*, awaited: bool) -> list[str]:
        broker = Broker(failures=2, stops_at=1)

        async def publish(events: list[Outgoing]) -> None:
            broker(events)

        guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
        broker.relay = relay = AsyncRelay(guarded, publish if awaited else broker, clock=Ticks())
        await relay.run(poll=0.001)
        return broker.bodies

    emit(collection, 1)
    assert asyncio.run(run(awaited=True)) == ["1"]
    emit(collection, 2)
    assert asyncio.run(run(awaited=False)) == ["2"]


def test_a_database_that_fails_is_waited_for(collection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[SweepReport] = []
    broker = Broker(failures=0, stops_at=1)
    broker.relay = relay = Relay(store(collection), broker)
    emit(collection, 1)
    failures = iter([ConnectionError("down"), None])
    sweep = relay._passes.sweep

    def failing(*arguments: Any) -> Any:
        if error := next(failures, None):
            raise error
        return sweep(*arguments)

    monkeypatch.setattr(relay._passes, "sweep", failing)
    relay.run(poll=0.001, on_pass=told.append)
    assert isinstance(told[0].error, ConnectionError)
    assert not told[0].complete  # so nobody takes its oldest event for that of all
    assert broker.bodies == ["1"]


def test_misuse_ends_a_relay_at_once(collection: Any) -> None:
    emit(collection, 1)
    with pytest.raises(ConfigurationError, match="publish returned"):
        Relay(store(collection), lambda _: True).run()  # type: ignore[arg-type, return-value]  # the error is the point
    guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
    with pytest.raises(ConfigurationError, match="publish returned"):
        asyncio.run(AsyncRelay(guarded, lambda _: True).run())  # type: ignore[arg-type, return-value]  # the same


@pytest.mark.parametrize("batch", [0, 1.5, None])
def test_a_batch_has_one_event_at_least(collection: Any, batch: Any) -> None:
    with pytest.raises(ConfigurationError, match="one event at least"):
        Relay(store(collection), lambda _: None, batch=batch)


def test_an_entity_is_named_as_its_store_names_it(collection: Any) -> None:
    relay = Relay(store(collection), lambda _: None)
    with pytest.raises(ConfigurationError, match="by a filter"):
        relay.flush(Key={"id": 1})
    with moto_table("orders") as table:
        of_table = Relay(GuardedTable(table, SeenIds(), outbox=OUTBOX), lambda _: None)
        names: list[dict[str, Any]] = [{"filter": {"orderId": "o"}}, {"Key": {}}, {}]
        for wrong in names:
            with pytest.raises(ConfigurationError, match="by its key"):
                of_table.flush(**wrong)


def test_keys_of_all_types_name_their_entities_and_one_key_has_one_source() -> None:
    seven, other = {"pk": "a/b c", "sk": 7}, {"sk": Decimal("7.0"), "pk": "a/b c"}
    assert origin_of_key(seven) == origin_of_key(other) == "pk=S:a%2Fb%20c/sk=N:7"
    assert origin_of_key({"pk": b"\0\xff"}) == "pk=B:AP8="
    assert origin_of_key({"pk": Decimal("1E+2")}) == "pk=N:100"
    assert origin_of_key({"pk": 10**37 + 1}) == f"pk=N:{10**37 + 1}"
    assert origin_of_key({"pk": Decimal("-0")}) == origin_of_key({"pk": 0}) == "pk=N:0"
    with pytest.raises(ConfigurationError, match="part of a key"):
        origin_of_key({"pk": True})


def test_ids_of_all_types_name_their_documents() -> None:
    ids = ["1", 1, ObjectId("0" * 24), {"a": 1}, {"a": "1"}, True]
    assert [origin_of_id(each) for each in ids[:3]] == ["_id=S:1", "_id=N:1", "_id=O:" + "0" * 24]
    assert len({origin_of_id(each) for each in ids}) == len(ids)


@pytest.mark.parametrize("representation", [UuidRepresentation.STANDARD, UuidRepresentation.PYTHON_LEGACY])
def test_a_uuid_names_the_same_source_whatever_a_client_makes_of_it(representation: int) -> None:
    reads: CodecOptions[Any] = CodecOptions(uuid_representation=representation)
    named = UUID(int=1)
    stored = Binary.from_uuid(named, representation)
    sources = {origin_of_id({"part": named}, reads), origin_of_id({"part": stored}, reads)}
    assert sources == {origin_of_id({"part": stored}, CodecOptions())}


def test_a_stream_s_records_name_each_item_once_and_those_without_events_not_at_all() -> None:
    def record(name: str, event: str = "MODIFY", **image: Any) -> dict[str, Any]:
        return {"eventName": event, "dynamodb": {"Keys": {"id": {"S": name}}, **image}}

    records = [
        record("a", NewImage={"ow_events": {"L": []}}),
        record("a", NewImage={"ow_events": {"L": []}}),
        record("cleared", NewImage={"ow_sent": {"N": "1"}}),
        record("deleted", "REMOVE"),
        record("keys only"),
        {"eventName": "INSERT"},
    ]
    assert changed_keys(records) == [{"id": {"S": "a"}}, {"id": {"S": "keys only"}}]


def test_an_operator_skips_what_was_listed_with_either_class(collection: Any) -> None:
    emit(collection, 1)
    (waiting,) = Relay(store(collection), lambda _: None).waiting()
    event: Any = {"source": waiting.event.source, "id": waiting.event.id}
    guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
    skipped = asyncio.run(AsyncRelay(guarded, lambda _: None).skip(**event))
    assert skipped is not None
    assert skipped == Relay(store(collection), lambda _: None).skip(**event)
