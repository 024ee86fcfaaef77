"""One message that changes two DynamoDB items: a transfer between accounts, in your own transaction."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from onewrite import Applied, Message, Outcome, Rejected, SeenIds
from onewrite.dynamodb import GuardedTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

RETRIED = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
WAITS = (0.05, 0.1, 0.2, 0.4, 0.8)  # seconds: a transaction holds an item for milliseconds, but throttling lasts longer


def make_transfer(table: Table) -> Callable[[Message], Outcome]:
    """Return a function that transfers the cents of a message once, or not at all."""
    accounts = GuardedTable(table, SeenIds())

    def transfer(message: Message) -> Outcome:
        values = {":c": message.body["cents"]}
        debit = {
            "Key": {"id": message.body["from"]},
            "UpdateExpression": "SET cents = cents - :c",
            "ConditionExpression": "cents >= :c",
            "ExpressionAttributeValues": values,
        }
        credit = {
            "Key": {"id": message.body["to"]},
            "UpdateExpression": "ADD cents :c",
            "ConditionExpression": "attribute_exists(id)",
            "ExpressionAttributeValues": values,
        }
        return update_all(table.meta.client, message, (accounts, debit), (accounts, credit))

    return transfer


def update_all(client: Any, message: Message, *updates: tuple[GuardedTable, Mapping[str, Any]]) -> Outcome:
    """Make all of these updates, or none of them."""
    items = [{"Update": table.explain("update_item", message, **native)} for table, native in updates]
    waits = iter(WAITS)
    while True:
        try:
            client.transact_write_items(TransactItems=items)
        except client.exceptions.TransactionCanceledException as error:
            for table, native in updates:
                outcome = table.preview(message, Key=native["Key"])
                if not isinstance(outcome, Applied):  # a ledger refused the message, for example as a Duplicate
                    return outcome
            codes = {reason["Code"] for reason in error.response["CancellationReasons"]}
            if "ConditionalCheckFailed" in codes:  # no ledger did, so one of your own conditions was false
                return Rejected(message, settled=False)
            wait = next(waits, None)
            if wait is None or not codes & RETRIED:
                raise
            time.sleep(wait * random.random())
        else:
            return Applied(message)
