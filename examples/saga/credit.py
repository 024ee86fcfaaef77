"""Credit: one MongoDB document per customer, which holds the available credit.

    {"_id": "c-1", "available": 4200}

The ledger is `SeenIds`: each order of a customer is a source of its own. A mark per order would fill the document, whereas IDs are
forgotten after 14 days.
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
        accounts.create_index("ow_due", sparse=True)  # a relay finds pending events by it
        outbox = Outbox("shop/credit")
        self.guarded = GuardedCollection(accounts, SeenIds(), outbox=outbox, clock=clock)

    def open_account(self, message: Message, customer_id: str, cents: int) -> Outcome:
        return self.guarded.insert_one(message, {"_id": customer_id, "available": cents})

    def handle(self, message: Message) -> Outcome | None:
        """Handle an event of the orders. Return None if it doesn't concern credit."""
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
            missing_ok=True,
            rejected_ok=True,
        )
        return self._refuse(message, order) if isinstance(reserved, Rejected | Missing) else reserved

    def _refuse(self, message: Message, order: Order) -> Outcome:
        """Refuse by a write that remembers the message, so that no copy is accepted when there is more credit.

        After a crash before this write, the message is decided again, and no one has received a reply. A customer without an account gets an empty one.
        """
        return self.guarded.update_one(
            message,
            {"_id": order.customer_id},
            {"$setOnInsert": {"available": 0}},
            upsert=True,
            emit=telling(CreditRefused(order)),
        )

    def _release(self, message: Message, order: Order) -> Outcome:
        """Compensate for the reservation. An order is canceled only after its credit was reserved, so there is credit to release."""
        return self.guarded.update_one(
            message,
            {"_id": order.customer_id},
            {"$inc": {"available": order.cents}},
            emit=telling(CreditReleased(order)),
        )
