"""Handlers that rely on something outside the stores: one server command, one process, one context, one day, one order."""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from onewrite import Message
from tests.gallery.banking import Bank, Build, Coroutine

# --- one command isn't one write -----------------------------------------------------------------------------------------


def marked_and_added_in_one_command(bank: Bank) -> Coroutine:
    """Both updates are in one command, but the server performs one after the other."""

    async def handle(message: Message) -> None:
        if bank.store.find_one({"_id": message.id}) is None:
            mark = UpdateOne({"_id": message.id}, {"$set": {"done": True}}, upsert=True)
            change = UpdateOne(bank.key, {"$inc": {"balance": message.body["amount"]}}, upsert=True)
            bank.store.bulk_write([mark, change])

    return handle


def all_lines_inserted_at_once(bank: Bank) -> Coroutine:
    """If the first line is there, all of them are, it thinks."""

    async def handle(message: Message) -> None:
        with suppress(DuplicateKeyError):
            lines = [{"_id": f"{message.id}-{line}", "balance": message.body["amount"]} for line in ("a", "b", "c")]
            if bank.store.find_one({"_id": lines[0]["_id"]}) is None:
                bank.store.insert_many(lines)

    return handle


def all_customers_updated_at_once(bank: Bank) -> Coroutine:
    """The first customer that has the interest speaks for all."""

    async def handle(message: Message) -> None:
        for name in ("a", "b"):
            bank.store.update_one({"_id": name}, {"$setOnInsert": {"balance": 1, "seen": []}}, upsert=True)
        if bank.store.find_one({"_id": "a", "seen": message.id}) is None:
            change = {"$inc": {"balance": message.body["amount"]}, "$push": {"seen": message.id}}
            bank.store.update_many({"_id": {"$in": ["a", "b"]}}, change)

    return handle


# --- a batch that is left in part, and then a crash -----------------------------------------------------------------------


def _put_all(bank: Bank, *items: dict[str, Any], delete: str | None = None) -> None:
    """Write a batch until DynamoDB leaves nothing unprocessed."""
    writes: list[Any] = [{"PutRequest": {"Item": item}} for item in items]
    if delete is not None:
        writes.insert(0, {"DeleteRequest": {"Key": {"id": delete}}})
    left = {bank.store.name: writes}
    while left:
        left = bank.store.meta.client.batch_write_item(RequestItems=left)["UnprocessedItems"]


def _is_there(bank: Bank, name: str) -> bool:
    return "Item" in bank.store.get_item(Key={"id": name}, ConsistentRead=True)


def mark_in_the_batch(bank: Bank) -> Coroutine:
    """The mark is in the same batch as its effect."""

    async def handle(message: Message) -> None:
        if not _is_there(bank, message.id):
            _put_all(bank, {"id": message.id}, {"id": f"entry of {message.id}", "balance": message.body["amount"]})

    return handle


def first_line_taken_for_all(bank: Bank) -> Coroutine:
    """The first line that is there speaks for the others."""

    async def handle(message: Message) -> None:
        if not _is_there(bank, f"{message.id}-a"):
            with bank.store.batch_writer() as batch:
                for line in "abc":
                    batch.put_item(Item={"id": f"{message.id}-{line}", "balance": message.body["amount"]})

    return handle


def given_up_after_three_rounds(bank: Bank) -> Coroutine:
    """DynamoDB can leave the same item more than three times."""

    async def handle(message: Message) -> None:
        items = [{"id": f"{message.id}-{line}", "balance": message.body["amount"]} for line in "abc"]
        left: Any = {bank.store.name: [{"PutRequest": {"Item": item}} for item in items]}
        for _ in range(3):
            left = left and bank.store.meta.client.batch_write_item(RequestItems=left)["UnprocessedItems"]

    return handle


def moved_in_a_batch(bank: Bank) -> Coroutine:
    """It deletes what is pending in the batch that puts the entry."""

    async def handle(message: Message) -> None:
        if not _is_there(bank, "created"):
            bank.store.put_item(Item={"id": "pending"})
            bank.store.put_item(Item={"id": "created"})
        if _is_there(bank, "pending"):
            _put_all(bank, {"id": "moved", "balance": message.body["amount"]}, delete="pending")

    return handle


# --- locks and flags that two processes don't share -----------------------------------------------------------------------


class BusyError(Exception):
    """Another delivery is in progress."""


async def _read_and_put(bank: Bank, message: Message) -> None:
    customer = await bank.read() or {"balance": 0, "seen": []}
    if message.id not in customer["seen"]:
        await bank.put(int(customer["balance"]) + message.body["amount"], seen=[*customer["seen"], message.id])


_LOCK = threading.Lock()
_IN_FLIGHT: set[str] = set()


