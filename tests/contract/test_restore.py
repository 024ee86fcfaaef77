"""The restore of docs/operations.md, with consumers that aren't restored: which events they count once, and which not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from onewrite import Event, HighWaterMark, InSequence, Message, Outbox, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.identity import cloudevent
from onewrite.outbox import Outgoing
from tests.contract.stores import MakeShop, Shop

ORDERS = ("even", "odd")
LEDGERS = [SeenIds(), HighWaterMark(), InSequence()]


@pytest.fixture(scope="module", params=["dynoxide table", "mongod"])
def store(request: pytest.FixtureRequest) -> str:
    """A backup is taken of an engine."""
    return str(request.param)


def take_copies(shop: Shop, orders: Iterable[str]) -> dict[str, dict[str, Any] | None]:
    return {order: shop.raw(order) for order in orders}


def restore(shop: Shop, copies: dict[str, dict[str, Any] | None]) -> None:
    for order, copy in copies.items():
        shop.delete_raw(order)
        if copy is not None:
            shop.put_raw(order, **{name: value for name, value in copy.items() if name not in shop.key(order)})


class Chain:
    """Messages add powers of two to orders, which emit them as events, and a consumer adds up the events of each order.

    The backup is taken when the messages 4 and 5 have emitted events that aren't published yet.
    """

    def __init__(self, make_shop: MakeShop, ledger: Ledger) -> None:
        self.shop, self.views = make_shop(SeenIds(), Outbox("shop/orders")), make_shop(ledger)
        self.queue: list[Outgoing] = []
        self.relay = self.shop.relay(self.queue.extend)
        self.deliver(range(4))
        self.publish()
        self.deliver(range(4, 6), publishes=False)
        self.copies = take_copies(self.shop, [*ORDERS, "new"])
        self.views_copies = take_copies(self.views, ["view-even", "view-odd", "view-new"])
        self.publish()
        self.deliver(range(6, 10))

    def deliver(self, numbers: Iterable[int], *orders: str, publishes: bool = True) -> None:
        for number in numbers:
            for order in orders or [ORDERS[number % 2]]:
                self.shop.add(Message(f"m{number}"), order, 2**number, emit=[Event("Added", 2**number)])
        if publishes:
            self.publish()

    def publish(self) -> None:
        for order in (*ORDERS, "new"):
            self.relay.flush(order)
        while self.queue:
            event = self.queue.pop(0)
            message = cloudevent()({"messageId": "any", "body": event.cloudevent()})
            order = str(next(iter(event.entity.values()))).rpartition("-")[2]
            self.views.add(message, f"view-{order}", message.body)

    def total(self, *orders: str) -> int:
        return sum([int((self.views.get(f"view-{order}") or {"n": 0})["n"]) for order in orders or ORDERS])


@pytest.mark.parametrize("ledger", LEDGERS, ids=lambda ledger: type(ledger).__name__)
def test_each_event_counts_once_if_messages_come_again_in_order(make_shop: MakeShop, ledger: Ledger) -> None:
    chain = Chain(make_shop, ledger)
    assert chain.total() == 2**10 - 1
    restore(chain.shop, chain.copies)
    chain.publish()
    chain.deliver(range(3, 10))  # from a little before the backup
    chain.deliver(range(10, 12))
    assert chain.total() == 2**12 - 1


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()], ids=lambda ledger: type(ledger).__name__)
@pytest.mark.parametrize("restarts", [True, False])
def test_new_events_count_after_a_restart_if_messages_are_lost(make_shop: MakeShop, ledger: Ledger, restarts: bool) -> None:
    chain = Chain(make_shop, ledger)
    restore(chain.shop, chain.copies)
    chain.publish()
    if restarts:
        for order in ORDERS:
            chain.relay.restart(order)
    chain.deliver(range(10, 12))
    assert chain.total() == (2**12 - 1 if restarts else 2**10 - 1)  # without a restart, the consumers have seen the numbers


@pytest.mark.parametrize("ledger", LEDGERS, ids=lambda ledger: type(ledger).__name__)
def test_events_count_twice_after_restart_or_in_a_new_entity(make_shop: MakeShop, ledger: Ledger) -> None:
    chain = Chain(make_shop, ledger)
    chain.deliver([12], "new")
    restore(chain.shop, chain.copies)
    chain.publish()
    for order in ORDERS:
        chain.relay.restart(order)
    chain.deliver(range(6, 10))
    chain.deliver([12], "new")
    assert chain.total() == 2**10 - 1 + sum([2**number for number in range(6, 10)])
    assert chain.total("new") == 2 * 2**12


@pytest.mark.parametrize("ledger", LEDGERS, ids=lambda ledger: type(ledger).__name__)
@pytest.mark.parametrize("restarts", [True, False])
def test_each_event_counts_once_if_consumers_are_restored_too(make_shop: MakeShop, ledger: Ledger, restarts: bool) -> None:
    chain = Chain(make_shop, ledger)
    chain.deliver([12], "new")
    restore(chain.shop, chain.copies)
    restore(chain.views, chain.views_copies)
    chain.publish()
    if restarts:
        for order in ORDERS:
            chain.relay.restart(order)
    chain.deliver(reversed(range(6, 10)))
    chain.deliver([12], "new")
    assert chain.total() == 2**10 - 1
    assert chain.total("new") == 2**12
