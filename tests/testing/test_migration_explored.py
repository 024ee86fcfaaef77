"""Consumers of two kinds and a migration race for one entity, in every order: each message takes effect once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import boto3
import pytest

from onewrite import HighWaterMark, Message, MessageIDs, SeenIds
from onewrite.core.flow import run
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.operate.dynamodb import TableStore
from onewrite.operate.migration import Ids, Origin, Versions, is_concerned, visit
from onewrite.operate.mongodb import CollectionStore
from onewrite.testing import explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.standins.stores import MakeTable, mongomock_collection, moto_tables

NOW = 1_790_000_000.0
KEY = {"id": "e"}
TARGET = SeenIds(timedelta(days=14), name="seen")
BEFORE = MessageIDs("ids")
BETWEEN = MessageIDs("ids", also=TARGET)
NEW = SeenIds(timedelta(days=14), name="seen", also=BEFORE)
IDS = Ids("ids", TARGET, "")
VERSIONS = Versions("version", HighWaterMark(), "s/{id}")
VERSIONS_OF_DOCUMENTS = Versions("version", HighWaterMark(), "s/{_id}")
Do = Callable[[Any, str], Any]


def clock() -> float:
    return NOW


def is_table(place: Any) -> bool:
    return hasattr(type(place), "get_item")


@pytest.fixture
def make() -> Iterator[MakeTable]:
    with moto_tables() as made:
        yield made


# --- consumers of a set of ids, on DynamoDB -----------------------------------------------------------------------------


def old_ids(table: Any, name: str) -> None:
    with suppress(table.meta.client.exceptions.ConditionalCheckFailedException):
        table.update_item(
            Key=KEY,
            UpdateExpression="ADD ids :ids, n :n",
            ConditionExpression="NOT contains(ids, :id)",
            ExpressionAttributeValues={":ids": {name}, ":id": name, ":n": 1},
        )


def guarded_ids(ledger: SeenIds | MessageIDs) -> Do:
    def handle(table: Any, name: str) -> None:
        store = GuardedTable(table, ledger, clock=clock)
        store.update_item(Message(name), Key=KEY, UpdateExpression="ADD n :n", ExpressionAttributeValues={":n": 1})

    return handle


between_ids = guarded_ids(BETWEEN)
new_ids = guarded_ids(NEW)
last_ids = guarded_ids(TARGET)


# --- consumers of a version, on DynamoDB --------------------------------------------------------------------------------

COUNT: dict[str, Any] = {"Key": KEY, "UpdateExpression": "ADD n :n"}
RISE: dict[str, Any] = {
    "Key": KEY,
    "UpdateExpression": "SET version = :v ADD n :n",
    "ConditionExpression": "attribute_not_exists(version) OR version < :v",
}


def old_version(table: Any, name: str) -> None:
    with suppress(table.meta.client.exceptions.ConditionalCheckFailedException):
        table.update_item(**RISE, ExpressionAttributeValues={":v": int(name), ":n": 1})


def guarded_version(table: Any, name: str, change: dict[str, Any], **values: int) -> None:
    message = Message(name, source="s/e", sequence=int(name))
    store = GuardedTable(table, HighWaterMark(), clock=clock)
    store.update_item(message, **change, ExpressionAttributeValues={":n": 1, **values})


def between_version(table: Any, name: str) -> None:
    guarded_version(table, name, RISE, **{":v": int(name)})


def new_version(table: Any, name: str) -> None:
    guarded_version(table, name, COUNT)


# --- the same consumers, on MongoDB ---------------------------------------------------------------------------------------


def old_ids_of_document(collection: Any, name: str) -> None:
    collection.update_one({"_id": "e", "ids": {"$ne": name}}, {"$push": {"ids": name}, "$inc": {"n": 1}})


def guarded_ids_of_document(ledger: SeenIds | MessageIDs) -> Do:
    def handle(collection: Any, name: str) -> None:
        GuardedCollection(collection, ledger, clock=clock).update_one(Message(name), {"_id": "e"}, {"$inc": {"n": 1}})

    return handle


def old_version_of_document(collection: Any, name: str) -> None:
    collection.update_one(
        {"_id": "e", "version": {"$not": {"$gte": int(name)}}}, {"$set": {"version": int(name)}, "$inc": {"n": 1}}
    )


def guarded_version_of_document(*, between: bool) -> Do:
    def handle(collection: Any, name: str) -> None:
        query = {"_id": "e", **({"version": {"$not": {"$gte": int(name)}}} if between else {})}
        update = {"$inc": {"n": 1}, **({"$set": {"version": int(name)}} if between else {})}
        message = Message(name, source="s/e", sequence=int(name))
        GuardedCollection(collection, HighWaterMark(), clock=clock).update_one(message, query, update)

    return handle


# --- the migration, as one more that writes -----------------------------------------------------------------------------


def migrating(origin: Origin, *, drops: bool) -> Do:
    def migrate(place: Any, _: str) -> None:
        store = store_of(place)
        image = run(store.read({"id": {"S": "e"}} if is_table(place) else {"_id": "e"}), store.target)
        if image is not None and is_concerned(origin, image):
            run(visit(store, origin, image, clock, drops=drops, writes=True), store.target)

    return migrate


def store_of(place: Any) -> Any:
    if not is_table(place):
        return CollectionStore(place, clock=clock)
    return TableStore(boto3.client("dynamodb"), place.name, clock=clock)


# --- worlds -----------------------------------------------------------------------------------------------------------------

Kind = dict[str, Do]
TABLE_IDS: Kind = {"old": old_ids, "between": between_ids, "new": new_ids, "last": last_ids}
TABLE_VERSIONS: Kind = {"old": old_version, "between": between_version, "new": new_version, "last": new_version}
COLLECTION_IDS: Kind = {
    "old": old_ids_of_document,
    "between": guarded_ids_of_document(BETWEEN),
    "new": guarded_ids_of_document(NEW),
    "last": guarded_ids_of_document(TARGET),
}
COLLECTION_VERSIONS: Kind = {
    "old": old_version_of_document,
    "between": guarded_version_of_document(between=True),
    "last": guarded_version_of_document(between=False),
}


class Case(NamedTuple):
    """Consumers on an engine, and what they keep by hand of a message that was done before."""

    consumers: Kind
    origin: Origin
    held: dict[str, Any]
    is_table: bool


CASES = {
    "ids of an item": Case(TABLE_IDS, IDS, {"ids": {"1"}}, True),
    "version of an item": Case(TABLE_VERSIONS, VERSIONS, {"version": 1}, True),
    "ids of a document": Case(COLLECTION_IDS, IDS, {"ids": ["1"]}, False),
    "version of a document": Case(COLLECTION_VERSIONS, VERSIONS_OF_DOCUMENTS, {"version": 1}, False),
}
# The invariant says what counts; two actors have one message; there is nothing to carry after a drop.
BY_INVARIANT = "unobserved", "idle", "early"
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def explored(
    case: Case, make: MakeTable, deliveries: list[tuple[str, str]], *, carried: bool = False, faults: int = 1
) -> Exploration:
    """Message 1 was done before by an old consumer, and each other one takes effect once more."""
    actors = {**case.consumers, "carry": migrating(case.origin, drops=False), "drop": migrating(case.origin, drops=True)}

    def build(at: Any) -> Callable[[Message], None]:
        return lambda message: actors[message.body[0]](at, message.body[1])

    def world() -> Any:
        place = make("entities", "id") if case.is_table else mongomock_collection("entities")
        if case.is_table:
            place.put_item(Item={**KEY, **case.held, "n": 1})
        else:
            place.insert_one({"_id": "e", **case.held, "n": 1})
        if carried:
            actors["carry"](place, "")
        return place

    expected = len({name for _, name in deliveries if name} | {"1"})
    messages = [Message(f"{actor} {name} {n}", body=(actor, name)) for n, (actor, name) in enumerate(deliveries)]
    bounds: Any = {"deliveries": 1, "faults": faults, "concurrency": 2}
    return explore(build, messages, world, lambda _: None, invariant=lambda place: effects(place) == expected, **bounds)


def effects(place: Any) -> int:
    found = place.get_item(Key=KEY).get("Item") if is_table(place) else place.find_one({"_id": "e"})
    return int(found["n"])


# --- what holds ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ids of an item", "ids of a document", "version of a document"])
@pytest.mark.slow
def test_a_carry_beside_old_consumers_and_those_between_doubles_nothing(name: str, make: MakeTable) -> None:
    report = explored(CASES[name], make, [("old", "2"), ("between", "2"), ("carry", "")])
    report.assert_effectively_once(accept=BY_INVARIANT)
    assert report.exhausted


@pytest.mark.parametrize("name", ["ids of an item", "ids of a document", "version of a document"])
@pytest.mark.few(1)
def test_a_carry_and_a_drop_beside_consumers_between_double_nothing(name: str, make: MakeTable) -> None:
    report = explored(CASES[name], make, [("between", "2"), ("between", "1"), ("carry", ""), ("drop", "")], faults=0)
    report.assert_effectively_once(accept=BY_INVARIANT)
    assert report.exhausted


@pytest.mark.parametrize("name", ["ids of an item", "ids of a document"])
@pytest.mark.few(1)
def test_a_drop_beside_consumers_between_and_new_ones_doubles_nothing(name: str, make: MakeTable) -> None:
    report = explored(CASES[name], make, [("between", "2"), ("new", "2"), ("drop", "")], carried=True)
    report.assert_effectively_once(accept=BY_INVARIANT)
    assert report.exhausted


@EVERY_CASE
@pytest.mark.few(1)
def test_once_all_is_carried_a_drop_beside_consumers_without_a_look_doubles_nothing(case: Case, make: MakeTable) -> None:
    report = explored(case, make, [("last", "2"), ("last", "1"), ("drop", "")], carried=True)
    report.assert_effectively_once(accept=BY_INVARIANT)
    assert report.exhausted


# --- what does not hold, and is therefore asked of the user -------------------------------------------------------------------


@EVERY_CASE
@pytest.mark.few(1)
def test_a_drop_while_old_consumers_run_doubles_and_the_explorer_sees_it(case: Case, make: MakeTable) -> None:
    assert not explored(case, make, [("old", "1"), ("drop", "")], carried=True).ok


@EVERY_CASE
@pytest.mark.few(1)
def test_consumers_without_a_look_before_all_is_carried_double(case: Case, make: MakeTable) -> None:
    assert not explored(case, make, [("last", "1"), ("carry", "")]).ok
