"""Adds up what meters have counted, from a Kinesis stream into a table.

The records are JSON: `{"readingId": "r-1", "meterId": "m-1", "units": 3}`. A meter that sends twice sends the same `readingId`.
"""

from __future__ import annotations

import os
from functools import cache

import boto3

from onewrite import Message, Outcome, SeenIds
from onewrite.aws_lambda import kinesis_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import json_body


@kinesis_handler(json_body(id="readingId"))
def handler(message: Message) -> Outcome:
    return meters().update_item(
        message,
        Key={"meterId": message.body["meterId"]},
        UpdateExpression="ADD units :units",
        ExpressionAttributeValues={":units": message.body["units"]},
    )


@cache
def meters() -> GuardedTable:
    """Made at the first record, and kept: to import this module takes neither credentials nor a table."""
    return GuardedTable(boto3.resource("dynamodb").Table(os.environ["METERS_TABLE"]), SeenIds())
