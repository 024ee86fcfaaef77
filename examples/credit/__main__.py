"""A customer with 50.00 of credit, and commands that arrive twice, on an embedded MongoDB: `python -m credit`."""

from __future__ import annotations

import mongomock

from credit.commands import ReleaseCredit, ReserveCredit
from credit.customers import Customers
from credit.handlers import release, reserve
from onewrite import Message


def main() -> None:
    customers = Customers(mongomock.MongoClient().shop.customers, default_limit=5000)
    dinner = ReserveCredit("m-1", "c-1", "dinner", 4000)
    party = ReserveCredit("m-2", "c-1", "party", 3000)

    def tell(what: str, reply: str) -> None:
        customer = customers.customer("c-1") or {}
        print(f"{what:34} {reply:9} {customer['available'] / 100:7.2f} left")

    tell("reserve 40.00 for dinner", reserve(customers, dinner))
    tell("the same message again", reserve(customers, dinner))
    tell("reserve 30.00 for a party", reserve(customers, party))
    customers.raise_credit(Message("m-3"), "c-1", 10000)
    tell("again, with 100.00 more to spend", reserve(customers, party))
    tell("dinner is cancelled", release(customers, ReleaseCredit("m-4", "c-1", "dinner", 4000)))
    tell("the same message again", release(customers, ReleaseCredit("m-4", "c-1", "dinner", 4000)))
    tell("dinner's first message, once more", reserve(customers, dinner))


if __name__ == "__main__":
    main()
