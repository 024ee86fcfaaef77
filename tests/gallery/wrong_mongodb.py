"""Handlers that look right, on MongoDB. Each makes one mistake that people really make; its docstring says why."""

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
    """Everybody's first try. It is right in each test that delivers the copy after the first delivery has ended."""

    def handle(message: Message) -> None:
        if customers.find_one({**C1, "seen": message.id}) is None:
            customers.update_one(C1, _add_and_mark(message), upsert=True)

    return handle


def marked_before_the_effect(stores: Mapping[str, Any]) -> Handler:
    """Who fears doubles marks first: `_id` is unique, so only one wins. A crash then loses the effect for good."""
    customers, processed = stores["customers"], stores["processed"]

    def handle(message: Message) -> None:
        try:
            processed.insert_one({"_id": message.id})
        except DuplicateKeyError:
            return
        customers.update_one(C1, _add(message), upsert=True)

    return handle


def marked_after_the_effect(stores: Mapping[str, Any]) -> Handler:
    """Who fears losses marks last: what has not been done is not marked. But what has been done may not be marked either."""
    customers, processed = stores["customers"], stores["processed"]

    def handle(message: Message) -> None:
        if processed.find_one({"_id": message.id}):
            return
        customers.update_one(C1, _add(message), upsert=True)
        processed.insert_one({"_id": message.id})

    return handle


def refusal_taken_for_a_duplicate(customers: Any) -> Handler:
    """E11000 means "seen" when the message itself made the document. It also means that another message made it.

    A server's own upsert with `{"seen": {"$ne": id}}` in its filter is these two steps, and gives the same E11000.
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
    """A transfer whose first half is guarded: "the second is skipped with it". A crash between them skips it for ever."""
    guarded = GuardedCollection(accounts, SeenIds())

    def handle(message: Message) -> None:
        amount = message.body["amount"]
        outcome = guarded.update_one(message, {"_id": "alice"}, {"$inc": {"balance": -amount}}, upsert=True)
        if isinstance(outcome, Applied):
            accounts.update_one({"_id": "bob"}, {"$inc": {"balance": amount}}, upsert=True)

    return handle


def counted_outside_the_guard(customers: Any) -> Handler:
    """The money is guarded; the total beside it is "only statistics", and counts every delivery."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> None:
        guarded.update_one(message, C1, _add(message), upsert=True)
        customers.update_one({"_id": "total"}, _add(message), upsert=True)

    return handle


def written_over_the_ledger(customers: Any) -> Handler:
    """One worker, so nothing races, and a rename saves the whole document as it was read. What was read had no ledger."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> None:
        if "amount" in message.body:
            guarded.update_one(message, C1, _add(message), upsert=True)
        else:
            customer = guarded.find_one(C1) or C1
            customers.replace_one(C1, {**customer, "name": message.body["name"]}, upsert=True)

    return handle


def id_minted_in_the_handler(customers: Any) -> Handler:
    """The producer sends no id, so the consumer makes one: a new one for each delivery."""
    guarded = GuardedCollection(customers, SeenIds())

    def handle(message: Message) -> Outcome:
        return guarded.update_one(Message(str(uuid.uuid4()), body=message.body), C1, _add(message), upsert=True)

    return handle


def high_water_mark_on_an_unordered_queue(customers: Any) -> Handler:
    """The messages are numbered, and a mark is smaller than a set. But nothing keeps them in order on their way."""
    guarded = GuardedCollection(customers, HighWaterMark())

    def handle(message: Message) -> Outcome:
        return guarded.update_one(message, C1, _add(message), upsert=True)

    return handle


def remembers_the_last_two_ids(customers: Any) -> Handler:
    """`$slice` keeps the set small; in earnest it is the last 100. A busy entity goes through them before the copy comes."""

    def handle(message: Message) -> None:
        fresh = {**C1, "seen": {"$ne": message.id}}
        mark = {"$push": {"seen": {"$each": [message.id], "$slice": -2}}}
        try:
            customers.update_one(fresh, {**_add(message), **mark}, upsert=True)
        except DuplicateKeyError:
            return

    return handle


def forgets_within_the_redelivery_window(customers: Any) -> Handler:
    """An hour's ids are a small set. This queue keeps a message for days, and gives it again after each failed night."""
    nights = itertools.count(NOW, 8 * 3600)
    guarded = GuardedCollection(customers, SeenIds(retention=timedelta(hours=1)), clock=lambda: next(nights))

    def handle(message: Message) -> Outcome:
        return guarded.update_one(message, C1, _add(message), upsert=True)

    return handle


def lease_outlived(customers: Any) -> Handler:
    """A lock that expires, lest a dead worker hold it for ever. One that is only slow believes that the lock is still its own."""
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
    """The receipt first, since the write may fail. Its guard says "duplicate" when the second receipt is in the post."""
    customers, outbox = GuardedCollection(stores["customers"], SeenIds()), stores["outbox"]

    def handle(message: Message) -> Outcome:
        outbox.insert_one({"receipt": message.id})
        return customers.update_one(message, C1, _add(message), upsert=True)

    return handle
