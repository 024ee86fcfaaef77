"""Handlers that use locks, queues, semaphores, retries and the like properly. What keeps a message from counting twice is in the store."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pymongo.errors import PyMongoError

from onewrite import Message
from tests.gallery.banking import Bank, Coroutine

DATABASE_ERRORS = (BotoCoreError, ClientError, PyMongoError)


def written_under_a_lock(bank: Bank) -> Coroutine:
    """The lock spares conflicts, and the version decides."""
    lock = threading.Lock()

    async def handle(message: Message) -> None:
        with lock:
            while True:
                customer: Mapping[str, Any] = await bank.read() or {"balance": 0, "version": 0, "seen": []}
                if message.id in customer["seen"]:
                    return
                balance, seen = int(customer["balance"]) + message.body["amount"], [*customer["seen"], message.id]
                if await bank.swap(int(customer["version"]), balance, seen=seen):
                    return

    return handle


def limited_by_a_semaphore(bank: Bank) -> Coroutine:
    """One request at a time, so the database is not overrun."""
    turn = threading.BoundedSemaphore(1)

    async def handle(message: Message) -> Any:
        with turn:
            return await bank.add(message)

    return handle


def taken_from_a_queue(bank: Bank) -> Coroutine:
    """It takes a connection from a pool, and puts it back whatever happens."""
    pool: queue.Queue[Bank] = queue.Queue()
    pool.put(bank)

    async def handle(message: Message) -> Any:
        connection = pool.get()
        try:
            return await connection.add(message)
        finally:
            pool.put(connection)

    return handle


def sent_back_while_in_flight(bank: Bank) -> Coroutine:
    """What is in progress in this process comes again later. In another process the guard decides."""
    in_flight: set[str] = set()

    async def handle(message: Message) -> Any:
        if message.id in in_flight:
            raise RuntimeError("in flight")
        in_flight.add(message.id)
        try:
            return await bank.add(message)
        finally:
            in_flight.discard(message.id)

    return handle


def tried_three_times_and_sent_back(bank: Bank) -> Coroutine:
    """It waits longer each time, and raises what it met last."""

    async def handle(message: Message) -> Any:
        for attempt in range(2):
            try:
                return await bank.add(message)
            except DATABASE_ERRORS:
                _wait(60 * 2**attempt)
        return await bank.add(message)

    return handle


def tried_until_it_is_done(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> Any:
        while True:
            try:
                return await bank.add(message)
            except DATABASE_ERRORS:
                _wait(30)

    return handle


def added_by_hand(bank: Bank) -> Coroutine:
    """E11000 is no verdict: it tries again without an upsert."""

    async def handle(message: Message) -> None:
        await bank.add_under(message.id, message.body["amount"])

    return handle


def each_record_under_its_id(bank: Bank) -> Any:
    """Whatever company a record comes in."""

    async def handle(event: Any) -> None:
        for record in event["Records"]:
            await bank.add_under(record["messageId"], 10 ** json.loads(record["body"]))

    return handle


def warned_of_at_the_second_receipt(bank: Bank) -> Any:
    """It counts receipts for the log, and goes on."""
    warnings: list[str] = []

    async def handle(event: Any) -> None:
        for record in event["Records"]:
            if int(record["attributes"]["ApproximateReceiveCount"]) > 1:
                warnings.append(record["messageId"])
            await bank.add_under(record["messageId"], 10 ** json.loads(record["body"]))

    return handle


def slept_between_two_reads(bank: Bank) -> Coroutine:
    """It looks, waits for the others, looks again, and lets the guard decide."""

    async def handle(message: Message) -> Any:
        for _ in range(2):
            await bank.read()
            _wait(5)
        return await bank.add(message)

    return handle


def _wait(seconds: float) -> None:
    time.sleep(seconds)
