"""Shipping: one DynamoDB item per parcel, with the order's ID.

    {"orderId": "4f9c", "status": "SENT"}

The ledger is `InSequence`: a parcel receives events of one order only, from its creation on, and that order numbers its events 1, 2, 3.
The queue keeps no order, so early events are `Deferred` and redelivered. An event that doesn't concern shipping is recorded
anyway; otherwise the next one would wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from onewrite import InSequence, Message, Outbox, Outcome
from onewrite.dynamodb import GuardedTable
from saga.events import Order, OrderConfirmed, OrderShipped, ShippingRefused, ShopEvent, event_of, order_id_of, telling
from saga.table import INDEX, SHARDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

Status: TypeAlias = Literal["SENT", "REFUSED"]
HEAVIEST = 30_000  # grams, the most that the carrier takes


class Shipping:
    def __init__(self, table: Table, *, clock: Callable[[], float]) -> None:
        outbox = Outbox("shop/shipping", index=INDEX, shards=SHARDS)
        self.guarded = GuardedTable(table, InSequence(), outbox=outbox, clock=clock)

    def handle(self, message: Message) -> Outcome:
        """Handle an event of the orders."""
        match event_of(message):
            case OrderConfirmed(order) if order.grams <= HEAVIEST:
                return self._decide(message, order, "SENT", OrderShipped(order))
            case OrderConfirmed(order):
                return self._decide(message, order, "REFUSED", ShippingRefused(order))
            case _:
                return self.guarded.remember(message, Key={"orderId": order_id_of(message)})

    def _decide(self, message: Message, order: Order, status: Status, event: ShopEvent) -> Outcome:
        return self.guarded.update_item(
            message,
            Key={"orderId": order.id},
            UpdateExpression="SET #status = :status",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":status": status},
            emit=telling(event),
        )
