"""The same work done right on DynamoDB: each entity is guarded by its own write, through a Table or through a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onewrite import Message, Missing, Outcome, Rejected
from onewrite.dynamodb import GuardedTable

C1 = {"id": "c1"}


def added(customers: GuardedTable) -> Callable[[Message], Outcome]:
    """Each message adds to the balance, in any order."""

    def handle(message: Message) -> Outcome:
        values = {":n": message.body["amount"]}
        return customers.update_item(message, Key=C1, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values)

    return handle


def replaced(customers: GuardedTable) -> Callable[[Message], Outcome]:
    """Each message sets the balance to its own state. An older state that comes later must not replace a newer one."""

    def handle(message: Message) -> Outcome:
        values = {":n": message.body["amount"]}
        return customers.update_item(message, Key=C1, UpdateExpression="SET balance = :n", ExpressionAttributeValues=values)

    return handle


def transferred(accounts: GuardedTable) -> Callable[[Message], list[Outcome]]:
    """Each of the two entities is guarded by its own write, so a redelivery completes what a crash has cut short."""

    def add(message: Message, account: str, amount: int) -> Outcome:
        key, values = {"id": account}, {":n": amount}
        return accounts.update_item(message, Key=key, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values)

    def handle(message: Message) -> list[Outcome]:
        amount = message.body["amount"]
        return [add(message, "alice", -amount), add(message, "bob", amount)]

    return handle


def refused_for_good(accounts: GuardedTable) -> Callable[[Message], Outcome]:
    """A withdrawal that is not covered is recorded as refused, and stays refused when there is money again."""

    def handle(message: Message) -> Outcome:
        amount = message.body["amount"]
        add: dict[str, Any] = {"Key": C1, "UpdateExpression": "ADD balance :n"}
        if amount > 0:
            return accounts.update_item(message, **add, ExpressionAttributeValues={":n": amount})
        values = {":n": amount, ":least": -amount}
        covered: dict[str, Any] = {"ConditionExpression": "balance >= :least", "ExpressionAttributeValues": values}
        outcome = accounts.update_item(message, **add, **covered, missing_ok=True, rejected_ok=True)
        return accounts.remember(message, Key=C1) if isinstance(outcome, Rejected | Missing) else outcome

    return handle


def batched(customers: GuardedTable) -> Callable[[Any, Any], dict[str, Any]]:
    """The messages of an event are one write, which remembers each by itself: they may come again in any other batch."""

    def add(fresh: list[Message]) -> dict[str, Any]:
        values = {":n": sum(message.body for message in fresh)}
        return {"Key": C1, "UpdateExpression": "ADD balance :n", "ExpressionAttributeValues": values}

    def handle(event: Any, context: object) -> dict[str, Any]:
        messages = [Message(record["messageId"], body=10 ** int(record["body"])) for record in event["Records"]]
        outcomes = customers.update_batch(messages, add)
        failed = [outcome.message.id for outcome in outcomes if not outcome.settled]
        return {"batchItemFailures": [{"itemIdentifier": name} for name in failed]}

    return handle


def opened(accounts: GuardedTable) -> Callable[[Message], Outcome]:
    """The first message creates the account, and the next one that would create it is refused."""

    def handle(message: Message) -> Outcome:
        return accounts.put_item(message, Item={**C1, "balance": message.body["amount"]}, rejected_ok=True)

    return handle


def closed(customers: GuardedTable) -> Callable[[Message], Outcome]:
    """A message without an amount deletes the customer, whom no deposit that comes late or again brings back."""

    def handle(message: Message) -> Outcome:
        if "amount" not in message.body:
            return customers.delete_item(message, Key=C1)
        values = {":n": message.body["amount"]}
        return customers.update_item(message, Key=C1, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values)

    return handle
