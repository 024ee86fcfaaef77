"""A command is decided once, however often it comes, and credit is spent and given back once."""

from __future__ import annotations

from typing import Any

import pytest

from credit import Customers, ReleaseCredit, ReserveCredit, release, reserve
from onewrite import Duplicate, Message, Outcome

DINNER = ReserveCredit("m-1", "c-1", "dinner", 4000)
PARTY = ReserveCredit("m-2", "c-1", "party", 3000)
DINNER_IS_OFF = ReleaseCredit("m-3", "c-1", "dinner", 4000)


def available(customers: Customers) -> int:
    customer = customers.customer("c-1")
    assert customer
    return int(customer["available"])


def test_enough_credit_is_reserved(customers: Customers) -> None:
    assert reserve(customers, DINNER) == "reserved"

    assert customers.customer("c-1") == {
        "_id": "c-1",
        "available": 1000,
        "reservations": [{"order": "dinner", "cents": 4000}],
        "released": [],
    }


def test_redelivery_reserves_once_and_gets_the_same_reply(customers: Customers) -> None:
    assert [reserve(customers, DINNER) for _ in range(3)] == ["reserved"] * 3
    assert available(customers) == 1000


def test_too_little_credit_is_refused(customers: Customers) -> None:
    reserve(customers, DINNER)

    assert reserve(customers, PARTY) == "refused"
    assert available(customers) == 1000


def test_refusal_stays_after_credit_was_raised(customers: Customers) -> None:
    reserve(customers, DINNER)
    reserve(customers, PARTY)
    customers.raise_credit(Message("m-9"), "c-1", 10_000)

    assert reserve(customers, PARTY) == "refused"
    assert isinstance(customers.reserve(Message(PARTY.id), "c-1", PARTY.order_id, PARTY.cents), Duplicate)
    assert available(customers) == 11_000


def test_second_message_for_a_reserved_order_changes_nothing(customers: Customers) -> None:
    reserve(customers, ReserveCredit("m-1", "c-1", "dinner", 1000))

    assert reserve(customers, ReserveCredit("m-2", "c-1", "dinner", 1000)) == "reserved"
    assert available(customers) == 4000


def test_release_returns_the_credit_once(customers: Customers) -> None:
    reserve(customers, DINNER)

    assert [release(customers, DINNER_IS_OFF) for _ in range(2)] == ["released"] * 2
    assert available(customers) == 5000


def test_reservation_stays_released_if_redelivered_after_its_release(customers: Customers) -> None:
    reserve(customers, DINNER)
    release(customers, DINNER_IS_OFF)

    assert reserve(customers, DINNER) == "reserved"  # as it was told the first time
    assert reserve(customers, ReserveCredit("m-8", "c-1", "dinner", 4000)) == "reserved"
    assert available(customers) == 5000


@pytest.mark.parametrize("wrong", [ReleaseCredit("m-3", "c-1", "dinner", 9999), ReleaseCredit("m-3", "c-1", "lunch", 4000)])
def test_unreserved_credit_is_not_released(customers: Customers, wrong: ReleaseCredit) -> None:
    reserve(customers, DINNER)

    assert release(customers, wrong) == "no such reservation"
    assert available(customers) == 1000


def test_early_release_works_on_redelivery(customers: Customers) -> None:
    assert release(customers, DINNER_IS_OFF) == "no such reservation"
    assert customers.customer("c-1") is None
    reserve(customers, DINNER)

    assert release(customers, DINNER_IS_OFF) == "released"


class CrashesBeforeItRefuses(Customers):
    def refuse(self, message: Message, customer_id: str) -> Outcome:
        raise KeyboardInterrupt


def test_redelivery_decides_again_after_a_crash_before_record(collection: Any) -> None:
    customers = Customers(collection, default_limit=5000)
    reserve(customers, DINNER)
    with pytest.raises(KeyboardInterrupt):
        reserve(CrashesBeforeItRefuses(collection, default_limit=5000), PARTY)
    customers.raise_credit(Message("m-9"), "c-1", 10_000)

    assert reserve(customers, PARTY) == "reserved"


class IsOvertakenBeforeItRefuses(Customers):
    """Between the rejection and its record, credit is raised and another consumer gets the same message."""

    def refuse(self, message: Message, customer_id: str) -> Outcome:
        self.raise_credit(Message("m-9"), customer_id, 10_000)
        self.reserve(message, customer_id, PARTY.order_id, PARTY.cents)
        return super().refuse(message, customer_id)


def test_concurrent_deliveries_reply_with_the_first_decision(collection: Any) -> None:
    customers = IsOvertakenBeforeItRefuses(collection, default_limit=5000)
    reserve(customers, DINNER)

    assert reserve(customers, PARTY) == "reserved"
    assert available(customers) == 8000


class IsOvertakenBeforeItOpens(Customers):
    """Between the look at a missing customer and the opening, another consumer opens the customer and reserves."""

    def __init__(self, collection: Any) -> None:
        super().__init__(collection, default_limit=5000)
        self._other = Customers(collection, default_limit=5000)

    def _open(self, message: Message, customer_id: str) -> None:
        reserve(self._other, DINNER)
        super()._open(message, customer_id)


def test_concurrent_first_messages_open_the_customer_once(collection: Any) -> None:
    customers = IsOvertakenBeforeItOpens(collection)

    assert reserve(customers, ReserveCredit("m-2", "c-1", "lunch", 1000)) == "reserved"
    assert available(customers) == 0


def test_concurrent_deliveries_of_a_first_message_reserve_once(collection: Any) -> None:
    assert reserve(IsOvertakenBeforeItOpens(collection), DINNER) == "reserved"
    assert available(Customers(collection, default_limit=5000)) == 1000
