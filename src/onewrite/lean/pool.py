"""The connections of one boto3 client that are not in use. The one that was used last is used next, so the others may end."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import cached_property
from ssl import SSLContext
from typing import Any

from onewrite.lean.wire import Address, Connection, Response, Wiring, connect


class Pool:
    """Keeps connections. As with botocore's own pool, more than `most` may be in use at a time, and no more than that are kept.

    It needs no lock: to append to a list is one step, to pop from it is one, and a connection is in one place at a time.
    """

    def __init__(self, wiring: Wiring, client: Any) -> None:
        self._wiring, self._most = wiring, client.meta.config.max_pool_connections
        self._idle: list[Connection] = []
        # Nobody closes a lean client. So what is idle is closed when nobody can use it any more.
        weakref.finalize(self, _close_all, self._idle)

    @cached_property
    def _context(self) -> SSLContext:
        """Made at the first connection, because it takes long to read a CA bundle."""
        return self._wiring.context()

    def exchange(self, address: Address, request: bytes) -> Response:
        """Send a request and receive its answer. A connection on which anything else happens is closed."""
        connection = self._idle_one(address) or connect(address, self._wiring, lambda: self._context)
        try:
            answer = connection.exchange(request)
        except BaseException:
            connection.close()  # its answer may still come, and would be taken for that of the next request
            raise
        if answer.is_last:
            connection.close()
        else:
            self._keep(connection)
        return answer

    def _idle_one(self, address: Address) -> Connection | None:
        while self._idle:
            with suppress(IndexError):  # another thread may have taken the last one
                connection = self._idle.pop()
                if connection.is_usable(address):
                    return connection
                connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        self._idle.append(connection)
        if len(self._idle) > self._most:
            with suppress(IndexError):  # another thread may have taken it
                self._idle.pop(0).close()


def _close_all(idle: list[Connection]) -> None:
    for connection in idle:
        connection.close()
