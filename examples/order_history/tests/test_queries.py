"""A consumer's orders: sorted, filtered, a page at a time, and never with the ledger in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from order_history import OrderHistory, handle
from order_history.events import DeliveryPickedUp, OrderApproved, OrderCancelled, OrderCreated
from order_history.history import Status

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def create(history: OrderHistory, order_id: str, at: datetime, consumer_id: str = "c-1") -> None:
    handle(history, OrderCreated(order_id, 1, at, consumer_id, "Ajanta", ()))


@pytest.fixture
def four_orders(history: OrderHistory) -> OrderHistory:
    """Named by age, and created in another order; the second oldest is cancelled, the rest are approved."""
    for hour in (2, 0, 3, 1):
        create(history, f"o-{hour}", NOON + timedelta(hours=hour))
    create(history, "another's", NOON, consumer_id="c-2")
    for hour in (0, 2, 3):
        handle(history, OrderApproved(f"o-{hour}", 2, NOON))
    handle(history, OrderCancelled("o-1", 2, NOON))
    handle(history, DeliveryPickedUp("d-1", "o-3", 1, NOON))
    return history


def ids(orders: list[dict[str, object]]) -> list[object]:
    return [order["orderId"] for order in orders]


def test_consumers_orders_are_sorted_newest_first(four_orders: OrderHistory) -> None:
    page = four_orders.orders_of("c-1")

    assert ids(page.orders) == ["o-3", "o-2", "o-1", "o-0"]
    assert page.token is None


def test_orders_are_sorted_by_time_across_zones(history: OrderHistory) -> None:
    create(history, "earlier", datetime(2026, 3, 2, 13, 30, tzinfo=timezone(timedelta(hours=2))))
    create(history, "later", NOON)

    assert ids(history.orders_of("c-1").orders) == ["later", "earlier"]


def test_orders_are_filtered_by_status(four_orders: OrderHistory) -> None:
    assert ids(four_orders.orders_of("c-1", status="APPROVED").orders) == ["o-3", "o-2", "o-0"]
    assert ids(four_orders.orders_of("c-1", status="CANCELLED").orders) == ["o-1"]
    assert four_orders.orders_of("c-1", status="PENDING").orders == []


@pytest.mark.parametrize(("status", "expected"), [(None, ["o-3", "o-2", "o-1", "o-0"]), ("APPROVED", ["o-3", "o-2", "o-0"])])
def test_paging_one_by_one_shows_every_order_once(
    four_orders: OrderHistory, status: Status | None, expected: list[str]
) -> None:
    seen: list[dict[str, object]] = []
    token = None
    for _ in range(10):  # more pages than orders, so a token which leads nowhere new ends the test
        page = four_orders.orders_of("c-1", status=status, limit=1, token=token)
        assert len(page.orders) <= 1
        seen += page.orders
        token = page.token
        if token is None:
            break

    assert ids(seen) == expected


def test_results_do_not_contain_the_ledger(four_orders: OrderHistory) -> None:
    page = four_orders.orders_of("c-1", limit=1)
    assert page.token
    orders = [*page.orders, *four_orders.orders_of("c-1", token=page.token).orders]

    expected = {"orderId", "consumerId", "creationDate", "restaurant", "lineItems", "status", "steps"}
    assert set(orders[0]) == expected | {"deliveryStatus"}
    assert all(set(order) == expected for order in orders[1:])


def test_page_token_does_not_show_another_consumers_orders(four_orders: OrderHistory) -> None:
    token = four_orders.orders_of("c-1", limit=1).token

    assert "o-2" not in ids(four_orders.orders_of("c-2", token=token).orders)


@pytest.mark.parametrize("token", ["", "é", "bm8=", "WzFd"])
def test_invalid_page_token_is_refused(history: OrderHistory, token: str) -> None:
    with pytest.raises(ValueError, match="no page token"):
        history.orders_of("c-1", token=token)
