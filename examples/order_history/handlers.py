"""Turn an event into one write."""

from __future__ import annotations

from onewrite import Outcome
from order_history.events import (
    DeliveryDelivered,
    DeliveryPickedUp,
    Event,
    OrderApproved,
    OrderCancelled,
    OrderCreated,
    message_of,
)
from order_history.history import OrderHistory


def handle(history: OrderHistory, event: Event) -> Outcome:
    """Apply the event. Acknowledge it if the outcome is `settled`; otherwise leave it to be redelivered."""
    message = message_of(event)
    match event:
        case OrderCreated():
            return history.add_order(
                message,
                event.order_id,
                event.at,
                consumer_id=event.consumer_id,
                restaurant=event.restaurant,
                line_items=event.line_items,
            )
        case OrderApproved():
            return history.note_status(message, event.order_id, "APPROVED", event.at)
        case OrderCancelled():
            return history.note_status(message, event.order_id, "CANCELLED", event.at)
        case DeliveryPickedUp():
            return history.note_delivery(message, event.order_id, "PICKED_UP", event.at)
        case DeliveryDelivered():
            return history.note_delivery(message, event.order_id, "DELIVERED", event.at)
