"""Work done right on MongoDB in other ways: by filters, versions and operators that the handler writes itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from pymongo import ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from onewrite import Message

Handler = Callable[[Message], Any]

C1 = {"_id": "c1"}
DUPLICATE_KEY = 11000


def inserted_in_any_order(entries: Any) -> Handler:
    """It inserts all that can be inserted. What is there already is no error, and everything else is."""

    def handle(message: Message) -> None:
        lines = [{"_id": f"{message.id}-{line}", "balance": message.body["amount"]} for line in ("a", "b")]
        try:
            entries.insert_many(lines, ordered=False)
        except BulkWriteError as error:
            if any(failure["code"] != DUPLICATE_KEY for failure in error.details["writeErrors"]):
                raise

    return handle


def found_and_updated(customers: Any) -> Handler:
    """The customer is there. So if none is found, the message is a duplicate."""

    def handle(message: Message) -> int | None:
        fresh = {**C1, "seen": {"$ne": message.id}}
        after = customers.find_one_and_update(fresh, _add_and_mark(message), return_document=ReturnDocument.AFTER)
        return after and after["balance"]

    return handle


def added_by_a_pipeline(customers: Any) -> Handler:
    """The pipeline looks for the id and adds in one write."""

    def handle(message: Message) -> None:
        seen = {"$ifNull": ["$seen", []]}
        added = {"$add": [{"$ifNull": ["$balance", 0]}, message.body["amount"]]}
        balance = {"$cond": [{"$in": [message.id, seen]}, "$balance", added]}
        change = {"$set": {"balance": balance, "seen": {"$setUnion": [seen, [message.id]]}}}
        customers.update_one(C1, [change], upsert=True)

    return handle


def kept_in_a_set(customers: Any) -> Handler:
    """Equal entries are in a set once, and the sum is worked out from them when it is asked for."""

    def handle(message: Message) -> None:
        entry = {"id": message.id, "amount": message.body["amount"]}
        customers.update_one(C1, {"$addToSet": {"entries": entry}, "$set": {"balance": 0}}, upsert=True)

    return handle


def inbox_in_a_transaction(customers: Any) -> Handler:
    """Mark and effect are written together, or neither is. pymongo tries again after a conflict."""
    database = customers.database

    def handle(message: Message) -> None:
        def write(session: Any) -> None:
            database.processed.insert_one({"_id": message.id}, session=session)
            customers.update_one(C1, {"$inc": {"balance": message.body["amount"]}}, session=session)

        with database.client.start_session() as session, suppress(DuplicateKeyError):
            session.with_transaction(write)

    return handle


def in_bulk(entries: Any) -> Handler:
    """Each line has an id of its own, and is written only where it is not there."""

    def handle(message: Message) -> None:
        lines = [f"{message.id}-{line}" for line in ("a", "b")]
        first = {"$setOnInsert": {"balance": message.body["amount"]}}
        entries.bulk_write([UpdateOne({"_id": line}, first, upsert=True) for line in lines])

    return handle


def awaited_version_checked(customers: Any) -> Callable[[Message], Awaitable[None]]:
    """As above, in a coroutine."""

    async def handle(message: Message) -> None:
        while True:
            customer = await customers.find_one(C1)
            if message.id in customer["seen"]:
                return
            balance, version = customer["balance"] + message.body["amount"], customer["version"]
            changed = {**C1, "balance": balance, "version": version + 1, "seen": [*customer["seen"], message.id]}
            replaced = await customers.replace_one({**C1, "version": version}, changed)
            if replaced.matched_count:
                return

    return handle


def _add_and_mark(message: Message) -> dict[str, Any]:
    return {"$inc": {"balance": message.body["amount"]}, "$push": {"seen": message.id}}
