"""Mistakes with tasks: side by side, they lose each other's updates. Each handler is tried on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from onewrite import Applied, Message
from tests.gallery.books import Books

Handler = Callable[[Message], Awaitable[None]]


def gathered_sums(books: Books) -> Handler:
    """Two lines of an order are booked at once, to one account. The message is marked, but not what comes between."""

    async def book(amount: int) -> None:
        await books.put("c1", await books.balance("c1") + amount)

    async def handle(message: Message) -> None:
        if not await books.balance(message.id):
            await asyncio.gather(book(message.body["amount"]), book(1))
            await books.put(message.id, 1)

    return handle


def grouped_sums(books: Books) -> Handler:
    """A task group waits for its tasks, and does not keep them apart."""

    async def book(account: str, amount: int) -> None:
        await books.put(account, await books.balance(account) + amount)
        await books.put("total", await books.balance("total") + amount)

    async def handle(message: Message) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(book("alice", message.body["amount"]))
            group.create_task(book("bob", 1))

    return handle


def created_and_awaited_later(books: Books) -> Handler:
    """The task has begun long before it is awaited."""

    async def book(amount: int) -> None:
        await books.put("c1", await books.balance("c1") + amount)

    async def handle(message: Message) -> None:
        fee = asyncio.create_task(book(1))
        await book(message.body["amount"])
        await fee

    return handle


def booked_as_they_come(books: Books) -> Handler:
    """It looks at one result after the other. The work itself is under way for all of them."""

    async def book(amount: int) -> None:
        await books.put("c1", await books.balance("c1") + amount)

    async def handle(message: Message) -> None:
        for done in asyncio.as_completed([book(message.body["amount"]), book(1)]):
            await done

    return handle


def too_many_at_once(books: Books) -> Handler:
    """The semaphore lets two in."""

    async def handle(message: Message) -> None:
        gate = asyncio.Semaphore(2)

        async def book(amount: int) -> None:
            async with gate:
                await books.put("c1", await books.balance("c1") + amount)

        await asyncio.gather(*[book(amount) for amount in (message.body["amount"], 1, 1)])

    return handle


def read_before_the_lock(books: Books) -> Handler:
    async def handle(message: Message) -> None:
        lock = asyncio.Lock()

        async def book(amount: int) -> None:
            before = await books.balance("c1")
            async with lock:
                await books.put("c1", before + amount)

        await asyncio.gather(book(message.body["amount"]), book(1))

    return handle


def waits_a_moment_first(books: Books) -> Handler:
    """Both tasks wait before they begin, which keeps them apart most of the time."""

    async def book(amount: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await books.put("c1", await books.balance("c1") + amount)

    async def handle(message: Message) -> None:
        await asyncio.gather(book(message.body["amount"], 0.1), book(1, 5))

    return handle


def cancelled_taken_for_undone(books: Books) -> Handler:
    """When one half fails, the other is cancelled, and taken for not done. It may have arrived."""

    async def handle(message: Message) -> None:
        amount = message.body["amount"]
        if await books.balance(message.id):
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(books.add_once(message.part("debit"), "alice", -amount))
                group.create_task(books.add("bob", amount))
        except* Exception:
            await books.add_once(message.part("undone"), "alice", 0)
            raise
        await books.put(message.id, 1)

    return handle


def too_late_taken_for_undone(books: Books) -> Handler:
    """What has not answered in time has not happened, it thinks, and does it again."""

    async def handle(message: Message) -> None:
        if await books.balance(message.id):
            return
        try:
            async with asyncio.timeout(10):
                await books.add_once(message.part("first"), "c1", message.body["amount"])
        except TimeoutError:
            await books.add_once(message.part("again"), "c1", message.body["amount"])
        await books.add_once(message, message.id, 1)

    return handle


def the_quicker_wins(books: Books) -> Callable[[Message], Awaitable[Applied]]:
    """It books to whichever account answers first, and cancels the other. A redelivery does not know which it was."""

    async def handle(message: Message) -> Applied:
        ways = [
            asyncio.create_task(books.add_once(message, account, message.body["amount"])) for account in ("left", "right")
        ]
        _, slower = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for task in slower:
            task.cancel()
        await asyncio.wait(ways)
        return Applied(message)

    return handle


def gathered_in_a_loop_of_its_own(books: Books) -> Callable[[Message], None]:
    """A blocking handler that runs coroutines."""

    async def book(amount: int) -> None:
        await books.put("c1", await books.balance("c1") + amount)

    async def both(message: Message) -> None:
        await asyncio.gather(book(message.body["amount"]), book(1))

    return lambda message: asyncio.run(both(message))
