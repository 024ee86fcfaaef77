"""Handlers that look right, on DynamoDB. Each makes one mistake that people really make, and its docstring says which."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from onewrite import Applied, HighWaterMark, Message, Outcome, SeenIds
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


def marked_before_the_effect(stores: Mapping[str, Any]) -> Handler:
    """It marks the message first, which only one delivery can do. A crash after that loses the effect for good."""
    customers, processed = stores["customers"], stores["processed"]

    def handle(message: Message) -> None:
        try:
            processed.put_item(Item={"id": message.id}, ConditionExpression="attribute_not_exists(id)")
        except processed.meta.client.exceptions.ConditionalCheckFailedException:
            return
        customers.update_item(Key=C1, **added_item(message))

    return handle


def marked_after_the_effect(stores: Mapping[str, Any]) -> Handler:
    """It marks the message last. A crash between the effect and the mark repeats the effect."""
    customers, processed = stores["customers"], stores["processed"]

    def handle(message: Message) -> None:
        if "Item" in processed.get_item(Key={"id": message.id}, ConsistentRead=True):
            return
        customers.update_item(Key=C1, **added_item(message))
        processed.put_item(Item={"id": message.id})

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


def two_entities_one_mark(accounts: Any) -> Handler:
    """It skips the second half of a transfer if the first is a duplicate. A crash between them loses the second half."""
    guarded = GuardedTable(accounts, SeenIds())

    def handle(message: Message) -> None:
        amount = message.body["amount"]
        add = "ADD balance :n"
        outcome = guarded.update_item(
            message, Key={"id": "alice"}, UpdateExpression=add, ExpressionAttributeValues={":n": -amount}
        )
        if isinstance(outcome, Applied):
            accounts.update_item(Key={"id": "bob"}, UpdateExpression=add, ExpressionAttributeValues={":n": amount})

    return handle


def counted_outside_the_guard(customers: Any) -> Handler:
    """It guards the balance, but not the total beside it, which counts every delivery."""
    guarded = GuardedTable(customers, SeenIds())

    def handle(message: Message) -> None:
        guarded.update_item(message, Key=C1, **added_item(message))
        customers.update_item(Key={"id": "total"}, **added_item(message))

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


def id_minted_in_the_handler(customers: Any) -> Handler:
    """The producer sends no id, so the handler makes one. Each delivery gets another."""
    guarded = GuardedTable(customers, SeenIds())

    def handle(message: Message) -> Outcome:
        return guarded.update_item(Message(str(uuid.uuid4()), body=message.body), Key=C1, **added_item(message))

    return handle


def high_water_mark_on_an_unordered_queue(customers: Any) -> Handler:
    """It keeps a mark, because messages are numbered and a mark is small. But a standard queue does not keep their order."""
    guarded = GuardedTable(customers, HighWaterMark())

    def handle(message: Message) -> Outcome:
        return guarded.update_item(message, Key=C1, **added_item(message))

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


def forgets_within_the_redelivery_window(customers: Any) -> Handler:
    """It keeps the ids of one hour, but the queue keeps a message for days and delivers it again after each failure."""
    nights = itertools.count(NOW, 8 * 3600)
    guarded = GuardedTable(customers, SeenIds(retention=timedelta(hours=1)), clock=lambda: next(nights))

    def handle(message: Message) -> Outcome:
        return guarded.update_item(message, Key=C1, **added_item(message))

    return handle


def batch_under_its_first_id(customers: Any) -> Callable[[Any, Any], None]:
    """It writes a batch at once, and remembers the first of its messages. What is redelivered alone is taken for a new one."""
    guarded = GuardedTable(customers, SeenIds())

    def handle(event: Any, context: object) -> None:
        first, total = event["Records"][0]["messageId"], sum(10 ** int(record["body"]) for record in event["Records"])
        guarded.update_item(
            Message(first), Key=C1, UpdateExpression="ADD balance :n", ExpressionAttributeValues={":n": total}
        )

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


def deleted_with_its_ledger(customers: Any) -> Handler:
    """It deletes the customer, and the ledger with it. A deposit that is redelivered after that brings the customer back."""
    guarded = GuardedTable(customers, SeenIds())

    def handle(message: Message) -> None:
        if "amount" in message.body:
            guarded.update_item(message, Key=C1, **added_item(message))
        else:
            customers.delete_item(Key=C1)

    return handle
