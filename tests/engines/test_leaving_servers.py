"""The scripts of examples/migrating that write each entity of a set of IDs, and that remove all that onewrite keeps, on real servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from migrating.ids import touch_collection, touch_table
from migrating.leave import leave_collection, leave_table
from onewrite import Begun, Event, HighWaterMark, IdSet, LedgerMismatch, Message, Outbox, SeenIds, Tombstones
from onewrite.core.ledgers import Ledger
from onewrite.outbox import Relay
from tests.support.repairs import Place, TablePlace

pytestmark = pytest.mark.measured

LEDGERS: list[Ledger] = [
    SeenIds(),
    SeenIds(None, readable=True, name="text"),
    HighWaterMark(name="marks"),
    IdSet("mine"),
]
MESSAGES = [Message(f"m{n}", source="s", sequence=n) for n in range(1, 4)]
EFFECT: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(hours=1)}


@pytest.fixture
def leave(place: Place, request: pytest.FixtureRequest) -> Callable[[], None]:
    if isinstance(place, TablePlace):
        table = request.getfixturevalue("dynoxide").resource().Table(place.name)
        return lambda: leave_table(table)
    return lambda: leave_collection(place.collection)


def add_natively(place: Place) -> None:
    """Add one to n without onewrite."""
    if isinstance(place, TablePlace):
        change: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
        place.client.update_item(TableName=place.name, Key={"id": {"S": "e"}}, **change)
    else:
        place.collection.update_one({"_id": "e"}, {"$inc": {"n": 1}}, upsert=True)


def test_script_keeps_business_data(place: Place, leave: Callable[[], None]) -> None:
    store = place.store(SeenIds(), outbox=Outbox("shop"))
    place.write(store, Message("m0"), emit=[Event("Paid", {})])
    Relay(store, lambda _: None).flush(**place.address())
    effect = place.call(store, "begin_effect", Message("m9"), "charge", **EFFECT)
    assert isinstance(effect, Begun)
    place.call(store, "remember", Message("m9"), finishes=effect)
    for ledger in LEDGERS:
        assert place.apply(ledger, *MESSAGES) == ["Applied"] * 3
    place.put("clean", n=1, owner="x")
    leave()
    found = place.contents() or {}
    assert found.pop("id", found.pop("_id", "e")) == "e"
    assert {*found.pop("mine")} == {"@s/m1", "@s/m2", "@s/m3"}
    assert found == {"n": 13}
    assert (place.contents("clean") or {})["owner"] == "x"


@pytest.mark.slow
def test_script_removes_marks_of_hundreds_of_sources(place: Place, leave: Callable[[], None]) -> None:
    place.put(n=1)
    for n in range(700):
        place.call(place.store(HighWaterMark()), "remember", Message("m", source=f"a source {n}", sequence=1))
    leave()
    assert [name for name in place.contents() or {} if name.startswith("ow_")] == []


@pytest.mark.few(1)
def test_script_keeps_the_writes_of_a_running_consumer(place: Place, leave: Callable[[], None]) -> None:
    """The consumer has its own check already, and writes natively."""
    place.put(n=0)
    for n in range(700):
        place.call(place.store(HighWaterMark()), "remember", Message("m", source=f"a source {n}", sequence=1))
    stop = threading.Event()

    def consume() -> int:
        written = 0
        while not stop.is_set():
            add_natively(place)
            written += 1
        return written

    with ThreadPoolExecutor(1) as threads:
        consumer = threads.submit(consume)
        try:
            leave()
        finally:
            stop.set()
        count = consumer.result()
    found = place.contents() or {}
    assert (found["n"], [name for name in found if name.startswith("ow_")]) == (count, [])


def test_script_deletes_a_tombstone(place: Place, leave: Callable[[], None]) -> None:
    store = place.store(SeenIds(), tombstones=Tombstones(timedelta(days=30)))
    place.write(store, MESSAGES[0])
    place.call(store, "delete", MESSAGES[1])
    assert place.contents() is not None
    leave()
    assert place.contents() is None


def test_script_between_two_ledgers_makes_each_entity_acceptable(place: Place, request: pytest.FixtureRequest) -> None:
    """Step 3 of the migration of a set: the next store refuses what the store in between wrote last."""
    between, new, last = IdSet("handled", previous=SeenIds()), SeenIds(previous=IdSet("handled")), SeenIds()
    copies = [Message("m1"), Message("m2")]
    assert place.apply(between, *copies) == ["Applied"] * 2
    with pytest.raises(LedgerMismatch, match="has moved"):
        place.apply(last, Message("m3"))
    if isinstance(place, TablePlace):
        touch_table(request.getfixturevalue("dynoxide").resource().Table(place.name), new)
    else:
        touch_collection(place.collection, new)
    assert place.apply(new, *copies) == ["Duplicate"] * 2
    assert place.apply(last, Message("m3"), Message("m3")) == ["Applied", "Duplicate"]
    assert (place.contents() or {})["n"] == 3


@pytest.mark.parametrize("kind", ["event", "effect", "tombstone with an event"])
def test_script_keeps_entity_with_pending_event_or_open_effect(kind: str, place: Place, leave: Callable[[], None]) -> None:
    store = place.store(SeenIds(), outbox=Outbox("shop"), tombstones=Tombstones(timedelta(days=30)))
    place.write(store, MESSAGES[0], emit=None if kind == "effect" else [Event("Paid", {})])
    if kind == "effect":
        place.call(store, "begin_effect", MESSAGES[1], "charge", **EFFECT)
    elif kind != "event":
        place.call(store, "delete", MESSAGES[1])
    before = place.contents()
    if isinstance(place, TablePlace):
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            leave()
    else:
        leave()
    assert place.contents() == before
