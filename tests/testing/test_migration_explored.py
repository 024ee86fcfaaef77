"""Consumers of two kinds, and the script of docs/migrating.md, race for one entity: each message takes effect once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from onewrite import HighWaterMark, Message, MessageIds, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.standins.stores import MakeTable, mongomock_collection, moto_tables
from tests.support.pages import ROOT, namespace_of

NOW = 1_790_000_000.0
KEY = {"orderId": "e"}
Consumer = Callable[[Any, str], Any]


def clock() -> float:
    return NOW


@pytest.fixture
def make() -> Iterator[MakeTable]:
    with moto_tables() as made:
        yield made


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the blocks of the page define."""
    return namespace_of(ROOT / "docs" / "migrating.md")


# --- consumers of a set of ids ------------------------------------------------------------------------------------------

ADD_ONE: dict[str, Any] = {"Key": KEY, "UpdateExpression": "ADD n :n"}


def write_by_hand(table: Any, **arguments: Any) -> None:
    with suppress(table.meta.client.exceptions.ConditionalCheckFailedException):
        table.update_item(Key=KEY, **arguments)


def old_ids(table: Any, name: str) -> None:
    write_by_hand(
        table,
        UpdateExpression="ADD handled :ids, n :n",
        ConditionExpression="NOT contains(handled, :id)",
        ExpressionAttributeValues={":ids": {name}, ":id": name, ":n": 1},
    )


def old_ids_of_document(collection: Any, name: str) -> None:
    collection.update_one({"_id": "e", "handled": {"$ne": name}}, {"$push": {"handled": name}, "$inc": {"n": 1}})


def guarded_ids(name_of_ledger: str, page: dict[str, Any]) -> Consumer:
    ledger: Ledger = page[name_of_ledger]
    assert isinstance(ledger, MessageIds | SeenIds)

    def handle(place: Any, name: str) -> None:
        if hasattr(type(place), "get_item"):
            store = GuardedTable(place, ledger, clock=clock)
            store.update_item(Message(name), **ADD_ONE, ExpressionAttributeValues={":n": 1})
        else:
            GuardedCollection(place, ledger, clock=clock).update_one(Message(name), {"_id": "e"}, {"$inc": {"n": 1}})

    return handle


# --- consumers of a last number -----------------------------------------------------------------------------------------

RISE: dict[str, Any] = {
    "UpdateExpression": "SET version = :v ADD n :n",
    "ConditionExpression": "attribute_not_exists(version) OR version < :v",
}


def numbered(name: str) -> Message:
    return Message(name, source="orders/e", sequence=int(name))


def old_version(table: Any, name: str) -> None:
    write_by_hand(table, **RISE, ExpressionAttributeValues={":v": int(name), ":n": 1})


def between_version(table: Any, name: str) -> None:
    store = GuardedTable(table, HighWaterMark(), clock=clock)
    store.update_item(numbered(name), Key=KEY, **RISE, ExpressionAttributeValues={":v": int(name), ":n": 1})


def last_version(table: Any, name: str) -> None:
    store = GuardedTable(table, HighWaterMark(), clock=clock)
    store.update_item(numbered(name), **ADD_ONE, ExpressionAttributeValues={":n": 1})


