"""The relay as a Lambda function: what a stream's records and what a schedule's event make it do, with a relay of either kind."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from onewrite import ConfigurationError, Event, Message, Outbox, SeenIds
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.outbox import AsyncRelay, Outgoing, Relay, SweepReport, stream_handler
from onewrite.testing import lambda_context
from onewrite.testing.standins.collection import AsyncStandInCollection

OUTBOX = Outbox("shop/orders")
SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event"}


class Broker:
    """Takes everything but poison, is cut short at some events, and knows in which event loop it was asked."""

    def __init__(self, collection: Any) -> None:
        self.collection = collection
        self.bodies: list[str] = []
        self.loops: set[int] = set()
        self.made = 0

    def __call__(self, events: list[Outgoing]) -> list[Outgoing]:
        if any(event.type == "Cut" for event in events):
            raise TimeoutError
        self.bodies += [event.body for event in events if event.type != "Poison"]
        return [event for event in events if event.type == "Poison"]

    async def take(self, events: list[Outgoing]) -> list[Outgoing]:
        self.loops.add(id(asyncio.get_running_loop()))
        if any(event.type == "Cut" for event in events):
            raise asyncio.CancelledError
        return self(events)

    async def make(self) -> AsyncRelay:
        self.made += 1
        self.loops.add(id(asyncio.get_running_loop()))
        return self.asynchronous()

    def asynchronous(self) -> AsyncRelay:
        return AsyncRelay(
            AsyncGuardedCollection(AsyncStandInCollection(self.collection), SeenIds(), outbox=OUTBOX), self.take
        )

    def relay_of(self, kind: str) -> Any:
        if kind == "made":
            return self.make
        return Relay(store(self.collection), self) if kind == "blocking" else self.asynchronous()


def store(collection: Any) -> GuardedCollection:
    return GuardedCollection(collection, SeenIds(), outbox=OUTBOX)


def emit(collection: Any, name: str, event: str = "Paid") -> None:
    store(collection).update_one(Message(name), {"_id": name}, {"$set": {"n": 1}}, upsert=True, emit=[Event(event, name)])


def record(name: str) -> dict[str, Any]:
    """As a stream has it, except for the types: the stand-in of a collection has none."""
    return {"eventName": "MODIFY", "dynamodb": {"Keys": {"_id": name}}}


@pytest.fixture(params=["blocking", "asynchronous", "made"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_stream_records_ring_and_other_events_sweep(collection: Any, kind: str) -> None:
    broker, told = Broker(collection), list[SweepReport]()
    handler = stream_handler(broker.relay_of(kind), on_pass=told.append)
    for name in ("a", "b", "c"):
        emit(collection, name)

    assert handler({"Records": [record("b")]}, lambda_context()) == {"batchItemFailures": []}
    assert broker.bodies == ['"b"']
    handler(SCHEDULE, lambda_context())
    assert sorted(broker.bodies) == ['"a"', '"b"', '"c"']
    handler({"Records": [{"eventName": "REMOVE"}]}, None)
    assert [swept.published for swept in told] == [1, 2, 0]
    assert len(broker.loops) == (kind != "blocking")
    assert broker.made == (kind == "made")


def test_events_of_a_queue_are_refused(collection: Any, kind: str) -> None:
    handler = stream_handler(Broker(collection).relay_of(kind))
    with pytest.raises(ConfigurationError, match="an event of aws:sqs: expected records"):
        handler({"Records": [{"eventSource": "aws:sqs", "messageId": "1", "body": "{}"}]}, None)


def test_no_broker_call_begins_in_the_last_two_seconds(collection: Any, kind: str) -> None:
    broker = Broker(collection)
    emit(collection, "a")
    handler = stream_handler(broker.relay_of(kind))
    handler(SCHEDULE, lambda_context(remaining_ms=2000))
    assert broker.bodies == []
    handler(SCHEDULE, lambda_context(remaining_ms=60_000))
    assert broker.bodies == ['"a"']


def test_failing_event_does_not_block_others(collection: Any, kind: str) -> None:
    emit(collection, "a", "Cut")
    emit(collection, "b")
    broker = Broker(collection)
    handler = stream_handler(broker.relay_of(kind))
    for _ in range(2):
        assert handler({"Records": [record("a"), record("b")]}, None) == {"batchItemFailures": []}
    assert broker.bodies == ['"b"']


def test_failing_sweep_raises_but_failing_notification_does_not(
    collection: Any, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ConnectionError("down")

    emit(collection, "a")
    handler = stream_handler(Broker(collection).relay_of(kind))
    monkeypatch.setattr("onewrite.mongodb.outboxes.Outboxes.read", fails)
    monkeypatch.setattr("onewrite.mongodb.outboxes.Outboxes.finder", fails)
    assert handler({"Records": [record("a")]}, None) == {"batchItemFailures": []}
    assert "A sweep will publish" in caplog.text
    with pytest.raises(ConnectionError):
        handler(SCHEDULE, None)


def test_function_must_return_an_asynchronous_relay(collection: Any) -> None:
    blocking: Any = partial(Broker(collection).relay_of, "blocking")
    for event in ({"Records": [record("a")]}, SCHEDULE):
        with pytest.raises(ConfigurationError, match="returned a Relay"):
            stream_handler(blocking)(event, None)
