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
