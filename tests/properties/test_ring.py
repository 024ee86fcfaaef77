"""The promise of a bounded SeenIds, on a simulated clock: what is remembered, what is forgotten, and how much is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onewrite import Duplicate, Message, SeenIds
from onewrite.ledger import Mark

DAY = 86_400.0
START = 1_700_000_000.0
YEARS = 30 * 365
SLOTS = {f"r{n}" for n in range(6)}

retentions = st.one_of(
    st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=400)),
    st.sampled_from([timedelta(seconds=1), timedelta(hours=1), timedelta(days=14), timedelta(days=400)]),
)
moments = st.floats(min_value=START, max_value=START + YEARS * DAY)
# Where in its bounds something lies; the bounds themselves, most of all.
shares = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(min_value=-1, max_value=1))
fractions = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(min_value=0, max_value=1))


class Entity:
    """An entity with a bounded ledger: what an engine does with an entry, in plain Python."""

    def __init__(self, ledger: SeenIds) -> None:
        self.ledger = ledger
        self.slots: dict[str, set[Mark]] = {}

    def write(self, message_id: str, now: float) -> bool:
        """One guarded write by a consumer whose clock shows `now`. Was it applied?"""
        message = Message(message_id)
        entry = self.ledger.entry(message, now)
        if entry.judge(message, {slot: frozenset(marks) for slot, marks in self.slots.items()}) is not None:
            return False
        for slot in entry.ring.drops:
            self.slots.pop(slot, None)
        self.slots.setdefault(entry.slot, set()).add(entry.mark)
        return True

    def kept(self) -> int:
        return sum(map(len, self.slots.values()))


class Write(NamedTuple):
    """Another message, `at` this share of the time in between, by a clock that is off by this share of the skew."""

    at: float
    skew: float


def seconds(retention: timedelta) -> float:
    return retention.total_seconds()


def skewed(true: float, share: float, retention: timedelta) -> float:
    return true + share * seconds(retention) / 56


others = st.lists(st.builds(Write, fractions, shares), max_size=12)


@given(retentions, moments, shares, shares, fractions, others, st.booleans())
@example(timedelta(days=14), START, 1.0, -1.0, 1.0, [], False)
@example(timedelta(days=14), START, -1.0, 1.0, 1.0, [Write(0.5, 1.0), Write(1.0, 1.0)], True)
def test_an_id_is_recognised_for_the_whole_retention_whatever_happens_in_between(
    retention: timedelta, written: float, writer: float, reader: float, later: float, between: list[Write], digest: bool
) -> None:
    entity = Entity(SeenIds(retention, digest=digest))
    assert entity.write("m", skewed(written, writer, retention))
    span = later * seconds(retention)
    for n, other in enumerate(sorted(between)):
        assert entity.write(f"other-{n}", skewed(written + other.at * span, other.skew, retention))
    assert not entity.write("m", skewed(written + span, reader, retention))


@given(retentions, moments, shares, shares, fractions, others)
def test_a_consumer_with_another_clock_never_drops_what_is_still_needed(
    retention: timedelta, written: float, writer: float, other: float, later: float, before: list[Write]
) -> None:
    """The write may also meet what is already there: older marks, and a ring that has turned."""
    entity = Entity(SeenIds(retention))
    for n, write in enumerate(sorted(before)):
        entity.write(f"before-{n}", skewed(written - 3 * (1 - write.at) * seconds(retention), write.skew, retention))
    assert entity.write("m", skewed(written, writer, retention))
    entity.write("after", skewed(written + later * seconds(retention), other, retention))
    assert not entity.write("m", skewed(written + seconds(retention), -other, retention))


@given(retentions, moments, st.lists(st.tuples(st.floats(min_value=0, max_value=60), st.integers(0, 4)), max_size=40))
def test_a_schedule_of_deliveries_ends_as_if_ids_were_kept_in_a_table(
    retention: timedelta, begin: float, steps: list[tuple[float, int]]
) -> None:
    """Against a plain table of times: recognised within the retention, fresh after 1.7 of it, either in between."""
    entity = Entity(SeenIds(retention))
    applied: dict[str, float] = {}
    now = begin
    for wait, n in steps:
        now += wait * seconds(retention) / 20
        age = (now - applied.get(f"m{n}", float("-inf"))) / seconds(retention)
        fresh = entity.write(f"m{n}", now)
        if age <= 1:
            assert not fresh
        elif age > 1.7:
            assert fresh
        if fresh:
            applied[f"m{n}"] = now


@given(
    retentions,
    moments,
    shares,
    shares,
    st.floats(min_value=1.7, max_value=400, exclude_min=True),
    st.lists(st.floats(min_value=0, max_value=1), max_size=6),
)
def test_an_id_is_forgotten_after_1_7_retentions_however_long_the_entity_slept(
    retention: timedelta, written: float, writer: float, reader: float, laps: float, between: list[float]
) -> None:
    """Fresh again, too, where its mark is still there: a leftover of an old lap is no duplicate."""
    entity = Entity(SeenIds(retention))
    entity.write("m", skewed(written, writer, retention))
    for n, share in enumerate(sorted(between)):
        entity.write(f"other-{n}", written + share * laps * seconds(retention))
    assert entity.write("m", skewed(written + laps * seconds(retention), reader, retention))


@given(retentions, moments)
def test_three_slots_live_and_three_are_dropped_of_six(retention: timedelta, now: float) -> None:
    entry = SeenIds(retention).entry(Message("m"), now)
    live = [slot for slot, _ in entry.lacks]
    assert len(live) <= 3
    assert len(set(live)) == len(live)
    assert {*live, *entry.ring.drops} == SLOTS
    assert len(live) + len(entry.ring.drops) == len(SLOTS)
    assert (entry.slot, entry.mark) in entry.lacks


@given(retentions, moments, fractions)
def test_every_generation_has_a_mark_of_its_own(retention: timedelta, now: float, apart: float) -> None:
    """Two places are one only where the times are less than a generation apart."""
    ledger = SeenIds(retention)
    later = now + (0.55 + 400 * apart) * seconds(retention)
    first, second = ledger.entry(Message("m"), now), ledger.entry(Message("m"), later)
    assert (first.slot, first.mark) != (second.slot, second.mark)


def _first_of_next_generation(ledger: SeenIds, begin: int) -> int:
    """The microsecond at which marks begin to go elsewhere."""
    assert ledger.retention is not None

    def place(moment: int) -> tuple[str, Mark]:
        entry = ledger.entry(Message("m"), moment / 1e6)
        return entry.slot, entry.mark

    low, high = begin, begin + ledger.retention // timedelta(microseconds=1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if place(middle) == place(begin) else (low, middle)
    return high


@given(retentions, st.integers(min_value=int(START) * 10**6, max_value=int(START + YEARS * DAY) * 10**6))
def test_the_promise_holds_to_the_microsecond_where_generations_meet(retention: timedelta, begin: int) -> None:
    ledger = SeenIds(retention)
    span = retention // timedelta(microseconds=1)
    skew = span // 56
    first = _first_of_next_generation(ledger, begin)
    for offset in (-2, -1, 0, 1):
        late, early = Entity(ledger), Entity(ledger)
        late.write("m", (first + offset) / 1e6)
        assert not late.write("m", (first + offset + span + 2 * skew) / 1e6)  # the writer slow, the reader fast
        early.write("m", (first + offset) / 1e6)
        assert not early.write("m", (first + offset - 2 * skew) / 1e6)  # the writer fast, the reader slow


def _bursts(entity: Entity, days: int, phase: float) -> Iterator[int]:
    """One id stands for a burst."""
    for n in range(YEARS // days):
        entity.write(f"burst-{n}", START + phase * DAY + n * days * DAY)
        yield entity.kept()


@pytest.mark.parametrize("days", range(16, 400))
def test_no_entity_grows_whatever_the_rhythm_of_its_bursts(days: int) -> None:
    assert max(_bursts(Entity(SeenIds()), days, 0.0)) <= 16


@given(st.integers(16, 399) | st.just(296), st.floats(min_value=0, max_value=400))
def test_no_entity_grows_whenever_its_rhythm_begins(days: int, phase: float) -> None:
    # 296 days are nearly in step with the ring: up to 24 of their 37 bursts were kept. Of every other rhythm, 15.
    assert max(_bursts(Entity(SeenIds()), days, phase)) <= (24 if days == 296 else 15)


@given(st.integers(min_value=2, max_value=200), moments)
def test_steady_traffic_keeps_at_most_1_65_retentions_of_ids(per_retention: int, begin: float) -> None:
    retention = timedelta(days=14)
    entity = Entity(SeenIds(retention))
    most: dict[int, int] = defaultdict(int)
    for n in range(6 * per_retention):
        entity.write(f"m{n}", begin + n * seconds(retention) / per_retention)
        most[n // per_retention] = max(most[n // per_retention], entity.kept())
    assert max(most.values()) <= 1.65 * per_retention + 1  # the one that is being written


def test_a_duplicate_writes_nothing() -> None:
    entity = Entity(SeenIds())
    entity.write("m", START)
    before = {slot: set(marks) for slot, marks in entity.slots.items()}
    message = Message("m")
    outcome = SeenIds().entry(message, START + DAY).judge(message, {k: frozenset(v) for k, v in entity.slots.items()})
    assert outcome == Duplicate(message)
    assert not entity.write("m", START + DAY)
    assert entity.slots == before