def lock_of_the_module(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> None:
        if not _LOCK.acquire(blocking=False):
            raise BusyError
        try:
            await _read_and_put(bank, message)
        finally:
            _LOCK.release()

    return handle


def ids_of_the_module(bank: Bank) -> Coroutine:
    """It reads before it looks into the set."""

    async def handle(message: Message) -> None:
        await bank.of("c2").read()
        if message.id in _IN_FLIGHT:
            raise BusyError
        _IN_FLIGHT.add(message.id)
        try:
            await _read_and_put(bank, message)
        finally:
            _IN_FLIGHT.discard(message.id)

    return handle


class FlagOfTheClass:
    """The flag belongs to the class, not to its object."""

    busy = False

    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    async def __call__(self, message: Message) -> None:
        if FlagOfTheClass.busy:
            raise BusyError
        FlagOfTheClass.busy = True
        try:
            await _read_and_put(self._bank, message)
        finally:
            FlagOfTheClass.busy = False


def flag_of_the_environment(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> None:
        if os.environ.get("BANK_IS_BUSY"):
            raise BusyError
        os.environ["BANK_IS_BUSY"] = message.id
        try:
            await _read_and_put(bank, message)
        finally:
            del os.environ["BANK_IS_BUSY"]

    return handle


# --- locks that a killed process leaves behind ------------------------------------------------------------------------------


_REDIS: dict[str, str] = {}


@contextmanager
def _key_in_redis(key: str) -> Generator[None]:
    if _REDIS.setdefault(key, "mine") != "mine" or _REDIS.get(f"{key} is held"):
        raise BusyError
    _REDIS[f"{key} is held"] = "yes"
    try:
        yield
    finally:
        _REDIS.clear()


@contextmanager
def _lock_file(path: Path) -> Generator[None]:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        raise BusyError from None
    try:
        yield
    finally:
        path.unlink()


def _file(name: str) -> Path:
    return Path(tempfile.gettempdir(), f"{name}-{os.getpid()}")


def key_in_redis(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> None:
        with _key_in_redis("bank"):
            await bank.add(message)

    return handle


def lock_file(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> None:
        with _lock_file(_file("bank")):
            await bank.add(message)

    return handle


def lock_file_of_the_message(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> None:
        await bank.read()
        with _lock_file(_file(message.id)):
            await bank.add(message)

    return handle


# --- what the first message sets ------------------------------------------------------------------------------------------


_SETTINGS: dict[str, Any] = {}
_TENANT: ContextVar[str] = ContextVar("tenant", default="")


def customer_of_the_first_message(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> None:
        customer = _SETTINGS.setdefault("customer", f"customer of {message.id}")
        await bank.of(customer).add(message)

    return handle


class RateOfTheFirstMessage:
    """An attribute of the class is set once."""

    rate = 0

    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    async def __call__(self, message: Message) -> None:
        RateOfTheFirstMessage.rate = RateOfTheFirstMessage.rate or message.body["amount"]
        await self._bank.of(f"{message.id} at {RateOfTheFirstMessage.rate}").add(message)


def tenant_in_a_context_variable(bank: Bank) -> Coroutine:
    """It sets the tenant once, and never resets it."""

    async def handle(message: Message) -> None:
        if not _TENANT.get():
            _TENANT.set(message.id)
        await bank.of(f"{message.id} of {_TENANT.get()}").add(message)

    return handle


# --- a clock that is coarser than a delivery --------------------------------------------------------------------------------


def _keyed_by(read: Callable[[], object]) -> Build:
    def build(bank: Bank) -> Coroutine:
        async def handle(message: Message) -> None:
            await bank.add_under(f"{message.id} {read()}", message.body["amount"])

        return handle

    return build


def _read_minute(now: Callable[[], float] = time.time) -> int:
    return int(now() / 60)


key_of_the_minute = _keyed_by(_read_minute)
_now = partial(dt.datetime.now, dt.UTC)
key_of_the_hour = _keyed_by(lambda: f"{_now():%Y%m%d%H}")
key_of_the_day = _keyed_by(lambda: f"{dt.date.today()}")  # noqa: DTZ011  # that is the mistake
key_of_the_month = _keyed_by(lambda: time.strftime("%Y-%m"))


# --- what the order decides -------------------------------------------------------------------------------------------------


def last_write_wins(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> None:
        await bank.put(message.body["amount"])

    return handle


def first_write_and_the_last(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> None:
        first = (await bank.read() or {}).get("first", message.body["amount"])
        await bank.put(first * 1000, first=first, last=message.id)

    return handle


def doubled_and_added(bank: Bank) -> Coroutine:
    """A deposit of ten is added, and another message doubles the balance. It matters which one comes first."""

    async def handle(message: Message) -> None:
        customer = await bank.read() or {"balance": 1, "version": 0, "seen": []}
        if message.id in customer["seen"]:
            return
        balance = int(customer["balance"])
        changed = balance + 10 if message.id == "m1" else balance * 2
        if not await bank.swap(int(customer["version"]), changed, seen=[*customer["seen"], message.id]):
            raise BusyError

    return handle
