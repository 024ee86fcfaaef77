"""Handlers that look right, on DynamoDB. Each makes one mistake that people really make, and its docstring says which."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from onewrite import Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from tests.gallery.cases import NOW, OUTBOX, added_item, marked_item

Handler = Callable[[Message], Any]

C1 = {"id": "c1"}


def read_then_write(customers: Any) -> Handler:
    """It looks for the id before it writes. Two deliveries at the same time both find nothing, and both write."""

    def handle(message: Message) -> None:
        customer = customers.get_item(Key=C1, ConsistentRead=True).get("Item", {})
        if message.id not in customer.get("seen", ()):
            customers.update_item(Key=C1, **marked_item(message))

    return handle


def refusal_taken_for_a_duplicate(customers: Any) -> Handler:
    """It takes a refusal for a duplicate. But the item may also have been created by another message meanwhile."""
    refused = customers.meta.client.exceptions.ConditionalCheckFailedException

    def handle(message: Message) -> str:
        known = {"ConditionExpression": "attribute_exists(id) AND NOT contains(seen, :id)"}
        native = marked_item(message)
        native["ExpressionAttributeValues"][":id"] = message.id
        try:
            customers.update_item(Key=C1, **native, **known)
        except refused:
            first = {**C1, "balance": message.body["amount"], "seen": {message.id}}
            try:
                customers.put_item(Item=first, ConditionExpression="attribute_not_exists(id)")
            except refused:
                return "duplicate"
        return "done"

    return handle


def written_over_the_ledger(customers: Any) -> Handler:
    """It saves the whole item as it was read, and the guarded table gives items without their ledger. No race is needed."""
    guarded = GuardedTable(customers, SeenIds())

    def handle(message: Message) -> None:
        if "amount" in message.body:
            guarded.update_item(message, Key=C1, **added_item(message))
        else:
            customer = guarded.get_item(Key=C1, ConsistentRead=True) or C1
            customers.put_item(Item={**customer, "name": message.body["name"]})

    return handle


def remembers_the_last_id_only(customers: Any) -> Handler:
    """It keeps one id instead of a set that grows. That is enough unless another message comes before the copy."""

    def handle(message: Message) -> None:
        try:
            customers.update_item(
                Key=C1,
                UpdateExpression="SET lastId = :id ADD balance :n",
                ConditionExpression="attribute_not_exists(lastId) OR lastId <> :id",
                ExpressionAttributeValues={":id": message.id, ":n": message.body["amount"]},
            )
        except customers.meta.client.exceptions.ConditionalCheckFailedException:
            return

    return handle


def lease_outlived(customers: Any) -> Handler:
    """It takes a lock that expires, in case its worker dies. A slow worker goes on after its lock has expired."""
    minutes = itertools.count(NOW, 60)

    def handle(message: Message) -> None:
        now = next(minutes)
        try:
            customers.update_item(
                Key=C1,
                UpdateExpression="SET lockedUntil = :until",
                ConditionExpression="NOT contains(seen, :id) AND (attribute_not_exists(lockedUntil) OR lockedUntil < :now)",
                ExpressionAttributeValues={":until": now + 30, ":now": now, ":id": message.id},
            )
        except customers.meta.client.exceptions.ConditionalCheckFailedException as refusal:
            if message.id in customers.get_item(Key=C1, ConsistentRead=True)["Item"].get("seen", ()):
                return
            raise TimeoutError("locked: come again") from refusal
        native = marked_item(message)
        customers.update_item(Key=C1, **{**native, "UpdateExpression": native["UpdateExpression"] + " REMOVE lockedUntil"})

    return handle


def side_effect_before_the_write(customers: Any) -> Handler:
    """It sends the receipt before the write. A redelivery has sent a second one before the guard refuses it."""
    OUTBOX.clear()
    guarded = GuardedTable(customers, SeenIds())

    def handle(message: Message) -> Outcome:
        OUTBOX.append(message.id)
        return guarded.update_item(message, Key=C1, **added_item(message))

    return handle
