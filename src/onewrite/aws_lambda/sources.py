"""What the event of each source looks like.

Anything may be missing from a record or have another type. That makes the one record fail, but must not raise an error here,
where all the records of the batch are read.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, cast

from onewrite.batch.source import Identifier, Source, field_at


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: object, unit: float = 1.0) -> float:
    """A time that Lambda gives as a number of units, or as the text of one; NaN if it is neither."""
    try:
        seconds = float(cast("str", value)) * unit
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return seconds if math.isfinite(seconds) else math.nan


def _listed(event: Mapping[str, Any]) -> list[Any] | None:
    records = event.get("Records")
    return cast("list[Any]", records) if isinstance(records, list) else None


def _stream(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    """All records in one lane. What comes after a failed record is delivered again with it.

    If it were processed now, its sequence would become the mark, and the failed record would be refused as stale.
    """
    records = _listed(event)
    return None if records is None else [("", record) for record in records]


def _queue(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    """Each message group of a FIFO queue in its own lane. The queue's ARN tells whether it is a FIFO queue.

    Messages of a standard queue may have groups too, but these are for fairness among consumers and imply no order.
    """
    records = _listed(event)
    if records is None:
        return None
    if not any(_text(field_at(record, "eventSourceARN")).endswith(".fifo") for record in records):
        return [(None, record) for record in records]
    # Records whose group cannot be read might be of the same group, so they share a lane, the one of the empty text.
    return [(_text(field_at(record, "attributes", "MessageGroupId")), record) for record in records]


def _partitions(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    partitions = event.get("records")
    if not isinstance(partitions, dict):
        return None
    found = cast("dict[str, Any]", partitions)
    if not all(isinstance(records, list) for records in found.values()):
        return None
    return [(lane, record) for lane, records in found.items() for record in records]


def _receive_count(record: Any) -> int | None:
    """SQS counts how often it gave out a message. Streams and Kafka do not."""
    try:
        return int(cast("str", field_at(record, "attributes", "ApproximateReceiveCount")))
    except (TypeError, ValueError, OverflowError):
        return None


def _kafka_position(record: Any) -> Identifier:
    topic, partition, offset = field_at(record, "topic"), field_at(record, "partition"), field_at(record, "offset")
    if not _text(topic) or type(partition) is not int or type(offset) is not int:
        return ""
    return f"{topic}-{partition}", offset


SQS = Source(
    name="SQS",
    origins=frozenset({"aws:sqs"}),
    records=_queue,
    identifier=lambda record: _text(field_at(record, "messageId")),
    sent=lambda record: _seconds(field_at(record, "attributes", "SentTimestamp"), 0.001),
    attempt=_receive_count,
)
KINESIS = Source(
    name="Kinesis",
    origins=frozenset({"aws:kinesis"}),
    records=_stream,
    identifier=lambda record: _text(field_at(record, "kinesis", "sequenceNumber")),
    sent=lambda record: _seconds(field_at(record, "kinesis", "approximateArrivalTimestamp")),
    restarts=True,
)
DYNAMODB = Source(
    name="DynamoDB Streams",
    origins=frozenset({"aws:dynamodb"}),
    records=_stream,
    identifier=lambda record: _text(field_at(record, "dynamodb", "SequenceNumber")),
    sent=lambda record: _seconds(field_at(record, "dynamodb", "ApproximateCreationDateTime")),
    restarts=True,
)
KAFKA = Source(
    name="Kafka",
    origins=frozenset({"aws:kafka", "SelfManagedKafka"}),
    records=_partitions,
    identifier=_kafka_position,
    sent=lambda record: _seconds(field_at(record, "timestamp"), 0.001),
)
