"""Handlers that go by what they keep in memory, and do so wrongly once a certain answer has come, or once a process has died."""

from __future__ import annotations

import itertools
from typing import Any

from onewrite import Applied, Message
from tests.gallery.banking import NO_CONNECTION, Bank, Coroutine, is_throttled

# --- memory that a kind of answer creates ----------------------------------------------------------------------------


def breaker_that_drops(bank: Bank) -> Coroutine:
    """Once the database was too busy, it lets a message pass without work, and says that it is done."""
    is_open = False

    async def handle(message: Message) -> Any:
        nonlocal is_open
        if is_open:
            is_open = False
            return None
        try:
            return await bank.add(message)
        except Exception as error:
            is_open = is_throttled(error)
            raise

    return handle


def given_up_after_the_second_failure(bank: Bank) -> Coroutine:
    """A message that has failed twice goes to the dead letters, which nobody reads."""
    failures: dict[str, int] = {}

    async def handle(message: Message) -> Any:
        try:
            return await bank.add(message)
        except Exception:
            failures[message.id] = failures.get(message.id, 0) + 1
            if failures[message.id] < 2:  # the second
                raise
            return None

    return handle


def lost_answer_taken_for_success(bank: Bank) -> Coroutine:
    """An answer that did not come means that the write has arrived, it thinks, and lets the message go when it is redelivered."""
    sent: set[str] = set()

    async def handle(message: Message) -> Any:
        if message.id in sent:
            return None
        try:
            return await bank.add(message)
        except NO_CONNECTION:
            sent.add(message.id)
            raise

    return handle


def absence_remembered(bank: Bank) -> Coroutine:
    """It looks for the customer on a replica that lags behind, and never looks again for one that was not there."""
    absent = False

    async def handle(message: Message) -> Any:
        nonlocal absent
        if message.sequence != 1:
            if absent:
                return None
            if await bank.read(late=True) is None:
                absent = True
                raise LookupError("no such customer: come again")
        return await bank.add(message)

    return handle


def creation_remembered(bank: Bank) -> Coroutine:
    """It was told once that the customer is there already, and from then on takes each message for one that has created it."""
    known = False

    async def handle(message: Message) -> None:
        nonlocal known
        amount = message.body["amount"]
        if not known and await bank.create(balance=amount, by=message.id):
            return
        customer = await bank.read()
        if known or (customer is not None and customer["by"] == message.id):
            return
        known = True
        await bank.of(message.id).put(amount)

    return handle


# --- memory that a dead process has taken with it --------------------------------------------------------------------


def written_behind(bank: Bank) -> Coroutine:
    """It collects two messages before it writes them. A process that dies takes with it what it has said is done."""
    waiting: dict[str, Message] = {}

    async def handle(message: Message) -> None:
        waiting[message.id] = message
        if len(waiting) == 2:  # a pair
            for other in list(waiting.values()):
                await bank.add(other)
            waiting.clear()

    return handle


class IdsOfThisProcess:
    """It knows which messages it has applied, until it is started again."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._applied: set[str] = set()

    async def __call__(self, message: Message) -> None:
        if message.id not in self._applied:
            self._applied.add(message.id)
            try:
                await self._bank.add_plainly(message.body["amount"])
            except Exception:
                self._applied.discard(message.id)
                raise


def numbered_by_the_process(bank: Bank) -> Coroutine:
    """It numbers the entries itself, from 1 again when it is started again."""
    numbers = itertools.count(1)
    given: dict[str, int] = {}

    async def handle(message: Message) -> None:
        number = given.get(message.id) or given.setdefault(message.id, next(numbers))
        await bank.of(f"entry-{number}").put(message.body["amount"])

    return handle


def receipt_owed(bank: Bank) -> Coroutine:
    """It remembers that it has still to credit the partner when the first write is done."""
    owed: set[str] = set()

    async def handle(message: Message) -> None:
        if isinstance(await bank.add(message), Applied):
            owed.add(message.id)
        if message.id in owed:
            await bank.of("partner").add(message)
            owed.discard(message.id)

    return handle
