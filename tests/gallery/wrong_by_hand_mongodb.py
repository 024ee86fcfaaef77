"""More handlers that look right, on MongoDB: their own marks, versions and operators do not do what they seem to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pymongo import ReadPreference
from pymongo.errors import DuplicateKeyError, OperationFailure

from onewrite import Applied, Message, SeenIds
from onewrite.mongodb import AsyncGuardedCollection

Handler = Callable[[Message], Any]

C1 = {"_id": "c1"}


def mark_outside_of_the_transaction(customers: Any) -> Handler:
    """It forgets the session for one of the two writes. A transaction that is aborted leaves the mark behind."""
    database = customers.database

    def handle(message: Message) -> None:
        with database.client.start_session() as session, suppress(DuplicateKeyError), session.start_transaction():
            database.processed.insert_one({"_id": message.id})
            customers.update_one(C1, _add(message), session=session)

    return handle


def conflict_swallowed(customers: Any) -> Handler:
    """It takes every error of the transaction for the duplicate key of its mark. A conflict with another transaction is one too."""
    database = customers.database

    def handle(message: Message) -> None:
        with database.client.start_session() as session, suppress(OperationFailure), session.start_transaction():
            database.processed.insert_one({"_id": message.id}, session=session)
            customers.update_one(C1, _add(message), session=session)

    return handle


def failures_gathered(accounts: Any) -> Callable[[Message], Awaitable[Applied]]:
    """It asks `gather` for the exceptions, so one half does not end the other, and does not look at them before it says that all is done."""
    guarded = AsyncGuardedCollection(accounts, SeenIds())

    async def handle(message: Message) -> Applied:
        amounts = {"alice": -message.body["amount"], "bob": message.body["amount"]}
        halves = [
            guarded.update_one(message, {"_id": account}, {"$inc": {"balance": amount}}, upsert=True)
            for account, amount in amounts.items()
        ]
        await asyncio.gather(*halves, return_exceptions=True)
        return Applied(message)

    return handle


def look_at_a_secondary(customers: Any) -> Handler:
    """One worker, one message at a time. But it looks at a secondary, which does not have the last write yet."""
    secondary = customers.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED)

    def handle(message: Message) -> None:
        if secondary.find_one({**C1, "seen": message.id}) is None:
            customers.update_one(C1, {**_add(message), "$push": {"seen": message.id}}, upsert=True)

    return handle


def _add(message: Message) -> dict[str, Any]:
    return {"$inc": {"balance": message.body["amount"]}}
