"""What the event of each source looks like.

Anything may be missing from a record, or be of another type: that is one poisonous record, and no reason to fail here.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, cast

from onewrite.batch.source import Identifier, Source, field_at


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: object, unit: float = 1.0) -> float:
    """Lambda gives text or a number."""
    try:
        seconds = float(cast("str", value)) * unit
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return seconds if math.isfinite(seconds) else math.nan


def _listed(event: Mapping[str, Any]) -> list[Any] | None:
    records = event.get("Records")
    return cast("list[Any]", records) if isinstance(records, list) else None


def _stream(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    """One lane: what stands behind a failure comes again with it, and a mark that was already past it would drop it."""
    records = _listed(event)
    return None if records is None else [("", record) for record in records]


def _queue(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    """The ARN tells a FIFO queue. A group does not: on a standard queue it is for fairness only."""
    records = _listed(event)
    if records is None:
        return None
    if not any(_text(field_at(record, "eventSourceARN")).endswith(".fifo") for record in records):
        return [(None, record) for record in records]
    # Whose group cannot be read might be of one group: they keep their order.
    return [(_text(field_at(record, "attributes", "MessageGroupId")), record) for record in records]


def _partitions(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    partitions = event.get("records")
    if not isinstance(partitions, dict):
        return None
    found = cast("dict[str, Any]", partitions)
    if not all(isinstance(records, list) for records in found.values()):
        return None
    return [(lane, record) for lane, records in found.items() for record in records]


def _kafka_position(record: Any) -> Identifier:
    topic, partition, offset = field_at(record, "topic"), field_at(record, "partition"), field_at(record, "offset")
    if not _text(topic) or type(partition) is not int or type(offset) is not int:
        return ""
    return f"{topic}-{partition}", offset


SQS = Source(
    "SQS",
    frozenset({"aws:sqs"}),
    _queue,
    lambda record: _text(field_at(record, "messageId")),
    lambda record: _seconds(field_at(record, "attributes", "SentTimestamp"), 0.001),
)
KINESIS = Source(
    "Kinesis",
    frozenset({"aws:kinesis"}),
    _stream,
    lambda record: _text(field_at(record, "kinesis", "sequenceNumber")),
    lambda record: _seconds(field_at(record, "kinesis", "approximateArrivalTimestamp")),
    restarts=True,
)
DYNAMODB = Source(
    "DynamoDB Streams",
    frozenset({"aws:dynamodb"}),
    _stream,
    lambda record: _text(field_at(record, "dynamodb", "SequenceNumber")),
    lambda record: _seconds(field_at(record, "dynamodb", "ApproximateCreationDateTime")),
    restarts=True,
)
KAFKA = Source(
    "Kafka",
    frozenset({"aws:kafka", "SelfManagedKafka"}),
    _partitions,
    _kafka_position,
    lambda record: _seconds(field_at(record, "timestamp"), 0.001),
)
