"""Proxies before a service that speaks JSON over HTTP: one that makes something else of an answer, and one that keeps what is sent."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection
from typing import Any

from tests.support.proxy import Fault, FaultProxy


class Garbling(FaultProxy):
    """Makes something else of the answers to its next request, after the server has done them; None ends the connection."""

    def __init__(self, host: str, port: int, writes: Collection[str] = ("UpdateItem", "PutItem")) -> None:
        super().__init__(host, port, writes)
        self.garble: Callable[[bytes], bytes | None] | None = None

    def end_connections(self) -> None:
        """As a server does with connections that nobody uses for long."""
        with self._lock:
            for sock in self._open - {self._listener}:
                sock.shutdown(socket.SHUT_RDWR)

    def _hand_back(self, client: Any, fault: Fault, answer: bytes) -> bool:
        if fault is not Fault.PASS or self.garble is None:
            return super()._hand_back(client, fault, answer)
        garble, self.garble = self.garble, None
        garbled_answer = garble(answer)
        if garbled_answer is not None:
            # It says so, because the connection ends here: otherwise the next request might still be sent on it.
            client.sendall(garbled_answer.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        return False


def with_header(line: bytes) -> Callable[[bytes], bytes]:
    return lambda answer: answer.replace(b"\r\n", b"\r\n" + line + b"\r\n", 1)


def _error(kind: str, status: bytes = b"400 Bad Request") -> Callable[[bytes], bytes]:
    body = json.dumps({"__type": f"com.amazon.coral.service#{kind}", "message": "so"}).encode()
    return lambda _: b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


GARBLES: dict[str, Callable[[bytes], bytes | None]] = {
    "nothing": lambda _: None,
    "half the headers": lambda answer: answer[: answer.index(b"\r\n\r\n") - 3],
    "half the body": lambda answer: answer[:-1],
    "another body": lambda answer: answer[:-1] + b"!",
    "a wrong checksum": with_header(b"x-amz-crc32: 1"),
    "compressed": with_header(b"content-encoding: gzip"),
    "an old version": lambda answer: answer.replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "a redirect": lambda _: b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
    "a proxy's error": _error("Whatever", b"502 Bad Gateway"),
    "an expired token": _error("ExpiredTokenException"),
    "a skewed clock": _error("RequestTimeTooSkewed"),
    "throttled": _error("ThrottlingException"),
    "no HTTP": lambda _: b"SSH-2.0-x\r\n\r\n",
}


class Listening(FaultProxy):
    """Keeps what is sent."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.chunks: list[bytes] = []

    def _serve(self, client: Any) -> None:
        recorder: Any = _RecordingSocket(client, self)
        super()._serve(recorder)


class _RecordingSocket:
    """A socket whose received bytes the proxy keeps."""

    def __init__(self, sock: Any, proxy: Any) -> None:
        self._sock, self._proxy = sock, proxy

    def recv(self, most: int) -> bytes:
        data: bytes = self._sock.recv(most)
        self._proxy.chunks.append(data)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def heads(chunks: list[bytes]) -> list[dict[str, str]]:
    """The headers of each request."""
    texts = [request.partition(b"\r\n\r\n")[0].decode() for request in _requests(chunks)]
    return [{k.lower(): v for k, _, v in (line.partition(": ") for line in text.split("\r\n"))} for text in texts]


def bodies(chunks: list[bytes]) -> list[bytes]:
    return [request.partition(b"\r\n\r\n")[2] for request in _requests(chunks)]


def _requests(chunks: list[bytes]) -> list[bytes]:
    return b"".join(chunks).split(b"POST / HTTP/1.1\r\n")[1:]
