"""Whatever the queue and the workers do: each service takes what it hears once, and tells of it once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from moto import mock_aws

from onewrite import Message, Outcome
from onewrite.testing import explore, mongomock_collection
from saga import create_table
from saga.credit import Credit
from saga.orders import Orders
from saga.shipping import Shipping

NOW = 1_772_438_400.0
ORDER = {"id": "o-1", "customer_id": "ann", "cents": 4000, "grams": 500}


def heard(kind: str, number: int) -> Message:
    source = "shop/orders/orderId=S:o-1/life"
    return Message(f"{source}:{number}", source=source, sequence=number, body={"order": ORDER}, attributes={"type": kind})


def make_handler(service: type[Orders | Credit | Shipping]) -> Callable[[Any], Callable[[Message], Outcome | None]]:
    def build(store: Any) -> Callable[[Message], Outcome | None]:
        return service(store, clock=lambda: NOW).handle

    return build


def a_table() -> Any:
    return create_table(boto3.resource("dynamodb", region_name="eu-west-1"), "any")


def told(entity: Any) -> list[str]:
    return [event["type"] for event in entity.get("ow_events", [])]


@pytest.mark.parametrize(
    ("available", "expected"),
    [(5000, (1000, ["CreditReserved"])), pytest.param(3000, (3000, ["CreditRefused"]), marks=pytest.mark.slow)],
)
def test_credit_decides_an_order_once(available: int, expected: object) -> None:
    with mongomock_collection("accounts") as accounts:

        def one_customer() -> Any:
            accounts.delete_many({})
            accounts.insert_one({"_id": "ann", "available": available})
            return accounts

        def observe(accounts: Any) -> object:
            account = accounts.find_one({"_id": "ann"})
            return account["available"], told(account)

        report = explore(make_handler(Credit), [heard("OrderPlaced", 1)], one_customer, observe)
        make_handler(Credit)(one_customer())(heard("OrderPlaced", 1))
        assert observe(accounts) == expected
    report.assert_effectively_once()
    assert report.exhausted


def test_credit_is_returned_once() -> None:
    with mongomock_collection("accounts") as accounts:

        def one_customer() -> Any:
            accounts.delete_many({})
            accounts.insert_one({"_id": "ann", "available": 1000})
            return accounts

        def observe(accounts: Any) -> object:
            account = accounts.find_one({"_id": "ann"})
            return account["available"], told(account)

        report = explore(make_handler(Credit), [heard("OrderCancelled", 3)], one_customer, observe)
    report.assert_effectively_once()
    assert report.exhausted


def test_order_is_confirmed_once() -> None:
    def one_order() -> Any:
        table = a_table()
        table.put_item(Item={"orderId": "o-1", "status": "PLACED", "steps": ["PLACED"]})
        return table

    with mock_aws():
        report = explore(make_handler(Orders), [heard("CreditReserved", 7)], one_order, steps_and_events)
    report.assert_effectively_once()
    assert report.exhausted


def test_parcel_is_sent_once_after_the_order() -> None:
    messages = [heard("OrderPlaced", 1), heard("OrderConfirmed", 2)]
    with mock_aws():
        report = explore(make_handler(Shipping), messages, a_table, parcel, faults=0)
    report.assert_effectively_once()
    assert report.exhausted


def steps_and_events(table: Any) -> object:
    item = table.get_item(Key={"orderId": "o-1"})["Item"]
    return item["steps"], told(item)


def parcel(table: Any) -> object:
    item = table.get_item(Key={"orderId": "o-1"})["Item"]
    return item["status"], told(item)
