"""Each service by itself: what it does with what it hears, and what it tells."""

from __future__ import annotations

from typing import Any

import pytest

from onewrite import Applied, Deferred, Duplicate, Event, Message, Rejected, Stale
from onewrite.identity import cloudevent
from onewrite.outbox import Outgoing
from saga import PlaceOrder, Shop
from saga.bad_day import Stores
from saga.shipping import HEAVIEST
from saga.wires import Service

DINNER = PlaceOrder("key-1", "ann", cents=4000, grams=500)
PARTY = PlaceOrder("key-2", "ann", cents=3000, grams=500)
PIANO = PlaceOrder("key-3", "ann", cents=2000, grams=HEAVIEST + 1)


@pytest.fixture(autouse=True)
def account(shop: Shop) -> None:
    shop.credit.open_account(Message("open ann"), "ann", 5000)


def told(shop: Shop, service: Service) -> list[Message]:
    """What the service has to tell, as others hear it."""
    events: list[Outgoing] = []

    def publish(batch: list[Outgoing]) -> list[Outgoing]:
        events.extend(batch)
        return []

    shop.relay(service, publish).sweep()
    return [cloudevent()({"messageId": "any", "body": event.cloudevent()}) for event in events]


def types(messages: list[Message]) -> list[str]:
    return [message.attributes["type"] for message in messages]


def left(stores: Stores) -> int:
    account = stores.accounts.find_one({"_id": "ann"})
    assert account
    return int(account["available"])


def status(shop: Shop, order_id: str) -> Any:
    order = shop.orders.order(order_id)
    assert order
    return order["status"]


# --- orders -----------------------------------------------------------------------------------------------------------


def test_order_placed_twice_with_one_key_is_placed_once(shop: Shop) -> None:
    reply, order_id = shop.orders.place(DINNER)

    assert reply == "created"
    assert shop.orders.place(DINNER) == ("created before", order_id)
    assert types(told(shop, "orders")) == ["OrderPlaced"]


def test_key_of_another_order_is_refused(shop: Shop) -> None:
    shop.orders.place(DINNER)

    reply, _ = shop.orders.place(PlaceOrder("key-1", "ann", cents=99, grams=500))
    assert reply == "this key was used for another order"


def test_late_event_does_not_move_an_order_back(shop: Shop) -> None:
    _, order_id = shop.orders.place(DINNER)
    [placed] = told(shop, "orders")
    shop.credit.handle(placed)
    [reserved] = told(shop, "credit")
    assert isinstance(shop.orders.handle(reserved), Applied)

    forgotten = Message(f"{reserved.id} as if it were new", body=reserved.body, attributes=reserved.attributes)
    assert isinstance(shop.orders.handle(forgotten), Rejected)
    assert status(shop, order_id) == "CONFIRMED"
    assert types(told(shop, "orders")) == ["OrderConfirmed"]


# --- credit -----------------------------------------------------------------------------------------------------------


def test_credit_is_reserved_once_or_refused(shop: Shop, stores: Stores) -> None:
    shop.orders.place(DINNER)
    shop.orders.place(PARTY)
    dinner, party = sorted(told(shop, "orders"), key=lambda message: -message.body["order"]["cents"])

    assert [type(shop.credit.handle(message)) for message in (dinner, dinner, party)] == [Applied, Duplicate, Applied]
    assert left(stores) == 1000
    assert types(told(shop, "credit")) == ["CreditReserved", "CreditRefused"]


def test_refusal_stays_after_credit_was_raised(shop: Shop, stores: Stores) -> None:
    shop.orders.place(PlaceOrder("key-1", "ann", cents=6000, grams=500))
    [placed] = told(shop, "orders")
    shop.credit.handle(placed)
    stores.accounts.update_one({"_id": "ann"}, {"$inc": {"available": 9000}})

    assert isinstance(shop.credit.handle(placed), Duplicate)
    assert left(stores) == 14_000
    assert types(told(shop, "credit")) == ["CreditRefused"]


def test_credit_of_an_unshippable_order_returns_once(shop: Shop, stores: Stores) -> None:
    _, order_id = shop.orders.place(PIANO)
    for teller, listener in (("orders", "credit"), ("credit", "orders")):
        for message in told(shop, teller):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a loop over literals makes them text
            getattr(shop, listener).handle(message)
    assert left(stores) == 3000
    [confirmed] = told(shop, "orders")
    shop.shipping.guarded.remember(Message("before", source=confirmed.source, sequence=1), Key={"orderId": order_id})
    shop.shipping.handle(confirmed)
    [refused] = told(shop, "shipping")
    shop.orders.handle(refused)
    [cancelled] = told(shop, "orders")

    assert [type(shop.credit.handle(cancelled)) for _ in range(2)] == [Applied, Duplicate]
    assert left(stores) == 5000
    [released] = told(shop, "credit")
    shop.orders.handle(released)
    assert status(shop, order_id) == "CANCELLED"


# --- shipping ---------------------------------------------------------------------------------------------------------


def placed_and_confirmed(shop: Shop) -> tuple[Message, Message]:
    shop.orders.place(DINNER)
    [placed] = told(shop, "orders")
    shop.credit.handle(placed)
    [reserved] = told(shop, "credit")
    shop.orders.handle(reserved)
    [confirmed] = told(shop, "orders")
    return placed, confirmed


def test_parcel_waits_for_earlier_events_of_its_order(shop: Shop) -> None:
    placed, confirmed = placed_and_confirmed(shop)

    assert isinstance(shop.shipping.handle(confirmed), Deferred)
    assert isinstance(shop.shipping.handle(placed), Applied)
    assert isinstance(shop.shipping.handle(confirmed), Applied)
    assert isinstance(shop.shipping.handle(placed), Stale)
    assert types(told(shop, "shipping")) == ["OrderShipped"]


def test_parcel_does_not_wait_for_a_skipped_event(shop: Shop) -> None:
    _, order_id = shop.orders.place(DINNER)
    relay = shop.relay("orders", lambda events: events)  # refuses all
    [refused] = relay.sweep().refused
    relay.skip(Key={"orderId": order_id}, id=refused.id)
    [skipped] = told(shop, "orders")

    assert types([skipped]) == ["onewrite.skipped"]
    assert shop.credit.handle(skipped) is None
    assert isinstance(shop.shipping.handle(skipped), Applied)
    assert shop.shipping.guarded.get_item(Key={"orderId": order_id}) == {"orderId": order_id}


# --- what is not known here -------------------------------------------------------------------------------------------


def test_event_of_a_newer_type_is_ignored(shop: Shop) -> None:
    praised = Event("OrderPraised", {"order": {"id": "o-1"}, "stars": 5})
    shop.orders.guarded.remember(Message("m-1"), Key={"orderId": "o-1"}, emit=[praised])
    [message] = told(shop, "orders")

    assert shop.orders.handle(message) is None
    assert shop.credit.handle(message) is None
    assert isinstance(shop.shipping.handle(message), Applied)


def test_new_field_is_ignored_and_a_missing_one_fails(shop: Shop) -> None:
    complete = {"id": "o-1", "customer_id": "ann", "cents": 100, "grams": 1, "color": "red"}
    for order in (complete, {"id": "o-2"}):
        told_of = Event("OrderPlaced", {"order": order, "at": "noon"})
        shop.orders.guarded.remember(Message("m-1"), Key={"orderId": order["id"]}, emit=[told_of])
    more, less = sorted(told(shop, "orders"), key=lambda message: message.source)

    assert isinstance(shop.credit.handle(more), Applied)
    with pytest.raises(KeyError, match="customer_id"):
        shop.credit.handle(less)
