"""Whatever the queue and the workers do: an order ends as its events say, if each source's come in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
from moto import mock_aws

from onewrite import Message
from onewrite.testing import explore
from order_history import OrderHistory, create_table, handle
from order_history.events import DeliveryPickedUp, Event, OrderApproved, OrderCreated, message_of

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
EVENTS: list[Event] = [
    OrderCreated("o-1", 1, NOON, "ajanta-fan", "Ajanta", ()),
    OrderApproved("o-1", 2, NOON),
    DeliveryPickedUp("d-9", "o-1", 1, NOON),
]


def feeding(table: Any) -> Callable[[Message], object]:
    history = OrderHistory(table)
    return lambda message: handle(history, message.body)


def the_order(table: Any) -> Any:
    order = OrderHistory(table).order("o-1")
    assert order is not None
    return {name: order[name] for name in ("status", "deliveryStatus")}, sorted(step["what"] for step in order["steps"])


def test_two_sources_feed_an_order_despite_faults() -> None:
    with mock_aws():
        report = explore(
            feeding,
            messages=[replace(message_of(event), body=event) for event in EVENTS],
            world=lambda: create_table(boto3.resource("dynamodb", region_name="eu-west-1")),
            observe=the_order,
            reorder="within_source",
        )
    report.assert_effectively_once()
    assert report.exhausted
