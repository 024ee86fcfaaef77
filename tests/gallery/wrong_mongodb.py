"""Handlers that look right, on MongoDB. Each makes one mistake that people really make, and its docstring says which."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from pymongo.errors import DuplicateKeyError

from onewrite import Message, Outcome, SeenIds
from onewrite.mongodb import GuardedCollection
from tests.gallery.cases import NOW

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


def refusal_taken_for_a_duplicate(customers: Any) -> Handler:
    """It takes E11000 for a duplicate. But the document may also have been created by another message meanwhile.

    An upsert with `{"seen": {"$ne": id}}` in its filter consists of the same two steps, and fails with the same E11000.
    """

    def handle(message: Message) -> str:
        fresh = {**C1, "seen": {"$ne": message.id}}
        if customers.update_one(fresh, _add_and_mark(message)).matched_count == 0:
            try:
                customers.insert_one({**C1, "balance": message.body["amount"], "seen": [message.id]})
            except DuplicateKeyError:
                return "duplicate"
        return "done"

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


def lease_outlived(customers: Any) -> Handler:
    """It takes a lock that expires, in case its worker dies. A slow worker goes on after its lock has expired."""
    minutes = itertools.count(NOW, 60)

    def handle(message: Message) -> None:
        now = next(minutes)
        free = {**C1, "seen": {"$ne": message.id}, "lockedUntil": {"$not": {"$gte": now}}}
        try:
            customers.update_one(free, {"$set": {"lockedUntil": now + 30}}, upsert=True)
        except DuplicateKeyError as refusal:
            if customers.find_one({**C1, "seen": message.id}):
                return
            raise TimeoutError("locked: come again") from refusal
        customers.update_one(C1, {**_add_and_mark(message), "$unset": {"lockedUntil": ""}})

    return handle


def side_effect_before_the_write(stores: Mapping[str, Any]) -> Handler:
    """It sends the receipt before the write. A redelivery has sent a second one before the guard refuses it."""
    customers, outbox = GuardedCollection(stores["customers"], SeenIds()), stores["outbox"]

    def handle(message: Message) -> Outcome:
        outbox.insert_one({"receipt": message.id})
        return customers.update_one(message, C1, _add(message), upsert=True)

    return handle
