"""Four threads deliver numbers in any order to one entity of a real server, and copies of them long after."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from onewrite import Message, SeenNumbers
from tests.engines.stores import Apply, Verdict, applied, numbered_attempts, store_on, verdict
from tests.support.examples import examples

THREADS, WINDOW = 4, 20
Delivered = Callable[[int], Verdict]
_places = (f"numbers{n}" for n in itertools.count())


def message(n: int) -> Message:
    return Message(f"m-{n}", source="s", sequence=n)


def rounds(count: int, seed: int) -> list[list[int]]:
    """Numbers of which none is overtaken by as many as the window has, each of them three times."""
    choice = random.Random(seed)
    spread = WINDOW - 1
    made = [[n for n in range(start, start + spread) for _ in range(3)] for start in range(0, count, spread)]
    for each in made:
        choice.shuffle(each)
    return made


@pytest.mark.parametrize("engine", ["mongod", "dynoxide"])
def test_each_number_takes_effect_once_also_where_copies_come_long_after(
    engine: str, request: pytest.FixtureRequest
) -> None:
    store = store_on(request.getfixturevalue(engine), next(_places), SeenNumbers(WINDOW))
    made = rounds(examples(160), seed=3)
    numbers = sorted({n for each in made for n in each})
    with store.open(numbered_attempts(0)) as apply, ThreadPoolExecutor(THREADS) as pool:
        seen = [found for each in made for found in pool.map(_delivered(apply), each)]
        leap = [*pool.map(_delivered(apply), range(50_000, 50_000 + 2 * WINDOW))]
        copies = [*pool.map(_delivered(apply), numbers)]
    assert applied(seen) == {f"m-{n}": 1 for n in numbers}
    assert Counter(found.outcome for found in seen) == {"Applied": len(numbers), "Duplicate": 2 * len(numbers)}
    assert {found.outcome for found in leap} == {"Applied"}
    assert {found.outcome for found in copies} == {"Stale"}
    state = store.state()
    assert state.n == len(state.effects) == len(numbers) + 2 * WINDOW
    assert len(set(state.effects)) == state.n


def _delivered(apply: Apply) -> Delivered:
    return lambda n: verdict(apply(message(n), "e"))
