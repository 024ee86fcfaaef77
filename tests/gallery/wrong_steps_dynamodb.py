"""More handlers that look right, on DynamoDB: they go wrong between two requests, or when a request fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from tests.gallery.cases import marked_item

Handler = Callable[[Message], Any]

C1 = {"id": "c1"}
FIRST = "attribute_not_exists(id)"

log = logging.getLogger(__name__)


def undone_on_error(accounts: Any) -> Handler:
    """It gives the money back if the second half fails. But an answer that is lost does not mean that the half is not there."""
    guarded = GuardedTable(accounts, SeenIds())

    def add(message: Message, account: str, amount: int) -> None:
        values = {":n": amount}
        guarded.update_item(
            message, Key={"id": account}, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values
        )

    def handle(message: Message) -> None:
        amount = message.body["amount"]
        add(message, "alice", -amount)
        try:
            add(message, "bob", amount)
        except (ClientError, BotoCoreError):
            add(message.part("undo"), "alice", amount)
            raise

    return handle


def scanned_before_the_write(customers: Any) -> Handler:
    """It looks for the id in the whole table, page by page. Another delivery writes before the look is over."""
    pages = customers.meta.client.get_paginator("scan")

    def handle(message: Message) -> None:
        wanted = {"FilterExpression": "contains(seen, :id)", "ExpressionAttributeValues": {":id": message.id}}
        found = pages.paginate(TableName=customers.name, ConsistentRead=True, **wanted)
        if not any(page["Items"] for page in found):
            customers.update_item(Key=C1, **marked_item(message))

    return handle


def processing_state_left_behind(orders: Any) -> Handler:
    """It lets nobody else work on an order that is being processed. An order whose worker has died is so forever."""
    refused = orders.meta.client.exceptions.ConditionalCheckFailedException

    def handle(message: Message) -> None:
        key = {"id": message.id}
        try:
            orders.put_item(Item={**key, "phase": "processing"}, ConditionExpression=FIRST)
        except refused as refusal:
            if orders.get_item(Key=key, ConsistentRead=True)["Item"]["phase"] == "done":
                return
            raise TimeoutError("another worker has it: come again") from refusal
        orders.put_item(Item={**key, "phase": "done", "balance": message.body["amount"]})

    return handle


def moved_in_two_steps(stores: Mapping[str, Any]) -> Handler:
    """It takes an order out of one table and puts it into another. Between the two it is in neither."""

    def handle(message: Message) -> None:
        taken = stores["pending"].delete_item(Key=C1, ReturnValues="ALL_OLD").get("Attributes")
        if taken:
            stores["customers"].put_item(Item=taken)

    return handle


def eventually_consistent_look(customers: Any) -> Handler:
    """One worker, one message at a time. But its look is not consistent, so it does not see what it has just written."""

    def handle(message: Message) -> None:
        if message.id not in customers.get_item(Key=C1).get("Item", {}).get("seen", ()):
            customers.update_item(Key=C1, **marked_item(message))

    return handle
