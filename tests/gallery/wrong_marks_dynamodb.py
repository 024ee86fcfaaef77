"""More handlers that look right, on DynamoDB: the mark by which they tell a duplicate is not the right one, or not in the right place."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from onewrite import Applied, InSequence, Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from tests.gallery.cases import NOW, added_item

Handler = Callable[[Message], Any]

C1 = {"id": "c1"}


def payload_hash_taken_for_the_id(customers: Any) -> Handler:
    """It tells messages apart by a hash of what they say. A customer who deposits the same amount twice loses one deposit."""
    guarded = GuardedTable(customers, SeenIds())

    def handle(message: Message) -> Outcome:
        digest = hashlib.sha256(repr(message.body).encode()).hexdigest()
        return guarded.update_item(Message(digest), Key=C1, **added_item(message))

    return handle


def condition_on_a_misspelt_attribute(entries: Any) -> Handler:
    """It asks whether `message_id` is missing, but the attribute is called `messageId`. The condition always holds."""
    refused = entries.meta.client.exceptions.ConditionalCheckFailedException

    def handle(message: Message) -> None:
        try:
            entries.update_item(
                Key=C1,
                UpdateExpression="SET messageId = :id ADD balance :n",
                ConditionExpression="attribute_not_exists(message_id)",
                ExpressionAttributeValues={":id": message.id, ":n": message.body["amount"]},
            )
        except refused:
            return

    return handle


def mark_that_expires(stores: Mapping[str, Any]) -> Handler:
    """It writes the mark and the effect in one transaction. But the mark expires after an hour, and the message does not."""
    client = stores["customers"].meta.client
    nights = itertools.count(NOW, 8 * 3600)

    def handle(message: Message) -> None:
        now = next(nights)
        mark = {
            "TableName": "processed",
            "Item": {"id": message.id, "expiresAt": now + 3600},
            "ConditionExpression": "attribute_not_exists(id) OR expiresAt < :now",
            "ExpressionAttributeValues": {":now": now},
        }
        effect = {"TableName": "customers", "Key": C1, **added_item(message)}
        try:
            client.transact_write_items(TransactItems=[{"Put": mark}, {"Update": effect}])
        except client.exceptions.TransactionCanceledException as refusal:
            if refusal.response["CancellationReasons"][0]["Code"] != "ConditionalCheckFailed":
                raise

    return handle


def token_taken_for_a_mark(accounts: Any) -> Handler:
    """The id of the message is the token of the transaction. DynamoDB forgets it after ten minutes, and the message may come later."""
    client = accounts.meta.client

    def handle(message: Message) -> None:
        effect = {"TableName": accounts.name, "Key": C1, **added_item(message)}
        client.transact_write_items(TransactItems=[{"Update": effect}], ClientRequestToken=message.id)

    return handle


def token_of_the_customer(entries: Any) -> Handler:
    """One token serves all messages of a customer. DynamoDB refuses it for a second one, which is taken for a duplicate."""
    client = entries.meta.client

    def handle(message: Message) -> None:
        item = {"id": message.id, "balance": message.body["amount"]}
        puts = [{"Put": {"TableName": entries.name, "Item": item}}]
        with suppress(client.exceptions.IdempotentParameterMismatchException):
            client.transact_write_items(TransactItems=puts, ClientRequestToken="c1")

    return handle


def refused_version_taken_for_a_duplicate(customers: Any) -> Handler:
    """It writes what it has read if the version is still the same. If it is not, another message may have changed it."""

    def handle(message: Message) -> None:
        customer = customers.get_item(Key=C1, ConsistentRead=True).get(
            "Item", {**C1, "balance": 0, "version": 0, "seen": []}
        )
        if message.id in customer["seen"]:
            return
        changed = {
            **C1,
            "balance": customer["balance"] + message.body["amount"],
            "version": customer["version"] + 1,
            "seen": [*customer["seen"], message.id],
        }
        try:
            customers.put_item(
                Item=changed,
                ConditionExpression="attribute_not_exists(id) OR version = :read",
                ExpressionAttributeValues={":read": customer["version"]},
            )
        except customers.meta.client.exceptions.ConditionalCheckFailedException:
            return

    return handle


def version_read_again_without_the_rest(customers: Any) -> Handler:
    """After a conflict it takes the new version from the refusal, and writes the old balance with it."""

    def handle(message: Message) -> None:
        customer = customers.get_item(Key=C1, ConsistentRead=True).get("Item", {"balance": 0, "version": 0, "seen": set()})
        if message.id in customer["seen"]:
            return
        version = customer["version"]
        while version is not None:
            version = _conflict(customers, message, customer["balance"] + message.body["amount"], int(version))

    return handle


def _conflict(customers: Any, message: Message, balance: int, version: int) -> int | None:
    """Write the balance. The result is None, or the version that is there instead of the one that was read."""
    try:
        customers.update_item(
            Key=C1,
            UpdateExpression="SET balance = :balance, version = :next ADD seen :ids",
            ConditionExpression="attribute_not_exists(id) OR version = :read",
            ExpressionAttributeValues={":balance": balance, ":next": version + 1, ":read": version, ":ids": {message.id}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except customers.meta.client.exceptions.ConditionalCheckFailedException as refusal:
        return int(refusal.response["Item"]["version"]["N"])
    return None


def deferred_and_forgotten(customers: Any) -> Handler:
    """It returns an outcome of its own. So the queue deletes a message that was to wait for an earlier one."""
    guarded = GuardedTable(customers, InSequence())

    def handle(message: Message) -> Outcome:
        guarded.update_item(message, Key=C1, **added_item(message))
        return Applied(message)

    return handle


def highest_number_kept(customers: Any) -> Handler:
    """It adds what has a higher number than the last one. A message that another one has overtaken is lost."""

    def handle(message: Message) -> None:
        try:
            customers.update_item(
                Key=C1,
                UpdateExpression="SET lastNumber = :number ADD balance :n",
                ConditionExpression="attribute_not_exists(lastNumber) OR lastNumber < :number",
                ExpressionAttributeValues={":number": message.sequence, ":n": message.body["amount"]},
            )
        except customers.meta.client.exceptions.ConditionalCheckFailedException:
            return

    return handle


def balance_taken_for_a_version(customers: Any) -> Handler:
    """It writes the new balance if the balance is still the one that it has read. A redelivery reads the new one, and adds again."""

    def handle(message: Message) -> None:
        balance = int(customers.get_item(Key=C1, ConsistentRead=True).get("Item", {"balance": 0})["balance"])
        customers.update_item(
            Key=C1,
            UpdateExpression="SET balance = :balance",
            ConditionExpression="attribute_not_exists(balance) OR balance = :read",
            ExpressionAttributeValues={":read": balance, ":balance": balance + message.body["amount"]},
        )

    return handle
