"""What outlives a call is a copy: a caller may use its dicts and lists again, for the next entity."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any, NamedTuple, cast

import boto3
import pytest

from onewrite import Applied, Begun, Event, InSequence, Message, Outbox, Outcome, Rejected, SeenIds, Tombstones, Uncertain
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.outbox import Outgoing, Relay
from onewrite.testing import mongomock_collection, moto_table
from onewrite.testing.standins.collection import AsyncStandInCollection
from tests.support.seams import name_calls

NOW = 1_790_000_000.0
M, M1 = Message("m1"), Message("charged")
SEAMS: Any = {"clock": lambda: NOW, "outbox": Outbox("shop")}
STEP: Any = {"lease": timedelta(minutes=1), "safe_for": timedelta(0)}


def spoil(value: Any) -> None:
    """Change every container in it."""
    if isinstance(value, Event):
        spoil(value.body)
    elif isinstance(value, dict):
        for each in value.values():
            spoil(each)
        value.update(dict.fromkeys(value, "spoilt"), spoilt=1)
    elif isinstance(value, list):
        for each in value:
            spoil(each)
        value.append("spoilt")


def events() -> list[Event]:
    return [Event("Paid", {"lines": [{"cents": 1}], "to": {"name": "ann"}})]


# The writes that are prepared, each with all the arguments that hold others.
PREPARED: dict[str, dict[str, dict[str, Any]]] = {
    "dynamodb": {
        "updating": {
            "Key": {"orderId": "o"},
            "UpdateExpression": "SET #a = :a",
            "ConditionExpression": "b = :b",
            "ExpressionAttributeNames": {"#a": "a"},
            "ExpressionAttributeValues": {":a": {"deep": [{"deeper": 1}]}, ":b": [1, [2]]},
        },
        "putting": {
            "Item": {"orderId": "o", "lines": [{"cents": 1}], "to": {"name": {"first": "ann"}}},
            "ConditionExpression": "attribute_not_exists(#a)",
            "ExpressionAttributeNames": {"#a": "a"},
        },
        "recording": {
            "Key": {"orderId": "o"},
            "ConditionExpression": "#b = :b",
            "ExpressionAttributeNames": {"#b": "b"},
            "ExpressionAttributeValues": {":b": {"c": [1]}},
        },
    },
    "mongodb": {
        "updating": {
            "filter": {"_id": {"order": ["o"]}, "n": {"$in": [1, 2]}},
            "update": {"$set": {"a": {"deep": [{"deeper": 1}]}}},
            "array_filters": [{"x": {"$gt": 1}}],
            "let": {"v": [1]},
        },
        "inserting": {"document": {"_id": {"order": "o"}, "lines": [{"cents": 1}]}},
        "recording": {"filter": {"_id": {"order": ["o"]}, "n": {"$in": [1]}}, "let": {"v": [1]}},
    },
}


@pytest.mark.parametrize(("engine", "method"), [(engine, method) for engine in PREPARED for method in PREPARED[engine]])
def test_prepared_write_copies_its_arguments(engine: str, method: str) -> None:
    given = {**deepcopy(PREPARED[engine][method]), "emit": events()}
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        guarded: Any = GuardedTable(table, SeenIds(), **SEAMS)
        if engine == "mongodb":
            guarded = GuardedCollection(collection, SeenIds(), **SEAMS)
        prepared = getattr(name_calls(guarded, lambda: "a call"), method)(**given)
    before = repr(prepared)
    spoil(given)
    assert "spoilt" in repr(given)
    assert repr(prepared) == before


# --- steps --------------------------------------------------------------------------------------------------------------


class Place:
    """An entity whose name is in dicts that are used again, and the update that `then` returns."""

    def __init__(self, store: Any, named: dict[str, Any], update: dict[str, Any], now: list[float]) -> None:
        self.store, self.named, self.now = store, named, now
        self._own_name, self._update = deepcopy(named), update

    def begin(self) -> Any:
        return self.store.begin(M, "charge", **self.named, **STEP)

    def perform(self, effect: Any) -> Any:
        return self.store.perform(M, "charge", effect, then=lambda _: self._update, **self.named, **STEP)

    def finish(self, claim: Any) -> Any:
        return self.store.record(M, **self._own_name, finishes=claim)

    def seen(self) -> Any:
        return self.store.seen(M, **self.named)

    def open_steps(self) -> Any:
        return self.store.open_steps(**self.named)


@pytest.fixture(params=["dynamodb", "mongodb"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    now = [NOW]
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        if request.param == "dynamodb":
            table.put_item(Item={"orderId": "o", "n": 0})
            update: dict[str, Any] = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 1}}
            store: Any = GuardedTable(table, SeenIds(), clock=lambda: now[0])
            yield Place(store, {"Key": {"orderId": "o"}}, update, now)
        else:
            collection.insert_one({"_id": {"order": "o"}, "n": 0})
            store = GuardedCollection(collection, SeenIds(), clock=lambda: now[0])
            yield Place(store, {"filter": {"_id": {"order": "o"}}}, {"update": {"$set": {"n": 1}}}, now)


def test_step_is_finished_if_its_key_dict_was_reused(place: Place) -> None:
    claim = place.begin()
    assert isinstance(claim, Begun)
    spoil(place.named)
    assert isinstance(place.finish(claim), Applied)


@pytest.mark.parametrize("method", ["begin", "seen", "open_steps"])
def test_uncertain_step_is_finished_if_its_key_was_reused(place: Place, method: str) -> None:
    assert isinstance(place.begin(), Begun)
    place.now[0] += 3600
    found = getattr(place, method)()
    claim = found[0] if isinstance(found, list) else found
    assert isinstance(claim, Uncertain)
    spoil(place.named)
    assert isinstance(place.finish(claim), Applied)


class Turns:
    """A client after each of whose answers another task runs, which uses the key for its next item."""

    def __init__(self, client: Any, key: dict[str, str]) -> None:
        self._client, self._key = client, key

    def __getattr__(self, name: str) -> Any:
        async def call(**request: Any) -> Any:
            try:
                return getattr(self._client, name)(**request)
            finally:
                self._key["orderId"] = "another"

        return call


class Writes(NamedTuple):
    """A write that takes two requests, and the attribute by which its item shows the second."""

    ledger: Ledger
    method: str
    native: dict[str, Any]
    answer: type[Outcome]


REFUSED: dict[str, Any] = {"ConditionExpression": "n > :n", "ExpressionAttributeValues": {":n": 5}}
TWICE: dict[str, Writes] = {
    "a refusal moves the mark": Writes(InSequence(), "update_item", {**REFUSED, "UpdateExpression": "SET n = :n"}, Rejected),
    "a refused record moves the mark": Writes(InSequence(), "record", REFUSED, Rejected),
    "a delete cleans up": Writes(SeenIds(), "delete_item", {}, Applied),
}


@pytest.mark.parametrize("case", TWICE.values(), ids=TWICE)
def test_asynchronous_call_keeps_its_item_if_its_key_is_reused(case: Writes) -> None:
    with moto_table("orders") as table:
        for name in ("o", "another"):
            table.put_item(Item={"orderId": name, "n": 0})
        key, plain = {"orderId": "o"}, boto3.client("dynamodb", region_name=table.meta.client.meta.region_name)
        client: Any = Turns(plain, key)
        store = AsyncGuardedTable(
            client, case.ledger, table_name="orders", tombstones=Tombstones(timedelta(days=14)), clock=lambda: NOW
        )
        message = Message("m1", source="s", sequence=1)
        answer = asyncio.run(getattr(store, case.method)(message, Key=key, **case.native))
        assert isinstance(answer, case.answer)
        assert key == {"orderId": "another"}
        found = {name: table.get_item(Key={"orderId": name})["Item"] for name in ("o", "another")}
        assert found["another"] == {"orderId": "another", "n": 0}
        assert "ow_l" in found["o"] or "n" not in found["o"]
        plain.close()


def test_all_requests_of_a_fold_use_copies() -> None:
    with moto_table("orders") as table:
        for name in ("o", "another"):
            table.put_item(Item={"orderId": name, "n": 0})
        GuardedTable(table, SeenIds(), clock=lambda: NOW).begin(Message("m0"), "charge", Key={"orderId": "o"}, **STEP)
        key, plain = {"orderId": "o"}, boto3.client("dynamodb", region_name=table.meta.client.meta.region_name)
        client: Any = Turns(plain, key)
        store = AsyncGuardedTable(client, SeenIds(), table_name="orders", clock=lambda: NOW)
        write: Any = {"Key": key, "UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 1}}
        outcomes = asyncio.run(store.fold([Message("m1"), Message("m2")], lambda _: write))
        assert [type(outcome) for outcome in outcomes] == [Applied, Applied]
        assert table.get_item(Key={"orderId": "another"})["Item"] == {"orderId": "another", "n": 0}
        plain.close()


class Spoils:
    """An asynchronous collection: whenever it is asked something, another task runs first, which spoils the arguments of the call."""

    def __init__(self, collection: Any, given: dict[str, Any]) -> None:
        self._collection, self._given = collection, given

    def with_options(self, **options: Any) -> Spoils:
        return Spoils(self._collection.with_options(**options), self._given)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._collection, name)
        if not callable(member) or name == "database":
            return member

        async def call(*args: Any, **native: Any) -> Any:
            spoil(self._given)
            return await cast("Any", member)(*args, **native)

        return call


# Each with the document that it leaves behind.
AWAITED: dict[str, tuple[dict[str, Any], Any]] = {
    "update_one": ({"filter": {"_id": {"order": "o"}}, "update": {"$set": {"n": {"is": 1}}}}, {"n": {"is": 1}}),
    "find_one_and_update": ({"filter": {"_id": {"order": "o"}}, "update": {"$set": {"n": {"is": 1}}}}, {"n": {"is": 1}}),
    "record": ({"filter": {"_id": {"order": "o"}}}, {"n": 0}),
    "delete_one": ({"filter": {"_id": {"order": "o"}}}, {}),
    "begin": ({"filter": {"_id": {"order": "o"}}, "name": "charge", **STEP}, {"n": 0}),
    "seen": ({"filter": {"_id": {"order": "o"}}}, {"n": 0}),
    "open_steps": ({"filter": {"_id": {"order": "o"}}}, {"n": 0}),
    "fold": ({"filter": {"_id": {"order": "o"}}, "update": {"$set": {"n": {"is": 1}}}}, {"n": {"is": 1}}),
    "insert_one": ({"document": {"_id": {"order": "new"}, "lines": [{"cents": 1}]}}, {"n": 0}),
}


@pytest.mark.parametrize("method", AWAITED)
def test_asynchronous_write_copies_arguments_before_its_first_request(method: str) -> None:
    ledger = SeenIds(readable=True)  # it asks for the indexes first
    with mongomock_collection("orders") as collection:
        collection.insert_one({"_id": {"order": "o"}, "n": 0})
        seen, message = GuardedCollection(collection, ledger), Message("m2", source="s", sequence=2)
        seen.record(Message("m0", source="s", sequence=0), {"_id": {"order": "o"}})
        given, left = deepcopy(AWAITED[method])
        awaited: Any = AsyncStandInCollection(collection)
        store = AsyncGuardedCollection(
            Spoils(awaited, given), ledger, tombstones=Tombstones(timedelta(days=14)), clock=lambda: NOW
        )
        arguments = () if method == "open_steps" else (message,)
        if method == "fold":
            answer = asyncio.run(store.fold([message, Message("m3", source="s", sequence=3)], lambda _: given))
        else:
            answer = asyncio.run(getattr(store, method)(*arguments, **given))
        assert "spoilt" in repr(given)
        documents = {document["_id"]["order"]: document for document in collection.find()}
    assert documents.keys() == ({"o", "new"} if method == "insert_one" else {"o"})
    assert {name: documents["o"][name] for name in ("n",) if name in documents["o"]} == left
    if method == "insert_one":
        assert documents["new"]["lines"] == [{"cents": 1}]
    assert isinstance(answer, list | Applied | Begun) or method == "seen"


# --- folds and relays ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"orderId": "other", "_id": "other"}, {"cents": 5}], ids=repr)
def test_publisher_can_change_an_events_entity(change: dict[str, Any]) -> None:
    """As where it makes a row of it."""
    told: list[str] = []

    def publish(published: list[Outgoing]) -> None:
        for each in published:
            told.append(each.id)
            entity: Any = each.entity
            spoil(entity)
            entity.update(change)

    with mongomock_collection("orders") as collection, moto_table("orders") as table:
        orders, documents = (
            name_calls(GuardedTable(table, SeenIds(), **SEAMS), lambda: "a call"),
            name_calls(GuardedCollection(collection, SeenIds(), **SEAMS), lambda: "a call"),
        )
        orders.update_item(M, Key={"orderId": "o"}, UpdateExpression="REMOVE x", emit=events() * 3)
        documents.update_one(M, {"_id": {"order": "o"}}, {"$set": {"n": 1}}, upsert=True, emit=events() * 3)
        for store in (orders, documents):
            relay = Relay(store, publish, clock=lambda: NOW + 10)
            assert [relay.sweep().published for _ in range(2)] == [3, 0]
            assert relay.waiting() == []
    assert len(told) == len({*told}) == 6
