"""The orders: a function on DynamoDB that places them, publishes what was placed, and records what was paid.

Its queue holds CloudEvents: `PlaceOrder` from whoever takes orders, and `OrderPaid` from the billing service.
"""

from __future__ import annotations

import os
from functools import cache

import boto3

from onewrite import Event, Message, Outbox, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import cloudevent


@sqs_handler(cloudevent())
def handler(message: Message) -> Outcome:
    match message.attributes["type"]:
        case "PlaceOrder":
            return place(orders(), message)
        case "OrderPaid":
            return record_payment(orders(), message)
        case unknown:
            raise ValueError(f"nobody here knows {unknown}")


def place(orders: GuardedTable, message: Message) -> Outcome:
    order = message.body
    return orders.update_item(
        message,
        Key={"orderId": order["orderId"]},
        UpdateExpression="SET customer = :customer, cents = :cents, #status = :placed",
        ConditionExpression="attribute_not_exists(customer)",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":customer": order["customer"], ":cents": order["cents"], ":placed": "PLACED"},
        emit=[Event("OrderPlaced", {name: order[name] for name in ("orderId", "customer", "cents")})],
    )


def record_payment(orders: GuardedTable, message: Message) -> Outcome:
    return orders.update_item(
        message,
        Key={"orderId": message.body["orderId"]},
        UpdateExpression="SET #status = :paid, chargeId = :charge",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":paid": "PAID", ":charge": message.body["chargeId"]},
    )


@cache
def orders() -> GuardedTable:
    """Made at the first message. The relay of ../relay has the same outbox."""
    table = boto3.resource("dynamodb").Table(os.environ["ORDERS_TABLE"])
    return GuardedTable(table, SeenIds(), outbox=Outbox("shop/orders", index="pending"))
