"""What outlives a call is a copy: a caller may use its dicts and lists again, for the next entity."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from inspect import isawaitable
from typing import Any

import boto3
import pytest

from onewrite import Applied, Begun, Event, InSequence, Message, Outbox, SeenIds, Tombstones, Uncertain
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.outbox import Outgoing, Relay
from onewrite.testing import mongomock_collection, moto_table
from onewrite.testing.standins.collection import AsyncStandInCollection
from tests.support.seams import name_calls

NOW = 1_790_000_000.0
M = Message("m1")
TOMBSTONES = Tombstones(timedelta(days=14))
SEAMS: Any = {"clock": lambda: NOW, "outbox": Outbox("shop")}
EFFECT: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}


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


# --- effects --------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["dynamodb", "mongodb"])
def effect_at(request: pytest.FixtureRequest) -> Iterator[tuple[Any, dict[str, Any], list[float]]]:
    """A store, the arguments that name an entity of its, and the time."""
    now = [NOW]
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        if request.param == "dynamodb":
            table.put_item(Item={"orderId": "o", "n": 0})
            yield GuardedTable(table, SeenIds(), clock=lambda: now[0]), {"Key": {"orderId": "o"}}, now
        else:
            collection.insert_one({"_id": {"order": "o"}, "n": 0})
            store = GuardedCollection(collection, SeenIds(), clock=lambda: now[0])
            yield store, {"filter": {"_id": {"order": "o"}}}, now


@pytest.mark.parametrize("found_by", [None, "begin_effect", "preview", "open_effects"])
def test_effect_is_finished_if_its_key_dict_was_reused(effect_at: Any, found_by: str | None) -> None:
    store, named, now = effect_at
    own_name = deepcopy(named)
    claim = store.begin_effect(M, "charge", **named, **EFFECT)
    if found_by is not None:
        now[0] += 3600
        found: dict[str, Any] = {
            "begin_effect": lambda: store.begin_effect(M, "charge", **named, **EFFECT),
            "preview": lambda: store.preview(M, **named),
            "open_effects": lambda: store.open_effects(**named)[0],
        }
        claim = found[found_by]()
    assert isinstance(claim, Begun if found_by is None else Uncertain)
    spoil(named)
    assert isinstance(store.remember(M, **own_name, finishes=claim), Applied)


class Spoils:
    """A client or a collection: whenever it is asked something, another task runs first, which spoils the arguments of the call."""

    def __init__(self, target: Any, given: dict[str, Any]) -> None:
        self._target, self._given = target, given

    def with_options(self, **options: Any) -> Spoils:
        return Spoils(self._target.with_options(**options), self._given)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._target, name)
        if not callable(member) or name == "database":
            return member

        async def call(*args: Any, **native: Any) -> Any:
            spoil(self._given)
            answer = member(*args, **native)
            return await answer if isawaitable(answer) else answer

        return call


ITEM: dict[str, Any] = {"Key": {"orderId": "o"}}
SET: dict[str, Any] = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 1}}
REFUSED: dict[str, Any] = {"ConditionExpression": "n > :many", "ExpressionAttributeValues": {":n": 1, ":many": 5}}
# Each takes two requests or more.
LONG: dict[str, tuple[Ledger, str, dict[str, Any]]] = {
    "a refusal moves the mark": (InSequence(), "update_item", {**ITEM, **SET, **REFUSED, "rejected_ok": True}),
    "a delete cleans up": (SeenIds(), "delete_item", ITEM),
    "a batch meets another effect": (SeenIds(), "update_batch", {**ITEM, **SET}),
}


@pytest.mark.parametrize(("ledger", "method", "native"), LONG.values(), ids=LONG)
def test_asynchronous_call_keeps_its_item_if_its_key_is_reused(ledger: Ledger, method: str, native: Any) -> None:
    given, message = deepcopy(native), Message("m1", source="s", sequence=1)
    with moto_table("orders") as table:
        table.put_item(Item={"orderId": "o", "n": 0})
        if method == "update_batch":
            GuardedTable(table, ledger, clock=lambda: NOW).begin_effect(Message("m0"), "charge", **ITEM, **EFFECT)
        client: Any = boto3.client("dynamodb", region_name=table.meta.client.meta.region_name)
        spoils: Any = Spoils(client, given)
        store = AsyncGuardedTable(spoils, ledger, table_name="orders", tombstones=TOMBSTONES, clock=lambda: NOW)
        asyncio.run(
            store.update_batch([message], lambda _: given)
            if method == "update_batch"
            else getattr(store, method)(message, **given)
        )
        (item,) = table.scan()["Items"]
        client.close()
    assert given["Key"] == "spoilt"
    assert "ow_l" in item or "n" not in item


# Each with the document that it leaves behind.
AWAITED: dict[str, tuple[dict[str, Any], Any]] = {
    "update_one": ({"filter": {"_id": {"order": "o"}}, "update": {"$set": {"n": {"is": 1}}}}, {"n": {"is": 1}}),
    "find_one_and_update": ({"filter": {"_id": {"order": "o"}}, "update": {"$set": {"n": {"is": 1}}}}, {"n": {"is": 1}}),
    "remember": ({"filter": {"_id": {"order": "o"}}}, {"n": 0}),
    "delete_one": ({"filter": {"_id": {"order": "o"}}}, {}),
    "begin_effect": ({"filter": {"_id": {"order": "o"}}, "name": "charge", **EFFECT}, {"n": 0}),
    "preview": ({"filter": {"_id": {"order": "o"}}}, {"n": 0}),
    "open_effects": ({"filter": {"_id": {"order": "o"}}}, {"n": 0}),
    "update_batch": ({"filter": {"_id": {"order": "o"}}, "update": {"$set": {"n": {"is": 1}}}}, {"n": {"is": 1}}),
    "insert_one": ({"document": {"_id": {"order": "new"}, "lines": [{"cents": 1}]}}, {"n": 0}),
}


@pytest.mark.parametrize("method", AWAITED)
def test_asynchronous_write_copies_arguments_before_its_first_request(method: str) -> None:
    ledger = SeenIds(readable=True)  # it asks for the indexes first
    with mongomock_collection("orders") as collection:
        collection.insert_one({"_id": {"order": "o"}, "n": 0})
        seen, message = GuardedCollection(collection, ledger), Message("m2", source="s", sequence=2)
        seen.remember(Message("m0", source="s", sequence=0), {"_id": {"order": "o"}})
        given, left = deepcopy(AWAITED[method])
        awaited: Any = AsyncStandInCollection(collection)
        store = AsyncGuardedCollection(Spoils(awaited, given), ledger, tombstones=TOMBSTONES, clock=lambda: NOW)
        arguments = () if method == "open_effects" else (message,)
        if method == "update_batch":
            answer = asyncio.run(store.update_batch([message, Message("m3", source="s", sequence=3)], lambda _: given))
        else:
            answer = asyncio.run(getattr(store, method)(*arguments, **given))
        assert "spoilt" in repr(given)
        documents = {document["_id"]["order"]: document for document in collection.find()}
    assert documents.keys() == ({"o", "new"} if method == "insert_one" else {"o"})
    assert {name: documents["o"][name] for name in ("n",) if name in documents["o"]} == left
    if method == "insert_one":
        assert documents["new"]["lines"] == [{"cents": 1}]
    assert isinstance(answer, list | Applied | Begun) or method == "preview"


# --- batches and relays ---------------------------------------------------------------------------------------------------


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
            assert relay.pending() == []
    assert len(told) == len({*told}) == 6
