"""A signal ends `onewrite worker` and `onewrite relay` within the drain, whatever is silent: a queue, a table, a broker, or the user's module."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import onewrite

SOURCE = Path(onewrite.__path__[0]).parent
PATIENCE = 60.0  # seconds for a process on a busy machine
DRAIN = 1.0
SLACK = 10.0  # seconds for the end of the interpreter on a busy machine, and far less than what is silent would take

SHOP = """
import logging.config, os, socket
from onewrite import Event, Message, Outbox, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.testing.standins.collection import StandInClient

logging.config.dictConfig({"version": 1})  # which silences the loggers that it does not name

def ask(_=None):
    with socket.create_connection(("127.0.0.1", int(os.environ["PORT"]))) as plug:
        plug.sendall(b"?")
        plug.recv(1)

orders = GuardedCollection(StandInClient().shop.orders, SeenIds(), outbox=Outbox("shop/orders"))
orders.update_one(Message("m"), {"_id": 1}, {"$set": {"n": 1}}, upsert=True, emit=[Event("Paid", 1)])
relay = Relay(orders, ask)
handler = sqs_handler(lambda record: Message(record["body"]))(ask)

if os.environ.get("ASKS") == "at its import":
    ask()
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Takes connections and requests, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener


HERE = "http://127.0.0.1:{port}"
TABLE = ("--table", "orders", "--endpoint-url", HERE, "--outbox", "shop/orders")
QUEUE = ("--queue-url", f"{HERE}/1/orders", "--endpoint-url", HERE)
STORES = {
    "table": ("relay", *TABLE, "--to", f"{HERE}/1/told"),
    "collection": (
        "relay",
        "--collection",
        "mongodb://127.0.0.1:{port}/shop.orders",
        "--outbox",
        "o",
        "--to",
        f"{HERE}/1/t",
    ),
    "broker": ("relay", "shop:relay"),
    "module of a relay": ("relay", "shop:relay"),
    "queue": ("worker", *QUEUE, "shop:handler"),
    "module of a worker": ("worker", *QUEUE, "shop:handler"),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("what", STORES)
@pytest.mark.few(2)
def test_a_signal_ends_the_process_within_the_drain(
    what: str, number: signal.Signals, tmp_path: Path, silent: socket.socket
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    port = str(silent.getsockname()[1])
    keys = {"AWS_ACCESS_KEY_ID": "dummy", "AWS_SECRET_ACCESS_KEY": "dummy", "AWS_DEFAULT_REGION": "eu-west-1", "PORT": port}
    verb = [each.replace("{port}", port) for each in STORES[what]]
    process = subprocess.Popen(
        [sys.executable, "-m", "onewrite", *verb, "--drain-seconds", str(DRAIN)],
        cwd=tmp_path,
        env={**os.environ, **keys, "PYTHONPATH": str(SOURCE), "ASKS": "at its import" if what.startswith("module") else ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process, silent.accept()[0] as plug:
        assert plug.recv(1)  # it has asked, and waits for the answer
        process.send_signal(number)
        began = time.monotonic()
        _, err = process.communicate(timeout=PATIENCE)
    assert time.monotonic() - began < DRAIN + SLACK
    assert (process.returncode, "has stopped" in err) in ((0, True), (130, False)), err
    assert ("Not everything has ended within 1 seconds of a signal" in err) == (process.returncode == 130), err
