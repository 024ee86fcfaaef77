"""A signal while the command starts, or after it is done, ends it with one line and without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import pytest

import onewrite
from onewrite.operate import main
from onewrite.operate.exits import interrupt_process
from onewrite.process.stopping import handle_stop_signals, undo_in_children
from tests.support.endpoints import DUMMY

SOURCE = Path(onewrite.__path__[0]).parent
PATIENCE = 120.0  # seconds for one process on a busy machine
NOBODY = "http://127.0.0.1:1"  # a worker that asks its queue ends with an error
WORKER = ("worker", "--queue-url", f"{NOBODY}/1/orders", "--endpoint-url", NOBODY, "corner_shop:ship")
USERS_MODULE = "open .*/corner_shop.py"  # what importlib.import_module imports is no event, but reading the file is one

SHOP = """
from onewrite import Message, Outbox, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from pymongo import MongoClient

orders = MongoClient("mongodb://127.0.0.1:1", connect=False).shop.orders
relay = Relay(GuardedCollection(orders, SeenIds(), outbox=Outbox("shop/orders")), print)

@sqs_handler(lambda record: Message(record["body"]))
def ship(message):
    ...
"""
# Python runs this before everything else. The process sends itself the signal, so it arrives at exactly the moment that a test names,
# however slow the machine is.
SIGNALLING = """
import os, re, signal, sys

def send(send=signal.raise_signal, number=int(os.environ["SIGNAL"])):
    send(number)

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


def run(
    folder: Path, moment: str, number: signal.Signals, verb: Sequence[str] = WORKER, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """A process of the command that receives the signal at a moment: an audit event of Python's and its first argument."""
    (folder / "corner_shop.py").write_text(SHOP)
    (folder / "sitecustomize.py").write_text(SIGNALLING)
    paths = {"PYTHONPATH": f"{folder}{os.pathsep}{SOURCE}", "AWS_MAX_ATTEMPTS": "1"}
    environment = {**os.environ, **DUMMY, **paths, "MOMENT": moment, "SIGNAL": str(int(number))}
    command = [*before, sys.executable, "-m", "onewrite", *verb]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


RELAY = ("relay", "corner_shop:relay")
EFFECTS = ("effects", "--table", "orders")
MOMENTS: list[tuple[Sequence[str], str, signal.Signals]] = [
    (WORKER, "import onewrite.operate.app", signal.SIGTERM),  # the first import after the handlers
    (WORKER, "import onewrite.operate.app", signal.SIGINT),
    (WORKER, USERS_MODULE, signal.SIGTERM),  # the arguments have been parsed
    (WORKER, "import boto3", signal.SIGINT),
    (WORKER, "open .*/sqs/.*/service-2.json.*", signal.SIGTERM),  # the client is being made
    (RELAY, "open .*/operate/.*relay.*", signal.SIGINT),
    (RELAY, USERS_MODULE, signal.SIGTERM),
    (EFFECTS, "import boto3", signal.SIGINT),
    (("--help",), "import onewrite.operate.app", signal.SIGTERM),
]


@pytest.mark.parametrize(("verb", "moment", "number"), MOMENTS)
@pytest.mark.few(3)
def test_signal_during_start_ends_the_command_with_one_line(
    verb: Sequence[str], moment: str, number: signal.Signals, tmp_path: Path
) -> None:
    process = run(tmp_path, moment, number, verb)
    assert process.stderr.splitlines()[-1] == "onewrite: Interrupted by a signal."
    assert "Traceback" not in process.stderr
    assert (process.stdout, process.returncode) == ("", 130)


@pytest.mark.slow
def test_signal_at_interpreter_exit_keeps_the_exit_code(tmp_path: Path) -> None:
    process = run(tmp_path, "the interpreter's last moment", signal.SIGTERM, ("worker", "nowhere:ship", "--queue-url", "u"))
    assert process.returncode == 2
    assert "Interrupted" not in process.stderr


def test_process_1_of_a_container_is_ended_during_start(tmp_path: Path) -> None:
    before = ["unshare", "--pid", "--fork", "--kill-child", *(["--map-root-user"] if os.geteuid() else [])]
    try:
        subprocess.run([*before, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine does not let a test make a PID namespace: {error}")
    assert run(tmp_path, USERS_MODULE, signal.SIGTERM, before=before).returncode == 130


@pytest.mark.filterwarnings("ignore:.*fork")
def test_forked_child_is_ended_by_the_signal_itself() -> None:
    put_back = handle_stop_signals(interrupt_process)
    try:
        with undo_in_children(put_back):
            child = get_context("fork").Process(target=time.sleep, args=(PATIENCE,))
            child.start()
    finally:
        put_back()
    child.terminate()
    child.join(PATIENCE / 2)
    assert child.exitcode == -signal.SIGTERM


def test_program_that_passes_argv_keeps_its_signal_handlers() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert main(["worker"]) == 2
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
