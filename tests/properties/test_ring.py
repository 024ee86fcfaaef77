"""The promise of a ring, on a simulated clock: what is found, what is forgotten, and how much is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onewrite import SeenIds
from onewrite.core.ledgers.ring import MAX_LATENESS, Ring, Window, find_ring, make_window

DAY = 86_400.0
START = 1_700_000_000.0
YEARS = 30 * 365
MICROSECOND = timedelta(microseconds=1)


class Promise(NamedTuple):
    """What is written is found for `kept`, by clocks that are off by `skew`, and by requests that land up to an hour after their clock was read."""

    kept: timedelta
    skew: timedelta

    @property
    def seen(self) -> Window:
        return make_window(self.kept, self.skew)

    def at(self, now: float) -> Ring:
        return find_ring(self.seen, int(now * 1_000_000))

    def read(self, landing: float, request: Request) -> float:
        """Return what the clock of a request showed that lands at this time."""
        return landing + request.skew * self.skew.total_seconds() - request.late * LATENESS


class Request(NamedTuple):
    """The clock of a request: its share of the skew, and how long before the landing it was read, as a share of the lateness."""

    skew: float
    late: float


LATENESS = MAX_LATENESS.total_seconds()


IDS = Promise(timedelta(days=14), timedelta(hours=6))
SKEWED = Promise(timedelta(minutes=10), timedelta(minutes=5))
both = pytest.mark.parametrize("promise", [IDS, SKEWED], ids=["ids", "skewed"])

spans = st.one_of(
    st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=400)),
    st.sampled_from(
        [timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=14), timedelta(days=36_525)]
    ),
)
# No clock is off, or a little, as for ids, or by half.
promises = st.builds(
    lambda kept, share: Promise(kept, kept * share),
    spans,
    st.sampled_from([0, 1 / 56, 0.5]),
)
moments = st.floats(min_value=START, max_value=START + YEARS * DAY)
# Where in its bounds something lies; the bounds themselves, most of all.
shares = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(min_value=-1, max_value=1))
fractions = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(min_value=0, max_value=1))


@dataclass
class Entity:
    """An entity with a ring in it: what an engine does with it, in plain Python."""

    promise: Promise
    held: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def finds(self, mark: str, now: float) -> bool:
        return any(mark in self.held.get(slot, ()) for slot in self.promise.at(now).live)

    def write(self, mark: str, now: float) -> bool:
        """One write by a consumer whose clock shows `now`. Was the mark new?"""
        if self.finds(mark, now):
            return False
        ring = self.promise.at(now)
        for slot in ring.dead:
            self.held.pop(slot, None)
        self.held[ring.present].add(mark)
        return True

    def kept(self) -> int:
        return sum(map(len, self.held.values()))


requests = st.builds(Request, shares, fractions)


class Write(NamedTuple):
    """Another message's write, which lands at this share of the time in between."""

    at: float
    request: Request


others = st.lists(st.builds(Write, fractions, requests), max_size=12)


# --- what is found ----------------------------------------------------------------------------------------------------


@given(promises, moments, requests, requests, fractions, others, others, st.floats(min_value=0, max_value=400))
def test_copy_within_the_retention_is_found_if_requests_land_late(
    promise: Promise,
    written: float,
    writer: Request,
    reader: Request,
    later: float,
    before: list[Write],
    between: list[Write],
    slept: float,
) -> None:
    """The write meets the marks of a long pause, and the writes of other consumers don't remove its mark."""
    entity, kept = Entity(promise), promise.kept.total_seconds()
    for n, write in enumerate(sorted(before)):
        entity.write(f"before-{n}", promise.read(written - (slept + 3 * (1 - write.at)) * kept, write.request))
    assert entity.write("m", promise.read(written, writer))
    for n, write in enumerate(sorted(between)):
        entity.write(f"between-{n}", promise.read(written + write.at * later * kept, write.request))
    assert not entity.write("m", promise.read(written + later * kept, reader))


@given(promises, st.integers(min_value=int(START) * 10**6, max_value=int(START + YEARS * DAY) * 10**6))
def test_retention_is_exact_to_the_microsecond_between_generations(promise: Promise, moment: int) -> None:
    span, error = promise.kept // MICROSECOND, (2 * promise.skew + MAX_LATENESS) // MICROSECOND
    first = -(-moment // promise.seen.width) * promise.seen.width
    for offset in (-2, -1, 0, 1):
        late, early = Entity(promise), Entity(promise)
        late.write("m", (first + offset) / 1e6)
        assert not late.write(
            "m", (first + offset + span + error) / 1e6
        )  # the writer's clock slow and read early, the reader's fast
        early.write("m", (first + offset) / 1e6)
        assert not early.write(
            "m", (first + offset - error) / 1e6
        )  # the writer's clock fast, the reader's slow and read early


# --- what is forgotten ------------------------------------------------------------------------------------------------


@given(promises, moments, requests, requests, st.lists(fractions, min_size=1, max_size=8))
def test_oldest_mark_is_two_skews_lateness_and_a_generation_older(
    promise: Promise, written: float, writer: Request, reader: Request, rhythm: list[float]
) -> None:
    """In an entity that is written in every generation: one that sleeps may keep what it held when it fell asleep."""
    entity, width = Entity(promise), promise.seen.width / 1e6
    entity.write("m", promise.read(written, writer))
    longest = (promise.kept + 2 * promise.skew + MAX_LATENESS).total_seconds() + width
    end = written + longest + width
    now, n = written, 0
    while now < end:
        now += width * (0.3 + 0.6 * rhythm[n % len(rhythm)])
        entity.write(f"other-{n}", now)
        n += 1
    assert entity.write("m", promise.read(end + 2 * width, reader))


@both
@given(phase=st.floats(min_value=0, max_value=400), per_generation=st.integers(2, 60))
def test_steady_traffic_keeps_no_more_than_promised(promise: Promise, phase: float, per_generation: int) -> None:
    entity, width = Entity(promise), promise.seen.width / 1e6
    longest = (promise.kept + 2 * promise.skew + MAX_LATENESS).total_seconds() / width + 1
    most = max(_each(entity, 20 * per_generation, width / per_generation, START + phase * width))
    assert most <= longest * per_generation + 1


def _each(entity: Entity, writes: int, effect: float, start: float = START) -> Iterator[int]:
    for n in range(writes):
        entity.write(f"m{n}", start + n * effect)
        yield entity.kept()


# --- how much is kept -------------------------------------------------------------------------------------------------


def _bursts(promise: Promise, every: float, phase: float, times: int) -> Iterator[int]:
    """One mark stands for a burst."""
    entity = Entity(promise)
    for n in range(times):
        entity.write(f"burst-{n}", START + phase + n * every)
        yield entity.kept()


@given(st.integers(16, 400) | st.just(230), st.floats(min_value=0, max_value=400))
def test_number_of_stored_marks_is_bounded_in_any_rhythm(days: int, phase: float) -> None:
    # 230 days are nearly in step with the ring: up to 19 of their 47 bursts are kept. Of every other rhythm, 11.
    assert max(_bursts(IDS, days * DAY, phase * DAY, YEARS // days)) <= (19 if days == 230 else 11)


# --- the ledger on top of it ------------------------------------------------------------------------------------------


def test_default_promise_is_14_days_and_six_hours() -> None:
    assert (SeenIds().retention, SeenIds().skew) == (IDS.kept, IDS.skew)
