"""Entities as version ow1 of the format stores them: each later version must read them, and write them as they are.

`python -m tests.core.test_golden` writes the files anew. A file that is there is never changed: a new format gets new ones.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from bson import json_util

from onewrite import Applied, HighWaterMark, IdSet, Message, SeenIds, sortable
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable, layout
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import layout as mongodb_layout
from onewrite.testing import mongomock_collection, moto_table
from tests.support.seams import name_calls

FOLDER = Path(__file__).parents[1] / "golden"
START, EFFECT = 1_790_000_000.0, 86_400.0 * 3  # messages come every three days, so sets of several generations are there
LEDGERS: dict[str, Ledger] = {
    "seen-14d": SeenIds(),
    "seen-36h-readable": SeenIds(timedelta(hours=36), readable=True),
    "seen-all": SeenIds(retention=None),
    "seen-all-readable": SeenIds(retention=None, readable=True),
    "message-ids": IdSet("messageIDs"),
    "marks": HighWaterMark(),
    "moved": SeenIds(name="seen", previous=HighWaterMark()),
}
MESSAGES = [
    Message("evt-1", sequence=1),
    Message("evt-2", source="order-7", sequence=2),
    Message("evt-3", source="a.b$c%\0é", sequence=3),
    Message("evt-4", source="order-7", sequence=4).part("stock"),
    Message(
        "evt-5",
        source="shard",
        sequence=sortable(49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898),
    ),
]
NEEDS_SOURCE = ("marks", "moved")


def _messages(kind: str) -> list[Message]:
    return [message for message in MESSAGES if message.source or kind not in NEEDS_SOURCE]


FRESH = [Message("evt-6", source="order-8", sequence=6), Message("evt-3", source="order-9", sequence=1)]


def _entities(kind: str) -> dict[str, Any]:
    """What is stored after all messages, on either engine."""
    ledger, messages = LEDGERS[kind], _messages(kind)
    now, names = [START], count()

    def clock() -> float:
        return now[0]

    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        items = name_calls(GuardedTable(table, ledger, clock=clock), lambda: f"attempt-{next(names)}")
        for number, message in enumerate(messages):
            now[0] = START + number * EFFECT
            values = {":one": 1}
            native: dict[str, Any] = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": values}
            assert isinstance(items.update_item(message, Key={"orderId": "o-1"}, **native), Applied)
        documents = GuardedCollection(collection, ledger, clock=clock)
        for number, message in enumerate(messages):
            now[0] = START + number * EFFECT
            assert isinstance(documents.update_one(message, {"_id": "o-1"}, {"$inc": {"n": 1}}, upsert=True), Applied)
        item = table.get_item(Key={"orderId": "o-1"})["Item"]
        return {"dynamodb": _typed(item), "mongodb": json.loads(json_util.dumps(collection.find_one({"_id": "o-1"})))}


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    """An item as JSON, with its sets and names in order."""
    serialize: Any = TypeSerializer().serialize
    found: dict[str, Any] = {}
    for name in sorted(item):
        ((kind, value),) = serialize(item[name]).items()
        found[name] = {kind: sorted(value) if kind == "SS" else value}
    return found


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    deserialize: Any = TypeDeserializer().deserialize
    return {name: deserialize(value) for name, value in item.items()}


def _stored(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{kind}.json").read_text())
    return found


kinds = pytest.mark.parametrize("kind", LEDGERS)


@kinds
def test_current_writes_match_the_documented_format(kind: str) -> None:
    assert _entities(kind) == _stored(kind)


@kinds
@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
def test_only_the_stored_message_is_recognized(kind: str, engine: str) -> None:
    stored, ledger = _stored(kind)[engine], LEDGERS[kind]
    held = (
        layout.lookup(_plain(stored)) if engine == "dynamodb" else mongodb_layout.lookup(json_util.loads(json.dumps(stored)))
    )
    kept = MESSAGES[-1:] if kind == "seen-36h-readable" else _messages(kind)  # the others are older than it remembers
    now = START + (len(_messages(kind)) - 1) * EFFECT
    assert all(ledger.entry(message, now).judge(message, held) is not None for message in kept)
    assert all(ledger.entry(message, now).judge(message, held) is None for message in FRESH)


if __name__ == "__main__":
    for name in LEDGERS:
        path = FOLDER / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(_entities(name), indent=2, ensure_ascii=False) + "\n")
            sys.stdout.write(f"{path}\n")
