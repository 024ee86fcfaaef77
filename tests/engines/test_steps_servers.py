"""Effects outside of the entity on real servers: workers fail and abandon it at each point, and nobody pays twice."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import pytest

from onewrite import Begun, Busy, Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from tests.engines.stores import State, addition, dynamo_state, increment, mongo_state

THREADS, MESSAGES = 8, 50
SPEED = 200.0  # seconds of the simulated time in one of the wall's: nobody waits for the lease of a dead worker
STEP: Any = {"lease": timedelta(minutes=1), "safe_for": timedelta(days=1)}
_LATENCY = 0.01
_started = time.time()

Pay: TypeAlias = Callable[[Message, Callable[[Begun], str]], Outcome]


def clock() -> float:
    return _started + (time.time() - _started) * SPEED


@pytest.fixture(params=["mongod", "dynoxide"])
def payments(request: pytest.FixtureRequest) -> tuple[Pay, Callable[[], State]]:
    """A payment around an effect of one's own, and the entity in which all payments are recorded."""
    if request.param == "mongod":
        collection = request.getfixturevalue("collection")
        collection.insert_one({"_id": "e"})
        documents = GuardedCollection(collection, SeenIds(), clock=clock)

        def pay(message: Message, effect: Callable[[Begun], str]) -> Outcome:
            update = {"update": increment(message)}
            return documents.perform(message, "charge", effect, {"_id": "e"}, then=lambda _: update, **STEP)

        return pay, lambda: mongo_state(collection)
    dynamo, table = request.getfixturevalue("dynamo"), request.getfixturevalue("table")
    dynamo.put_item(TableName=table, Item={"id": {"S": "e"}})
    items = GuardedTable(dynamo, SeenIds(), table_name=table, clock=clock)

    def pay_for_item(message: Message, effect: Callable[[Begun], str]) -> Outcome:
        write = addition(message, "e")
        return items.perform(message, "charge", effect, Key=write["Key"], then=lambda _: write, **STEP)

    return pay_for_item, lambda: dynamo_state(dynamo, table)


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


def deliver_all(pay: Pay, provider: Provider, seed: int) -> list[Outcome]:
    """One thread: every message, again until it is settled. Two threads have one seed, and so the same order: they meet."""
    left = deque(Message(f"m-{n}") for n in range(MESSAGES))
    random.Random(seed).shuffle(left)
    settled: list[Outcome] = []
    while left:
        message = left.popleft()
        try:
            outcome = pay(message, provider.charge)
        except (TimeoutError, Died):
            left.append(message)
            continue
        if outcome.settled:
            settled.append(outcome)
            continue
        if not left and isinstance(outcome, Busy):  # there is nothing else to do meanwhile
            time.sleep(max(0.0, outcome.until - clock()) / SPEED)
        left.append(message)
    return settled


@pytest.mark.few(1)
def test_failing_threads_charge_each_message_once(payments: tuple[Pay, Callable[[], State]]) -> None:
    provider = Provider(seed=7)
    pay, state = payments
    with ThreadPoolExecutor(THREADS) as pool:
        work = [pool.submit(deliver_all, pay, provider, thread // 2) for thread in range(THREADS)]
        outcomes = [outcome for done in work for outcome in done.result()]
    messages = [Message(f"m-{n}") for n in range(MESSAGES)]
    assert sorted(provider.asked) == sorted(message.child("charge") for message in messages)
    assert sorted(state().effects) == sorted(message.id for message in messages)
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
