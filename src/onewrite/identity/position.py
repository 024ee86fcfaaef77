"""Keys that the transport gives a record: the id of a message, or the position in a queue or a stream."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import cast

from onewrite.errors import ConfigurationError
from onewrite.identity.record import Identity, Record, field, kind, message, part, payload, refusal, text
from onewrite.message import Message, sortable

_DIGITS = re.compile("[0-9]{1,129}")  # The longest numbers are those of Kinesis, with up to 129 digits.


def sqs_message_id() -> Identity:
    """SQS's own messageId.

    Stable: in all deliveries of one message, for as long as the queue keeps it. Not stable: a producer that sends twice makes
    two messages with two ids, and a redrive from a dead-letter queue sends a new message with a new id. If either can happen,
    read a business key with `json_body`.
    """

    def identify(record: Record) -> Message:
        return message(record, text(record, "its messageId", field(record, "messageId")), body=payload(record))

    return identify


def fifo_sequence() -> Identity:
    """The position in a FIFO queue. The source is the queue and the message group, the sequence is the SequenceNumber as
    sortable text.

    Stable: in all deliveries of one message. Not stable: a producer that sends again after the five minutes for which the
    queue remembers a deduplication id gets a new number, and so does a redrive from a dead-letter queue. The new number is
    higher than every mark, so that copy is applied, even if the first one was. If this matters, read a business key with
    `json_body`; a message that was in the dead-letter queue has lost its place in its group anyway.
    """

    def identify(record: Record) -> Message:
        key = text(record, "its messageId", field(record, "messageId"))
        attributes = part(record, "attributes")
        if "SequenceNumber" not in attributes:
            raise refusal(
                record, "it has no SequenceNumber, because a standard queue keeps no order. Use json_body or sqs_message_id."
            )
        group = text(record, "its MessageGroupId", attributes.get("MessageGroupId"))
        # The numbers of two queues cannot be compared. An ARN of a queue contains no slash, so that no two sources are equal.
        source = f"{_arn(record)}/{group}"
        return message(
            record, key, source=source, sequence=_sortable(record, attributes["SequenceNumber"]), body=payload(record)
        )

    return identify


def kinesis_position() -> Identity:
    """The position in a Kinesis stream. The source is the stream and the shard, the sequence is the number as sortable text.

    Stable: however often the stream is read. Not stable: a producer that puts a record again, for example after a time-out,
    makes a second record with its own number. After a resharding the records of a partition key are in another shard, which
    is another source. The body is bytes; if they are JSON, use `json.loads(message.body)`.
    """

    def identify(record: Record) -> Message:
        shard, colon, _ = text(record, "its eventID", field(record, "eventID")).rpartition(":")
        if not colon:
            raise refusal(record, "its eventID names no shard, as shardId-000000000000:1 does.")
        number = part(record, "kinesis").get("sequenceNumber")
        sequence, source = _sortable(record, number), f"{_arn(record)}/{shard}"
        return message(record, f"{source}:{number}", source=source, sequence=sequence, body=payload(record))

    return identify


def dynamodb_stream_position() -> Identity:
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
        source = f"{_arn(record)}/{_digest(record, change.get('Keys'))}"
        return message(
            record, key, source=source, sequence=_sortable(record, change.get("SequenceNumber")), body=payload(record)
        )

    return identify


def kafka_position(*, cluster: str = "") -> Identity:
    """The position in Kafka. The source is the topic and the partition, the sequence is the offset.

    Stable: however often the topic is read. Not stable: a producer that is not idempotent may write a record twice, at two
    offsets. Another cluster, or a topic that was deleted and created again, counts from 0 again, so that its records seem to
    be old ones: give each of them its own `cluster`.

    The body is bytes, or None if the record has no value. The record's key is `message.attributes["key"]`.
    """
    if not isinstance(cast("object", cluster), str):
        raise ConfigurationError(f"kafka_position(cluster={cluster!r}): give the cluster's name, as a str.")
    prefix = f"{cluster}/" if cluster else ""

    def identify(record: Record) -> Message:
        topic = text(record, "its topic", field(record, "topic"))
        partition, offset = _int(record, "partition"), _int(record, "offset")
        source = f"{prefix}{topic}-{partition}"  # The name of a topic contains no slash.
        return message(record, f"{source}@{offset}", source=source, sequence=offset, body=payload(record))

    return identify


def _arn(record: Record) -> str:
    return text(record, "its eventSourceARN", record.get("eventSourceARN"))


def _sortable(record: Record, number: object) -> str:
    if not isinstance(number, str) or not _DIGITS.fullmatch(number):
        raise refusal(record, f"its sequence number is {kind(number)}, but a text of digits is needed.")
    return sortable(int(number))


def _int(record: Record, name: str) -> int:
    value = record.get(name)
    if type(value) is not int:
        raise refusal(record, f"its {name} is {kind(value)}, but an integer is needed.")
    return value


def _digest(record: Record, keys: object) -> str:
    """A digest of an item's key. It is short, because ledgers store it, and it shows nothing of the key in errors."""
    if isinstance(keys, dict) and keys:
        try:
            canonical = json.dumps(keys, sort_keys=True)
        except (TypeError, ValueError, RecursionError):
            pass
        else:
            return blake2b(canonical.encode(), digest_size=16).hexdigest()
    raise refusal(record, "its dynamodb.Keys is not the typed key of an item.")
