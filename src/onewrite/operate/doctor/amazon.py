"""Reads a queue, its dead-letter queue, and a function with its event source mappings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from onewrite.core.flow import Call
from onewrite.dynamodb.size import LARGEST_ITEM
from onewrite.operate.doctor.facts import Clock, Fact, Feed, Function, Index, Queue, Sample, Table, Unread
from onewrite.operate.doctor.reading import (
    Asking,
    Question,
    Reader,
    each,
    entity_in,
    refused_by_aws,
)
from onewrite.operate.dynamodb import TableScan
from onewrite.operate.image import Image

AMAZON = Asking(lambda error: isinstance(error, BotoCoreError | ClientError), refused_by_aws)
_REPORTS = "ReportBatchItemFailures"
_WITH_FAILURES = (":sqs:", ":kinesis:", ":dynamodb:", ":kafka:")  # of these sources Lambda may read which records failed


class Queues(NamedTuple):
    """A queue, and its dead-letter queue if it has one."""

    queue: Queue | Unread
    dead_letters: Fact[Queue]


class Fed(NamedTuple):
    """A function, and from where it is fed."""

    function: Function | Unread
    feeds: tuple[Feed, ...] | Unread


def read_queues(url: str) -> Reader[Queues]:
    """The queue of that URL, and its dead-letter queue, which is in the same account and the same region."""
    queue = yield from _read_queue(url, f"the queue {url}")
    if not isinstance(queue, Queue) or queue.dead_letters is None:
        return Queues(queue, None)
    other = f"{url.rpartition('/')[0]}/{queue.dead_letters.rpartition(':')[2]}"
    return Queues(queue, (yield from _read_queue(other, f"the dead-letter queue {other}")))


def _read_queue(url: str, what: str) -> Reader[Queue | Unread]:
    call = Call("get_queue_attributes", (), {"QueueUrl": url, "AttributeNames": ["All"]})
    reply = yield Question(what, "sqs:GetQueueAttributes", call)
    return reply if isinstance(reply, Unread) else _queue(reply["Attributes"])


def _queue(found: Mapping[str, str]) -> Queue:
    arn = found["QueueArn"]
    policy: Mapping[str, Any] = json.loads(found.get("RedrivePolicy") or "{}")
    return Queue(
        arn.rpartition(":")[2],
        arn,
        arn.endswith(".fifo"),
        int(found["MessageRetentionPeriod"]),
        int(found["VisibilityTimeout"]),
        policy.get("deadLetterTargetArn"),
        int(policy["maxReceiveCount"]) if "maxReceiveCount" in policy else None,
    )


def read_function(name: str) -> Reader[Fed]:
    """The function, and its event source mappings."""
    what = f"the function {name}"
    call = Call("get_function_configuration", (), {"FunctionName": name})
    reply = yield Question(what, "lambda:GetFunctionConfiguration", call)
    function = reply if isinstance(reply, Unread) else Function(str(reply["FunctionName"]), int(reply["Timeout"]))
    return Fed(function, (yield from _read_feeds(name)))


def _read_feeds(name: str) -> Reader[tuple[Feed, ...] | Unread]:
    what = f"the event source mappings of the function {name}"
    found: list[Mapping[str, Any]] = []
    start: dict[str, str] = {}
    while True:
        call = Call("list_event_source_mappings", (), {"FunctionName": name, **start})
        reply = yield Question(what, "lambda:ListEventSourceMappings", call)
        if isinstance(reply, Unread):
            return reply
        found.extend(reply["EventSourceMappings"])
        if not reply.get("NextMarker"):
            return tuple([_feed(each) for each in found if any(kind in _source(each) for kind in _WITH_FAILURES)])
        start = {"Marker": reply["NextMarker"]}


def _source(mapping: Mapping[str, Any]) -> str:
    """The ARN of what it reads. What is self-managed is Kafka, and has addresses instead."""
    if "SelfManagedEventSource" not in mapping:
        return str(mapping.get("EventSourceArn", ""))
    endpoints: Mapping[str, Any] = mapping["SelfManagedEventSource"].get("Endpoints") or {}
    return f"self-managed:kafka:{','.join(endpoints.get('KAFKA_BOOTSTRAP_SERVERS') or ())}"


def _feed(mapping: Mapping[str, Any]) -> Feed:
    source = _source(mapping)
    return Feed(
        source,
        int(mapping.get("MaximumBatchingWindowInSeconds") or 0),
        _REPORTS in (mapping.get("FunctionResponseTypes") or ()),
        ":kafka:" in source,
        bool(mapping.get("ProvisionedPollerConfig")),
        mapping.get("State") not in ("Disabled", "Disabling"),
    )


_CUT = 0.5  # seconds: an answer says its time in whole seconds, the rest being cut off


class OfTable(NamedTuple):
    """What was read of a table."""

    table: Table | Unread
    clock: Fact[Clock] = None
    expiry: Fact[tuple[str, ...]] = None
    sample: Fact[Sample] = None


def read_table(name: str, most: int, clock: Callable[[], float]) -> Reader[OfTable]:
    """`most`: how many items are read at the most."""
    what, named = f"the table {name}", {"TableName": name}
    before = clock()
    reply = yield Question(what, "dynamodb:DescribeTable", Call("describe_table", (), named))
    after = clock()
    if isinstance(reply, Unread):
        refused = reply.permission is not None  # else the other requests would fail in the same way, one after the other
        expiry = (yield from _read_expiry(name)) if refused else reply
        return OfTable(reply, reply, expiry, reply)
    table, expiry = _table(reply["Table"]), (yield from _read_expiry(name))
    return OfTable(table, _clock(reply, before, after), expiry, (yield from _read_sample(table, expiry, most, clock)))


def _table(found: Mapping[str, Any]) -> Table:
    indexes = [*found.get("GlobalSecondaryIndexes", ()), *found.get("LocalSecondaryIndexes", ())]
    here = str(found.get("TableArn", "")).split(":")[3:4]
    regions = sorted({each["RegionName"] for each in found.get("Replicas", ())}.difference(here))
    return Table(
        found["TableName"],
        _key(found),
        tuple([_index(each) for each in indexes]),
        tuple(regions),
        found.get("MultiRegionConsistency") == "STRONG",
    )


def _key(found: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple([part["AttributeName"] for part in found["KeySchema"]])


def _index(found: Mapping[str, Any]) -> Index:
    projection = found.get("Projection", {})
    included = None if projection.get("ProjectionType") == "ALL" else frozenset(projection.get("NonKeyAttributes", ()))
    return Index(found["IndexName"], _key(found), included)


def _clock(reply: Mapping[str, Any], before: float, after: float) -> Clock | None:
    date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if not date:
        return None
    server = parsedate_to_datetime(date).timestamp() + _CUT
    return Clock(server - (before + after) / 2, (after - before) / 2 + _CUT)


def _read_expiry(name: str) -> Reader[tuple[str, ...] | Unread]:
    call = Call("describe_time_to_live", (), {"TableName": name})
    reply = yield Question(f"TTL of the table {name}", "dynamodb:DescribeTimeToLive", call)
    if isinstance(reply, Unread):
        return reply
    found = reply["TimeToLiveDescription"]
    return (found["AttributeName"],) if found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else ()


def _read_sample(
    table: Table, expiry: tuple[str, ...] | Unread, most: int, clock: Callable[[], float]
) -> Reader[Sample | Unread]:
    scan, images = TableScan(table.name, consistent=False, size=most, keys=table.keys), list[Image]()
    while len(images) < most:
        page = yield from each(f"the items of the table {table.name}", "dynamodb:Scan", scan.next())
        if isinstance(page, Unread):
            return page
        if page is None:
            break
        images.extend(page)
    ttl = expiry[0] if isinstance(expiry, tuple) and expiry else ""
    entities = tuple([entity_in(image, _seconds(image.fields.get(ttl))) for image in images[:most]])
    return Sample(entities, table.keys, LARGEST_ITEM, clock())


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
