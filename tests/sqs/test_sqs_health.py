"""The health page of a worker."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from multiprocessing import get_context
from time import sleep

import pytest

from onewrite import ConfigurationError
from onewrite.sqs.health import serve_health_page

PATIENCE = 30.0  # real seconds, on a busy machine
COUNTS = {"waiting": 1, "under_way": 2, "deferred": 3, "done": 4, "lost_slots": 5}


def ask(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_page_shows_health_and_counts() -> None:
    troubles: list[str] = []
    with serve_health_page("127.0.0.1", 0, lambda: COUNTS, lambda: troubles[0] if troubles else None) as port:
        assert ask(port, "/health?probe=1") == (200, json.dumps({"alive": True, **COUNTS}))
        troubles.append("it is at shop.py:3")
        assert ask(port, "/health") == (503, json.dumps({"alive": False, "why": troubles[0], **COUNTS}))
        troubles.clear()
        assert ask(port, "/health")[0] == 200
        assert ask(port, "/")[0] == 404


@pytest.fixture
def port() -> Iterator[int]:
    with serve_health_page("127.0.0.1", 0, lambda: COUNTS, lambda: None) as found:
        yield found


def idle(port: int, sent: bytes = b"") -> socket.socket:
    plug = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    plug.sendall(sent)
    return plug


def read_all(plug: socket.socket) -> bytes:
    with plug, plug.makefile("rb") as response:
        return response.read()


def test_head_request_gets_the_headers_only(port: int) -> None:
    whole, head = (read_all(idle(port, f"{verb} /health HTTP/1.0\r\n\r\n".encode())) for verb in ("GET", "HEAD"))
    assert head.endswith(b"\r\n\r\n")
    assert f"Content-Length: {len(json.dumps({'alive': True, **COUNTS}))}".encode() in head
    assert len(whole) > len(head)


def is_closed(plug: socket.socket) -> bool:
    """Whether the other side has closed it, or does within the test's patience."""
    try:
        return plug.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "sent", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01"], ids=["nothing", "half", "tls"]
)
def test_probe_gets_a_response_despite_idle_connections(port: int, sent: bytes) -> None:
    with ExitStack() as stack:
        plugs = [stack.enter_context(idle(port, sent)) for _ in range(100)]
        assert ask(port, "/health")[0] == 200
        assert all(is_closed(plug) for plug in plugs), "within seconds, each one holds a file descriptor"


def test_disconnected_client_does_not_disturb_others(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(20):
        plug = idle(port, b"GET /health HTTP/1.1\r\n\r\n")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # so closing resets the connection
        plug.close()
    assert ask(port, "/health")[0] == 200
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("ignore:.*fork")
def test_forked_process_does_not_keep_the_port() -> None:
    with serve_health_page("127.0.0.1", 0, lambda: COUNTS, lambda: None) as port:
        child = get_context("fork").Process(target=sleep, args=(PATIENCE,))
        child.start()
    try:
        with pytest.raises(ConnectionRefusedError):
            idle(port)
    finally:
        child.kill()
        child.join()


def test_occupied_port_is_refused_with_the_remedy(port: int) -> None:
    with (
        pytest.raises(ConfigurationError, match="health_port"),
        serve_health_page("127.0.0.1", port, lambda: COUNTS, lambda: None),
    ):
        pass
