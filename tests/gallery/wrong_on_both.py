"""Handlers that look right, on either engine. Each makes one mistake that people really make, and its docstring says which."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from onewrite import Applied, HighWaterMark, Message, Outcome, SeenIds
from tests.gallery.banking import Bank, blocking
from tests.gallery.cases import NOW

Handler = Callable[[Any], Any]


def marked_before_the_effect(stores: Mapping[str, Any]) -> Handler:
    """It marks the message first, which only one delivery can do. A crash after that loses the effect for good."""
    bank = Bank(stores["customers"])

    async def handle(message: Message) -> None:
        if await Bank(stores["processed"], message.id).create():
            await bank.add_plainly(message.body["amount"])

    return blocking(handle)


def marked_after_the_effect(stores: Mapping[str, Any]) -> Handler:
    """It marks the message last. A crash between the effect and the mark repeats the effect."""
    bank = Bank(stores["customers"])

    async def handle(message: Message) -> None:
        mark = Bank(stores["processed"], message.id)
        if await mark.read() is None:
            await bank.add_plainly(message.body["amount"])
            await mark.create()

    return blocking(handle)


def two_entities_one_mark(accounts: Any) -> Handler:
    """It skips the second half of a transfer if the first is a duplicate. A crash between them loses the second half."""
    alice, bob = Bank(accounts, "alice"), Bank(accounts, "bob")

    async def handle(message: Message) -> None:
        amount = message.body["amount"]
        if isinstance(await alice.add(replace(message, body={"amount": -amount})), Applied):
            await bob.add_plainly(amount)

    return blocking(handle)


def counted_outside_the_guard(customers: Any) -> Handler:
    """It guards the balance, but not the total next to it, which counts every delivery."""
    bank = Bank(customers)

    async def handle(message: Message) -> None:
        await bank.add(message)
        await bank.of("total").add_plainly(message.body["amount"])

    return blocking(handle)


def id_minted_in_the_handler(customers: Any) -> Handler:
    """The producer sends no id, so the handler makes one. Each delivery gets another."""
    bank = Bank(customers)

    async def handle(message: Message) -> Outcome:
        return await bank.add(Message(str(uuid.uuid4()), body=message.body))

    return blocking(handle)


def high_water_mark_on_an_unordered_queue(customers: Any) -> Handler:
    """It keeps a mark, because messages are numbered and a mark is small. But a standard queue doesn't keep their order."""
    return blocking(Bank(customers, ledger=HighWaterMark()).add)


def forgets_within_the_redelivery_window(customers: Any) -> Handler:
    """It keeps the ids of one hour, but the queue keeps a message for days and delivers it again after each failure."""
    nights = itertools.count(NOW, 24 * 3600)
    return blocking(Bank(customers, ledger=SeenIds(retention=timedelta(hours=1)), clock=lambda: next(nights)).add)


def batch_under_its_first_id(customers: Any) -> Handler:
    """It writes a batch at once, and remembers the first of its messages. A record that comes again alone counts as new."""
    bank = Bank(customers)

    async def handle(event: Any) -> None:
        total = sum(10 ** int(record["body"]) for record in event["Records"])
        await bank.add(Message(event["Records"][0]["messageId"], body={"amount": total}))

    return blocking(handle)


def deleted_with_its_ledger(customers: Any) -> Handler:
    """It deletes the customer, and the ledger with it. A deposit that is redelivered after that brings the customer back."""
    bank = Bank(customers)

    async def handle(message: Message) -> None:
        await (bank.add(message) if "amount" in message.body else bank.delete())

    return blocking(handle)
