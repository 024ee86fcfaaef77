"""The decorators. Each makes a function that Lambda calls with batches of one source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, Unpack, cast, overload

from onewrite.aws_lambda import sources
from onewrite.batch.function import G, R
from onewrite.batch.handler import (
    GroupBy,
    Handler,
    HandlerFunction,
    Options,
    as_function,
    handler_of,
    show_options,
)
from onewrite.batch.source import Source
from onewrite.errors import ConfigurationError
from onewrite.identity import Identity
from onewrite.identity.record import check_identity
from onewrite.message import Message

M = TypeVar("M", Message, list[Message])  # what the function takes


class Decorator(Generic[M]):
    """What each of these gives: it makes a handler of a function of one message, or with `group_by` of a list of them."""

    def __init__(self, name: str, make: Callable[[Callable[..., Any]], Handler[Any]]) -> None:
        self._name, self._make = name, make

    @overload
    def __call__(self: Decorator[Message], function: Callable[[Message], R], /) -> HandlerFunction[Message, R]: ...
    @overload
    def __call__(
        self: Decorator[list[Message]], function: Callable[[list[Message]], G], /
    ) -> HandlerFunction[list[Message], G]: ...
    def __call__(self, function: Any, /, *context: Any) -> Any:
        if context or isinstance(function, Mapping):
            raise ConfigurationError(
                f"This was called with an event, and is no handler yet: write @{self._name}(identity) above the function of messages, "
                f"as in @{self._name}(json_body(id='id'))."
            )
        if handler_of(function) is not None:
            raise ConfigurationError("This is a handler already: decorate the function of messages, which is its `each`.")
        return as_function(self._make(function))


class GroupingDecorator(Protocol):
    """A decorator whose function takes one message, or with `group_by` a list of them."""

    @overload
    def __call__(self, identity: Identity, *, group_by: None = None, **options: Unpack[Options]) -> Decorator[Message]: ...
    @overload
    def __call__(self, identity: Identity, *, group_by: GroupBy, **options: Unpack[Options]) -> Decorator[list[Message]]: ...


def _by_group_by(function: Callable[..., Decorator[Any]]) -> GroupingDecorator:
    return cast("GroupingDecorator", show_options(Options)(function))


@_by_group_by
def sqs_handler(identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]) -> Decorator[Any]:
    """Makes a handler of SQS batches, of a standard or a FIFO queue.

    On a standard queue the messages of a source are taken by their sequence, one at a time. A deferred one is tried again as
    soon as the one before it is in. With `group_by`, a function that tells the group of a message, the
    handler's function takes a list of messages of one group, and returns a sequence of one Outcome for each, in their order, or
    None. If it raises an error, it is given each of them alone. `max_workers` counts groups then.

    >>> @sqs_handler(lambda record: Message(record["messageId"], body=record["body"]))
    ... def ship(message: Message) -> None:
    ...     if message.body == "poison":
    ...         raise ValueError
    >>> ship({"Records": [{"messageId": "m1", "body": "fine"}, {"messageId": "m2", "body": "poison"}]})
    {'batchItemFailures': [{'itemIdentifier': 'm2'}]}
    """
    return _decorator("sqs_handler", sources.SQS, identity, group_by, options)


@_by_group_by
def kinesis_handler(identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]) -> Decorator[Any]:
    """Makes a handler of batches of a Kinesis stream, with `group_by` of several messages a call. It stops at the first failure, and Lambda restarts from there."""
    return _decorator("kinesis_handler", sources.KINESIS, identity, group_by, options)


@_by_group_by
def dynamodb_stream_handler(
    identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]
) -> Decorator[Any]:
    """Makes a handler of batches of a DynamoDB stream, with `group_by` of several messages a call. It stops at the first failure, and Lambda restarts from there."""
    return _decorator("dynamodb_stream_handler", sources.DYNAMODB, identity, group_by, options)


@overload
def kafka_handler(
    identity: Identity, *, group_by: None = None, provisioned_mode: bool = False, **options: Unpack[Options]
) -> Decorator[Message]: ...
@overload
def kafka_handler(
    identity: Identity, *, group_by: GroupBy, provisioned_mode: bool = False, **options: Unpack[Options]
) -> Decorator[list[Message]]: ...
@show_options(Options)
def kafka_handler(
    identity: Identity, *, group_by: GroupBy | None = None, provisioned_mode: bool = False, **options: Unpack[Options]
) -> Decorator[Any]:
    """Makes a handler of batches of Kafka topics, of Amazon MSK or another cluster, with `group_by` of several messages a call.

    A failure stops its own partition only. Then it raises `NotSettled`, upon which Lambda delivers the whole batch again: it reads no
    answer, unless the event source mapping is in provisioned mode and has ReportBatchItemFailures. Where it is and has,
    `provisioned_mode=True` answers with what must be redelivered. Where it is not, that would lose whatever failed.
    """
    if type(provisioned_mode) is not bool:
        raise ConfigurationError(f"provisioned_mode={provisioned_mode!r}: give True or False.")
    source = sources.KAFKA_IN_PROVISIONED_MODE if provisioned_mode else sources.KAFKA
    return _decorator("kafka_handler", source, identity, group_by, options)


@_by_group_by
def documentdb_handler(identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]) -> Decorator[Any]:
    """Makes a handler of batches of a change stream of DocumentDB, with `group_by` of several messages a call.

    It stops at the first failure and raises `NotSettled`, upon which Lambda delivers the whole batch again: it reads no answer.
    """
    return _decorator("documentdb_handler", sources.DOCUMENTDB, identity, group_by, options)


@show_options(Options)
def sns_handler(identity: Identity, **options: Unpack[Options]) -> Decorator[Message]:
    """Makes a handler of what SNS sends straight to Lambda. The record is as it is through SQS: take its envelope off with `sns(...)`.

    A message that is not settled raises `NotSettled`, upon which Lambda invokes the function again.
    """
    return _decorator("sns_handler", sources.SNS, identity, None, options)


@show_options(Options)
def eventbridge_handler(identity: Identity, **options: Unpack[Options]) -> Decorator[Message]:
    """Makes a handler of what EventBridge sends straight to Lambda. The record is as it is through SQS: take its envelope off
    with `eventbridge(...)`.

    An event that is not settled raises `NotSettled`, upon which Lambda invokes the function again.
    """
    return _decorator("eventbridge_handler", sources.EVENTBRIDGE, identity, None, options)


@show_options(Options)
def s3_handler(identity: Identity, **options: Unpack[Options]) -> Decorator[Message]:
    """Makes a handler of what S3 sends straight to Lambda, for `s3_object()`.

    A notification that is not settled raises `NotSettled`, upon which Lambda invokes the function again.
    """
    return _decorator("s3_handler", sources.S3, identity, None, options)


def _decorator(name: str, source: Source, identity: Identity, group_by: GroupBy | None, options: Options) -> Decorator[Any]:
    if "group_by" in options:
        raise ConfigurationError(
            f"{source.name} gives one record at a time, so group_by has nothing to group: leave it out."
        )
    check_identity(identity, f"{name}({{}})")

    def make(function: Callable[..., Any]) -> Handler[Any]:
        if isinstance(function, type):
            raise ConfigurationError(
                f"{function.__name__} is a class, and a handler is made of a function of messages: decorate a function, or an object that can "
                "be called."
            )
        return Handler(function, source, identity, group_by=group_by, **options)

    return Decorator(name, make)
