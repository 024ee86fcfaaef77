"""Open effects, outboxes and tombstones as version ow1 of the format stores them: each later version must read them, and make them as they are.

`python -m tests.core.test_golden_parts` writes a file that is missing. One that is there is never changed: a new format gets new ones.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from bson import json_util

from onewrite import Applied, Begun, Event, Gone, HighWaterMark, Message, Outbox, SeenIds, Tombstones, Uncertain
from onewrite.core.features.pending import Box
from onewrite.core.flow import run
from onewrite.core.values import moment
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.outbox.passes import keep_order
from onewrite.testing import mongomock_collection, moto_table
from tests.support.seams import drawing, name_calls

FOLDER = Path(__file__).parents[1] / "golden"
NOW = 1_790_000_000.0


def stored(part: str) -> Any:
    return json.loads((FOLDER / f"{part}.json").read_text())


# ---------------------------------------------------------------- effects

ASKED: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(hours=23)}
MESSAGES = [Message("evt-1"), Message("evt-2", source="order-7é", sequence=7).part("stock"), Message("evt-3", sequence="a")]


def _stores(table: Any, collection: Any, ledger: Any, now: float, names: str) -> tuple[GuardedTable, GuardedCollection]:
    numbers = count()
    items, documents = (
        GuardedTable(table, ledger, clock=lambda: now),
        GuardedCollection(collection, ledger, clock=lambda: now),
    )
    return name_calls(items, lambda: f"{names} {next(numbers)}"), name_calls(documents, lambda: f"{names} {next(numbers)}")


def effects() -> dict[str, Any]:
    """What is stored while four effects are open, one of which was taken over."""
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        table.put_item(Item={"orderId": "o"})
        collection.insert_one({"_id": "o"})
        for n, message in enumerate(MESSAGES):
            items, documents = _stores(table, collection, SeenIds(), NOW + n, f"call {n}")
            assert isinstance(items.begin_effect(message, "charge", Key={"orderId": "o"}, **ASKED), Begun)
            assert isinstance(documents.begin_effect(message, "charge", {"_id": "o"}, **ASKED), Begun)
        items, documents = _stores(table, collection, HighWaterMark(name="marks"), NOW, "other")
        assert isinstance(items.begin_effect(MESSAGES[1], "mail", Key={"orderId": "o"}, **ASKED), Begun)
        assert isinstance(documents.begin_effect(MESSAGES[1], "mail", {"_id": "o"}, **ASKED), Begun)
        items, documents = _stores(table, collection, SeenIds(), NOW + 61, "taker")
        assert isinstance(items.begin_effect(MESSAGES[0], "charge", Key={"orderId": "o"}, **ASKED), Begun)
        assert isinstance(documents.begin_effect(MESSAGES[0], "charge", {"_id": "o"}, **ASKED), Begun)
        item = table.get_item(Key={"orderId": "o"})["Item"]
        document = json.loads(json_util.dumps(collection.find_one({"_id": "o"})))
    return {"dynamodb": json.loads(json.dumps(item, default=_effect_as_json, sort_keys=True)), "mongodb": document}


def _effect_as_json(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else int(value)


@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
def test_stored_effects_are_found_and_finished(engine: str) -> None:
    entity = stored("effects")[engine]
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        items, documents = _stores(table, collection, SeenIds(), NOW + 86_400, "reader")
        if engine == "dynamodb":
            table.put_item(Item={**entity, "ow_effects": {*entity["ow_effects"]}})
            effects = items.open_effects(Key={"orderId": "o"})
        else:
            collection.insert_one(json_util.loads(json.dumps(entity)))
            effects = documents.open_effects({"_id": "o"})
        assert [(effect.message, type(effect)) for effect in effects] == [(message, Uncertain) for message in MESSAGES]
        for effect in effects:
            assert isinstance(effect, Uncertain)
            if engine == "dynamodb":
                outcome = items.remember(effect.message, Key={"orderId": "o"}, finishes=effect)
            else:
                outcome = documents.remember(effect.message, {"_id": "o"}, finishes=effect)
            assert isinstance(outcome, Applied)


# ---------------------------------------------------------------- outboxes

OUTBOX = Outbox("shop/orders", index="pending")
BOX = ("ow_o", "ow_events", "ow_sent", "ow_life", "ow_due", "ow_shard")
FIRST = [Event("OrderPaid", {"cents": 1250, "to": "é"}), Event("OrderPaid", None, cause="c-1")]
SECOND = [Event("OrderShipped", [1], name="parcel")]


def _told(store: Any) -> list[dict[str, Any]]:
    """What a relay would publish of each entity."""
    finder, found = store.outboxes.finder(moment(NOW + 9), keep_order), []
    while (box := run(finder.next(), store.outboxes.target)) is not None:
        if isinstance(box, Box):
            found += [json.loads(event.cloudevent()) for event in box.list_outgoing()]
    return found


def outbox() -> dict[str, Any]:
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        orders = name_calls(GuardedTable(table, SeenIds(), outbox=Outbox("shop/orders"), clock=lambda: NOW), lambda: "a")
        documents = name_calls(GuardedCollection(collection, SeenIds(), outbox=OUTBOX, clock=lambda: NOW), lambda: "a")
        indexed = name_calls(GuardedTable(table, SeenIds(), outbox=OUTBOX, clock=lambda: NOW), lambda: "a")
        for name in ("o-1", "o-2"):
            key, query = {"orderId": name}, {"_id": name}
            store = indexed if name == "o-2" else orders
            store.update_item(Message("m1"), Key=key, UpdateExpression="REMOVE x", emit=FIRST)
            documents.update_one(Message("m1"), query, {"$set": {"n": 1}}, upsert=True, emit=FIRST)
        drawing(Relay(orders, _one(), clock=lambda: NOW), 1.0).flush(Key={"orderId": "o-1"})
        drawing(Relay(documents, _one(), clock=lambda: NOW), 1.0).flush({"_id": "o-1"})
        orders.update_item(Message("m2"), Key={"orderId": "o-1"}, UpdateExpression="REMOVE x", emit=SECOND)
        documents.update_one(Message("m2"), {"_id": "o-1"}, {"$set": {"n": 2}}, emit=SECOND)
        made = {
            "dynamodb": {name: _kept_of_outbox(table.get_item(Key={"orderId": name})["Item"]) for name in ("o-1", "o-2")},
            "mongodb": {name: _kept_of_outbox(collection.find_one({"_id": name}) or {}) for name in ("o-1", "o-2")},
        }
        return {**made, "published": {"dynamodb": _told(orders), "mongodb": _told(documents)}}


def _one() -> Any:
    """A broker that accepts one event, and refuses all others."""
    answers = iter([False])
    return lambda events: events if next(answers, True) else None


def _kept_of_outbox(entity: dict[str, Any]) -> dict[str, Any]:
    return {name: int(entity[name]) if name in ("ow_sent", "ow_shard") else entity[name] for name in BOX if name in entity}


# ---------------------------------------------------------------- tombstones

NAMES = ("orderId", "_id", "ow_l", "ow_o", "ow_tombstone", "expiresAt", "n")
MADE, DELETED, LATE = Message("made"), Message("deleted"), Message("late")
MORE: Any = {"clock": lambda: NOW, "outbox": Outbox("shop"), "tombstones": Tombstones(timedelta(days=30))}


def _stores_with_tombstones(table: Any, collection: Any) -> tuple[GuardedTable, GuardedCollection]:
    stores = GuardedTable(table, SeenIds(), **MORE), GuardedCollection(collection, SeenIds(), **MORE)
    return name_calls(stores[0], lambda: "a"), name_calls(stores[1], lambda: "a")


def tombstone() -> dict[str, Any]:
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        orders, documents = _stores_with_tombstones(table, collection)
        for name, emit in (("empty", None), ("pending", [Event("Deleted", 1)])):
            orders.put_item(MADE, Item={"orderId": name, "n": 1})
            orders.delete_item(DELETED, Key={"orderId": name}, emit=emit)
            documents.insert_one(MADE, {"_id": name, "n": 1})
            documents.delete_one(DELETED, {"_id": name}, emit=emit)
        return {
            "dynamodb": {
                name: _kept_of_tombstone(table.get_item(Key={"orderId": name})["Item"]) for name in ("empty", "pending")
            },
            "mongodb": {name: _kept_of_tombstone(collection.find_one({"_id": name}) or {}) for name in ("empty", "pending")},
        }


def _kept_of_tombstone(entity: dict[str, Any]) -> dict[str, Any]:
    kept = {name: entity[name] for name in NAMES if name in entity}
    return dict(
        json.loads(json.dumps(kept, default=lambda value: str(value) if hasattr(value, "isoformat") else int(value)))
    )


def test_stored_tombstone_refuses_late_messages() -> None:
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        for item in stored("tombstone")["dynamodb"].values():
            table.put_item(Item=item)
        collection.insert_many(list(stored("tombstone")["mongodb"].values()))
        orders, documents = _stores_with_tombstones(table, collection)
        for name in ("empty", "pending"):
            assert orders.remember(LATE, Key={"orderId": name}) == Gone(LATE)
            assert documents.remember(LATE, {"_id": name}) == Gone(LATE)


PARTS = {"effects": effects, "outbox": outbox, "tombstone": tombstone}


@pytest.mark.parametrize("part", PARTS)
def test_current_parts_match_the_documented_format(part: str) -> None:
    assert PARTS[part]() == stored(part)


if __name__ == "__main__":
    for name, make in PARTS.items():
        if not (path := FOLDER / f"{name}.json").exists():
            path.write_text(json.dumps(make(), indent=2, ensure_ascii=False) + "\n")
            sys.stdout.write(f"{path}\n")
