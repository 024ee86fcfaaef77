"""The worker's command as its operators run it: several processes under one, and one whose messages hang. Nothing is faked but SQS."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.http_sqs import HttpSqs

pytestmark = pytest.mark.slow

_PATIENCE = 120.0  # seconds, on a machine that has other things to do
_HANDLERS = """
import asyncio, os, time
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

@sqs_handler(sqs_message_id())
async def leave_a_thread(message):
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    with Path("done").open("a") as done:
        done.write(f"{os.getpid()} {message.id}\\n")
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
    assert re.search(
        r"onewrite: \d of 4 slots are lost .*: record m-\d+, message m-\d+ at handlers.py:\d+ hang;", command.log
    ), command.log
    assert "Traceback" not in command.log
    assert sqs.counts("orders")["Left"] == 4


def test_every_line_of_several_processes_is_of_the_format_that_was_asked_for(sqs: HttpSqs, tmp_path: Path) -> None:
    def both_have_worked() -> bool:
        sqs.fill("orders", ["x"] * 20)
        return len({pid for pid, _ in command.done()}) == 2

    command = Command(tmp_path, sqs.url("orders"), "note", "--processes", "2", "--log-format", "json")
    try:
        command.until(both_have_worked)
        first, *_ = {pid for pid, _ in command.done()}
        os.kill(first, signal.SIGKILL)
        command.until(lambda: command.log.count("the worker begins") == 3)
        assert command.end() == 0
    finally:
        command.process.kill()
        command.process.wait()
    lines = [json.loads(line) for line in command.log.splitlines()]
    [died] = [line for line in lines if line["message"].startswith("Worker process")]
    assert died["onewrite"] == {"process": first, "exit_code": -9, "pause": 1.0}


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_command_that_is_wrong_for_every_process_ends_with_2_and_says_why(
    sqs: HttpSqs, tmp_path: Path, format: str
) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    options = ["--processes", "2", "--health-host", "no.such.host.invalid", "--health-port", str(taken.getsockname()[1])]
    with taken:
        command = Command(tmp_path, sqs.url("orders"), "note", *options, "--log-format", format)
        try:
            assert command.process.wait(_PATIENCE) == 2
        finally:
            command.process.kill()
            command.process.wait()
    assert "The health endpoint cannot listen on no.such.host.invalid" in command.log
    if format == "json":
        assert all(json.loads(line)["level"] for line in command.log.splitlines())


def behind_a_free_port() -> socket.socket:
    """A port that is taken, behind one that is not."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        with suppress(OSError):
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
            return taken
        taken.close()


def test_what_one_process_cannot_begin_for_ends_none_of_the_others_and_is_tried_again(sqs: HttpSqs, tmp_path: Path) -> None:
    """The port of the second one is taken by another program."""
    with behind_a_free_port() as taken:
        port = taken.getsockname()[1]
        sqs.fill("orders", ["x"] * 20)
        command = Command(tmp_path, sqs.url("orders"), "note", "--processes", "2", "--health-port", str(port - 1))
        command.until(lambda: sqs.counts("orders")["Left"] == 0 and "ended with 2; another one starts" in command.log)
    try:
        command.until(lambda: f"127.0.0.1:{port}" in command.log.rpartition("ended with 2")[2])
        command.until(lambda: command.log.count("the worker begins") == 2)
        assert command.end() == 0
    finally:
        command.process.kill()
        command.process.wait()


def test_a_thread_that_a_function_has_left_behind_does_not_keep_the_process_from_ending(
    sqs: HttpSqs, tmp_path: Path
) -> None:
    sqs.fill("orders", ["x"] * 4)
    command = Command(tmp_path, sqs.url("orders"), "leave_a_thread")
    try:
        command.until(lambda: sqs.counts("orders")["Left"] == 0)
        assert command.end() == 0
    finally:
        command.process.kill()
        command.process.wait()
