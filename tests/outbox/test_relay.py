"""The two classes of a relay: how they go on, and how they stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import boto3
import pytest
from botocore.exceptions import ClientError
from bson import Binary, CodecOptions, UuidRepresentation

from onewrite import ConfigurationError, Event, InvalidUpdate, LedgerMismatch, Message, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.outbox import AsyncRelay, Outgoing, Relay, SweepReport, TokenFile, stream_handler
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


def test_a_pass_that_the_database_has_failed_knows_of_no_oldest_event(
    collection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[SweepReport] = []
    relay = Relay(store(collection), lambda _: None)

    def fails(*_: object) -> None:
        relay.stop()
        raise ConnectionError

    monkeypatch.setattr(relay, "_sweep", fails)
    relay.run(poll=0.001, on_pass=told.append)
    assert [(type(swept.error), swept.complete) for swept in told] == [(ConnectionError, False)]


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


def test_a_relay_that_is_stopped_while_it_waits_for_a_conflict_does_not_wait_for_the_next_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with moto_table("orders", "id") as table:
        orders = GuardedTable(table, SeenIds(), outbox=OUTBOX)
        orders.record(Message("m1"), Key={"id": "o-1"}, emit=[Event("A", 1)])
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
        assert relay.waiting() == []


@pytest.mark.parametrize("poll", [-1.0, float("nan"), timedelta(seconds=1)])
def test_a_time_between_passes_that_is_none_is_refused(collection: Any, poll: Any) -> None:
    with pytest.raises(ConfigurationError, match="a number of seconds"):
        Relay(store(collection), lambda _: None).run(poll=poll)


class Awaited:
    def load(self) -> None: ...
    async def save(self, token: Any) -> None: ...


@pytest.mark.parametrize(
    ("tokens", "options", "complaint"),
    [
        ("relay.token", {}, r"such as TokenFile\('relay.token'\): its load"),
        (Awaited(), {}, "its save is a plain function, which nobody awaits"),
        (TokenFile("relay.token"), {"sweep_every": timedelta(minutes=1)}, "sweep_every=.*: it is a number of seconds"),
    ],
)
def test_what_no_stream_can_be_followed_with_is_refused_and_not_tried_forever(
    collection: Any, tokens: Any, options: Any, complaint: str
) -> None:
    guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
    with pytest.raises(ConfigurationError, match=complaint):
        Relay(store(collection), lambda _: None).follow(tokens, **options)
    with pytest.raises(ConfigurationError, match=complaint):
        asyncio.run(AsyncRelay(guarded, lambda _: None).follow(tokens, **options))


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


def sweep(collection: Any, publish: Any, *, is_async: bool) -> SweepReport:
    if not is_async:
        return Relay(store(collection), publish).sweep()

    async def publish_later(events: list[Outgoing]) -> None:
        await asyncio.sleep(0)
        publish(events)

    guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
    return asyncio.run(AsyncRelay(guarded, publish_later).sweep())


def test_a_cancelled_task_of_the_publisher_stops_its_entity_alone(collection: Any) -> None:
    bodies: list[str] = []

    def publish(events: list[Outgoing]) -> None:
        if any(event.body == "1" for event in events):
            raise asyncio.CancelledError
        bodies.extend(event.body for event in events)

    for n in (1, 2, 3):
        emit(collection, n)
    report = sweep(collection, publish, is_async=True)
    assert (sorted(bodies), [event.body for event, _ in report.failed]) == (["2", "3"], ["1"])
    assert "CancelledError" in str(report.failed[0][1])
    assert [each.event.body for each in Relay(store(collection), publish).waiting()] == ["1"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_relay_ends_by_what_ends_a_program(error: BaseException, is_async: bool, collection: Any) -> None:
    def publish(events: list[Outgoing]) -> None:
        raise error

    emit(collection, 1)
    with pytest.raises(type(error)):
        sweep(collection, publish, is_async=is_async)


def test_an_asynchronous_relay_ends_by_the_cancellation_of_its_own_task_and_by_no_other(collection: Any) -> None:
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
        guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
        relay = AsyncRelay(guarded, publish, clock=Ticks())
        assert len((await relay.sweep()).failed) == 1
        await relay.sweep()

    emit(collection, 1)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert len(calls) == 2


def test_a_database_that_fails_is_waited_for(collection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[SweepReport] = []
    broker = Broker(failures=0, stops_at=1)
    broker.relay = relay = Relay(store(collection), broker)
    emit(collection, 1)
    failures = iter([ConnectionError("down"), None])
    sweep = relay._sweep

    def failing(*arguments: Any) -> Any:
        if error := next(failures, None):
            raise error
        return sweep(*arguments)

    monkeypatch.setattr(relay, "_sweep", failing)
    relay.run(poll=0.001, on_pass=told.append)
    assert isinstance(told[0].error, ConnectionError)
    assert broker.bodies == ["1"]


def test_an_asynchronous_publisher_of_a_blocking_relay_is_refused(collection: Any) -> None:
    async def publish(events: list[Outgoing]) -> None: ...

    emit(collection, 1)
    with pytest.raises(ConfigurationError, match="guard the store with the Async class"):
        Relay(store(collection), publish).sweep()  # type: ignore[arg-type]  # the error is the point


def test_misuse_ends_a_relay_at_once(collection: Any) -> None:
    emit(collection, 1)
    with pytest.raises(ConfigurationError, match="publish returned"):
        Relay(store(collection), lambda _: True).run()  # type: ignore[arg-type, return-value]  # the error is the point
    guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
    with pytest.raises(ConfigurationError, match="publish returned"):
        asyncio.run(AsyncRelay(guarded, lambda _: True).run())  # type: ignore[arg-type, return-value]  # the same


@pytest.mark.parametrize("batch", [0, -1, 1.5, None])
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


def test_a_broken_outbox_does_not_stop_a_sweep_of_the_others(collection: Any) -> None:
    emit(collection, 1)
    emit(collection, 2)
    collection.update_one({"_id": 1}, {"$set": {"ow_events": ["mine"]}})
    swept = Relay(store(collection), lambda _: None).sweep()
    assert (swept.published, [dict(each.entity) for each in swept.broken]) == (1, [{"_id": 1}])
    with moto_table("orders") as table:
        orders = GuardedTable(table, SeenIds(), outbox=OUTBOX)
        orders.put_item(Message("m1"), Item={"orderId": "o"}, emit=[Event("A", 1)])
        table.put_item(Item={"orderId": "p", "ow_events": "mine"})
        swept = Relay(orders, lambda _: None).sweep()
        assert (swept.published, [dict(each.entity) for each in swept.broken]) == (1, [{"orderId": "p"}])
        with pytest.raises(LedgerMismatch):
            Relay(orders, lambda _: None).flush(Key={"orderId": "p"})


def test_keys_of_all_types_name_their_entities_and_one_key_has_one_source() -> None:
    from decimal import Decimal  # noqa: PLC0415  # only here

    from onewrite.dynamodb.outboxes import origin  # noqa: PLC0415  # only here

    assert origin({"pk": "a/b c", "sk": 7}) == origin({"sk": Decimal("7.0"), "pk": "a/b c"}) == "pk=S:a%2Fb%20c/sk=N:7"
    assert origin({"pk": b"\0\xff"}) == "pk=B:AP8="
    assert origin({"pk": Decimal("1E+2")}) == "pk=N:100"
    assert origin({"pk": 10**37 + 1}) == f"pk=N:{10**37 + 1}"
    assert origin({"pk": Decimal("-0")}) == origin({"pk": 0}) == "pk=N:0"
    with pytest.raises(ConfigurationError, match="part of a key"):
        origin({"pk": True})


def test_ids_of_all_types_name_their_documents() -> None:
    from bson import ObjectId  # noqa: PLC0415  # only here

    from onewrite.mongodb.outboxes import origin  # noqa: PLC0415  # only here

    ids = ["1", 1, ObjectId("0" * 24), {"a": 1}, {"a": "1"}, True]
    assert origin(ids[0]) == "_id=S:1"
    assert origin(ids[1]) == "_id=N:1"
    assert origin(ids[2]) == "_id=O:" + "0" * 24
    assert len({origin(each) for each in ids}) == len(ids)


@pytest.mark.parametrize("representation", [UuidRepresentation.STANDARD, UuidRepresentation.PYTHON_LEGACY])
def test_a_uuid_names_the_same_source_whatever_a_client_makes_of_it(representation: int) -> None:
    from onewrite.mongodb.outboxes import origin  # noqa: PLC0415  # only here

    reads: CodecOptions[Any] = CodecOptions(uuid_representation=representation)
    named = UUID(int=1)
    stored = Binary.from_uuid(named, representation)
    assert origin({"part": named}, reads) == origin({"part": stored}, reads) == origin({"part": stored}, CodecOptions())


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


def test_a_stream_handler_begins_nothing_when_its_time_is_up(caplog: pytest.LogCaptureFixture) -> None:
    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 100

    told: list[SweepReport] = []
    with moto_table("orders") as table:
        client = boto3.client("dynamodb", region_name="eu-west-1")
        orders = GuardedTable(client, SeenIds(), table_name=table.name, outbox=OUTBOX)
        orders.put_item(Message("m1"), Item={"orderId": "o"}, emit=[Event("A", 1)])
        event = {"Records": [{"eventName": "INSERT", "dynamodb": {"Keys": {"orderId": {"S": "o"}}}}]}
        published: list[Outgoing] = []
        handler = stream_handler(Relay(orders, published.extend), on_pass=told.append)
        assert handler(event, Context()) == {"batchItemFailures": []}
        assert published == []
        handler(event, None)
        assert (len(published), [swept.published for swept in told]) == (1, [0, 1])
        wrong: Any = stream_handler(Relay(orders, lambda _: True))  # type: ignore[arg-type, return-value]  # the error is the point
        orders.update_item(Message("m2"), Key={"orderId": "o"}, UpdateExpression="REMOVE a", emit=[Event("A", 1)])
        with pytest.raises(ConfigurationError):
            wrong(event, None)
        client.delete_table(TableName=table.name)
        assert handler(event, None) == {"batchItemFailures": []}
        assert "a sweep will find" in caplog.text
        client.close()


def test_a_token_is_kept_in_a_file_and_a_file_that_is_no_token_is_none(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "token")
    assert tokens.load() is None
    tokens.save({"_data": "82"})
    assert tokens.load() == {"_data": "82"}
    (tmp_path / "token").write_text("[1]")
    assert tokens.load() is None
    (tmp_path / "token").write_text("{")
    assert tokens.load() is None
    tokens.save(None)
    tokens.save(None)
    assert not (tmp_path / "token").exists()


def test_a_relay_that_follows_goes_on_after_a_failure(
    collection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[SweepReport] = []

    def stop(swept: SweepReport, relay: Any) -> None:
        told.append(swept)
        relay.stop()

    def watch(*_: Any, **__: Any) -> Any:
        raise ConnectionError

    async def awatch(*_: Any, **__: Any) -> Any:
        raise ConnectionError

    relay = Relay(store(collection), lambda _: None)
    monkeypatch.setattr(relay._boxes, "watched", SimpleNamespace(watch=watch))
    relay.follow(TokenFile(tmp_path / "token"), on_pass=lambda swept: stop(swept, relay))
    guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)

    async def follow() -> None:
        asynchronous = AsyncRelay(guarded, lambda _: None)
        monkeypatch.setattr(asynchronous._boxes, "watched", SimpleNamespace(watch=awatch))
        await asynchronous.follow(TokenFile(tmp_path / "token"), on_pass=lambda swept: stop(swept, asynchronous))

    asyncio.run(follow())
    assert [type(swept.error).__name__ for swept in told if swept.error is not None] == [
        "ConnectionError",
        "ConnectionError",
    ]


def test_a_misuse_of_the_store_ends_a_relay_that_follows(
    collection: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misused(*_: Any, **__: Any) -> Any:
        raise ConfigurationError("wrong")

    async def follow() -> None:
        guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
        asynchronous = AsyncRelay(guarded, lambda _: None)
        monkeypatch.setattr(asynchronous._boxes, "watched", SimpleNamespace(watch=misused))
        await asynchronous.follow(TokenFile(tmp_path / "token"))

    relay = Relay(store(collection), lambda _: None)
    monkeypatch.setattr(relay._boxes, "watched", SimpleNamespace(watch=misused))
    with pytest.raises(ConfigurationError):
        relay.follow(TokenFile(tmp_path / "token"))
    with pytest.raises(ConfigurationError):
        asyncio.run(follow())


def test_an_operator_skips_what_was_listed_with_either_class(collection: Any) -> None:
    emit(collection, 1)
    (waiting,) = Relay(store(collection), lambda _: None).waiting()
    event: Any = {"source": waiting.event.source, "id": waiting.event.id}
    guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
    skipped = asyncio.run(AsyncRelay(guarded, lambda _: None).skip(**event))
    assert skipped is not None
    assert skipped == Relay(store(collection), lambda _: None).skip(**event)


def test_a_doorbell_names_a_document_by_any_filter_that_a_write_takes(collection: Any) -> None:
    queries: list[dict[str, Any]] = [{"_id": 1}, {"_id": {"$eq": 1}}, {"$and": [{"_id": 1}]}, {"email": "ann"}]
    for number, query in enumerate(queries):
        change = {"$set": {"email": "ann"}}
        store(collection).update_one(Message(f"m{number}"), {"_id": 1}, change, upsert=True, emit=[Event("A", number)])
        guarded = GuardedCollection(collection, SeenIds(), key=("email",), outbox=OUTBOX)
        assert Relay(guarded, lambda _: None).ring([query]).published == 1


def test_a_doorbell_that_may_name_several_documents_is_refused(collection: Any) -> None:
    with pytest.raises(InvalidUpdate, match="may be several"):
        Relay(store(collection), lambda _: None).ring([{"_id": {"$in": [1, 2]}}])


def test_entities_may_be_named_by_an_iterator(collection: Any) -> None:
    for number in range(2):
        store(collection).insert_one(Message(f"m{number}"), {"_id": number}, emit=[Event("A", number)])
    assert Relay(store(collection), lambda _: None).ring({"_id": number} for number in range(2)).published == 2


@pytest.mark.parametrize("entities", [{"_id": "o"}, {"id": "o"}, ["o"]])
def test_a_doorbell_that_names_no_list_of_entities_is_refused(collection: Any, entities: Any) -> None:
    relay = Relay(store(collection), lambda _: None)
    with pytest.raises(ConfigurationError, match="give a list"):
        relay.ring(entities)


def test_an_asynchronous_relay_waits_for_a_database_that_fails(collection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = AsyncGuardedCollection(AsyncStandInCollection(collection), SeenIds(), outbox=OUTBOX)
    relay = AsyncRelay(guarded, lambda _: None)

    def fails(*_: object) -> None:
        relay.stop()
        raise ConnectionError

    monkeypatch.setattr(relay, "_sweep", fails)
    told: list[SweepReport] = []
    asyncio.run(relay.run(on_pass=told.append))
    assert isinstance(told[0].error, ConnectionError)
