"""`onewrite migrate` on real servers: a race with consumers of every kind, kills, and a bookmark."""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from onewrite import HighWaterMark, Message, MessageIDs, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.operate import main
from onewrite.operate import migrate as verb
from onewrite.testing.servers.engines import REGION, Dynoxide, Mongod

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.measured

BETWEEN = MessageIDs("ids", also=SeenIds())
NEW = SeenIds(also=MessageIDs("ids"))
LAST = SeenIds()
IDS = ("--ids", "ids", "--to", "14d", "--no-source")


class Place(ABC):
    """Entities on one engine, and consumers that add 1 to `n` of one for each message."""

    options: tuple[str, ...]

    @abstractmethod
    def put(self, entity: int, **held: Any) -> None: ...
    @abstractmethod
    def old(self, entity: int, name: str) -> None: ...
    @abstractmethod
    def guarded(self, ledger: SeenIds | MessageIDs | HighWaterMark, entity: int, message: Message) -> object: ...
    @abstractmethod
    def old_number(self, number: int) -> None: ...
    @abstractmethod
    def between_number(self, number: int) -> object: ...
    @abstractmethod
    def entities(self) -> dict[int, dict[str, Any]]: ...
    @abstractmethod
    def as_set(self, *texts: str) -> Any: ...


_RISING: Any = {
    "UpdateExpression": "SET version = :v ADD n :n",
    "ConditionExpression": "attribute_not_exists(version) OR version < :v",
}


def numbered(number: int) -> Message:
    return Message(f"m{number}", source="s", sequence=number)


class TablePlace(Place):
    def __init__(self, client: DynamoDBClient, table: str, dynoxide: Dynoxide) -> None:
        self._client, self._name, self.options = client, table, ("--table", table)
        self._table: Any = dynoxide.resource().Table(table)

    def put(self, entity: int, **held: Any) -> None:
        self._table.put_item(Item={"id": f"e{entity}", **held})

    def as_set(self, *texts: str) -> Any:
        return set(texts)

    def old(self, entity: int, name: str) -> None:
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            self._client.update_item(
                TableName=self._name,
                Key={"id": {"S": f"e{entity}"}},
                UpdateExpression="ADD ids :ids, n :n",
                ConditionExpression="NOT contains(ids, :id)",
                ExpressionAttributeValues={":ids": {"SS": [name]}, ":id": {"S": name}, ":n": {"N": "1"}},
            )

    def guarded(self, ledger: SeenIds | MessageIDs | HighWaterMark, entity: int, message: Message) -> object:
        add: Any = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
        return GuardedTable(self._client, ledger, table_name=self._name).update_item(
            message, Key={"id": f"e{entity}"}, **add
        )

    def old_number(self, number: int) -> None:
        with suppress(self._client.exceptions.ConditionalCheckFailedException):
            values: Any = {":v": {"N": str(number)}, ":n": {"N": "1"}}
            self._client.update_item(
                TableName=self._name, Key={"id": {"S": "e0"}}, **_RISING, ExpressionAttributeValues=values
            )

    def between_number(self, number: int) -> object:
        store, message = GuardedTable(self._client, HighWaterMark(), table_name=self._name), numbered(number)
        values = {":v": number, ":n": 1}
        return store.update_item(message, Key={"id": "e0"}, **_RISING, ExpressionAttributeValues=values)

    def entities(self) -> dict[int, dict[str, Any]]:
        return {int(item["id"][1:]): item for item in self._table.scan(ConsistentRead=True)["Items"]}


def _rising(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"_id": 0, "version": {"$not": {"$gte": number}}}, {"$set": {"version": number}, "$inc": {"n": 1}}


class CollectionPlace(Place):
    def __init__(self, collection: Collection[dict[str, Any]], mongod: Mongod) -> None:
        self._collection = collection
        self.options = ("--collection", mongod.uri.replace("/?", f"/{collection.full_name}?"))

    def put(self, entity: int, **held: Any) -> None:
        self._collection.insert_one({"_id": entity, **held})

    def as_set(self, *texts: str) -> Any:
        return [*texts]

    def old(self, entity: int, name: str) -> None:
        self._collection.update_one({"_id": entity, "ids": {"$ne": name}}, {"$push": {"ids": name}, "$inc": {"n": 1}})

    def guarded(self, ledger: SeenIds | MessageIDs | HighWaterMark, entity: int, message: Message) -> object:
        return GuardedCollection(self._collection, ledger).update_one(message, {"_id": entity}, {"$inc": {"n": 1}})

    def old_number(self, number: int) -> None:
        self._collection.update_one(*_rising(number))

    def between_number(self, number: int) -> object:
        return GuardedCollection(self._collection, HighWaterMark()).update_one(numbered(number), *_rising(number))

    def entities(self) -> dict[int, dict[str, Any]]:
        return {found["_id"]: found for found in self._collection.find({})}


