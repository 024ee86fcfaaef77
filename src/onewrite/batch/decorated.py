"""A handler as a plain function of (event, context), which is what Lambda and the decorators around it know.

Powertools' decorators ask `inspect.isfunction`, and read the function's name and signature.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

from onewrite.batch.function import GroupReturned, Returned
from onewrite.batch.grouping.handler import GroupHandler
from onewrite.batch.handler import Handler
from onewrite.batch.report import Report, Result
from onewrite.batch.source import Response, Source
from onewrite.message import Message

R_co = TypeVar("R_co", bound=Returned | Awaitable[Returned], covariant=True)
G_co = TypeVar("G_co", bound=GroupReturned | Awaitable[GroupReturned], covariant=True)


class _Function(Protocol):
    """A function that Lambda calls with a batch, and what it has of its handler."""

    __name__: str

    @property
    def source(self) -> Source:
        """Whose batches it takes."""
        ...

    @property
    def run(self) -> Callable[..., Report]:
        """As `Handler.run`."""
        ...

    @property
    def process(self) -> Callable[[Any], Result]:
        """As `Handler.process`."""
        ...

    @property
    def aprocess(self) -> Callable[[Any], Awaitable[Result]]:
        """As `Handler.aprocess`."""
        ...

    def __call__(self, event: Any, context: Any = None) -> Response: ...


class HandlerFunction(_Function, Protocol[R_co]):
    """A function that Lambda calls with a batch, made of a function of one message."""

    @property
    def handler(self) -> Handler[Any]:
        """What was made of the function."""
        ...

    @property
    def each(self) -> Callable[[Message], R_co]:
        """The function that was decorated."""
        ...


class GroupHandlerFunction(_Function, Protocol[G_co]):
    """A function that Lambda calls with a batch, made of a function of the messages of one group."""

    @property
    def handler(self) -> GroupHandler[Any]:
        """What was made of the function."""
        ...

    @property
    def each(self) -> Callable[[list[Message]], G_co]:
        """The function that was decorated."""
        ...


def as_function(handler: Handler[Any]) -> Any:
    """The handler as a function with the name and the docstring of the decorated one."""

    def function(event: Any, context: Any = None) -> Response:
        return handler(event, context)

    function.__doc__ = handler.each.__doc__
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(function, name, getattr(handler.each, name, None) or getattr(type(handler.each), name))
    # No __wrapped__: the signature is the one of a Lambda handler, and not that of the decorated function.
    for name in ("each", "source", "run", "process", "aprocess"):
        setattr(function, name, getattr(handler, name))
    function.handler = handler  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]  # a function has any attribute
    return function


def handler_of(function: object) -> Handler[Any] | None:
    """The handler that a decorated function has, also below decorators that use functools.wraps. None: it has none."""
    found = cast("object", function if isinstance(function, Handler) else getattr(function, "handler", None))
    return cast("Handler[Any]", found) if isinstance(found, Handler) else None
