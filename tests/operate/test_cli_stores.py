"""Which table or collection a verb looks at."""

from __future__ import annotations

from typing import Any

import pytest

from onewrite import ConfigurationError
from onewrite.operate.stores import store_of

NOTHING: dict[str, Any] = dict.fromkeys(("table", "collection", "region", "endpoint_url"))


def test_the_region_and_the_endpoint_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    store = store_of({**NOTHING, "table": "orders", "region": "eu-west-3", "endpoint_url": "http://localhost:8000"})
    assert (store.target.meta.region_name, store.target.meta.endpoint_url) == ("eu-west-3", "http://localhost:8000")


def test_a_collection_is_named_by_its_url() -> None:
    store = store_of({**NOTHING, "collection": "mongodb://127.0.0.1:1/shop.orders?connect=false"})
    assert store.name == "shop.orders"
    store.target.database.client.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "and not both"),
        ({"table": "orders", "collection": "mongodb://127.0.0.1/shop.orders"}, "and not both"),
        ({"collection": "mongodb://127.0.0.1/shop.orders", "region": "eu-west-1"}, "--region goes with --table"),
        ({"collection": "mongodb://secret@127.0.0.1/shop"}, "A collection is given as"),
        ({"collection": "mongodb://u:secret@h/shop..orders"}, "A collection is given as"),
        ({"collection": "mongodb://u:secret@[::1/shop.orders"}, "A collection is given as"),
        ({"collection": "mongodb://u:secret@h/shop.orders?tls=true&tlsCAFile=/none"}, "cannot be reached by this URI"),
        ({"table": "orders", "region": "eu-west-1", "endpoint_url": "no url"}, "There is no client for dynamodb"),
    ],
)
def test_what_names_no_store_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        store_of({**NOTHING, **given})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("query", "seconds"), [("", 5), ("?appName=x&SERVERSELECTIONTIMEOUTMS=7000", 7)])
def test_an_operator_waits_five_seconds_for_a_server_unless_the_url_says_otherwise(query: str, seconds: float) -> None:
    store = store_of({**NOTHING, "collection": f"mongodb://127.0.0.1:1/shop.orders{query}"})
    assert store.target.database.client.options.server_selection_timeout == seconds
    store.target.database.client.close()


def test_without_a_region_it_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_REGION", "eu-west-1")  # which boto3 does not read
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="give --region, or set AWS_DEFAULT_REGION"):
        store_of({**NOTHING, "table": "orders"})
