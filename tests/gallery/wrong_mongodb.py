"""Handlers that look right, on MongoDB. Each makes one mistake that people really make, and its docstring says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymongo.errors import DuplicateKeyError

from onewrite import Message

Handler = Callable[[Message], Any]

C1 = {"_id": "c1"}


def _add(message: Message) -> dict[str, Any]:
    return {"$inc": {"balance": message.body["amount"]}}


def _add_and_mark(message: Message) -> dict[str, Any]:
    return {**_add(message), "$push": {"seen": message.id}}


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
