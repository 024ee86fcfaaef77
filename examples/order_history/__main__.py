"""Two orders and a delivery, delivered twice and out of order, on an embedded DynamoDB: `python -m order_history`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import boto3
from moto import mock_aws

from order_history.events import (
    DeliveryDelivered,
    DeliveryPickedUp,
    Event,
    LineItem,
    OrderApproved,
    OrderCreated,
    message_of,
)
from order_history.handlers import handle
from order_history.history import OrderHistory
from order_history.table import create_table


def deliveries() -> list[Event]:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    minute = timedelta(minutes=1)
    vindaloo = (LineItem("Chicken Vindaloo", 2, 1290),)
    created = OrderCreated("o-1", 1, noon, "ajanta-fan", "Ajanta", vindaloo)
    approved = OrderApproved("o-1", 2, noon + minute)
    picked_up = DeliveryPickedUp("d-9", "o-1", 1, noon + 30 * minute)
    delivered = DeliveryDelivered("d-9", "o-1", 2, noon + 45 * minute)
    second = OrderCreated("o-2", 1, noon + 60 * minute, "ajanta-fan", "Noodle Bar", (LineItem("Ramen", 1, 1150),))
    return [approved, picked_up, created, created, approved, created, delivered, delivered, picked_up, second]


def main() -> None:
    with mock_aws():
        history = OrderHistory(create_table(boto3.resource("dynamodb", region_name="eu-west-1")))
        for event in deliveries():
            outcome = handle(history, event)
            print(f"{message_of(event).id:14} {type(event).__name__:17} {type(outcome).__name__}")
        print("\nThe consumer sees, newest first:")
        for order in history.orders_of("ajanta-fan").orders:
            steps = ", ".join(step["what"] for step in order["steps"])
            print(f"{order['orderId']}  {order['restaurant']:11} {order['status']:9} {steps}")


if __name__ == "__main__":
    main()
