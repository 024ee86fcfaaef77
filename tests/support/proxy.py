"""Loopback proxies that lose requests and answers on purpose: the faults no client can tell apart."""

from __future__ import annotations

import json
import random
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
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
    DELAY = auto()  # the server sees it `lateness` later
    LATE = auto()  # the same, and the client has seen the connection end by then


_HELD_BACK = frozenset({Fault.DELAY, Fault.LATE})
_LOST_ON_THE_WAY_BACK = frozenset({Fault.DROP_ANSWER, Fault.RESET, Fault.ERROR_500_AFTER})
CONNECTION_FAULTS = frozenset({Fault.PASS, Fault.DROP_REQUEST, Fault.DROP_ANSWER, Fault.RESET, Fault.DELAY, Fault.LATE})
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
    Fault.CONFLICT: ("400 Bad Request", "TransactionConflictException", "Transaction is ongoing for the item"),
}


class Proxy:
    """Accepts, keeps the plan and the record; a subclass carries one connection in one thread."""

    writes: frozenset[str]
    faults: ClassVar[frozenset[Fault]] = frozenset(Fault)

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.operations: list[str] = []
        """Every operation that arrived, in order, also those that were not forwarded."""
        self.past_faults: list[Fault] = []
        """The faults that took place, in order, without PASS."""
        self.after_write: Callable[[], object] | None = None
        """Called once, when a faulty write was done and its client does not know yet."""
        self.lateness = 0.1
        """For how many seconds DELAY and LATE hold a request back at most; chance draws less, a plan takes it whole."""
        self._queue: deque[Fault] = deque()
        self._random: random.Random | None = None
        self._chances: dict[Fault, float] = {}
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._held_back = 0
        self._calms = 0
        self._let_go = threading.Condition(self._lock)
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
            self._let_go.notify_all()
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
        """No more faults, planned or random; what is held back goes on at once."""
        with self._let_go:
            self._queue.clear()
            self._random = None
            self._calms += 1
            self._let_go.notify_all()

    def wait_until_none_is_held_back(self, seconds: float = 30.0) -> None:
        """Until no request is held back any more."""
        with self._let_go:
            if not self._let_go.wait_for(lambda: self._held_back == 0, seconds):
                raise TimeoutError(f"{self._held_back} requests are still held back after {seconds:.0f} s")

    @property
    def planned_count(self) -> int:
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
            self.operations.append(operation)
            if operation not in self.writes:
                return Fault.PASS
            fault = Fault.PASS
            if self._queue:
                fault = self._queue.popleft()
            elif self._random is not None:
                weights = [*self._chances.values(), 1 - sum(self._chances.values())]
                fault = self._random.choices([*self._chances, Fault.PASS], weights)[0]
            if fault is not Fault.PASS:
                self.past_faults.append(fault)
            return fault

    @contextmanager
    def _holding_back(self, fault: Fault, client: socket.socket) -> Iterator[None]:
        """Hold a request back if that is its fault, and then do with it what the block says."""
        if fault not in _HELD_BACK:
            yield
            return
        with self._lock:
            self._held_back += 1  # before the client can see anything
            calms = self._calms
            seconds = self.lateness if self._random is None else self._random.uniform(0, self.lateness)
        try:
            if fault is Fault.LATE:
                self._end(client)
            with self._let_go:
                self._let_go.wait_for(lambda: self._closing or self._calms != calms, seconds)
            yield
        finally:
            with self._let_go:
                self._held_back -= 1
                self._let_go.notify_all()

    def _call_after_write(self) -> None:
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
        while (place := self._buffer.find(end)) < 0:
            self._fill()
        return self._take(place + len(end))

    def stale(self) -> bool:
        """Between two messages: did the other side end the connection (or talk out of turn)?"""
        with selectors.DefaultSelector() as selector:
            selector.register(self.sock, selectors.EVENT_READ)
            return bool(self._buffer or selector.select(0))

    def message(self, answer: bool) -> tuple[bytes, dict[str, str]]:
        """One whole message and its headers."""
        head = self._until(b"\r\n\r\n")
        start_line, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if answer and start_line.split()[1] in ("204", "304"):
            return head, headers
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return head + self._chunks(), headers
        if "content-length" in headers:
            return head + self._take(int(headers["content-length"])), headers
        if answer:
            return head + self._remainder(), {**headers, "connection": "close"}
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

    def _remainder(self) -> bytes:
        with suppress(EOFError):
            while True:
                self._fill()
        return self._take(len(self._buffer))


class FaultProxy(Proxy):
    """Before a DynamoDB endpoint (HTTP/1.1, keep-alive)."""

    def __init__(self, host: str, port: int, writes: Collection[str] = ("UpdateItem", "PutItem")) -> None:
        super().__init__(host, port)
        self.writes = frozenset(writes)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self, client: socket.socket) -> None:
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
                with self._holding_back(fault, client):
                    far = self._fresh(far)
                    far.sock.sendall(request)
                    answer, headers = far.message(answer=True)
                if not self._hand_back(client, fault, answer) or headers.get("connection", "").lower() == "close":
                    return
        finally:
            if far is not None:
                self._end(far.sock)

    def _fresh(self, far: _Wire | None) -> _Wire:
        """The connection to the server, or another one if the server has ended it."""
        if far is not None:
            if not far.stale():
                return far
            self._end(far.sock)
        return _Wire(self._connect())

    def _hand_back(self, client: socket.socket, fault: Fault, answer: bytes) -> bool:
        """The answer, unless the fault is that it gets lost. False: the client's connection ends here."""
        if fault in _LOST_ON_THE_WAY_BACK:
            self._call_after_write()
        if fault is Fault.RESET:
            self._end(client, reset=True)
        if fault in (Fault.RESET, Fault.DROP_ANSWER, Fault.LATE):
            return False
        client.sendall(_http_error(fault) if fault is Fault.ERROR_500_AFTER else answer)
        return True


def _http_error(fault: Fault) -> bytes:
    status, kind, message = _HTTP_ERRORS[fault]
    body = json.dumps({"__type": _DYNAMO + kind, "message": message}).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"x-amzn-RequestId: FAULTPROXY\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
