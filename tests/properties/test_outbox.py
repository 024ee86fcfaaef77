"""Outboxes by the engines' own expressions, in any order of many steps; and emitted events are those that consumers read.

`tests/gallery/test_publishing.py` goes through every order of a few steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from bson import ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st

from onewrite import Event, Message, Outbox, SeenIds
from onewrite.core.event import make_emission, make_emitter
from onewrite.core.flow import drive, performer
from onewrite.core.pending import Box, read_box
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.outboxes import origin as item_origin
from onewrite.identity import cloudevent
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb.outboxes import origin as document_origin
from onewrite.outbox import Outgoing
from onewrite.testing.standins.stores import mongomock_collection, moto_table
from tests.support.examples import examples

OUTBOX = Outbox("shop/orders")
RELAYS = 2


@dataclass
class Reader:
    """A relay between two of its steps."""

    box: Box | None = None
    accepted: int = 0


@dataclass
class Course:
    """What becomes of one entity: what was emitted in its present life, and what each source has told."""

    store: Any
    key: dict[str, str]
    delete: Callable[[], object]
    relays: list[Reader] = field(default_factory=lambda: [Reader() for _ in range(RELAYS)])
    emitted: list[str] = field(default_factory=list[str])
    past: list[list[str]] = field(default_factory=list[list[str]])
    told: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    count: int = 0

    def take(self, step: tuple[str, int, int]) -> None:
        what, number, count = step
        match what:
            case "emit":
                self.emit(count)
            case "delete":
                self.delete()
                self.past.append(self.emitted)
                self.emitted = []
            case _:
                self.go_on(self.relays[number], count, clears=what == "clear")

    def go_on(self, relay: Reader, count: int, *, clears: bool) -> None:
        """A relay reads where it has nothing; otherwise it publishes so many events, or clears what it has published."""
        if relay.box is None or not relay.box.events:
            relay.box, relay.accepted = self.asked(self.store.outboxes.read(self.key)), 0
        elif relay.accepted == len(relay.box.events) or (clears and relay.accepted):
            self.clear(relay, relay.box)
        else:
            self.publish(relay, relay.box, count)

    def emit(self, number: int) -> None:
        self.count += 1
        new = [f"{self.count}.{place}" for place in range(number)]
        message, events = Message(f"m{self.count}"), [Event("Added", each) for each in new]
        if isinstance(self.store, GuardedTable):
            update: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
            self.store.update_item(message, Key=self.key, emit=events, **update)
        else:
            self.store.update_one(message, self.key, {"$inc": {"n": 1}}, upsert=True, emit=events)
        self.emitted += new

    def publish(self, relay: Reader, box: Box, count: int) -> None:
        for place in range(relay.accepted, min(relay.accepted + count, len(box.events))):
            self.show(box.outgoing(place))
            relay.accepted += 1

    def show(self, event: Outgoing) -> None:
        told = self.told.setdefault(event.source, [])
        body = json.loads(event.body)
        assert event.sequence <= len(told) + 1, "a first copy leaves out the one before it"
        if event.sequence == len(told) + 1:
            told.append(body)
        assert told[event.sequence - 1] == body, "two events have one number"

    def clear(self, relay: Reader, box: Box) -> None:
        found = self.asked(self.store.outboxes.clear(box, relay.accepted, 0.0))
        if found is None:
            relay.box, relay.accepted = box.after(relay.accepted), 0
        else:
            relay.box = found if found.follows(box, relay.accepted) else None

    def asked(self, flow: Any) -> Any:
        return drive(flow, performer(self.store.outboxes.target))

    def check(self) -> None:
        """One more relay tells the rest. Each life is then told as it was emitted; one that was deleted, up to some event."""
        last: Box = self.asked(self.store.outboxes.read(self.key))
        self.publish(Reader(), last, len(last.events))
        if self.emitted:
            assert self.told.pop(f"{last.origin}/{last.life}") == self.emitted
        assert all(any(life[: len(told)] == told for life in self.past) for told in self.told.values())


@pytest.fixture(scope="module", params=["dynamodb", "mongodb"])
def course(request: pytest.FixtureRequest) -> Iterator[Callable[[], Course]]:
    """Makes a new entity."""
    with ExitStack() as stack:
        if request.param == "dynamodb":
            table = stack.enter_context(moto_table("orders", key="id"))
            store: Any = GuardedTable(table, SeenIds(retention=None), outbox=OUTBOX)
            delete: Callable[[dict[str, str]], object]
            field, delete = "id", lambda key: table.delete_item(Key=key)
        else:
            collection = stack.enter_context(mongomock_collection("orders"))
            store = GuardedCollection(collection, SeenIds(retention=None), outbox=OUTBOX)
            field, delete = "_id", collection.delete_one
        numbers = iter(range(1_000_000))

        def new() -> Course:
            key = {field: f"o{next(numbers)}"}
            return Course(store, key, lambda: delete(key))

        yield new


steps = st.lists(
    st.tuples(
        st.sampled_from(["emit"] * 3 + ["publish"] * 6 + ["clear"] * 3 + ["delete"]),
        st.integers(0, RELAYS - 1),
        st.integers(1, 4),
    ),
    min_size=20,
    max_size=40,
)


@settings(max_examples=examples(40))
@given(steps)
def test_numbers_are_dense_and_unpublished_events_stay(
    course: Callable[[], Course], taken: list[tuple[str, int, int]]
) -> None:
    entity = course()
    for step in taken:
        entity.take(step)
    entity.check()


# ---------------------------------------------------------------- what consumers read

texts = st.text(st.characters(exclude_categories=["Cs"]))
kinds = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=500)
bodies = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)
item_keys = st.dictionaries(texts.filter(bool), texts | st.integers(-(10**37), 10**37) | st.binary(), min_size=1, max_size=2)
document_keys = texts | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.binary(min_size=12, max_size=12).map(ObjectId)


@given(bodies, kinds, item_keys | document_keys, st.integers(0, 10**18))
def test_what_is_emitted_is_what_a_consumer_reads(body: Any, kind: str, key: Any, sent: int) -> None:
    written = make_emission(make_emitter(OUTBOX, "ow_l"), [Message("m1")], [Event(kind, body)], 1_790_000_000.0, "call")
    held: dict[str, Any] = {"ow_o": OUTBOX.label, "ow_events": [dict(event) for event in written.events]}
    held |= {"ow_sent": sent, "ow_life": "life"}
    place = item_origin(key) if isinstance(key, dict) else document_origin(key)
    (event,) = [read_box(OUTBOX.label, {}, f"{OUTBOX.name}/{place}", held).outgoing(0)]
    message = cloudevent(parse_float=float)({"messageId": "any", "body": event.cloudevent()})
    assert (message.source, message.sequence, message.attributes["type"]) == (event.source, sent + 1, kind)
    assert message.body == body


@given(item_keys, item_keys)
def test_two_items_are_two_sources(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (item_origin(one) == item_origin(other)) == (one == other)


@given(document_keys, document_keys)
def test_two_documents_are_two_sources(one: Any, other: Any) -> None:
    assert (document_origin(one) == document_origin(other)) == (one == other and type(one) is type(other))
