"""The decorators. Each makes a function that Lambda calls with batches of one source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Unpack

from onewrite.aws_lambda import sources
from onewrite.batch.decorated import HandlerFunction, as_function, handler_of
from onewrite.batch.function import R
from onewrite.batch.handler import Handler, Options
from onewrite.batch.source import Source
from onewrite.errors import ConfigurationError
from onewrite.identity import Identity
from onewrite.message import Message


class Decorator(Protocol):
    """What each of these gives: it makes a handler of a function of one message."""

    def __call__(self, each: Callable[[Message], R], /) -> HandlerFunction[R]: ...


def sqs_handler(identity: Identity, **options: Unpack[Options]) -> Decorator:
    """Makes a handler of SQS batches, of a standard or a FIFO queue.

    On a standard queue the messages of a source are taken by their sequence, one at a time. A deferred one is tried again as
    soon as the one before it is in.

    >>> @sqs_handler(lambda record: Message(record["messageId"], body=record["body"]))
    ... def ship(message: Message) -> None:
    ...     if message.body == "poison":
    ...         raise ValueError
    >>> ship({"Records": [{"messageId": "m1", "body": "fine"}, {"messageId": "m2", "body": "poison"}]})
    {'batchItemFailures': [{'itemIdentifier': 'm2'}]}
    """
    return _decorator(sources.SQS, identity, options)


def kinesis_handler(identity: Identity, **options: Unpack[Options]) -> Decorator:
    """Makes a handler of batches of a Kinesis stream. It stops at the first failure, and Lambda restarts from there."""
    return _decorator(sources.KINESIS, identity, options)


def dynamodb_stream_handler(identity: Identity, **options: Unpack[Options]) -> Decorator:
    """Makes a handler of batches of a DynamoDB stream. It stops at the first failure, and Lambda restarts from there."""
    return _decorator(sources.DYNAMODB, identity, options)


def kafka_handler(identity: Identity, **options: Unpack[Options]) -> Decorator:
    """Makes a handler of batches of Kafka topics, of Amazon MSK or another cluster. A failure stops its own partition only."""
    return _decorator(sources.KAFKA, identity, options)


def documentdb_handler(identity: Identity, **options: Unpack[Options]) -> Decorator:
    """Makes a handler of batches of a change stream of DocumentDB.

    It stops at the first failure and raises `NotSettled`, upon which Lambda delivers the whole batch again: it reads no answer.
    """
    return _decorator(sources.DOCUMENTDB, identity, options)


def sns_handler(identity: Identity, **options: Unpack[Options]) -> Decorator:
    """Makes a handler of what SNS sends straight to Lambda. The record is as it is through SQS: take its envelope off with `sns(...)`.

    A message that is not settled raises `NotSettled`, upon which Lambda invokes the function again.
    """
    return _decorator(sources.SNS, identity, options)


def eventbridge_handler(identity: Identity, **options: Unpack[Options]) -> Decorator:
    """Makes a handler of what EventBridge sends straight to Lambda. The record is as it is through SQS: take its envelope off
    with `eventbridge(...)`.

    An event that is not settled raises `NotSettled`, upon which Lambda invokes the function again.
    """
    return _decorator(sources.EVENTBRIDGE, identity, options)


def s3_handler(identity: Identity, **options: Unpack[Options]) -> Decorator:
    """Makes a handler of what S3 sends straight to Lambda, for `s3_object()`.

    A notification that is not settled raises `NotSettled`, upon which Lambda invokes the function again.
    """
    return _decorator(sources.S3, identity, options)


def _decorator(source: Source, identity: Identity, options: Options) -> Decorator:
    def decorate(each: Callable[[Message], R], /) -> HandlerFunction[R]:
        if handler_of(each) is not None:
            raise ConfigurationError("This is a handler already: decorate the function of one message, which is its `each`.")
        return as_function(Handler(each, source, identity, **options))

    return decorate
