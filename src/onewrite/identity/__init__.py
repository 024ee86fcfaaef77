"""From a delivery to a `Message`: which key says that two deliveries are the same message.

An `Identity` takes the raw record of a Lambda event (SQS, Kinesis, DynamoDB Streams, Kafka) and gives a `Message`. Those of
this package are made by functions; a function of your own is one too. What yields no key raises `InvalidMessage`, which names
the record's id and what was looked for, never what the record holds: such a record fails, and is never processed unguarded.

`Message.attributes` holds the record's user attributes by name (SQS and SNS: text, or bytes where they are binary; Kafka
headers: bytes) over what the system says of the record: `ApproximateReceiveCount` and its like from SQS, `partitionKey` from
Kinesis, `userIdentity` from DynamoDB, `key` and `timestamp` from Kafka, and the fields of an envelope that was taken off.

`Message.body` is parsed where the key was read from JSON, else it is as it came: text from SQS, bytes from Kinesis and Kafka.
Parsed numbers with a fraction are Decimals: nothing is rounded, and DynamoDB takes no floats. MongoDB takes no Decimals:
`parse_float=float` is for there. What parses the body takes it, so with `eventbridge(json_body(...))` that is `eventbridge`.
"""

from onewrite.identity.body import json_body
from onewrite.identity.cloudevents import cloudevent
from onewrite.identity.envelope import eventbridge, sns
from onewrite.identity.position import (
    dynamodb_stream_position,
    fifo_sequence,
    kafka_position,
    kinesis_position,
    sqs_message_id,
)
from onewrite.identity.record import Identity, Record, record_id

__all__ = [
    "Identity",
    "Record",
    "cloudevent",
    "dynamodb_stream_position",
    "eventbridge",
    "fifo_sequence",
    "json_body",
    "kafka_position",
    "kinesis_position",
    "record_id",
    "sns",
    "sqs_message_id",
]
