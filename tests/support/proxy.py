"""Loopback proxies that lose requests and answers on purpose: the faults no client can tell apart."""

from __future__ import annotations

import json
import random
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import Enum, auto
from types import TracebackType
from typing import ClassVar, Self


class Fault(Enum):
    """What happens to one write request on its way."""

    PASS = auto()
    DROP_REQUEST = auto()  # the server never sees it; the client sees the connection end
    DROP_ANSWER = auto()  # the server did it; the client sees the connection end
    RESET = auto()  # as DROP_ANSWER, with a TCP reset
    ERROR_500_AFTER = auto()  # the server did it; the client is told of an internal error
    THROTTLE = auto()  # the server never sees it; the client is told to slow down
    CONFLICT = auto()  # the server never sees it; the client is told of a transaction in the way


_LOST_ON_THE_WAY_BACK = frozenset({Fault.DROP_ANSWER, Fault.RESET, Fault.ERROR_500_AFTER})
_CONNECTION_FAULTS = frozenset({Fault.PASS, Fault.DROP_REQUEST, Fault.DROP_ANSWER, Fault.RESET})
_DYNAMO = "com.amazonaws.dynamodb.v20120810#"
_HTTP_ERRORS: dict[Fault, tuple[str, str, str]] = {
    Fault.ERROR_500_AFTER: (
        "500 Internal Server Error",
        "InternalServerError",
        "The request processing has failed because of an unknown error, exception or failure.",
    ),
    Fault.THROTTLE: (
        "400 Bad Request",
        "ProvisionedThroughputExceededException",
        "The level of configured provisioned throughput for the table was exceeded.",
    ),
    Fault.CONFLICT: (
        "400 Bad Request",
        "TransactionConflictException",
        "Transaction is ongoing for the item",
    ),
}


class _Proxy:
    """Accepts, keeps the plan and the record; a subclass carries one connection in one thread."""

    writes: frozenset[str]
    faults: ClassVar[frozenset[Fault]] = frozenset(Fault)

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.seen: list[str] = []
        """Every operation that arrived, in order, also those that were not forwarded."""
        self.hit: list[Fault] = []
        """The faults that took place, in order, without PASS."""
        self.after_write: Callable[[], object] | None = None
        """Called once, when a faulty write was done and its client does not know yet."""
        self._queue: deque[Fault] = deque()
        self._random: random.Random | None = None
        self._chances: dict[Fault, float] = {}
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._spawn(self._accept, self._listener)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if error is None and self._errors:
            raise self._errors[0]

    def close(self) -> None:
        """End every connection and wait for the threads."""
        with self._lock:
            self._closing = True
            for sock in self._open:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # close() would not wake the thread that reads
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(10)
        if self._listener is not None:
            self._listener.close()

    def plan(self, *faults: Fault) -> None:
        """Queue faults: each next write takes one; once the queue is empty all pass (or chance decides)."""
        self._check(faults)
        with self._lock:
            self._queue.extend(faults)

    def chance(self, source: random.Random, chances: Mapping[Fault, float]) -> None:
        """From now on each write without a planned fault draws one; what is left to 1 is PASS."""
        self._check(chances)
        if sum(chances.values()) > 1:
            raise ValueError("the probabilities add up to more than 1")
        with self._lock:
            self._random, self._chances = source, dict(chances)

    def calm(self) -> None:
        """No more faults, planned or random."""
        with self._lock:
            self._queue.clear()
            self._random = None

    @property
    def planned(self) -> int:
        """How many planned faults no write has taken yet."""
        with self._lock:
            return len(self._queue)

    def _check(self, faults: Collection[Fault]) -> None:
        if unknown := set(faults) - self.faults:
            names = sorted(fault.name for fault in unknown)
            raise ValueError(f"{type(self).__name__} cannot do {', '.join(names)}")

    def _record(self, operation: str) -> Fault:
        """Note the operation and say what becomes of it."""
        with self._lock:
            self.seen.append(operation)
            if operation not in self.writes:
                return Fault.PASS
            fault = Fault.PASS
            if self._queue:
                fault = self._queue.popleft()
            elif self._random is not None:
                weights = [*self._chances.values(), 1 - sum(self._chances.values())]
                fault = self._random.choices([*self._chances, Fault.PASS], weights)[0]
            if fault is not Fault.PASS:
                self.hit.append(fault)
            return fault

    def _written(self) -> None:
        """Outside the lock: the callback may well write through this proxy."""
        with self._lock:
            callback, self.after_write = self.after_write, None
        if callback is not None:
            try:
                callback()
            except BaseException as error:  # it has no other way out of this thread than __exit__
                self._errors.append(error)

    def _spawn(self, run: Callable[[socket.socket], None], sock: socket.socket) -> None:
        thread = threading.Thread(target=run, args=(sock,), daemon=True, name=type(self).__name__)
        with self._lock:
            if self._closing:
                sock.close()
                return
            self._open.add(sock)
            self._threads = [*(old for old in self._threads if old.is_alive()), thread]
            thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError as error:
                if not self._closing:
                    self._errors.append(error)
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._spawn(self._connection, client)

    def _connection(self, client: socket.socket) -> None:
        try:
            with suppress(OSError, EOFError):  # either side is free to leave
                self._serve(client)
        except BaseException as error:  # a defect of the proxy must not look like a network fault
            self._errors.append(error)
        finally:
            self._end(client)

    def _serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _connect(self) -> socket.socket:
        upstream = socket.create_connection(self.target, timeout=10)
        upstream.settimeout(None)
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(upstream)
            if self._closing:
                upstream.shutdown(socket.SHUT_RDWR)
        return upstream

    def _end(self, sock: socket.socket, reset: bool = False) -> None:
        with self._lock:
            self._open.discard(sock)
        with suppress(OSError):
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()


