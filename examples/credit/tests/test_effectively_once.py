"""Whatever the queue and the workers do: each command is decided once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mongomock

from credit import Customers, ReserveCredit, reserve
from onewrite.testing import explore

DINNER = ReserveCredit("m-1", "c-1", "dinner", 4000)
PARTY = ReserveCredit("m-2", "c-1", "party", 3000)


def reserving(collection: Any) -> Callable[[ReserveCredit], object]:
    customers = Customers(collection, default_limit=5000)
    return lambda command: reserve(customers, command)


def one_customer() -> Any:
    collection: Any = mongomock.MongoClient().shop.customers
    collection.insert_one({"_id": "c-1", "available": 5000, "reservations": [], "released": []})
    return collection


def the_customer(collection: Any) -> Any:
    return collection.find_one({"_id": "c-1"}, {"available": 1, "reservations": 1})


def test_customer_is_opened_and_charged_once() -> None:
    report = explore(reserving, [DINNER], lambda: mongomock.MongoClient().shop.customers, the_customer)
    report.assert_effectively_once()
    assert report.exhausted


def test_concurrent_orders_get_credit_as_if_in_sequence() -> None:
    report = explore(reserving, [DINNER, PARTY], one_customer, the_customer, deliveries=2, faults=1)
    report.assert_effectively_once()
    assert report.exhausted
