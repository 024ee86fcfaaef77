"""The types of decorated functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

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
