"""The worker's command as its operators run it: several processes under one, and one whose messages hang. Nothing is faked but SQS."""

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
import os, time
from pathlib import Path
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import sqs_message_id

@sqs_handler(sqs_message_id())
def note(message):
    with Path("done").open("a") as done:
        done.write(f"{os.getpid()} {message.id}\\n")
    time.sleep(0.01)

@sqs_handler(sqs_message_id())
def hang(message):
    time.sleep(3600)
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

    def done(self) -> list[tuple[int, str]]:
        file = self.folder / "done"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(pid), identity) for pid, identity in map(str.split, lines)]

    def until(self, true: Callable[[], object]) -> None:
        limit = time.monotonic() + _PATIENCE
        while not true():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < limit, self.log
            time.sleep(0.05)  # between two looks

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_PATIENCE)


@pytest.mark.parametrize("way", [[], ["--lean"]], ids=["client", "lean"])
def test_what_dies_of_several_processes_is_started_anew_and_a_signal_ends_them_all_in_order(
    sqs: HttpSqs, tmp_path: Path, way: list[str]
) -> None:
    def both_have_worked() -> bool:
        sqs.fill("orders", ["first"] * 20)
        return len({pid for pid, _ in command.done()}) == 2

    def all_is_done() -> bool:
        return sqs.counts("orders")["Left"] == 0

    command = Command(tmp_path, sqs.url("orders"), "note", "--processes", "2", "--visibility-timeout", "2", *way)
    try:
        command.until(both_have_worked)
        first, *_ = {pid for pid, _ in command.done()}
        os.kill(first, signal.SIGKILL)
        command.until(lambda: command.log.count("the worker begins") == 3)
        assert f"Worker process {first} ended with -9; another one starts in 1 s" in command.log
        sqs.fill("orders", ["second"] * 200)
        command.until(all_is_done)
        assert command.end() == 0
    finally:
        command.process.kill()
        command.process.wait()
    assert command.log.count("the worker has stopped") == 2


def test_a_worker_whose_slots_hang_ends_with_an_error_that_says_where_and_its_messages_stay(
    sqs: HttpSqs, tmp_path: Path
) -> None:
    sqs.fill("orders", ["x"] * 4)
    command = Command(tmp_path, sqs.url("orders"), "hang", "--in-flight", "4", "--timeout", "0.5")
    try:
        assert command.process.wait(_PATIENCE) == 1
    finally:
        command.process.kill()
        command.process.wait()
    assert re.search(r"onewrite: \d of 4 slots are lost .*: m-\d+ at handlers.py:\d+ hang;", command.log), command.log
    assert "Traceback" not in command.log
    assert sqs.counts("orders")["Left"] == 4
