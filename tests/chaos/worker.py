"""A consumer: a process that takes a message, writes it with the guard, and only then says what came of it."""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError
from pymongo import MongoClient, WriteConcern
from pymongo.errors import PyMongoError

from onewrite import Outbox, Outcome
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import dynamo_client
from tests.chaos.traffic import LEDGERS, Delivery
from tests.chaos.witness import emitted_by
from tests.engines.stores import addition, increment

PLACE = "chaos"
READY = "ready"
OUTBOX = Outbox("chaos", index="pending", shards=2)
SECONDS = 1.5  # how long a worker waits for an answer
_MILLISECONDS = int(SECONDS * 1000)
_DIE_WITH_PARENT = (1, signal.SIGKILL)  # prctl's PR_SET_PDEATHSIG: it also ends a process that is stopped


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write, in a form that another process understands."""

    engine: Literal["dynamodb", "mongodb"]
    address: str
    durability: Literal["majority", "acknowledged"] = "majority"


@dataclass(frozen=True, slots=True)
class Habits:
    """How a worker differs from the next one: all of it is allowed, and nothing of it may matter."""

    driver_retries: bool
    bounded_by_deadline: bool  # MongoDB: `timeoutMS`, or the timeouts of the socket and of the write concern
    clock_offset: float


class Answer(NamedTuple):
    number: int
    outcome: str
    settled: bool


Apply = Callable[[Delivery, int], Outcome]


def work(target: Target, habits: Habits, pipe: Connection) -> None:
    """Until the other end of the pipe is closed, or the process is killed."""
    alone()
    opened = _table if target.engine == "dynamodb" else _collection
    with opened(target, habits) as apply, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(READY)
        while True:
            number, delivery = pipe.recv()
            pipe.send(_answer(apply, number, delivery))


def alone() -> None:
    """Let this process live as long as the one that has started it, and say nothing of what is done to it on purpose."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(*_DIE_WITH_PARENT)
    logging.getLogger("onewrite").setLevel(logging.CRITICAL)


def _answer(apply: Apply, number: int, delivery: Delivery) -> Answer:
    try:
        outcome = apply(delivery, number)
    except (PyMongoError, BotoCoreError, ClientError) as error:
        return Answer(number, type(error).__name__, settled=False)
    return Answer(number, type(outcome).__name__, outcome.settled)


@contextmanager
def _table(target: Target, habits: Habits) -> Iterator[Apply]:
    retries = {"total_max_attempts": 3 if habits.driver_retries else 1, "mode": "standard"}
    client = dynamo_client(target.address, connect_timeout=1, read_timeout=SECONDS, retries=retries)
    clock = _clock(habits)
    tables = {
        name: GuardedTable(client, ledger, table_name=PLACE, clock=clock, outbox=OUTBOX) for name, ledger in LEDGERS.items()
    }

    def apply(delivery: Delivery, number: int) -> Outcome:
        native: Any = addition(delivery.message, delivery.entity)
        if number % 2:
            native["ReturnValues"] = "ALL_NEW"
        return tables[delivery.ledger].update_item(delivery.message, emit=emitted_by(delivery.message), **native)

    yield apply
    client.close()


@contextmanager
def _collection(target: Target, habits: Habits) -> Iterator[Apply]:
    with MongoClient[dict[str, Any]](target.address, **_options(habits)) as client:
        weak = target.durability == "acknowledged"
        concern = WriteConcern(w=1, j=False) if weak else WriteConcern(wtimeout=_MILLISECONDS)
        documents = client.test.get_collection(PLACE, write_concern=concern)
        collections = {
            name: GuardedCollection(documents, ledger, clock=_clock(habits), durability=target.durability, outbox=OUTBOX)
            for name, ledger in LEDGERS.items()
        }

        def apply(delivery: Delivery, number: int) -> Outcome:
            collection = collections[delivery.ledger]
            write = collection.find_one_and_update if number % 2 else collection.update_one
            query, emit = {"_id": delivery.entity}, emitted_by(delivery.message)
            return write(delivery.message, query, increment(delivery.message), upsert=True, emit=emit)

        yield apply


def _options(habits: Habits) -> dict[str, Any]:
    return {
        "timeoutMS" if habits.bounded_by_deadline else "socketTimeoutMS": _MILLISECONDS,
        "retryWrites": habits.driver_retries,
        "retryReads": habits.driver_retries,
        "serverSelectionTimeoutMS": _MILLISECONDS,
        "connectTimeoutMS": 1000,
        "heartbeatFrequencyMS": 500,
    }


def _clock(habits: Habits) -> Callable[[], float]:
    return lambda: time.time() + habits.clock_offset
