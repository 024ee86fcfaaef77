"""Work done right in tasks, with caches and clocks. Each handler is tried on both engines."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pymongo.errors import PyMongoError

from onewrite import Message
from tests.gallery.books import Books

Handler = Callable[[Message], Awaitable[Any]]
FAILURES = (BotoCoreError, ClientError, PyMongoError)


def gathered(books: Books) -> Handler:
    """Both halves are under way at once, and each has a mark of its own."""

    async def handle(message: Message) -> None:
        amounts = {"alice": -message.body["amount"], "bob": message.body["amount"]}
        await asyncio.gather(*[books.add_once(message, account, amount) for account, amount in amounts.items()])

    return handle


def grouped(books: Books) -> Handler:
    """Whoever fails cancels the others. What was cancelled is done again when the message is redelivered, if it has not arrived."""

    async def handle(message: Message) -> None:
        async with asyncio.TaskGroup() as group:
            for account in ("alice", "bob"):
                group.create_task(books.add_once(message, account, message.body["amount"]))

    return handle


def created_and_awaited(books: Books) -> Handler:
    async def handle(message: Message) -> None:
        fee = asyncio.create_task(books.add_once(message, "fees", 1))
        try:
            await books.add_once(message, "c1", message.body["amount"])
        finally:
            await fee

    return handle


def as_they_come(books: Books) -> Handler:
    async def handle(message: Message) -> list[Any]:
        parts = [books.add_once(message, account, message.body["amount"]) for account in ("alice", "bob")]
        return [await part for part in asyncio.as_completed(parts)]

    return handle


def locked(books: Books) -> Handler:
    """The tasks of a delivery keep apart by a lock; what they have found out is written once, guarded."""

    async def handle(message: Message) -> None:
        lock, found = asyncio.Lock(), dict[str, int]()

        async def look(account: str) -> None:
            async with lock:
                before = found.get("sum", 0)
                found["sum"] = before + 1 + 0 * await books.balance(account)

        await asyncio.gather(look("alice"), look("bob"))
        await books.add_once(message, "c1", message.body["amount"] * found["sum"])

    return handle


def handed_on_by_a_queue(books: Books) -> Handler:
    """One task finds out what is to be done, and another does it, until there is no more."""

    async def handle(message: Message) -> None:
        queue: asyncio.Queue[str | None] = asyncio.Queue(1)

        async def find() -> None:
            for account in ("alice", "bob"):
                await queue.put(account)
            await queue.put(None)

        async def book() -> None:
            while (account := await queue.get()) is not None:
                await books.add_once(message, account, message.body["amount"])

        await asyncio.gather(find(), book())

    return handle


def tried_again_after_a_while(books: Books) -> Handler:
    """Each task waits before it tries again. The tries are one message, so it does not matter which of them arrived."""

    async def book(message: Message, account: str) -> None:
        with suppress(*FAILURES):
            await books.add_once(message, account, message.body["amount"])
            return
        await asyncio.sleep(0.5)
        await books.add_once(message, account, message.body["amount"])

    async def handle(message: Message) -> None:
        await asyncio.gather(book(message, "alice"), book(message, "bob"))

    return handle


def in_time_or_again(books: Books) -> Handler:
    """What has not answered in time may have arrived. The mark knows."""

    async def handle(message: Message) -> Any:
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                return await books.add_once(message, "c1", message.body["amount"])
        return await books.add_once(message, "c1", message.body["amount"])

    return handle


def whoever_answers_first(books: Books) -> Handler:
    """It asks twice and takes the first answer. A read that is cancelled changes nothing."""

    async def handle(message: Message) -> None:
        questions = [asyncio.create_task(books.balance("fees")) for _ in range(2)]
        _, slower = await asyncio.wait(questions, return_when=asyncio.FIRST_COMPLETED)
        for question in slower:
            question.cancel()
        await asyncio.wait(questions)
        await books.add_once(message, "c1", message.body["amount"])

    return handle


def cached(books: Books) -> Handler:
    """The fees are read once in the life of the process, by whoever comes first. They do not change."""
    fees: dict[str, int] = {}

    async def fee(account: str) -> int:
        if account not in fees:
            fees[account] = await books.balance(account)
        return fees[account]

    async def handle(message: Message) -> None:
        known = await asyncio.gather(fee("domestic"), fee("foreign"))
        await books.add_once(message, "c1", message.body["amount"] + sum(known))

    return handle


def computed_in_a_thread(books: Books) -> Handler:
    """The thread sends nothing."""

    async def handle(message: Message) -> None:
        amount, _ = await asyncio.gather(
            asyncio.to_thread(lambda: int(message.body["amount"])), books.add_once(message, "fees", 1)
        )
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, threading.get_ident)
        await books.add_once(message, "c1", amount)

    return handle


def read_to_the_end(books: Books) -> Handler:
    async def lines(message: Message) -> AsyncIterator[int]:
        try:
            yield message.body["amount"]
            yield 1
        finally:
            await books.add_once(message.part("closed"), "total", 1)

    async def handle(message: Message) -> None:
        async with aclosing(lines(message)) as found:  # type: ignore[type-var]  # an async generator function is one
            async for amount in found:
                await books.add_once(message, "c1", amount)
                break

    return handle


def in_a_loop_of_its_own(books: Books) -> Callable[[Message], None]:
    async def both(message: Message) -> None:
        await asyncio.gather(*[books.add_once(message, account, message.body["amount"]) for account in ("alice", "bob")])

    return lambda message: asyncio.run(both(message))


def in_a_loop_that_lives_on(books: Books) -> Callable[[Message], None]:
    """A loop for each thread of the process, as `onewrite.aws_lambda` has it."""
    this = threading.local()

    async def both(message: Message) -> None:
        async with asyncio.TaskGroup() as group:
            for account in ("alice", "bob"):
                group.create_task(books.add_once(message, account, message.body["amount"]))

    def handle(message: Message) -> None:
        if not hasattr(this, "runner"):
            this.runner = asyncio.Runner()
            weakref.finalize(this.runner, this.runner.get_loop().close)
        this.runner.run(both(message))

    return handle
