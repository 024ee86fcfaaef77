"""One HTTP/1.1 connection, for AWS's JSON services only. It raises `UnclearResponse` unless a trustworthy response arrives."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from botocore.httpsession import create_urllib3_context, get_cert_path
from urllib3.util import wait_for_read

# The stubs of these two have fewer arguments than botocore passes.
_make_context: Callable[..., ssl.SSLContext] = create_urllib3_context
_find_bundle: Callable[[Any], Any] = get_cert_path

_MAX_BYTES = 1 << 16  # bytes of one receive, and of a response's headers
_END_OF_HEAD = b"\r\n\r\n"


class UnclearResponse(Exception):
    """Raised if no trustworthy response arrived, so the effect of the request is unknown."""


class UnreadableResponse(UnclearResponse):
    """Raised for a response in an unsupported form. If a server or proxy uses this form, its next response will have it too."""


class Address(NamedTuple):
    """The address of a service."""

    host: str
    port: int
    is_encrypted: bool


class Response(NamedTuple):
    """One response. Its header names are in lower case. `is_last`: no other response will arrive on this connection."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Wiring:
    """The client's settings for connections, as botocore's HTTP session interprets them."""

    connect_timeout: float | None
    read_timeout: float | None
    socket_options: Sequence[tuple[int, int, int]]
    verify: bool | str  # the path of a CA bundle, or True for botocore's own
    client_certificate: str | tuple[str, str] | None

    def make_context(self) -> ssl.SSLContext:
        """Return the context that botocore would use. Here, OpenSSL compares the host's name instead of urllib3."""
        if not self.verify:
            ssl_context = _make_context(cert_reqs=ssl.CERT_NONE)
        else:
            ssl_context = _make_context()
            ssl_context.load_verify_locations(_find_bundle(self.verify))
            ssl_context.check_hostname = True
        if self.client_certificate is not None:
            parts = self.client_certificate
            ssl_context.load_cert_chain(*((parts,) if isinstance(parts, str) else parts))
        return ssl_context


class Connection:
    """A socket, the process that opened it, and its address."""

    def __init__(self, sock: socket.socket, address: Address) -> None:
        self._socket = sock
        self.address = address
        self._process = os.getpid()

    def exchange(self, request: bytes) -> Response:
        """Send a request, and return its response."""
        self._socket.sendall(request)
        return read_response(self._socket.recv)

    def is_usable(self, address: Address) -> bool:
        """Whether the connection can be used for this address.

        A child process shares its parent's sockets, but their responses are the parent's. Between two requests nothing arrives, unless
        the server has closed the connection.
        """
        return self.address == address and self._process == os.getpid() and not wait_for_read(self._socket, 0)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()


def connect(address: Address, wiring: Wiring, read_context: Callable[[], ssl.SSLContext]) -> Connection:
    """Return a new connection to this address. `read_context` returns the TLS context, and is called only for an encrypted address."""
    # The TLS handshake has this timeout too.
    sock = socket.create_connection((address.host, address.port), wiring.connect_timeout)
    try:
        for option in wiring.socket_options:
            sock.setsockopt(*option)
        if address.is_encrypted:
            sock = read_context().wrap_socket(sock, server_hostname=address.host)
        sock.settimeout(wiring.read_timeout)
    except BaseException:
        sock.close()
        raise
    return Connection(sock, address)


Receive: TypeAlias = Callable[[int], bytes]
"""A socket's `recv`. No bytes mean that the connection has ended."""


def read_response(receive: Receive) -> Response:
    """Return the next response of the connection. Raise `UnclearResponse` if it ends early, `UnreadableResponse` for any unsupported form."""
    received = b""
    while (end := received.find(_END_OF_HEAD)) < 0:
        if len(received) > _MAX_BYTES:
            raise UnreadableResponse("the headers of the response don't end")
        received += _receive_more(receive)
    status, headers = _read_head(received[:end].decode("latin-1"))
    size = _parse_number(headers.get("content-length", ""))
    received = _receive_body(receive, received[end + len(_END_OF_HEAD) :], size)
    body, surplus = received[:size], received[size:]
    # After surplus bytes, no one knows where the next response would begin.
    return Response(status, headers, body, is_last=bool(surplus) or "close" in headers.get("connection", "").lower())


def _read_head(text: str) -> tuple[int, dict[str, str]]:
    """Return the status and the headers, joined by a comma if a name occurs twice."""
    status_line, *lines = text.split("\r\n")
    version, _, status_and_reason = status_line.partition(" ")
    if version != "HTTP/1.1":
        raise UnreadableResponse(f"{status_line[:40]!r} doesn't begin an HTTP/1.1 response")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise UnreadableResponse(f"{line[:40]!r} isn't a header")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    for name in ("content-encoding", "transfer-encoding"):
        if headers.get(name, "identity") != "identity":
            raise UnreadableResponse(f"the response has the {name} {headers[name][:40]!r}, which the request doesn't allow")
    return _parse_number(status_and_reason.partition(" ")[0]), headers


def _receive_body(receive: Receive, beginning: bytes, size: int) -> bytes:
    """Return at least `size` bytes of the body, of which the beginning was received together with the head."""
    parts, length = [beginning], len(beginning)
    while length < size:
        parts.append(_receive_more(receive))
        length += len(parts[-1])
    return b"".join(parts)


def _receive_more(receive: Receive) -> bytes:
    """Return the next bytes of the response, at least one."""
    received = receive(_MAX_BYTES)
    if not received:
        raise UnclearResponse("the connection ended before the response did")
    return received


def _parse_number(text: str) -> int:
    """Return a number that consists of digits only."""
    if not text.isascii() or not text.isdigit():  # int() accepts signs, spaces, and underscores too
        raise UnreadableResponse(f"{text[:40]!r} isn't a number")
    return int(text)
