"""Keys that the transport assigns, such as a message's ID, or a position in a queue or stream."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import Any, cast

from onewrite.errors import ConfigurationError
from onewrite.identity.record import (
    OneMessage,
    Record,
    describe_type,
    make_refusal,
    make_whole_message,
    read_field,
    read_part,
    require_text,
)
from onewrite.message import Message, sortable

_DIGITS = re.compile("[0-9]{1,129}")  # Kinesis's numbers are the longest, with up to 129 digits


def sqs_message_id() -> OneMessage:
    """Return an identity that reads SQS's own messageId.

    Stable: across all deliveries of one message, as long as the queue keeps it. Not stable: a repeated send is another
    message with another ID, and so is a redrive from a dead-letter queue. If either can happen, read a business key with
    `json_body`. The body is text; if it is JSON, use `json.loads(message.body)`.
    """

    def identify(record: Record) -> Message:
        return make_whole_message(record, require_text(record, "its messageId", read_field(record, "messageId")))

    return identify


def fifo_sequence() -> OneMessage:
    """Return an identity that reads the position in a FIFO queue.

    The source is the queue and message group, and the sequence is the SequenceNumber as sortable text.

    Stable: across all deliveries of one message. Not stable: a producer that resends after the queue's five-minute
    deduplication gets a new number, and so does a redrive from a dead-letter queue. The new number is above every mark, so
    the copy is applied even if the first one was. If this matters, read a business key with `json_body`. A message from the
    dead-letter queue has lost its place in its group anyway.

    The body is text; if it is JSON, use `json.loads(message.body)`.
    """

    def identify(record: Record) -> Message:
        key = require_text(record, "its messageId", read_field(record, "messageId"))
        attributes = read_part(record, "attributes")
        if "SequenceNumber" not in attributes:
            raise make_refusal(
                record, "it has no SequenceNumber, because a standard queue keeps no order. Use json_body or sqs_message_id."
            )
        group = require_text(record, "its MessageGroupId", attributes.get("MessageGroupId"))
        # Numbers of two queues can't be compared. A queue's ARN contains no slash, so two sources are never equal.
        source = f"{_read_arn(record)}/{group}"
        return make_whole_message(record, key, source=source, sequence=_make_sortable(record, attributes["SequenceNumber"]))

    return identify


def kinesis_position() -> OneMessage:
    """Return an identity that reads the position in a Kinesis stream.

    The source is the stream and shard, and the sequence is the number as sortable text.

    Stable: however often the stream is read. Not stable: a producer that puts a record again, for example after a timeout,
    creates another record with its own number. After resharding, the records of a partition key are in another shard, and so
    in another source. The body is bytes; if they are JSON, use `json.loads(message.body)`.

    A record that the Kinesis Producer Library aggregated is refused. Deaggregated records have a position each: the
    `subSequenceNumber` is in the id and at the end of the sequence.
    """

    def identify(record: Record) -> Message:
        shard, colon, _ = require_text(record, "its eventID", read_field(record, "eventID")).rpartition(":")
        if not colon:
            raise make_refusal(record, "its eventID: expected a shard and a number, such as shardId-000000000000:1.")
        kinesis = read_part(record, "kinesis")
        source = f"{_read_arn(record)}/{shard}"
        number = kinesis.get("sequenceNumber")
        sequence = _make_sortable(record, number)
        key = f"{source}:{number}"
        if "subSequenceNumber" in kinesis:  # deaggregated records share the sequence number of their Kinesis record
            sub_number = _read_int(record, kinesis, "subSequenceNumber")
            key += f":{sub_number}"
            sequence += _make_sortable(record, str(sub_number))
        return make_whole_message(record, key, source=source, sequence=sequence)

    return identify


def dynamodb_stream_position() -> OneMessage:
    """Return an identity that reads the position in a DynamoDB stream.

    The source is the stream and the changed item, and the sequence is the SequenceNumber as sortable text.

    Stable: however often the stream is read. Not stable: a repeated write is a second change, and each replica of a global
    table has its own stream with its own numbers.

    The changes of one item are ordered, but a record doesn't name its shard. So the source is the item, as a digest of its
    key. The body is the change: `eventName`, `Keys`, `NewImage`, and so on, with DynamoDB's typed values.
    """

    def identify(record: Record) -> Message:
        change = read_part(record, "dynamodb")
        key = require_text(record, "its eventID", read_field(record, "eventID"))
        source = f"{_read_arn(record)}/{_hash_key(record, change.get('Keys'), 'dynamodb.Keys')}"
        return make_whole_message(record, key, source=source, sequence=_make_sortable(record, change.get("SequenceNumber")))

    return identify


def kafka_position(*, cluster: str = "") -> OneMessage:
    """Return an identity that reads the position in Kafka.

    The source is the topic and partition, and the sequence is the offset.

    Stable: however often the topic is read. Not stable: a producer that isn't idempotent can write a record twice, at two
    offsets. Another cluster, or a re-created topic, counts from 0 again, so its records would look old. Give each of them
    its own `cluster`.

    The body is bytes, or None if the record has no value. The record's key is `message.system["key"]`.
    """
    if not isinstance(cast("object", cluster), str):
        raise ConfigurationError(
            f"kafka_position(cluster={cluster!r}): expected the cluster's name as a str, got a {type(cluster).__name__}."
        )
    prefix = f"{cluster}/" if cluster else ""

    def identify(record: Record) -> Message:
        topic = require_text(record, "its topic", read_field(record, "topic"))
        partition, offset = _read_int(record, record, "partition"), _read_int(record, record, "offset")
        source = f"{prefix}{topic}-{partition}"  # a topic's name contains no slash
        return make_whole_message(record, f"{source}@{offset}", source=source, sequence=offset)

    return identify


def documentdb_position() -> OneMessage:
    """Return an identity that reads the position in a DocumentDB change stream.

    The source is the changed document, and the sequence is the cluster time with the resume token.

    Stable: however often the stream is read. Not stable: a repeated write is a second change.

    The source is the cluster, the collection, and a digest of the document's key. The body is DocumentDB's change:
    `operationType`, `fullDocument`, and so on, in MongoDB's extended JSON.
    """

    def identify(record: Record) -> Message:
        change = read_part(record, "event")
        token = require_text(record, "its resume token", read_part(record, "_id", change).get("_data"))
        names = read_part(record, "ns", change)
        database = require_text(record, "its ns.db", names.get("db"))
        collection = require_text(record, "its ns.coll", names.get("coll"))
        source = f"{_read_arn(record)}/{database}.{collection}/{_hash_key(record, change.get('documentKey'), 'documentKey')}"
        return make_whole_message(
            record, f"{_read_arn(record)}:{token}", source=source, sequence=_read_moment(record, change, token)
        )

    return identify


def _read_moment(record: Record, change: Record, token: str) -> str:
    """Return the change's time with its token, which distinguishes the changes of one transaction."""
    timestamp = read_part(record, "$timestamp", read_part(record, "clusterTime", change))
    seconds, count = timestamp.get("t"), timestamp.get("i")
    if type(seconds) is not int or type(count) is not int or not 0 <= count < 2**32 or seconds < 0:
        raise make_refusal(record, "its clusterTime: expected a timestamp of two integers.")
    # A timestamp orders by its seconds, and then by its 32-bit count.
    return f"{sortable(seconds * 2**32 + count)}-{token}"


def _read_arn(record: Record) -> str:
    return require_text(record, "its eventSourceARN", record.get("eventSourceARN"))


def _make_sortable(record: Record, number: object) -> str:
    """Return a sequence number of AWS's, a string of digits, as sortable text."""
    if not isinstance(number, str) or not _DIGITS.fullmatch(number):
        raise make_refusal(record, f"its sequence number: expected a string of digits, got {describe_type(number)}.")
    return sortable(int(number))


def _read_int(record: Record, fields: Record, name: str) -> int:
    """Return the int of this name in a part of the record."""
    value = fields.get(name)
    if type(value) is not int:
        raise make_refusal(record, f"its {name}: expected an integer, got {describe_type(value)}.")
    return value


def _hash_key(record: Record, keys: Any, subject: str) -> str:
    """Return a digest of an item's or document's key. It is short, because ledgers store it, and it shows no content in errors."""
    if isinstance(keys, dict) and keys:
        try:
            canonical = json.dumps(keys, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            pass  # refused outside of the `except`: see record.py
        else:
            return blake2b(canonical.encode(), digest_size=16).hexdigest()
    raise make_refusal(record, f"its {subject}: expected the key of the changed entity.")
