"""A stand-in collection for code that is written for pymongo's AsyncCollection."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from functools import wraps
from typing import Any, Self

from onewrite.testing.standins.collection import StandInCollection, StandInDatabase


class AsyncStandInCollection:
    """A StandInCollection whose methods are awaited."""

    def __init__(self, collection: StandInCollection) -> None:
        self._collection: Any = collection
        self.database = AsyncStandInDatabase(self._collection.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def find(self, *args: Any, **kwargs: Any) -> AsyncStandInCursor:
        return AsyncStandInCursor(self._collection.find(*args, **kwargs))

    async def aggregate(self, *args: Any, **kwargs: Any) -> AsyncStandInCursor:
        await asyncio.sleep(0)
        return AsyncStandInCursor(self._collection.aggregate(*args, **kwargs))

    async def list_indexes(self, *args: Any, **kwargs: Any) -> AsyncStandInCursor:
        await asyncio.sleep(0)
        return AsyncStandInCursor(self._collection.list_indexes(*args, **kwargs))

    def with_options(self, *args: Any, **kwargs: Any) -> AsyncStandInCollection:
        return AsyncStandInCollection(self._collection.with_options(*args, **kwargs))

    def __getitem__(self, name: str) -> AsyncStandInCollection:
        return AsyncStandInCollection(self._collection[name])

    def __getattr__(self, name: str) -> Any:
        return _asynchronous(getattr(self._collection, name))


class AsyncStandInDatabase:
    """A StandInDatabase whose methods are awaited, with asynchronous collections."""

    def __init__(self, database: StandInDatabase) -> None:
        self._database: Any = database
        self.name = database.name

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> AsyncStandInCollection:
        return AsyncStandInCollection(self._database.get_collection(name, *args, **kwargs))

    def with_options(self, *args: Any, **kwargs: Any) -> AsyncStandInDatabase:
        return AsyncStandInDatabase(self._database.with_options(*args, **kwargs))

    def __getitem__(self, name: str) -> AsyncStandInCollection:
        return self.get_collection(name)

    def __getattr__(self, name: str) -> Any:
        return _asynchronous(getattr(self._database, name))


class AsyncStandInCursor:
    """What was found, to be read with `async for` or `to_list`."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Callable[..., AsyncStandInCursor]:
        option = getattr(self._cursor, name)  # sort, skip, limit

        def chained(*args: Any, **kwargs: Any) -> AsyncStandInCursor:
            return AsyncStandInCursor(option(*args, **kwargs))

        return chained

    async def __aiter__(self) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        for document in self._cursor:
            yield document

    async def to_list(self, length: int | None = None) -> list[Any]:
        await asyncio.sleep(0)
        return list(self._cursor)[:length]


def _asynchronous(value: Any) -> Any:
    """The asynchronous form of what a collection or a database has."""
    if isinstance(value, StandInCollection):
        return AsyncStandInCollection(value)
    return _awaited(value) if inspect.ismethod(value) else value


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)  # a real driver lets other tasks run before the write and after it
        try:
            return _asynchronous(method(*args, **kwargs))
        finally:
            await asyncio.sleep(0)

    return call
