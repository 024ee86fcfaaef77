"""Turn a command into a reply. A command is decided once, however often it is delivered.

The ledger shows *that* a message was decided. The customer's reservations show *how*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from credit.commands import ReleaseCredit, ReserveCredit
from credit.customers import Customers
from onewrite import Applied, Duplicate, Message, Missing, Outcome, Rejected

Reply: TypeAlias = Literal["reserved", "refused", "released", "no such reservation"]


def reserve(customers: Customers, command: ReserveCredit) -> Reply:
    message = Message(command.id)
    match customers.reserve(message, command.customer_id, command.order_id, command.cents):
        case Applied():
            return "reserved"
        case Duplicate(entity=customer):
            return _decision(customer, command.order_id)
        case Rejected(entity=customer) if _decision(customer, command.order_id) == "reserved":
            return "reserved"  # another message reserved for the same order
        case Rejected():
            # After a crash here, the redelivery decides again. That's safe, because no one has received "refused" yet.
            return _refuse(customers, message, command)
        case outcome:
            raise _unexpected(outcome)


def release(customers: Customers, command: ReleaseCredit) -> Reply:
    message = Message(command.id)
    match customers.release(message, command.customer_id, command.order_id, command.cents):
        case Applied() | Duplicate():
            return "released"
        case Rejected() | Missing():
            return "no such reservation"  # not recorded, because the reservation can still arrive
        case outcome:
            raise _unexpected(outcome)


def _refuse(customers: Customers, message: Message, command: ReserveCredit) -> Reply:
    match customers.refuse(message, command.customer_id):
        case Applied():
            return "refused"
        case Duplicate(entity=customer):
            # Another delivery of this message was decided in the meantime, possibly in another way. That decision stands.
            return _decision(customer, command.order_id)
        case outcome:
            raise _unexpected(outcome)


def _decision(customer: Mapping[str, Any] | None, order_id: str) -> Reply:
    if customer is None:
        return "refused"
    held = any(reservation["order"] == order_id for reservation in customer["reservations"])
    return "reserved" if held or order_id in customer["released"] else "refused"


def _unexpected(outcome: Outcome) -> RuntimeError:
    return RuntimeError(f"A customer is never deleted, and SeenIds knows no order: {outcome!r}")
