"""Handlers that keep something in memory, and are right whatever becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from onewrite import Message
from tests.gallery.banking import Bank, Coroutine, is_throttled


class CircuitOpenError(Exception):
    """The message is to come again."""


def breaker_that_sends_back(bank: Bank) -> Coroutine:
    """Once it was throttled, it sends the next message back. That one is redelivered."""
    is_open = False

    async def handle(message: Message) -> Any:
        nonlocal is_open
        if is_open:
            is_open = False
            raise CircuitOpenError
        try:
            return await bank.add(message)
        except Exception as error:
            is_open = is_throttled(error)
            raise

    return handle


def breaker_beyond_the_bounds(bank: Bank) -> Coroutine:
    """It would drop messages after five failures in a row, which no schedule within the bounds has."""
    failures = 0

    async def handle(message: Message) -> Any:
        nonlocal failures
        if failures == 5:  # in a row
            return None
        failures += 1
        outcome = await bank.add(message)
        failures = 0
        return outcome

    return handle


class Counted:
    """It counts what came of the messages, and nothing goes by that."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self.counts: Counter[str] = Counter()

    async def __call__(self, message: Message) -> Any:
        try:
            outcome = await self._bank.add(message)
        except Exception as error:
            self.counts[type(error).__name__] += 1
            raise
        self.counts[type(outcome).__name__] += 1
        return outcome


def cached_and_checked(bank: Bank) -> Coroutine:
    """It keeps the customer as it was read or written last. The write has the version for a condition, and a refusal empties the cache."""
    cached: dict[str, Mapping[str, Any]] = {}

    async def handle(message: Message) -> None:
        while True:
            if "c1" not in cached:
                cached["c1"] = await bank.read() or {"balance": 0, "version": 0, "seen": []}
            customer = cached.pop("c1")
            if message.id in customer["seen"]:
                return
            changed = {"balance": customer["balance"] + message.body["amount"], "seen": [*customer["seen"], message.id]}
            if await bank.swap(int(customer["version"]), **changed):
                cached["c1"] = {**changed, "version": customer["version"] + 1}
                return

    return handle


def ids_known_to_be_done(bank: Bank) -> Coroutine:
    """It spares itself the request for what it has seen applied. The guard is what keeps everything else out."""
    done: set[str] = set()

    async def handle(message: Message) -> Any:
        if message.id in done:
            return None
        outcome = await bank.add(message)
        if outcome.settled:
            done.add(message.id)
        return outcome

    return handle


def given_up_and_remembered_in_the_store(bank: Bank) -> Coroutine:
    """It counts failures, and after the second one parks the message where the next delivery finds it."""
    failures: Counter[str] = Counter()

    async def handle(message: Message) -> Any:
        try:
            return await bank.add(message)
        except Exception:
            failures[message.id] += 1
            if failures[message.id] < 2:  # the second
                raise
            return await bank.add(message)

    return handle
