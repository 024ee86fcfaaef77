"""The decorators, one for each event source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, Unpack, cast, overload

from onewrite.aws_lambda import sources
from onewrite.batch.function import G, R
from onewrite.batch.handler import GroupBy, Handler, HandlerFunction, Options, as_function, find_handler, show_options
from onewrite.batch.source import Source
from onewrite.errors import ConfigurationError
from onewrite.identity import Identity
from onewrite.identity.record import check_identity
from onewrite.message import Message

M = TypeVar("M", Message, list[Message])  # the function's argument


class Decorator(Generic[M]):
    """A decorator for a function of one message, or with `group_by` of a list of messages."""

    def __init__(self, name: str, source: Source, identity: Identity, group_by: GroupBy | None, options: Options) -> None:
        if "group_by" in options:
            raise ConfigurationError(
                f"{source.name} sends one record at a time, and there is nothing to group. Remove group_by."
            )
        check_identity(identity, f"{name}({{}})")
        self._name, self._source, self._identity, self._group_by, self._options = name, source, identity, group_by, options

    @overload
    def __call__(self: Decorator[Message], function: Callable[[Message], R], /) -> HandlerFunction[Message, R]: ...
    @overload
    def __call__(
        self: Decorator[list[Message]], function: Callable[[list[Message]], G], /
    ) -> HandlerFunction[list[Message], G]: ...
    def __call__(self, function: Any, /, *context: Any) -> Any:
        """Return the handler of this function. Refuse what would only fail at the first event, such as a missing identity."""
        if context or isinstance(function, Mapping):
            raise ConfigurationError(
                f"@{self._name} was called with an event, and its argument is missing. Write @{self._name}(identity) above "
                f"the function, for example @{self._name}(json_body(id='id'))."
            )
        if find_handler(function) is not None:
            raise ConfigurationError(
                f"@{self._name}: this function is already a handler. Decorate the original function, which is its `function`."
            )
        if isinstance(function, type):
            raise ConfigurationError(
                f"{function.__name__} is a class: expected a function of a message. Decorate a function or a callable object."
            )
        return as_function(Handler(function, self._source, self._identity, group_by=self._group_by, **self._options))


class GroupingDecorator(Protocol):
    """A decorator factory whose function takes one message, or with `group_by` a list of messages."""

    @overload
    def __call__(self, identity: Identity, *, group_by: None = None, **options: Unpack[Options]) -> Decorator[Message]: ...
    @overload
    def __call__(self, identity: Identity, *, group_by: GroupBy, **options: Unpack[Options]) -> Decorator[list[Message]]: ...


def _type_by_group_by(function: Callable[..., Decorator[Any]]) -> GroupingDecorator:
    """Return the function with a signature that shows its options, and with the type that `group_by` gives it."""
    return cast("GroupingDecorator", show_options(Options)(function))


@_type_by_group_by
def sqs_handler(identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]) -> Decorator[Any]:
    """Make a handler of batches from a standard or FIFO queue of SQS.

    On a standard queue, the messages of a source are processed by their sequence, one at a time. `group_by` is a function
    that returns a message's group. With it, your function takes a list of messages of one group. It returns a sequence with
    one Outcome for each, in the same order, or None. If it raises, it is called again with each message alone. `max_workers`
    then counts groups.

    The options of every decorator are `max_workers`, `margin`, `raise_when_all_fail`, `on_outcome`, `log_exceptions`, and
    `clock`. They are those of `Handler`.

    Examples:
        >>> @sqs_handler(lambda record: Message(record["messageId"], body=record["body"]))
        ... def ship(message: Message) -> None:
        ...     if message.body == "poison":
        ...         raise ValueError
        >>> ship({"Records": [{"messageId": "m1", "body": "fine"}, {"messageId": "m2", "body": "poison"}]})
        {'batchItemFailures': [{'itemIdentifier': 'm2'}]}
    """
    return Decorator("sqs_handler", sources.SQS, identity, group_by, options)


@_type_by_group_by
def kinesis_handler(identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]) -> Decorator[Any]:
    """Make a handler of batches from a Kinesis stream. It stops at the first failure, and Lambda restarts from there.

    With `group_by`, each call takes several messages.
    """
    return Decorator("kinesis_handler", sources.KINESIS, identity, group_by, options)


@_type_by_group_by
def dynamodb_stream_handler(
    identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]
) -> Decorator[Any]:
    """Make a handler of batches from a DynamoDB stream. It stops at the first failure, and Lambda restarts from there.

    With `group_by`, each call takes several messages.
    """
    return Decorator("dynamodb_stream_handler", sources.DYNAMODB, identity, group_by, options)


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
    """Make a handler of batches from Kafka topics, on Amazon MSK or another cluster.

    With `group_by`, each call takes several messages. A failure stops only its own partition. The handler then raises
    `NotSettled`, and Lambda delivers the whole batch again, because it reads no response. If the event source mapping is in
    provisioned mode and has ReportBatchItemFailures, pass `provisioned_mode=True`: the response then names the records to
    redeliver. Without that mapping, `provisioned_mode=True` loses every failed record.
    """
    if type(provisioned_mode) is not bool:
        raise ConfigurationError(
            f"provisioned_mode={provisioned_mode!r}: expected True or False, got a {type(provisioned_mode).__name__}."
        )
    source = sources.KAFKA_IN_PROVISIONED_MODE if provisioned_mode else sources.KAFKA
    return Decorator("kafka_handler", source, identity, group_by, options)


@_type_by_group_by
def documentdb_handler(identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[Options]) -> Decorator[Any]:
    """Make a handler of batches from a DocumentDB change stream. With `group_by`, each call takes several messages.

    The handler stops at the first failure and raises `NotSettled`. Lambda then delivers the whole batch again, because it
    reads no response.
    """
    return Decorator("documentdb_handler", sources.DOCUMENTDB, identity, group_by, options)


@show_options(Options)
def sns_handler(identity: Identity, **options: Unpack[Options]) -> Decorator[Message]:
    """Make a handler of events that SNS sends directly to Lambda.

    To remove the envelope, use the identity `sns(...)`, as for SNS through SQS. If the message isn't settled, the handler
    raises `NotSettled`, and Lambda invokes the function again.
    """
    return Decorator("sns_handler", sources.SNS, identity, None, options)


@show_options(Options)
def eventbridge_handler(identity: Identity, **options: Unpack[Options]) -> Decorator[Message]:
    """Make a handler of events that EventBridge sends directly to Lambda.

    To remove the envelope, use the identity `eventbridge(...)`, as for EventBridge through SQS. If the event isn't settled,
    the handler raises `NotSettled`, and Lambda invokes the function again.
    """
    return Decorator("eventbridge_handler", sources.EVENTBRIDGE, identity, None, options)


@show_options(Options)
def s3_handler(identity: Identity, **options: Unpack[Options]) -> Decorator[Message]:
    """Make a handler of notifications that S3 sends directly to Lambda, for the identity `s3_object()`.

    If the notification isn't settled, the handler raises `NotSettled`, and Lambda invokes the function again.
    """
    return Decorator("s3_handler", sources.S3, identity, None, options)
