"""Transfers of two guarded writes on real servers: workers and servers are killed, and no half of a transfer is ever seen."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.engines.banks import ACCOUNTS, START, Bank, bank_on, in_turn, orders, sides
from tests.engines.stores import Delivery, applied
from tests.engines.test_crashes import Broker, Load
from tests.support.ci import in_ci

TRANSFERS, KILLS = (150, 16) if in_ci() else (60, 6)
_places = (f"bank{n}" for n in itertools.count())


@contextmanager
def snapshots(bank: Bank) -> Iterator[list[dict[str, int]]]:
    """The balances, as of one moment each, that somebody sees who looks all the time until the block ends."""
    done = threading.Event()
    seen: list[dict[str, int]] = []

    def look() -> None:
        with bank.reading() as read:
            while not done.wait(0.01):
                with suppress(PyMongoError, BotoCoreError, ClientError):  # the server may be down
                    seen.append({name: account.cents for name, account in read().items()})

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield seen
        finally:
            done.set()
        looking.result()


@contextmanager
def short_transactions(server: Mongod | Dynoxide) -> Iterator[None]:
    """A mongod lets the transaction of a worker that is dead hold its documents for a minute. Here it is a second."""
    if isinstance(server, Dynoxide):
        yield
        return
    with MongoClient[dict[str, Any]](server.uri) as client:
        before = client.admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": 1})["was"]
        try:
            yield
        finally:
            client.admin.command({"setParameter": 1, "transactionLifetimeLimitSeconds": before})


def check(bank: Bank, deliveries: Sequence[Delivery], seen: Sequence[dict[str, int]]) -> None:
    """Each transfer took effect once, is known on both of its sides and nowhere else, and was never seen by half."""
    expected, found = in_turn(deliveries), bank.accounts()
    assert {name: account.cents for name, account in found.items()} == {n: a.cents for n, a in expected.items()}
    for name in ACCOUNTS:
        assert sorted(found[name].transfers) == sorted(expected[name].transfers)
    known = bank.known([message for message, _ in deliveries])
    assert known == {message.id: {*sides(message, giver)} for message, giver in deliveries}
    assert {sum(each.values()) for each in seen} == {START * len(ACCOUNTS)}
    # Else nobody has looked while there was something to see.
    assert len({tuple(sorted(each.items())) for each in seen}) > 10


@pytest.mark.parametrize("engine", ["mongod", "dynoxide"])
@pytest.mark.few(1)
def test_workers_killed_at_any_moment_leave_no_half_of_a_transfer_and_lose_and_double_none(
    engine: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(engine)
    bank, deliveries = bank_on(server, next(_places)), orders(TRANSFERS, seed=14)
    broker = Broker(bank, deque(deliveries), kills=KILLS, seed=3)
    with short_transactions(server), snapshots(bank) as seen:
        broker.run()
    check(bank, deliveries, seen)
    assert sorted(each.id for each in broker.acknowledged) == sorted(message.id for message, _ in deliveries)
    outcomes = {each.id: each.outcome for each in broker.acknowledged}
    assert broker.killed > KILLS / 2
    assert broker.written_unacknowledged
    assert {outcomes[message] for message in broker.written_unacknowledged} == {"Duplicate"}
    assert set(outcomes.values()) == {"Applied", "Duplicate"}


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Mongod, Dynoxide], ids=["mongod", "dynoxide"])
@pytest.mark.few(1)
def test_a_server_killed_between_transfers_keeps_those_that_were_acknowledged_and_no_half_of_another(
    mortal: Mongod | Dynoxide,
) -> None:
    bank, deliveries = bank_on(mortal, "bank"), orders(150, seed=9)
    with bank.open() as apply, snapshots(bank) as seen, ThreadPoolExecutor(4) as pool:
        load = Load(apply, deque(deliveries))
        work = [pool.submit(load.work) for _ in range(4)]
        load.wait_for(60)
        mortal.kill()
        promised = {each.id for each in load.acknowledged}
        mortal.restart()
        kept = bank.accounts()
        for each in work:
            each.result()
    assert promised <= {transfer for account in kept.values() for transfer in account.transfers}
    assert sum(account.cents for account in kept.values()) == START * len(ACCOUNTS)
    check(bank, deliveries, seen)
    assert sorted(each.id for each in load.acknowledged) == sorted(message.id for message, _ in deliveries)
    assert max(applied(load.acknowledged).values()) == 1
