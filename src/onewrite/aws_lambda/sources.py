"""The event format of each source.

A record can lack any field, or have a field of the wrong type. Such a record fails alone. Nothing here raises for one
record, because these functions read the whole batch.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import repeat
from typing import Any, TypeAlias, cast

from onewrite.batch.source import Identifier, Source, field_at
from onewrite.identity import Skip
from onewrite.identity.envelopes import EVENT_FIELDS
from onewrite.identity.record import DOCUMENTDB as DOCUMENTDB_ORIGIN
from onewrite.identity.record import refuse_aggregated

_Event: TypeAlias = Mapping[str, Any] | list[Any]
_LanedRecords: TypeAlias = Iterable[tuple[Hashable, Any]] | None


def _read_text(value: object) -> str:
    """Return a string, or "" for any other value."""
    return value if isinstance(value, str) else ""


def _read_seconds(value: object, unit: float = 1.0) -> float:
    """Return a time in seconds from a number, or its text, in the given unit. Return NaN if it is neither."""
    if isinstance(value, datetime):  # parsed by a model of Powertools
        return value.timestamp()
    try:
        seconds = float(cast("str", value)) * unit
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return seconds if math.isfinite(seconds) else math.nan


def _read_list(event: _Event, name: str = "Records") -> list[Any] | None:
    """Return an event's list of records, or None if it has none. EventBridge Pipes sends the list itself."""
    records = event if isinstance(event, list) else event.get(name)
    return cast("list[Any]", records) if isinstance(records, list) else None


def _read_direct_list(event: _Event, name: str = "Records") -> list[Any] | None:
    """Return an event's list of records, or None. A list as the event is from EventBridge Pipes, which doesn't have this source."""
    return None if isinstance(event, list) else _read_list(event, name)


def _read_stream(event: _Event) -> _LanedRecords:
    """Return all records in one lane, because the source redelivers every record after a failed one.

    If a later record were processed now, its sequence would become the mark. The failed record would then be refused as
    stale.
    """
    records = _read_list(event)
    return None if records is None else [("", record) for record in records]


def _read_kinesis_stream(event: _Event) -> _LanedRecords:
    """Return the records of a Kinesis stream in their lane, each in Lambda's format, or None if the event has none."""
    laned_records = _read_stream(event)
    if laned_records is None or not isinstance(event, list):
        return laned_records
    return [(lane, _read_kinesis_record(record)) for lane, record in laned_records]


def _read_kinesis_record(record: Any) -> Any:
    """Return the record of a pipe in the form of a Lambda event, which has the stream's fields under `kinesis`."""
    if not isinstance(record, dict) or "kinesis" in record:
        return cast("object", record)
    fields = cast("dict[str, Any]", record)
    outer_fields = {name: value for name, value in fields.items() if name.startswith(("event", "aws", "invoke"))}
    return {**outer_fields, "kinesis": {name: value for name, value in fields.items() if name not in outer_fields}}


def _read_queue(event: _Event) -> _LanedRecords:
    """Return each message group of a FIFO queue in a lane of its own. The queue's ARN shows whether it is FIFO.

    Messages of a standard queue can have groups too, but those only balance consumers and imply no order.
    """
    records = _read_list(event)
    if records is None:
        return None
    if any(_read_text(field_at(record, "eventSourceARN")).endswith(".fifo") for record in records):
        # Records with an unreadable group share the lane "", because they could share a group.
        return [(_read_text(field_at(record, "attributes", "MessageGroupId")), record) for record in records]
    return zip(repeat(None), records)


def _read_partitions(event: _Event) -> _LanedRecords:
    """Return all records, each in the lane of its topic and partition, or None if the event doesn't come from Kafka."""
    if isinstance(event, list):  # from EventBridge Pipes
        return [(f"{field_at(record, 'topic')}-{field_at(record, 'partition')}", record) for record in event]
    partitions = event.get("records")
    if not isinstance(partitions, dict):
        return None
    records_by_lane = cast("dict[str, Any]", partitions)
    if not all(isinstance(records, list) for records in records_by_lane.values()):
        return None
    return [(lane, record) for lane, records in records_by_lane.items() for record in records]


