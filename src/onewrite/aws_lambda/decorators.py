"""The decorators. Each makes a function that Lambda calls with batches of one source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, Unpack, overload

from onewrite.aws_lambda import sources
from onewrite.batch.decorated import GroupHandlerFunction, HandlerFunction, as_function, handler_of
from onewrite.batch.function import G, R
from onewrite.batch.grouping.handler import GroupHandler
from onewrite.batch.grouping.records import GroupBy
from onewrite.batch.handler import Handler, Options
from onewrite.batch.source import Source
from onewrite.errors import ConfigurationError
from onewrite.identity import Identity
from onewrite.message import Message

E = TypeVar("E", bound=Callable[..., object])


class Decorator(Protocol):
    """What each of these gives: it makes a handler of a function of one message."""

    def __call__(self, each: Callable[[Message], R], /) -> HandlerFunction[R]: ...


class GroupDecorator(Protocol):
    """What those give that were told `group_by`: it makes a handler of a function of several messages."""

    def __call__(self, each: Callable[[list[Message]], G], /) -> GroupHandlerFunction[G]: ...


@overload
def sqs_handler(identity: Identity, *, group_by: None = None, **options: Unpack[Options]) -> Decorator: ...
@overload
def sqs_handler(identity: Identity, *, group_by: GroupBy, **options: Unpack[Options]) -> GroupDecorator: ...
def sqs_handler(
    identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]
) -> Decorator | GroupDecorator:
    """Makes a handler of SQS batches, of a standard or a FIFO queue.

    On a standard queue the messages of a source are taken by their sequence, one at a time. A deferred one is tried again as
    soon as the one before it is in. With `group_by` the function takes a list of messages: see `GroupHandler`.

    >>> @sqs_handler(lambda record: Message(record["messageId"], body=record["body"]))
    ... def ship(message: Message) -> None:
    ...     if message.body == "poison":
    ...         raise ValueError
    >>> ship({"Records": [{"messageId": "m1", "body": "fine"}, {"messageId": "m2", "body": "poison"}]})
    {'batchItemFailures': [{'itemIdentifier': 'm2'}]}
    """
    return _of_any(sources.SQS, identity, group_by, options)


@overload
def kinesis_handler(identity: Identity, *, group_by: None = None, **options: Unpack[Options]) -> Decorator: ...
@overload
def kinesis_handler(identity: Identity, *, group_by: GroupBy, **options: Unpack[Options]) -> GroupDecorator: ...
def kinesis_handler(
    identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]
) -> Decorator | GroupDecorator:
    """Makes a handler of batches of a Kinesis stream, with `group_by` of several messages a call. It stops at the first failure, and Lambda restarts from there."""
    return _of_any(sources.KINESIS, identity, group_by, options)


@overload
def dynamodb_stream_handler(identity: Identity, *, group_by: None = None, **options: Unpack[Options]) -> Decorator: ...
@overload
def dynamodb_stream_handler(identity: Identity, *, group_by: GroupBy, **options: Unpack[Options]) -> GroupDecorator: ...
def dynamodb_stream_handler(
    identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]
) -> Decorator | GroupDecorator:
    """Makes a handler of batches of a DynamoDB stream, with `group_by` of several messages a call. It stops at the first failure, and Lambda restarts from there."""
    return _of_any(sources.DYNAMODB, identity, group_by, options)


@overload
def kafka_handler(
    identity: Identity, *, group_by: None = None, provisioned_mode: bool = False, **options: Unpack[Options]
) -> Decorator: ...
@overload
def kafka_handler(
    identity: Identity, *, group_by: GroupBy, provisioned_mode: bool = False, **options: Unpack[Options]
) -> GroupDecorator: ...
def kafka_handler(
    identity: Identity, *, group_by: GroupBy | None = None, provisioned_mode: bool = False, **options: Unpack[Options]
) -> Decorator | GroupDecorator:
    """Makes a handler of batches of Kafka topics, of Amazon MSK or another cluster, with `group_by` of several messages a call.

    A failure stops its own partition only. Then it raises `NotSettled`, upon which Lambda delivers the whole batch again: it reads no
    answer, unless the event source mapping is in provisioned mode and has ReportBatchItemFailures. Where it is and has,
    `provisioned_mode=True` answers with what must come again. Where it is not, that would lose whatever failed.
    """
    if type(provisioned_mode) is not bool:
        raise ConfigurationError(f"provisioned_mode={provisioned_mode!r}: give True or False.")
    source = sources.KAFKA_IN_PROVISIONED_MODE if provisioned_mode else sources.KAFKA
    return _of_any(source, identity, group_by, options)


@overload
def documentdb_handler(identity: Identity, *, group_by: None = None, **options: Unpack[Options]) -> Decorator: ...
@overload
def documentdb_handler(identity: Identity, *, group_by: GroupBy, **options: Unpack[Options]) -> GroupDecorator: ...
def documentdb_handler(
    identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]
) -> Decorator | GroupDecorator:
    """Makes a handler of batches of a change stream of DocumentDB, with `group_by` of several messages a call.

    It stops at the first failure and raises `NotSettled`, upon which Lambda delivers the whole batch again: it reads no answer.
    """
    return _of_any(sources.DOCUMENTDB, identity, group_by, options)


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


def _of_any(source: Source, identity: Identity, group_by: GroupBy | None, options: Options) -> Decorator | GroupDecorator:
    return (
        _decorator(source, identity, options) if group_by is None else _group_decorator(source, identity, group_by, options)
    )


def _decorator(source: Source, identity: Identity, options: Options) -> Decorator:
    if "group_by" in options:
        raise ConfigurationError(
            f"{source.name} gives one record at a time, so that group_by has nothing to group: leave it out."
        )

    def decorate(each: Callable[[Message], R], /) -> HandlerFunction[R]:
        return as_function(Handler(_undecorated(each), source, identity, **options))  # type: ignore[no-any-return]  # made at run time

    return decorate


def _group_decorator(source: Source, identity: Identity, group_by: GroupBy, options: Options) -> GroupDecorator:
    def decorate(each: Callable[[list[Message]], G], /) -> GroupHandlerFunction[G]:
        return as_function(GroupHandler(_undecorated(each), source, identity, group_by=group_by, **options))  # type: ignore[no-any-return]  # as above

    return decorate


def _undecorated(each: E) -> E:
    if handler_of(each) is not None:
        raise ConfigurationError("This is a handler already: decorate the function of messages, which is its `each`.")
    return each
