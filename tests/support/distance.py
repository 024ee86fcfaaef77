"""A loopback relay that is as far away as it is told: loopback hides what a round trip costs. It runs in a process of its own."""

from __future__ import annotations

import argparse
import socket
import threading
import time
from contextlib import suppress
from queue import SimpleQueue

from tests.support.child import Child


class Distance(Child):
    """The relay, for a `with` block: what is sent to `port` arrives at the port that it leads to `seconds` later, and so do the answers."""

    def __init__(self, port: int, seconds: float) -> None:
        super().__init__("tests.support.distance", "--to", str(port), "--seconds", str(seconds))


def _serve(port: int, seconds: float) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listener.getsockname()[1], flush=True)
    while True:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", port))
        for source, sink in ((near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            under_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
            threading.Thread(target=_take, args=(source, under_way, seconds), daemon=True).start()
            threading.Thread(target=_give, args=(under_way, sink), daemon=True).start()


def _take(source: socket.socket, under_way: SimpleQueue[tuple[float, bytes]], seconds: float) -> None:
    """Note when each part is due. A second part does not wait for the first, as it would not on a long cable."""
    data = b"begin_effect"
    while data:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        under_way.put((time.monotonic() + seconds, data))


def _give(under_way: SimpleQueue[tuple[float, bytes]], sink: socket.socket) -> None:
    while True:
        due, data = under_way.get()
        time.sleep(max(due - time.monotonic(), 0.0))
        with suppress(OSError):
            sink.sendall(data)
        if not data:  # the other side has ended
            with suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
            return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    _serve(options.to, options.seconds)
