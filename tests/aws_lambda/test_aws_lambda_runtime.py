"""Handlers under AWS's own runtime client, which polls a stand-in of Lambda's runtime API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import onewrite
from tests.support.batches import fifo, identifiers, sqs
from tests.support.lambda_functions import LONG_MARGIN

pytest.importorskip("awslambdaric", reason="AWS makes its runtime client for Linux only")

TIMEOUT = 60  # seconds until a test that hangs fails
ROOT = Path(__file__).parents[2]


class RuntimeApi(ThreadingHTTPServer):
    """Hands out invocations, and takes their answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.invocations: Queue[tuple[Any, float]] = Queue()
        self.answers: Queue[tuple[str, Any]] = Queue()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The client was ended while it waited for the next invocation."""


class _Requests(BaseHTTPRequestHandler):
    server: RuntimeApi  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        event, seconds = self.server.invocations.get()
        now = time.time()
        body = json.dumps(event(now) if callable(event) else event).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Lambda-Runtime-Aws-Request-Id", "request-1")
        self.send_header("Lambda-Runtime-Deadline-Ms", str(int((now + seconds) * 1000)))
        self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-west-1:123456789012:function:ship")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.answers.put((self.path.rsplit("/", 1)[1], body))

    def log_message(self, *_: Any) -> None: ...  # pyright: ignore[reportIncompatibleMethodOverride]


class Function:
    """A deployed function."""

    def __init__(self, api: RuntimeApi, log: Path) -> None:
        self._api = api
        self._log = log

    def __call__(self, event: Any, *, seconds: float = 900.0) -> Any:
        """`event` may be a function of the time at which the invocation begins."""
        self._api.invocations.put((event, seconds))
        kind, body = self._api.answers.get(timeout=TIMEOUT)
        assert kind == "response", body
        return body

    def lines(self) -> list[dict[str, Any]]:
        """What onewrite logged."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("logger") == "onewrite"]


@pytest.fixture
def deploy(tmp_path: Path) -> Callable[[str], Any]:
    @contextmanager
    def deployed(name: str) -> Iterator[Function]:
        api, log = RuntimeApi(), tmp_path / "log"
        threading.Thread(target=api.serve_forever, daemon=True).start()
        environment = {
            **os.environ,
            "AWS_LAMBDA_RUNTIME_API": api.address,
            "AWS_LAMBDA_LOG_FORMAT": "JSON",
            "AWS_LAMBDA_LOG_LEVEL": "INFO",
            "PYTHONPATH": os.pathsep.join([str(Path(onewrite.__path__[0]).parent), str(ROOT)]),
        }
        command = [sys.executable, "-m", "awslambdaric", f"tests.support.lambda_functions.{name}"]
        with (
            log.open("w") as output,
            subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT) as process,
        ):
            try:
                yield Function(api, log)
            finally:
                process.terminate()
                process.wait(TIMEOUT)
                api.shutdown()
                api.server_close()

    return deployed


@pytest.mark.parametrize("name", ["ship", "ship_in_threads", "ship_in_tasks"])
def test_response_names_the_failed_records(deploy: Callable[[str], Any], name: str) -> None:
    with deploy(name) as function:
        assert identifiers(function(sqs(["a", "b!", "c"]))) == ["id-b!"]
        assert identifiers(function(fifo("a1!", "b1", "a2", "b2"))) == ["id-a1!", "id-a2"]
        assert function(sqs(["a", "b"])) == {"batchItemFailures": []}


@pytest.mark.slow
@pytest.mark.measured
def test_records_without_time_before_the_deadline_are_returned(deploy: Callable[[str], Any]) -> None:
    spare = 5.0  # seconds that a busy machine has to begin the first record in

    def event(now: float) -> Any:
        """The first record lasts until less than the margin is left."""
        return sqs([f"a@{now + spare + 0.1}", "b", "c"])

    with deploy("ship_with_care") as function:
        assert identifiers(function(event, seconds=LONG_MARGIN + spare)) == ["id-b", "id-c"]
        assert identifiers(function(sqs(["a", "b"]), seconds=LONG_MARGIN - 1)) == ["id-a", "id-b"]
        assert identifiers(function(sqs(["a", "b"]))) == []


def test_json_log_of_lambda_has_line_and_details(deploy: Callable[[str], Any]) -> None:
    with deploy("ship") as function:
        function(sqs(["a", "b!"]))
        function(sqs(["a"]))
    failed, done = function.lines()
    assert (failed["level"], failed["message"].partition(" at ")[0], failed["requestId"]) == (
        "WARNING",
        "ship: 2 records, 1 applied, 1 failed; record id-b!, message b!, attempt 1: ValueError",
        "request-1",
    )
    assert failed["onewrite"]["failures"][0]["record"] == "id-b!"
    assert (done["level"], done["onewrite"]["outcomes"]["applied"]) == ("INFO", 1)
