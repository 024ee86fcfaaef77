"""Where a store sends its requests, and which methods it refuses because they would erase its ledger."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from onewrite import HighWaterMark, InvalidUpdate, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing.standins.stores import mongomock_collection

M1 = Message("m1", "s", sequence=1)
KEY: dict[str, Any] = {"Key": {"orderId": "o-1"}}


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("replace_one", "Use update_one"),
        ("find_one_and_replace", "Use find_one_and_update"),
        ("update_many", "update_one"),
    ],
)
def test_a_method_that_erases_ledgers_is_refused(method: str, advice: str) -> None:
    with pytest.raises(InvalidUpdate, match=advice):
        getattr(GuardedCollection(mongomock_collection(), SeenIds()), method)(M1, {"_id": 1}, {"a": 1})
    awaited = AsyncGuardedCollection(mongomock_collection(asynchronous=True), SeenIds())
    with pytest.raises(InvalidUpdate, match=advice):
        asyncio.run(getattr(awaited, method)(M1, {"_id": 1}, {"a": 1}))


def test_table_requests_are_sent_by_the_client() -> None:
    asked: list[dict[str, Any]] = []

    def update_item(**request: Any) -> dict[str, Any]:
        asked.append(request)
        return {}

    client = SimpleNamespace(update_item=update_item, get_item=lambda **_: {})
    table: Any = SimpleNamespace(name="orders", meta=SimpleNamespace(client=client), update_item=pytest.fail)
    guarded = GuardedTable(table, HighWaterMark())
    guarded.update_item(M1, **KEY, UpdateExpression="REMOVE n")
    assert [(each["TableName"], each["Key"]) for each in asked] == [("orders", {"orderId": "o-1"})]
    assert guarded.get_item(**KEY) is None
