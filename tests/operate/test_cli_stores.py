"""Which table or collection a verb looks at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import bson
import pytest
from bson import Binary, Decimal128, ObjectId

from onewrite import ConfigurationError
from onewrite.dynamodb.values import plain_values
from onewrite.operate import dynamodb, mongodb
from onewrite.operate.stores import close_clients, open_store

NOTHING: dict[str, Any] = dict.fromkeys(("table", "collection", "region", "endpoint_url"))


def test_collection_is_selected_by_its_url() -> None:
    store = open_store({**NOTHING, "collection": "mongodb://127.0.0.1:1/shop.orders?connect=false"})
    assert store.name == "shop.orders"
    close_clients()


@pytest.mark.parametrize(
    "key",
    [
        {"id": {"S": 'é"\x1b\n'}, "at": {"N": "123456789012345678901234567890.00000001"}},
        {"id": {"B": b"\x00\xff"}},
        {"id": {"N": "10000000000000000000000000000000000001"}, "at": {"N": "-0.1"}},
    ],
)
def test_key_option_accepts_a_listed_item(key: dict[str, Any]) -> None:
    text = dynamodb.format_key(plain_values(key))
    assert (dynamodb.TableStore(None, "orders").parse_key(text), text.isprintable()) == (key, True)


@pytest.mark.parametrize(
    "own_id",
    [
        'é"\x1b\n',
        2**62,
        True,
        None,
        {"$or": [1]},
        [1, {"a": b"x"}],
        b"\x00",
        ObjectId("0" * 24),
        datetime(1801, 1, 1, tzinfo=UTC),
        Decimal128("1.10"),
        Binary.from_uuid(UUID(int=1)),
        Binary(b"0" * 16, 3),
    ],
)
def test_key_option_accepts_a_listed_document(own_id: Any) -> None:
    store = open_store({**NOTHING, "collection": "mongodb://127.0.0.1:1/shop.orders?connect=false"})
    codec = store.target.codec_options.with_options(tz_aware=True)
    stored = bson.encode({"_id": own_id})
    key = store.parse_key(mongodb.format_key(bson.decode(stored, codec)))
    assert bson.encode(key, codec_options=codec) == stored
    close_clients()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Pass either --table"),
        ({"table": "orders", "collection": "mongodb://127.0.0.1/shop.orders"}, "Pass either --table"),
        ({"collection": "mongodb://127.0.0.1/shop.orders", "region": "eu-west-1"}, "--region is for --table"),
        ({"collection": "mongodb://secret@127.0.0.1/shop"}, "--collection: expected"),
        ({"collection": "mongodb://u:secret@h/shop..orders"}, "--collection: expected"),
        ({"collection": "mongodb://u:secret@[::1/shop.orders"}, "--collection: expected"),
        (
            {"collection": "mongodb://u:secret@h/shop.orders?tls=true&tlsCAFile=/none"},
            r"pymongo can't read the MongoDB URI in --collection \(FileNotFoundError\)",
        ),
        (
            {"collection": "mongodb://u:secret/part@h/shop.orders"},
            r"pymongo can't read the MongoDB URI in --collection \(InvalidURI\)",
        ),
        (
            {"collection": "mongodb://h:x/shop.orders"},
            r"pymongo can't read the MongoDB URI in --collection \(ValueError: Port ",
        ),
        ({"table": "orders", "region": "eu-west-1", "endpoint_url": "no url"}, "boto3 can't create a client for dynamodb"),
    ],
)
def test_wrong_store_options_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        open_store({**NOTHING, **given})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("query", "limits"), [("", (5, 5, 60)), ("?appName=x&SERVERSELECTIONTIMEOUTMS=7000&socketTimeoutMS=9000", (7, 5, 9))]
)
def test_url_can_set_timeouts(query: str, limits: tuple[float, ...]) -> None:
    store = open_store({**NOTHING, "collection": f"mongodb://127.0.0.1:1/shop.orders{query}"})
    options = store.target.database.client.options
    pool = options.pool_options
    assert (options.server_selection_timeout, pool.connect_timeout, pool.socket_timeout) == limits
    close_clients()


def test_missing_region_names_the_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_REGION", "eu-west-1")  # which boto3 does not read
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="Pass --region, or set AWS_DEFAULT_REGION"):
        open_store({**NOTHING, "table": "orders"})
