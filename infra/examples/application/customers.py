"""The second consumer of the orders' events: how often, and for how much, each customer has ordered."""

from __future__ import annotations

import os
from functools import cache

import boto3

from onewrite import Message, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import cloudevent


@sqs_handler(cloudevent())
def handler(message: Message) -> Outcome | None:
    if (
        message.attributes["type"] != "OrderPlaced"
    ):  # such as onewrite.skipped, in the place of an event that an operator gave up
        return None
    return customers().update_item(
        message,
        Key={"customer": message.body["customer"]},
        UpdateExpression="ADD orders :one, cents :cents",
        ExpressionAttributeValues={":one": 1, ":cents": message.body["cents"]},
    )


@cache
def customers() -> GuardedTable:
    return GuardedTable(boto3.resource("dynamodb").Table(os.environ["CUSTOMERS_TABLE"]), SeenIds())