def rise(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    number = int(name)
    return {"_id": "e", "version": {"$not": {"$gte": number}}}, {"$set": {"version": number}, "$inc": {"n": 1}}


def old_version_of_document(collection: Any, name: str) -> None:
    collection.update_one(*rise(name))


def between_version_of_document(collection: Any, name: str) -> None:
    GuardedCollection(collection, HighWaterMark(), clock=clock).update_one(numbered(name), *rise(name))


def last_version_of_document(collection: Any, name: str) -> None:
    store = GuardedCollection(collection, HighWaterMark(), clock=clock)
    store.update_one(numbered(name), {"_id": "e"}, {"$inc": {"n": 1}})


# --- worlds -------------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """Consumers on an engine, and what they keep by hand of message 1, which was handled before."""

    consumers: dict[str, Consumer]
    held: dict[str, Any]
    is_table: bool


@pytest.fixture
def ids(request: pytest.FixtureRequest, page: dict[str, Any]) -> Case:
    is_table = request.param == "dynamodb"
    guarded = {name: guarded_ids(name, page) for name in ("between", "new", "last")}
    old = old_ids if is_table else old_ids_of_document
    return Case({"old": old, **guarded}, {"handled": {"1"} if is_table else ["1"]}, is_table)


@pytest.fixture
def version(request: pytest.FixtureRequest, page: dict[str, Any]) -> Case:
    carry: Callable[[Any], None] = page["carry" if request.param == "dynamodb" else "carry_documents"]
    if request.param == "dynamodb":
        consumers: dict[str, Consumer] = {"old": old_version, "between": between_version, "last": last_version}
    else:
        consumers = {
            "old": old_version_of_document,
            "between": between_version_of_document,
            "last": last_version_of_document,
        }
    return Case({**consumers, "carry": lambda place, _: carry(place)}, {"version": 1}, request.param == "dynamodb")


def on_each_engine(fixture: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(fixture, ["dynamodb", "mongodb"], indirect=True)


# The invariant says what counts, two consumers have one message, and the carry finds nothing to do where a consumer was first.
BY_INVARIANT = "unobserved", "idle", "early"


def explored(case: Case, make: MakeTable, deliveries: list[tuple[str, str]], *, then: tuple[str, ...] = ()) -> Exploration:
    """Each message takes effect once, also where `then` come last, one by one, from consumers of the last kind."""
    consumers = case.consumers

    def build(at: Any) -> Callable[[Message], None]:
        return lambda message: consumers[message.body[0]](at, message.body[1])

    def world() -> Any:
        place = make("entities", "orderId") if case.is_table else mongomock_collection("entities")
        if case.is_table:
            place.put_item(Item={**KEY, **case.held, "n": 1})
        else:
            place.insert_one({"_id": "e", **case.held, "n": 1})
        return place

    names = {"1", *then, *[name for _, name in deliveries if name]}

    def is_once(place: Any) -> bool:
        for name in then:
            consumers["last"](place, name)
        found = place.get_item(Key=KEY).get("Item") if case.is_table else place.find_one({"_id": "e"})
        return int(found["n"]) == len(names)

    messages = [Message(f"{kind} {name} {n}", body=(kind, name)) for n, (kind, name) in enumerate(deliveries)]
    return explore(build, messages, world, lambda _: None, invariant=is_once, deliveries=1, faults=1, concurrency=2)


# --- what holds -----------------------------------------------------------------------------------------------------------


@on_each_engine("ids")
@pytest.mark.few(1)
def test_old_consumers_and_those_between_apply_a_message_once(ids: Case, make: MakeTable) -> None:
    report = explored(ids, make, [("old", "2"), ("between", "2"), ("between", "1")])
    report.assert_effectively_once(accept=BY_INVARIANT)
    assert report.exhausted


@on_each_engine("ids")
@pytest.mark.few(1)
def test_consumers_between_and_new_ones_apply_a_message_once(ids: Case, make: MakeTable) -> None:
    report = explored(ids, make, [("between", "2"), ("new", "2"), ("new", "1")])
    report.assert_effectively_once(accept=BY_INVARIANT)
    assert report.exhausted


@on_each_engine("version")
@pytest.mark.few(1)
def test_after_the_script_the_last_consumers_apply_nothing_again(version: Case, make: MakeTable) -> None:
    report = explored(version, make, [("between", "2"), ("carry", "")], then=("1", "2"))
    report.assert_effectively_once(accept=BY_INVARIANT)
    assert report.exhausted


# --- what does not hold, and is therefore asked of the user -----------------------------------------------------------------


@on_each_engine("ids")
@pytest.mark.few(1)
def test_consumers_that_ignore_the_set_apply_an_id_again(ids: Case, make: MakeTable) -> None:
    assert not explored(ids, make, [("last", "1")]).ok


@on_each_engine("version")
@pytest.mark.few(1)
def test_old_consumers_beside_the_script_let_a_number_in_again(version: Case, make: MakeTable) -> None:
    assert not explored(version, make, [("old", "2"), ("carry", "")], then=("2",)).ok
