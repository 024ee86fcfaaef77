"""A decorator for any broker: it processes a record, and says whether to acknowledge it or when to deliver it again.

It knows no broker. Your consumer makes the record, calls the handler, and settles the delivery as the result says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypedDict, Unpack, cast, overload

from onewrite.batch.function import G, R
from onewrite.batch.handler import GroupBy, Handler, M_contra, R_co, handler_of, show_options
from onewrite.batch.report import Result
from onewrite.batch.source import Source
from onewrite.errors import ConfigurationError
from onewrite.identity import Identity
from onewrite.identity.record import check_identity, record_id
from onewrite.message import Message
from onewrite.metrics import Hook

__all__ = ["MessageHandler", "Result", "message_handler"]

_ANY_BROKER = Source(
    name="the broker",
    origins=frozenset(),
    records=lambda _: None,
    identifier=record_id,
    sent_at=lambda _: math.nan,
    takes_any_object=True,
)


class HandlerOptions(TypedDict, total=False):
    """The options of `message_handler`, with the same meaning as those of the decorators for Lambda."""

    on_outcome: Hook | None
    log_exceptions: bool
    clock: Callable[[], float]


class MessageHandler(Generic[M_contra, R_co]):
    """Processes records of any broker with a function of a message, or with `group_by` of a list of messages.

    `each` is the function. A record that fails raises nothing: its error or outcome is in the `Result`, and the logger `onewrite`
    gets one line for each call.
    """

    each: Callable[[M_contra], R_co]

    @show_options(HandlerOptions)
    def __init__(
        self,
        each: Callable[[M_contra], R_co],
        identity: Identity,
        group_by: GroupBy | None = None,
        **options: Unpack[HandlerOptions],
    ) -> None:
        if isinstance(each, type) or handler_of(each) is not None or isinstance(cast("object", each), MessageHandler):
            raise ConfigurationError(f"{each!r} isn't a function of a message: decorate the function itself.")
        self.each = each
        self._handler: Handler[Any] = Handler(cast("Any", each), _ANY_BROKER, identity, group_by=group_by, **options)

    def process(self, record: Any) -> Result:
        """Process one record, and return what became of it. Only an exit, such as KeyboardInterrupt, is raised from here.

        An asynchronous function runs in an event loop of this thread. Where one runs already, await `aprocess` instead.
        """
        return self._handler.process(record)

    async def aprocess(self, record: Any) -> Result:
        """Process one record in the running event loop. A cancellation of the task that awaits this is raised too."""
        return await self._handler.aprocess(record)

    def process_in_order(self, records: Iterable[Any]) -> list[Result]:
        """Process records that the broker keeps in order, and return the result of each up to the first that isn't settled.

        The broker must deliver that record and all behind it again. With `group_by` a call gets neighbors of one group.
        """
        return self._handler.process_in_order(records)

    async def aprocess_in_order(self, records: Iterable[Any]) -> list[Result]:
        """As `process_in_order`, in the running event loop."""
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
    """Make a handler of the records of any broker from a function of a message.

    A record is whatever the identity understands. Those of `onewrite.identity` read a dict: `{"messageId": ..., "body": ...}`, whose
    body is JSON as bytes or str. A function of yours may read a message of the broker's own class.

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
