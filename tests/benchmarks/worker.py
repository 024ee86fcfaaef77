"""The worker, with a handler that does nothing, against a plain loop around boto3.

All drain queues of a stand-in over HTTP that runs in a process of its own, and take turns. A ratio is ours by theirs, of seconds
for each message: 1.0 is as fast, and 1.05 is a twentieth slower.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from onewrite import Message
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import sqs_message_id
from onewrite.sqs import Worker
from onewrite.sqs.queue import make_default_client
from tests.benchmarks.measure import Plan, Row
from tests.support.http_sqs import HttpSqs

_MESSAGES = 1500
_TURNS = 7
_BODY = '{"orderId": "o-1", "cents": 1250}'

Drain = Callable[[Any, str, int], float]
"""Takes so many messages from a queue with a client, and returns the moment when the last one was processed."""


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # a turn is a whole queue
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "dummy")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "dummy")
    with HttpSqs() as server:
        yield _against_loop(server, "the worker, a handler that does nothing", _drain_by_worker)


def _against_loop(server: HttpSqs, what: str, ours: Drain) -> Row:
    """The middle one of the ratios of the turns: each turn of ours follows one of the loop."""
    client = make_default_client(server.endpoint, region="eu-west-1", endpoint_url=server.endpoint)
    names = (f"{what.replace(' ', '-')}-{number}" for number in itertools.count())
    ratios = [_turn(server, client, next(names), ours) / _turn(server, client, next(names), _naive) for _ in range(_TURNS)]
    client.close()
    return Row(what, "a plain loop around boto3", statistics.median(ratios), min(ratios), max(ratios))


def _turn(server: HttpSqs, client: Any, name: str, drain: Drain) -> float:
    server.fill(name, [_BODY] * _MESSAGES)
    began = time.perf_counter()
    return drain(client, server.url(name), _MESSAGES) - began


def _drain_by_worker(client: Any, url: str, count: int) -> float:
    ends: list[float] = []
    numbers = itertools.count(1)

    @sqs_handler(sqs_message_id())
    def handler(_: Message) -> None:
        if next(numbers) == count:
            ends.append(time.perf_counter())
            worker.stop()

    worker = Worker(url, handler, client=client, in_flight=10)
    worker.run()
    return ends[0]


def _naive(client: Any, url: str, count: int) -> float:
    count_so_far = 0
    while count_so_far < count:
        messages = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20).get("Messages", [])
        _delete(client, url, messages)
        count_so_far += len(messages)
    return time.perf_counter()


def _delete(client: Any, url: str, messages: list[Any]) -> None:
    entries = [{"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)]
    client.delete_message_batch(QueueUrl=url, Entries=entries)
