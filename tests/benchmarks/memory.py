"""How much memory a worker takes in a process of its own, compared with a plain loop around boto3 that drains the same queue."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.measure import Plan, Row
from tests.support.http_sqs import HttpSqs

_MESSAGES, _TURNS = 3000, 3
_BODY = '{"orderId": "o-1", "cents": 1250}'
# Not getrusage: its maximum begins with the memory of the parent process.
_SHOW = "\nprint(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"  # in KB

_LOOP = """
import sys, boto3
endpoint, url, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = boto3.client("sqs", region_name="eu-west-1", endpoint_url=endpoint)
while left > 0:
    messages = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20).get("Messages", [])
    entries = [{"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)]
    client.delete_message_batch(QueueUrl=url, Entries=entries)
    left -= len(messages)
"""
_WORKER = """
import sys
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import sqs_message_id
from onewrite.sqs import Worker
from onewrite.sqs.queue import make_default_client
endpoint, url, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
numbers = iter(range(1, left + 1))
@sqs_handler(sqs_message_id())
def handler(message):
    if next(numbers) == left:
        worker.stop()
client = make_default_client(url, region="eu-west-1", endpoint_url=endpoint)
worker = Worker(url, handler, client=client)
worker.run()
"""


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # a turn is a whole queue
    with HttpSqs() as server:
        ratios = [
            _measure(server, f"worker-{turn}", _WORKER) / _measure(server, f"loop-{turn}", _LOOP) for turn in range(_TURNS)
        ]
    yield Row("memory of a worker", "a plain loop around boto3", statistics.median(ratios), min(ratios), max(ratios))


def _measure(server: HttpSqs, queue: str, code: str) -> float:
    """Return the most memory that a process takes while it drains a queue with this code, in MB."""
    server.fill(queue, [_BODY] * _MESSAGES)
    command = [sys.executable, "-c", code + _SHOW, server.endpoint, server.url(queue), str(_MESSAGES)]
    credentials = {"AWS_ACCESS_KEY_ID": "dummy", "AWS_SECRET_ACCESS_KEY": "dummy"}
    output = subprocess.check_output(command, text=True, env={**os.environ, **credentials})
    megabytes = int(output.split()[-1]) / 1000
    print(f"{queue}: {megabytes:.0f} MB", file=sys.stderr)
    return megabytes
