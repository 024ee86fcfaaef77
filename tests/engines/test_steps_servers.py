"""Effects outside of the entity on real servers: workers fail, abandon and are killed at each point, and nobody pays twice."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from onewrite import Begun, Message, Outcome, SeenIds
from tests.engines.stores import Delivery
from tests.engines.test_crashes import Broker, effects
from tests.engines.tills import Pay, Till, till_on
from tests.support.ci import in_ci

ENGINES = pytest.mark.parametrize("engine", ["mongod", "dynoxide"])
THREADS, MESSAGES = 8, 50
DELIVERIES, KILLS = (150, 16) if in_ci() else (40, 6)
_LATENCY = 0.01
_places = (f"steps{n}" for n in itertools.count())


class Died(BaseException):
    """The worker is gone: it does nothing more, and lets nothing go."""


class Turn(NamedTuple):
    """When somebody had the effect of a step in his hands. What comes after the lease does not count: its request has timed out."""

    key: str
    fence: str
    start: float
    end: float


class Provider:
    """It takes every charge, and recognises its key. Whoever charges may fail before it or after it, or die there."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.turns: list[Turn] = []
        self.asked: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def charge(self, step: Begun) -> str:
        start = step.clock()
        try:
            self._fail("before")
            time.sleep(_LATENCY)  # so a second worker that should not be there is
            with self._lock:
                self.asked[step.key] += 1
            self._fail("after")
        finally:
            with self._lock:
                self.turns.append(Turn(step.key, step.fence, start, min(step.clock(), step.until)))
        return step.key

    def _fail(self, where: str) -> None:
        with self._lock:
            drawn = self._random.random()
            what = "raises" if drawn < 0.15 else "dies" if drawn < 0.25 else ""
            self.failures[f"{what} {where}"] += bool(what)
        if what == "raises":
            raise TimeoutError("the provider does not answer")
        if what == "dies":
            raise Died


def deliver_all(till: Till, pay: Pay, provider: Provider, seed: int) -> list[Outcome]:
    """One thread: every message, again until it is settled. Two threads have one seed, and so the same order: they meet."""
    left = deque(Message(f"m-{n}") for n in range(MESSAGES))
    random.Random(seed).shuffle(left)
    settled: list[Outcome] = []
    while left:
        message = left.popleft()
        try:
            outcome = pay(message, "e", provider.charge)
        except (TimeoutError, Died):
            left.append(message)
            continue
        if outcome.settled:
            settled.append(outcome)
            continue
        if not left:  # there is nothing else to do meanwhile
            till.wait_for(outcome)
        left.append(message)
    return settled


@ENGINES
@pytest.mark.few(1)
def test_threads_that_fail_and_die_around_the_effect_charge_under_one_key_and_record_once(
    engine: str, request: pytest.FixtureRequest
) -> None:
    till, provider = till_on(request.getfixturevalue(engine), next(_places), SeenIds(), ["e"]), Provider(seed=7)
    with till.opened() as (pay, _), ThreadPoolExecutor(THREADS) as pool:
        work = [pool.submit(deliver_all, till, pay, provider, thread // 2) for thread in range(THREADS)]
        outcomes = [outcome for done in work for outcome in done.result()]
    messages = [Message(f"m-{n}") for n in range(MESSAGES)]
    assert sorted(provider.asked) == sorted(message.child("charge") for message in messages)
    assert sorted(till.state().effects) == sorted(message.id for message in messages)
    assert Counter(type(outcome).__name__ for outcome in outcomes) == {
        "Applied": MESSAGES,
        "Duplicate": MESSAGES * (THREADS - 1),
    }
    assert set(provider.failures) >= {"raises before", "raises after", "dies before", "dies after"}
    assert overlapping(provider.turns) == []


def overlapping(turns: list[Turn]) -> list[tuple[Turn, Turn]]:
    """Two workers that had the effect of one step in their hands at the same time, while both had a lease."""
    ordered = sorted(turns)
    return [
        (one, other)
        for number, one in enumerate(ordered)
        for other in ordered[number + 1 :]
        if one.key == other.key and one.fence != other.fence and one.start < other.end and other.start < one.end
    ]


@ENGINES
@pytest.mark.few(1)
def test_workers_killed_around_the_effect_charge_under_one_key_and_record_once(
    engine: str, request: pytest.FixtureRequest
) -> None:
    entities = [f"e-{n}" for n in range(3)]
    till = till_on(request.getfixturevalue(engine), next(_places), SeenIds(), entities)
    queue = deque(Delivery(Message(f"m-{n}"), entities[n % 3]) for n in range(DELIVERIES))
    messages = [delivery.message for delivery in queue]
    broker = Broker(till, queue, kills=KILLS, seed=3)
    broker.run()
    expected = sorted(message.id for message in messages)
    assert sorted(effects(till)) == expected
    assert sorted(seen.id for seen in broker.acknowledged) == expected
    assert sorted(till.asked()) == sorted(message.child("charge") for message in messages)
    assert broker.killed > KILLS / 2
    assert {seen.outcome for seen in broker.acknowledged} == {"Applied", "Duplicate"}
