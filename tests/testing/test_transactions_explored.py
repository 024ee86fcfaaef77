"""Handlers that write several stores in one `transact`, as the explorer sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from onewrite import Inbox, Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb import transact as transact_items
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import transact as transact_documents
from onewrite.testing import explore
from onewrite.testing.standins.stores import MakeTable, mongomock_collection, moto_tables

M1 = Message("m1", body=5)
NAMES = ("accounts", "totals", "inbox")


@pytest.fixture
def make() -> Iterator[MakeTable]:
    with moto_tables() as made:
        yield made


def of_tables(tables: Mapping[str, Any]) -> Callable[[Message], Outcome]:
    accounts, totals = GuardedTable(tables["accounts"], SeenIds()), GuardedTable(tables["totals"], None)
    inbox = Inbox(tables["inbox"], consumer="c", retention=timedelta(days=1))

    def handle(message: Message) -> Outcome:
        add: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": message.body}}
        writes = [accounts.updating(Key={"id": "ann"}, **add), totals.updating(Key={"id": "total"}, **add)]
        return transact_items(message, writes, inbox=inbox)

    return handle


def of_collections(accounts: Any) -> Callable[[Message], Outcome]:
    database = accounts.database
    guarded, totals = GuardedCollection(accounts, SeenIds()), GuardedCollection(database["totals"], None)
    inbox = Inbox(database["inbox"], consumer="c", retention=timedelta(days=1))

    def handle(message: Message) -> Outcome:
        add = {"$inc": {"n": message.body}}
        writes = [guarded.updating({"_id": "ann"}, add), totals.updating({"_id": "total"}, add)]
        return transact_documents(message, writes, inbox=inbox)

    return handle


@pytest.mark.slow
@pytest.mark.measured
def test_tables_of_one_client_and_an_inbox(make: MakeTable) -> None:
    def numbers(tables: Mapping[str, Any]) -> list[int]:
        keys = {"accounts": "ann", "totals": "total"}
        found = [tables[name].get_item(Key={"id": key}).get("Item", {}) for name, key in keys.items()]
        return [int(item.get("n", 0)) for item in found]

    report = explore(of_tables, [M1], lambda: {name: make(name, "id") for name in NAMES}, numbers)
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.slow
@pytest.mark.measured
def test_collections_of_one_database_and_an_inbox() -> None:
    def world() -> Any:
        accounts = mongomock_collection("accounts")
        accounts.insert_one({"_id": "ann", "n": 0})
        accounts.database["totals"].insert_one({"_id": "total", "n": 0})
        return accounts

    def numbers(accounts: Any) -> list[int]:
        return [accounts.find_one({"_id": "ann"})["n"], accounts.database["totals"].find_one({"_id": "total"})["n"]]

    bounds: Any = {"invariant": lambda accounts: numbers(accounts) in ([0, 0], [5, 5])}
    report = explore(of_collections, [M1], world, numbers, **bounds)
    report.assert_effectively_once()
    assert report.exhausted
