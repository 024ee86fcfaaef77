"""Servers die at any moment; what was not acknowledged is delivered again until all of it is done."""

from __future__ import annotations

import random
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from pymongo.errors import PyMongoError

from onewrite import Message, SeenIds
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.engines.stores import Apply, Delivery, Store, Verdict, applied, store_on, verdict
from tests.support.examples import examples

ENTITIES = 3
PATIENCE = 60.0  # seconds, on a busy machine


def deliveries(count: int) -> deque[Delivery]:
    return deque(Delivery(Message(f"m-{n}"), f"e-{n % ENTITIES}") for n in range(count))


def effects(store: Store) -> list[str]:
    """All effects there are; the counters agree with them."""
    states = [store.state(f"e-{n}") for n in range(ENTITIES)]
    assert [state.n for state in states] == [len(state.effects) for state in states]
    return [effect for state in states for effect in state.effects]


class Load:
    """Threads that deliver, and deliver again what failed, until all of it is acknowledged."""

    def __init__(self, apply: Apply, queue: deque[Delivery]) -> None:
        self._apply = apply
        self._queue = queue
        self._left = len(queue)
        self._changed = threading.Condition()
        self.acknowledged: list[Verdict] = []
        self.failures = 0

    def work(self) -> None:
        while len(self.acknowledged) < self._left:
            try:
                delivery = self._queue.popleft()
            except IndexError:
                return  # another thread holds the last ones, and delivers them again itself if need be
            while not self._delivered(delivery):
                pass

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= count, PATIENCE)

    def _delivered(self, delivery: Delivery) -> bool:
        try:
            seen = verdict(self._apply(delivery.message, delivery.entity))
        except (PyMongoError, BotoCoreError, ClientError):
            self.failures += 1
            return False
        with self._changed:
            self.acknowledged.append(seen)
            self._changed.notify_all()
        return True


@pytest.mark.parametrize(
    "driver_retries",
    [pytest.param(True, id="retrying_driver", marks=pytest.mark.slow), pytest.param(False, id="plain_driver")],
)
@pytest.mark.parametrize("engine", [Mongod, Dynoxide], ids=["mongod", "dynoxide"])
@pytest.mark.few(1)
def test_acknowledged_effects_are_exact_after_a_server_kill(mortal: Mongod | Dynoxide, driver_retries: bool) -> None:
    store = replace(store_on(mortal, "load", SeenIds()), driver_retries=driver_retries)
    total, choice = examples(1800), random.Random(9)
    with store.open() as apply, ThreadPoolExecutor(8) as pool:
        load = Load(apply, deliveries(total))
        work = [pool.submit(load.work) for _ in range(8)]
        for share in (0.1, 0.4, 0.65):
            load.wait_for(int(total * (share + choice.random() / 6)))
            mortal.kill()
            promised = {seen.id for seen in load.acknowledged}
            mortal.restart()
            assert promised <= set(effects(store))
        for done in work:
            done.result()
    assert sorted(effects(store)) == sorted(seen.id for seen in load.acknowledged)
    assert len(load.acknowledged) == total
    assert load.failures or driver_retries
    assert max(applied(load.acknowledged).values()) == 1
