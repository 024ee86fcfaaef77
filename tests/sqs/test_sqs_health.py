"""What shows that a worker is alive: its pages and its numbers; and one worker over HTTP as a whole."""

from __future__ import annotations

import errno
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import boto3
import pytest

from onewrite import ConfigurationError, Deferred, Message
from onewrite.aws_lambda import sqs_handler
from onewrite.sqs import Worker, health
from onewrite.sqs.health import HealthPages, Journal
from onewrite.testing.servers.process import free_port
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.http_sqs import HttpSqs
from tests.support.in_sequence import InOrder, identity, shuffle
from tests.support.seams import worker_in

HANDLER = sqs_handler(lambda record: Message(record["body"]))(lambda _: None)
PATIENCE = 30.0  # real seconds, on a busy machine
COUNTS = {"waiting": 1, "under_way": 2, "deferred": 3, "done": 4, "lost_slots": 5}


def ask(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_pages_say_whether_it_is_alive_and_what_it_does() -> None:
    time = VirtualTime()
    journal, troubles = Journal(HANDLER.handler, (), time), list[str]()
    journal.ends.update(Applied=7)
    pages = HealthPages("127.0.0.1", 0, journal, lambda: COUNTS, lambda: troubles[0] if troubles else None)
    try:
        assert ask(pages.port, "/health?probe=1") == (200, json.dumps({"alive": True, **COUNTS}))
        troubles.append("it stands at shop.py:3")
        assert ask(pages.port, "/health") == (503, json.dumps({"alive": False, "why": troubles[0], **COUNTS}))
        troubles.clear()
        assert ask(pages.port, "/health")[0] == 200
        status, text = ask(pages.port, "/metrics")
        assert status == 200
        lines = text.splitlines()
        assert 'onewrite_messages_total{outcome="applied"} 7' in lines
        assert "onewrite_lost_slots 5" in lines
        assert all(line.startswith(("# HELP onewrite_", "# TYPE onewrite_", "onewrite_")) for line in lines)
        assert ask(pages.port, "/")[0] == 404
    finally:
        pages.close()


@pytest.fixture
def pages() -> Iterator[HealthPages]:
    found = HealthPages("127.0.0.1", 0, Journal(HANDLER.handler, (), VirtualTime()), lambda: COUNTS, lambda: None)
    yield found
    found.close()


def idle(port: int, sent: bytes = b"") -> socket.socket:
    plug = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    plug.sendall(sent)
    return plug


def is_closed(plug: socket.socket) -> bool:
    """Whether the other side has closed it, or does within the test's patience."""
    try:
        return plug.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "sent", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01"], ids=["nothing", "half", "tls"]
)
def test_idle_connections_take_no_threads_and_few_descriptors_and_a_probe_is_answered_all_the_same(
    pages: HealthPages, sent: bytes
) -> None:
    threads, descriptors = threading.active_count(), len(list(Path("/dev/fd").iterdir()))
    with ExitStack() as stack:
        plugs = [stack.enter_context(idle(pages.port, sent)) for _ in range(300)]
        assert ask(pages.port, "/health")[0] == 200
        assert threading.active_count() == threads
        assert len(list(Path("/dev/fd").iterdir())) <= descriptors + len(plugs) + 16
        assert all(is_closed(plug) for plug in plugs[:-16])


