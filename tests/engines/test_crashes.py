"""Consumers and servers die at any moment; what was not acknowledged is delivered again until all of it is done."""

from __future__ import annotations

import itertools
import random
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from pymongo.errors import PyMongoError

from onewrite import Message, SeenIds
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.engines.stores import Apply, Delivery, Store, Verdict, applied, store_on, verdict
from tests.engines.workers import PATIENCE, SPAWN, acknowledge
from tests.support.ci import in_ci
from tests.support.examples import examples

ENTITIES = 3
CONSUMERS = 3
DELIVERIES, KILLS = (150, 16) if in_ci() else (40, 4)  # a consumer takes longer to start than to deliver many
_places = (f"crashes{n}" for n in itertools.count())


def deliveries(count: int) -> deque[Delivery]:
    return deque(Delivery(Message(f"m-{n}"), f"e-{n % ENTITIES}") for n in range(count))


def effects(store: Store) -> list[str]:
    """All effects there are; the counters agree with them."""
    states = [store.state(f"e-{n}") for n in range(ENTITIES)]
    assert [state.n for state in states] == [len(state.effects) for state in states]
    return [effect for state in states for effect in state.effects]


# ---------------------------------------------------------------- consumers


class Consumer:
    """A process that writes, and its end of the pipe."""

    def __init__(self, store: Store) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process: BaseProcess = SPAWN.Process(target=acknowledge, args=(store, theirs))
        self.process.start()
        theirs.close()  # else the end of the process is no end of the pipe
        self.holds: Delivery | None = None

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Broker:
    """Delivers until each message is acknowledged. What a dead consumer held goes back into the queue."""

    def __init__(self, store: Store, queue: deque[Delivery], kills: int, seed: int) -> None:
        self._store = store
        self._queue = queue
        self._left = len(queue)
        self._random = random.Random(seed)
        self._kills = dict.fromkeys(self._random.sample(range(len(queue)), kills))
        self._turns = itertools.count()
        self._timers: list[threading.Timer] = []
        self.acknowledged: list[Verdict] = []
        self.written_unacknowledged: list[str] = []
        self.killed = 0

    def run(self) -> None:
        consumers = {c.pipe: c for c in (Consumer(self._store) for _ in range(CONSUMERS))}
        try:
            while len(self.acknowledged) < self._left:
                ready = wait(list(consumers), PATIENCE)
                assert ready, "no consumer has said anything for a minute"
                for pipe in ready:
                    assert isinstance(pipe, Connection)
                    self._hear(consumers, pipe)
        finally:
            for timer in self._timers:
                timer.cancel()
            for consumer in consumers.values():
                consumer.end()

    def _hear(self, consumers: dict[Connection, Consumer], pipe: Connection) -> None:
        consumer = consumers[pipe]
        try:
            said = pipe.recv()
        except (EOFError, ConnectionResetError):
            said = "gone"
        if said in ("gone", "written"):
            if said == "written" and consumer.holds:
                self.written_unacknowledged.append(consumer.holds.message.id)
            del consumers[pipe]
            self._bury(consumer)
            fresh = Consumer(self._store)
            consumers[fresh.pipe] = fresh
            return
        if isinstance(said, Verdict):
            self.acknowledged.append(said)
            consumer.holds = None
        self._give(consumer)

    def _give(self, consumer: Consumer) -> None:
        """The next message; where the plan says so, death comes with it: right after the write, or at any moment."""
        if not self._queue:
            return
        delivery = self._queue.popleft()
        doomed = next(self._turns) in self._kills
        silent = doomed and self._random.random() < 0.5
        consumer.holds = delivery
        try:
            consumer.pipe.send((delivery, silent))
        except (BrokenPipeError, ConnectionResetError):
            return  # its end will be heard
        if doomed and not silent:
            timer = threading.Timer(self._random.uniform(0, 0.004), consumer.process.kill)
            self._timers.append(timer)
            timer.start()

    def _bury(self, consumer: Consumer) -> None:
        consumer.end()
        self.killed += 1
        if consumer.holds is not None:
            self._queue.append(consumer.holds)


@pytest.mark.parametrize("engine", ["mongod", "dynoxide"])
@pytest.mark.few(1)
def test_effects_are_exact_if_consumers_are_killed(engine: str, request: pytest.FixtureRequest) -> None:
    store = store_on(request.getfixturevalue(engine), next(_places), SeenIds())
    broker = Broker(store, deliveries(DELIVERIES), kills=KILLS, seed=3)
    broker.run()
    expected = sorted(delivery.message.id for delivery in deliveries(DELIVERIES))
    assert sorted(effects(store)) == expected
    assert sorted(seen.id for seen in broker.acknowledged) == expected
    outcomes = {seen.id: seen.outcome for seen in broker.acknowledged}
    assert broker.killed > KILLS / 2
    assert broker.written_unacknowledged
    assert {outcomes[message] for message in broker.written_unacknowledged} == {"Duplicate"}
    assert max(applied(broker.acknowledged).values()) == 1


# ---------------------------------------------------------------- servers


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
