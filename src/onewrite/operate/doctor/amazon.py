"""Functions that read a queue, its dead-letter queue, a function's event source mappings, and a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from onewrite.operate.doctor.facts import (
    EntitySample,
    EventSourceMapping,
    Facts,
    Queue,
    Service,
    TableDescription,
    TableIndex,
    Unread,
)
from onewrite.operate.dynamodb import scan_table
from onewrite.operate.report import read_aws_error


def _is_refusal(error: Exception) -> bool:
    """Whether AWS refused for lack of a permission. Each service has its own code for that."""
    code = read_aws_error(error).get("Code", "")
    return "AccessDenied" in code or "UnauthorizedOperation" in code


_AWS = Service((BotoCoreError, ClientError), _is_refusal)
_REPORTS = "ReportBatchItemFailures"
# Sources whose failed records Lambda can read from the response.
_WITH_FAILURES = (":sqs:", ":kinesis:", ":dynamodb:", ":kafka:")


def read_queues(client: Any, url: str) -> Facts:
    """Return a queue, and its dead-letter queue, which is in the same account and region."""
    queue = _read_queue(client, url, f"the queue {url}")
    if not isinstance(queue, Queue) or queue.dead_letters is None:
        return Facts(queue=queue)
    dead_url = f"{url.rpartition('/')[0]}/{queue.dead_letters.rpartition(':')[2]}"
    return Facts(queue=queue, dead_letters=_read_queue(client, dead_url, f"the dead-letter queue {dead_url}"))


def _read_queue(client: Any, url: str, what: str) -> Queue | Unread:
    request = {"QueueUrl": url, "AttributeNames": ["All"]}
    reply: Any = _AWS.ask(what, "sqs:GetQueueAttributes", client.get_queue_attributes, **request)
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


def read_function(client: Any, name: str) -> Facts:
    """Return the event source mappings of a function whose failed records Lambda reads from its response."""
    what = f"the event source mappings of the function {name}"
    feeds: list[EventSourceMapping] = []
    request = {"FunctionName": name}
    while True:
        reply: Any = _AWS.ask(what, "lambda:ListEventSourceMappings", client.list_event_source_mappings, **request)
        if isinstance(reply, Unread):
            return Facts(feeds=reply)
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
            return Facts(feeds=tuple(feeds))
        request["Marker"] = reply["NextMarker"]


def _read_source(mapping: Mapping[str, Any]) -> str:
    """Return the ARN that a mapping reads from. A self-managed Kafka cluster has addresses instead."""
    if "SelfManagedEventSource" not in mapping:
        return str(mapping.get("EventSourceArn", ""))
    endpoints: Mapping[str, Any] = mapping["SelfManagedEventSource"].get("Endpoints") or {}
    return f"self-managed:kafka:{','.join(endpoints.get('KAFKA_BOOTSTRAP_SERVERS') or ())}"


def read_table(client: Any, name: str, limit: int, clock: Callable[[], float]) -> Facts:
    """Return a table with at most `limit` of its items."""
    reply: Any = _AWS.ask(f"the table {name}", "dynamodb:DescribeTable", client.describe_table, TableName=name)
    if isinstance(reply, Unread) and reply.permission is None:
        return Facts(table=reply, expiry=reply, sample=reply)  # every other request would fail in the same way
    expiry = _read_expiry(client, name)
    if isinstance(reply, Unread):
        return Facts(table=reply, expiry=expiry, sample=reply)  # a sample needs the names of the key attributes
    table = _make_description(reply["Table"])
    pages = scan_table(client, name, keys=table.keys, Limit=limit)
    entities = _AWS.ask(
        f"the items of the table {name}", "dynamodb:Scan", lambda: tuple(islice(chain.from_iterable(pages), limit))
    )
    sample = entities if isinstance(entities, Unread) else EntitySample(entities, clock())
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


def _read_expiry(client: Any, name: str) -> tuple[str, ...] | Unread:
    what, permission = f"the TTL of the table {name}", "dynamodb:DescribeTimeToLive"
    reply: Any = _AWS.ask(what, permission, client.describe_time_to_live, TableName=name)
    if isinstance(reply, Unread):
        return reply
    description = reply["TimeToLiveDescription"]
    return (description["AttributeName"],) if description.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else ()
