"""An outbox as version ow1 of the format stores it: each later version must read it, and write it as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onewrite import Event, Message, Outbox, SeenIds
from onewrite.core.event import moment
from onewrite.core.flow import run
from onewrite.core.pending import Box
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.testing import mongomock_collection, moto_table
from tests.support.seams import drawing, name_calls

FILE = Path(__file__).parents[1] / "golden" / "outbox.json"
START = 1_790_000_000.0
OUTBOX = Outbox("shop/orders", index="pending")
NAMES = ("ow_o", "ow_events", "ow_sent", "ow_life", "ow_due", "ow_shard")
FIRST = [Event("OrderPaid", {"cents": 1250, "to": "é"}), Event("OrderPaid", None, cause="c-1")]
SECOND = [Event("OrderShipped", [1], name="parcel")]


def _told(store: Any) -> list[dict[str, Any]]:
    """What a relay would publish of each entity."""
    finder, found = store.outboxes.finder(moment(START + 9)), []
    while (box := run(finder.next(), store.outboxes.target)) is not None:
        if isinstance(box, Box):
            found += [json.loads(event.cloudevent()) for event in box.outgoing_from()]
    return found


def _entities() -> dict[str, Any]:
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        orders = name_calls(GuardedTable(table, SeenIds(), outbox=Outbox("shop/orders"), clock=lambda: START), lambda: "a")
        documents = name_calls(GuardedCollection(collection, SeenIds(), outbox=OUTBOX, clock=lambda: START), lambda: "a")
        indexed = name_calls(GuardedTable(table, SeenIds(), outbox=OUTBOX, clock=lambda: START), lambda: "a")
        for name in ("o-1", "o-2"):
            key, query = {"orderId": name}, {"_id": name}
            store = indexed if name == "o-2" else orders
            store.update_item(Message("m1"), Key=key, UpdateExpression="REMOVE x", emit=FIRST)
            documents.update_one(Message("m1"), query, {"$set": {"n": 1}}, upsert=True, emit=FIRST)
        drawing(Relay(orders, _one(), clock=lambda: START), 1.0).flush(Key={"orderId": "o-1"})
        drawing(Relay(documents, _one(), clock=lambda: START), 1.0).flush({"_id": "o-1"})
        orders.update_item(Message("m2"), Key={"orderId": "o-1"}, UpdateExpression="REMOVE x", emit=SECOND)
        documents.update_one(Message("m2"), {"_id": "o-1"}, {"$set": {"n": 2}}, emit=SECOND)
        stored = {
            "dynamodb": {name: _kept(table.get_item(Key={"orderId": name})["Item"]) for name in ("o-1", "o-2")},
            "mongodb": {name: _kept(collection.find_one({"_id": name}) or {}) for name in ("o-1", "o-2")},
        }
        return {**stored, "published": {"dynamodb": _told(orders), "mongodb": _told(documents)}}


def _one() -> Any:
    """A broker that accepts one event, and refuses all others."""
    answers = iter([False])
    return lambda events: events if next(answers, True) else None


def _kept(entity: dict[str, Any]) -> dict[str, Any]:
    return {name: int(entity[name]) if name in ("ow_sent", "ow_shard") else entity[name] for name in NAMES if name in entity}


def test_outbox_of_today_is_as_the_format_says() -> None:
    assert _entities() == json.loads(FILE.read_text())


if __name__ == "__main__":
    if not FILE.exists():
        FILE.write_text(json.dumps(_entities(), indent=2, ensure_ascii=False) + "\n")
