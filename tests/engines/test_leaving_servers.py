"""The scripts of docs/migrating.md that remove all that onewrite keeps, on real servers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from botocore.exceptions import ClientError

from onewrite import Begun, Event, HighWaterMark, Message, MessageIds, Outbox, SeenIds, Tombstones
from onewrite.core.ledgers import Ledger
from onewrite.outbox import Relay
from tests.support.pages import ROOT, namespace_of
from tests.support.repairs import Place, TablePlace

pytestmark = pytest.mark.measured

LEDGERS: list[Ledger] = [
    SeenIds(),
    SeenIds(None, readable=True, name="text"),
    HighWaterMark(name="marks"),
    MessageIds("mine"),
]
MESSAGES = [Message(f"m{n}", source="s", sequence=n) for n in range(1, 4)]
STEP: Any = {"lease": timedelta(minutes=1), "safe_for": timedelta(hours=1)}


@cache
def page() -> dict[str, Any]:
    return namespace_of(ROOT / "docs" / "migrating.md")


@pytest.fixture
def leave(place: Place, request: pytest.FixtureRequest) -> Callable[[], None]:
    if isinstance(place, TablePlace):
        table = request.getfixturevalue("dynoxide").resource().Table(place.name)
        return lambda: page()["leave"](table)
    return lambda: page()["leave_collection"](place.collection)


def test_script_keeps_business_data(place: Place, leave: Callable[[], None]) -> None:
    store = place.store(SeenIds(), outbox=Outbox("shop"))
    place.write(store, Message("m0"), emit=[Event("Paid", {})])
    Relay(store, lambda _: None).flush(**place.address())
    step = place.call(store, "begin", Message("m9"), "charge", **STEP)
    assert isinstance(step, Begun)
    place.call(store, "record", Message("m9"), finishes=step)
    for ledger in LEDGERS:
        assert place.apply(ledger, *MESSAGES) == ["Applied"] * 3
    place.put("clean", n=1, owner="x")
    leave()
    found = place.contents() or {}
    assert found.pop("id", found.pop("_id", "e")) == "e"
    assert {*found.pop("mine")} == {"@s/m1", "@s/m2", "@s/m3"}
    assert found == {"n": 13}
    assert (place.contents("clean") or {})["owner"] == "x"


def test_script_removes_marks_of_hundreds_of_sources(place: Place, leave: Callable[[], None]) -> None:
    place.put(n=1)
    for n in range(700):
        place.call(place.store(HighWaterMark()), "record", Message("m", source=f"a source {n}", sequence=1))
    leave()
    leave()
    assert [name for name in place.contents() or {} if name.startswith("ow_")] == []


def test_script_deletes_a_tombstone(place: Place, leave: Callable[[], None]) -> None:
    store = place.store(SeenIds(), tombstones=Tombstones(timedelta(days=30)))
    place.write(store, MESSAGES[0])
    place.call(store, "delete", MESSAGES[1])
    assert place.contents() is not None
    leave()
    assert place.contents() is None


@pytest.mark.parametrize("kind", ["event", "step", "tombstone with an event"])
def test_script_keeps_entity_with_pending_event_or_open_step(kind: str, place: Place, leave: Callable[[], None]) -> None:
    store = place.store(SeenIds(), outbox=Outbox("shop"), tombstones=Tombstones(timedelta(days=30)))
    place.write(store, MESSAGES[0], emit=None if kind == "step" else [Event("Paid", {})])
    if kind == "step":
        place.call(store, "begin", MESSAGES[1], "charge", **STEP)
    elif kind != "event":
        place.call(store, "delete", MESSAGES[1])
    before = place.contents()
    if isinstance(place, TablePlace):
        with pytest.raises(ClientError, match="ConditionalCheckFailed"):
            leave()
    else:
        leave()
    assert place.contents() == before
