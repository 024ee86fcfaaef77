"""However often and in whatever order the two kinds of events mix, the view shows what happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from onewrite import Applied, Missing, Stale
from order_history import OrderHistory, handle
from order_history.events import (
    DeliveryDelivered,
    DeliveryPickedUp,
    Event,
    LineItem,
    OrderApproved,
    OrderCancelled,
    OrderCreated,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
CREATED = OrderCreated("o-1", 1, NOON, "c-1", "Ajanta", (LineItem("Chicken Vindaloo", 2, 1290),))
APPROVED = OrderApproved("o-1", 2, NOON + timedelta(minutes=1))
CANCELLED = OrderCancelled("o-1", 3, NOON + timedelta(minutes=2))
PICKED_UP = DeliveryPickedUp("d-9", "o-1", 1, NOON + timedelta(minutes=30))
DELIVERED = DeliveryDelivered("d-9", "o-1", 2, NOON + timedelta(minutes=45))


def steps(history: OrderHistory) -> list[str]:
    order = history.order("o-1")
    assert order
    return [step["what"] for step in order["steps"]]


def test_created_order_shows_the_ordered_items(history: OrderHistory) -> None:
    assert isinstance(handle(history, CREATED), Applied)

    assert history.order("o-1") == {
        "orderId": "o-1",
        "consumerId": "c-1",
        "creationDate": "2026-03-02T12:00:00.000+00:00",
        "restaurant": "Ajanta",
        "lineItems": [{"name": "Chicken Vindaloo", "quantity": 2, "cents": 1290}],
        "status": "PENDING",
        "steps": [{"what": "CREATED", "at": "2026-03-02T12:00:00.000+00:00"}],
    }


def test_repeated_create_keeps_the_newer_state(history: OrderHistory) -> None:
    handle(history, CREATED)
    handle(history, CANCELLED)

    assert isinstance(handle(history, CREATED), Stale)
    order = history.order("o-1")
    assert order
    assert order["status"] == "CANCELLED"
    assert steps(history) == ["CREATED", "CANCELLED"]


def test_older_event_is_stale_and_changes_nothing(history: OrderHistory) -> None:
    handle(history, CREATED)
    handle(history, DELIVERED)

    outcome = handle(history, PICKED_UP)

    assert isinstance(outcome, Stale)
    assert outcome.mark == DELIVERED.number
    assert steps(history) == ["CREATED", "DELIVERED"]


def test_delivery_event_before_the_create_does_not_lose_the_create(history: OrderHistory) -> None:
    assert isinstance(handle(history, PICKED_UP), Applied)
    assert history.orders_of("c-1").orders == []  # not listed before anybody knows whose order it is

    assert isinstance(handle(history, CREATED), Applied)
    (order,) = history.orders_of("c-1").orders
    assert (order["status"], order["deliveryStatus"], order["restaurant"]) == ("PENDING", "PICKED_UP", "Ajanta")


@pytest.mark.parametrize("early", [APPROVED, CANCELLED])
def test_order_event_waits_for_the_create(history: OrderHistory, early: Event) -> None:
    outcome = handle(history, early)

    assert isinstance(outcome, Missing)
    assert not outcome.settled
    assert history.order("o-1") is None
    assert isinstance(handle(history, CREATED), Applied)
    assert isinstance(handle(history, early), Applied)


def test_any_mix_of_two_sources_gives_the_same_view(history: OrderHistory) -> None:
    for n, mix in enumerate(sorted(set(permutations("ooodd")))):
        order, delivery = f"order-{n}", f"delivery-{n}"
        orders: list[Event] = [
            OrderCreated(order, 1, NOON, "c-1", "Ajanta", ()),
            OrderApproved(order, 2, NOON),
            OrderCancelled(order, 3, NOON),
        ]
        deliveries: list[Event] = [DeliveryPickedUp(delivery, order, 1, NOON), DeliveryDelivered(delivery, order, 2, NOON)]
        sources = {"o": iter(orders), "d": iter(deliveries)}
        events = [next(sources[source]) for source in mix]
        for event in (*events, *events):
            handle(history, event)

        view = history.order(order)
        assert view
        assert (view["status"], view["deliveryStatus"], len(view["steps"])) == ("CANCELLED", "DELIVERED", 5)
