"""The two classes of a relay: how they go on, and how they stop."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from inspect import iscoroutinefunction
from typing import Any, cast
from uuid import UUID

import boto3
import pytest
from botocore.exceptions import ClientError
from bson import Binary, CodecOptions, ObjectId, UuidRepresentation

from onewrite import ConfigurationError, Event, InvalidUpdate, Message, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.outboxes import format_key as format_item_key
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.mongodb.outboxes import Outboxes
from onewrite.mongodb.outboxes import format_key as format_document_key
from onewrite.outbox import AsyncRelay, Outgoing, Relay, SweepReport
from onewrite.outbox.relay import list_changed_keys
from onewrite.testing import moto_table
from onewrite.testing.standins.collection import AsyncStandInCollection

OUTBOX = Outbox("shop/orders")


def store(collection: Any) -> GuardedCollection:
    return GuardedCollection(collection, SeenIds(), outbox=OUTBOX)


def async_store(collection: Any) -> AsyncGuardedCollection:
    return AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)


def emit(collection: Any, n: int) -> None:
    store(collection).update_one(Message(f"m{n}"), {"_id": n}, {"$set": {"n": n}}, upsert=True, emit=[Event("A", n)])


class Awaited:
    """An asynchronous relay, whose methods are called as those of the blocking one."""

    def __init__(self, relay: AsyncRelay) -> None:
        self.relay = relay

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.relay, name)
        return (lambda *args, **options: asyncio.run(value(*args, **options))) if iscoroutinefunction(value) else value


@pytest.fixture(params=["blocking", "asynchronous"])
def make(request: pytest.FixtureRequest, collection: Any) -> Callable[..., Any]:
    """Makes a relay of either class, with a publisher of its kind."""

    def make_relay(publish: Any = lambda _: None, **options: Any) -> Any:
        if request.param == "blocking":
            return Relay(store(collection), publish, **options)

        async def apublish(events: list[Outgoing]) -> Any:
            await asyncio.sleep(0)
            return publish(events)

        return Awaited(AsyncRelay(async_store(collection), apublish, **options))

    return make_relay


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


def test_relay_continues_after_failures_until_stopped(
    collection: Any, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[SweepReport] = []
    failures_in_a_row: list[int] = []

    def compute_no_pause(failures: int, *_: float) -> float:
        failures_in_a_row.append(failures)
        return 0.0

    monkeypatch.setattr("onewrite.outbox.relay.compute_pause", compute_no_pause)
    broker = Broker(failures=3, stops_at=2)
    broker.relay = relay = make(broker, clock=Ticks(), batch=1)
    emit(collection, 1)
    emit(collection, 2)
    relay.run(poll=0.001, on_pass=told.append)
    assert sorted(broker.bodies) == ["1", "2"]
    assert [swept.error is not None for swept in told if not swept.continues][:3] == [True, True, True]
    assert failures_in_a_row[:4] == [1, 2, 3, 0]
    with pytest.raises(ConfigurationError, match=r"doesn't run again\. Create a new relay"):
        relay.run()


def test_relay_stopped_before_it_runs_returns_at_once(make: Callable[..., Any]) -> None:
    relay = make()
    relay.stop()
    relay.run(poll=1000)


@pytest.mark.parametrize("method", ["run", "sweep"])
def test_publish_that_hangs_is_logged(
    method: str, collection: Any, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("onewrite.outbox.relay._WATCH", 0.02)
    monkeypatch.setattr("onewrite.outbox.relay._MAX_STEP", 0.01)

    def hang(_: list[Outgoing]) -> None:
        limit = time.monotonic() + 30
        while "publish hasn't returned for 0 seconds" not in caplog.text:
            assert time.monotonic() < limit
            time.sleep(0.01)
        relay.stop()

    relay = make(hang)
    emit(collection, 1)
    getattr(relay, method)()
    assert "Restart the relay, and set a timeout on the call that hangs." in caplog.text
    assert isinstance(relay, Awaited) or "test_relay.py" in caplog.text


def test_relay_waits_for_a_failing_database(
    collection: Any, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[SweepReport] = []
    broker = Broker(failures=0, stops_at=1)
    broker.relay = relay = make(broker)
    emit(collection, 1)
    failures, finder = [ConnectionError("down")], Outboxes.finder

    def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return finder(*arguments)

    monkeypatch.setattr(Outboxes, "finder", failing)
    relay.run(poll=0.001, on_pass=told.append)
    assert (type(told[0].error), told[0].complete) == (ConnectionError, False)
    assert broker.bodies == ["1"]


def test_relay_can_wait_for_its_stop_alone(collection: Any) -> None:
    relay = Relay(store(collection), lambda _: None)
    relay.run(poll=math.inf, on_pass=lambda _: threading.Timer(0.05, relay.stop).start())


def test_relay_stopped_during_a_conflict_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with moto_table("orders", "id") as table:
        orders = GuardedTable(table, SeenIds(), outbox=OUTBOX)
        orders.remember(Message("m1"), Key={"id": "o-1"}, emit=[Event("A", 1)])
        broker = Broker(failures=0, stops_at=1)  # so the first write after its stop is the one that clears
        broker.relay = relay = Relay(orders, broker)
        client = table.meta.client
        answers = iter([ClientError({"Error": {"Code": "TransactionConflictException"}}, "UpdateItem")])
        update_item = client.update_item

        def meets_a_transaction_once(**request: Any) -> Any:
            for error in answers:
                raise error
            return update_item(**request)

        monkeypatch.setattr(client, "update_item", meets_a_transaction_once)
        running = threading.Thread(target=relay.run, kwargs={"poll": 3600.0}, daemon=True)
        running.start()
        running.join(20)
        assert not running.is_alive()
        assert relay.pending() == []


class Ticks:
    """A clock that goes on by two minutes each time, so nothing waits."""

    def __init__(self) -> None:
        self.now = 2_000_000_000.0

    def __call__(self) -> float:
        self.now += 120.0
        return self.now


def test_asynchronous_relay_accepts_a_plain_function(collection: Any) -> None:
    bodies: list[str] = []
    emit(collection, 1)
    asyncio.run(AsyncRelay(async_store(collection), lambda events: bodies.extend(event.body for event in events)).sweep())
    assert bodies == ["1"]


def test_cancelled_task_of_a_publisher_stops_its_entity_only(collection: Any) -> None:
    bodies: list[str] = []

    async def publish(events: list[Outgoing]) -> None:
        if any(event.body == "1" for event in events):
            raise asyncio.CancelledError
        bodies.extend(event.body for event in events)

    for n in (1, 2, 3):
        emit(collection, n)
    report = asyncio.run(AsyncRelay(async_store(collection), publish).sweep())
    assert (sorted(bodies), [event.body for event, _ in report.failed]) == (["2", "3"], ["1"])
    assert "CancelledError" in str(report.failed[0][1])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_relay_ends_by_an_exit(error: BaseException, make: Callable[..., Any], collection: Any) -> None:
    def publish(events: list[Outgoing]) -> None:
        raise error

    emit(collection, 1)
    with pytest.raises(type(error)):
        make(publish).sweep()


def test_asynchronous_relay_ends_by_its_own_cancellation_only(collection: Any) -> None:
    calls: list[int] = []

    async def publish(events: list[Outgoing]) -> None:
        calls.append(len(events))
        if len(calls) == 1:
            task = asyncio.ensure_future(asyncio.sleep(20))
            task.cancel()
            await task
        cast("asyncio.Task[None]", asyncio.current_task()).cancel()
        await asyncio.sleep(20)

    async def run() -> None:
        relay = AsyncRelay(async_store(collection), publish, clock=Ticks())
        assert len((await relay.sweep()).failed) == 1
        await relay.sweep()

    emit(collection, 1)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert len(calls) == 2


def test_asynchronous_publisher_of_a_blocking_relay_is_refused(collection: Any) -> None:
    async def publish(events: list[Outgoing]) -> None: ...

    wrong: Any = publish
    emit(collection, 1)
    with pytest.raises(ConfigurationError, match="or use the asynchronous store"):
        Relay(store(collection), wrong).sweep()


def test_misuse_ends_the_relay_at_once(collection: Any, make: Callable[..., Any]) -> None:
    emit(collection, 1)
    with pytest.raises(ConfigurationError, match="publish returned"):
        make(lambda _: True).run()


@pytest.mark.parametrize("batch", [0, -1, 1.5, None])
def test_batch_must_have_at_least_one_event(collection: Any, batch: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected an int of 1 or more"):
        Relay(store(collection), lambda _: None, batch=batch)


@pytest.mark.parametrize("key", [{"orderId": "o"}, {"orderId": {"S": "o"}}], ids=["plain", "typed"])
@pytest.mark.parametrize("typed", [False, True], ids=["plain store", "typed store"])
def test_relay_accepts_plain_and_typed_keys(key: dict[str, Any], typed: bool) -> None:
    with moto_table("orders") as table, closing(boto3.client("dynamodb", region_name="eu-west-1")) as client:
        orders: Any = GuardedTable(client, SeenIds(), table_name=table.name, outbox=OUTBOX, typed=typed)
        item = {"orderId": {"S": "o"} if typed else "o"}
        orders.put_item(Message("m"), Item=item, emit=[Event("A", 1), Event("Poison", 2), Event("C", 3)])
        relay = Relay(orders, lambda events: [event for event in events if event.type == "Poison"])
        flushed = relay.flush(Key=key)
        assert [event.type for event in flushed.published] == ["A"]
        assert flushed.published[0].entity == {"orderId": "o"}
        assert relay.skip(Key=key, id=flushed.remaining[0].id) is not None
        assert relay.restart(Key=key) is not None
        assert relay.notify([key]).published == 2


def test_key_of_any_type_has_one_source() -> None:
    assert (
        format_item_key({"pk": "a/b c", "sk": 7})
        == format_item_key({"sk": Decimal("7.0"), "pk": "a/b c"})
        == "pk=S:a%2Fb%20c/sk=N:7"
    )
    assert format_item_key({"pk": b"\0\xff"}) == "pk=B:AP8="
    assert format_item_key({"pk": Decimal("1E+2")}) == "pk=N:100"
    assert format_item_key({"pk": 10**37 + 1}) == f"pk=N:{10**37 + 1}"
    assert format_item_key({"pk": Decimal("-0")}) == format_item_key({"pk": 0}) == "pk=N:0"
    with pytest.raises(ConfigurationError, match="part of a key"):
        format_item_key({"pk": True})


def test_ids_of_all_types_name_their_documents() -> None:
    ids = ["1", 1, ObjectId("0" * 24), {"a": 1}, {"a": "1"}, True]
    assert [format_document_key(each) for each in ids[:3]] == ["_id=S:1", "_id=N:1", "_id=O:" + "0" * 24]
    assert len({format_document_key(each) for each in ids}) == len(ids)


@pytest.mark.parametrize("representation", [UuidRepresentation.STANDARD, UuidRepresentation.PYTHON_LEGACY])
def test_uuid_has_one_source_in_any_representation(representation: int) -> None:
    reads: CodecOptions[Any] = CodecOptions(uuid_representation=representation)
    named = UUID(int=1)
    stored = Binary.from_uuid(named, representation)
    assert (
        format_document_key({"part": named}, reads)
        == format_document_key({"part": stored}, reads)
        == format_document_key({"part": stored}, CodecOptions())
    )


def test_stream_records_name_each_item_with_events_once() -> None:
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
    assert list_changed_keys(records) == [{"id": {"S": "a"}}, {"id": {"S": "keys only"}}]


def test_notification_accepts_any_filter_of_a_write(collection: Any) -> None:
    queries: list[dict[str, Any]] = [{"_id": 1}, {"_id": {"$eq": 1}}, {"$and": [{"_id": 1}]}, {"email": "ann"}]
    for number, query in enumerate(queries):
        change = {"$set": {"email": "ann"}}
        store(collection).update_one(Message(f"m{number}"), {"_id": 1}, change, upsert=True, emit=[Event("A", number)])
        guarded = GuardedCollection(collection, SeenIds(), key=("email",), outbox=OUTBOX)
        assert Relay(guarded, lambda _: None).notify([query]).published == 1


def test_notification_for_several_documents_is_refused(collection: Any) -> None:
    with pytest.raises(InvalidUpdate, match="is a query"):
        Relay(store(collection), lambda _: None).notify([{"_id": {"$in": [1, 2]}}])


@pytest.mark.parametrize("entities", [{"_id": "o"}, {"id": "o"}, ["o"]])
def test_notification_without_a_list_of_entities_is_refused(collection: Any, entities: Any) -> None:
    relay = Relay(store(collection), lambda _: None)
    with pytest.raises(ConfigurationError, match="expected a list"):
        relay.notify(entities)
