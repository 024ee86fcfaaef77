"""A consumer: a process that takes a message, writes it with the guard, and only then says what came of it."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError
from pymongo import MongoClient, WriteConcern
from pymongo.errors import PyMongoError

from onewrite import Applied, Begun, Event, Message, Outbox, Outcome, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import dynamo_client
from tests.chaos.traffic import KINDS, Delivery, Kind, effect_of
from tests.chaos.witness import emitted_by
from tests.engines.stores import addition_of, increment_of

PLACE = "chaos"
READY = "ready"
OUTBOX = Outbox("chaos", index="pending", shards=2)
TOMBSTONES = Tombstones(timedelta(days=1))
LEASE, KEY_VALID_FOR = timedelta(seconds=1), timedelta(hours=1)
SECONDS = 1.5  # how long a worker waits for an answer
_MILLISECONDS = int(SECONDS * 1000)
_DIE_WITH_PARENT = (1, signal.SIGKILL)  # prctl's PR_SET_PDEATHSIG: it also ends a process that is stopped


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write, in a form that another process understands."""

    engine: Literal["dynamodb", "mongodb"]
    address: str
    charges: str = ""  # the file in which a provider keeps what it was asked to charge
    durability: Literal["majority", "acknowledged"] = "majority"


@dataclass(frozen=True, slots=True)
class Habits:
    """How a worker differs from the next one: all of it is allowed, and nothing of it may matter."""

    driver_retries: bool
    bounded_by_deadline: bool  # MongoDB: `timeoutMS`, or the timeouts of the socket and of the write concern
    clock_offset: float


class Answer(NamedTuple):
    """What came of a delivery. `applied` are the effects that the call said to have had, those of a batch among them."""

    number: int
    outcome: str
    settled: bool
    effects: tuple[str, ...] = ()


Apply = Callable[[Delivery, int], Sequence[Outcome]]


def work(target: Target, habits: Habits, pipe: Connection) -> None:
    """Until the other end of the pipe is closed, or the process is killed."""
    live_with_parent()
    open_target = _table if target.engine == "dynamodb" else _collection
    with open_target(target, habits) as apply, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(READY)
        while True:
            number, delivery = pipe.recv()
            pipe.send(_answer(apply, number, delivery))


def live_with_parent() -> None:
    """Let this process live as long as the one that has started it, and say nothing of what is done to it on purpose."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(*_DIE_WITH_PARENT)
    logging.getLogger("onewrite").setLevel(logging.CRITICAL)


def _answer(apply: Apply, number: int, delivery: Delivery) -> Answer:
    try:
        outcomes = apply(delivery, number)
    except (PyMongoError, BotoCoreError, ClientError) as error:
        return Answer(number, type(error).__name__, settled=False)
    effects = tuple(effect_of(delivery.kind, outcome.message) for outcome in outcomes if isinstance(outcome, Applied))
    outcome = outcomes[-1]
    return Answer(number, type(outcome).__name__, outcome.settled, effects)


@contextmanager
def _table(target: Target, habits: Habits) -> Iterator[Apply]:
    retries = {"total_max_attempts": 3 if habits.driver_retries else 1, "mode": "standard"}
    client = dynamo_client(target.address, connect_timeout=1, read_timeout=SECONDS, retries=retries)

    def table(name: str, kind: Kind) -> GuardedTable:
        tombstones = TOMBSTONES if name == "delete" else None
        clock = _clock(habits, name)
        lean = name == "lean"
        return GuardedTable(
            client, kind.ledger, table_name=PLACE, clock=clock, outbox=OUTBOX, tombstones=tombstones, lean=lean
        )

    tables = {name: table(name, kind) for name, kind in KINDS.items()}

    def apply(delivery: Delivery, number: int) -> Sequence[Outcome]:
        table, message, events = tables[delivery.kind], delivery.message, emitted_by(delivery.effect)
        native: Any = addition_of([delivery.effect], delivery.entity)
        returning: Any = {"ReturnValues": "ALL_NEW"} if number % 2 else {}
        if delivery.deletes:
            return [table.delete_item(message, Key=native["Key"], emit=events)]
        match delivery.kind:
            case "update_batch" | "update_batch in order":
                return table.update_batch(delivery.messages, lambda fresh: _batch_write(delivery, fresh) | returning)
            case "effect":
                charge = partial(_charge, target.charges, delivery.effect)
                write_of = lambda _: {key: native[key] for key in native if key != "Key"} | {"emit": events}  # noqa: E731
                return [
                    table.perform_effect(
                        message, "charge", charge, Key=native["Key"], lease=LEASE, key_valid_for=KEY_VALID_FOR, then=write_of
                    )
                ]
            case _:
                return [table.update_item(message, emit=events, **native, **returning)]

    yield apply
    client.close()


def _batch_write(delivery: Delivery, fresh: Sequence[Message]) -> dict[str, Any]:
    return addition_of([message.id for message in fresh], delivery.entity) | {"emit": _events_of(fresh)}


def _events_of(fresh: Sequence[Message]) -> list[Event]:
    return [replace(event, cause=message) for message in fresh for event in emitted_by(message.id)]


def _charge(file: str, what: str, effect: Begun) -> None:
    """What a provider does that recognises a key: it keeps each one once."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{what} {effect.key}\n".encode())
    os.close(descriptor)


@contextmanager
def _collection(target: Target, habits: Habits) -> Iterator[Apply]:
    with MongoClient[dict[str, Any]](target.address, **_options(habits)) as client:
        weak = target.durability == "acknowledged"
        concern = WriteConcern(w=1, j=False) if weak else WriteConcern(wtimeout=_MILLISECONDS)
        documents = client.test.get_collection(PLACE, write_concern=concern)

        def collection(name: str, kind: Kind) -> GuardedCollection:
            tombstones = TOMBSTONES if name == "delete" else None
            clock = _clock(habits, name)
            return GuardedCollection(
                documents, kind.ledger, clock=clock, durability=target.durability, outbox=OUTBOX, tombstones=tombstones
            )

        collections = {name: collection(name, kind) for name, kind in KINDS.items()}

        def apply(delivery: Delivery, number: int) -> Sequence[Outcome]:
            collection, message, events = collections[delivery.kind], delivery.message, emitted_by(delivery.effect)
            query, update = {"_id": delivery.entity}, increment_of([delivery.effect])
            if delivery.deletes:
                delete = collection.find_one_and_delete if number % 2 else collection.delete_one
                return [delete(message, query, emit=events)]
            match delivery.kind:
                case "update_batch" | "update_batch in order":

                    def batch_write(fresh: list[Message]) -> dict[str, Any]:
                        update = increment_of([message.id for message in fresh])
                        return {"filter": query, "update": update, "upsert": True, "emit": _events_of(fresh)}

                    return collection.update_batch(delivery.messages, batch_write)
                case "effect":
                    charge = partial(_charge, target.charges, delivery.effect)
                    write_of = lambda _: {"update": update, "emit": events}  # noqa: E731
                    return [
                        collection.perform_effect(
                            message, "charge", charge, query, lease=LEASE, key_valid_for=KEY_VALID_FOR, then=write_of
                        )
                    ]
                case _:
                    write = collection.find_one_and_update if number % 2 else collection.update_one
                    return [write(message, query, update, upsert=True, emit=events)]

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


def _clock(habits: Habits, kind: str) -> Callable[[], float]:
    """What a worker takes for the time. An effect's lease is short, so there clocks differ by less: a clock that is behind would wait for it."""
    offset = habits.clock_offset % 1.0 if kind == "effect" else habits.clock_offset
    return lambda: time.time() + offset
