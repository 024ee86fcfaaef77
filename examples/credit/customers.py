"""The customers' credit. A change is one guarded write; the first sight of a customer takes two more, a refusal one.

    {"_id": "c-1", "available": 4200, "reservations": [{"order": "o-1", "cents": 800}], "released": ["o-0"]}

Orders stand in lists, as values: an order id as a field name would need its dots and dollars escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.collection import Collection

from onewrite import Message, Missing, Outcome, Rejected, SeenIds
from onewrite.mongodb import GuardedCollection, transact


class Customers:
    def __init__(self, collection: Collection[dict[str, Any]], *, default_limit: int) -> None:
        self._guarded = GuardedCollection(collection, SeenIds())
        self._default_limit = default_limit

    def reserve(self, message: Message, customer_id: str, order_id: str, cents: int) -> Outcome:
        """`Rejected`: too little credit, or the order has had its reservation, by another message."""
        return self._change(
            message,
            customer_id,
            {"available": {"$gte": cents}, "reservations.order": {"$ne": order_id}, "released": {"$ne": order_id}},
            {"$inc": {"available": -cents}, "$push": {"reservations": {"order": order_id, "cents": cents}}},
        )

    def refuse(self, message: Message, customer_id: str) -> Outcome:
        """Remember the message and nothing else. No upsert: a document without `available` would be no customer."""
        return self._guarded.record(message, {"_id": customer_id}, upsert=False)

    def release(self, message: Message, customer_id: str, order_id: str, cents: int) -> Outcome:
        """`Rejected` or `Missing`: no such reservation. `released` lets a late copy of the reserving message learn what was decided."""
        return self._guarded.update_one(
            message,
            {"_id": customer_id, "reservations": {"$elemMatch": {"order": order_id, "cents": cents}}},
            {
                "$inc": {"available": cents},
                "$pull": {"reservations": {"order": order_id}},
                "$push": {"released": order_id},
            },
        )

    def transfer(self, message: Message, giver_id: str, taker_id: str, cents: int) -> Outcome:
        """Both customers change or neither does. `Rejected`: the first has too little credit. `Missing`: one of them is no customer.

        The two are written in one order by all transfers, so opposite ones meet at the first document.
        """
        given = self._guarded.updating(
            {"_id": giver_id, "available": {"$gte": cents}},
            {"$inc": {"available": -cents}, "$push": {"given": message.id}},
        )
        taken = self._guarded.updating({"_id": taker_id}, {"$inc": {"available": cents}})
        return transact(message, [given, taken] if giver_id < taker_id else [taken, given])

    def raise_credit(self, message: Message, customer_id: str, cents: int) -> Outcome:
        return self._change(message, customer_id, {}, {"$inc": {"available": cents}})

    def customer(self, customer_id: str) -> dict[str, Any] | None:
        return self._guarded.find_one({"_id": customer_id})

    def _change(
        self, message: Message, customer_id: str, condition: Mapping[str, Any], update: Mapping[str, Any]
    ) -> Outcome:
        """Change a customer, who begins with the default limit.

        Not upsert=True: on a missing customer MongoDB does not check {"available": {"$gte": ...}}, it just creates.
        """
        query = {"_id": customer_id, **condition}
        match outcome := self._guarded.update_one(message, query, update):
            case Missing() | Rejected():
                if isinstance(outcome, Missing):
                    self._open(message, customer_id)
                # The customer that is shown may have been opened after the write was refused for want of one: the refusal
                # that counts is that of a customer who was there.
                return self._guarded.update_one(message, query, update)
            case _:
                return outcome

    def _open(self, message: Message, customer_id: str) -> None:
        """Whoever comes second finds the customer there, and that will do.

        Under an id of its own: under the message's, the new customer would hold that as seen, and the change to come would
        be taken for a duplicate.
        """
        first_sight = Message(message.child("open"))
        self._guarded.insert_one(
            first_sight, {"_id": customer_id, "available": self._default_limit, "reservations": [], "released": []}
        )
