"""The same for asyncio: connections, a pool of them, and a client. What is not plainly an answer is left to the aiobotocore client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext
from typing import Any, ClassVar, cast

from aiobotocore.client import AioBaseClient
from aiobotocore.endpoint import AioEndpoint
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.signers import AioRequestSigner
from botocore.endpoint import Endpoint

from onewrite.lean.client import LeanClient
from onewrite.lean.insides import Driver, when_closed
from onewrite.lean.pool import Idle, close_all
from onewrite.lean.wire import Address, Answer, Wiring, reading_of_answer

AIOBOTOCORE = Driver(
    "aiobotocore",
    AioBaseClient,
    AIOHTTPSession,
    (
        (AioBaseClient, "_make_api_call"),
        (Endpoint, "make_request"),
        (AioEndpoint, "_send_request"),
        (AIOHTTPSession, "send"),
        (AioRequestSigner, "sign"),
    ),
)


class AsyncConnection(asyncio.Protocol):
    """A connection of one event loop, and of the process that opened it."""

    def __init__(self, address: Address, read_timeout: float | None) -> None:
        self.address = address
        self._read_timeout = read_timeout
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self._data = b""  # received and not read
        self._is_over = False
        self._news: asyncio.Future[None] | None = None  # what an exchange waits for

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._tell()

    def eof_received(self) -> None:
        self._is_over = True
        self._tell()

    def connection_lost(self, error: Exception | None) -> None:
        del error  # It is no answer, whatever it was.
        self._is_over = True
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # What the pool calls.

    async def exchange(self, request: bytes) -> Answer:
        self._transport.write(request)
        reading = reading_of_answer()
        next(reading)
        try:
            while True:
                reading.send(await self._receive())
        except StopIteration as stop:
            return cast("Answer", stop.value)

    async def _receive(self) -> bytes:
        """What has come. Nothing: the connection has ended."""
        if not self._data and not self._is_over:
            self._news = self._loop.create_future()
            try:
                async with asyncio.timeout(self._read_timeout):
                    await self._news
            finally:
                self._news = None
        data, self._data = self._data, b""
        return data

    def is_usable(self, address: Address) -> bool:
        """As of the other connections. Another loop must not use it either."""
        is_own = self._process == os.getpid() and self._loop is asyncio.get_running_loop()
        return is_own and self.address == address and not self._data and not self._is_over

    def close(self) -> None:
        """From any thread: what nobody can use any more may be found in another one. A loop that is closed has let go of it."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._transport.abort)


async def connect(address: Address, wiring: Wiring, context: Callable[[], SSLContext]) -> AsyncConnection:
    loop = asyncio.get_running_loop()
    tls: dict[str, Any] = {"ssl": context(), "server_hostname": address.host} if address.is_encrypted else {}
    async with asyncio.timeout(wiring.connect_timeout):
        _, connection = await loop.create_connection(
            lambda: AsyncConnection(address, wiring.read_timeout), address.host, address.port, **tls
        )
    return connection


class AsyncPool(Idle[AsyncConnection]):
    """Those of an aiobotocore client."""

    async def exchange(self, address: Address, request: bytes) -> Answer:
        """As that of the other pool. A task that is cancelled meanwhile closes its connection too."""
        connection = self._idle_one(address) or await connect(address, self._wiring, lambda: self._context)
        try:
            answer = await connection.exchange(request)
        except BaseException:
            connection.close()
            raise
        self._end(connection, answer)
        return answer

    def close(self) -> None:
        """The client is being closed."""
        close_all(self._idle)
        self._idle.clear()


class AsyncLeanClient(LeanClient):
    """Takes the place of a low-level client of aiobotocore. Its methods are awaited."""

    driver: ClassVar[Driver] = AIOBOTOCORE

    def _new_pool(self, wiring: Wiring, client: Any) -> AsyncPool:
        pool = AsyncPool(wiring, client.meta.config.max_pool_connections)
        when_closed(client, pool.close)
        return pool

    async def _send(self, operation: str, request: dict[str, Any]) -> Any:
        answer = None
        if self._goes_lean(operation, request):
            try:
                route = await self._routes.apresent(operation, request)
                exchange = self._pool.exchange(route.address, self._bytes(route, operation, request))
                answer = self._read(operation, await exchange)
            except Exception as error:
                self._leave(operation, error)
        if answer is None:
            return await getattr(self._client, self.service.methods[operation])(**request)
        return self._returned(operation, answer)
