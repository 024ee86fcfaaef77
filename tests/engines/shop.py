"""The handler that the end-to-end tests run in workers. What it does is in its environment, as of any process."""

from __future__ import annotations

import base64
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from onewrite import Message, Outcome
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import json_body
from tests.engines.stores import Store

_store: Store = pickle.loads(base64.b64decode(os.environ["SHOP_STORE"]))  # noqa: S301  # our own parent's
_seconds = float(os.environ["SHOP_SECONDS"])
_deliveries = Path(os.environ["SHOP_DELIVERIES"])
_stack = ExitStack()  # never closed: a process ends as it may
_apply = _stack.enter_context(_store.open())
_pool = ThreadPoolExecutor()


@sqs_handler(json_body(id="id", source="entity", sequence="number"))
def handle(message: Message) -> Outcome:
    """Takes its time, half of it before the write and half after; fails at the first delivery if the message says so."""
    with _deliveries.open("a") as file:
        file.write(f"{message.id}\n")
    _pool.submit(time.sleep, _seconds / 2).result()  # in a thread that no interpreter leaves behind
    if message.body["fails"] and message.attributes["ApproximateReceiveCount"] == "1":
        raise ConnectionError
    outcome = _apply(message, message.body["entity"])
    time.sleep(_seconds / 2)
    return outcome
