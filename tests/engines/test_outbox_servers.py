"""The outbox and its relays on real engines: the sparse index, notifications, and entities that a relay cannot read."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pymongo.collection import Collection

from onewrite import Applied, Event, Message, Outbox, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.errors import ConfigurationError
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay, SweepReport, stream_handler
from onewrite.testing.servers.engines import Dynoxide
from tests.engines.stores import billed, create_table_with_outbox, places, streams_client

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.measured

OUTBOX = Outbox("shop/orders", index="pending", shards=4)


@pytest.fixture
def indexed(dynamo: DynamoDBClient) -> str:
    """The name of a table with the sparse index and a stream."""
    name = next(places)
    create_table_with_outbox(dynamo, name)
    return name


def _emit(orders: GuardedTable, n: int, entity: str, *events: Event) -> None:
    native: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
    outcome = orders.update_item(Message(f"m{n}"), Key={"id": entity}, emit=events or [Event("Paid", n)], **native)
    assert isinstance(outcome, Applied)


def _add(documents: GuardedCollection, n: int) -> None:
    documents.update_one(Message(f"m{n}"), {"_id": f"e{n}"}, {"$set": {"n": n}}, upsert=True, emit=[Event("Added", n)])


def _index_entries(dynamo: DynamoDBClient, table: str) -> int:
    return dynamo.scan(TableName=table, IndexName="pending")["Count"]


@pytest.mark.parametrize(("written", "swept"), [((64,), 1), ((1, 8, 64), 3), ((3,), 64), ((1000, 2), 2)])
@pytest.mark.few(1)
def test_sweep_finds_all_events_for_any_number_of_shards(
    dynamo: DynamoDBClient, indexed: str, written: tuple[int, ...], swept: int
) -> None:
    def orders(shards: int) -> GuardedTable:
        return GuardedTable(
            dynamo, SeenIds(), table_name=indexed, outbox=Outbox("shop/orders", index="pending", shards=shards)
        )

    writers = [orders(shards) for shards in written]
    for n in range(60):
        _emit(writers[n % len(writers)], n, f"o{n}")
    told: list[Outgoing] = []
    relay = Relay(orders(swept), told.extend)
    assert len(relay.pending(limit=100)) == 60
    assert relay.sweep().complete
    assert {event.body for event in told} == {f"{n}" for n in range(60)}
    assert _index_entries(dynamo, indexed) == 0


def test_write_has_known_cost_with_events_and_index(dynamo: DynamoDBClient, table: str, indexed: str) -> None:
    def units(store: GuardedTable, n: int, **emit: Any) -> float:
        native: Any = {"UpdateExpression": "SET a = :a", "ExpressionAttributeValues": {":a": n}}
        outcome = store.update_item(
            Message(f"m{n}"), Key={"id": f"e{id(store)}"}, ReturnConsumedCapacity="TOTAL", **native, **emit
        )
        assert isinstance(outcome, Applied)
        units: float = outcome.response["ConsumedCapacity"]["CapacityUnits"]
        return units

    event = Event("Paid", {"cents": 1250})
    unnamed = Outbox(OUTBOX.name)
    for name, outbox, costs in ((table, unnamed, [1, 1, 1]), (indexed, unnamed, [1, 2, 1]), (indexed, OUTBOX, [1, 2, 1])):
        store = GuardedTable(dynamo, SeenIds(), table_name=name, outbox=outbox)
        assert [units(store, 1), units(store, 2, emit=[event]), units(store, 3, emit=[event])] == costs


@pytest.mark.parametrize(
    ("place", "outbox", "costs"),
    [("indexed", OUTBOX, [3, 3, 2]), ("indexed", Outbox(OUTBOX.name), [3, 3, 2]), ("table", Outbox(OUTBOX.name), [1, 1, 1])],
    ids=["index", "index that is not named", "none"],
)
def test_relay_writes_have_known_costs(
    dynamo: DynamoDBClient, request: pytest.FixtureRequest, place: str, outbox: Outbox, costs: list[int]
) -> None:
    times = itertools.count(1_790_000_000.0)
    name: str = request.getfixturevalue(place)
    orders = GuardedTable(dynamo, SeenIds(), table_name=name, outbox=outbox, clock=lambda: next(times))
    _emit(orders, 1, "a")
    _emit(orders, 2, "a", Event("Poison", 2))
    with billed(dynamo, "UpdateItem") as units:
        Relay(orders, lambda events: [event for event in events if event.type == "Poison"]).flush(Key={"id": "a"})
        Relay(orders, lambda _: None).flush(Key={"id": "a"})
    assert units == costs  # the clear of what was accepted, the next try of what was refused put off, and the last clear


def test_event_lost_from_the_stream_is_published_later(dynoxide: Dynoxide, dynamo: DynamoDBClient, indexed: str) -> None:
    orders = GuardedTable(dynamo, SeenIds(), table_name=indexed, outbox=OUTBOX)
    for n in range(30):  # while nobody listens, for longer than the stream keeps what it tells
        _emit(orders, n, f"o{n % 3}")
    trimmed = len(_stream_records(dynoxide, dynamo, indexed))
    _emit(orders, 30, "o0")
    told: list[Outgoing] = []
    relay = Relay(orders, told.extend)
    stream_handler(relay)({"Records": _stream_records(dynoxide, dynamo, indexed)[trimmed:]}, None)
    assert [(event.entity["id"], event.sequence) for event in told] == [("o0", number) for number in range(1, 12)]
    assert relay.sweep().published == 20
    assert sorted(int(event.body) for event in told) == list(range(31))


def _stream_records(dynoxide: Dynoxide, dynamo: DynamoDBClient, table: str) -> list[dict[str, Any]]:
    streams = streams_client(dynoxide.endpoint)
    arn = dynamo.describe_table(TableName=table)["Table"].get("LatestStreamArn", "")
    records: list[dict[str, Any]] = []
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
        records += streams.get_records(ShardIterator=iterator["ShardIterator"])["Records"]
    streams.close()
    return records


def test_relay_with_index_finds_events_of_relay_without_index(dynamo: DynamoDBClient, indexed: str) -> None:
    plain, orders = (
        GuardedTable(dynamo, SeenIds(), table_name=indexed, outbox=each) for each in (Outbox(OUTBOX.name), OUTBOX)
    )
    for n, entity in enumerate("abc"):
        _emit(orders, n, entity, *[Event(each, n) for each in ("Poison", "Paid", "Paid")])
    refuses = Relay(plain, lambda events: [event for event in events if event.type == "Poison"])
    for each in refuses.pending():
        refuses.skip(source=each.event.source, id=each.event.id)
    once = iter(["a"])

    def publish(events: list[Outgoing]) -> list[Outgoing]:
        for entity in once:
            _emit(orders, 9, entity)  # in between: the sweep does not know of it
        return [event for event in events if event.sequence == 3 and event.source.startswith("shop/orders/id=S:b/")]

    Relay(plain, publish).sweep()
    later = Relay(orders, lambda _: None, clock=lambda: time.time() + 3600)
    assert sorted((each.entity["id"], each.pending) for each in later.pending()) == [("a", 1), ("b", 1)]
    assert later.sweep().published == 2


def test_index_with_one_projected_attribute_is_refused(dynamo: DynamoDBClient) -> None:
    name = next(places)
    create_table_with_outbox(dynamo, name, shows=["n"])
    orders = GuardedTable(dynamo, SeenIds(), table_name=name, outbox=OUTBOX)
    _emit(orders, 1, "o1")
    relay = Relay(orders, lambda _: None)
    for act in (relay.sweep, relay.pending, relay.broken):
        with pytest.raises(ConfigurationError, match="'pending' projects more than the keys"):
            act()


def test_relay_with_index_finds_events_of_writers_without_index(dynamo: DynamoDBClient, indexed: str) -> None:
    writer, reader = (
        GuardedTable(dynamo, SeenIds(), table_name=indexed, outbox=each, tombstones=Tombstones(timedelta(days=14)))
        for each in (Outbox(OUTBOX.name), OUTBOX)
    )
    told: list[Outgoing] = []
    paid = Event("Paid", 1)
    for n in range(8):
        _emit(writer, n, f"updated{n}")
    assert isinstance(writer.put_item(Message("put"), Item={"id": "put"}, emit=[paid]), Applied)
    assert isinstance(writer.delete_item(Message("deleted"), Key={"id": "updated0"}, emit=[paid]), Applied)
    relay = Relay(reader, told.extend)
    assert len(relay.pending(limit=100)) == 9
    swept = relay.sweep()
    assert (swept.published, swept.pending, swept.complete) == (10, 0, True)
    assert _index_entries(dynamo, indexed) == 0


def test_event_of_item_with_long_numeric_key_is_published(dynoxide: Dynoxide) -> None:
    """It comes back written out, and so cannot be sent again; and a Table raises for it."""
    table = dynoxide.table(next(places), "id", types={"id": "N"})
    told, store = list[Outgoing](), GuardedTable(table, SeenIds(), outbox=Outbox("s"))
    keys = [1, Decimal("9.9E+125"), Decimal("-1E+125"), Decimal("1E-130"), Decimal("9" * 38), Decimal("1" * 38 + "E+80")]
    for n, key in enumerate(keys):
        update: Any = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": n}}
        assert isinstance(store.update_item(Message(f"m{n}"), Key={"id": key}, emit=[Event("A", n)], **update), Applied)
    relay = Relay(store, told.extend)
    assert relay.sweep().published == len(keys)
    assert {event.entity["id"]: event.body for event in told} == {key: f"{n}" for n, key in enumerate(keys)}
    assert (relay.pending(), relay.broken()) == ([], [])


@pytest.mark.parametrize("engine", ["dynoxide", "mongod"])
def test_two_relays_seldom_publish_an_event_twice(
    engine: str, dynamo: DynamoDBClient, indexed: str, collection: Collection[dict[str, Any]]
) -> None:
    documents = GuardedCollection(collection, SeenIds(), outbox=OUTBOX)
    table = GuardedTable(dynamo, SeenIds(), table_name=indexed, outbox=OUTBOX)
    for n in range(200):
        _add(documents, n) if engine == "mongod" else _emit(table, n, f"e{n}")
    published: list[str] = []

    def publish(events: list[Outgoing]) -> None:
        published.extend(event.id for event in events)
        time.sleep(0.002)

    relays = [Relay(documents if engine == "mongod" else table, publish, batch=5) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(lambda relay: relay.sweep(), relays)]
    assert len({*published}) == 200
    assert len(published) < 260  # if both took the entities in the same order, nearly all would be published twice


@pytest.mark.parametrize("engine", ["dynoxide", "mongod"])
def test_long_pass_counts_the_remaining_entities(
    engine: str,
    dynamo: DynamoDBClient,
    indexed: str,
    collection: Collection[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onewrite.outbox.passes._MINUTE", 0.0)
    documents = GuardedCollection(collection, SeenIds(), outbox=OUTBOX)
    table = GuardedTable(dynamo, SeenIds(), table_name=indexed, outbox=OUTBOX)
    for n in range(40):
        _add(documents, n) if engine == "mongod" else _emit(table, n, f"e{n}")
    published: list[Outgoing] = []
    counts: list[tuple[int, int]] = []  # after each call: the counted and the pending events

    def on_pass(swept: SweepReport) -> None:
        if not swept.continues:
            relay.stop()
        counts.append((swept.pending, 40 - len(published)))

    relay = Relay(documents if engine == "mongod" else table, published.extend, batch=8)
    relay.run(on_pass=on_pass)
    assert (32, 32) in counts
    assert all(counted <= pending for counted, pending in counts)
    assert counts[-1] == (0, 0)


@pytest.mark.parametrize("odd", [5, None, datetime(2026, 1, 1, tzinfo=UTC), [1]], ids=str)
def test_non_string_due_time_does_not_hide_other_entities(collection: Collection[dict[str, Any]], odd: object) -> None:
    store = GuardedCollection(collection, SeenIds(), outbox=Outbox("s"))
    for n in range(4):
        _add(store, n)
    collection.update_many({"_id": {"$in": ["e1", "e2"]}}, {"$set": {"ow_due": odd}})
    relay = Relay(store, lambda _: None)
    assert [each.entity for each in relay.broken()] == [{"_id": "e1"}, {"_id": "e2"}]
    assert [each.event.body for each in relay.pending()] == ["0", "3"]
    assert relay.sweep().published == 2


def test_document_refused_by_its_validator_does_not_block_other_events(
    collection: Collection[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """As where a validator came later than the document, which then takes no clear."""
    store, published = GuardedCollection(collection, SeenIds(), outbox=Outbox("s")), list[Outgoing]()
    for n in range(30):
        _add(store, n)
    validator = {"$nor": [{"_id": {"$in": [f"e{n}" for n in range(12)]}}]}
    collection.database.command("collMod", collection.name, validator=validator)
    relay = Relay(store, published.extend)
    relay.sweep()
    relay.sweep()
    assert {int(event.body) for event in published} == {*range(30)}
    assert {each.event.source.rpartition("/")[0] for each in relay.pending()} == {f"s/_id=S:e{n}" for n in range(12)}
    assert "WriteError (code 121)" in caplog.text
    collection.database.command("collMod", collection.name, validator={})
    assert Relay(store, published.extend).sweep().published == 12
