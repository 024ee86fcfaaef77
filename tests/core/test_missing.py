"""`missing_ok=` is True or False."""

from __future__ import annotations

from typing import Any

import pytest

from onewrite import InvalidUpdate, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import moto_table
from onewrite.testing.standins.stores import mongomock_collection

PAY = Message("pay", "s")


@pytest.mark.parametrize("wrong", [1, None])
def test_missing_ok_is_true_or_false(wrong: Any) -> None:
    documents: Any = GuardedCollection(mongomock_collection("orders"), SeenIds())
    with pytest.raises(InvalidUpdate, match="missing_ok="):
        documents.update_one(PAY, {"_id": "o"}, {"$inc": {"paid": 1}}, missing_ok=wrong)
    with moto_table("orders") as table, pytest.raises(InvalidUpdate, match="missing_ok="):
        GuardedTable(table, SeenIds()).record(PAY, Key={"orderId": "o"}, missing_ok=wrong)