def test_a_connection_is_closed_after_some_seconds_whatever_it_sends(
    pages: HealthPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_LONGEST_CONNECTION", 0.2)
    with idle(pages.port, b"GET /he") as plug:
        assert is_closed(plug)


@pytest.mark.parametrize("sent", [b"x" * 20_000, b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 3000], ids=["noise", "headers"])
def test_a_request_that_is_too_long_is_not_kept(pages: HealthPages, sent: bytes) -> None:
    with idle(pages.port) as plug:
        with suppress(ConnectionError):  # It may be closed before all is sent.
            plug.sendall(sent)
        assert is_closed(plug)


@pytest.mark.parametrize("method", ["GET", "POST", "BREW"])
def test_each_answer_closes_its_connection_even_if_the_client_wants_to_keep_it(pages: HealthPages, method: str) -> None:
    with (
        idle(pages.port, f"{method} /health HTTP/1.1\r\nConnection: keep-alive\r\n\r\n".encode()) as plug,
        plug.makefile("rb") as answer,
    ):
        text = answer.read()  # to its end
    assert text.startswith(b"HTTP/1.0 200 OK" if method == "GET" else b"HTTP/1.0 404 Not Found")


def test_a_client_that_goes_away_disturbs_nobody(pages: HealthPages) -> None:
    for _ in range(20):
        plug = idle(pages.port, b"GET /metrics HTTP/1.1\r\n\r\n")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # so closing resets the connection
        plug.close()
    assert ask(pages.port, "/metrics")[0] == 200


def test_a_system_without_descriptors_for_a_connection_closes_those_that_are_idle(
    pages: HealthPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, refusals = socket.socket.accept, list[int]()

    def refuse(plug: socket.socket) -> Any:
        if plug.getsockname()[1] == pages.port and len(refusals) < 2:
            refusals.append(0)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(plug)

    with idle(pages.port) as first:
        assert ask(pages.port, "/health")[0] == 200
        monkeypatch.setattr(socket.socket, "accept", refuse)
        assert ask(pages.port, "/health")[0] == 200
        assert is_closed(first)


def test_a_page_is_answered_while_the_workers_lock_is_held(sqs: FakeSqs, time: VirtualTime) -> None:
    """As by a function of the user's that it calls, and that blocks. Only the counts are missing then."""
    port, seen = free_port(), list[tuple[int, str]]()

    def ask_both(_: int) -> float:
        if sqs.requests:  # It is called once when the worker is made.
            seen.extend([ask(port, "/health"), ask(port, "/metrics")])
            stopping.stop()
        return 1.0

    handler = sqs_handler(lambda record: Message(record["messageId"]))(lambda message: Deferred(message, 1))
    sqs.send("m")
    stopping = worker_in(time, URL, handler, client=sqs, health_port=port, backoff=ask_both)
    stopping.run()
    assert seen[0] == (200, json.dumps({"alive": True}))
    assert "onewrite_received_total 1" in seen[1][1]
    assert "onewrite_waiting" not in seen[1][1]


def test_a_port_that_is_taken_is_refused_with_the_remedy() -> None:
    time = VirtualTime()
    journal = Journal(HANDLER.handler, (), time)
    pages = HealthPages("127.0.0.1", 0, journal, lambda: COUNTS, lambda: None)
    try:
        with pytest.raises(ConfigurationError, match="health_port"):
            HealthPages("127.0.0.1", pages.port, journal, lambda: COUNTS, lambda: None)
    finally:
        pages.close()


def test_a_worker_serves_its_pages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    sqs = FakeSqs(VirtualTime())
    sqs.send("m")
    worker_in(sqs.time, URL, HANDLER, client=sqs, stop_when_empty=True, health_port=0).run()
    assert "health and metrics at 127.0.0.1:" in caplog.text
    assert "1 NoOutcome" in caplog.text


def test_the_page_of_a_worker_says_what_it_has_at_hand() -> None:
    sqs, port, seen = FakeSqs(VirtualTime()), free_port(), list[str]()
    sqs.send("m")

    @sqs_handler(lambda record: Message(record["messageId"]))
    def look(_: Message) -> None:
        seen.append(ask(port, "/health")[1])

    worker_in(sqs.time, URL, look, client=sqs, stop_when_empty=True, health_port=port).run()
    assert json.loads(seen[0])["under_way"] == 1


def test_any_shuffle_of_1000_messages_is_applied_over_http_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = InOrder()
    keys: dict[str, Any] = {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy", "region_name": "eu-west-1"}
    with HttpSqs() as server:
        client: Any = boto3.client("sqs", endpoint_url=server.endpoint, **keys)
        server.fill("orders", shuffle(1))
        url = server.url("orders")
        assert Worker(url, sqs_handler(identity)(handle), client=client, wait=1, stop_when_empty=True).run() is True
        found = server.counts("orders")
        client.close()
    assert set(handle.last.values()) == {100}
    assert found["Left"] == 0
    assert len(found["Gone"]) == 1000
    assert max(found["Gone"]) <= 3
