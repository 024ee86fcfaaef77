"""Handlers that write several messages at once, explored: batches that overlap, on both engines, in every order and with every fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onewrite import InSequence, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore
from onewrite.testing.standins.stores import MakeTable, mongomock_collection, moto_tables

Handler = Callable[[Message], Any]


def batch(name: str, *numbers: int) -> Message:
    """What a broker delivers as one: messages of their own, each of which adds another power of ten."""
    return Message(name, body=[Message(f"m{n}", source="s", sequence=n, body=10**n) for n in numbers])


OVERLAPPING = [batch("first", 1, 2), batch("second", 2, 3)]
ORDERED = [batch("first", 1, 2), batch("second", 1, 2, 3)]


def in_a_table(ledger: Ledger) -> Callable[[Any], Handler]:
    def build(table: Any) -> Handler:
        orders = GuardedTable(table, ledger)

        def add(fresh: list[Message]) -> dict[str, Any]:
            values = {":n": sum(message.body for message in fresh)}
            return {"Key": {"id": "o"}, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": values}

        return lambda message: orders.fold(message.body, add)

    return build


def adding(fresh: list[Message]) -> dict[str, Any]:
    return {"filter": {"_id": "o"}, "update": {"$inc": {"n": sum(message.body for message in fresh)}}, "upsert": True}


def in_a_collection(ledger: Ledger) -> Callable[[Any], Handler]:
    def build(collection: Any) -> Handler:
        orders = GuardedCollection(collection, ledger)
        return lambda message: orders.fold(message.body, adding)

    return build


CASES = pytest.mark.parametrize(
    ("ledger", "messages"), [(SeenIds(), OVERLAPPING), (InSequence(), ORDERED)], ids=["seen", "sequence"]
)
SUMS = (0, 110, 1100, 1110)


@pytest.fixture
def make() -> Iterator[MakeTable]:
    with moto_tables() as made:
        yield made


@CASES
@pytest.mark.slow
@pytest.mark.measured
def test_batches_that_overlap_in_a_table_take_effect_once(make: MakeTable, ledger: Ledger, messages: list[Message]) -> None:
    def n_of(table: Any) -> int:
        return int(table.get_item(Key={"id": "o"}).get("Item", {}).get("n", 0))

    bounds: Any = {"invariant": lambda table: n_of(table) in SUMS}
    report = explore(in_a_table(ledger), messages, lambda: make("orders", "id"), n_of, **bounds)
    report.assert_effectively_once()
    assert report.exhausted


@CASES
@pytest.mark.few(1)
def test_batches_that_overlap_in_a_collection_take_effect_once(ledger: Ledger, messages: list[Message]) -> None:
    def n_of(collection: Any) -> int:
        return int((collection.find_one({"_id": "o"}) or {}).get("n", 0))

    bounds: Any = {"invariant": lambda collection: n_of(collection) in SUMS}
    report = explore(in_a_collection(ledger), messages, mongomock_collection, n_of, **bounds)
    report.assert_effectively_once()
    assert report.exhausted
