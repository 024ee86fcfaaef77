"""The same work done right on MongoDB: each entity is guarded by its own write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onewrite import Message, Missing, Outcome, Rejected
from onewrite.mongodb import GuardedCollection

C1 = {"_id": "c1"}


def added(customers: GuardedCollection) -> Callable[[Message], Outcome]:
    """Each message adds to the balance, in any order."""

    def handle(message: Message) -> Outcome:
        return customers.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)

    return handle


def replaced(customers: GuardedCollection) -> Callable[[Message], Outcome]:
    """Each message sets the balance to its own state. An older state that comes later must not replace a newer one."""

    def handle(message: Message) -> Outcome:
        return customers.update_one(message, C1, {"$set": {"balance": message.body["amount"]}}, upsert=True)

    return handle


def transferred(accounts: GuardedCollection) -> Callable[[Message], list[Outcome]]:
    """Each of the two entities is guarded by its own write, so a redelivery completes what a crash has cut short."""

    def add(message: Message, account: str, amount: int) -> Outcome:
        return accounts.update_one(message, {"_id": account}, {"$inc": {"balance": amount}}, upsert=True)

    def handle(message: Message) -> list[Outcome]:
        amount = message.body["amount"]
        return [add(message, "alice", -amount), add(message, "bob", amount)]

    return handle


def refused_for_good(accounts: GuardedCollection) -> Callable[[Message], Outcome]:
    """A withdrawal that is not covered is recorded as refused, and stays refused when there is money again."""

    def handle(message: Message) -> Outcome:
        amount = message.body["amount"]
        add = {"$inc": {"balance": amount}}
        if amount > 0:
            return accounts.update_one(message, C1, add, upsert=True)
        outcome = accounts.update_one(message, {**C1, "balance": {"$gte": -amount}}, add, missing_ok=True, rejected_ok=True)
        return accounts.remember(message, C1) if isinstance(outcome, Rejected | Missing) else outcome

    return handle


def batched(customers: GuardedCollection) -> Callable[[Any, Any], dict[str, Any]]:
    """The messages of an event are one write, which remembers each by itself: they may come again in any other batch."""

    def add(fresh: list[Message]) -> dict[str, Any]:
        return {"filter": C1, "update": {"$inc": {"balance": sum(message.body for message in fresh)}}, "upsert": True}

    def handle(event: Any, context: object) -> dict[str, Any]:
        messages = [Message(record["messageId"], body=10 ** int(record["body"])) for record in event["Records"]]
        outcomes = customers.update_batch(messages, add)
        failed = [outcome.message.id for outcome in outcomes if not outcome.settled]
        return {"batchItemFailures": [{"itemIdentifier": name} for name in failed]}

    return handle


def opened(accounts: GuardedCollection) -> Callable[[Message], Outcome]:
    """The first message creates the account, and the next one that would create it is refused."""

    def handle(message: Message) -> Outcome:
        return accounts.insert_one(message, {**C1, "balance": message.body["amount"]}, rejected_ok=True)

    return handle


def closed(customers: GuardedCollection) -> Callable[[Message], Outcome]:
    """A message without an amount deletes the customer, whom no deposit that comes late or again brings back."""

    def handle(message: Message) -> Outcome:
        if "amount" not in message.body:
            return customers.delete_one(message, C1)
        return customers.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)

    return handle
