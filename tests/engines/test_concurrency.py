"""Many processes, threads and tasks deliver the same messages at once: each takes effect once, and one call says so."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter

import pytest

from onewrite import HighWaterMark, Message, SeenIds
from tests.engines.stores import Delivery, Store, Verdict, applied, numbered_attempts, store_on, verdict
from tests.engines.workers import deliver
from tests.support.examples import examples

PROCESSES, THREADS, TASKS = 4, 8, 64
SOURCES = 20
MESSAGES, TIMES = examples(480), 3  # of which each source has as many
_places = (f"concurrent{n}" for n in itertools.count())
ENGINES = pytest.mark.parametrize("engine", ["mongod", "dynoxide"])


@pytest.fixture
def seen_ids(engine: str, request: pytest.FixtureRequest) -> Store:
    return store_on(request.getfixturevalue(engine), next(_places), SeenIds())


@pytest.fixture
def marks(engine: str, request: pytest.FixtureRequest) -> Store:
    return store_on(request.getfixturevalue(engine), next(_places), HighWaterMark())


def shuffled(entities: int, seed: int) -> list[Delivery]:
    """Every message three times, each for one entity."""
    once = [Delivery(Message(f"m-{n}"), f"e-{n % entities}") for n in range(MESSAGES)]
    deliveries = once * TIMES
    random.Random(seed).shuffle(deliveries)
    return deliveries


def dealt(deliveries: list[Delivery]) -> list[list[Delivery]]:
    hands = PROCESSES * THREADS
    return [deliveries[n::hands] for n in range(hands)]


def check_each_once(store: Store, deliveries: list[Delivery], verdicts: list[Verdict]) -> None:
    expected = Counter(delivery.entity for delivery in set(deliveries))
    for entity, count in expected.items():
        state = store.state(entity)
        assert state.n == count
        assert sorted(state.effects) == sorted({d.message.id for d in deliveries if d.entity == entity})
    assert applied(verdicts) == {delivery.message.id: 1 for delivery in deliveries}
    assert Counter(seen.outcome for seen in verdicts) == {
        "Applied": MESSAGES,
        "Duplicate": MESSAGES * (TIMES - 1),
    }


@ENGINES
@pytest.mark.parametrize("entities", [1, 50], ids=["one_hot_entity", "fifty_new_entities"])
@pytest.mark.few(1)
def test_message_from_32_threads_takes_effect_once(seen_ids: Store, entities: int) -> None:
    deliveries = shuffled(entities, seed=11 + entities)
    verdicts = deliver(seen_ids, dealt(deliveries), processes=PROCESSES)
    check_each_once(seen_ids, deliveries, verdicts)


def repeated(source: int, seed: int) -> list[Delivery]:
    """One source in order, each message at once again, and then an older one again."""
    choice = random.Random(f"{seed}-{source}")
    messages = [Message(f"{source}-{n}", source=f"s.{source}", sequence=n) for n in range(1, MESSAGES // SOURCES + 1)]
    order = [again for n, message in enumerate(messages) for again in (message, message, messages[choice.randint(0, n)])]
    return [Delivery(message, "e") for message in order]


@ENGINES
@pytest.mark.few(1)
def test_order_of_twenty_sources_is_kept_in_one_entity(marks: Store) -> None:
    verdicts = deliver(marks, [repeated(source, seed=5) for source in range(SOURCES)], processes=PROCESSES)
    state = marks.state()
    assert state.n == MESSAGES
    for source in range(SOURCES):
        mine = [effect for effect in state.effects if effect.startswith(f"{source}-")]
        assert mine == [f"{source}-{n}" for n in range(1, MESSAGES // SOURCES + 1)]
    assert applied(verdicts) == dict.fromkeys(state.effects, 1)
    assert {seen.outcome for seen in verdicts} == {"Applied", "Duplicate", "Stale"}


@ENGINES
@pytest.mark.parametrize("entities", [1, 50], ids=["one_hot_entity", "fifty_new_entities"])
@pytest.mark.few(1)
def test_message_from_64_tasks_takes_effect_once(seen_ids: Store, entities: int) -> None:
    deliveries = shuffled(entities, seed=23 + entities)
    verdicts = asyncio.run(in_tasks(seen_ids, deliveries))
    check_each_once(seen_ids, deliveries, verdicts)


async def in_tasks(store: Store, deliveries: list[Delivery]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    async with store.aopen(numbered_attempts(0)) as apply:

        async def work(share: list[Delivery]) -> None:
            for message, entity in share:
                verdicts.append(verdict(await apply(message, entity)))

        async with asyncio.TaskGroup() as group:
            for n in range(TASKS):
                group.create_task(work(deliveries[n::TASKS]))
    return verdicts
