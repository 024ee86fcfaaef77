"""Every type of both databases, at the top of an entity and inside of it, passes through every verb."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import bson
import pytest
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.collection import Collection

from onewrite import Event, HighWaterMark, Message, Outbox, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.operate import main
from tests.support.repairs import NOW, log_as_it_was

pytestmark = pytest.mark.measured

LEDGERS: list[tuple[Ledger, Message]] = [
    (SeenIds(), Message("m1", source="s")),
    (SeenIds(None, readable=True, name="text"), Message("m1", source="s")),
    (HighWaterMark(name="marks"), Message("m1", source="s", sequence=4)),
]
AN_ID = bson.ObjectId("0123456789abcdef01234567")
ITEM_TYPES: dict[str, Any] = {
    "S": {"S": "text"},
    "N": {"N": "1.5"},
    "large N": {"N": "1" + "0" * 120},
    "B": {"B": b"\xff\x00"},
    "SS": {"SS": ["a", "b"]},
    "NS": {"NS": ["1", "2.5"]},
    "BS": {"BS": [b"\xff", b"\x00"]},
    "M": {"M": {"in": {"B": b"\xff"}}},
    "L": {"L": [{"B": b"\xff"}, {"NULL": True}, {"SS": ["a"]}]},
    "BOOL": {"BOOL": True},
    "NULL": {"NULL": True},
}
DOCUMENT_TYPES: dict[str, Any] = {
    "double": 1.5,
    "infinity": float("inf"),
    "NaN": float("nan"),
    "string": "text",
    "document": {"in": bson.Binary(b"\xff", 128)},
    "array": [[1], {"a": [None]}, bson.Regex("x")],
    "binary": bson.Binary(b"\xff\x00", 0),
    "UUID": UUID(int=7),
    "legacy UUID": bson.Binary(bytes(16), 3),
    "ObjectId": AN_ID,
    "bool": True,
    "date": datetime(2026, 1, 1, tzinfo=UTC),
    "a date after Python's": bson.DatetimeMS(10**15),
    "null": None,
    "regex": bson.Regex("^a", "i"),
    "code": bson.Code("f()"),
    "code with scope": bson.Code("f()", {"a": 1}),
    "int32": 5,
    "int64": bson.Int64(2**60),
    "timestamp": bson.Timestamp(1, 2),
    "decimal": bson.Decimal128("1.50"),
    "min": bson.MinKey(),
    "max": bson.MaxKey(),
    "reference": bson.DBRef("c", {"a": [1]}),
}
CODEC: CodecOptions[Any] = CodecOptions(
    uuid_representation=UuidRepresentation.STANDARD, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("time.time", lambda: NOW)
    with log_as_it_was():
        yield


def run(capsys: pytest.CaptureFixture[str], *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
    capsys.readouterr()
    code = main([*arguments, "--json"])
    printed = capsys.readouterr()
    assert code in codes, (arguments, code, printed.err)
    assert "bug in onewrite" not in printed.err
    assert "Traceback" not in printed.err
    return json.loads(printed.out) if code in (0, 5) and printed.out else None


def go_through(capsys: pytest.CaptureFixture[str], store: tuple[str, str], key: str) -> None:
    """All verbs that look at a store or change it. The entity has three ledgers, which hold message m1 of source s, and an outbox."""
    one, about = (*store, "--key", key), ("--message", "m1", "--source", "s", "--sequence", "4")
    assert main(["inspect", *one]) == 0
    found = run(capsys, "inspect", *one, *about)
    assert {each["outcome"] for each in found["predictions"]} == {"Duplicate"}
    assert run(capsys, "inspect", *one, "--message", "m2", "--source", "s", "--sequence", "5")["predictions"]
    run(capsys, "inspect", *one, "--message", "m1")  # it guesses other sources by the fields of the entity
    assert run(capsys, "forget", "--message", "m1", *one, "--source", "s", "--attribute", "ow_l", "--yes")["written"]
    run(capsys, "forget", "--message", "m3", *one, codes=(2, 4))
    assert run(capsys, "set-mark", "--sequence", "-3", *one, "--source", "s", "--attribute", "ow_marks:l", "--yes")[
        "written"
    ]
    assert run(capsys, "clear", *one, "--attribute", "ow_text:l", "--yes")["written"]
    assert run(capsys, "effects", *store)["open"] == 0
    run(capsys, "doctor", *store, codes=(0, 5))
    assert run(capsys, "relay", *store, "--outbox", "shop", "--stuck", codes=(5,))["stuck"]


@pytest.mark.parametrize("nested", [False, True], ids=["top", "nested"])
@pytest.mark.parametrize("kind", ITEM_TYPES)
@pytest.mark.few(3)
def test_commands_accept_item_attribute_of_every_type(
    kind: str, nested: bool, dynamo: Any, table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"M": {"a": {"L": [ITEM_TYPES[kind]]}}} if nested else ITEM_TYPES[kind]
    dynamo.put_item(TableName=table, Item={"id": {"S": "e"}, "value": value, "held": {"SS": ["m8"]}})
    write_item(dynamo, table, {"id": "e"})
    monkeypatch.setattr("onewrite.operate.stores.make_client", lambda *_: dynamo)
    go_through(capsys, ("--table", table), '{"id": "e"}')


def write_item(dynamo: Any, table: str, key: dict[str, Any]) -> None:
    for n, (ledger, message) in enumerate(LEDGERS):
        store = GuardedTable(dynamo, ledger, table_name=table, clock=lambda: NOW, outbox=Outbox("shop"))
        store.remember(message, Key=key, emit=[] if n else [Event("E", 1)])


def write_document(documents: Collection[Any], key: Any) -> None:
    for n, (ledger, message) in enumerate(LEDGERS):
        store = GuardedCollection(documents, ledger, clock=lambda: NOW, outbox=Outbox("shop"))
        store.remember(message, {"_id": key}, emit=[] if n else [Event("E", 1)])


@pytest.mark.parametrize("nested", [False, True], ids=["top", "nested"])
@pytest.mark.parametrize("kind", DOCUMENT_TYPES)
@pytest.mark.few(4)
def test_commands_accept_document_field_of_every_type(
    kind: str, nested: bool, collection: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"a": [DOCUMENT_TYPES[kind]]} if nested else DOCUMENT_TYPES[kind]
    collection.with_options(codec_options=CODEC).insert_one({"_id": "e", "value": value, "held": ["m8"]})
    write_document(collection.with_options(codec_options=CODEC), "e")
    monkeypatch.setattr("onewrite.operate.stores.open_collection", lambda _: collection)
    monkeypatch.setattr(type(collection.database.client), "close", lambda _: None)
    go_through(capsys, ("--collection", "mongodb://host/shop.orders"), "e")


EQUAL_IN_PYTHON: tuple[Any, ...] = (
    *(0, False, 1, True, float("nan"), bson.SON(a=1, b=2), bson.SON(b=2, a=1), "a", bson.Code("a")),
)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_document_is_read_once_despite_equal_python_ids(
    size: int, collection: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    collection.insert_many([{"_id": name} for name in EQUAL_IN_PYTHON])
    for name in EQUAL_IN_PYTHON:
        lease: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}
        GuardedCollection(collection, SeenIds()).begin_effect(Message("m"), "charge", {"_id": name}, **lease)
    monkeypatch.setattr("onewrite.operate.stores.open_collection", lambda _: collection)
    monkeypatch.setattr("onewrite.operate.mongodb._AT_ONCE", size)
    found = run(capsys, "effects", "--collection", "mongodb://host/shop.orders", codes=(5,))
    assert (found["open"], found["damaged"]) == (len(EQUAL_IN_PYTHON), 0)
