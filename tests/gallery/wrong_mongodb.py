"""Handlers that look right, on MongoDB. Each makes one mistake that people really make, and its docstring says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymongo.errors import DuplicateKeyError

from onewrite import Message, SeenIds
from onewrite.mongodb import GuardedCollection

Handler = Callable[[Message], Any]

C1 = {"_id": "c1"}


def _add(message: Message) -> dict[str, Any]:
    return {"$inc": {"balance": message.body["amount"]}}


def _add_and_mark(message: Message) -> dict[str, Any]:
    return {**_add(message), "$push": {"seen": message.id}}


def read_then_write(customers: Any) -> Handler:
    """It looks for the id before it writes. Two deliveries at the same time both find nothing, and both write."""

    def handle(message: Message) -> None:
        if customers.find_one({**C1, "seen": message.id}) is None:
            customers.update_one(C1, _add_and_mark(message), upsert=True)

    return handle


def written_over_the_ledger(customers: Any) -> Handler:
    """It saves the whole document as it was read, and the guarded collection gives documents without their ledger."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> None:
        if "amount" in message.body:
            guarded.update_one(message, C1, _add(message), upsert=True)
        else:
            customer = guarded.find_one(C1) or C1
            customers.replace_one(C1, {**customer, "name": message.body["name"]}, upsert=True)

    return handle


def remembers_the_last_two_ids(customers: Any) -> Handler:
    """It keeps the set small by `$slice`. Real code keeps more than two ids, and a busy entity uses them up all the same."""

    def handle(message: Message) -> None:
        fresh = {**C1, "seen": {"$ne": message.id}}
        mark = {"$push": {"seen": {"$each": [message.id], "$slice": -2}}}
        try:
            customers.update_one(fresh, {**_add(message), **mark}, upsert=True)
        except DuplicateKeyError:  # it is there, or another message has created it at the same time
            customers.update_one(fresh, {**_add(message), **mark})

    return handle
