"""Keys that the transport gives a record: the id of a message, or the position in a queue or a stream."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import Any, cast

from onewrite.errors import ConfigurationError
from onewrite.identity.record import OneMessage, Record, field, kind, part, refusal, text, whole_message
from onewrite.message import Message, sortable

_DIGITS = re.compile("[0-9]{1,129}")  # The longest numbers are those of Kinesis, with up to 129 digits.


def sqs_message_id() -> OneMessage:
    """SQS's own messageId.

    Stable: in all deliveries of one message, for as long as the queue keeps it. Not stable: a producer that sends twice makes
    two messages with two ids, and a redrive from a dead-letter queue sends a new message with a new id. If either can happen,
    read a business key with `json_body`. The body is text; if it is JSON, use `json.loads(message.body)`.
    """

    def identify(record: Record) -> Message:
        return whole_message(record, text(record, "its messageId", field(record, "messageId")))

    return identify


def fifo_sequence() -> OneMessage:
    """The position in a FIFO queue. The source is the queue and the message group, the sequence is the SequenceNumber as
    sortable text.

    Stable: in all deliveries of one message. Not stable: a producer that sends again after the five minutes for which the
    queue remembers a deduplication id gets a new number, and so does a redrive from a dead-letter queue. The new number is
    higher than every mark, so that copy is applied, even if the first one was. If this matters, read a business key with
    `json_body`; a message that was in the dead-letter queue has lost its place in its group anyway.

    The body is text; if it is JSON, use `json.loads(message.body)`.
    """

    def identify(record: Record) -> Message:
        key = text(record, "its messageId", field(record, "messageId"))
        attributes = part(record, "attributes")
        if "SequenceNumber" not in attributes:
            raise refusal(
                record, "it has no SequenceNumber, because a standard queue keeps no order. Use json_body or sqs_message_id."
            )
        group = text(record, "its MessageGroupId", attributes.get("MessageGroupId"))
        # The numbers of two queues cannot be compared. An ARN of a queue contains no slash, so no two sources are equal.
        source = f"{_arn(record)}/{group}"
        return whole_message(record, key, source=source, sequence=_sortable(record, attributes["SequenceNumber"]))

    return identify


def kinesis_position() -> OneMessage:
    """The position in a Kinesis stream. The source is the stream and the shard, the sequence is the number as sortable text.

    Stable: however often the stream is read. Not stable: a producer that puts a record again, for example after a time-out,
    makes a second record with its own number. After a resharding the records of a partition key are in another shard, which
    is another source. The body is bytes; if they are JSON, use `json.loads(message.body)`.

    A record that the Kinesis Producer Library has aggregated of several is refused. Once it is taken apart, each of them has
    its own position: the `subSequenceNumber` is in the id and at the end of the sequence.
    """

    def identify(record: Record) -> Message:
        shard, colon, _ = text(record, "its eventID", field(record, "eventID")).rpartition(":")
        if not colon:
            raise refusal(record, "its eventID names no shard, as shardId-000000000000:1 does.")
        kinesis, source = part(record, "kinesis"), f"{_arn(record)}/{shard}"
        number = kinesis.get("sequenceNumber")
        key, sequence = f"{source}:{number}", _sortable(record, number)
        if "subSequenceNumber" in kinesis:  # Those that were in one record of Kinesis all have its sequence number.
            sub_number = _int(record, kinesis, "subSequenceNumber")
            key, sequence = f"{key}:{sub_number}", f"{sequence}{_sortable(record, str(sub_number))}"
        return whole_message(record, key, source=source, sequence=sequence)

    return identify


def dynamodb_stream_position() -> OneMessage:
    """The position in a DynamoDB stream. The source is the stream and the changed item, the sequence is the SequenceNumber as
    sortable text.

    Stable: however often the stream is read. Not stable: a writer that writes twice makes two changes, and each replica of a
    global table has its own stream with its own numbers.

    The changes of one item are in order, and a record does not say in which shard it is. So the source is the item, by a
    digest of its key. The body is the change: `eventName`, `Keys`, `NewImage` and so on, with DynamoDB's typed values.
    """

    def identify(record: Record) -> Message:
        change = part(record, "dynamodb")
        key = text(record, "its eventID", field(record, "eventID"))
        source = f"{_arn(record)}/{_digest(record, change.get('Keys'), 'dynamodb.Keys')}"
        return whole_message(record, key, source=source, sequence=_sortable(record, change.get("SequenceNumber")))

    return identify


def kafka_position(*, cluster: str = "") -> OneMessage:
    """The position in Kafka. The source is the topic and the partition, the sequence is the offset.

    Stable: however often the topic is read. Not stable: a producer that is not idempotent may write a record twice, at two
    offsets. Another cluster, or a topic that was deleted and created again, counts from 0 again, so its records seem to
    be old ones: give each of them its own `cluster`.

    The body is bytes, or None if the record has no value. The record's key is `message.system["key"]`.
    """
    if not isinstance(cast("object", cluster), str):
        raise ConfigurationError(f"kafka_position(cluster={cluster!r}): give the cluster's name, as a str.")
    prefix = f"{cluster}/" if cluster else ""

    def identify(record: Record) -> Message:
        topic = text(record, "its topic", field(record, "topic"))
        partition, offset = _int(record, record, "partition"), _int(record, record, "offset")
        source = f"{prefix}{topic}-{partition}"  # The name of a topic contains no slash.
        return whole_message(record, f"{source}@{offset}", source=source, sequence=offset)

    return identify


def documentdb_position() -> OneMessage:
    """The position in a change stream of DocumentDB. The source is the changed document, the sequence is the cluster's time with
    the change's resume token.

    Stable: however often the stream is read. Not stable: a writer that writes twice makes two changes.

    The source is the cluster, the collection and a digest of the document's key. The body is the change as DocumentDB
    has it: `operationType`, `fullDocument` and so on, in MongoDB's extended JSON.
    """

    def identify(record: Record) -> Message:
        change = part(record, "event")
        token = text(record, "its resume token", part(record, "_id", change).get("_data"))
        names = part(record, "ns", change)
        collection = f"{text(record, 'its ns.db', names.get('db'))}.{text(record, 'its ns.coll', names.get('coll'))}"
        source = f"{_arn(record)}/{collection}/{_digest(record, change.get('documentKey'), 'documentKey')}"
        return whole_message(record, f"{_arn(record)}:{token}", source=source, sequence=_moment(record, change, token))

    return identify


def _moment(record: Record, change: Record, token: str) -> str:
    """When the change was made. The changes of one transaction have the same time, and their tokens tell them apart."""
    timestamp = part(record, "$timestamp", part(record, "clusterTime", change))
    seconds, count = timestamp.get("t"), timestamp.get("i")
    if type(seconds) is not int or type(count) is not int or not 0 <= count < 2**32 or seconds < 0:
        raise refusal(record, "its clusterTime is not a timestamp of two integers.")
    return f"{sortable(seconds * 2**32 + count)}-{token}"


def _arn(record: Record) -> str:
    return text(record, "its eventSourceARN", record.get("eventSourceARN"))


def _sortable(record: Record, number: object) -> str:
    if not isinstance(number, str) or not _DIGITS.fullmatch(number):
        raise refusal(record, f"its sequence number is {kind(number)}, but a text of digits is needed.")
    return sortable(int(number))


def _int(record: Record, fields: Record, name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise refusal(record, f"its {name} is {kind(value)}, but an integer is needed.")
    return value


def _digest(record: Record, keys: Any, subject: str) -> str:
    """A digest of the key of an item or a document. It is short, because ledgers store it, and it shows nothing of the key in errors."""
    if isinstance(keys, dict) and keys:
        try:
            canonical = json.dumps(keys, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            pass
        else:
            return blake2b(canonical.encode(), digest_size=16).hexdigest()
    raise refusal(record, f"its {subject} is not the key of what has changed.")
