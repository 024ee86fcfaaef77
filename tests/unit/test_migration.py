"""What a migration plans for an entity, and what becomes of it where others are in the way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onewrite import Duplicate, HighWaterMark, Message, MessageIDs, SeenIds
from onewrite.dynamodb import migration as dynamodb_migration
from onewrite.dynamodb.migration import MigrationStore as OfTable
from onewrite.dynamodb.powertools import Records
from onewrite.flow import Flow, run
from onewrite.migration.ids import Ids
from onewrite.migration.plan import Drop, Found, State, Step
from onewrite.migration.versions import Versions
from onewrite.migration.visit import Visit, pause, visit
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import migration as mongodb_migration
from onewrite.mongodb.migration import MigrationStore as OfCollection
from onewrite.testing.standins.stores import mongomock_collection, moto_table

NOW = 1_790_000_000.0
IDS = Ids("ids", SeenIds(), "")
VERSIONS = Versions("version", HighWaterMark(), "s")


def clock() -> float:
    return NOW


@pytest.fixture
def collection() -> Any:
    return mongomock_collection("orders")


def store_of(collection: Any, name: str = "ids") -> OfCollection:
    return OfCollection(collection, name, clock=clock)


def found_in(store: Any) -> Found:
    page = run(store.next(), store.target)
    assert len(page.entities) == 1
    found: Found = page.entities[0]
    return found


def visited(store: Any, origin: Any = IDS, *, drops: bool = False) -> Visit:
    return run(visit(store, origin, found_in(store), clock, drops=drops, writes=True), store.target)


def test_what_an_unbounded_ledger_has_written_keeps_its_source_and_its_parts(collection: Any) -> None:
    before = GuardedCollection(collection, MessageIDs("ids", also=SeenIds()), clock=clock)
    messages = [Message("m/1"), Message("m/2", source="a/b+c%"), Message("@m3"), Message("m4", source="s").part("p+q")]
    collection.insert_one({"_id": "e"})
    for message in messages:
        before.update_one(message, {"_id": "e"}, {"$inc": {"n": 1}})
    assert visited(store_of(collection)).plan.marks == 7  # an id that begins with "@" may be the user's own
    assert visited(store_of(collection), drops=True).dropped
    after = GuardedCollection(collection, SeenIds(), clock=clock)
    for message in messages:
        assert isinstance(after.update_one(message, {"_id": "e"}, {"$inc": {"n": 1}}), Duplicate)


def test_a_spelling_that_no_ledger_has_written_is_refused(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["@a%zz%2f/x"], "ow_ids:l": "ow1 > ow_l"})
    assert visited(store_of(collection)).plan.state is State.REFUSED


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
    monkeypatch.setattr(mongodb_migration, "LARGEST_DOCUMENT", mongodb_migration._ROOM + found.size * room)
    done = visited(store_of(collection), drops=True)
    assert (done.plan.state, done.dropped) == ((State.TOO_LARGE, True) if room else (State.REFUSED, False))
    assert ("ids" in collection.find_one({"_id": "e"})) == (not room)


def test_a_mark_without_room_is_refused(collection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    monkeypatch.setattr(mongodb_migration, "LARGEST_DOCUMENT", 0)
    assert visited(store_of(collection, "version"), VERSIONS).plan.why.startswith("The entity would be too large")


class Racing(OfCollection):
    """Others write the entity before each write, as often as they are told."""

    def __init__(self, collection: Any, attribute: str, change: dict[str, Any], times: int) -> None:
        super().__init__(collection, attribute, clock=clock)
        self._change, self._times = change, times

    def write(self, found: Found, step: Step) -> Flow[bool]:
        if self._times:
            self._times -= 1
            self.target.update_one({"_id": found.key}, self._change)
        return super().write(found, step)


def test_a_number_that_others_raise_meanwhile_is_read_again(collection: Any) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    done = visited(Racing(collection, "version", {"$inc": {"version": 1}}, 3), VERSIONS)
    assert (done.carried, done.lost) == (True, False)
    assert collection.find_one({"_id": "e"})["ow_@"] == {"s": 4}


def test_an_entity_that_others_write_at_every_try_is_told(collection: Any) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    assert visited(Racing(collection, "version", {"$inc": {"version": 1}}, 99), VERSIONS).lost


def test_an_entity_whose_old_attribute_goes_meanwhile_is_done(collection: Any) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    done = visited(Racing(collection, "version", {"$unset": {"version": ""}}, 1), VERSIONS)
    assert (done.carried, done.lost) == (False, False)


def test_an_entity_that_becomes_strange_meanwhile_is_refused(collection: Any) -> None:
    collection.insert_one({"_id": "e", "version": 1})
    done = visited(Racing(collection, "version", {"$set": {"ow_@": {"s": "text"}}}, 1), VERSIONS)
    assert (done.plan.state, done.carried) == (State.REFUSED, False)


def test_a_ledger_that_is_taken_away_meanwhile_keeps_the_old_set_from_being_dropped(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["m1"]})
    visited(store_of(collection))
    gone = {"$unset": {"ow_l": "", "ow_r": ""}}
    done = visited(Racing(collection, "ids", gone, 1), drops=True)
    assert (done.carried, done.dropped) == (True, False)
    assert collection.find_one({"_id": "e"})["ids"] == ["m1"]
    assert isinstance(GuardedCollection(collection, SeenIds(), clock=clock).seen(Message("m1"), {"_id": "e"}), Duplicate)


def test_what_was_deleted_is_left_alone(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["m1"], "ow_tombstone": {}})
    store = store_of(collection)
    assert run(store.next(), store.target).entities == []  # type: ignore[union-attr]  # the first page is there
    with moto_table("orders", "id") as table:
        table.put_item(Item={"id": "e", "ids": {"m1"}, "ow_tombstone": {}})
        table.put_item(Item={"id": "f"})
        of_table = OfTable(boto3.client("dynamodb"), "orders", "ids", clock=clock)
        assert run(of_table.next(), of_table.target) == ([], 2)
        for key in ("e", "f", "g"):
            assert run(of_table.look(Found("", {"id": key}, {}, lambda _: None, 0)), of_table.target) is None


def test_an_item_that_grows_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamodb_migration, "_ROOM", -10_000)  # as if it had been so much smaller when it was read
    with moto_table("orders", "id") as table:
        table.put_item(Item={"id": "e", "ids": {"m1"}, "text": "x" * 409_580})
        done = visited(OfTable(boto3.client("dynamodb"), "orders", "ids", clock=clock))
        assert done.plan.state is State.REFUSED
        assert "has grown meanwhile" in done.plan.why


def test_an_error_of_the_database_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with moto_table("orders", "id") as table:
        table.put_item(Item={"id": "e", "ids": {"m1"}})
        store = OfTable(boto3.client("dynamodb"), "orders", "ids", clock=clock)
        wrong = {"UpdateExpression": "SET id = :x", "ExpressionAttributeValues": {":x": {"S": "f"}}}
        monkeypatch.setattr(dynamodb_migration, "request_of", lambda _: wrong)
        with pytest.raises(ClientError, match="ValidationException"):
            visited(store)


@pytest.fixture
def records() -> Iterator[Any]:
    with moto_table("idempotency", "id") as table:
        for n in range(4):
            table.put_item(Item={"id": f"f#{n}", "expiration": n, "status": "COMPLETED", "data": "x" * 390_000})
        yield table


@pytest.mark.usefixtures("records")
def test_records_of_powertools_are_read_to_the_last_page() -> None:
    found = Records(boto3.client("dynamodb"), "idempotency", "f")
    pages: list[Any] = []
    while (page := run(found.next(), found.target)) is not None:
        pages.append(page)
    assert len(pages) > 1
    assert sorted(int(each["expiration"]) for page in pages for each in page) == [0, 1, 2, 3]


def test_a_pause_keeps_the_rate() -> None:
    assert [pause(10, 0, 5), pause(10, 1, 5), pause(10, 3, 5)] == [2, 1, 0]


def test_a_drop_is_planned_only_where_all_is_carried(collection: Any) -> None:
    collection.insert_one({"_id": "e", "ids": ["m1", "m2"]})
    store = store_of(collection)
    assert not visited(store, drops=True).dropped
    found = found_in(store_of(collection))
    plan = IDS.plan(found, NOW, store.fits, drops=True)
    assert [type(step) for step in plan.steps] == [Drop]
    later = [NOW + timedelta(days=days).total_seconds() for days in range(15, 40)]
    states = [IDS.plan(found, now, store.fits, drops=True).state for now in later]
    assert State.FRESH in states  # what was carried so long ago is forgotten
