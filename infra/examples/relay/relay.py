"""Publishes the events that orders emit, from their table to an SNS topic, or to an SQS queue.

The table's stream wakes it, and a schedule makes it sweep. The service that writes the orders has a store with the same outbox.
"""

from __future__ import annotations

import os
from typing import Any

import boto3

from onewrite import Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.outbox import Relay, stream_handler, to_sns, to_sqs
from onewrite.outbox.metrics import emf

sdk: Any = boto3
table = sdk.resource("dynamodb").Table(os.environ["ORDERS_TABLE"])
orders = GuardedTable(table, SeenIds(), outbox=Outbox("shop/orders", index="pending"))
queue = os.environ.get("QUEUE_URL")
publish = to_sqs(sdk.client("sqs"), queue) if queue else to_sns(sdk.client("sns"), os.environ["TOPIC_ARN"])
handler = stream_handler(Relay(orders, publish), on_pass=emf())
