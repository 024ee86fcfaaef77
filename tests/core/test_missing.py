"""`missing_ok=` and `rejected_ok=` are True or False."""

from __future__ import annotations

from typing import Any

import pytest

from onewrite import Begun, InSequence, InvalidUpdate, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import moto_table
from onewrite.testing.standins.stores import mongomock_collection

PAY = Message("pay", "s")


@pytest.mark.parametrize("name", ["missing_ok", "rejected_ok"])
@pytest.mark.parametrize("wrong", [1, None])
def test_final_refusal_is_true_or_false(name: str, wrong: Any) -> None:
    documents: Any = GuardedCollection(mongomock_collection("orders"), SeenIds())
    with pytest.raises(InvalidUpdate, match=f"{name}: expected True"):
        documents.update_one(PAY, {"_id": "o"}, {"$inc": {"paid": 1}}, **{name: wrong})
    with moto_table("orders") as table, pytest.raises(InvalidUpdate, match=f"{name}: expected True"):
        GuardedTable(table, SeenIds()).remember(PAY, Key={"orderId": "o"}, **{name: wrong})


def test_put_under_a_counting_ledger_cannot_declare_a_refusal_final() -> None:
    with moto_table("orders") as table, pytest.raises(InvalidUpdate, match="remember the refusal"):
        GuardedTable(table, InSequence()).put_item(Message("1", "s", 1), Item={"orderId": "o"}, rejected_ok=True)


def test_finish_of_an_effect_cannot_be_declared_rejected_ok() -> None:
    orders = GuardedCollection(mongomock_collection("orders"), SeenIds())
    effect = Begun(PAY, "key", "f", since=0.0, until=9.0, entity_key={"_id": "o"})
    with pytest.raises(InvalidUpdate, match="Omit rejected_ok"):
        orders.update_one(PAY, {"_id": "o"}, {"$inc": {"paid": 1}}, finishes=effect, rejected_ok=True)
