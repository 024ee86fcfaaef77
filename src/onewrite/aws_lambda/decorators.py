"""The decorators. Each makes a handler of batches of one source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from onewrite.aws_lambda.sources import DYNAMODB, KAFKA, KINESIS, SQS
from onewrite.batch.handler import Handler, Options, R
from onewrite.identity import Identity
from onewrite.message import Message


def sqs_handler(identity: Identity, **options: Unpack[Options]) -> Callable[[Callable[[Message], R]], Handler[R]]:
    """Makes a handler of SQS batches, of a standard or a FIFO queue.

    >>> @sqs_handler(lambda record: Message(record["messageId"], body=record["body"]))
    ... def ship(message: Message) -> None:
    ...     if message.body == "poison":
    ...         raise ValueError
    >>> ship({"Records": [{"messageId": "m1", "body": "fine"}, {"messageId": "m2", "body": "poison"}]})
    {'batchItemFailures': [{'itemIdentifier': 'm2'}]}
    """
    return lambda each: Handler(each, SQS, identity, **options)


def kinesis_handler(identity: Identity, **options: Unpack[Options]) -> Callable[[Callable[[Message], R]], Handler[R]]:
    """Makes a handler of batches of a Kinesis stream. It stops at the first failure, and Lambda restarts from there."""
    return lambda each: Handler(each, KINESIS, identity, **options)


def dynamodb_stream_handler(
    identity: Identity, **options: Unpack[Options]
) -> Callable[[Callable[[Message], R]], Handler[R]]:
    """Makes a handler of batches of a DynamoDB stream. It stops at the first failure, and Lambda restarts from there."""
    return lambda each: Handler(each, DYNAMODB, identity, **options)


def kafka_handler(identity: Identity, **options: Unpack[Options]) -> Callable[[Callable[[Message], R]], Handler[R]]:
    """Makes a handler of batches of Kafka topics, of Amazon MSK or another cluster. A failure stops its own partition only."""
    return lambda each: Handler(each, KAFKA, identity, **options)
