"""The handler that the end-to-end tests run in worker processes. The environment of the process says what it does."""

from __future__ import annotations

import base64
import os
import pickle
import time
from contextlib import ExitStack
from pathlib import Path

from onewrite import Message, Outcome
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import json_body
from tests.engines.stores import Store

_store: Store = pickle.loads(base64.b64decode(os.environ["SHOP_STORE"]))  # noqa: S301  # our own parent's
_seconds = float(os.environ["SHOP_SECONDS"])
_deliveries = Path(os.environ["SHOP_DELIVERIES"])
_stack = ExitStack()  # never closed, because the process may end in any way
_apply = _stack.enter_context(_store.open())


@sqs_handler(json_body(id="id", source="entity", sequence="number"))
def handle(message: Message) -> Outcome:
    """Notes the delivery, fails at the first delivery if the message says so, and writes."""
    with _deliveries.open("a") as file:
        file.write(f"{message.id}\n")
    time.sleep(_seconds / 2)
    if message.body["fails"] and message.system["ApproximateReceiveCount"] == "1":
        raise ConnectionError
    outcome = _apply(message, message.body["entity"])
    time.sleep(_seconds / 2)
    return outcome
