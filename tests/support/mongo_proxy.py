"""A loopback proxy before a mongod, or before each member of a replica set."""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Mapping

from tests.support.proxy import CONNECTION_FAULTS, Fault, Proxy

_OP_MSG = 2013
_MORE_TO_COME = 1 << 1
_DATA_COMMANDS = frozenset(
    {"find", "aggregate", "update", "insert", "findAndModify", "delete", "commitTransaction", "abortTransaction"}
)


class MongoProxy(Proxy):
    """Before a mongod. A client that does not connect directly learns of the members' addresses, and goes there.

    `shown` has what it shall see instead, so it goes to the proxies before them. Only ports may differ.
    """

    writes = frozenset({"update", "insert", "findAndModify"})
    faults = CONNECTION_FAULTS

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._shown_ports: list[tuple[bytes, bytes]] = []

    def show(self, ports: Mapping[int, int]) -> None:
        """From now on answers name the second port of each pair where the server named the first."""
        if any(len(str(real_port)) != len(str(shown_port)) for real_port, shown_port in ports.items()):
            raise ValueError("the ports have a different number of digits, and an answer must keep its length")
        # The end of the text belongs to it: 127.0.0.1:20001 must not be found in 127.0.0.1:200012.
        self._shown_ports = [
            (b"127.0.0.1:%d\0" % real_port, b"127.0.0.1:%d\0" % shown_port) for real_port, shown_port in ports.items()
        ]

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def _serve(self, client: socket.socket) -> None:
        upstream = self._connect()
        faults: dict[int, Fault] = {}
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(client, selectors.EVENT_READ)
                selector.register(upstream, selectors.EVENT_READ)
                while True:
                    ready_sockets = {key.fileobj for key, _ in selector.select()}
                    if upstream in ready_sockets and not self._answer(client, upstream, faults):
                        return
                    if client in ready_sockets and not self._request(client, upstream, faults):
                        return
        finally:
            self._end(upstream)

    def _request(self, client: socket.socket, upstream: socket.socket, faults: dict[int, Fault]) -> bool:
        """Forward one message; False ends the connection."""
        message = _mongo_message(client)
        request_id, _, opcode = struct.unpack_from("<iii", message, 4)
        name = _command_name(message) if opcode == _OP_MSG else ""
        fault = self._record(name) if name in _DATA_COMMANDS else Fault.PASS
        if fault is Fault.DROP_REQUEST:
            return False
        with self._holding_back(fault, client):
            upstream.sendall(message)
            if fault is Fault.LATE:
                _mongo_message(upstream)
                return False
        if fault not in (Fault.PASS, Fault.DELAY):
            if message[16] & _MORE_TO_COME:  # an unacknowledged write: there is no answer to lose
                return False
            faults[request_id] = fault
        return True

    def _answer(self, client: socket.socket, upstream: socket.socket, faults: dict[int, Fault]) -> bool:
        """Hand back one message, if its request did not earn a fault; False ends the connection."""
        message = _mongo_message(upstream)
        for real_port, shown_port in self._shown_ports:
            message = message.replace(real_port, shown_port)
        (request_id,) = struct.unpack_from("<i", message, 8)
        fault = faults.pop(request_id, Fault.PASS)
        if fault is Fault.PASS:
            client.sendall(message)
            return True
        self._call_after_write()
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
