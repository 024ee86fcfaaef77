"""Events of orders and deliveries. Each order and delivery numbers its own events 1, 2, 3, and they arrive in that order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from onewrite import Message


@dataclass(frozen=True, slots=True)
class LineItem:
    name: str
    quantity: int
    cents: int


@dataclass(frozen=True, slots=True)
class OrderCreated:
    order_id: str
    number: int
    at: datetime
    consumer_id: str
    restaurant: str
    line_items: tuple[LineItem, ...]


@dataclass(frozen=True, slots=True)
class OrderApproved:
    order_id: str
    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class OrderCancelled:
    order_id: str
    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryPickedUp:
    delivery_id: str
    order_id: str
    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryDelivered:
    delivery_id: str
    order_id: str
    number: int
    at: datetime


Event: TypeAlias = OrderCreated | OrderApproved | OrderCancelled | DeliveryPickedUp | DeliveryDelivered


def message_of(event: Event) -> Message:
    """Return the event's message, which is the same on every delivery."""
    match event:
        case DeliveryPickedUp() | DeliveryDelivered():
            source = f"Delivery-{event.delivery_id}"
        case _:
            source = f"Order-{event.order_id}"
    return Message(f"{source}-{event.number}", source=source, sequence=event.number)
