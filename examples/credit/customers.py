"""The customers' credit. A change is one guarded write. Creating a customer takes two more requests, and a refusal one.

    {"_id": "c-1", "available": 4200, "reservations": [{"order": "o-1", "cents": 800}], "released": ["o-0"]}

Order IDs are values in lists, because as field names their dots and dollars would need escaping.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.collection import Collection

from onewrite import Message, Missing, Outcome, Rejected, SeenIds
from onewrite.mongodb import GuardedCollection


class Customers:
    def __init__(self, collection: Collection[dict[str, Any]], *, default_limit: int) -> None:
        self._guarded = GuardedCollection(collection, SeenIds())
        self._default_limit = default_limit

    def reserve(self, message: Message, customer_id: str, order_id: str, cents: int) -> Outcome:
        """Reserve credit. `Rejected` means too little credit, or that another message has reserved for this order."""
        return self._change(
            message,
            customer_id,
            {"available": {"$gte": cents}, "reservations.order": {"$ne": order_id}, "released": {"$ne": order_id}},
            {"$inc": {"available": -cents}, "$push": {"reservations": {"order": order_id, "cents": cents}}},
        )

    def refuse(self, message: Message, customer_id: str) -> Outcome:
        """Remember the message and change nothing else. No upsert: a document without `available` would not be a customer."""
        return self._guarded.remember(message, {"_id": customer_id}, upsert=False)

    def release(self, message: Message, customer_id: str, order_id: str, cents: int) -> Outcome:
        """Release a reservation. `Rejected` or `Missing` means that there is none. A late copy of the reservation finds the decision in `released`."""
        return self._guarded.update_one(
            message,
            {"_id": customer_id, "reservations": {"$elemMatch": {"order": order_id, "cents": cents}}},
            {
                "$inc": {"available": cents},
                "$pull": {"reservations": {"order": order_id}},
                "$push": {"released": order_id},
            },
        )

    def raise_credit(self, message: Message, customer_id: str, cents: int) -> Outcome:
        return self._change(message, customer_id, {}, {"$inc": {"available": cents}})

    def customer(self, customer_id: str) -> dict[str, Any] | None:
        return self._guarded.find_one({"_id": customer_id})

    def _change(
        self, message: Message, customer_id: str, condition: Mapping[str, Any], update: Mapping[str, Any]
    ) -> Outcome:
        """Change a customer, who begins with the default limit.

        An upsert can't do this: MongoDB doesn't check {"available": {"$gte": ...}} in a missing document, and creates it.
        """
        query = {"_id": customer_id, **condition}
        match outcome := self._guarded.update_one(message, query, update):
            case Missing() | Rejected():
                if isinstance(outcome, Missing):
                    self._open(message, customer_id)
                # The customer in this outcome might have been created after the write was refused because there was none.
                # Only the refusal of an existing customer counts.
                return self._guarded.update_one(message, query, update)
            case _:
                return outcome

    def _open(self, message: Message, customer_id: str) -> None:
        """Create the customer, unless another delivery already has.

        The insert has its own message ID. Under the command's own ID, the change that follows would be a duplicate of the insert.
        """
        first_sight = Message(message.child("open"))
        self._guarded.insert_one(
            first_sight, {"_id": customer_id, "available": self._default_limit, "reservations": [], "released": []}
        )
