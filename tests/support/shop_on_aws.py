"""A shop as you would deploy it: a handler that emits events, and the relay that publishes them, as functions and as services.

`function.yaml` names `tests.support.shop_on_aws.handler` and `.relay`; `worker.yaml` names `tests.support.shop_on_aws:handler` and
`:make_relay`.
"""

from __future__ import annotations

import os
from typing import Any

import boto3

from onewrite import Event, Message, Outbox, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import json_body
from onewrite.outbox import Relay, stream_handler, to_sns
from onewrite.outbox.metrics import emf
from onewrite.outcome import BeginOutcome, Uncertain

sdk: Any = boto3  # its types know two services
table = sdk.resource("dynamodb").Table(os.environ["ORDERS_TABLE"])
orders = GuardedTable(table, SeenIds(), outbox=Outbox("shop/orders", index="pending"))


@sqs_handler(json_body(id="id"))
def handler(message: Message) -> BeginOutcome:
    if message.body.get("unclear"):
        return Uncertain(message, since=0.0, fence="", key="charge-1")  # which a worker returns to the queue at once
    return orders.update_item(
        message,
        Key={"orderId": message.body["order"]},
        UpdateExpression="ADD cents :cents",
        ExpressionAttributeValues={":cents": message.body["cents"]},
        emit=[Event("OrderPaid", {"order": message.body["order"]})],
    )


def make_relay() -> Relay:
    return Relay(orders, to_sns(sdk.client("sns"), os.environ["TOPIC_ARN"]))


if "TOPIC_ARN" in os.environ:
    relay = stream_handler(make_relay(), on_pass=emf())
