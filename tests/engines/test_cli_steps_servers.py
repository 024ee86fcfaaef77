"""`onewrite steps` on real servers, over several pages."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from onewrite import Begun, HighWaterMark, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.operate import main
from onewrite.testing.servers.engines import REGION, Dynoxide, Mongod

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

START = 1_790_000_000.0
LEASE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MANY = 250  # more than the first batch of a cursor, which has 101 documents
TEXT = "x" * 20_000  # so they are five pages of a scan, of a megabyte each


def check(option: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["steps", option, name, "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert (found["open"], found["damaged"]) == (MANY, 0)
    assert [step["message"] for step in found["steps"]] == [f"m{n}" for n in reversed(range(MANY - 100, MANY))]
    assert {step["ledger"] for step in found["steps"]} == {"ow_l"}


def test_steps_command_lists_open_steps_of_a_table(
    dynoxide: Dynoxide,
    dynamo: DynamoDBClient,
    table: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for n in range(MANY):
        dynamo.put_item(TableName=table, Item={"id": {"S": f"e{n}"}, "text": {"S": TEXT}})
        store = GuardedTable(
            dynamo, HighWaterMark() if n % 2 else SeenIds(), table_name=table, clock=partial(float, START - n)
        )
        key = {"id": f"e{n}"}
        message = Message(f"m{n}", source="s", sequence=1)
        assert isinstance(store.begin(message, "charge", Key=key, lease=LEASE, safe_for=HOUR), Begun)
    names = {"DEFAULT_REGION": REGION, "ACCESS_KEY_ID": "dummy", "SECRET_ACCESS_KEY": "dummy"}
    for name, value in {**names, "ENDPOINT_URL": dynoxide.endpoint}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    check("--table", table, capsys)


def test_steps_command_lists_open_steps_of_a_collection(
    mongod: Mongod,
    collection: Collection[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collection.insert_many([{"_id": n, "text": TEXT} for n in range(MANY)])
    for n in range(MANY):
        store = GuardedCollection(collection, HighWaterMark() if n % 2 else SeenIds(), clock=partial(float, START - n))
        message = Message(f"m{n}", source="s", sequence=1)
        assert isinstance(store.begin(message, "charge", {"_id": n}, lease=LEASE, safe_for=HOUR), Begun)
    with ExitStack() as stack:  # the command leaves its client to the end of its process
        monkeypatch.setattr(
            "pymongo.MongoClient", lambda uri, **options: stack.enter_context(MongoClient[dict[str, Any]](uri, **options))
        )
        check("--collection", mongod.uri.replace("/?", f"/{collection.full_name}?"), capsys)
