"""More handlers that look right, on MongoDB: their own marks, versions and operators do not do what they seem to."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from pymongo import ReadPreference
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from onewrite import Applied, InSequence, Message, Outcome, SeenIds
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection

Handler = Callable[[Message], Any]

C1 = {"_id": "c1"}

log = logging.getLogger(__name__)


def payload_hash_taken_for_the_id(customers: Any) -> Handler:
    """It tells messages apart by a hash of what they say. A customer who deposits the same amount twice loses one deposit."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> Outcome:
        digest = hashlib.sha256(repr(message.body).encode()).hexdigest()
        return guarded.update_one(Message(digest), C1, _add(message), upsert=True)

    return handle


def swallowed_exception(customers: Any) -> Handler:
    """It logs what has gone wrong, and returns. So the queue deletes a message that was not written."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> None:
        try:
            guarded.update_one(message, C1, _add(message), upsert=True)
        except PyMongoError:
            log.warning("could not add %s", message.id)

    return handle


def undone_on_error(accounts: Any) -> Handler:
    """It gives the money back if the second half fails. But an answer that is lost does not mean that the half is not there."""
    guarded = GuardedCollection(accounts, SeenIds())

    def add(message: Message, account: str, amount: int) -> None:
        guarded.update_one(message, {"_id": account}, {"$inc": {"balance": amount}}, upsert=True)

    def handle(message: Message) -> None:
        amount = message.body["amount"]
        add(message, "alice", -amount)
        try:
            add(message, "bob", amount)
        except PyMongoError:
            add(message.part("undo"), "alice", amount)
            raise

    return handle


def moved_in_two_steps(stores: Mapping[str, Any]) -> Handler:
    """It takes an order out of one collection and puts it into another. Between the two it is in neither."""

    def handle(message: Message) -> None:
        taken = stores["pending"].find_one_and_delete(C1)
        if taken:
            stores["customers"].insert_one(taken)

    return handle


def sum_of_a_read(customers: Any) -> Handler:
    """It sets the sum that it has worked out, with the id beside it. Two messages work it out from the same balance."""

    def handle(message: Message) -> None:
        customer = customers.find_one(C1) or {}
        if message.id not in customer.get("seen", ()):
            balance = customer.get("balance", 0) + message.body["amount"]
            customers.update_one(C1, {"$set": {"balance": balance}, "$push": {"seen": message.id}}, upsert=True)

    return handle


def processing_state_left_behind(orders: Any) -> Handler:
    """It lets nobody else work on an order that is being processed. An order whose worker has died is so forever."""

    def handle(message: Message) -> None:
        try:
            orders.insert_one({"_id": message.id, "phase": "processing"})
        except DuplicateKeyError as refusal:
            if orders.find_one({"_id": message.id, "phase": "done"}):
                return
            raise TimeoutError("another worker has it: come again") from refusal
        orders.update_one({"_id": message.id}, {"$set": {"phase": "done", "balance": message.body["amount"]}})

    return handle


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


def set_of_ids_in_memory(customers: Any) -> Handler:
    """It keeps the ids in a set of the process, and the next process begins with an empty one."""
    seen: set[str] = set()

    def handle(message: Message) -> None:
        if message.id not in seen:
            seen.add(message.id)
            customers.update_one(C1, _add(message), upsert=True)

    return handle


def upsert_without_the_id(customers: Any) -> Handler:
    """Its filter finds the customer by name. A duplicate matches nobody, and the upsert makes a second customer of that name."""

    def handle(message: Message) -> None:
        fresh = {"name": "Ann", "seen": {"$ne": message.id}}
        customers.update_one(fresh, {**_add(message), "$push": {"seen": message.id}}, upsert=True)

    return handle


def set_of_ids_beside_the_sum(customers: Any) -> Handler:
    """`$addToSet` adds an id once. But `$inc` beside it adds each time."""

    def handle(message: Message) -> None:
        customers.update_one(C1, {**_add(message), "$addToSet": {"seen": message.id}}, upsert=True)

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


def deferred_and_forgotten(customers: Any) -> Handler:
    """It returns an outcome of its own. So the queue deletes a message that was to wait for an earlier one."""
    guarded = GuardedCollection(customers, InSequence())

    def handle(message: Message) -> Outcome:
        guarded.update_one(message, C1, _add(message), upsert=True)
        return Applied(message)

    return handle


def numbered_by_a_count(entries: Any) -> Handler:
    """It numbers the entries by those that are there. Two messages get the same number."""

    def handle(message: Message) -> None:
        found = list(entries.find({}))
        if all(entry["message"] != message.id for entry in found):
            entry = {"message": message.id, "balance": message.body["amount"]}
            entries.replace_one({"_id": f"c1-{len(found) + 1}"}, entry, upsert=True)

    return handle


def gathered(customers: Any) -> Callable[[Message], Awaitable[None]]:
    """Both writes are under way at once, so no time is lost. One is guarded, and the other is done each time."""
    guarded = AsyncGuardedCollection(customers, SeenIds())

    async def handle(message: Message) -> None:
        counted = customers.update_one({"_id": "total"}, _add(message), upsert=True)
        await asyncio.gather(guarded.update_one(message, C1, _add(message), upsert=True), counted)

    return handle


def failures_gathered(accounts: Any) -> Callable[[Message], Awaitable[None]]:
    """It asks `gather` for the exceptions, so one half does not end the other, and does not look at them."""
    guarded = AsyncGuardedCollection(accounts, SeenIds())

    async def handle(message: Message) -> None:
        amounts = {"alice": -message.body["amount"], "bob": message.body["amount"]}
        halves = [
            guarded.update_one(message, {"_id": account}, {"$inc": {"balance": amount}}, upsert=True)
            for account, amount in amounts.items()
        ]
        await asyncio.gather(*halves, return_exceptions=True)

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
