"""The table adds up on any bad day, and does not where something is broken."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from onewrite import Message, Outcome
from saga.__main__ import day_of
from saga.bad_day import BadDay, Stores, Trouble, orders_of_the_day
from saga.credit import Credit
from saga.events import CreditReleased, Order, telling

NO_TROUBLE = Trouble(database=0, publish=0, acknowledgement=0, repeat=0)


@pytest.mark.parametrize("seed", [1, 5])
def test_every_order_ends_with_the_right_money(seed: int) -> None:
    counted = day_of(seed, 3)

    assert counted.adds_up, counted
    assert (counted.wanted, counted.unfinished, counted.missing) == (3, 0, 0)
    assert counted.refused + counted.shipped + counted.cancelled == counted.placed
    assert counted.shipped + counted.cancelled == counted.confirmed
    assert min(counted.crashes, counted.copies_dropped) > 0  # it was a bad one


def test_bad_day_does_not_add_up_without_the_guard() -> None:
    counted = day_of(5, 3, guarded=False)

    assert not counted.adds_up
    assert counted.missing != 0


def test_missing_refund_shows_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: Credit, message: Message, order: Order) -> Outcome:
        return self.guarded.remember(message, {"_id": order.customer_id}, emit=telling(CreditReleased(order)))

    monkeypatch.setattr(Credit, "_release", release)
    counted = day_of(1, 3, trouble=NO_TROUBLE)

    assert counted.cancelled > 0
    assert counted.missing > 0
    assert not counted.adds_up


def test_every_event_can_be_redelivered_without_effect(stores: Stores) -> None:
    day = BadDay(stores, 4, orders_of_the_day(3, Random(4)), trouble=Trouble())
    day.play()
    before, published = everything_in(stores), [[*each.copies.values()] for each in day.published.values()]
    day.redeliver()

    assert everything_in(stores) == before
    assert [[*each.copies.values()] for each in day.published.values()] == published


def everything_in(stores: Stores) -> Any:
    """With ledgers and outboxes."""
    tables = [
        sorted(table.scan()["Items"], key=lambda item: str(item["orderId"])) for table in (stores.orders, stores.parcels)
    ]
    return tables, sorted(stores.accounts.find(), key=lambda account: str(account["_id"]))
