"""Many threads deliver the same messages at once: each takes effect once, and one call says so."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from onewrite import Message, SeenIds
from tests.engines.stores import Delivery, applied, places, store_on, verdict
from tests.support.examples import examples

THREADS = 32
MESSAGES, TIMES = examples(480), 3


@pytest.mark.parametrize("engine", ["mongod", "dynoxide"])
@pytest.mark.parametrize("entities", [1, 50], ids=["one_hot_entity", "fifty_new_entities"])
@pytest.mark.few(1)
def test_message_from_32_threads_takes_effect_once(engine: str, entities: int, request: pytest.FixtureRequest) -> None:
    store = store_on(request.getfixturevalue(engine), next(places), SeenIds())
    once = [Delivery(Message(f"m-{n}"), f"e-{n % entities}") for n in range(MESSAGES)]
    deliveries = random.Random(11 + entities).sample(once * TIMES, MESSAGES * TIMES)
    # Of random names two are alike once in 2^24, and among a thousand calls on one entity that is seen now and then.
    attempts = map("attempt {}".format, itertools.count())
    with store.open(lambda: next(attempts)) as apply, ThreadPoolExecutor(THREADS) as pool:
        verdicts = list(pool.map(lambda delivery: verdict(apply(*delivery)), deliveries))
    for entity in {delivery.entity for delivery in once}:
        ids = sorted(delivery.message.id for delivery in once if delivery.entity == entity)
        state = store.state(entity)
        assert (state.n, sorted(state.effects)) == (len(ids), ids)
    assert applied(verdicts) == {delivery.message.id: 1 for delivery in once}
    assert Counter(seen.outcome for seen in verdicts) == {"Applied": MESSAGES, "Duplicate": MESSAGES * (TIMES - 1)}
