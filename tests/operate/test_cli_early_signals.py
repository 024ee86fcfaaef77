"""`onewrite worker` takes SIGTERM and SIGINT while it starts and while it ends, not only while its worker runs."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import onewrite
from onewrite.operate import main
from onewrite.operate.early import EarlySignals
from tests.support.endpoints import DUMMY

SOURCE = Path(onewrite.__path__[0]).parent
SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE = 120.0  # seconds for one process on a busy machine
NOBODY = "http://127.0.0.1:1"  # a worker that asked its queue would end with exit code 2
USERS_MODULE = "open .*/corner_shop.py"  # what importlib.import_module imports is no event, but reading the file is one

SHOP = """
from onewrite import Message
from onewrite.aws_lambda import sqs_handler

@sqs_handler(lambda record: Message(record["body"]))
def ship(message):
    ...
"""
# Python runs this before everything else. The process sends itself the signals that the environment asks for, so each
# arrives at exactly the moment that a test names, however slow the machine is.
SIGNALLING = """
import os
import re
import signal
import sys

def send(signals=os.environ["SIGNALS"].split(), send=signal.raise_signal):
    for number in signals:
        send(int(number))

def watch(event, arguments, sent=[]):
    if not sent and re.fullmatch(os.environ["MOMENT"], f"{event} {arguments[0] if arguments else None}"):
        sent.append(event)
        send()

class AtTheLatest:
    def __del__(self, send=send):
        send()

if os.environ["MOMENT"] == "the interpreter's last moment":
    signalling = AtTheLatest()
else:
    sys.addaudithook(watch)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corner_shop.py").write_text(SHOP)
    (tmp_path / "sitecustomize.py").write_text(SIGNALLING)
    return tmp_path


def run(
    folder: Path,
    moment: str,
    *signals: signal.Signals,
    verb: Sequence[str] = ("worker", "--queue-url", f"{NOBODY}/1/orders", "--endpoint-url", NOBODY, "corner_shop:ship"),
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """A process of the command that receives the signals at a moment: an audit event of Python's and its first argument."""
    environment = {
        **os.environ,
        **DUMMY,
        "AWS_MAX_ATTEMPTS": "1",
        "MOMENT": moment,
        "PYTHONPATH": f"{folder}{os.pathsep}{SOURCE}",
        "SIGNALS": " ".join(str(int(number)) for number in signals),
    }
    command = [*before, sys.executable, "-m", "onewrite", *verb]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def assert_stopped_in_order(process: subprocess.CompletedProcess[str], what: str = "worker") -> None:
    assert f"the {what} has stopped" in process.stderr
    assert process.returncode == 0


# ---------------------------------------------------------------- real processes


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("import onewrite.operate.app", signal.SIGTERM),  # the first import after the handlers
        ("import onewrite.operate.worker", signal.SIGINT),
        (USERS_MODULE, signal.SIGTERM),  # the arguments have been parsed
        ("import boto3", signal.SIGTERM),
        ("import botocore.session", signal.SIGINT),
        ("open .*/sqs/.*/service-2.json.*", signal.SIGTERM),  # the client is being made
    ],
)
@pytest.mark.few(1)
def test_worker_stops_cleanly_if_signaled_during_start(folder: Path, moment: str, number: signal.Signals) -> None:
    assert_stopped_in_order(run(folder, moment, number))


RELAY = """
from onewrite import Outbox, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from pymongo import MongoClient

orders = MongoClient("mongodb://127.0.0.1:1", connect=False).shop.orders  # a relay that asked it would not end
relay = Relay(GuardedCollection(orders, SeenIds(), outbox=Outbox("shop/orders")), print)
"""


@pytest.mark.parametrize(
    "moment", ["import onewrite.operate.app", "import onewrite.operate.relay", USERS_MODULE, "import pymongo"]
)
@pytest.mark.few(1)
def test_relay_stops_cleanly_if_signaled_during_start(folder: Path, moment: str) -> None:
    (folder / "corner_shop.py").write_text(RELAY)
    assert_stopped_in_order(run(folder, moment, signal.SIGTERM, verb=("relay", "corner_shop:relay")), "relay")


@pytest.fixture(scope="session")
def namespace() -> list[str]:
    """What runs a command as process 1 of its own namespace."""
    command = ["unshare", "--pid", "--fork", "--kill-child", *(["--map-root-user"] if os.geteuid() else [])]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine does not let a test make a PID namespace: {error}")
    return command


@pytest.mark.parametrize("moment", ["import onewrite.operate.app", USERS_MODULE])
@pytest.mark.few(1)
def test_process_1_of_a_container_stops_cleanly(folder: Path, namespace: list[str], moment: str) -> None:
    assert_stopped_in_order(run(folder, moment, signal.SIGTERM, before=namespace))


def test_second_signal_ends_startup_immediately(folder: Path) -> None:
    (folder / "corner_shop.py").write_text("import threading; threading.Event().wait()")
    process = run(folder, USERS_MODULE, signal.SIGTERM, signal.SIGTERM)
    assert process.returncode == 130
    assert process.stderr == ""


@pytest.mark.slow
def test_signal_at_interpreter_exit_keeps_the_exit_code(folder: Path) -> None:
    process = run(folder, "the interpreter's last moment", signal.SIGTERM)
    assert process.returncode == 2
    assert "can't use the queue" in process.stderr


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("verb", [["steps"], ["--help"]])
@pytest.mark.few(1)
def test_other_commands_are_interrupted_during_start(folder: Path, verb: list[str], number: signal.Signals) -> None:
    process = run(folder, "import onewrite.operate.app", number, verb=verb)
    assert (process.stderr, process.returncode) == ("onewrite: Interrupted by a signal. Nothing was done.\n", 130)


HANGING = """
import hashlib, os, signal, threading
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # one instruction, as the lookup of a name is
"""


def test_signal_ends_a_command_during_a_long_instruction(folder: Path) -> None:
    (folder / "corner_shop.py").write_text(HANGING)
    assert run(folder, "never", verb=("doctor", "corner_shop")).returncode == 130


# ---------------------------------------------------------------- in this process


class Exited(BaseException):
    """The process would have ended."""


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> Iterator[EarlySignals]:
    """They have been caught, and neither the process nor its end is touched."""

    def leave(code: int) -> None:
        raise Exited(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    early = EarlySignals()
    early.catch()
    with early.kept:
        yield early
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_forked_process_is_ended_by_the_signal(caught: EarlySignals) -> None:
    child = get_context("fork").Process(target=time.sleep, args=(PATIENCE,))
    child.start()
    child.terminate()
    child.join(PATIENCE / 2)
    assert child.exitcode == -signal.SIGTERM
    caught.pass_on(lambda: pytest.fail("the signal was the child's"))


def test_program_that_passes_argv_keeps_its_signal_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[Any] = []
    monkeypatch.setattr(EarlySignals, "catch", lambda _: installed.append("caught"))
    assert main(["worker"]) == 2
    assert installed == []
    monkeypatch.setattr(sys, "argv", ["onewrite", "worker"])
    monkeypatch.setattr("onewrite.operate.end_at_last", lambda _: None)
    assert main() == 2
    assert installed == ["caught"]
