"""What shows that a worker is alive: its file, its pages, and its numbers."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

import pytest

from onewrite import ConfigurationError, Deferred, Message
from onewrite.aws_lambda import sqs_handler
from onewrite.sqs.health import HealthPages, Journal, Pulse
from onewrite.testing.servers.process import free_port
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
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


def test_a_page_is_answered_while_the_workers_lock_is_held(sqs: FakeSqs, time: VirtualTime) -> None:
    """As by a function of the user's that it calls, and that blocks. Only the counts are missing then."""
    port, seen = free_port(), list[tuple[int, str]]()

    def ask_both(_: int) -> float:
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


def test_the_file_of_a_worker_that_is_of_no_use_grows_old(tmp_path: Path) -> None:
    time, file = VirtualTime(), tmp_path / "alive"
    pulse = Pulse(time, file)
    pulse.beat(is_of_use=False)
    assert not file.exists()


def test_a_port_that_is_taken_is_refused_with_the_remedy(pages: HealthPages) -> None:
    with pytest.raises(ConfigurationError, match="health_port"):
        HealthPages("127.0.0.1", pages.port, Journal(HANDLER.handler, (), VirtualTime()), lambda: COUNTS, lambda: None)


def test_the_liveness_file_is_touched_now_and_then(tmp_path: Path) -> None:
    time, file = VirtualTime(), tmp_path / "alive"
    pulse = Pulse(time, file)
    pulse.beat()
    os.utime(file, (0, 0))
    pulse.beat()
    assert file.stat().st_mtime == 0
    time.now = 10.0
    pulse.beat()
    assert file.stat().st_mtime > 0


def test_a_liveness_file_that_cannot_be_touched_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Pulse(VirtualTime(), tmp_path / "nowhere" / "alive").beat()
    assert "cannot be touched" in caplog.text


def test_a_worker_serves_its_pages_and_touches_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    sqs = FakeSqs(VirtualTime())
    sqs.send("m")
    file = tmp_path / "alive"
    worker_in(sqs.time, URL, HANDLER, client=sqs, stop_when_empty=True, liveness_file=str(file), health_port=0).run()
    assert file.exists()
    assert "health and metrics at 127.0.0.1:" in caplog.text
    assert "1 NoOutcome" in caplog.text
