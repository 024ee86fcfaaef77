"""The idle connections of one boto3 client. The last used one is used next. The others can then time out."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import cached_property
from ssl import SSLContext
from typing import Any

from onewrite.lean.wire import Address, Connection, Response, Wiring, connect


class Pool:
    """Keeps at most as many idle connections as botocore's pool. As in that pool, more can be in use at a time.

    It needs no lock, because appending to a list and popping from it are atomic, and each connection is in one place at a time.
    """

    def __init__(self, wiring: Wiring, client: Any) -> None:
        self._wiring, self._max_idle = wiring, client.meta.config.max_pool_connections
        self._idle: list[Connection] = []
        # Idle connections are closed once the pool is garbage-collected, because a lean client has no close().
        weakref.finalize(self, _close_all, self._idle)

    @cached_property
    def _context(self) -> SSLContext:
        """Created at the first connection, because reading a CA bundle is slow."""
        return self._wiring.make_context()

    def exchange(self, address: Address, request: bytes) -> Response:
        """Send a request and receive its response. If anything else happens, the connection is closed."""
        connection = self._find_idle(address) or connect(address, self._wiring, lambda: self._context)
        try:
            response = connection.exchange(request)
        except BaseException:
            connection.close()  # its response could still arrive, and look like that of the next request
            raise
        if response.is_last:
            connection.close()
        else:
            self._keep(connection)
        return response

    def _find_idle(self, address: Address) -> Connection | None:
        """Return an idle connection to this address, or None. Close unusable ones."""
        while self._idle:
            with suppress(IndexError):  # a different thread might have taken the last one
                connection = self._idle.pop()
                if connection.is_usable(address):
                    return connection
                connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        """Add a connection to the idle ones. If there are too many, close the one that was used longest ago."""
        self._idle.append(connection)
        if len(self._idle) > self._max_idle:
            with suppress(IndexError):  # a different thread might have taken it
                self._idle.pop(0).close()


def _close_all(idle: list[Connection]) -> None:
    for connection in idle:
        connection.close()
