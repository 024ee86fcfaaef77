"""Which table or collection a verb looks at."""

from __future__ import annotations

import pytest

from onewrite import ConfigurationError
from onewrite.cli.stores import NamedCollection, NamedTable, named_store


def test_a_table_is_named_as_aws_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    store = named_store("orders", None)
    assert isinstance(store, NamedTable)
    assert store.name == "orders"
    assert store.client.meta.region_name == "eu-west-1"


def test_a_collection_is_named_by_its_url() -> None:
    store = named_store(None, "mongodb://127.0.0.1:1/shop.orders?connect=false")
    assert isinstance(store, NamedCollection)
    assert store.collection.full_name == "shop.orders"
    store.collection.database.client.close()


@pytest.mark.parametrize(("table", "collection"), [(None, None), ("orders", "mongodb://127.0.0.1/shop.orders")])
def test_neither_or_both_are_refused(table: str | None, collection: str | None) -> None:
    with pytest.raises(ConfigurationError, match="and not both"):
        named_store(table, collection)
