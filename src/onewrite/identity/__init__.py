"""From a delivery to a `Message`: the key that tells whether two deliveries are the same message.

An `Identity` is a function that takes the raw record of a Lambda event and returns a `Message`, or `Skip` for a record that is not
for the function, or a sequence of messages. The functions of this package make identities, and you may write your own. If
there is no key, an identity raises `InvalidMessage`, which names the record's id and what was looked for, but shows nothing of
the record's content. Such a record fails; it is never processed without a guard.

`Message.attributes` holds what the sender put beside the body: from SQS and SNS as text, or as bytes if it is binary; from
the headers of Kafka as bytes. The fields of an envelope that was taken off are there too, and replace an attribute of the same
name. `Message.system` holds what only the transport can say: `SenderId`, `ApproximateReceiveCount` and others from SQS,
`partitionKey` from Kinesis, `userIdentity` from DynamoDB, `key` and `timestamp` from Kafka. An attribute is decoded when it is
asked for; one that cannot be raises `InvalidMessage` then.

`Message.body` is parsed if the key was read from its JSON. Otherwise it is as it was delivered: text from SQS, bytes from
Kinesis and Kafka. Parsed numbers with a fraction are Decimals, so nothing is rounded, and because DynamoDB accepts no
floats. MongoDB accepts no Decimals: there, give `parse_float=float` to the identity that parses the body. In
`eventbridge(json_body(...))` that is `eventbridge`.
"""

from onewrite.identity.body import cloudevent, cloudevent_batch, eventbridge, s3_object, skip_deletions, sns
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
