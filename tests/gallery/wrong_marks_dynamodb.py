"""More handlers that look right, on DynamoDB: the mark by which they tell a duplicate is not the right one, or not in the right place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from onewrite import Applied, InSequence, Message, Outcome
from onewrite.dynamodb import GuardedTable
from tests.gallery.cases import added_item

Handler = Callable[[Message], Any]

C1 = {"id": "c1"}


def transaction_taken_for_a_guard(accounts: Any) -> Handler:
    """It moves money in one transaction, so no half can be lost. But each delivery is a transaction of its own."""
    client = accounts.meta.client

    def handle(message: Message) -> None:
        amounts = {"alice": -message.body["amount"], "bob": message.body["amount"]}
        halves = [
            {
                "TableName": accounts.name,
                "Key": {"id": account},
                "UpdateExpression": "ADD balance :n",
                "ExpressionAttributeValues": {":n": amount},
            }
            for account, amount in amounts.items()
        ]
        client.transact_write_items(TransactItems=[{"Update": half} for half in halves])

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


def cached_item(customers: Any) -> Handler:
    """It keeps what it has read, to save a read for each message. Two messages change copies of it that do not know each other."""
    cache: dict[str, Any] = {}

    def handle(message: Message) -> None:
        if "c1" not in cache:
            cache["c1"] = customers.get_item(Key=C1, ConsistentRead=True).get("Item", {**C1, "balance": 0, "seen": []})
        customer = cache["c1"]
        if message.id not in customer["seen"]:
            balance = int(customer["balance"]) + message.body["amount"]
            changed = {**C1, "balance": balance, "seen": [*customer["seen"], message.id]}
            customers.put_item(Item=changed)
            cache["c1"] = changed

    return handle


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
