"""A relay: a process that publishes to the one that has started it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pymongo import MongoClient

from onewrite import SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay, stream_handler
from onewrite.testing.servers.engines import dynamo_client
from tests.chaos.witness import Copy
from tests.chaos.worker import OUTBOX, PLACE, SECONDS, Target, live_with_parent
from tests.engines.stores import streams_client

FAILS = "the broker fails"
_POLL = 0.1
_SWEEP_SECONDS = 2.0  # between two sweeps of a relay that gets notifications


@dataclass(frozen=True, slots=True)
class Duty:
    """How a relay works."""

    is_notified: bool
    driver_retries: bool
    clock_offset: float


def relay_events(target: Target, duty: Duty, pipe: Connection) -> None:
    """Until the process is killed."""
    live_with_parent()

    def publish(events: list[Outgoing]) -> list[Outgoing]:
        pipe.send([Copy(event.source, event.sequence, event.id, event.body) for event in events])
        reply = pipe.recv()
        if reply == FAILS:
            raise ConnectionError(FAILS)
        return [events[place] for place in reply]

    open_relay = _on_table if target.engine == "dynamodb" else _on_collection
    with open_relay(target, duty, publish) as work, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        work()


@contextmanager
def _on_table(target: Target, duty: Duty, publish: Any) -> Iterator[Callable[[], None]]:
    config: dict[str, Any] = {
        "connect_timeout": 1,
        "read_timeout": SECONDS,
        "retries": {"total_max_attempts": 3 if duty.driver_retries else 1, "mode": "standard"},
    }
    client = dynamo_client(target.address, **config)
    relay = Relay(
        GuardedTable(client, SeenIds(), table_name=PLACE, outbox=OUTBOX),
        publish,
        clock=lambda: time.time() + duty.clock_offset,
    )
    if duty.is_notified:
        streams = streams_client(target.address, **config)
        yield lambda: _listen(relay, client, streams)
        streams.close()
    else:
        yield lambda: relay.run(poll=_POLL)
    client.close()


def _listen(relay: Relay, client: Any, streams: Any) -> None:
    """Hand what a table's stream tells to the relay's function, as Lambda does."""
    handler, last_sweep = stream_handler(relay), 0.0
    while True:
        with suppress(BotoCoreError, ClientError):
            arn = client.describe_table(TableName=PLACE)["Table"]["LatestStreamArn"]
            shards = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
            answer = streams.get_shard_iterator(StreamArn=arn, ShardId=shards[-1]["ShardId"], ShardIteratorType="LATEST")
            iterator = answer["ShardIterator"]
            while iterator is not None:
                batch = streams.get_records(ShardIterator=iterator)
                handler({"Records": batch["Records"]}, None)
                iterator = batch.get("NextShardIterator")
                if time.monotonic() - last_sweep >= _SWEEP_SECONDS:
                    relay.sweep()
                    last_sweep = time.monotonic()
                if not batch["Records"]:
                    time.sleep(_POLL)
        time.sleep(_POLL)


@contextmanager
def _on_collection(target: Target, duty: Duty, publish: Any) -> Iterator[Callable[[], None]]:
    milliseconds = int(SECONDS * 1000)
    with MongoClient[dict[str, Any]](
        target.address,
        socketTimeoutMS=milliseconds,
        serverSelectionTimeoutMS=milliseconds,
        connectTimeoutMS=1000,
        heartbeatFrequencyMS=500,
        retryWrites=duty.driver_retries,
        retryReads=duty.driver_retries,
    ) as client:
        documents = GuardedCollection(client.test[PLACE], SeenIds(), outbox=OUTBOX)
        relay = Relay(documents, publish, clock=lambda: time.time() + duty.clock_offset)
        yield lambda: relay.run(poll=_POLL)
