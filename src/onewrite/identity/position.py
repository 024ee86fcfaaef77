"""The keys that the transport gives a record: the id of a message, the position in a queue or a stream."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import cast

from onewrite.errors import ConfigurationError
from onewrite.identity.record import Identity, Record, field, kind, message, part, payload, refusal, text
from onewrite.message import Message, sortable

_DIGITS = re.compile("[0-9]{1,129}")  # Kinesis has the longest, of 129 digits at most


def sqs_message_id() -> Identity:
    """SQS's own messageId.

    Stable: across the redeliveries of one message, for as long as the queue keeps it. Not stable: a producer that sends
    twice makes two messages with two ids, and a redrive from a dead-letter queue sends a new message with a new id. Where
    either can happen, take a key of the business with `json_body`.
    """

    def identify(record: Record) -> Message:
        return message(record, text(record, "its messageId", field(record, "messageId")), body=payload(record))

    return identify


def fifo_sequence() -> Identity:
    """The position in a FIFO queue: queue and message group for the source, the SequenceNumber as sortable text.

    Stable: across the redeliveries of one message. Not stable: a producer that sends again after the five minutes in which
    the queue knows a deduplication id gets a new number, and so does a redrive from a dead-letter queue. That copy is above
    every mark: it is applied, and once more if it had been before. Where this matters, take a key of the business with
    `json_body`; a message that went to the dead-letter queue has lost its place in the group anyway.
    """

    def identify(record: Record) -> Message:
        key = text(record, "its messageId", field(record, "messageId"))
        attributes = part(record, "attributes")
        if "SequenceNumber" not in attributes:
            raise refusal(
                record, "it has no SequenceNumber: a standard queue keeps no order. Use json_body or sqs_message_id."
            )
        group = text(record, "its MessageGroupId", attributes.get("MessageGroupId"))
        # The numbers of two queues do not compare. A queue's ARN has no slash, a group may have.
        source = f"{_arn(record)}/{group}"
        return message(
            record, key, source=source, sequence=_sortable(record, attributes["SequenceNumber"]), body=payload(record)
        )

    return identify


def kinesis_position() -> Identity:
    """The position in a Kinesis stream: stream and shard for the source, the sequence number as sortable text.

    Stable: however often the stream is read. Not stable: a producer that puts a record again, be it after a time-out, puts
    a second record with a number of its own. After a resharding a partition key goes on in another shard: another source.
    The body is bytes; where they are JSON, `json.loads(message.body)`.
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
    """The position in a DynamoDB stream: stream and changed item for the source, the SequenceNumber as sortable text.

    Stable: however often the stream is read. Not stable: a writer that writes twice makes two changes, and each replica of
    a global table has a stream that numbers a change anew.

    Order holds for each item, and a record does not say its shard. So the source is the item, by a digest of its key. The
    body is the change: `eventName`, `Keys`, `NewImage` and what else there is, as DynamoDB's typed values.
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
    """The position in Kafka: topic and partition for the source, the offset for the sequence.

    Stable: however often the topic is read. Not stable: a producer that is not idempotent may write a record twice, at two
    offsets. And another cluster, or a topic that was deleted and made again, counts from 0 again, so that a mark takes its
    records for old ones: give each a `cluster` of its own.

    The body is bytes, or None where a record has no value; the record's key is `message.attributes["key"]`.
    """
    if not isinstance(cast("object", cluster), str):
        raise ConfigurationError(f"kafka_position(cluster={cluster!r}): name the cluster with a str.")
    prefix = f"{cluster}/" if cluster else ""

    def identify(record: Record) -> Message:
        topic = text(record, "its topic", field(record, "topic"))
        partition, offset = _int(record, "partition"), _int(record, "offset")
        source = f"{prefix}{topic}-{partition}"  # no topic has a slash in its name
        return message(record, f"{source}@{offset}", source=source, sequence=offset, body=payload(record))

    return identify


def _arn(record: Record) -> str:
    return text(record, "its eventSourceARN", record.get("eventSourceARN"))


def _sortable(record: Record, number: object) -> str:
    if not isinstance(number, str) or not _DIGITS.fullmatch(number):
        raise refusal(record, f"its sequence number is {kind(number)}, where a text of digits is needed.")
    return sortable(int(number))


def _int(record: Record, name: str) -> int:
    value = record.get(name)
    if type(value) is not int:
        raise refusal(record, f"its {name} is {kind(value)}, where an integer is needed.")
    return value


def _digest(record: Record, keys: object) -> str:
    """Of an item's key, the same for the same key: in the entity's ledger it is short, and in errors it shows nothing."""
    if isinstance(keys, dict) and keys:
        try:
            canonical = json.dumps(keys, sort_keys=True)
        except (TypeError, ValueError, RecursionError):
            pass
        else:
            return blake2b(canonical.encode(), digest_size=16).hexdigest()
    raise refusal(record, "its dynamodb.Keys are not the typed key of an item.")
