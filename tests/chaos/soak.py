"""`python -m tests.chaos.soak --minutes 60`: do workers and relays stay as large as they are, hour after hour?

Two workers and two relays, each a process of its own, work on messages that come all the time. Their memory, open files and threads are
read every few seconds. What they were after a tenth of the time, when everything is imported and every pool is full, is what they must be
at the end. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from pymongo import MongoClient

from onewrite import Event, Message, Outbox, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import sqs_message_id
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay
from onewrite.sqs import Worker
from onewrite.sqs.queue import make_default_client
from onewrite.testing.servers.engines import Dynoxide, Mongod, dynamo_client
from tests.chaos.child import Child
from tests.chaos.worker import live_with_parent
from tests.engines.stores import create_table_with_outbox
from tests.support.engines import dynoxide_binary, mongod_binary
from tests.support.http_sqs import HttpSqs

_PLACE = "soak"
_OUTBOX = Outbox("soak", index="pending", shards=2)
_SAMPLE_SECONDS = 5.0
_A_SECOND = 40  # messages for each worker
_OF_AN_ENTITY = 50  # messages, so entities stay small and there are always new ones
# What may be more at the end: a factor, and a number. An allocator keeps some memory; a leak of 100 bytes per message would be 14 MB in an hour.
# A pool opens one more connection when more threads write at once than ever before.
_MEMORY, _FILES, _THREADS = (1.05, 0), (1.0, 2), (1.0, 0)
_PAGE = 4096


class Sample(NamedTuple):
    """What a process has in use."""

    memory: int  # bytes
    files: int
    threads: int


def sample(process: int) -> Sample:
    folder = Path("/proc") / str(process)
    pages = int((folder / "statm").read_text().split()[1])
    return Sample(pages * _PAGE, len([*(folder / "fd").iterdir()]), len([*(folder / "task").iterdir()]))


def growth(samples: list[Sample]) -> list[str]:
    """What is larger in the last tenth of the samples than in the second one."""
    tenth = max(1, len(samples) // 10)
    early_samples, late_samples = samples[tenth : 2 * tenth], samples[-tenth:]
    wrong = []
    for name, (factor, spare) in zip(Sample._fields, (_MEMORY, _FILES, _THREADS), strict=True):
        early_median = statistics.median(getattr(part, name) for part in early_samples)
        late_median = statistics.median(getattr(part, name) for part in late_samples)
        if late_median > early_median * factor + spare:
            wrong.append(f"{name} grew from {early_median:,.0f} to {late_median:,.0f}")
    return wrong


def _mongodb(uri: str) -> GuardedCollection:
    return GuardedCollection(MongoClient[dict[str, Any]](uri).test[_PLACE], SeenIds(), outbox=_OUTBOX)


def _dynamodb(endpoint: str) -> GuardedTable:
    return GuardedTable(dynamo_client(endpoint), SeenIds(), table_name=_PLACE, outbox=_OUTBOX, lean=True)


def _work(engine: str, address: str, queue: str, endpoint: str, pipe: Connection) -> None:
    live_with_parent()
    numbers = itertools.count()
    write: Callable[[Message, str], Outcome]
    if engine == "mongodb":
        documents = _mongodb(address)

        def write(message: Message, entity: str) -> Outcome:
            return documents.update_one(message, {"_id": entity}, {"$inc": {"n": 1}}, upsert=True, emit=[Event("Added", "")])
    else:
        table = _dynamodb(address)

        def write(message: Message, entity: str) -> Outcome:
            native: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
            return table.update_item(message, Key={"id": entity}, emit=[Event("Added", "")], **native)

    @sqs_handler(sqs_message_id())
    def handler(message: Message) -> Outcome:
        number = next(numbers)
        outcome = write(message, f"e-{number // _OF_AN_ENTITY}")
        pipe.send(1)
        return outcome

    Worker(queue, handler, client=make_default_client(endpoint, region="eu-west-1", endpoint_url=endpoint)).run()


def _relay(engine: str, address: str, pipe: Connection) -> None:
    live_with_parent()

    def publish(events: list[Outgoing]) -> None:
        pipe.send(len(events))

    Relay(_mongodb(address) if engine == "mongodb" else _dynamodb(address), publish).run(poll=1.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    minutes = parser.parse_args().minutes
    os.environ |= {"AWS_ACCESS_KEY_ID": "dummy", "AWS_SECRET_ACCESS_KEY": "dummy"}
    mongod_binary()
    dynoxide_binary()
    with ExitStack() as stack:
        mongod, dynoxide = stack.enter_context(Mongod()), stack.enter_context(Dynoxide())
        create_table_with_outbox(dynoxide.client(), _PLACE)
        sqs = stack.enter_context(HttpSqs())
        queues = {engine: sqs.url(engine) for engine in ("mongodb", "dynamodb")}
        children = {
            "worker, MongoDB": Child(_work, "mongodb", mongod.uri, queues["mongodb"], sqs.endpoint),
            "worker, DynamoDB": Child(_work, "dynamodb", dynoxide.endpoint, queues["dynamodb"], sqs.endpoint),
            "relay, MongoDB": Child(_relay, "mongodb", mongod.uri),
            "relay, DynamoDB": Child(_relay, "dynamodb", dynoxide.endpoint),
        }
        for child in children.values():
            stack.callback(child.end)
        counts, samples = _watch(children, sqs, minutes)
    print(f"{minutes:.0f} minutes")
    wrong = {name: growth(samples[name]) for name in children}
    for name in children:
        last_sample = samples[name][-1]
        print(
            f"{name}: {counts[name]} done, {last_sample.memory / 1e6:.1f} MB, {last_sample.files} files, {last_sample.threads} threads"
        )
        for line in wrong[name] or ["  nothing grew"]:
            print(f"  {line.strip()}")
    return 1 if any(wrong.values()) or not all(counts.values()) else 0


def _watch(children: dict[str, Child], sqs: HttpSqs, minutes: float) -> tuple[dict[str, int], dict[str, list[Sample]]]:
    counts = dict.fromkeys(children, 0)
    samples: dict[str, list[Sample]] = {name: [] for name in children}
    end, turn = time.monotonic() + 60 * minutes, 0.0
    while (now := time.monotonic()) < end:
        if now >= turn:
            turn = now + _SAMPLE_SECONDS
            for queue in ("mongodb", "dynamodb"):
                sqs.fill(queue, ["{}"] * int(_A_SECOND * _SAMPLE_SECONDS))
            for name, child in children.items():
                samples[name].append(sample(child.number))
        for name, child in children.items():
            while child.pipe.poll():
                counts[name] += child.pipe.recv()
        time.sleep(0.1)  # between two looks
    return counts, samples


if __name__ == "__main__":
    sys.exit(main())
