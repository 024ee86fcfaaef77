from __future__ import annotations

from collections.abc import Callable

import pytest

from demo import Shop
from demo.handlers import CLAIM, HANDLERS, ONEWRITE, PLAIN
from onewrite import Message

PAYMENT = Message("payment-1", body={"number": 1, "order": "order-1", "amount": 500})


@pytest.mark.parametrize(
    ("handler", "requests_before_death", "times_added"),
    [
        (PLAIN, 0, 1),
        (PLAIN, 1, 2),
        (CLAIM, 0, 1),
        (CLAIM, 1, 0),
        (CLAIM, 2, 1),
        (ONEWRITE, 0, 1),
        (ONEWRITE, 1, 1),
    ],
)
def test_redelivery_after_a_crash_adds_the_payment(
    handler: str, requests_before_death: int, times_added: int, open_shop: Callable[[str], Shop]
) -> None:
    shop = open_shop("shop")
    steps = HANDLERS[handler](shop, PAYMENT)
    for _ in range(requests_before_death):
        next(steps)

    list(HANDLERS[handler](shop, PAYMENT))

    order = shop.order("order-1")
    assert (order.get("journal", []), order.get("cents", 0)) == (["payment-1"] * times_added, 500 * times_added)
