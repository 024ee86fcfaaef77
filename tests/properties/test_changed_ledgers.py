"""A whole change of ledgers: three in a row, two versions of the service at once, idle sources, late copies, every order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import chain, count, repeat
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onewrite import HighWaterMark, InSequence, Message, Outcome, SeenIds
from onewrite.core.flow import Flow, make_executor
from onewrite.core.ledgers import Ledger
from onewrite.testing.standins.stores import mongomock_collection, moto_table
from tests.properties.test_batches import Collection, Table, interleave, send_requests
from tests.support.examples import examples

IDS, SHORT, MARKS = SeenIds(), SeenIds(timedelta(days=3)), HighWaterMark()
LAST = 6  # the last number of a source


class Change(NamedTuple):
    """The versions of the service that run at once, one phase after the other."""

    phases: tuple[tuple[Ledger, ...], ...]
    in_order: bool  # does a phase lose what comes late for the first time?


COUNTED = InSequence()
CHANGES = {
    "ids, marks": Change(
        ((IDS,), (SeenIds(previous=MARKS), HighWaterMark(previous=IDS)), (HighWaterMark(previous=IDS),)), in_order=True
    ),
    "marks, a sequence": Change(((MARKS,), (MARKS, COUNTED), (COUNTED,)), in_order=True),
    "ids, other ids, a sequence's marks": Change(
        (
            (SHORT,),
            (SeenIds(timedelta(days=3), previous=IDS), SeenIds(previous=SHORT)),
            (SeenIds(previous=(SHORT, MARKS)),),
        ),
        in_order=False,
    ),
}


class Delivery(NamedTuple):
    """Messages of both sources that one worker takes, alone or in a batch, in some phase and by one of its versions."""

    phase: int
    version: int
    numbers: tuple[tuple[str, int], ...]
    batches: bool


class Walk(NamedTuple):
    deliveries: list[Delivery]
    order: list[int]  # of the requests of two workers at a time
    replay: list[tuple[str, int]]


NUMBERS = [(source, n) for source in "st" for n in range(1, LAST + 1)]
deliveries = st.builds(
    Delivery,
    st.integers(0, 3),
    st.integers(0, 1),
    st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=4, unique=True).map(tuple),
    st.booleans(),
)
walks = st.builds(
    Walk,
    st.lists(deliveries, max_size=12).map(lambda each: sorted(each, key=lambda delivery: delivery.phase)),
    st.lists(st.integers(0, 1), max_size=40),
    st.permutations(NUMBERS),
)


def message(source: str, n: int) -> Message:
    return Message(f"{source}{n}", source=source, sequence=n, body=1)


class Service:
    """One entity, and the workers of all versions."""

    def __init__(self, place: Table | Collection, change: Change) -> None:
        self.place, self.change = place, change
        self.perform = make_executor(place.target)
        self.settled: set[tuple[str, int]] = set()
        self.is_replay = False

    def deliver(self, pair: Sequence[Delivery], order: Iterator[int]) -> None:
        """Two workers at a time, whose requests come in any order."""
        interleave([self.requests(delivery) for delivery in pair], order)

    def requests(self, delivery: Delivery) -> Iterator[bool]:
        versions = self.change.phases[delivery.phase]
        store = self.place.store(versions[delivery.version % len(versions)])
        numbers: list[tuple[str, int]] = []
        for number in sorted(delivery.numbers) if self.change.in_order else delivery.numbers:
            if self.is_replay or self.may_come(number, delivery.phase, self.settled | {*numbers}):
                numbers.append(number)
        if numbers and delivery.batches:
            yield from self.steps(numbers, self.place.update_batch(store, [message(*each) for each in numbers], None))
            return
        for each in numbers:
            yield from self.steps([each], self.place.add(store, message(*each), None))

    def may_come(self, number: tuple[str, int], phase: int, done: set[tuple[str, int]]) -> bool:
        source, n = number
        is_last = phase == len(self.change.phases) - 1
        is_free = not self.change.in_order or number in done or (is_last and self.change.phases[-1] == (COUNTED,))
        return is_free or {(source, earlier) for earlier in range(1, n)} <= done

    def steps(self, numbers: Sequence[tuple[str, int]], flow: Flow[Any]) -> Iterator[bool]:
        result = yield from send_requests(flow, self.perform)
        outcomes: list[Outcome] = result if isinstance(result, list) else [result]
        self.settled |= {number for number, outcome in zip(numbers, outcomes, strict=True) if outcome.settled}


def check(place: Table | Collection, change: Change, walk: Walk) -> None:
    place.create()
    service, order = Service(place, change), chain(walk.order, repeat(0))
    for phase in range(len(change.phases)):
        workers = [delivery for delivery in walk.deliveries if delivery.phase == phase]
        for start in range(0, len(workers), 2):
            service.deliver(workers[start : start + 2], order)
    effects = [*place.raw().get("effects", ())]
    service.settled, service.is_replay = set(), True
    # A ledger that doesn't count loses whatever comes late for the first time.
    replay = sorted(walk.replay) if change.in_order and change.phases[-1] != (COUNTED,) else walk.replay
    for _ in replay:
        for number in replay:
            if number not in service.settled:
                service.deliver([Delivery(len(change.phases) - 1, 0, (number,), batches=False)], order)
    assert service.settled == {*NUMBERS}, "somebody waits forever"
    final = place.raw()["effects"]
    assert final[: len(effects)] == effects
    assert sorted(final) == sorted([f"{source}{n}" for source, n in NUMBERS])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@settings(max_examples=examples(300))
@given(walk=walks)
def test_changed_ledger_of_a_collection_applies_each_message_once(change: Change, walk: Walk) -> None:
    check(Collection(mongomock_collection(), "o"), change, walk)


@pytest.fixture(scope="module")
def places() -> Iterator[Iterator[Table]]:
    with moto_table() as made:
        yield (Table(made, f"o{n}") for n in count())


def check_overtaken_refusal(place: Table | Collection, requests: int, batches: bool) -> None:
    """The condition refuses a message, and after so many requests an old writer, which has none, applies it."""
    place.create()
    service = Service(place, CHANGES["marks, a sequence"])
    new, old, first = place.store(COUNTED), place.store(MARKS), message("s", 1)
    refused = place.update_batch(new, [first], 0) if batches else place.add(new, first, 0)
    running = service.steps([("s", 1)], refused)
    for _ in range(requests):
        next(running, None)
    [*_] = service.steps([("s", 1)], place.add(old, first, None))
    [*_] = running
    [*_] = service.steps([("s", 2)], place.add(new, message("s", 2), None))
    assert service.settled == {("s", 1), ("s", 2)}, "somebody waits forever"


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("requests", range(4))
def test_mark_moves_over_refused_message_that_old_writer_applies(
    places: Iterator[Table], requests: int, batches: bool
) -> None:
    check_overtaken_refusal(Collection(mongomock_collection(), "o"), requests, batches)
    check_overtaken_refusal(next(places), requests, batches)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@settings(max_examples=examples(20))
@given(walk=walks)
@pytest.mark.few(1)
def test_changed_ledger_of_a_table_applies_each_message_once(places: Iterator[Table], change: Change, walk: Walk) -> None:
    check(next(places), change, walk)
