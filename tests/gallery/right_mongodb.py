"""The same work done right, on MongoDB: each entity guarded by its own write."""

from __future__ import annotations

from collections.abc import Callable

from onewrite import Message, Outcome, Rejected
from onewrite.mongodb import GuardedCollection

C1 = {"_id": "c1"}


def added(customers: GuardedCollection) -> Callable[[Message], Outcome]:
    """What must happen once, in any order."""

    def handle(message: Message) -> Outcome:
        return customers.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)

    return handle


def replaced(customers: GuardedCollection) -> Callable[[Message], Outcome]:
    """The newest state of what the messages tell of: an older one that comes later is not wanted."""

    def handle(message: Message) -> Outcome:
        return customers.update_one(message, C1, {"$set": {"balance": message.body["amount"]}}, upsert=True)

    return handle


def transferred(accounts: GuardedCollection) -> Callable[[Message], list[Outcome]]:
    """Two entities, each guarded by itself: a redelivery completes what a crash cut short."""

    def add(message: Message, account: str, amount: int) -> Outcome:
        return accounts.update_one(message, {"_id": account}, {"$inc": {"balance": amount}}, upsert=True)

    def handle(message: Message) -> list[Outcome]:
        amount = message.body["amount"]
        return [add(message, "alice", -amount), add(message, "bob", amount)]

    return handle


def refused_for_good(accounts: GuardedCollection) -> Callable[[Message], Outcome]:
    """A withdrawal that is not covered is remembered as refused, and stays so when there is money again."""

    def handle(message: Message) -> Outcome:
        amount = message.body["amount"]
        add = {"$inc": {"balance": amount}}
        if amount > 0:
            return accounts.update_one(message, C1, add, upsert=True)
        outcome = accounts.update_one(message, {**C1, "balance": {"$gte": -amount}}, add)
        return accounts.record(message, C1) if isinstance(outcome, Rejected) else outcome

    return handle


def opened(accounts: GuardedCollection) -> Callable[[Message], Outcome]:
    """Created once. A second message that would create it is refused."""

    def handle(message: Message) -> Outcome:
        return accounts.insert_one(message, {**C1, "balance": message.body["amount"]})

    return handle
