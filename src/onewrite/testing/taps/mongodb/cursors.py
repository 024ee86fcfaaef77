"""The cursors that a tapped collection hands out. A cursor is one request, which is sent when its first document is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, Self, TypeAlias

Documents: TypeAlias = list[Any]
Chained: TypeAlias = tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...]

_CHAINED = frozenset(
    {
        "add_option",
        "allow_disk_use",
        "batch_size",
        "collation",
        "comment",
        "hint",
        "limit",
        "max",
        "max_await_time_ms",
        "max_time_ms",
        "min",
        "remove_option",
        "skip",
        "sort",
        "where",
    }
)


class _CursorState:
    """What both cursors have: options until the first document is asked for, and then a list of documents."""

    def __init__(self, fetch: Callable[[Chained], Any], then: Chained = ()) -> None:
        self._fetch = fetch
        self._then = then
        self._documents: Documents | None = None
        self._at = 0

    def __getattr__(self, name: str) -> Any:
        if name not in _CHAINED:
            raise AttributeError(f"A tapped cursor has no {name}: iterate over it, or use to_list().")
        return partial(self._chain, name)

    def _chain(self, name: str, *args: Any, **kwargs: Any) -> Self:
        if self._documents is not None:
            from pymongo.errors import InvalidOperation  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

            raise InvalidOperation("cannot set options after executing query")
        self._then = (*self._then, (name, args, kwargs))
        return self

    @property
    def alive(self) -> bool:
        return self._documents is None or self._at < len(self._documents)

    def clone(self) -> Self:
        return type(self)(self._fetch, self._then)

    def rewind(self) -> Self:
        self._documents, self._at = None, 0
        return self

    def _take(self, documents: Documents, length: int | None = None) -> Documents:
        taken = documents[self._at :] if length is None else documents[self._at : self._at + length]
        self._at += len(taken)
        return taken


class Cursor(_CursorState):
    def _load(self) -> Documents:
        if (found := self._documents) is None:
            found = self._documents = self._fetch(self._then)
        return found

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for document in self._take(self._load(), 1):
            return document
        raise StopIteration

    next = __next__

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            self._documents = self._load()[index]
            return self
        return self._load()[index]

    def to_list(self, length: int | None = None) -> Documents:
        return self._take(self._load(), length)

    def close(self) -> None:
        self._documents = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncCursor(_CursorState):
    async def _load(self) -> Documents:
        if (found := self._documents) is None:
            found = self._documents = await self._fetch(self._then)
        return found

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        for document in self._take(await self._load(), 1):
            return document
        raise StopAsyncIteration

    next = __anext__

    async def to_list(self, length: int | None = None) -> Documents:
        return self._take(await self._load(), length)

    async def close(self) -> None:
        self._documents = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
