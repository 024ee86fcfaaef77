"""Handlers that return before all is done. Each is tried on both engines, and refused: the message counts as done too early."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing

from onewrite import Message
from tests.gallery.books import Books

Handler = Callable[[Message], Awaitable[None]]


def fired_and_forgotten(books: Books) -> Handler:
    async def handle(message: Message) -> None:
        asyncio.ensure_future(books.add_once(message, "c1", message.body["amount"]))  # noqa: RUF006  # the mistake

    return handle


def written_behind(books: Books) -> Handler:
    """It answers at once, and writes a moment later."""

    async def later(message: Message) -> None:
        await asyncio.sleep(30)
        await books.add_once(message, "total", message.body["amount"])

    async def handle(message: Message) -> None:
        asyncio.get_running_loop().create_task(later(message))  # the mistake
        await books.add_once(message, "c1", message.body["amount"])

    return handle


def written_two_at_a_time(books: Books) -> Handler:
    """A task writes once it has two of them. What comes first waits for what may never come."""

    async def write(queue: asyncio.Queue[Message]) -> None:
        while True:
            first, second = await queue.get(), await queue.get()
            await books.add_once(first, "total", first.body["amount"] + second.body["amount"])

    async def handle(message: Message) -> None:
        queue: asyncio.Queue[Message] = asyncio.Queue()
        queue.put_nowait(message)
        asyncio.create_task(write(queue))  # noqa: RUF006  # the mistake
        await books.add_once(message, "c1", message.body["amount"])

    return handle


def waited_for_the_first(books: Books) -> Handler:
    async def handle(message: Message) -> None:
        halves = [books.add_once(message, account, message.body["amount"]) for account in ("alice", "bob")]
        await asyncio.wait(map(asyncio.ensure_future, halves), return_when=asyncio.FIRST_COMPLETED)

    return handle


def read_to_the_first(books: Books) -> Handler:
    """An async generator that is left open closes some time later, and what is in its `finally` is done then."""

    async def lines(message: Message) -> AsyncIterator[int]:
        try:
            yield message.body["amount"]
            yield 1
        finally:
            await books.add_once(message.part("closed"), "total", 1)

    async def handle(message: Message) -> None:
        async for amount in lines(message):
            await books.add_once(message, "c1", amount)
            break

    return handle


def called_later(books: Books) -> Handler:
    """No task is there yet when the handler returns, but a timer that makes one."""

    async def handle(message: Message) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(5, lambda: loop.create_task(books.add_once(message, "total", message.body["amount"])))
        await books.add_once(message, "c1", message.body["amount"])

    return handle


def cancelled_with_its_loop(books: Books) -> Callable[[Message], None]:
    """`asyncio.run` cancels what is left when the coroutine returns."""

    async def main(message: Message) -> None:
        asyncio.create_task(books.add_once(message, "total", message.body["amount"]))  # noqa: RUF006  # the mistake
        await books.add_once(message, "c1", message.body["amount"])

    return lambda message: asyncio.run(main(message))


def left_in_a_loop_that_is_closed(books: Books) -> Callable[[Message], None]:
    """Nobody cancels it. It just does not go on."""

    async def main(message: Message) -> None:
        task = asyncio.create_task(books.add_once(message, "total", message.body["amount"]))
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio says it, and nobody reads that
        await books.add_once(message, "c1", message.body["amount"])

    def handle(message: Message) -> None:
        with closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(main(message))

    return handle


def left_in_a_loop_that_stands_still(books: Books) -> Callable[[Message], None]:
    """The loop lives on, and runs when the next message comes."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def main(message: Message) -> None:
        asyncio.create_task(books.add_once(message, "total", message.body["amount"]))  # noqa: RUF006  # the mistake
        await books.add_once(message, "c1", message.body["amount"])

    def handle(message: Message) -> None:
        if not loops:
            loops.append(asyncio.new_event_loop())
            weakref.finalize(handle, loops[0].close)
        loops[0].run_until_complete(main(message))

    return handle
