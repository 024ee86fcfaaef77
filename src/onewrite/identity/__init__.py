"""Identities: functions that turn a delivery into a `Message` with the same key on every delivery.

An `Identity` takes the raw record of a Lambda event. It returns a `Message`, a sequence of messages, or `Skip` for a record
that the function doesn't need. This package's functions create identities, and you can write your own. If a record has no
key, the identity raises `InvalidMessage`. The error names the record and the missing field, but shows none of the record's
content. Such a record fails; it is never processed without a guard.

`Message.attributes` has the sender's attributes: text or bytes from SQS and SNS, bytes from Kafka's headers.
The fields of a removed envelope are there too, and replace attributes of the same name. `Message.system` has values that only the
transport can set: `SenderId`, `ApproximateReceiveCount`, and others from SQS, `partitionKey` from Kinesis, `userIdentity`
from DynamoDB, `key` and `timestamp` from Kafka. An attribute is decoded on access, and raises `InvalidMessage` then if it
can't be decoded.

`Message.body` is parsed if the key was read from its JSON. Otherwise it is text from SQS, and bytes from Kinesis and Kafka.
Parsed fractions are Decimals, so that no digit is lost and because DynamoDB refuses floats. MongoDB refuses Decimals: pass
`parse_float=float` to the identity that parses the body. In `eventbridge(json_body(...))` that is `eventbridge`.
"""

from onewrite.identity.cloudevents import cloudevent, cloudevent_batch
from onewrite.identity.envelopes import eventbridge, skip_deletions, sns
from onewrite.identity.path import json_body, number
from onewrite.identity.position import (
    documentdb_position,
    dynamodb_stream_position,
    fifo_sequence,
    kafka_position,
    kinesis_position,
    sqs_message_id,
)
from onewrite.identity.record import Identity, Record, Skip, record_id
from onewrite.identity.s3 import s3_object

__all__ = [
    "Identity",
    "Record",
    "Skip",
    "cloudevent",
    "cloudevent_batch",
    "documentdb_position",
    "dynamodb_stream_position",
    "eventbridge",
    "fifo_sequence",
    "json_body",
    "kafka_position",
    "kinesis_position",
    "number",
    "record_id",
    "s3_object",
    "skip_deletions",
    "sns",
    "sqs_message_id",
]
