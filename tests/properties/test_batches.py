"""Batches are serial: some order of single writes explains every answer and the end, whatever comes in between and whoever dies.

The flows of both engines run on their stand-ins, for several callers at a time whose requests come in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain, count, repeat
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onewrite import BeginOutcome, Begun, HighWaterMark, InSequence, Message, Outcome, SeenIds, Tombstones
from onewrite.core.features.batches import update_batch
from onewrite.core.flow import Call, Flow, make_executor
from onewrite.core.label import TOMBSTONE, Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import ABSENT, Advance, Remember
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.deletes import delete
from onewrite.dynamodb.layout import lookup as look_into_item
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb.deletes import delete as delete_document
from onewrite.mongodb.layout import lookup as look_into_document
from onewrite.testing.standins.stores import mongomock_collection, moto_table
from tests.support.examples import examples
from tests.support.seams import flows_of
from tests.support.serial_writes import (
    NOW,
    Entity,
    Rules,
    Verdict,
    Write,
    amount,
    highest,
    is_serial,
    verdict_of,
)

LEDGERS: dict[str, Ledger] = {
    "seen": SeenIds(),
    "seen readable": SeenIds(retention=None, readable=True),
    "mark": HighWaterMark(),
    "sequence": InSequence(),
    "seen after marks": SeenIds(previous=HighWaterMark()),
    "marks after seen": HighWaterMark(previous=SeenIds()),
}
# Numbers of two sources, a second id of one number, and an id that is another message for another source.
NAMES = [*((f"{source}{n}", source, n) for source in "st" for n in (1, 2, 3, 4)), ("s2x", "s", 2), ("s1", "u", 1)]
POOL = [Message(name, source=source, sequence=n, body=(3 * n + len(source)) % 5 - 1) for name, source, n in NAMES]
DELETION = Message("deletion", source="deletions", sequence=1, body=0)

batches = st.lists(st.sampled_from(POOL), min_size=1, max_size=4)
limits = st.one_of(st.none(), st.integers(0, 8))


def before(ledger: Ledger) -> Ledger:
    """The ledger under which the first messages were written."""
    if isinstance(ledger.previous, tuple):
        return ledger.previous[-1] if ledger.previous else ledger
    return ledger.previous


def answers_to(given: Sequence[Message], first: dict[Message, Verdict]) -> list[Verdict]:
    """What the caller is told, given what became of the first copies."""
    found, known = list[Verdict](), set[Message]()
    for message in given:
        again = first[message] == ("Applied",) and message in known
        found.append(("Duplicate",) if again else first[message])
        known.add(message)
    return found


# --- the engines, several callers at a time ---------------------------------------------------------------------------

EFFECT: Any = {"lease": timedelta(hours=1), "key_valid_for": timedelta(days=1)}
TOMBSTONES = Tombstones(timedelta(days=30))


def slots_of(ledger: Ledger) -> list[Slot]:
    """Every place in which the ledger keeps something of the messages, or looks for it."""
    entries = [ledger.entry(message, NOW) for message in (*POOL, DELETION)]
    changes = [change for entry in entries for change in entry.checked]
    marks = [change.slot for change in changes if isinstance(change, Advance)]
    marks += [slot for change in changes if isinstance(change, Remember) for slot in change.sets.live]
    return sorted({*marks, *[label.slot for label in entries[0].terms.labels]})


@dataclass
class Table:
    """An order in a table."""

    target: Any
    name: str

    @property
    def key(self) -> dict[str, str]:
        return {"orderId": self.name}

    def store(self, ledger: Ledger) -> Any:
        return GuardedTable(self.target, ledger, clock=lambda: NOW, tombstones=TOMBSTONES)

    def create(self) -> None:
        self.target.put_item(Item={**self.key, "n": 0})

    def begin_effect(self, store: Any, message: Message) -> BeginOutcome:
        return store.begin_effect(message, "charge", Key=self.key, **EFFECT)

    def writing(self, limit: int | None) -> Callable[[list[Message]], dict[str, Any]]:
        def function(fresh: list[Message]) -> dict[str, Any]:
            ids = [message.id for message in fresh]
            values = {":none": [], ":ids": ids, ":n": sum(map(amount, fresh))}
            room = {} if limit is None else {":room": limit - highest(fresh)}
            return {
                "Key": self.key,
                "UpdateExpression": "SET effects = list_append(if_not_exists(effects, :none), :ids) ADD n :n",
                "ExpressionAttributeValues": {**values, **room},
                **({} if limit is None else {"ConditionExpression": "n <= :room", "rejected_ok": True}),
            }

        return function

    def add(self, store: Any, message: Message, limit: int | None) -> Flow[Outcome]:
        return flows_of(store).write(message, self.writing(limit)([message]))

    def delete(self, store: Any) -> Flow[Outcome]:
        return delete(flows_of(store), DELETION, Key=self.key)

    def raw(self) -> dict[str, Any]:
        return self.target.get_item(Key=self.key, ConsistentRead=True).get("Item", {})

    def update_batch(self, store: Any, messages: Sequence[Message], limit: int | None) -> Flow[list[Outcome]]:
        return update_batch(flows_of(store), messages, self.writing(limit))

    look = staticmethod(look_into_item)


@dataclass
class Collection:
    """An order in a collection."""

    target: Any
    name: str

    @property
    def key(self) -> dict[str, str]:
        return {"_id": self.name}

    def store(self, ledger: Ledger) -> Any:
        return GuardedCollection(self.target, ledger, clock=lambda: NOW, tombstones=TOMBSTONES)

    def create(self) -> None:
        self.target.insert_one({**self.key, "n": 0})

    def begin_effect(self, store: Any, message: Message) -> BeginOutcome:
        return store.begin_effect(message, "charge", self.key, **EFFECT)

    def writing(self, limit: int | None) -> Callable[[list[Message]], dict[str, Any]]:
        def function(fresh: list[Message]) -> dict[str, Any]:
            ids = [message.id for message in fresh]
            room = {} if limit is None else {"n": {"$lte": limit - highest(fresh)}}
            update = {"$inc": {"n": sum(map(amount, fresh))}, "$push": {"effects": {"$each": ids}}}
            return {"filter": {**self.key, **room}, "update": update, "upsert": limit is None, "rejected_ok": True}

        return function

    def add(self, store: Any, message: Message, limit: int | None) -> Flow[Outcome]:
        native = self.writing(limit)([message])
        query, update = native.pop("filter"), native.pop("update")
        return flows_of(store).write(message, query, update, writer="update_one", **native)

    def delete(self, store: Any) -> Flow[Outcome]:
        return delete_document(flows_of(store), DELETION, self.key, writer="update_one")

    def raw(self) -> dict[str, Any]:
        return self.target.find_one(self.key) or {}

    def update_batch(self, store: Any, messages: Sequence[Message], limit: int | None) -> Flow[list[Outcome]]:
        return update_batch(flows_of(store), messages, self.writing(limit))

    look = staticmethod(look_into_document)


class Caller(NamedTuple):
    """What one worker does: a batch of several messages, the write of one, or a delete."""

    kind: Literal["update_batch", "add", "delete"]
    messages: tuple[Message, ...]
    dies_after: int | None = None  # so many requests


callers = st.lists(
    st.one_of(
        st.builds(Caller, st.just("update_batch"), batches.map(tuple), st.one_of(st.none(), st.integers(0, 3))),
        st.builds(Caller, st.just("add"), st.sampled_from(POOL).map(lambda message: (message,))),
    ),
    min_size=1,
    max_size=3,
)


def send_requests(flow: Flow[Any], perform: Callable[[Any], Any]) -> Generator[bool, None, Any]:
    """Send the requests of a flow one at a time, and return its result."""
    try:
        effect = next(flow)
        while True:
            try:
                reply = perform(effect)
            except Exception as error:  # what the stand-in refuses, the flow explains
                following = partial(flow.throw, error)
            else:
                following = partial(flow.send, reply)
            if isinstance(effect, Call):
                yield True
            effect = following()
    except StopIteration as done:
        return done.value
    finally:
        flow.close()


def interleave(running: list[Iterator[bool]], order: Iterator[int]) -> None:
    """Send the requests of all, of which the next is always that of the one whom the order names."""
    while running:
        place = next(order) % len(running)
        if next(running[place], None) is None:
            del running[place]


class Run:
    """Callers whose requests are sent in any order."""

    def __init__(self, place: Table | Collection, asked: Rules) -> None:
        self.place, self.rules = place, asked
        self.store = place.store(asked.ledger)
        self.perform = make_executor(place.target)
        self.writes: list[Write] = []

    def flow(self, caller: Caller) -> Flow[Any]:
        if caller.kind == "delete":
            return self.place.delete(self.store)
        if caller.kind == "add":
            return self.place.add(self.store, caller.messages[0], self.rules.limit)
        return self.place.update_batch(self.store, caller.messages, self.rules.limit)

    def together(self, callers: Sequence[Caller], order: Iterator[int]) -> None:
        interleave([self.requests(caller) for caller in callers], order)

    def requests(self, caller: Caller) -> Iterator[bool]:
        """Goes on by one request at a time. Who dies after one has told nobody what came of it."""
        sending, count = send_requests(self.flow(caller), self.perform), 0
        try:
            while count != caller.dies_after:
                yield next(sending)
                count += 1
        except StopIteration as done:
            self.ended(caller, done.value)
        else:
            sending.close()
            self.ended(caller, None)

    def ended(self, caller: Caller, result: Any) -> None:
        kind: Literal["add", "delete"] = "delete" if caller.kind == "delete" else "add"
        if result is None:
            self.writes += [Write(kind, message, None) for message in dict.fromkeys(caller.messages)]
            return
        outcomes: list[Outcome] = result if caller.kind == "update_batch" else [result]
        first: dict[Message, Verdict] = {}
        for message, outcome in zip(caller.messages, outcomes, strict=True):
            first.setdefault(message, verdict_of(outcome))
        assert [verdict_of(outcome) for outcome in outcomes] == answers_to(caller.messages, first)
        self.writes += [Write(kind, message, answer) for message, answer in first.items()]

    def entity(self) -> Entity:
        """The entity as the database has it."""
        raw = self.place.raw()
        look = self.place.look(raw)
        held = [(slot, look(slot)) for slot in slots_of(self.rules.ledger)]
        known = tuple((slot, mark) for slot, mark in held if mark is not ABSENT)
        ids = tuple(raw.get("effects", ()))
        return Entity(bool(raw), int(raw.get("n", 0)), ids, TOMBSTONE in raw, known)


@dataclass(frozen=True)
class Race:
    """`written` and `begun` come before the others, who write at the same time. Whoever dies writes again after all others."""

    callers: list[Caller]
    written: list[Message]
    begun: list[Message]
    deletes: bool
    limit: int | None
    order: list[int]


races = st.builds(
    Race,
    callers=callers,
    written=batches,
    begun=st.lists(st.sampled_from(POOL), max_size=1),
    deletes=st.booleans(),
    limit=limits,
    order=st.lists(st.integers(0, 5), max_size=30),
)


def check_is_serial(place: Table | Collection, ledger: Ledger, race: Race) -> None:
    place.create()
    Run(place, Rules(before(ledger))).together([Caller("add", (message,)) for message in race.written], repeat(0))
    store = place.store(ledger)
    begun = [message for message in race.begun if isinstance(place.begin_effect(store, message), Begun)]
    run = Run(place, Rules(ledger, race.limit, tuple(begun)))
    start = run.entity()
    every = [*race.callers, *([Caller("delete", (DELETION,))] if race.deletes else [])]
    run.together(every, chain(race.order, repeat(0)))
    again = [caller._replace(dies_after=None) for caller in race.callers if caller.dies_after is not None]
    run.together(again, chain(race.order, repeat(0)))
    assert is_serial(run.rules, start, run.entity(), run.writes)


@pytest.mark.parametrize("ledger", LEDGERS.values(), ids=list(LEDGERS))
@settings(max_examples=examples(120))
@given(race=races)
@pytest.mark.few(3)
def test_racing_batches_in_a_collection_are_serial(ledger: Ledger, race: Race) -> None:
    check_is_serial(Collection(mongomock_collection(), "o"), ledger, race)


@pytest.fixture(scope="module")
def table() -> Iterator[Callable[[], Table]]:
    names = count()
    with moto_table() as made:
        yield lambda: Table(made, f"o{next(names)}")


@pytest.mark.parametrize("name", ["seen", "marks after seen", "sequence"])  # moto takes long
@settings(max_examples=examples(16))
@given(race=races)
@pytest.mark.few(1)
def test_racing_batches_in_a_table_are_serial(table: Callable[[], Table], name: str, race: Race) -> None:
    check_is_serial(table(), LEDGERS[name], race)
