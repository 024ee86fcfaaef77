"""Credit: a MongoDB document a customer, which holds what the customer may still spend.

    {"_id": "c-1", "available": 4200}

The ledger is `SeenIds`: a customer's document is fed by each order of that customer, and each order is a source of its own. A
mark for each of them would fill the document, and ids are forgotten after 14 days.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymongo.collection import Collection

from onewrite import Message, Missing, Outbox, Outcome, Rejected, SeenIds
from onewrite.mongodb import GuardedCollection
from saga.events import CreditRefused, CreditReleased, CreditReserved, Order, OrderCancelled, OrderPlaced, event_of, telling


class Credit:
    def __init__(self, accounts: Collection[dict[str, Any]], *, clock: Callable[[], float]) -> None:
        accounts.create_index("ow_due", sparse=True)  # by which a relay finds what is pending
        outbox = Outbox("shop/credit")
        self.guarded = GuardedCollection(accounts, SeenIds(), outbox=outbox, clock=clock)

    def open_account(self, message: Message, customer_id: str, cents: int) -> Outcome:
        return self.guarded.insert_one(message, {"_id": customer_id, "available": cents})

    def handle(self, message: Message) -> Outcome | None:
        """What orders say. None: nothing that concerns credit."""
        match event_of(message):
            case OrderPlaced(order):
                return self._reserve(message, order)
            case OrderCancelled(order):
                return self._release(message, order)
            case _:
                return None

    def _reserve(self, message: Message, order: Order) -> Outcome:
        reserved = self.guarded.update_one(
            message,
            {"_id": order.customer_id, "available": {"$gte": order.cents}},
            {"$inc": {"available": -order.cents}},
            emit=telling(CreditReserved(order)),
        )
        return self._refuse(message, order) if isinstance(reserved, Rejected | Missing) else reserved

    def _refuse(self, message: Message, order: Order) -> Outcome:
        """To say no is a write as well: it remembers the message, so no copy gets a yes when there is more to spend.

        After a crash before it the message is decided anew, and nobody has heard otherwise. Who has no account gets an empty one.
        """
        return self.guarded.update_one(
            message,
            {"_id": order.customer_id},
            {"$setOnInsert": {"available": 0}},
            upsert=True,
            emit=telling(CreditRefused(order)),
        )

    def _release(self, message: Message, order: Order) -> Outcome:
        """The compensation. An order is cancelled only after its credit was reserved, so there is something to give back."""
        return self.guarded.update_one(
            message,
            {"_id": order.customer_id},
            {"$inc": {"available": order.cents}},
            emit=telling(CreditReleased(order)),
        )
