"""Work done right on MongoDB in other ways: by filters, versions and operators that the handler writes itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

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


def filtered_by_the_ids(customers: Any) -> Handler:
    """A refused upsert means a duplicate, or that somebody has just created the customer. The second try tells which."""

    def handle(message: Message) -> None:
        fresh = {**C1, "seen": {"$ne": message.id}}
        try:
            customers.update_one(fresh, _add_and_mark(message), upsert=True)
        except DuplicateKeyError:
            customers.update_one(fresh, _add_and_mark(message))

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


def _add_and_mark(message: Message) -> dict[str, Any]:
    return {"$inc": {"balance": message.body["amount"]}, "$push": {"seen": message.id}}
