"""An item that every message changes, on DynamoDB: a second table remembers the messages instead of the item."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onewrite import Applied, Duplicate, Message, Outcome

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

RETENTION = timedelta(days=14)  # longer than any redelivery. Switch on TTL for expiresAt
RETRIED = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # seconds


def make_counter(totals: Table, processed: Table, *, clock: Callable[[], float] = time.time) -> Callable[[Message], Outcome]:
    """Return a function that adds the cents of a message to the total once."""
    client = totals.meta.client

    def add(message: Message) -> Outcome:
        expiry = int(clock() + RETENTION.total_seconds())
        put = {
            "TableName": processed.name,
            "Item": {"id": message.child("total"), "expiresAt": expiry},
            "ConditionExpression": "attribute_not_exists(id)",
        }
        update = {
            "TableName": totals.name,
            "Key": {"id": "total"},
            "UpdateExpression": "ADD cents :c",
            "ExpressionAttributeValues": {":c": message.body["cents"]},
        }
        items: list[Any] = [{"Put": put}, {"Update": update}]
        waits = iter(WAITS)
        while True:
            try:
                client.transact_write_items(TransactItems=items)
            except client.exceptions.TransactionCanceledException as error:
                codes = [reason["Code"] for reason in error.response["CancellationReasons"]]
                if codes[0] == "ConditionalCheckFailed":
                    return Duplicate(message)
                wait = next(waits, None)
                if wait is None or RETRIED.isdisjoint(codes):
                    raise
                time.sleep(wait * random.random())
            else:
                return Applied(message)

    return add
