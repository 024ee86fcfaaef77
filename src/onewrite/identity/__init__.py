"""From a delivery to a `Message`: the key that tells whether two deliveries are the same message.

An `Identity` is a function that takes the raw record of a Lambda event (SQS, Kinesis, DynamoDB Streams, Kafka) and returns a
`Message`. The functions of this package make identities, and you may write your own. If there is no key, an identity raises
`InvalidMessage`, which names the record's id and what was looked for, but shows nothing of the record's content. Such a
record fails; it is never processed without a guard.

`Message.attributes` holds the record's user attributes by name: from SQS and SNS as text, or as bytes if they are binary; from
the headers of Kafka as bytes. It also holds what the system says about the record, unless a user attribute has the same name:
`ApproximateReceiveCount` and others from SQS, `partitionKey` from Kinesis, `userIdentity` from DynamoDB, `key` and `timestamp`
from Kafka, and the fields of an envelope that was taken off.

`Message.body` is parsed if the key was read from its JSON. Otherwise it is as it was delivered: text from SQS, bytes from
Kinesis and Kafka. Parsed numbers with a fraction are Decimals, so that nothing is rounded, and because DynamoDB accepts no
floats. MongoDB accepts no Decimals: there, give `parse_float=float` to the identity that parses the body. In
`eventbridge(json_body(...))` that is `eventbridge`.
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
