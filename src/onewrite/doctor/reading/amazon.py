"""Reads a queue, its dead-letter queue, and a function with its event source mappings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from onewrite.doctor.facts import Fact, Feed, Function, Queue, Unread
from onewrite.doctor.reading.asking import Asking, Question, Reader, refused_by_aws
from onewrite.flow import Call

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
    )


def read_function(name: str) -> Reader[Fed]:
    """The function, and those of its event source mappings that are not switched off."""
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
            return tuple([_feed(each) for each in found if _counts(each)])
        start = {"Marker": reply["NextMarker"]}


def _counts(mapping: Mapping[str, Any]) -> bool:
    source = _source(mapping)
    return mapping.get("State") not in ("Disabled", "Disabling") and any(each in source for each in _WITH_FAILURES)


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
    )
