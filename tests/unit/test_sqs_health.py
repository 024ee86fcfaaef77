"""What shows that a worker is alive: its file, its pages, and its numbers; and one worker over HTTP as a whole."""

from __future__ import annotations

import json
import os
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import boto3
import pytest

from onewrite import ConfigurationError, Message
from onewrite.aws_lambda import sqs_handler
from onewrite.sqs import Worker
from onewrite.sqs.health import Pages, Pulse
from onewrite.sqs.journal import Journal
from onewrite.testing.servers.process import free_port
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.http_sqs import HttpSqs
from tests.support.in_sequence import InOrder, identity, shuffled

HANDLER = sqs_handler(lambda record: Message(record["body"]))(lambda _: None)
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
    pages = Pages("127.0.0.1", 0, journal, lambda: COUNTS, lambda: troubles[0] if troubles else None)
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


def test_a_port_that_is_taken_is_refused_with_the_remedy() -> None:
    time = VirtualTime()
    journal = Journal(HANDLER.handler, (), time)
    pages = Pages("127.0.0.1", 0, journal, lambda: COUNTS, lambda: None)
    try:
        with pytest.raises(ConfigurationError, match="health_port"):
            Pages("127.0.0.1", pages.port, journal, lambda: COUNTS, lambda: None)
    finally:
        pages.close()


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
    times: dict[str, Any] = {"clock": sqs.time, "sleep": sqs.time.sleep, "conditions": sqs.time.condition}
    file = tmp_path / "alive"
    Worker(URL, HANDLER, client=sqs, stop_when_empty=True, liveness_file=str(file), health_port=0, **times).run()
    assert file.exists()
    assert "health and metrics at 127.0.0.1:" in caplog.text
    assert "1 NoOutcome" in caplog.text


def test_the_page_of_a_worker_says_what_it_has_at_hand() -> None:
    sqs, port, seen = FakeSqs(VirtualTime()), free_port(), list[str]()
    sqs.send("m")
    times: dict[str, Any] = {"clock": sqs.time, "sleep": sqs.time.sleep, "conditions": sqs.time.condition}

    @sqs_handler(lambda record: Message(record["messageId"]))
    def look(_: Message) -> None:
        seen.append(ask(port, "/health")[1])

    Worker(URL, look, client=sqs, stop_when_empty=True, health_port=port, **times).run()
    assert json.loads(seen[0])["under_way"] == 1


def test_any_shuffle_of_1000_messages_is_applied_over_http_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = InOrder()
    keys: dict[str, Any] = {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy", "region_name": "eu-west-1"}
    with HttpSqs() as server:
        client: Any = boto3.client("sqs", endpoint_url=server.endpoint, **keys)
        server.fill("orders", shuffled(1))
        url = server.url("orders")
        assert Worker(url, sqs_handler(identity)(handle), client=client, wait=1, stop_when_empty=True).run() is True
        found = server.counts("orders")
        client.close()
    assert set(handle.last.values()) == {100}
    assert found["Left"] == 0
    assert len(found["Gone"]) == 1000
    assert max(found["Gone"]) <= 3
