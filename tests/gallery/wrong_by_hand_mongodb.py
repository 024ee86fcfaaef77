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


def looked_at_too_late(customers: Any) -> Handler:
    """It gets the document as it was before, and sees there that the message was a duplicate. It has been added again by then."""

    def handle(message: Message) -> str:
        change = {**_add(message), "$push": {"seen": message.id}}
        before = customers.find_one_and_update(C1, change, upsert=True)
        return "duplicate" if before and message.id in before["seen"] else "done"

    return handle


def conflict_not_looked_at(customers: Any) -> Handler:
    """It replaces the document of the version that it has read, and does not look whether there was one."""

    def handle(message: Message) -> None:
        customer = customers.find_one(C1)
        if message.id in customer["seen"]:
            return
        version, balance = customer["version"], customer["balance"] + message.body["amount"]
        changed = {**customer, "balance": balance, "version": version + 1, "seen": [*customer["seen"], message.id]}
        customers.replace_one({**C1, "version": version}, changed)

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


def duplicate_taken_for_an_error(customers: Any) -> Handler:
    """It raises if nothing was matched, because a customer must be there. A duplicate matches nothing either, and is redelivered."""

    def handle(message: Message) -> None:
        fresh = {**C1, "seen": {"$ne": message.id}}
        if not customers.update_one(fresh, {**_add(message), "$push": {"seen": message.id}}).matched_count:
            raise LookupError("no such customer")

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
