"""The worker's command as its operators run it, where something hangs. Nothing is faked but SQS."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.http_sqs import HttpSqs

pytestmark = pytest.mark.slow

_PATIENCE = 120.0  # seconds, on a machine that has other things to do
_HANDLERS = """
import asyncio, time
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import sqs_message_id

@sqs_handler(sqs_message_id())
def hang(message):
    time.sleep(3600)

@sqs_handler(sqs_message_id())
async def leave_a_thread(message):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
"""


@pytest.fixture
def sqs() -> Iterator[HttpSqs]:
    with HttpSqs() as server:
        yield server


class Command:
    """A process of the command, with its folder and its log."""

    def __init__(self, folder: Path, url: str, handler: str, *options: str) -> None:
        (folder / "handlers.py").write_text(_HANDLERS)
        self.folder, self._log = folder, folder / "log"
        command = [sys.executable, "-m", "onewrite", "worker", "--queue-url", url, "--region", "eu-west-1"]
        command += ["--endpoint-url", url.rpartition("/123")[0], "--wait", "1", *options, f"handlers:{handler}"]
        keys = {"AWS_ACCESS_KEY_ID": "dummy", "AWS_SECRET_ACCESS_KEY": "dummy"}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **keys}, cwd=folder, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until(self, true: Callable[[], object]) -> None:
        limit = time.monotonic() + _PATIENCE
        while not true():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < limit, self.log
            time.sleep(0.05)  # between two looks

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_PATIENCE)


def test_worker_exits_and_names_line_if_slots_hang(sqs: HttpSqs, tmp_path: Path) -> None:
    sqs.fill("orders", ["x"] * 4)
    command = Command(tmp_path, sqs.url("orders"), "hang", "--in-flight", "4", "--timeout", "0.5")
    try:
        assert command.process.wait(_PATIENCE) == 1
    finally:
        command.process.kill()
        command.process.wait()
    assert re.search(
        r"onewrite: \d of 4 slots are lost .*, for example record m-\d+, message m-\d+ at handlers.py:\d+ hang\.",
        command.log,
    ), command.log
    assert "Traceback" not in command.log
    assert sqs.counts("orders")["Left"] == 4


def test_leftover_thread_does_not_block_process_exit(sqs: HttpSqs, tmp_path: Path) -> None:
    sqs.fill("orders", ["x"] * 4)
    command = Command(tmp_path, sqs.url("orders"), "leave_a_thread")
    try:
        command.until(lambda: sqs.counts("orders")["Left"] == 0)
        assert command.end() == 0
    finally:
        command.process.kill()
        command.process.wait()
