"""A decorator for any broker. It processes a record and returns whether to acknowledge it, or when to redeliver it.

Your consumer creates the record, calls the handler, and settles the delivery according to the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, Unpack, cast, overload

from onewrite.batch.function import G, R
from onewrite.batch.handler import GroupBy, Handler, HandlerOptions, M_contra, R_co, find_handler, show_options
from onewrite.batch.report import Result
from onewrite.batch.source import Source
from onewrite.errors import ConfigurationError
from onewrite.identity import Identity
from onewrite.identity.record import check_identity, record_id
from onewrite.message import Message

__all__ = ["MessageHandler", "Result", "message_handler"]

_ANY_BROKER = Source(
    name="the broker",
    origins=frozenset(),
    records=lambda _: None,
    identifier=record_id,
    sent_at=lambda _: math.nan,
    takes_any_object=True,
)


class MessageHandler(Generic[M_contra, R_co]):
    """A handler of any broker's records. It calls a function with a message, or with `group_by` with a list of messages.

    `function` is the function. A failed record raises nothing: its error or outcome is in the `Result`. The logger `onewrite`
    gets one line for each call.
    """

    function: Callable[[M_contra], R_co]

    @show_options(HandlerOptions)
    def __init__(
        self,
        function: Callable[[M_contra], R_co],
        identity: Identity,
        group_by: GroupBy | None = None,
        **options: Unpack[HandlerOptions],
    ) -> None:
        if (
            isinstance(function, type)
            or find_handler(function) is not None
            or isinstance(cast("object", function), MessageHandler)
        ):
            raise ConfigurationError(
                f"{function!r}: expected a function of a message, got a {type(cast('object', function)).__name__}. Decorate the "
                "function itself."
            )
        self.function = function
        self._handler: Handler[Any] = Handler(cast("Any", function), _ANY_BROKER, identity, group_by=group_by, **options)

    def process(self, record: Any) -> Result:
        """Process one record and return the result. Only an exit, such as KeyboardInterrupt, is raised.

        An async function runs in an event loop of this thread. If a loop is already running, await `aprocess` instead.
        """
        return self._handler.process(record)

    async def aprocess(self, record: Any) -> Result:
        """Process one record in the running event loop. If the awaiting task is cancelled, CancelledError is raised."""
        return await self._handler.aprocess(record)

    def process_in_order(self, records: Iterable[Any]) -> list[Result]:
        """Process records in the broker's order. Return the result of each, up to the first that isn't settled.

        The broker must redeliver that record and all later ones. With `group_by`, each call takes consecutive records of one
        group.
        """
        return self._handler.process_in_order(records)

    async def aprocess_in_order(self, records: Iterable[Any]) -> list[Result]:
        """Process records as `process_in_order` does, in the running event loop."""
        return await self._handler.aprocess_in_order(records)


@overload
def message_handler(
    identity: Identity, *, group_by: None = None, **options: Unpack[HandlerOptions]
) -> Callable[[Callable[[Message], R]], MessageHandler[Message, R]]: ...
@overload
def message_handler(
    identity: Identity, *, group_by: GroupBy, **options: Unpack[HandlerOptions]
) -> Callable[[Callable[[list[Message]], G]], MessageHandler[list[Message], G]]: ...
@show_options(HandlerOptions)
def message_handler(identity: Identity, *, group_by: GroupBy | None = None, **options: Unpack[HandlerOptions]) -> Any:
    """Make a handler of any broker's records from a function of a message.

    A record is any object that the identity understands. The identities of `onewrite.identity` read a dict, `{"messageId":
    ..., "body": ...}`, whose body is JSON as bytes or str. Your own identity can read the broker's message class.

    The options are `on_outcome`, `log_exceptions`, and `clock`, as for `onewrite.aws_lambda.Handler`.

    Examples:
        >>> from onewrite.identity import json_body
        >>> @message_handler(json_body(id="id"))
        ... def ship(message: Message) -> None:
        ...     if message.body["to"] is None:
        ...         raise ValueError
        >>> ship.process({"body": b'{"id": "e-1", "to": "Rome"}'}).retry_after(1) is None
        True
        >>> ship.process({"body": b'{"id": "e-2", "to": null}'}).retry_after(1)
        1.0
    """
    check_identity(identity, "message_handler({})")

    def decorate(function: Callable[..., Any]) -> MessageHandler[Any, Any]:
        return MessageHandler(function, identity, group_by, **options)

    return decorate
