"""Open steps as version ow1 of the format stores them: each later version must read them, and write them as they are.

`python -m tests.core.test_golden_steps` writes the file anew. It is never changed: a new format gets a new file.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from bson import json_util

from onewrite import Applied, Begun, HighWaterMark, Message, SeenIds, Uncertain
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import mongomock_collection, moto_table
from tests.support.seams import name_calls

FILE = Path(__file__).parents[1] / "golden" / "steps.json"
NOW = 1_790_000_000.0
ASKED: dict[str, Any] = {"lease": timedelta(minutes=1), "safe_for": timedelta(hours=23)}
MESSAGES = [Message("evt-1"), Message("evt-2", source="order-7é", sequence=7).part("stock"), Message("evt-3", sequence="a")]


def _stores(table: Any, collection: Any, ledger: Any, now: float, names: str) -> tuple[GuardedTable, GuardedCollection]:
    numbers = count()
    items, documents = (
        GuardedTable(table, ledger, clock=lambda: now),
        GuardedCollection(collection, ledger, clock=lambda: now),
    )
    return name_calls(items, lambda: f"{names} {next(numbers)}"), name_calls(documents, lambda: f"{names} {next(numbers)}")


def _entities() -> dict[str, Any]:
    """What is stored while four steps are open, one of which was taken over."""
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        table.put_item(Item={"orderId": "o"})
        collection.insert_one({"_id": "o"})
        for n, message in enumerate(MESSAGES):
            items, documents = _stores(table, collection, SeenIds(), NOW + n, f"call {n}")
            assert isinstance(items.begin(message, "charge", Key={"orderId": "o"}, **ASKED), Begun)
            assert isinstance(documents.begin(message, "charge", {"_id": "o"}, **ASKED), Begun)
        items, documents = _stores(table, collection, HighWaterMark(name="marks"), NOW, "other")
        assert isinstance(items.begin(MESSAGES[1], "mail", Key={"orderId": "o"}, **ASKED), Begun)
        assert isinstance(documents.begin(MESSAGES[1], "mail", {"_id": "o"}, **ASKED), Begun)
        items, documents = _stores(table, collection, SeenIds(), NOW + 61, "taker")
        assert isinstance(items.begin(MESSAGES[0], "charge", Key={"orderId": "o"}, **ASKED), Begun)
        assert isinstance(documents.begin(MESSAGES[0], "charge", {"_id": "o"}, **ASKED), Begun)
        item = table.get_item(Key={"orderId": "o"})["Item"]
        document = json.loads(json_util.dumps(collection.find_one({"_id": "o"})))
    return {"dynamodb": json.loads(json.dumps(item, default=_as_json, sort_keys=True)), "mongodb": document}


def _as_json(value: Any) -> Any:
    return sorted(bytes(member).hex() for member in value) if isinstance(value, set) else int(value)


def _item(stored: dict[str, Any]) -> dict[str, Any]:
    return {**stored, "ow_steps": {Binary(bytes.fromhex(mark)) for mark in stored["ow_steps"]}}


def test_what_is_written_today_is_what_the_format_says() -> None:
    assert _entities() == json.loads(FILE.read_text())


@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
def test_stored_steps_are_found_and_finished(engine: str) -> None:
    stored = json.loads(FILE.read_text())[engine]
    with moto_table("orders") as table, mongomock_collection("orders") as collection:
        items, documents = _stores(table, collection, SeenIds(), NOW + 86_400, "reader")
        if engine == "dynamodb":
            table.put_item(Item=_item(stored))
            steps = items.open_steps(Key={"orderId": "o"})
        else:
            collection.insert_one(json_util.loads(json.dumps(stored)))
            steps = documents.open_steps({"_id": "o"})
        assert [(step.message, type(step)) for step in steps] == [(message, Uncertain) for message in MESSAGES]
        for step in steps:
            assert isinstance(step, Uncertain)
            if engine == "dynamodb":
                outcome = items.record(step.message, Key={"orderId": "o"}, finishes=step)
            else:
                outcome = documents.record(step.message, {"_id": "o"}, finishes=step)
            assert isinstance(outcome, Applied)


if __name__ == "__main__" and not FILE.exists():
    FILE.write_text(json.dumps(_entities(), indent=2, ensure_ascii=False) + "\n")
    sys.stdout.write(f"{FILE}\n")
