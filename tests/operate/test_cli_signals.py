"""A signal ends `onewrite worker` and `onewrite relay` within the drain, whatever fails then: a queue, table, broker, probe, or module."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

import onewrite
from onewrite.testing.servers.process import find_free_port
from tests.support.endpoints import DUMMY, EndpointKind, Responses, endpoint_of

SOURCE = Path(onewrite.__path__[0]).parent
PATIENCE = 60.0  # seconds for a process on a busy machine
DRAIN = {130: 1, 0: 30}  # seconds: an orderly end takes a moment on a busy machine
SLACK = 10.0  # seconds for the end of the interpreter on a busy machine, and far less than a client's own timeouts

SHOP = """
import asyncio, logging.config, os, socket
import boto3
from onewrite import Event, Message, Outbox, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay, to_sqs
from onewrite.testing.standins.collection import StandInClient
from pymongo import MongoClient

logging.config.dictConfig({"version": 1})  # which silences the loggers that it does not name
PORT = os.environ["PORT"]

def client(service):
    return boto3.client(service, endpoint_url=f"http://127.0.0.1:{PORT}")

def ask(_=None):
    with socket.create_connection(("127.0.0.1", int(PORT))) as plug:
        plug.sendall(b"?")
        while plug.recv(1):
            pass

def handler(function):
    return sqs_handler(lambda record: Message(record["body"]))(function)

table = GuardedTable(client("dynamodb"), SeenIds(), table_name="orders")
collection = GuardedCollection(MongoClient(f"mongodb://127.0.0.1:{PORT}", connect=False).shop.orders, SeenIds())

@handler
def of_table(message):
    return table.update_item(message, Key={"id": "e"}, UpdateExpression="ADD n :one", ExpressionAttributeValues={":one": 1})

@handler
def of_collection(message):
    return collection.update_one(message, {"_id": "e"}, {"$inc": {"n": 1}}, upsert=True)

@handler
async def of_tasks(message):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"?")
    await reader.read()
    raise ConnectionError  # so there is nothing to delete

@handler
def of_nothing(message):
    pass

orders = GuardedCollection(StandInClient().shop.orders, SeenIds(), outbox=Outbox("shop/orders"))
orders.update_one(Message("m"), {"_id": 1}, {"$set": {"n": 1}}, upsert=True, emit=[Event("Paid", 1)])
to_function = Relay(orders, ask)
to_queue = Relay(orders, to_sqs(client("sqs"), "https://sqs.eu-west-1.amazonaws.com/1/told"))

if os.environ.get("ASKS") == "at its import":
    ask()
