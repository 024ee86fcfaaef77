"""The same work done right, on DynamoDB: each entity guarded by its own write, over a Table as over a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onewrite import Message, Outcome, Rejected
from onewrite.dynamodb import GuardedTable

C1 = {"id": "c1"}


def added(customers: GuardedTable) -> Callable[[Message], Outcome]:
    """What must happen once, in any order."""

    def handle(message: Message) -> Outcome:
        values = {":n": message.body["amount"]}
        return customers.update_item(message, Key=C1, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values)

    return handle


def replaced(customers: GuardedTable) -> Callable[[Message], Outcome]:
    """The newest state of what the messages tell of: an older one that comes later is not wanted."""

    def handle(message: Message) -> Outcome:
        values = {":n": message.body["amount"]}
        return customers.update_item(message, Key=C1, UpdateExpression="SET balance = :n", ExpressionAttributeValues=values)

    return handle


def transferred(accounts: GuardedTable) -> Callable[[Message], list[Outcome]]:
    """Two entities, each guarded by itself: a redelivery completes what a crash cut short."""

    def add(message: Message, account: str, amount: int) -> Outcome:
        key, values = {"id": account}, {":n": amount}
        return accounts.update_item(message, Key=key, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values)

    def handle(message: Message) -> list[Outcome]:
        amount = message.body["amount"]
        return [add(message, "alice", -amount), add(message, "bob", amount)]

    return handle


def refused_for_good(accounts: GuardedTable) -> Callable[[Message], Outcome]:
    """A withdrawal that is not covered is remembered as refused, and stays so when there is money again."""

    def handle(message: Message) -> Outcome:
        amount = message.body["amount"]
        add: dict[str, Any] = {"Key": C1, "UpdateExpression": "ADD balance :n"}
        if amount > 0:
            return accounts.update_item(message, **add, ExpressionAttributeValues={":n": amount})
        values = {":n": amount, ":least": -amount}
        covered: dict[str, Any] = {"ConditionExpression": "balance >= :least", "ExpressionAttributeValues": values}
        outcome = accounts.update_item(message, **add, **covered)
        return accounts.record(message, Key=C1) if isinstance(outcome, Rejected) else outcome

    return handle


def opened(accounts: GuardedTable) -> Callable[[Message], Outcome]:
    """Created once. A second message that would create it is refused."""

    def handle(message: Message) -> Outcome:
        return accounts.put_item(message, Item={**C1, "balance": message.body["amount"]})

    return handle
