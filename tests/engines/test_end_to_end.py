"""A producer, a queue, workers that die, and an entity: every effect is applied exactly once, and the queue is empty.

The queue is moto's, in a process of its own; the entities are on a real engine. Workers are processes, run by the command.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onewrite import InSequence, SeenIds
from onewrite.testing.servers.engines import REGION
from tests.engines.stores import Store, places, store_on
from tests.support.endpoints import DUMMY
from tests.support.examples import examples
from tests.support.moto_server import MotoServer

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

PATIENCE = 120.0  # seconds without any progress, on however busy a machine
ENTITIES = 4


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture
def queue(moto: MotoServer) -> Iterator[Queue]:
    client = moto.sqs()
    yield Queue(client, client.create_queue(QueueName=next(places))["QueueUrl"], moto.endpoint)
    client.close()


@dataclass(frozen=True, slots=True)
class Queue:
    client: SQSClient
    url: str
    endpoint: str

    def send(self, orders: Sequence[dict[str, Any]]) -> None:
        for order in orders:
            self.client.send_message(QueueUrl=self.url, MessageBody=json.dumps(order))

    def counts(self) -> tuple[int, int]:
        """How many messages can be received, and how many are hidden."""
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        return int(found["ApproximateNumberOfMessages"]), int(found["ApproximateNumberOfMessagesNotVisible"])


@dataclass(frozen=True, slots=True)
class Worker:
    """A process of the command, and the file that it writes its log to."""

    process: subprocess.Popen[bytes]
    log: Path

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    @property
    def has_begun(self) -> bool:
        """Before that the interpreter itself may still be starting, which handles no signals."""
        return self.says("the worker begins") or self.process.poll() is not None


@dataclass(slots=True)
class Workers:
    """Processes that run the handler of `shop`. How long a record takes is in seconds."""

    queue: Queue
    store: Store
    folder: Path
    seconds: float = 0.01
    started: list[Worker] = field(default_factory=list)

    def start(self) -> Worker:
        options = f"--visibility-timeout 1 --wait 1 --in-flight 4 --endpoint-url {self.queue.endpoint} --region {REGION}"
        command = [sys.executable, "-m", "onewrite", "worker", "tests.engines.shop:handle", "--queue-url", self.queue.url]
        command += options.split()
        environment = {
            **os.environ,
            **DUMMY,
            "SHOP_STORE": base64.b64encode(pickle.dumps(self.store)).decode(),
            "SHOP_SECONDS": str(self.seconds),
            "SHOP_DELIVERIES": str(self.folder / "deliveries"),
        }
        file = self.folder / f"log-{len(self.started)}"
        with file.open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started.append(Worker(process, file))
        return self.started[-1]

    def deliveries(self) -> list[str]:
        file = self.folder / "deliveries"
        return file.read_text().splitlines() if file.exists() else []

    def until(self, true: Callable[[], object]) -> None:
        """Wait for as long as it takes, but not forever without a delivery. Meanwhile no worker ends by itself."""
        seen, limit = 0, time.monotonic() + PATIENCE
        while not true():
            assert {worker.process.poll() for worker in self.started} <= {None, -signal.SIGKILL}
            assert time.monotonic() < limit
            if (count := len(self.deliveries())) > seen:
                seen, limit = count, time.monotonic() + PATIENCE
            time.sleep(0.02)  # between two looks

    def await_deliveries(self, count: int) -> None:
        self.until(lambda: len(self.deliveries()) >= count)

    def end(self) -> None:
        for worker in self.started:
            worker.process.kill()
            worker.process.wait()
            print(worker.log.read_text())


def orders(count: int, choice: random.Random) -> list[dict[str, Any]]:
    """Orders that are numbered within their entity, and of which some fail at their first delivery."""
    numbers = itertools.count(ENTITIES)
    return [
        {
            "id": f"order-{n}",
            "entity": f"e-{number % ENTITIES}",
            "number": number // ENTITIES,
            "fails": choice.random() < 0.05,
        }
        for n, number in zip(range(count), numbers, strict=False)
    ]


def disorder(workers: Workers, choice: random.Random, *, size: int, kills: int, stalls: int, deliveries: int) -> None:
    """Kill workers, and let the visibility timeouts of all expire, at moments spread over the deliveries."""
    crew = [workers.start() for _ in range(size)]
    acts = ["kill"] * kills + ["stall"] * stalls
    choice.shuffle(acts)
    for moment, act in zip(sorted(choice.sample(range(1, deliveries), len(acts))), acts, strict=True):
        workers.await_deliveries(moment)
        if act == "kill":
            victim = choice.randrange(size)
            crew[victim].process.kill()
            crew[victim] = workers.start()
        else:
            stall(workers, crew)


def stall(workers: Workers, crew: Sequence[Worker]) -> None:
    """Stop the processes while they hold messages, until the queue has given up on each of these."""
    for worker in crew:
        worker.process.send_signal(signal.SIGSTOP)
    workers.until(lambda: workers.queue.counts()[1] == 0)
    for worker in crew:
        worker.process.send_signal(signal.SIGCONT)


def finish(workers: Workers) -> None:
    """Wait until the queue is empty, and let the workers end in order."""
    workers.until(lambda: workers.queue.counts() == (0, 0))
    workers.until(lambda: all(worker.has_begun for worker in workers.started))  # one may have been started just now
    for worker in workers.started:
        worker.process.terminate()
    assert {worker.process.wait(PATIENCE) for worker in workers.started} == {0, -signal.SIGKILL}


def effects(store: Store) -> dict[str, list[str]]:
    """The effects on each entity, in order. The entity's counter must agree with them."""
    states = {f"e-{n}": store.state(f"e-{n}") for n in range(ENTITIES)}
    assert [state.n for state in states.values()] == [len(state.effects) for state in states.values()]
    return {entity: state.effects for entity, state in states.items()}


@pytest.fixture(params=["dynoxide", "mongod"])
def store(request: pytest.FixtureRequest) -> Store:
    return store_on(request.getfixturevalue(request.param), next(places), SeenIds())


@pytest.fixture
def workers(queue: Queue, store: Store, tmp_path: Path) -> Iterator[Workers]:
    crew = Workers(queue, store, tmp_path)
    yield crew
    crew.end()


@pytest.mark.few(1)
def test_effects_are_exact_under_duplicates_kills_and_early_expiry(
    workers: Workers,
) -> None:
    choice = random.Random(7)
    sent = orders(examples(240), choice)
    twice = choice.sample(sent, len(sent) // 4)
    workers.queue.send(choice.sample(sent + twice, len(sent) + len(twice)))
    disorder(workers, choice, size=2, kills=3, stalls=1, deliveries=len(sent) * 9 // 10)
    finish(workers)
    found = effects(workers.store)
    assert sorted(itertools.chain(*found.values())) == sorted(order["id"] for order in sent)
    assert len(workers.deliveries()) >= len(sent) + len(twice)


@pytest.mark.parametrize("store", ["dynoxide"], indirect=True)
def test_early_message_is_applied_after_the_gap_closes(workers: Workers) -> None:
    choice = random.Random(11)
    workers.store = replace(workers.store, ledger=InSequence())  # type: ignore[arg-type]  # a store takes any ledger
    sent = orders(24, choice)
    workers.queue.send(sorted(sent, key=lambda order: order["number"] + choice.uniform(0, 2)))
    disorder(workers, choice, size=2, kills=1, stalls=0, deliveries=20)
    finish(workers)
    in_order = {f"e-{n}": [order["id"] for order in sent if order["entity"] == f"e-{n}"] for n in range(ENTITIES)}
    assert effects(workers.store) == in_order
