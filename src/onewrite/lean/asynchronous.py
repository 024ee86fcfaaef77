"""Lean requests for asyncio: connections of an event loop, the pool that limits and keeps them, and a client in the place of aiobotocore's.

A pool belongs to the loop that uses it first, as aiobotocore's own does, and is closed with the client. In another loop, and after
that, all requests go by the client, which says what there is to say.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from ssl import SSLContext
from typing import Any, ClassVar, cast

from aiobotocore.client import AioBaseClient
from aiobotocore.endpoint import AioEndpoint
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.signers import AioRequestSigner
from botocore.endpoint import Endpoint

from onewrite.lean.client import LeanClient
from onewrite.lean.insides import Driver, connector_arguments_of, session_of, when_closed
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
_KEEPALIVE = 12.0  # seconds that a connection may be idle, as aiobotocore has it
_NEXT_ADDRESS_AFTER = 0.25  # seconds in which the first address of a host has to answer, as aiohttp has it


class AsyncConnection(asyncio.Protocol):
    """One HTTP/1.1 connection. The loop calls `connection_made`, `data_received`, `eof_received` and `connection_lost`."""

    def __init__(self, address: Address, read_timeout: float | None) -> None:
        self.address = address
        self._read_timeout = read_timeout
        self._loop = asyncio.get_running_loop()
        self._data = b""  # received and not read yet
        self._is_asked = False  # a request was sent, and its answer is not read yet
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None
        self._idle_since = 0.0
        self.ended = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_asked:  # nobody knows what this answers
            self.close()
        self._data += data
        self._wake()

    def eof_received(self) -> None:
        self._is_over = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # why it ended does not matter
        self._is_over = True
        self._wake()
        if not self.ended.done():
            self.ended.set_result(None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and receive its answer."""
        self._is_asked = True
        self._transport.write(request)
        reading = reading_of_answer()
        next(reading)
        try:
            while True:
                reading.send(await self._received())
        except StopIteration as stop:
            self._is_asked, self._idle_since = False, self._loop.time()
            return cast("Answer", stop.value)

    async def _received(self) -> bytes:
        """What has come since this was asked last. Nothing: the connection has ended."""
        if not self._data and not self._is_over:
            self._waiter = self._loop.create_future()
            try:
                async with asyncio.timeout(self._read_timeout):
                    await self._waiter
            finally:
                self._waiter = None
        data, self._data = self._data, b""
        return data

    def is_usable(self, address: Address, keepalive: float | None) -> bool:
        """Does it lead there still? What nobody has used for long may have ended without a word. `keepalive` is None if it may be kept for ever."""
        is_fresh = keepalive is None or self._loop.time() < self._idle_since + keepalive
        return is_fresh and self.address == address and not self._data and not self._is_over

    def close(self) -> None:
        self._is_over = True
        self._transport.abort()


class AsyncPool:
    """The connections of one aiobotocore client: not more at a time than it allows itself, and the others wait."""

    def __init__(self, wiring: Wiring, client: Any) -> None:
        self._wiring = wiring
        self._loop: asyncio.AbstractEventLoop | None = None  # until the first request
        self._process = os.getpid()
        self._keepalive = connector_arguments_of(session_of(client)).get("keepalive_timeout", _KEEPALIVE)
        self._turns = asyncio.Semaphore(client.meta.config.max_pool_connections)
        self._connections: set[AsyncConnection] = set()
        self._idle: list[AsyncConnection] = []  # of these; the one that was used last is used next, so the others may end
        self._context: SSLContext | None = None
        self._making = asyncio.Lock()
        self._is_closed = False
        when_closed(client, self.close)

    def may_serve(self) -> bool:
        """Is it open, and is this its loop? A child process must not use its parent's connections either."""
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        return not self._is_closed and self._process == os.getpid() and self._loop is loop

    async def exchange(self, address: Address, request: bytes) -> Answer:
        """Send a request and receive its answer. A connection on which anything else happens is closed, also if the task is cancelled."""
        async with self._turns:
            connection = self._idle_one(address) or await self._connect(address)
            try:
                answer = await connection.exchange(request)
            except BaseException:
                self._close(connection)  # its answer may still come, and would be taken for that of the next request
                raise
            if answer.is_last or self._is_closed:
                self._close(connection)
            else:
                self._idle.append(connection)
            return answer

    def _idle_one(self, address: Address) -> AsyncConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(address, self._keepalive):
                return connection
            self._close(connection)
        return None

    async def _connect(self, address: Address) -> AsyncConnection:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}
        if isinstance(loop, asyncio.BaseEventLoop):  # uvloop's tries one address after the other
            options["happy_eyeballs_delay"] = _NEXT_ADDRESS_AFTER
        if address.is_encrypted:
            options |= {"ssl": await self._tls_context(), "server_hostname": address.host}
        async with asyncio.timeout(self._wiring.connect_timeout):
            _, connection = await loop.create_connection(
                lambda: AsyncConnection(address, self._wiring.read_timeout), address.host, address.port, **options
            )
        self._connections.add(connection)
        return connection

    async def _tls_context(self) -> SSLContext:
        """Made once, and in a thread: to read a CA bundle takes long enough to hold up the loop."""
        async with self._making:
            if self._context is None:
                self._context = await asyncio.to_thread(self._wiring.context)
            return self._context

    def _close(self, connection: AsyncConnection) -> None:
        self._connections.discard(connection)
        connection.close()

    async def close(self) -> None:
        """With the client. What is under way fails, and is then the client's to refuse. In another loop nothing can be waited for."""
        self._is_closed = True
        connections, self._connections = self._connections, set()
        self._idle.clear()
        if self._loop is None or self._loop is asyncio.get_running_loop():
            for connection in connections:
                connection.close()
            await asyncio.gather(*[connection.ended for connection in connections])
        else:
            for connection in connections:
                with suppress(RuntimeError):  # that loop is closed
                    self._loop.call_soon_threadsafe(connection.close)


class AsyncLeanClient(LeanClient):
    """Takes the place of a low-level client of aiobotocore. Its methods are awaited."""

    driver: ClassVar[Driver] = AIOBOTOCORE
    pool: ClassVar[type[Any]] = AsyncPool

    async def _send(self, operation: str, request: dict[str, Any]) -> Any:
        answer = None
        if self._pool.may_serve() and self._goes_lean(operation, request):
            try:
                route = await self._routes.present_of_asynchronous(operation, request)
                exchange = self._pool.exchange(route.address, self._bytes(route, operation, request))
                answer = self._read(operation, await exchange)
            except Exception as error:
                self._leave(operation, error)
        if answer is None:
            return await getattr(self._client, self.service.methods[operation])(**request)
        return self._returned(operation, answer)
