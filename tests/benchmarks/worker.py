"""The worker against a plain loop around boto3, and against ten plain receivers with one pool.

All drain queues of a stand-in over HTTP that runs in a process of its own, and take turns. A ratio is ours by theirs, of seconds
for each message: 1.0 is as fast, and 1.05 is a twentieth slower.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onewrite import Message
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import sqs_message_id
from onewrite.sqs import Worker
from onewrite.sqs.queue import default_client
from tests.benchmarks.measure import Plan, Row
from tests.support.http_sqs import HttpSqs

NAIVE, TEN = 1 / 0.95, 1 / 0.9  # the most that ours may take, by what the other one takes
_MESSAGES = 1500
_TURNS = 7
_DISTANCE, _WORK, _IN_FLIGHT = 0.01, 0.02, 100  # seconds to SQS and in the handler, and messages in flight
_BODY = '{"orderId": "o-1", "cents": 1250}'

Drain = Callable[[Any, str, int], float]
"""Takes so many messages from a queue with a client, and returns the moment when the last one was processed."""


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # a turn is a whole queue
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "dummy")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "dummy")
    with HttpSqs() as near:
        yield _idle(near, "the worker", lean=False, naive=None)
        yield _idle(near, "the lean worker", lean=True, naive=NAIVE)
    with HttpSqs(_DISTANCE) as far:
        ours = _worker(lambda: time.sleep(_WORK), _IN_FLIGHT)
        yield _against(far, "the worker, 20 ms of work, 100 in flight", "ten receivers with one pool", ours, _ten, TEN)


def _idle(server: HttpSqs, worker_name: str, *, lean: bool, naive: float | None) -> Row:
    """A handler that does nothing shows what a worker itself takes. There boto3 alone takes as long as the loop, so only a lean worker has targets."""
    what, ours = f"{worker_name}, a handler that does nothing", _worker(lambda: None, 10, lean=lean)
    return _against(server, what, "a plain loop around boto3", ours, _naive, naive)


def _against(server: HttpSqs, what: str, rival: str, ours: Drain, theirs: Drain, target: float | None) -> Row:
    """The middle one of the ratios of the turns: each turn of ours follows one of theirs."""
    client = default_client(server.endpoint, region="eu-west-1", endpoint_url=server.endpoint)
    names = (f"{rival.replace(' ', '-')}-{number}" for number in itertools.count())
    ratios = [_turn(server, client, next(names), ours) / _turn(server, client, next(names), theirs) for _ in range(_TURNS)]
    client.close()
    return Row(what, rival, statistics.median(ratios), min(ratios), max(ratios), "x", target)


def _turn(server: HttpSqs, client: Any, name: str, drain: Drain) -> float:
    server.fill(name, [_BODY] * _MESSAGES)
    began = time.perf_counter()
    return drain(client, server.url(name), _MESSAGES) - began


def _worker(work: Callable[[], object], in_flight: int, *, lean: bool = False) -> Drain:
    def drain(client: Any, url: str, count: int) -> float:
        ends: list[float] = []
        numbers = itertools.count(1)

        @sqs_handler(sqs_message_id())
        def handler(_: Message) -> None:
            work()
            if next(numbers) == count:
                ends.append(time.perf_counter())
                worker.stop()

        worker = Worker(url, handler, client=client, lean=lean, in_flight=in_flight)
        worker.run()
        return ends[0]

    return drain


def _naive(client: Any, url: str, count: int) -> float:
    count_so_far = 0
    while count_so_far < count:
        messages = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20).get("Messages", [])
        _delete(client, url, messages)
        count_so_far += len(messages)
    return time.perf_counter()


def _ten(client: Any, url: str, count: int) -> float:
    count_left = [count]

    def receive() -> None:
        while count_left[0] > 0:
            messages = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
            list(pool.map(lambda _: time.sleep(_WORK), messages))
            if messages:
                _delete(client, url, messages)
            count_left[0] -= len(messages)

    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        threads = [threading.Thread(target=receive) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return time.perf_counter()


def _delete(client: Any, url: str, messages: list[Any]) -> None:
    entries = [{"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)]
    client.delete_message_batch(QueueUrl=url, Entries=entries)
