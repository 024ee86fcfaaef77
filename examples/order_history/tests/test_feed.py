"""What the services publish becomes the event that it is, and what is no event holds up nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from onewrite import Applied, Duplicate, Missing
from order_history import OrderHistory, feed
from order_history.events import (
    DeliveryDelivered,
    DeliveryPickedUp,
    Event,
    LineItem,
    OrderApproved,
    OrderCancelled,
    OrderCreated,
)
from order_history.feed import UnknownEvent, event_of, handler

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ORDER = {"orderId": "o-1", "number": 1, "at": "2026-03-02T12:00:00Z"}
DELIVERY = {"deliveryId": "d-9", **ORDER}
CREATED: dict[str, Any] = {
    "type": "OrderCreated",
    **ORDER,
    "consumerId": "c-1",
    "restaurant": "Ajanta",
    "lineItems": [{"name": "Chicken Vindaloo", "quantity": 2, "cents": 1290}],
}
EVENTS = [
    (CREATED, OrderCreated("o-1", 1, NOON, "c-1", "Ajanta", (LineItem("Chicken Vindaloo", 2, 1290),))),
    ({"type": "OrderApproved", **ORDER}, OrderApproved("o-1", 1, NOON)),
    ({"type": "OrderCancelled", **ORDER}, OrderCancelled("o-1", 1, NOON)),
    ({"type": "DeliveryPickedUp", **DELIVERY}, DeliveryPickedUp("d-9", "o-1", 1, NOON)),
    ({"type": "DeliveryDelivered", **DELIVERY}, DeliveryDelivered("d-9", "o-1", 1, NOON)),
]


@pytest.fixture(autouse=True)
def fed(history: OrderHistory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The function's environment."""
    monkeypatch.setenv("ORDERS_TABLE", "order-history")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    feed.history.cache_clear()
    yield
    feed.history.cache_clear()


def batch(*bodies: object) -> dict[str, Any]:
    return {"Records": [{"messageId": f"b-{n}", "body": json.dumps(body)} for n, body in enumerate(bodies, 1)]}


def failed(answer: Any) -> list[str]:
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


@pytest.mark.parametrize(("body", "event"), EVENTS, ids=lambda value: type(value).__name__)
def test_published_event_is_read_unchanged(body: dict[str, Any], event: Event) -> None:
    assert event_of(body) == event


def test_batch_updates_the_view(history: OrderHistory) -> None:
    delivered = {"type": "DeliveryDelivered", **DELIVERY}

    assert failed(handler(batch(CREATED, delivered, CREATED))) == []
    order = history.order("o-1")
    assert order
    assert (order["status"], order["deliveryStatus"], len(order["steps"])) == ("PENDING", "DELIVERED", 2)


def test_unknown_event_fails_alone(history: OrderHistory) -> None:
    assert failed(handler(batch({"type": "OrderEaten", **ORDER}, CREATED, "not even an object"))) == ["b-1", "b-3"]
    assert history.order("o-1")


def test_early_event_is_redelivered() -> None:
    early = {"type": "OrderApproved", **ORDER, "number": 2}
    report = handler.run(batch(early, {**CREATED, "orderId": "o-2"}))

    assert [type(outcome) for result in report.results for outcome in result.outcomes] == [Missing, Applied]
    assert failed(report.response) == ["b-1"]


def test_early_event_of_a_batch_follows_its_predecessor() -> None:
    approved = {"type": "OrderApproved", **ORDER, "number": 2}
    report = handler.run(batch(approved, CREATED, approved))

    assert [type(outcome) for result in report.results for outcome in result.outcomes] == [Applied, Applied, Duplicate]
    assert failed(report.response) == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("OrderApproved", "has a type, an orderId, a number and a time"),
        ({"type": "OrderApproved", "orderId": "o-1", "number": 1}, "has a type, an orderId, a number and a time"),
        ({"type": "OrderApproved", **ORDER, "number": "one"}, "has a type, an orderId, a number and a time"),
        ({"type": "OrderEaten", **ORDER}, "'OrderEaten' is an event of neither orders nor deliveries"),
        ({"type": "OrderApproved", **ORDER, "at": "noon"}, "'noon' is no time"),
        ({"type": "OrderApproved", **ORDER, "at": "2026-03-02T12:00:00"}, "has no zone"),
        ({"type": "DeliveryPickedUp", **ORDER}, "DeliveryPickedUp that lacks something: 'deliveryId'"),
        ({**CREATED, "lineItems": [{"name": "Ramen"}]}, "OrderCreated that lacks something: 'quantity'"),
        ({**CREATED, "lineItems": None}, "OrderCreated that lacks something"),
    ],
)
def test_invalid_event_is_refused_with_a_reason(body: object, complaint: str) -> None:
    with pytest.raises(UnknownEvent, match=complaint):
        event_of(body)
