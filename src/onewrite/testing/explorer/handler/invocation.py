"""Calls a handler as it is called where it runs: with a message, or as Lambda does, with an event and a context."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any, TypeAlias, cast

from onewrite.batch.handler import handler_of
from onewrite.testing.context import lambda_context
from onewrite.testing.explorer.handler.deliverables import Deliverable, LambdaEvent
from onewrite.testing.explorer.handler.memory import Form, memory_of

Handler: TypeAlias = Callable[..., Any]

_A_MESSAGE, _A_CONTEXT = object(), object()


class Invocation:
    """Calls one handler. Whether it takes a context is decided by its signature."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        decorated = handler_of(handler)
        self._has_its_answer_read = decorated is not None and not decorated.source.raises
        self._takes_context = _takes(handler, _A_MESSAGE, _A_CONTEXT)
        self._needs_context = self._takes_context and not _takes(handler, _A_MESSAGE)

    @property
    def memory(self) -> Form:
        """What the handler keeps."""
        return memory_of(self._handler)

    def of(self, deliverable: Deliverable) -> Callable[[Any], Any]:
        """What is called with the message or the event. It raises where Lambda takes the invocation for failed."""
        is_event = isinstance(deliverable, LambdaEvent)
        # Lambda always gives a context. The second parameter of another handler may be something else, with a default.
        with_context = self._takes_context if is_event else self._needs_context
        # Of Kafka Lambda reads an answer in provisioned mode only, which a decorated handler says of itself.
        is_read = isinstance(deliverable, LambdaEvent) and (self._has_its_answer_read or not deliverable.source.raises)

        def call(message: Any) -> Any:
            returned = self._handler(message, lambda_context()) if with_context else self._handler(message)
            return _checked(returned, is_read=is_read) if is_event else returned

        return call


def _takes(handler: Handler, *arguments: object) -> bool:
    try:
        # What a decorator has made of a function shows the function's signature. An object that is called has its own.
        signature = inspect.signature(handler, follow_wrapped=inspect.isroutine(handler))
        signature.bind(*arguments)
    except (TypeError, ValueError):  # ValueError: some functions written in C have no signature
        return False
    return True


def _checked(returned: Any, *, is_read: bool) -> Any:
    """The answer, of which Lambda makes JSON. None if Lambda does not look into it."""
    if inspect.isawaitable(returned):
        return _checked_when_it_has_come(returned, is_read=is_read)
    try:
        json.dumps(returned, default=_number)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Lambda makes JSON of what the handler returns, and cannot: {error}. Return None, or a dict with batchItemFailures."
        ) from error
    return returned if is_read else None


async def _checked_when_it_has_come(returned: Awaitable[Any], *, is_read: bool) -> Any:
    return _checked(await returned, is_read=is_read)


def _number(value: object) -> float:
    """Lambda's runtime knows Decimals, and nothing else that JSON does not know."""
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(cast('Any', value)).__name__} is not JSON serializable")
