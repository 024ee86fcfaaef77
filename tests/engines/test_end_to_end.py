"""A producer, a queue, workers that die, and an entity: every effect is in exactly once, and the queue is empty.

The queue is moto's, in a process of its own; the entities are on moto too, or on a real engine. Workers are processes, run
by the command.
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
from onewrite.testing.servers.engines import REGION, dynamo_client
from tests.engines.stores import Store, create_table, store_on
from tests.support.moto_server import MotoServer

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

PATIENCE = 60.0  # for processes on a busy machine
ENTITIES = 4
_names = (f"end-to-end-{n}" for n in itertools.count())


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture
def queue(moto: MotoServer) -> Iterator[Queue]:
    client = moto.sqs()
    yield Queue(client, client.create_queue(QueueName=next(_names))["QueueUrl"], moto.endpoint)
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
        """What can be received, and what is hidden."""
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        return int(found["ApproximateNumberOfMessages"]), int(found["ApproximateNumberOfMessagesNotVisible"])


@dataclass(slots=True)
class Workers:
    """Processes that run the handler of `shop`."""

    queue: Queue
    store: Store
    folder: Path
    seconds: float = 0.01
    options: tuple[str, ...] = ("--visibility-timeout", "1", "--wait", "1")
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "onewrite", "worker", "--queue-url", self.queue.url, *self.options]
        command += ["--endpoint-url", self.queue.endpoint, "--region", REGION, "tests.engines.shop:handle"]
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "dummy",
            "AWS_SECRET_ACCESS_KEY": "dummy",
            "SHOP_STORE": base64.b64encode(pickle.dumps(self.store)).decode(),
            "SHOP_SECONDS": str(self.seconds),
            "SHOP_DELIVERIES": str(self.folder / "deliveries"),
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def deliveries(self) -> list[str]:
        file = self.folder / "deliveries"
        return file.read_text().splitlines() if file.exists() else []

    def until(self, true: Callable[[], object]) -> None:
        """And meanwhile no worker has ended by itself."""
        limit = time.monotonic() + PATIENCE
        while not true():
            assert {process.poll() for process in self.processes} <= {None, -signal.SIGKILL}
            assert time.monotonic() < limit
            time.sleep(0.02)  # between two looks

    def await_deliveries(self, count: int) -> None:
        self.until(lambda: len(self.deliveries()) >= count)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def orders(count: int, choice: random.Random) -> list[dict[str, Any]]:
    """Numbered within their entity, and some fail at their first delivery."""
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
    """Kill workers, and stop some for longer than the visibility timeout, at moments spread over the deliveries."""
    crew = [workers.start() for _ in range(size)]
    acts = ["kill"] * kills + ["stall"] * stalls
    choice.shuffle(acts)
    for moment, act in zip(sorted(choice.sample(range(1, deliveries), len(acts))), acts, strict=True):
        workers.await_deliveries(moment)
        victim = choice.randrange(size)
        if act == "kill":
            crew[victim].kill()
            crew[victim] = workers.start()
        else:
            crew[victim].send_signal(signal.SIGSTOP)
            time.sleep(1.3)  # nobody extends the visibility meanwhile: it expires
            crew[victim].send_signal(signal.SIGCONT)


def finish(workers: Workers) -> None:
    """Until the queue is empty, and those who are still at work have ended in order."""
    workers.until(lambda: workers.queue.counts() == (0, 0))
    workers.until(lambda: all(hears_sigterm(process) for process in workers.processes))  # one may have been started just now
    for process in workers.processes:
        process.terminate()
    assert {process.wait(PATIENCE) for process in workers.processes} == {0, -signal.SIGKILL}


def hears_sigterm(process: subprocess.Popen[bytes]) -> bool:
    """Has it a handler of its own for the signal, as the kernel tells it? One that has ended needs none."""
    status = Path(f"/proc/{process.pid}/status")
    if process.poll() is not None or not status.parent.parent.is_dir():
        return True
    (caught,) = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def effects(store: Store) -> dict[str, list[str]]:
    """Of each entity, in their order; the counters agree with them."""
    states = {f"e-{n}": store.state(f"e-{n}") for n in range(ENTITIES)}
    assert [state.n for state in states.values()] == [len(state.effects) for state in states.values()]
    return {entity: state.effects for entity, state in states.items()}


@pytest.fixture(params=["moto", "dynoxide", "mongod"])
def store(request: pytest.FixtureRequest, moto: MotoServer) -> Store:
    place = next(_names)
    if request.param != "moto":
        return store_on(request.getfixturevalue(request.param), place, SeenIds())
    client = dynamo_client(moto.endpoint)
    create_table(client, place)
    client.close()
    return Store("dynoxide", moto.endpoint, place, SeenIds())


@pytest.fixture
def workers(queue: Queue, store: Store, tmp_path: Path) -> Iterator[Workers]:
    crew = Workers(queue, store, tmp_path)
    yield crew
    crew.end()
    print(crew.log.read_text())


def test_under_duplicates_kills_and_early_expiry_every_effect_is_in_exactly_once_and_the_queue_is_empty(
    workers: Workers, request: pytest.FixtureRequest
) -> None:
    choice = random.Random(7)
    sent = orders(120, choice)
    twice = choice.sample(sent, 30)
    workers.queue.send(choice.sample(sent + twice, len(sent) + len(twice)))
    alone = "moto" in request.node.name  # conditional writes to moto are not atomic
    disorder(workers, choice, size=1 if alone else 2, kills=3, stalls=1, deliveries=110)
    finish(workers)
    found = effects(workers.store)
    assert sorted(itertools.chain(*found.values())) == sorted(order["id"] for order in sent)
    deliveries = workers.deliveries()
    assert len(deliveries) >= len(sent) + len(twice) + sum(order["fails"] for order in sent)


@pytest.mark.parametrize("store", ["dynoxide"], indirect=True)
def test_what_comes_too_early_waits_for_the_gap_to_close(workers: Workers) -> None:
    choice = random.Random(11)
    workers.store = replace(workers.store, ledger=InSequence())  # type: ignore[arg-type]  # a store takes any ledger
    sent = orders(24, choice)
    workers.queue.send(sorted(sent, key=lambda order: order["number"] + choice.uniform(0, 2)))
    disorder(workers, choice, size=2, kills=1, stalls=0, deliveries=20)
    finish(workers)
    in_order = {f"e-{n}": [order["id"] for order in sent if order["entity"] == f"e-{n}"] for n in range(ENTITIES)}
    assert effects(workers.store) == in_order


# ---------------------------------------------------------------- how a worker ends


@pytest.mark.parametrize("store", ["moto"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_on_a_signal_what_is_under_way_is_finished_and_the_rest_given_back_at_once(
    workers: Workers, number: signal.Signals
) -> None:
    workers.seconds, workers.options = 1.0, ("--drain-seconds", "2")
    workers.queue.send(orders(3, random.Random(0)))
    process = workers.start()
    workers.await_deliveries(1)
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert sum(map(len, effects(workers.store).values())) == 1
    assert workers.queue.counts() == (2, 0)
    assert "onewrite: handle: 3 records, 1 applied, 2 returned" in workers.log.read_text()


@pytest.mark.parametrize("store", ["moto"], indirect=True)
def test_a_worker_that_waits_for_messages_ends_at_a_signal_and_not_with_its_long_poll(workers: Workers) -> None:
    workers.options = ()
    process = workers.start()
    workers.until(lambda: "the worker begins" in workers.log.read_text())
    signalled = time.monotonic()
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert time.monotonic() - signalled < 15  # of the 20 seconds of a poll


@pytest.mark.parametrize("store", ["moto"], indirect=True)
@pytest.mark.parametrize(("drain", "insists"), [("0.5", False), ("500", True)], ids=["deadline", "second_signal"])
def test_a_handler_that_hangs_does_not_keep_the_process_and_its_message_stays(
    workers: Workers, drain: str, insists: bool
) -> None:
    workers.seconds, workers.options = 600.0, ("--drain-seconds", drain)
    workers.queue.send(orders(1, random.Random(0)))
    process = workers.start()
    workers.await_deliveries(1)
    process.terminate()
    if insists:
        _insist(process)
    assert process.wait(PATIENCE) == 1
    assert workers.queue.counts() == (0, 1)
    assert "not ended in time" in workers.log.read_text()


def _insist(process: subprocess.Popen[bytes]) -> None:
    """A signal that comes before the process has seen the last one is none, so one more may not be enough."""
    limit = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < limit:
        process.terminate()
        time.sleep(0.1)  # between two signals


@pytest.mark.parametrize("store", ["moto"], indirect=True)
def test_a_worker_that_stops_when_empty_leaves_an_empty_queue(workers: Workers) -> None:
    workers.options = ("--stop-when-empty", "--wait", "1")
    workers.queue.send(orders(25, random.Random(1)))
    assert workers.start().wait(PATIENCE) == 0
    assert workers.queue.counts()[0] == 0