# ---------------------------------------------------------------- HTTP


class _Wire:
    """Reads one side of an HTTP/1.1 connection by its framing and keeps the bytes as they came."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = bytearray()

    def _fill(self) -> None:
        data = self.sock.recv(1 << 16)
        if not data:
            raise EOFError
        self._buffer += data

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _until(self, end: bytes) -> bytes:
        while (found := self._buffer.find(end)) < 0:
            self._fill()
        return self._take(found + len(end))

    def stale(self) -> bool:
        """Between two messages: did the other side end the connection (or talk out of turn)?"""
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            return bool(self._buffer or selector.select(0))

    def message(self, answer: bool) -> tuple[bytes, dict[str, str]]:
        """One whole message and its headers."""
        head = self._until(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if answer and first.split()[1] in ("204", "304"):
            return head, headers
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return head + self._chunks(), headers
        if "content-length" in headers:
            return head + self._take(int(headers["content-length"])), headers
        if answer:
            return head + self._rest(), {**headers, "connection": "close"}
        return head, headers

    def _chunks(self) -> bytes:
        parts = []
        while True:
            line = self._until(b"\r\n")
            parts.append(line)
            if size := int(line.split(b";")[0], 16):
                parts.append(self._take(size + 2))
                continue
            while parts[-1] != b"\r\n":  # trailers, then an empty line
                parts.append(self._until(b"\r\n"))
            return b"".join(parts)

    def _rest(self) -> bytes:
        with suppress(EOFError):
            while True:
                self._fill()
        return self._take(len(self._buffer))


class FaultProxy(_Proxy):
    """Before a DynamoDB endpoint (HTTP/1.1, keep-alive)."""

    def __init__(self, host: str, port: int, writes: Collection[str] = ("UpdateItem", "PutItem")) -> None:
        super().__init__(host, port)
        self.writes = frozenset(writes)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self, client: socket.socket) -> None:  # noqa: C901  # a decision for each fault, in the order they strike
        near = _Wire(client)
        far: _Wire | None = None
        try:
            while True:
                request, headers = near.message(answer=False)
                fault = self._record(headers.get("x-amz-target", "").rpartition(".")[2])
                if fault is Fault.DROP_REQUEST:
                    return
                if fault in (Fault.THROTTLE, Fault.CONFLICT):
                    client.sendall(_http_error(fault))
                    continue
                if far is None or far.stale():
                    if far is not None:
                        self._end(far.sock)
                    far = _Wire(self._connect())
                far.sock.sendall(request)
                answer, headers = far.message(answer=True)
                if fault in _LOST_ON_THE_WAY_BACK:
                    self._written()
                if fault is Fault.DROP_ANSWER:
                    return
                if fault is Fault.RESET:
                    self._end(client, reset=True)
                    return
                client.sendall(_http_error(fault) if fault is Fault.ERROR_500_AFTER else answer)
                if headers.get("connection", "").lower() == "close":
                    return
        finally:
            if far is not None:
                self._end(far.sock)


def _http_error(fault: Fault) -> bytes:
    status, kind, message = _HTTP_ERRORS[fault]
    body = json.dumps({"__type": _DYNAMO + kind, "message": message}).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"x-amzn-RequestId: FAULTPROXY\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


# ---------------------------------------------------------------- MongoDB

_OP_MSG = 2013
_MORE_TO_COME = 1 << 1
_DATA_COMMANDS = frozenset(
    {
        "find",
        "aggregate",
        "update",
        "insert",
        "findAndModify",
        "delete",
        "commitTransaction",
        "abortTransaction",
    }
)


class MongoProxy(_Proxy):
    """Before a mongod; the client must connect directly, or it would learn of the real port and go there."""

    writes = frozenset({"update", "insert", "findAndModify"})
    faults = _CONNECTION_FAULTS

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def _serve(self, client: socket.socket) -> None:
        upstream = self._connect()
        awaited: dict[int, Fault] = {}
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(client, selectors.EVENT_READ)
                selector.register(upstream, selectors.EVENT_READ)
                while True:
                    ready = {key.fileobj for key, _ in selector.select()}
                    if upstream in ready and not self._answer(client, upstream, awaited):
                        return
                    if client in ready and not self._request(client, upstream, awaited):
                        return
        finally:
            self._end(upstream)

    def _request(self, client: socket.socket, upstream: socket.socket, awaited: dict[int, Fault]) -> bool:
        """Forward one message; False ends the connection."""
        message = _mongo_message(client)
        request_id, _, opcode = struct.unpack_from("<iii", message, 4)
        name = _command_name(message) if opcode == _OP_MSG else ""
        fault = self._record(name) if name in _DATA_COMMANDS else Fault.PASS
        if fault is Fault.DROP_REQUEST:
            return False
        upstream.sendall(message)
        if fault is not Fault.PASS:
            if message[16] & _MORE_TO_COME:  # an unacknowledged write: there is no answer to lose
                return False
            awaited[request_id] = fault
        return True

    def _answer(self, client: socket.socket, upstream: socket.socket, awaited: dict[int, Fault]) -> bool:
        """Hand back one message, if its request did not earn a fault; False ends the connection."""
        message = _mongo_message(upstream)
        (answered,) = struct.unpack_from("<i", message, 8)
        fault = awaited.pop(answered, Fault.PASS)
        if fault is Fault.PASS:
            client.sendall(message)
            return True
        self._written()
        if fault is Fault.RESET:
            self._end(client, reset=True)
        return False


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _mongo_message(sock: socket.socket) -> bytes:
    head = _exactly(sock, 4)
    return head + _exactly(sock, struct.unpack("<i", head)[0] - 4)


def _command_name(message: bytes) -> str:
    """The first key of the body (kind 0) section of an OP_MSG."""
    at = 20
    while message[at] == 1:  # a document sequence: its size counts itself
        at += 1 + int(struct.unpack_from("<i", message, at + 1)[0])
    name = at + 6  # kind, document length, type of the first element
    return message[name : message.index(0, name)].decode()
