"""The same work done right, in coroutines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from onewrite import Message, Missing, Outcome, Rejected
from onewrite.mongodb import AsyncGuardedCollection

C1 = {"_id": "c1"}


def added(customers: AsyncGuardedCollection) -> Callable[[Message], Awaitable[Outcome]]:
    """Each message adds to the balance, in any order."""

    async def handle(message: Message) -> Outcome:
        return await customers.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)

    return handle


def transferred(accounts: AsyncGuardedCollection) -> Callable[[Message], Awaitable[list[Outcome]]]:
    """Each of the two entities is guarded by its own write, so a redelivery completes what a crash has cut short."""

    async def add(message: Message, account: str, amount: int) -> Outcome:
        return await accounts.update_one(message, {"_id": account}, {"$inc": {"balance": amount}}, upsert=True)

    async def handle(message: Message) -> list[Outcome]:
        amount = message.body["amount"]
        return [await add(message, "alice", -amount), await add(message, "bob", amount)]

    return handle


def refused_for_good(accounts: AsyncGuardedCollection) -> Callable[[Message], Awaitable[Outcome]]:
    """A withdrawal that is not covered is recorded as refused, and stays refused when there is money again."""

    async def handle(message: Message) -> Outcome:
        amount = message.body["amount"]
        add = {"$inc": {"balance": amount}}
        if amount > 0:
            return await accounts.update_one(message, C1, add, upsert=True)
        outcome = await accounts.update_one(
            message, {**C1, "balance": {"$gte": -amount}}, add, missing_ok=True, rejected_ok=True
        )
        return await accounts.remember(message, C1) if isinstance(outcome, Rejected | Missing) else outcome

    return handle
