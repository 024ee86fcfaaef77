"""An entity that remembers numbers, as version ow1 of the format stores it. The file that is there is never changed.

`python -m tests.core.test_golden_numbers` writes it anew.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from bson import json_util

from onewrite import Applied, Duplicate, Message, SeenNumbers, Stale
from onewrite.dynamodb import GuardedTable, layout
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import layout as mongodb_layout
from onewrite.testing import mongomock_collection, moto_table
from tests.support.seams import name_calls

FILE = Path(__file__).parents[1] / "golden" / "numbers.json"
NOW = 1_790_000_000.0
LEDGER = SeenNumbers(8)
OUTBOX = "shop/orders/orderId=S:o-1/0f1e2d3c4b5a6978"
MESSAGES = [
    *[Message(f"evt-{n}", source="order-7", sequence=n) for n in (1, 0, 4, 2, 10)],
    Message("evt-5", sequence=5_000_000_000),
    Message("evt-6", source="a.b$c%\0é", sequence=3),
    Message("evt-7", source=OUTBOX, sequence=7),
    Message("evt-8", source="order-7", sequence=8).part("stock"),
]
STALE = [Message("evt-1", source="order-7", sequence=1), Message("evt-0", source="order-7", sequence=0)]
KNOWN = [message for message in MESSAGES if message not in STALE]
FRESH = [Message("evt-11", source="order-7", sequence=11), Message("evt-20", source="order-7", sequence=20)]


def _entities() -> dict[str, Any]:
    """What is stored after all messages, on either engine."""
    names = count()
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        items = name_calls(GuardedTable(table, LEDGER, clock=lambda: NOW), lambda: f"attempt-{next(names)}")
        documents = GuardedCollection(collection, LEDGER, clock=lambda: NOW)
        for message in MESSAGES:
            native: dict[str, Any] = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
            assert isinstance(items.update_item(message, Key={"orderId": "o-1"}, **native), Applied)
            assert isinstance(documents.update_one(message, {"_id": "o-1"}, {"$inc": {"n": 1}}, upsert=True), Applied)
        item = table.get_item(Key={"orderId": "o-1"})["Item"]
        return {"dynamodb": _typed(item), "mongodb": json.loads(json_util.dumps(collection.find_one({"_id": "o-1"})))}


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    """An item as JSON, with its sets and names in order. The tokens have a test of their own."""
    serialize: Any = TypeSerializer().serialize
    typed = {name: serialize(item[name]) for name in sorted(item) if not name.startswith("ow_t")}
    return {name: {"NS": sorted(value["NS"])} if "NS" in value else value for name, value in typed.items()}


def _stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    deserialize: Any = TypeDeserializer().deserialize
    return {name: deserialize(value) for name, value in item.items()}


def test_what_is_written_today_is_what_the_format_says() -> None:
    assert _entities() == _stored()


def test_stored_numbers_are_recognised_and_no_others() -> None:
    for held in (layout.lookup(_plain(_stored()["dynamodb"])), mongodb_layout.lookup(_stored()["mongodb"])):
        answers = [[LEDGER.entry(m, NOW).judge(m, held) for m in each] for each in (KNOWN, STALE, FRESH)]
        assert answers == [[Duplicate(m) for m in KNOWN], [Stale(m, 10) for m in STALE], [None, None]]


if __name__ == "__main__" and not FILE.exists():
    FILE.write_text(json.dumps(_entities(), indent=2, ensure_ascii=False) + "\n")
    sys.stdout.write(f"{FILE}\n")
