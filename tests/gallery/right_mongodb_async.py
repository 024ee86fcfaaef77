"""The same work done right, in coroutines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from onewrite import Message, Outcome
from onewrite.mongodb import AsyncGuardedCollection, atransact

C1 = {"_id": "c1"}


def added(customers: AsyncGuardedCollection) -> Callable[[Message], Awaitable[Outcome]]:
    """Each message adds to the balance, in any order."""

    async def handle(message: Message) -> Outcome:
        return await customers.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)

    return handle


def transacted(accounts: AsyncGuardedCollection) -> Callable[[Message], Awaitable[Outcome]]:
    """Both accounts are opened in one transaction, so nobody ever sees one half."""

    async def handle(message: Message) -> Outcome:
        amount = message.body["amount"]
        opened = {"alice": -amount, "bob": amount}
        return await atransact(message, [accounts.inserting({"_id": name, "balance": n}) for name, n in opened.items()])

    return handle
