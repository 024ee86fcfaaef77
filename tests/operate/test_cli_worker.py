"""`onewrite worker`: what it runs, and what it says to those who call it wrongly."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from onewrite import ConfigurationError
from onewrite.operate import main
from onewrite.operate.report import JsonLines, TextLines
from onewrite.sqs import QueueRefused, Worker, WorkerStuck
from onewrite.sqs.threads import Time
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime, client_error

PATIENCE = 60.0  # real seconds, for a process on a busy machine

SHOP = """
from onewrite import Applied, Message
from onewrite.aws_lambda import kinesis_handler, sqs_handler

shipped = []

def by_body(record):
    return Message(record["body"])

@sqs_handler(by_body)
def ship(message):
    shipped.append(message.id)
    return Applied(message)

@kinesis_handler(by_body)
def stream(message):
    ...

def plain(message):
    ...
"""


@pytest.fixture(autouse=True)
def _shop(folder: Path) -> None:
    (folder / "corner_shop.py").write_text(SHOP)


@pytest.fixture
def made() -> list[dict[str, Any]]:
    """The clients that were made."""
    return []


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch, made: list[dict[str, Any]]) -> FakeSqs:
    fake = FakeSqs(VirtualTime())

    class OnThisClock(Worker):
        _time = Time(fake.time, fake.time.sleep, fake.time.condition)

        def __init__(self, queue_url: Any, handler: Any, **options: Any) -> None:
            super().__init__(queue_url, handler, **{**options, "in_flight": 1})

    monkeypatch.setattr("onewrite.sqs.Worker", OnThisClock)

    def client(service: str, **options: Any) -> FakeSqs:
        made.append({"service": service, **options})
        return fake

    monkeypatch.setattr(boto3, "client", client)
    return fake


def run(*options: str, handler: str = "corner_shop:ship") -> int:
    return main(["worker", "--queue-url", URL, *options, handler])


def shipped() -> list[str]:
    return sys.modules["corner_shop"].shipped


def test_worker_empties_queue_with_handler_from_current_directory(sqs: FakeSqs) -> None:
    sqs.send("a")
    sqs.send("b")
    assert run("--stop-when-empty") == 0
    assert shipped() == ["a", "b"]
    assert sqs.messages == []


def test_options_reach_the_worker(sqs: FakeSqs, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, dict[str, Any]]] = []

    class Spied(Worker):
        def __init__(self, queue_url: Any, handler: Any, **options: Any) -> None:
            given.append((queue_url, options))
            super().__init__(queue_url, handler, **options)

        def run(self) -> bool:
            return True

    monkeypatch.setattr("onewrite.sqs.Worker", Spied)
    run()
    options = ["--region", "eu-north-1", "--endpoint-url", "http://127.0.0.1:1", "--in-flight", "5", "--wait", "0"]
    options += ["--timeout", "7.5", "--health-port", "81", "--health-host", "::1"]
    run(*options, "--visibility-timeout", "60", "--drain-seconds", "2.5", "--stop-when-empty")
    of_the_url = ("eu-west-1", None)
    assert [(each["region_name"], each["endpoint_url"]) for each in made] == [
        of_the_url,
        ("eu-north-1", "http://127.0.0.1:1"),
    ]
    chosen: dict[str, Any] = {"in_flight": 5, "timeout": 7.5, "wait": 0, "visibility_timeout": 60}
    chosen |= {"drain_seconds": 2.5, "stop_when_empty": True}
    chosen |= {"health_port": 81, "health_host": "::1"}
    assert given[1] == (URL, {"client": sqs, "on_outcome": None, **chosen})


def test_environment_sets_missing_options(sqs: FakeSqs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEWRITE_WORKER_QUEUE_URL", URL)
    monkeypatch.setenv("ONEWRITE_WORKER_HANDLER", "corner_shop:ship")
    monkeypatch.setenv("ONEWRITE_WORKER_STOP_WHEN_EMPTY", "true")
    sqs.send("a")
    assert main(["worker"]) == 0
    assert shipped() == ["a"]
    assert {request["QueueUrl"] for request in sqs.requests_of("receive_message")} == {URL}


def test_metrics_go_to_every_requested_target(sqs: FakeSqs, capsys: pytest.CaptureFixture[str]) -> None:
    sqs.send("a")
    assert run("--stop-when-empty", "--metrics", "emf", "--metrics", "opentelemetry") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["FunctionName"] == "ship"


def test_json_log_line_has_the_details() -> None:
    record = logging.makeLogRecord({"msg": "a\nb", "levelname": "WARNING", "name": "onewrite", "created": 0.0, "process": 7})
    record.onewrite = {"failed": 1}
    line = JsonLines().format(record)
    assert "\n" not in line
    expected = {"level": "WARNING", "logger": "onewrite", "message": "a\nb", "onewrite": {"failed": 1}, "process": 7}
    assert json.loads(line) == {"time": "1970-01-01T00:00:00.000+00:00", **expected}


def test_control_characters_cannot_forge_a_log_line() -> None:
    assert TextLines("%(message)s").format(logging.makeLogRecord({"msg": "id \n\x1b[1m\x7f"})) == "id \\x0a\\x1b[1m\\x7f"


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        ("corner_shop", "module:handler"),
        ("./corner_shop.py:ship", "module:handler"),
        ("cornershop:ship", "the module 'cornershop' is neither in"),
        ("corner_shop.handlers:ship", "the module 'corner_shop.handlers' is neither in"),
        ("corner_shop:shap", "no 'shap'"),
        ("corner_shop:plain", "@sqs_handler"),
        ("corner_shop:stream", "Kinesis"),
    ],
)
def test_wrong_handler_returns_2(handler: str, complaint: str, sqs: FakeSqs, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(handler=handler) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert printed.out == ""
    assert sqs.requests == []


def test_unusable_queue_returns_2_with_the_remedy(sqs: FakeSqs, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: str) -> None:
        raise client_error("AWS.SimpleQueueService.NonExistentQueue")

    sqs.before = refuse
    assert run() == 2
    assert f"onewrite: The worker can't use the queue {URL}" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--queue-url", "http://127.0.0.1:1/0/orders"], ["--region", "eu west"]])
def test_invalid_client_settings_return_2(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    urls = [] if "--queue-url" in options else ["--queue-url", URL]
    assert main(["worker", *urls, *options, "corner_shop:ship"]) == 2
    assert "the region, the endpoint" in capsys.readouterr().err


_SWITCH = """
import re, sys, time
from onewrite.operate import worker
worker._SLACK = 0.5
with worker.dead_mans_switch(0.5, every=0.1):
    {act}
print("alive")
"""


def under_the_switch(act: str) -> subprocess.CompletedProcess[str]:
    script = _SWITCH.format(act=act)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_process_without_runnable_threads_ends_with_a_traceback() -> None:
    """The regular expression below takes some minutes, and Python's lock is not free meanwhile."""
    ended = under_the_switch("re.match('(a+)+$', 'a' * 34 + 'b')")
    assert ended.returncode == 1
    assert 'File "<string>", line 6 in <module>' in ended.stderr
    assert ended.stdout == ""


@pytest.mark.slow
def test_process_with_runnable_threads_continues() -> None:
    ended = under_the_switch("time.sleep(2.5)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigurationError("give a port"), 2), (WorkerStuck("all hang"), 1), (QueueRefused("no right"), 1)]
)
def test_worker_error_is_one_json_line(
    error: Exception, code: int, sqs: FakeSqs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[int] = []

    def fail(_: Worker) -> bool:
        raise error

    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(Worker, "run", fail)
    assert {run("--log-format", "json"), *left[:1]} >= {code}
    [line] = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert line.getMessage() == str(error)
