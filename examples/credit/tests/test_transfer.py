"""A transfer changes two customers or none, once, and no credit appears or vanishes on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mongomock
import pytest
from pymongo.monitoring import CommandListener

from credit import Customers, TransferCredit, transfer
from onewrite.testing import explore, mongod

RENT = TransferCredit("t-1", "ann", "bob", 3000)
TOO_MUCH = TransferCredit("t-2", "ann", "bob", 3000)
BACK = TransferCredit("t-3", "bob", "ann", 1000)


def transferring(collection: Any) -> Callable[[TransferCredit], object]:
    customers = Customers(collection, default_limit=5000)
    return lambda command: transfer(customers, command)


def two_customers() -> Any:
    return opened(mongomock.MongoClient().shop.customers)


def opened(collection: Any) -> Any:
    collection.insert_many([{"_id": name, "available": 5000, "reservations": [], "released": []} for name in ("ann", "bob")])
    return collection


def credit(collection: Any) -> dict[str, int]:
    return {each["_id"]: each["available"] for each in collection.find({}, {"available": 1})}


def is_conserved(collection: Any) -> bool:
    return sum(credit(collection).values()) == 10_000


def test_transfer_happens_once_and_keeps_the_total_credit() -> None:
    report = explore(transferring, [RENT], two_customers, credit, invariant=is_conserved, concurrency=1)
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.parametrize("other", [TOO_MUCH, BACK], ids=["more than there is", "the other way"])
def test_concurrent_transfers_end_as_if_in_sequence(other: TransferCredit) -> None:
    bounds: Any = {"deliveries": 1, "faults": 0, "invariant": is_conserved}
    report = explore(transferring, [RENT, other], two_customers, credit, **bounds)
    report.assert_effectively_once()
    assert report.exhausted


class Releases(CommandListener):
    """Ends another transaction when ours has met it for the third time."""

    def __init__(self) -> None:
        self.conflicts = 0
        self.release: Callable[[], None] = lambda: None

    def started(self, event: Any) -> None:
        """Of no interest."""

    def succeeded(self, event: Any) -> None:
        """Of no interest."""

    def failed(self, event: Any) -> None:
        if event.command_name == "update":
            self.conflicts += 1
            if self.conflicts == 3:
                self.release()


@pytest.fixture
def server() -> Iterator[Any]:
    with mongod() as server:
        yield server


def test_transfer_succeeds_after_three_conflicts(server: Any) -> None:
    releases = Releases()
    collection = opened(server.client(event_listeners=[releases]).shop.customers)
    elsewhere = server.client()
    with elsewhere.start_session() as session:
        session.start_transaction()
        elsewhere.shop.customers.update_one({"_id": "bob"}, {"$inc": {"visits": 1}}, session=session)
        releases.release = session.abort_transaction
        assert transfer(Customers(collection, default_limit=5000), RENT) == "transferred"
    assert releases.conflicts == 3
    assert credit(collection) == {"ann": 2000, "bob": 8000}


def test_refusal_is_final_if_credit_is_added_later(server: Any) -> None:
    collection = opened(server.client().shop.customers)
    customers = Customers(collection, default_limit=5000)
    assert transfer(customers, RENT) == "transferred"
    assert transfer(customers, TOO_MUCH) == "refused"
    collection.update_one({"_id": "ann"}, {"$inc": {"available": 5000}})
    assert [transfer(customers, each) for each in (RENT, TOO_MUCH)] == ["transferred", "refused"]
    assert credit(collection) == {"ann": 7000, "bob": 8000}


def test_transfer_to_oneself_is_refused() -> None:
    with pytest.raises(ValueError, match="two customers"):
        TransferCredit("t", "ann", "ann", 1)
