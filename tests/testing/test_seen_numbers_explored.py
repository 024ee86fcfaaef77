"""Handlers with a ledger of numbers, as the explorer sees them, where messages race for a slot that an older block has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onewrite import Message, Outcome, SeenNumbers
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb import transact as transact_items
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import transact as transact_documents
from onewrite.testing import explore
from onewrite.testing.standins.stores import MakeTable, mongomock_collection, moto_tables

LEDGER = SeenNumbers(5)  # blocks of two in four slots: 0 and 1, 8 and 9 share one
OLD = Message("m0", source="s", sequence=0, body=1)
M8, M9 = (Message(f"m{n}", source="s", sequence=n, body=n) for n in (8, 9))
ADD = "ADD n :n"


@pytest.fixture
def make() -> Iterator[MakeTable]:
    with moto_tables() as made:
        yield made


def add(message: Message) -> dict[str, Any]:
    return {"UpdateExpression": ADD, "ExpressionAttributeValues": {":n": message.body}}


def of_table(table: Any) -> Callable[[Message], Outcome]:
    return lambda message: GuardedTable(table, LEDGER).update_item(message, Key={"id": "e"}, **add(message))


def of_two_items(table: Any) -> Callable[[Message], Outcome]:
    guarded = GuardedTable(table, LEDGER)
    return lambda message: transact_items(
        message, [guarded.updating(Key={"id": each}, **add(message)) for each in ("e", "f")]
    )


def of_two_documents(collection: Any) -> Callable[[Message], Outcome]:
    guarded = GuardedCollection(collection, LEDGER)

    def handle(message: Message) -> Outcome:
        change = {"$inc": {"n": message.body}}
        return transact_documents(message, [guarded.updating({"_id": each}, change) for each in ("e", "f")])

    return handle


def of_collection(collection: Any) -> Callable[[Message], Outcome]:
    return lambda message: GuardedCollection(collection, LEDGER).update_one(
        message, {"_id": "e"}, {"$inc": {"n": message.body}}, upsert=True
    )


def tables(make: MakeTable) -> Any:
    table = make("entities", "id")
    assert of_table(table)(OLD).settled
    return table


def collections() -> Any:
    collection = mongomock_collection("entities")
    for each in ("e", "f"):
        assert GuardedCollection(collection, LEDGER).update_one(OLD, {"_id": each}, {"$inc": {"n": 1}}, upsert=True).settled
    return collection


def of_items(table: Any) -> dict[str, int]:
    return {item["id"]: int(item["n"]) for item in table.scan()["Items"]}


def of_documents(collection: Any) -> dict[str, int]:
    return {found["_id"]: found["n"] for found in collection.find({})}


@pytest.mark.parametrize("build", [of_table, of_two_items])
@pytest.mark.few(1)
def test_two_messages_enter_a_block_of_an_item_whoever_comes_first(make: MakeTable, build: Any) -> None:
    messages = [M8, M9] if build is of_table else [M8]
    report = explore(build, messages, lambda: tables(make), of_items)
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.parametrize(
    "build", [of_collection, pytest.param(of_two_documents, marks=[pytest.mark.slow, pytest.mark.measured])]
)
def test_two_messages_enter_a_block_of_a_document_whoever_comes_first(build: Any) -> None:
    messages = [M8, M9] if build is of_collection else [M8]
    report = explore(build, messages, collections, of_documents)
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.slow
@pytest.mark.measured
def test_a_window_that_is_too_small_for_how_far_messages_are_overtaken_loses_one_and_doubles_none(make: MakeTable) -> None:
    one, eight = Message("m1", source="s", sequence=1, body=10), M8
    report = explore(of_table, [one, eight], lambda: tables(make), of_items)
    assert not report.ok
    assert report.counterexample is not None
    assert report.counterexample.observed == {"e": OLD.body + M8.body}
