"""Reads a queue, its dead-letter queue, a function's event source mappings, and a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from onewrite.core.flow import Call
from onewrite.operate.doctor.facts import (
    EntitySample,
    EventSourceMapping,
    Facts,
    Queue,
    TableDescription,
    TableIndex,
    Unread,
)
from onewrite.operate.doctor.reading import Asking, Question, Reader, is_refused_by_aws, list_questions
from onewrite.operate.dynamodb import TableScan
from onewrite.operate.image import EntityImage

AMAZON = Asking(lambda error: isinstance(error, BotoCoreError | ClientError), is_refused_by_aws)
_REPORTS = "ReportBatchItemFailures"
# Sources whose failed records Lambda can read from the response.
_WITH_FAILURES = (":sqs:", ":kinesis:", ":dynamodb:", ":kafka:")


def read_queues(url: str) -> Reader[Facts]:
    """Read the queue of a URL, and its dead-letter queue, which is in the same account and region."""
    queue = yield from _read_queue(url, f"the queue {url}")
    if not isinstance(queue, Queue) or queue.dead_letters is None:
        return Facts(queue=queue)
    dead_url = f"{url.rpartition('/')[0]}/{queue.dead_letters.rpartition(':')[2]}"
    return Facts(queue=queue, dead_letters=(yield from _read_queue(dead_url, f"the dead-letter queue {dead_url}")))


def _read_queue(url: str, what: str) -> Reader[Queue | Unread]:
    call = Call("get_queue_attributes", (), {"QueueUrl": url, "AttributeNames": ["All"]})
    reply = yield Question(what, "sqs:GetQueueAttributes", call)
    if isinstance(reply, Unread):
        return reply
    attributes: Mapping[str, str] = reply["Attributes"]
    arn = attributes["QueueArn"]
    policy: Mapping[str, Any] = json.loads(attributes.get("RedrivePolicy") or "{}")
    return Queue(
        name=arn.rpartition(":")[2],
        arn=arn,
        fifo=arn.endswith(".fifo"),
        retention=int(attributes["MessageRetentionPeriod"]),
        dead_letters=policy.get("deadLetterTargetArn"),
        receives=int(policy["maxReceiveCount"]) if "maxReceiveCount" in policy else None,
    )


def read_function(name: str) -> Reader[Facts]:
    """Read the event source mappings of a function."""
    return Facts(feeds=(yield from _read_feeds(name)))


def _read_feeds(name: str) -> Reader[tuple[EventSourceMapping, ...] | Unread]:
    what = f"the event source mappings of the function {name}"
    feeds: list[EventSourceMapping] = []
    start: dict[str, str] = {}
    while True:
        call = Call("list_event_source_mappings", (), {"FunctionName": name, **start})
        reply = yield Question(what, "lambda:ListEventSourceMappings", call)
        if isinstance(reply, Unread):
            return reply
        for mapping in reply["EventSourceMappings"]:
            source = _read_source(mapping)
            if any(kind in source for kind in _WITH_FAILURES):
                feed = EventSourceMapping(
                    source,
                    reports_failures=_REPORTS in (mapping.get("FunctionResponseTypes") or ()),
                    kafka=":kafka:" in source,
                    provisioned=bool(mapping.get("ProvisionedPollerConfig")),
                    enabled=mapping.get("State") not in ("Disabled", "Disabling"),
                )
                feeds.append(feed)
        if not reply.get("NextMarker"):
            return tuple(feeds)
        start = {"Marker": reply["NextMarker"]}


def _read_source(mapping: Mapping[str, Any]) -> str:
    """Return the ARN that a mapping reads from. A self-managed source is Kafka, and has addresses instead."""
    if "SelfManagedEventSource" not in mapping:
        return str(mapping.get("EventSourceArn", ""))
    endpoints: Mapping[str, Any] = mapping["SelfManagedEventSource"].get("Endpoints") or {}
    return f"self-managed:kafka:{','.join(endpoints.get('KAFKA_BOOTSTRAP_SERVERS') or ())}"


def read_table(name: str, limit: int, clock: Callable[[], float]) -> Reader[Facts]:
    """Read a table and at most `most` of its items."""
    what, target = f"the table {name}", {"TableName": name}
    reply = yield Question(what, "dynamodb:DescribeTable", Call("describe_table", (), target))
    if isinstance(reply, Unread) and reply.permission is None:
        return Facts(table=reply, expiry=reply, sample=reply)  # every other request would fail in the same way
    expiry = yield from _read_expiry(name)
    if isinstance(reply, Unread):
        return Facts(table=reply, expiry=expiry, sample=reply)  # a sample needs the names of the key attributes
    table = _make_description(reply["Table"])
    sample = yield from _read_sample(name, table.keys, expiry, limit, clock)
    return Facts(table=table, expiry=expiry, sample=sample)


def _make_description(description: Mapping[str, Any]) -> TableDescription:
    indexes = list[TableIndex]()
    types = {part["AttributeName"]: part["AttributeType"] for part in description.get("AttributeDefinitions", ())}
    for index in [*description.get("GlobalSecondaryIndexes", ()), *description.get("LocalSecondaryIndexes", ())]:
        projection = index.get("Projection", {})
        copies_all = projection.get("ProjectionType") == "ALL"
        included = None if copies_all else frozenset(projection.get("NonKeyAttributes", ()))
        keys = _list_keys(index)
        indexes.append(TableIndex(index["IndexName"], keys, included, tuple([types[key] for key in keys])))
    return TableDescription(description["TableName"], keys=_list_keys(description), indexes=tuple(indexes))


def _list_keys(description: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple([part["AttributeName"] for part in description["KeySchema"]])


def _read_expiry(name: str) -> Reader[tuple[str, ...] | Unread]:
    call = Call("describe_time_to_live", (), {"TableName": name})
    reply = yield Question(f"TTL of the table {name}", "dynamodb:DescribeTimeToLive", call)
    if isinstance(reply, Unread):
        return reply
    description = reply["TimeToLiveDescription"]
    return (description["AttributeName"],) if description.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else ()


def _read_sample(
    name: str, keys: tuple[str, ...], expiry: tuple[str, ...] | Unread, limit: int, clock: Callable[[], float]
) -> Reader[EntitySample | Unread]:
    scan, images = TableScan(name, size=limit, keys=keys), list[EntityImage]()
    while len(images) < limit:
        page = yield from list_questions(f"the items of the table {name}", "dynamodb:Scan", scan.next())
        if isinstance(page, Unread):
            return page
        if page is None:
            break
        images.extend(page)
    ttl = expiry[0] if isinstance(expiry, tuple) and expiry else ""
    entities = tuple(images[:limit])
    expires: dict[str, float] = {}
    for image in entities:
        seconds = image.fields.get(ttl)
        if isinstance(seconds, int | Decimal) and not isinstance(seconds, bool):
            expires[image.name] = float(seconds)
    return EntitySample(entities, clock(), expires)
