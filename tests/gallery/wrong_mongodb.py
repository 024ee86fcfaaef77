"""Handlers that look right, on MongoDB. Each makes one mistake that people really make, and its docstring says which."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from pymongo.errors import DuplicateKeyError

from onewrite import Applied, HighWaterMark, Message, Outcome, SeenIds
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


def marked_before_the_effect(stores: Mapping[str, Any]) -> Handler:
    """It marks the message first, which only one delivery can do. A crash after that loses the effect for good."""
    customers, processed = stores["customers"], stores["processed"]

    def handle(message: Message) -> None:
        try:
            processed.insert_one({"_id": message.id})
        except DuplicateKeyError:
            return
        customers.update_one(C1, _add(message), upsert=True)

    return handle


def marked_after_the_effect(stores: Mapping[str, Any]) -> Handler:
    """It marks the message last. A crash between the effect and the mark repeats the effect."""
    customers, processed = stores["customers"], stores["processed"]

    def handle(message: Message) -> None:
        if processed.find_one({"_id": message.id}):
            return
        customers.update_one(C1, _add(message), upsert=True)
        processed.insert_one({"_id": message.id})

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


def two_entities_one_mark(accounts: Any) -> Handler:
    """It skips the second half of a transfer if the first is a duplicate. A crash between them loses the second half."""
    guarded = GuardedCollection(accounts, SeenIds())

    def handle(message: Message) -> None:
        amount = message.body["amount"]
        outcome = guarded.update_one(message, {"_id": "alice"}, {"$inc": {"balance": -amount}}, upsert=True)
        if isinstance(outcome, Applied):
            accounts.update_one({"_id": "bob"}, {"$inc": {"balance": amount}}, upsert=True)

    return handle


def counted_outside_the_guard(customers: Any) -> Handler:
    """It guards the balance, but not the total beside it, which counts every delivery."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> None:
        guarded.update_one(message, C1, _add(message), upsert=True)
        customers.update_one({"_id": "total"}, _add(message), upsert=True)

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


def id_minted_in_the_handler(customers: Any) -> Handler:
    """The producer sends no id, so the handler makes one. Each delivery gets another."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> Outcome:
        return guarded.update_one(Message(str(uuid.uuid4()), body=message.body), C1, _add(message), upsert=True)

    return handle


def high_water_mark_on_an_unordered_queue(customers: Any) -> Handler:
    """It keeps a mark, because messages are numbered and a mark is small. But nothing keeps their order on the way."""
    guarded = GuardedCollection(customers, HighWaterMark())

    def handle(message: Message) -> Outcome:
        return guarded.update_one(message, C1, _add(message), upsert=True)

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


def forgets_within_the_redelivery_window(customers: Any) -> Handler:
    """It keeps the ids of one hour, but the queue keeps a message for days and delivers it again after each failure."""
    nights = itertools.count(NOW, 8 * 3600)
    guarded = GuardedCollection(customers, SeenIds(retention=timedelta(hours=1)), clock=lambda: next(nights))

    def handle(message: Message) -> Outcome:
        return guarded.update_one(message, C1, _add(message), upsert=True)

    return handle


def batch_under_its_first_id(customers: Any) -> Callable[[Any, Any], None]:
    """It writes a batch at once, and remembers the first of its messages. What is redelivered alone is taken for a new one."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(event: Any, context: object) -> None:
        first, total = event["Records"][0]["messageId"], sum(10 ** int(record["body"]) for record in event["Records"])
        guarded.update_one(Message(first), C1, {"$inc": {"balance": total}}, upsert=True)

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


def deleted_with_its_ledger(customers: Any) -> Handler:
    """It deletes the customer, and the ledger with it. A deposit that is redelivered after that brings the customer back."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> None:
        if "amount" in message.body:
            guarded.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)
        else:
            customers.delete_one(C1)

    return handle