def _read_changes(event: _Event) -> _LanedRecords:
    """Return DocumentDB's changes in one lane, each with the fields that other sources put into the record."""
    changes = _read_direct_list(event, "events")
    if changes is None or isinstance(event, list):
        return None
    common = {"eventSource": event.get("eventSource", DOCUMENTDB_ORIGIN), "eventSourceARN": event.get("eventSourceArn")}
    return [
        ("", {"event": field_at(entry, "event"), "eventID": field_at(entry, "event", "_id", "_data"), **common})
        for entry in changes
    ]


def _read_notifications(event: _Event) -> _LanedRecords:
    """Return SNS's notifications in the format that they have through SQS."""
    records = _read_direct_list(event)
    contents = [field_at(record, "Sns") for record in records or ()]
    if records is None or not all(contents):
        return None
    return [
        (None, _make_record(content, "aws:sns", field_at(content, "MessageId"), field_at(content, "TopicArn")))
        for content in contents
    ]


def _read_one_event(event: _Event) -> _LanedRecords:
    """Return an EventBridge event in the format that it has through SQS."""
    if isinstance(event, list) or not event.keys() >= EVENT_FIELDS:
        return None
    return [(None, _make_record(dict(event), "aws:events", event["id"], None))]


def _read_objects(event: _Event) -> _LanedRecords:
    """Return each object of an S3 notification as a record in SQS's format."""
    records = _read_direct_list(event)
    if records is None or not all(field_at(record, "s3") for record in records):
        return None
    return [
        (None, _make_record({"Records": [record]}, "aws:s3", field_at(record, "responseElements", "x-amz-request-id"), None))
        for record in records
    ]


def _make_record(body: Any, origin: str, message_id: object, arn: object) -> dict[str, Any]:
    """Return a record in SQS's format. Its body is text, because the identity chooses how to parse numbers."""
    try:
        text = json.dumps(body)
    except (TypeError, ValueError):  # a model of Powertools has parsed the text
        text = body
    return {"messageId": message_id, "body": text, "eventSource": origin, "eventSourceARN": arn}


def _make_body_time_reader(name: str) -> Callable[[Any], float]:
    """Return a function that reads the send time from this field of a record's body, which `_make_record` has made. Without one, it's NaN."""

    def read_sent_at(record: Any) -> float:
        body = field_at(record, "body")
        content = json.loads(body) if isinstance(body, str) else body
        time = field_at(content, name)
        try:
            # A model of Powertools parses the text into a datetime.
            moment = time if isinstance(time, datetime) else datetime.fromisoformat(_read_text(time))
            return moment.timestamp()
        except (ValueError, OverflowError):
            return math.nan

    return read_sent_at


def _skip_s3_test(record: dict[str, Any]) -> Skip | None:
    """Return a Skip for S3's test message, which S3 sends when you set up a notification, also through SNS. Return None for others."""
    body = record.get("body")
    if not isinstance(body, str) or "s3:TestEvent" not in body:  # avoids parsing other bodies
        return None
    try:
        content = json.loads(body)
        inner = field_at(content, "Message") if field_at(content, "Type") == "Notification" else None
        notification = json.loads(inner) if isinstance(inner, str) else content
    except (ValueError, RecursionError):  # not JSON, which the identity judges
        return None
    is_test = (field_at(notification, "Event"), field_at(notification, "Service")) == ("s3:TestEvent", "Amazon S3")
    return Skip("s3:TestEvent") if is_test else None


def _read_receive_count(record: Any) -> int | None:
    """Return how often SQS has delivered a message, or None if the record doesn't say so."""
    try:
        return int(cast("str", field_at(record, "attributes", "ApproximateReceiveCount")))
    except (TypeError, ValueError, OverflowError):
        return None


