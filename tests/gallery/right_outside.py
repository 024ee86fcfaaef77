"""Handlers that use memory, contexts, batches and the order of messages as one may."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from functools import cache
from typing import Any

from pymongo import UpdateOne

from onewrite import Message
from tests.gallery.banking import Bank, Coroutine

_TENANT: ContextVar[str] = ContextVar("tenant")


def seat_taken_once(bank: Bank) -> Coroutine:
    """The message that comes first gets the seat."""

    async def handle(message: Message) -> None:
        await bank.of("seat").create(balance=message.body["amount"])

    return handle


def quota_used_up(bank: Bank) -> Coroutine:
    """There is one place, and the version decides who gets it."""

    async def handle(message: Message) -> None:
        quota = await bank.read() or {"balance": 0, "version": 0}
        if quota["version"] == 0:
            await bank.swap(0, 1, used_by=message.id)

    return handle


def address_reserved(bank: Bank) -> Coroutine:
    """The address is reserved first, and the customer that has it is created."""

    async def handle(message: Message) -> None:
        address = bank.of("ann@example.com")
        await address.create(owner=message.id)
        owner = await address.read()
        if owner is not None and owner["owner"] == message.id:
            await bank.of(message.id).create(balance=message.body["amount"])

    return handle


def lock_of_the_process(bank: Bank) -> Coroutine:
    """The lock spares work. It is made with the handler."""
    lock = threading.Lock()

    async def handle(message: Message) -> Any:
        if not lock.acquire(blocking=False):
            raise RuntimeError("busy")
        try:
            return await bank.add(message)
        finally:
            lock.release()

    return handle


def lock_of_the_loop(bank: Bank) -> Coroutine:
    lock = asyncio.Lock()

    async def handle(message: Message) -> Any:
        async with lock:
            return await bank.add(message)

    return handle


@cache
def _customer(source: str) -> str:
    return f"customer of {source}"


def pure_function_cached_in_the_module(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> Any:
        return await bank.of(_customer(message.source)).add(message)

    return handle


_SETTINGS: dict[str, Any] = {}


def setting_cached_in_the_module(bank: Bank) -> Coroutine:
    """Each process reads the setting once. No message changes it."""

    async def handle(message: Message) -> Any:
        if "setting" not in _SETTINGS:
            _SETTINGS["setting"] = await bank.of("setting").read()
        return await bank.add(message)

    return handle


def tenant_reset_in_its_context(bank: Bank) -> Coroutine:
    async def handle(message: Message) -> Any:
        token = _TENANT.set(message.id)
        try:
            return await bank.of(f"customer of {_TENANT.get()}").add(message)
        finally:
            _TENANT.reset(token)

    return handle


def balance_of_each_message(bank: Bank) -> Coroutine:
    """Each message sets a customer of its own, so the order doesn't matter."""

    async def handle(message: Message) -> None:
        await bank.of(message.id).put(message.body["amount"])

    return handle


def both_guarded_in_one_command(bank: Bank) -> Coroutine:
    """Each update has a guard of its own, so a command that was cut short is completed."""

    async def handle(message: Message) -> None:
        for name in ("a", "b"):
            bank.store.update_one({"_id": name}, {"$setOnInsert": {"balance": 0, "seen": []}}, upsert=True)
        change = {"$inc": {"balance": message.body["amount"]}, "$push": {"seen": message.id}}
        bank.store.bulk_write([UpdateOne({"_id": name, "seen": {"$ne": message.id}}, change) for name in ("a", "b")])

    return handle
