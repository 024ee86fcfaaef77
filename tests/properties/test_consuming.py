"""The documentation's table of ledgers for consumers of events, row by row: any order that the broker may give, with copies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onewrite import Deferred, Event, HighWaterMark, InSequence, Message, Outbox, SeenIds
from onewrite.identity import cloudevent
from onewrite.ledger import Ledger
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay
from onewrite.testing import mongomock_collection

ENTITIES, EVENTS = 3, 4
LEDGERS: dict[str, Ledger] = {"InSequence()": InSequence(), "HighWaterMark()": HighWaterMark(), "SeenIds()": SeenIds()}
ROW = re.compile(r"^\| ([^|]+) \| ((?:few|very many) entities[^|]*) \| `(\w+\(\))`", re.MULTILINE)
ROWS = ROW.findall((Path(__file__).parents[2] / "docs" / "events.md").read_text())


@pytest.fixture(scope="module")
def published() -> list[Outgoing]:
    """All events of some entities, as a relay has published them."""
    told: list[Outgoing] = []
    with mongomock_collection("orders") as collection:
        orders = GuardedCollection(collection, SeenIds(), outbox=Outbox("shop/orders"))
        for n in range(EVENTS):
            for entity in range(ENTITIES):
                event = Event("Added", [entity, n + 1])
                orders.update_one(Message(f"{entity}-{n}"), {"_id": entity}, {"$inc": {"n": 1}}, upsert=True, emit=[event])
        Relay(orders, told.extend).sweep()
    return told


@st.composite
def _deliveries(draw: st.DrawFn, *, ordered: bool) -> list[int]:
    """Which event is delivered when, by its place: each at least once. A queue that keeps order has first copies in order."""
    total = ENTITIES * EVENTS
    copies = draw(st.lists(st.integers(0, total - 1), max_size=8))
    if not ordered:
        return draw(st.permutations([*range(total), *copies]))
    order = [*range(total)]
    for copy in copies:  # a copy comes anywhere behind the first
        order.insert(draw(st.integers(order.index(copy) + 1, len(order))), copy)
    return order


def test_the_table_has_these_rows() -> None:
    assert len(ROWS) == 5
    assert {ledger for _, _, ledger in ROWS} == set(LEDGERS)


@pytest.mark.parametrize(("broker", "fed_by", "ledger"), ROWS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_consumer_sees_each_event_once_and_in_order_where_its_row_says_so(
    published: list[Outgoing], broker: str, fed_by: str, ledger: str, data: st.DataObject
) -> None:
    order = data.draw(_deliveries(ordered="FIFO" in broker))
    # From any time on: what came first was never delivered here.
    started_late = "from any time" in fed_by
    missed = {place for place, event in enumerate(published) if started_late and event.sequence == 1}
    seen = _consumed([published[place] for place in order if place not in missed], LEDGERS[ledger])
    expected = [event.body for place, event in enumerate(published) if place not in missed]
    assert sorted(seen) == sorted(expected)
    if ledger != "SeenIds()":
        assert all(_of(entity, seen) == _of(entity, expected) for entity in range(ENTITIES))


def _of(entity: int, bodies: list[str]) -> list[str]:
    return [body for body in bodies if body.startswith(f"[{entity},")]


def _consumed(events: list[Outgoing], ledger: Ledger) -> list[str]:
    """What one consumer's entity has noted, once the broker has nothing left to deliver."""
    with mongomock_collection("history") as collection:
        history, waiting = GuardedCollection(collection, ledger), events
        while waiting:
            waiting = [event for event in waiting if not _settled(history, event)]
        return [*(collection.find_one({"_id": 1}) or {}).get("noted", [])]


def _settled(history: GuardedCollection, event: Outgoing) -> bool:
    message = cloudevent()({"messageId": "any", "body": event.cloudevent()})
    outcome = history.update_one(message, {"_id": 1}, {"$push": {"noted": event.body}}, upsert=True)
    assert isinstance(outcome, Deferred) or outcome.settled
    return outcome.settled