def _read_kafka_position(record: Any) -> Identifier:
    """Return a record's partition and offset, or "" if they can't be read."""
    topic, partition, offset = field_at(record, "topic"), field_at(record, "partition"), field_at(record, "offset")
    if not _read_text(topic) or type(partition) is not int or type(offset) is not int:
        return ""
    return f"{topic}-{partition}", offset


SQS = Source(
    name="SQS",
    origins=frozenset({"aws:sqs"}),
    records=_read_queue,
    named_as_in_pipes=True,
    screen=_skip_s3_test,
    identifier=lambda record: _read_text(field_at(record, "messageId")),
    sent_at=lambda record: _read_seconds(field_at(record, "attributes", "SentTimestamp"), 0.001),
    attempt=_read_receive_count,
)
KINESIS = Source(
    name="Kinesis",
    origins=frozenset({"aws:kinesis"}),
    records=_read_kinesis_stream,
    screen=refuse_aggregated,
    decodes=True,
    identifier=lambda record: _read_text(field_at(record, "kinesis", "sequenceNumber")),
    sent_at=lambda record: _read_seconds(field_at(record, "kinesis", "approximateArrivalTimestamp")),
    restarts=True,
)
DYNAMODB = Source(
    name="DynamoDB Streams",
    origins=frozenset({"aws:dynamodb"}),
    decodes=True,
    records=_read_stream,
    identifier=lambda record: _read_text(field_at(record, "dynamodb", "SequenceNumber")),
    sent_at=lambda record: _read_seconds(field_at(record, "dynamodb", "ApproximateCreationDateTime")),
    restarts=True,
)
KAFKA = Source(
    name="Kafka",
    origins=frozenset({"aws:kafka", "SelfManagedKafka", "aws:SelfManagedKafka"}),  # the documentation and real events differ
    decodes=True,
    records=_read_partitions,
    identifier=_read_kafka_position,
    sent_at=lambda record: _read_seconds(field_at(record, "timestamp"), 0.001),
    raises=True,
)
# Only in provisioned mode can a Kafka event source mapping have ReportBatchItemFailures:
# https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html
KAFKA_IN_PROVISIONED_MODE = replace(KAFKA, raises=False)
DOCUMENTDB = Source(
    name="DocumentDB",
    origins=frozenset({DOCUMENTDB_ORIGIN}),
    records=_read_changes,
    identifier=lambda record: _read_text(field_at(record, "eventID")),
    sent_at=lambda record: _read_seconds(field_at(record, "event", "clusterTime", "$timestamp", "t")),
    restarts=True,
    raises=True,
)
SNS = Source(
    name="SNS",
    origins=frozenset({"aws:sns"}),
    records=_read_notifications,
    screen=_skip_s3_test,
    identifier=lambda record: _read_text(field_at(record, "messageId")),
    sent_at=_make_body_time_reader("Timestamp"),
    raises=True,
)
EVENTBRIDGE = Source(
    name="EventBridge",
    origins=frozenset({"aws:events"}),
    records=_read_one_event,
    identifier=lambda record: _read_text(field_at(record, "messageId")),
    sent_at=_make_body_time_reader("time"),
    raises=True,
)
S3 = Source(
    name="S3",
    origins=frozenset({"aws:s3"}),
    records=_read_objects,
    identifier=lambda record: _read_text(field_at(record, "messageId")),
    sent_at=lambda _: math.nan,
    raises=True,
)


def make_lambda_record(message: Mapping[str, Any], queue_arn: str) -> dict[str, Any]:
    """Return Lambda's record for a message of ReceiveMessage."""
    record: dict[str, Any] = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message.get("Body", ""),
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {
            name: _read_message_attribute(value) for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message.get("MD5OfBody", ""),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }
    if "MD5OfMessageAttributes" in message:
        record["md5OfMessageAttributes"] = message["MD5OfMessageAttributes"]
    return record


def _read_message_attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attribute of an SQS message, as boto3 returns it, in the form of a Lambda event."""
    attribute: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "StringValue" in value:
        attribute["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        attribute["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
    return attribute