"""
QUEUE = {"Attributes": {"QueueArn": "arn:aws:sqs:eu-west-1:1:orders", "VisibilityTimeout": "30"}}
MESSAGE = {"MessageId": "m", "ReceiptHandle": "m", "Body": "m", "MD5OfBody": hashlib.md5(b"m").hexdigest()}  # noqa: S324  # as SQS has it
STARTED: Responses = {"GetQueueAttributes": [QUEUE]}
WITH_MESSAGE: Responses = {**STARTED, "ReceiveMessage": [{"Messages": [MESSAGE]}]}
# What fails, then the command, and its exit codes if that is silent or slow, and if it refuses. A worker without messages does not wait.
RELAY, WORKER = ("relay",), ("worker", "--queue-url", "http://{queue}/1/orders", "--endpoint-url", "http://{queue}")
COLLECTION = "mongodb://{failing}/shop.orders?connect=false"  # so pymongo asks in a pass of the relay, and not before it
OUTBOX = ("--outbox", "shop/orders", "--to", "http://{failing}/1/told")
COMMANDS: dict[str, tuple[tuple[str, ...], int, int]] = {
    "table of a relay": ((*RELAY, "--table", "orders", "--endpoint-url", "http://{failing}", *OUTBOX), 130, 0),
    "collection of a relay": ((*RELAY, "--collection", COLLECTION, *OUTBOX), 130, 130),
    "broker that is a function": ((*RELAY, "shop:to_function"), 130, 0),
    "broker that is a queue": ((*RELAY, "shop:to_queue"), 130, 0),
    "module of a relay": ((*RELAY, "shop:to_function"), 130, 130),
    "queue at the start": ((*WORKER, "shop:of_nothing"), 0, 0),
    "queue without messages": ((*WORKER, "shop:of_nothing"), 0, 0),
    "queue with a done message": ((*WORKER, "shop:of_nothing"), 130, 0),
    "table of a handler": ((*WORKER, "shop:of_table"), 130, 0),
    "collection of a handler": ((*WORKER, "shop:of_collection"), 130, 130),
    "tasks of a handler": ((*WORKER, "shop:of_tasks"), 130, 0),
    "probe": ((*WORKER, "--health-port", "{health}", "shop:of_nothing"), 0, 0),
    "module of a handler": ((*WORKER, "shop:of_nothing"), 130, 130),
}
KINDS: list[EndpointKind] = ["silent", "slow", "refusing"]
# A queue that refuses the first request ends the worker, so no signal does.
CASES = [(failing, kind) for failing in COMMANDS for kind in KINDS if (failing, kind) != ("queue at the start", "refusing")]


@contextmanager
def probing(kind: EndpointKind, port: int) -> Iterator[None]:
    """Connect as a probe that sends nothing, single bytes, or a reset."""
    over = Event()
    with socket.create_connection(("127.0.0.1", port)) as plug:
        if kind == "refusing":
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            plug.close()

        def send_slowly() -> None:
            with suppress(OSError):  # the worker has gone
                while not over.wait(0.05):
                    plug.sendall(b"G")

        if kind == "slow":
            Thread(target=send_slowly, daemon=True).start()
        yield
        over.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: str(number.name))
@pytest.mark.parametrize(("failing", "kind"), CASES)
@pytest.mark.few(1, each="kind")
def test_signal_ends_process_within_drain_seconds(
    failing: str, kind: EndpointKind, number: signal.Signals, tmp_path: Path
) -> None:
    command, code_of_silence, code_of_refusal = COMMANDS[failing]
    code = code_of_refusal if kind == "refusing" else code_of_silence
    (tmp_path / "shop.py").write_text(SHOP)
    responses: Any = {"queue at the start": {}, "queue without messages": STARTED}.get(failing, WITH_MESSAGE)
    with ExitStack() as stack:
        if failing.startswith("queue"):
            queue = endpoint = stack.enter_context(endpoint_of(kind, responses))
        elif failing == "probe":
            queue = endpoint = stack.enter_context(endpoint_of("silent", STARTED))
        else:
            queue = stack.enter_context(endpoint_of("silent", WITH_MESSAGE))
            endpoint = stack.enter_context(endpoint_of(kind))
        places = {"queue": queue.host, "failing": endpoint.host, "health": str(find_free_port())}
        environment = {
            **os.environ,
            **DUMMY,
            # A refusing endpoint gets one request. Otherwise botocore sleeps between its attempts, as if the endpoint were silent.
            "AWS_MAX_ATTEMPTS": "1",
            "PORT": str(endpoint.port),
            "PYTHONPATH": str(SOURCE),
            "ASKS": "at its import" if failing.startswith("module") else "",
        }
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "onewrite",
                *[each.format(**places) for each in command],
                "--drain-seconds",
                str(DRAIN[code]),
            ],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        stack.enter_context(process)
        stack.callback(process.kill)
        assert endpoint.is_asked.wait(PATIENCE)
        if failing == "probe":
            stack.enter_context(probing(kind, int(places["health"])))
        process.send_signal(number)
        began = time.monotonic()
        _, err = process.communicate(timeout=PATIENCE)
        assert time.monotonic() - began < DRAIN[code] + SLACK
    assert process.returncode == code, err
    assert ("has stopped" in err) == (code == 0), err
    is_cut_off = "has not ended within" in err
    assert is_cut_off == (code == 130 and not failing.startswith("module")), err  # an import is interrupted at once