@pytest.fixture(params=["dynamodb", "mongodb"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "dynamodb":
        server = request.getfixturevalue("dynoxide")
        names = {"DEFAULT_REGION": REGION, "ACCESS_KEY_ID": "dummy", "SECRET_ACCESS_KEY": "dummy"}
        for name, value in {**names, "ENDPOINT_URL": server.endpoint}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield TablePlace(request.getfixturevalue("dynamo"), request.getfixturevalue("table"), server)
        return
    client: MongoClient[dict[str, Any]] = request.getfixturevalue("mongo")
    monkeypatch.setattr("pymongo.MongoClient", lambda _, **__: client)
    yield CollectionPlace(request.getfixturevalue("collection"), request.getfixturevalue("mongod"))


def migrate(place: Place, capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> Any:
    assert main(["migrate", *place.options, "--json", "--rate", "100000", *options]) == code
    return json.loads(capsys.readouterr().out)


ENTITIES, MESSAGES = 4, 6


def delivered(place: Place, consumers: list[Callable[[int, str], Any]], names: range, meanwhile: Callable[[], Any]) -> None:
    """Deliver each message four times to any of the consumers, in any order, and do something else meanwhile."""
    chance = random.Random(7)  # an order, and no secret
    deliveries = [(entity, f"m{n}") for entity in range(ENTITIES) for n in names for _ in range(3)]
    chance.shuffle(deliveries)
    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(chance.choice(consumers), *each) for each in deliveries]
        meanwhile()
        for each in done:
            each.result()


@pytest.mark.few(1)
def test_consumers_of_every_kind_and_a_migration_that_is_killed_have_each_effect_once(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for entity in range(ENTITIES):
        place.put(entity, n=1, ids=place.as_set("m0"))

    def guarded(ledger: SeenIds | MessageIDs) -> Callable[[int, str], object]:
        return lambda entity, name: place.guarded(ledger, entity, Message(name))

    def killed(*options: str) -> None:
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(verb, "pause", _killing(after=2))
            main(["migrate", *place.options, *IDS, "--yes", *options])

    delivered(place, [place.old, guarded(BETWEEN)], range(MESSAGES), lambda: killed("--rate", "1000"))
    delivered(place, [guarded(BETWEEN), guarded(NEW)], range(MESSAGES + 4), lambda: migrate_until_done(place, capsys))
    migrate_until_done(place, capsys)
    delivered(place, [guarded(NEW)], range(MESSAGES + 8), lambda: killed("--drop"))
    assert migrate(place, capsys, *IDS, "--yes", "--drop")["states"]["carried"] > 0
    delivered(place, [guarded(LAST)], range(MESSAGES + 12), lambda: None)
    assert {entity: int(held["n"]) for entity, held in place.entities().items()} == dict.fromkeys(
        range(ENTITIES), MESSAGES + 12
    )
    assert [held for held in place.entities().values() if "ids" in held] == []


VERSION = ("--version-in", "version", "--source", "s", "--yes")


@pytest.mark.few(1)
def test_consumers_of_a_source_in_order_and_a_migration_have_each_effect_once(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.put(0, version=0, n=0)

    def last(number: int) -> object:
        return place.guarded(HighWaterMark(), 0, numbered(number))

    def in_order(consumers: list[Callable[[int], object]], numbers: range, *options: str) -> None:
        """Deliver a message to three consumers at once, and migrate meanwhile, before the next one comes."""
        with ThreadPoolExecutor(3) as threads:
            for number in numbers:
                done = [threads.submit(consumers[n % len(consumers)], number) for n in range(3)]
                main(["migrate", *place.options, *VERSION, *options, "--json"])
                for each in done:
                    each.result()

    in_order([place.old_number, place.between_number], range(1, 7))
    in_order([place.between_number], range(7, 13))
    capsys.readouterr()
    assert migrate(place, capsys, *VERSION)["states"]["carried"] == 1
    in_order([place.between_number, last], range(13, 19))
    in_order([last], range(19, 25), "--drop")
    held = place.entities()[0]
    assert int(held["n"]) == 24
    assert "version" not in held


def migrate_until_done(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        assert main(["migrate", *place.options, *IDS, "--json", "--yes"]) in {0, 1}
        states = json.loads(capsys.readouterr().out)["states"]
        if not states["to carry"] + states["changed"]:
            break


def _killing(after: int) -> Callable[..., float]:
    visits = iter(range(after))

    def pause(*_: Any) -> float:
        if next(visits, None) is None:
            raise KeyboardInterrupt
        return 0.0

    return pause


def test_a_killed_migration_goes_on_at_its_bookmark(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    many, resume = 230, ("--resume", str(tmp_path / "bookmark"))  # three pages of a collection, and two of a table
    for entity in range(many):
        place.put(entity, ids=place.as_set("m1", "m2"), text="x" * 6_000)
    with monkeypatch.context() as patched:
        patched.setattr(verb, "pause", _killing(after=195))
        assert main(["migrate", *place.options, *IDS, "--yes", *resume]) == 130
    capsys.readouterr()
    assert (tmp_path / "bookmark").exists()
    found = migrate(place, capsys, *IDS, "--yes", *resume)
    assert 0 < found["states"]["to carry"] < found["read"] < many
    assert any("began at the bookmark" in each for each in found["next"])
    assert not (tmp_path / "bookmark").exists()
    assert migrate(place, capsys, *IDS)["states"]["carried"] == many


def test_a_field_that_no_update_can_name_is_refused_with_the_reason(
    collection: Collection[dict[str, Any]],
    mongod: Mongod,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("pymongo.MongoClient", lambda _, **__: collection.database.client)
    place = CollectionPlace(collection, mongod)
    place.put(0, **{"events.Order17": 3})
    found = migrate(place, capsys, "--version-in", "ev*", "--source", "{*}", "--yes", code=1)
    assert found["examples"][0]["why"].startswith("'events.Order17' cannot stand at the top of an entity")
    assert place.entities() == {0: {"_id": 0, "events.Order17": 3}}


def test_a_set_that_leaves_no_room_for_the_ledger_is_moved_in_one_write(
    dynamo: DynamoDBClient,
    dynoxide: Dynoxide,
    table: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"DEFAULT_REGION": REGION, "ACCESS_KEY_ID": "dummy", "SECRET_ACCESS_KEY": "dummy"}
    for name, value in {**names, "ENDPOINT_URL": dynoxide.endpoint}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    place, ids = TablePlace(dynamo, table, dynoxide), [f"{n:036d}" for n in range(10_500)]
    place.put(1, ids={*ids}, n=1)
    found = migrate(place, capsys, *IDS, "--yes", code=1)
    assert (found["states"]["too large"], found["written"]["carried"]) == (1, 0)
    assert "--drop moves" in found["next"][0]
    found = migrate(place, capsys, *IDS, "--yes", "--drop")
    assert (found["written"]["carried"], found["written"]["dropped"]) == (1, 1)
    place.guarded(LAST, 1, Message(ids[17]))
    held = place.entities()[1]
    assert held["n"] == 1
    assert "ids" not in held


@pytest.mark.slow
def test_documents_with_ids_of_every_type_are_all_found(
    collection: Collection[dict[str, Any]],
    mongod: Mongod,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mongo: MongoClient[dict[str, Any]],
) -> None:
    monkeypatch.setattr("pymongo.MongoClient", lambda _, **__: mongo)
    place = CollectionPlace(collection, mongod)
    keys: list[Any] = [*range(99), *[f"e{n}" for n in range(99)], *[bson.ObjectId() for _ in range(9)], {"a": 1}]
    collection.insert_many([{"_id": key, "version": 7} for key in keys])
    options = ("--version-in", "version", "--source", "orders")
    assert migrate(place, capsys, *options, "--yes")["written"]["carried"] == len(keys)
    assert migrate(place, capsys, *options, "--yes", "--drop")["written"]["dropped"] == len(keys)
    assert collection.count_documents({"ow_@.orders": 7, "version": {"$exists": False}}) == len(keys)
