"""The events that the three services exchange. Each is emitted by the write that makes it true.

Every event contains the order as it was placed. So each step is one write: no service has to read first, or to ask another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from onewrite import Event, Message

SKIPPED = "onewrite.skipped"


@dataclass(frozen=True, slots=True)
class Order:
    """A shopper's order. It never changes."""

    id: str
    customer_id: str
    cents: int
    grams: int


@dataclass(frozen=True, slots=True)
class ShopEvent:
    order: Order


# --- told by orders ---


class OrderPlaced(ShopEvent): ...


class OrderConfirmed(ShopEvent): ...


class OrderRefused(ShopEvent): ...


class OrderCancelled(ShopEvent): ...


# --- told by credit ---


class CreditReserved(ShopEvent): ...


class CreditRefused(ShopEvent): ...


class CreditReleased(ShopEvent): ...


# --- told by shipping ---


class OrderShipped(ShopEvent): ...


class ShippingRefused(ShopEvent): ...


_TYPES: Mapping[str, type[ShopEvent]] = {
    kind.__name__: kind
    for kind in (
        OrderPlaced,
        OrderConfirmed,
        OrderRefused,
        OrderCancelled,
        CreditReserved,
        CreditRefused,
        CreditReleased,
        OrderShipped,
        ShippingRefused,
    )
}


def telling(event: ShopEvent) -> list[Event]:
    """Return the event for `emit=`: its type is the name of the class, and its body has the fields."""
    return [Event(type(event).__name__, event)]


def event_of(message: Message) -> ShopEvent | None:
    """Return the event of a message, or None if its type is unknown, such as that of a skipped event.

    Unknown types and fields from a newer service are ignored. A missing field is a `KeyError`, and the message fails.
    """
    kind = _TYPES.get(message.attributes["type"])
    return None if kind is None else kind(_order(message.body["order"]))


def order_id_of(message: Message) -> str:
    """Return the order ID of any event of the orders. A skipped event still has the key of its item."""
    if message.attributes["type"] == SKIPPED:
        return str(message.body["entity"]["orderId"])
    return str(message.body["order"]["id"])


def _order(body: Mapping[str, Any]) -> Order:
    return Order(**{field.name: body[field.name] for field in fields(Order)})
