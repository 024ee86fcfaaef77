"""One HTTP/1.1 connection, as far as the answers of AWS's JSON services need it: what is not plainly an answer is `Unanswered`."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from botocore.httpsession import create_urllib3_context, get_cert_path
from urllib3.util import wait_for_read

# The stubs of these two know fewer arguments than botocore gives them itself.
_context: Callable[..., ssl.SSLContext] = create_urllib3_context
_bundle: Callable[[Any], Any] = get_cert_path

_MOST = 1 << 16  # bytes of one receive, and of the headers of an answer


class Unanswered(Exception):
    """What came is no answer, or none that can be trusted: nobody knows what became of the request."""


class Unreadable(Unanswered):
    """An answer came in a form that is not read here. If a server or what stands before it uses that form, so will the next answer be."""


class Address(NamedTuple):
    """Where a service listens."""

    host: str
    port: int
    encrypted: bool


class Answer(NamedTuple):
    """One answer. The names of its headers are in lower case. `last`: no other will come on this connection."""

    status: int
    headers: dict[str, str]
    body: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class Wiring:
    """How to connect: the settings of the boto3 client, as botocore's HTTP session understands them."""

    connect_timeout: float | None
    read_timeout: float | None
    socket_options: Sequence[tuple[int, int, int]]
    verify: bool | str  # the path of a CA bundle; True: botocore's own one
    client_certificate: str | tuple[str, str] | None

    def context(self) -> ssl.SSLContext:
        """What botocore asks of TLS. It leaves it to urllib3 to compare the host's name, and here OpenSSL does it."""
        if not self.verify:
            made = _context(cert_reqs=ssl.CERT_NONE)
        else:
            made = _context()
            made.load_verify_locations(_bundle(self.verify))
            made.check_hostname = True
        if self.client_certificate is not None:
            parts = self.client_certificate
            made.load_cert_chain(*((parts,) if isinstance(parts, str) else parts))
        return made


class Connection:
    """A socket, the process that opened it, and where it leads."""

    def __init__(self, sock: socket.socket, address: Address) -> None:
        self._socket = sock
        self.address = address
        self._process = os.getpid()

    def exchange(self, request: bytes) -> Answer:
        self._socket.sendall(request)
        return read_answer(self._socket.recv)

    def is_usable(self, address: Address) -> bool:
        """Does it lead there still? A child process shares its parent's sockets, whose answers are the parent's.

        Between two requests nothing comes, unless the server has ended the connection.
        """
        return self.address == address and self._process == os.getpid() and not wait_for_read(self._socket, 0)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()


def connect(address: Address, wiring: Wiring, context: Callable[[], ssl.SSLContext]) -> Connection:
    sock = socket.create_connection((address.host, address.port), wiring.connect_timeout)
    try:
        for option in wiring.socket_options:
            sock.setsockopt(*option)
        if address.encrypted:
            sock = context().wrap_socket(sock, server_hostname=address.host)
        sock.settimeout(wiring.read_timeout)
    except BaseException:
        sock.close()
        raise
    return Connection(sock, address)


def read_answer(receive: Callable[[int], bytes]) -> Answer:
    """Read one answer from a socket's `recv`."""
    held = b""
    while (end := held.find(b"\r\n\r\n")) < 0:
        if len(held) > _MOST:
            raise Unreadable("the headers of the answer do not end")
        held += _received(receive)
    status, headers = read_head(held[:end].decode("latin-1"))
    held = held[end + 4 :]
    if "transfer-encoding" in headers:
        body, rest = _read_chunks(held, headers["transfer-encoding"], receive)
    else:
        size = _number(headers.get("content-length", ""))
        held = _filled(held, size, receive)
        body, rest = held[:size], held[size:]
    return Answer(status, headers, body, last=bool(rest) or "close" in headers.get("connection", "").lower())


def read_head(text: str) -> tuple[int, dict[str, str]]:
    """The status and the headers."""
    first, *lines = text.split("\r\n")
    version, _, reason = first.partition(" ")
    if version != "HTTP/1.1":
        raise Unreadable(f"{first[:40]!r} begins no answer of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Unreadable(f"{line[:40]!r} is no header")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("content-encoding", "identity") != "identity":
        raise Unreadable("the answer is compressed, and nobody has asked for that")
    return _number(reason[:3]), headers


def _read_chunks(held: bytes, encoding: str, receive: Callable[[int], bytes]) -> tuple[bytes, bytes]:
    """The body of an answer that tells its length piece by piece, as some emulators and proxies do, and what is behind it."""
    if encoding.lower() != "chunked":
        raise Unreadable(f"the answer is encoded as {encoding[:40]!r}")
    body = b""
    while True:
        while (end := held.find(b"\r\n")) < 0:
            held += _received(receive)
        size = _number(held[:end].decode("latin-1"), 16)
        held = _filled(held[end + 2 :], size + 2, receive)
        if held[size : size + 2] != b"\r\n":
            raise Unreadable("a piece of the answer does not end where it says")
        body, held = body + held[:size], held[size + 2 :]
        if not size:
            return body, held


def _filled(held: bytes, size: int, receive: Callable[[int], bytes]) -> bytes:
    parts, have = [held], len(held)
    while have < size:
        parts.append(_received(receive))
        have += len(parts[-1])
    return b"".join(parts)


def _received(receive: Callable[[int], bytes]) -> bytes:
    data = receive(_MOST)
    if not data:
        raise Unanswered("the connection ended before the answer did")
    return data


def _number(text: str, base: int = 10) -> int:
    if not text.isascii() or not text.isalnum():  # int() takes signs, spaces and underscores too
        raise Unreadable(f"{text[:40]!r} is no number")
    try:
        return int(text, base)
    except ValueError:
        raise Unreadable(f"{text[:40]!r} is no number") from None
