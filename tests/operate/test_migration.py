"""What a migration plans for an entity, and what becomes of it where others are in the way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from bson import ObjectId

from onewrite import Duplicate, HighWaterMark, Message, MessageIDs, SeenIds
from onewrite.core.flow import Flow, run
from onewrite.mongodb import GuardedCollection
from onewrite.operate import dynamodb as of_dynamodb
from onewrite.operate import mongodb as of_mongodb
from onewrite.operate.dynamodb import TableStore
from onewrite.operate.image import EntityImage
from onewrite.operate.migration import Drop, EntityState, Ids, Step, Versions, Visit, is_concerned, pause, visit
from onewrite.operate.mongodb import CollectionStore
from onewrite.testing.standins.stores import mongomock_collection, moto_table

NOW = 1_790_000_000.0
IDS = Ids("ids", SeenIds(), "")
VERSIONS = Versions("version", HighWaterMark(), "s")


def clock() -> float:
    return NOW


@pytest.fixture
def collection() -> Any:
    return mongomock_collection("orders")


def store_of(collection: Any) -> CollectionStore:
    return CollectionStore(collection, clock=clock)


def found_in(store: Any, attribute: str = "ids") -> EntityImage:
    (image,) = run(store.scan(attribute).next(), store.target)
    found: EntityImage = image
    return found


def visited(store: Any, origin: Any = IDS, *, drops: bool = False) -> Visit:
    image = found_in(store, origin.attribute)
    return run(visit(store, origin, image, clock, drops=drops, writes=True), store.target)


def test_what_an_unbounded_ledger_has_written_keeps_its_source_and_its_parts(collection: Any) -> None:
    before = GuardedCollection(collection, MessageIDs("ids", also=SeenIds()), clock=clock)
    messages = [Message("m/1"), Message("m/2", source="a/b+c%"), Message("@m3"), Message("m4", source="s").part("p+q")]
    collection.insert_one({"_id": "e"})
    for message in messages:
        before.update_one(message, {"_id": "e"}, {"$inc": {"n": 1}})
    assert visited(store_of(collection)).plan.marks == 7  # an id that begins with "@" may be the user's own
    assert visited(store_of(collection), drops=True).is_dropped
    after = GuardedCollection(collection, SeenIds(), clock=clock)
    for message in messages:
        assert isinstance(after.update_one(message, {"_id": "e"}, {"$inc": {"n": 1}}), Duplicate)


@pytest.mark.parametrize("source", ["", "s"])
def test_an_id_that_begins_with_an_at_sign_is_carried_as_those_who_look_into_the_set_take_it(
    collection: Any, source: str
) -> None:
    ids, between = ["@m1", "@a%zz%2f/x"], MessageIDs("ids", also=SeenIds())
    collection.insert_one({"_id": "e", "ids": [*ids]})
    GuardedCollection(collection, between, clock=clock).record(Message("@m2"), {"_id": "e"})
    visited(store_of(collection), Ids("ids", SeenIds(), source), drops=True)
    after = GuardedCollection(collection, SeenIds(), clock=clock)
    for id_ in (*ids, "@m2"):
        message = Message(id_, source=source)
        assert isinstance(after.record(message, {"_id": "e"}), Duplicate)


@pytest.mark.parametrize(
    ("ids", "kinds"), [([1, 2], "int"), (["m1", ObjectId()], "ObjectId"), ([{"id": "m1"}], "object"), (None, "NoneType")]
)
def test_a_refusal_says_what_stands_where_ids_are_expected(collection: Any, ids: Any, kinds: str) -> None:
    collection.insert_one({"_id": "e", "ids": ids})
    plan = visited(store_of(collection)).plan
    assert plan.state is EntityState.REFUSED
    assert f"something else ({kinds}). Correct the entity" in plan.why


def test_ids_are_carried_to_the_newest_generation_and_what_is_dead_goes(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["m1"], "ow_r": {f"r{n}": [b"x"] for n in range(6)}})
    store = store_of(collection)
    size = visited(store).size
    held = collection.find_one({"_id": "e"})
    own: Any = SeenIds().entry(Message("m1"), NOW).own
    assert held["ow_r"][own.sets.present.key] == [b"x", own.mark]
    assert sorted(held["ow_r"]) == sorted(slot.key for slot in own.sets.live)
    assert found_in(store_of(collection)).size == size


def test_an_unbounded_ledger_is_one_set(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["m1"]})
    size = visited(store_of(collection), Ids("ids", SeenIds(None), "")).size
    assert len(collection.find_one({"_id": "e"})["ow_all"]) == 1
    assert found_in(store_of(collection)).size == size


@pytest.mark.parametrize("room", [0, 1])
def test_an_entity_without_room_is_refused_or_moved_in_one_write(
    collection: Any, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    collection.insert_one({"_id": "e", "ids": [f"{n:040d}" for n in range(20)]})
    found = found_in(store_of(collection))
    monkeypatch.setattr(of_mongodb, "LARGEST_DOCUMENT", of_mongodb._ROOM + found.size * room)
    done = visited(store_of(collection), drops=True)
    assert (done.plan.state, done.is_dropped) == ((EntityState.TOO_LARGE, True) if room else (EntityState.REFUSED, False))
    assert ("ids" in collection.find_one({"_id": "e"})) == (not room)


def test_a_mark_without_room_is_refused(collection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    monkeypatch.setattr(of_mongodb, "LARGEST_DOCUMENT", 0)
    assert visited(store_of(collection), VERSIONS).plan.why.startswith("The entity would be too large")


class Racing(CollectionStore):
    """Others write the entity before each write, as often as they are told."""

    def __init__(self, collection: Any, change: dict[str, Any], times: int) -> None:
        super().__init__(collection, clock=clock)
        self._change, self._times = change, times

    def migrate(self, image: EntityImage, step: Step) -> Flow[bool]:
        if self._times:
            self._times -= 1
            self.target.update_one(image.key, self._change)
        return super().migrate(image, step)


def test_a_number_that_others_raise_meanwhile_is_read_again(collection: Any) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    done = visited(Racing(collection, {"$inc": {"version": 1}}, 3), VERSIONS)
    assert (done.is_carried, done.is_lost) == (True, False)
    assert collection.find_one({"_id": "e"})["ow_@"] == {"s": 4}


def test_an_entity_that_others_write_at_every_try_is_told(collection: Any) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    assert visited(Racing(collection, {"$inc": {"version": 1}}, 99), VERSIONS).is_lost


def test_an_entity_whose_old_attribute_goes_meanwhile_is_done(collection: Any) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    done = visited(Racing(collection, {"$unset": {"version": ""}}, 1), VERSIONS)
    assert (done.is_carried, done.is_lost) == (False, False)


def test_an_entity_that_becomes_strange_meanwhile_is_refused(collection: Any) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    done = visited(Racing(collection, {"$set": {"ow_@": {"s": "text"}}}, 1), VERSIONS)
    assert (done.plan.state, done.is_carried) == (EntityState.REFUSED, False)


def test_a_ledger_that_is_taken_away_meanwhile_keeps_the_old_set_from_being_dropped(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["m1"]})
    visited(store_of(collection))
    gone = {"$unset": {"ow_l": "", "ow_r": ""}}
    done = visited(Racing(collection, gone, 1), drops=True)
    assert (done.is_carried, done.is_dropped) == (True, False)
    assert collection.find_one({"_id": "e"})["ids"] == ["m1"]
    assert isinstance(GuardedCollection(collection, SeenIds(), clock=clock).seen(Message("m1"), {"_id": "e"}), Duplicate)


def test_what_was_deleted_is_left_alone(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["m1"], "ow_tombstone": {}})
    assert not is_concerned(IDS, found_in(store_of(collection)))
    with moto_table("orders", "id") as table:
        table.put_item(Item={"id": "e", "ids": {"m1"}, "ow_tombstone": {}})
        table.put_item(Item={"id": "f"})
        of_table = TableStore(boto3.client("dynamodb"), "orders", clock=clock)
        scan = of_table.scan("ids")
        images = run(scan.next(), of_table.target)
        assert images is not None
        assert ([is_concerned(IDS, image) for image in images], scan.read_count) == ([False], 2)


def test_a_set_that_is_empty_is_dropped_though_there_is_no_ledger(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": []})
    done = visited(store_of(collection), drops=True)
    assert (done.is_dropped, done.is_lost, "ids" in collection.find_one({"_id": "e"})) == (True, False, False)


def test_what_is_deleted_meanwhile_is_left_alone(collection: Any) -> None:
    changes: list[dict[str, Any]] = [{"$set": {"ow_tombstone": {}}}, {"$unset": {"ids": ""}}]
    for change in changes:
        collection.replace_one({"_id": "e"}, {"_id": "e", "ids": ["m1"]}, upsert=True)
        done = visited(Racing(collection, change, 1))
        assert (done.is_carried, done.is_lost) == (False, False)


def test_an_item_that_grows_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_dynamodb, "_ROOM", -10_000)  # as if it had been so much smaller when it was read
    with moto_table("orders", "id") as table:
        table.put_item(Item={"id": "e", "ids": {"m1"}, "text": "x" * 409_580})
        done = visited(TableStore(boto3.client("dynamodb"), "orders", clock=clock))
        assert done.plan.state is EntityState.REFUSED
        assert "has grown meanwhile" in done.plan.why


def test_an_error_of_the_database_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with moto_table("orders", "id") as table:
        table.put_item(Item={"id": "e", "ids": {"m1"}})
        store = TableStore(boto3.client("dynamodb"), "orders", clock=clock)
        wrong = {"UpdateExpression": "SET id = :x", "ExpressionAttributeValues": {":x": {"S": "f"}}}
        monkeypatch.setattr(of_dynamodb, "request_of", lambda _: wrong)
        with pytest.raises(ClientError, match="ValidationException"):
            visited(store)


def test_a_pause_keeps_the_rate() -> None:
    assert [pause(10, 0, 5), pause(10, 1, 5), pause(10, 3, 5)] == [2, 1, 0]


def test_a_drop_is_planned_only_where_all_is_carried(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["m1", "m2"]})
    store = store_of(collection)
    assert not visited(store, drops=True).is_dropped
    found = found_in(store_of(collection))
    plan = IDS.plan(found, NOW, store.fits, drops=True)
    assert [type(step) for step in plan.steps] == [Drop]
    later = [NOW + timedelta(days=days).total_seconds() for days in range(15, 40)]
    states = [IDS.plan(found, now, store.fits, drops=True).state for now in later]
    assert EntityState.FRESH in states  # what was carried so long ago is forgotten
