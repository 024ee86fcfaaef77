"""The functions that AWS's runtime client imports and calls in a test."""

from __future__ import annotations

import asyncio
import time

from onewrite import Applied, Message, Outcome
from onewrite.aws_lambda import sqs_handler
from tests.support.batches import by_name

LONG_MARGIN = 30.0


def _ship(message: Message) -> Outcome:
    name, _, moment = message.id.partition("@")
    if moment:
        time.sleep(max(0.0, float(moment) - time.time()))
    if name.endswith("!"):
        raise ValueError(message.body)
    return Applied(message)


@sqs_handler(by_name)
def ship(message: Message) -> Outcome:
    return _ship(message)


@sqs_handler(by_name, max_workers=4)
def ship_in_threads(message: Message) -> Outcome:
    return _ship(message)


@sqs_handler(by_name, max_workers=4)
async def ship_in_tasks(message: Message) -> Outcome:
    await asyncio.sleep(0)
    return _ship(message)


@sqs_handler(by_name, margin=LONG_MARGIN)
def ship_with_care(message: Message) -> Outcome:
    return _ship(message)
