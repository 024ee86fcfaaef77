"""Handlers that go by what they keep in memory, and do so wrongly once a certain answer has come, or once a process has died."""

from __future__ import annotations

import itertools
from typing import Any

from onewrite import Applied, Duplicate, Message
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


class LoadSheddingAfterThrottle:
    """Once it was throttled, it leaves out what it takes for less important: the total."""

    def __init__(self, bank: Bank) -> None:
        self._bank, self._total = bank, bank.of("total")
        self._sheds = False

    async def __call__(self, message: Message) -> None:
        try:
            await self._bank.add(message)
            if not self._sheds:
                await self._total.add(message)
        except Exception as error:
            self._sheds = self._sheds or is_throttled(error)
            raise


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


def replay_mode(bank: Bank) -> Coroutine:
    """After a duplicate it takes everything for a replay that has happened before, until something is new."""
    replays = False

    async def handle(message: Message) -> Any:
        nonlocal replays
        if replays:
            replays = False
            return None
        outcome = await bank.add(message)
        replays = isinstance(outcome, Duplicate)
        return outcome

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


def idle_after_trouble(bank: Bank) -> Coroutine:
    """It does no work for the message after the one after which something went wrong."""
    wrong = False

    async def handle(message: Message) -> Any:
        nonlocal wrong
        if wrong:
            wrong = False
            return None
        try:
            outcome = await bank.add(message)
        except Exception:
            wrong = True
            outcome = await bank.add(message)
        return outcome

    return handle


def rest_sent_instead(bank: Bank) -> Coroutine:
    """What a batch has left it sends with the next delivery, in place of that delivery's own."""
    left: list[Any] = []

    async def handle(message: Message) -> None:
        name, client = bank.store.name, bank.store.meta.client
        entries = [{"id": f"{message.id}-{line}", "balance": message.body["amount"]} for line in ("a", "b")]
        sent = left or [{"PutRequest": {"Item": entry}} for entry in entries]
        left[:] = client.batch_write_item(RequestItems={name: sent})["UnprocessedItems"].get(name, [])
        if left:
            raise TimeoutError("not all is written: come again")

    return handle


def left_to_the_other_transaction(bank: Bank) -> Coroutine:
    """Another transaction on the customer means that somebody else is at work, it thinks, and is content when the message is redelivered."""
    busy = False

    async def handle(message: Message) -> None:
        nonlocal busy
        client = bank.store.meta.client
        if busy:
            busy = False
            return
        entry = {"id": message.id, "balance": message.body["amount"]}
        fresh = {"TableName": bank.store.name, "Item": entry, "ConditionExpression": "attribute_not_exists(id)"}
        try:
            client.transact_write_items(TransactItems=[{"Put": fresh}])
        except client.exceptions.TransactionCanceledException as error:
            codes = [reason["Code"] for reason in error.response["CancellationReasons"]]
            if "TransactionConflict" in codes:
                busy = True
                raise

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


def sum_of_the_process(bank: Bank) -> Coroutine:
    """It adds up what it has seen, and writes the sum."""
    seen: dict[str, int] = {}

    async def handle(message: Message) -> None:
        seen[message.id] = message.body["amount"]
        await bank.put(sum(seen.values()))

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
