"""Tombstones as version ow1 of the format stores them: each later version must read them, and make them as they are."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from onewrite import Event, Gone, Message, Outbox, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import mongomock_collection, moto_table
from tests.support.seams import name_calls

FILE = Path(__file__).parents[1] / "golden" / "tombstone.json"
NOW = 1_790_000_000.0
NAMES = ("orderId", "_id", "ow_l", "ow_o", "ow_tombstone", "expiresAt", "n")
MADE, DELETED, LATE = Message("made"), Message("deleted"), Message("late")
MORE: Any = {"clock": lambda: NOW, "outbox": Outbox("shop"), "tombstones": Tombstones(timedelta(days=30))}


def _stores(table: Any, collection: Any) -> tuple[GuardedTable, GuardedCollection]:
    stores = GuardedTable(table, SeenIds(), **MORE), GuardedCollection(collection, SeenIds(), **MORE)
    return name_calls(stores[0], lambda: "a"), name_calls(stores[1], lambda: "a")


def _entities() -> dict[str, Any]:
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        orders, documents = _stores(table, collection)
        for name, emit in (("empty", None), ("pending", [Event("Deleted", 1)])):
            orders.put_item(MADE, Item={"orderId": name, "n": 1})
            orders.delete_item(DELETED, Key={"orderId": name}, emit=emit)
            documents.insert_one(MADE, {"_id": name, "n": 1})
            documents.delete_one(DELETED, {"_id": name}, emit=emit)
        return {
            "dynamodb": {name: _kept(table.get_item(Key={"orderId": name})["Item"]) for name in ("empty", "pending")},
            "mongodb": {name: _kept(collection.find_one({"_id": name}) or {}) for name in ("empty", "pending")},
        }


def _kept(entity: dict[str, Any]) -> dict[str, Any]:
    kept = {name: entity[name] for name in NAMES if name in entity}
    return dict(
        json.loads(json.dumps(kept, default=lambda value: str(value) if hasattr(value, "isoformat") else int(value)))
    )


def test_a_tombstone_of_today_is_what_the_format_says() -> None:
    assert _entities() == json.loads(FILE.read_text())


def test_a_tombstone_that_was_stored_refuses_what_comes_late() -> None:
    stored = json.loads(FILE.read_text())
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        for item in stored["dynamodb"].values():
            table.put_item(Item=item)
        collection.insert_many(list(stored["mongodb"].values()))
        orders, documents = _stores(table, collection)
        for name in ("empty", "pending"):
            assert orders.record(LATE, Key={"orderId": name}) == Gone(LATE)
            assert documents.record(LATE, {"_id": name}) == Gone(LATE)


if __name__ == "__main__":
    if not FILE.exists():
        FILE.write_text(json.dumps(_entities(), indent=2, ensure_ascii=False) + "\n")
