"""What runs in the other processes. Started with "spawn": nothing is shared but what is sent."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.connection import Connection

from tests.engines.stores import Apply, Delivery, Store, Verdict, numbered_attempts, verdict

SPAWN = multiprocessing.get_context("spawn")
PATIENCE = 60.0  # for processes that start on a busy machine

_start: threading.Barrier


def deliver(store: Store, deliveries: Sequence[Sequence[Delivery]], *, processes: int) -> list[Verdict]:
    """Each inner sequence in a thread of its own, in order; the threads spread over processes and start together."""
    shares = [deliveries[n::processes] for n in range(processes)]
    barrier = SPAWN.Barrier(len(deliveries))
    with ProcessPoolExecutor(processes, SPAWN, initializer=_keep, initargs=(barrier,)) as pool:
        work = [pool.submit(_in_threads, store, share, number) for number, share in enumerate(shares)]
        return [seen for done in work for seen in done.result()]


def acknowledge(store: Store, pipe: Connection) -> None:
    """A consumer: takes a delivery, writes, and only then tells the broker. Told to be `silent`, it dies in between.

    Rather, it waits there to be killed: it tells that it has written, which is not an acknowledgement.
    """
    with store.open() as apply, contextlib.suppress(EOFError):
        pipe.send("ready")
        while True:
            delivery, silent = pipe.recv()
            seen = verdict(apply(delivery.message, delivery.entity))
            pipe.send("written" if silent else seen)


def _keep(barrier: threading.Barrier) -> None:
    global _start  # noqa: PLW0603  # a barrier reaches a pool's process only when that starts
    _start = barrier


def _in_threads(store: Store, share: Sequence[Sequence[Delivery]], number: int) -> list[Verdict]:
    with store.open(numbered_attempts(number)) as apply, ThreadPoolExecutor(len(share)) as pool:
        return [seen for done in pool.map(_in_order, [apply] * len(share), share) for seen in done]


def _in_order(apply: Apply, deliveries: Sequence[Delivery]) -> list[Verdict]:
    _start.wait(PATIENCE)
    return [verdict(apply(message, entity)) for message, entity in deliveries]
