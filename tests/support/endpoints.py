"""Servers that a client waits for in vain."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeAlias

EndpointKind: TypeAlias = Literal["silent", "slow", "refusing", "away"]
Responses: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]

# What a client of AWS needs before it asks.
DUMMY = {"AWS_ACCESS_KEY_ID": "dummy", "AWS_SECRET_ACCESS_KEY": "dummy", "AWS_DEFAULT_REGION": "eu-west-1"}
_LARGEST_READ = 1 << 16  # bytes
_BYTE_PAUSE = 0.05  # seconds, far less than any read timeout


class Endpoint:
    """A server that accepts connections, and sends nothing, sends single bytes without an end, or closes them; or that is away.

    `responses`: what it sends first, by the target of the request, as AWS has it.
    """

    def __init__(self, kind: EndpointKind, responses: Responses | None = None) -> None:
        self.is_asked = threading.Event()  # for something that gets no response
        self._kind = kind
        self._responses = {target: [*bodies] for target, bodies in (responses or {}).items()}
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        if kind == "away":
            self.close()
        else:
            threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client has gone
            while request := _read_request(connection):
                target = re.search(rb"x-amz-target: \S+\.(\w+)", request, re.IGNORECASE)
                bodies = self._responses.get(target[1].decode(), []) if target else []
                if bodies:
                    body = json.dumps(bodies.pop(0)).encode()
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: r\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                    )
                    continue
                self.is_asked.set()
                if self._kind == "refusing":
                    return
                if self._kind == "slow":
                    _send_slowly(connection, is_http=b"HTTP" in request)

    def close(self) -> None:
        self._listener.close()


def _send_slowly(connection: socket.socket, *, is_http: bool) -> None:
    """Send the beginning of a response over HTTP, or of one of 16 MB in MongoDB's protocol, and then one byte after the other."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: " if is_http else b"\0\0\0\1")
    while True:
        connection.sendall(b"x")
        time.sleep(_BYTE_PAUSE)


def _read_request(connection: socket.socket) -> bytes:
    request = connection.recv(_LARGEST_READ)
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    while length and len(body) < int(length[1]):
        body += connection.recv(_LARGEST_READ)
    return request


@contextmanager
def endpoint_of(kind: EndpointKind, responses: Responses | None = None) -> Iterator[Endpoint]:
    made = Endpoint(kind, responses)
    try:
        yield made
    finally:
        made.close()
