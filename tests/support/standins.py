"""The in-memory stand-ins, made atomic: without a lock they break under threads, as no real server does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import mongomock
import moto
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.responses import DynamoHandler

_AWS = {
    "AWS_ACCESS_KEY_ID": "dummy",
    "AWS_SECRET_ACCESS_KEY": "dummy",
    "AWS_SESSION_TOKEN": "dummy",
    "AWS_DEFAULT_REGION": "eu-west-1",
}
_BACKEND_METHODS = (
    "update_item",
    "put_item",
    "delete_item",
    "get_item",
    "query",
    "scan",
    "transact_write_items",
)
_COROUTINES = frozenset(
    {
        "update_one",
        "find_one",
        "insert_one",
        "find_one_and_update",
        "delete_one",
        "delete_many",
        "count_documents",
        "create_index",
    }
)


def _under(lock: threading.RLock, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return function(*args, **kwargs)

    return locked


@contextmanager
def locked_moto() -> Iterator[None]:
    """moto's DynamoDB behind one lock.

    moto checks the condition and then writes, with nothing that keeps another thread out in between, so two
    conditional writes may both win. Its request handler also reads the item before the write and serialises
    the live one after it (ReturnValues), so a lock on the backend alone would return torn answers: whole
    requests are locked as well.
    """
    lock = threading.RLock()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict("os.environ", _AWS))
        stack.enter_context(moto.mock_aws())
        for owner, names in ((DynamoDBBackend, _BACKEND_METHODS), (DynamoHandler, ("call_action",))):
            for name in names:
                stack.enter_context(mock.patch.object(owner, name, _under(lock, getattr(owner, name))))
        yield


class LockedCollection:
    """A mongomock collection with one lock around every call; everything else is the collection's own."""

    def __init__(self, collection: Any, database: LockedDatabase) -> None:
        self._collection = collection
        self.database = database

    def with_options(self, *args: Any, **kwargs: Any) -> LockedCollection:
        return LockedCollection(self._collection.with_options(*args, **kwargs), self.database)

    def __getitem__(self, name: str) -> LockedCollection:
        return LockedCollection(self._collection[name], self.database)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._collection, name)
        if isinstance(value, mongomock.Collection):  # any unknown name is a sub-collection, as in pymongo
            return LockedCollection(value, self.database)
        return _under(self.database.lock, value) if callable(value) else value

    def __repr__(self) -> str:
        return f"Locked{self._collection!r}"


class LockedDatabase:
    """A mongomock database that hands out locked collections."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.lock = threading.RLock()

    def get_collection(self, name: str, **options: Any) -> LockedCollection:
        return LockedCollection(self._database.get_collection(name, **options), self)

    def __getitem__(self, name: str) -> LockedCollection:
        return LockedCollection(self._database[name], self)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._database, name)
        if isinstance(value, mongomock.Collection):
            return LockedCollection(value, self)
        return _under(self.lock, value) if callable(value) else value


def locked_mongomock(name: str = "test") -> LockedDatabase:
    """A fresh mongomock database behind one lock: its find-then-modify is no more atomic than moto's."""
    return LockedDatabase(mongomock.MongoClient()[name])


class AsyncLockedCollection:
    """The coroutine face of a LockedCollection, for code that is written for pymongo's AsyncCollection."""

    def __init__(self, collection: LockedCollection) -> None:
        self._locked = collection

    def with_options(self, *args: Any, **kwargs: Any) -> AsyncLockedCollection:
        return AsyncLockedCollection(self._locked.with_options(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._locked, name)
        if name not in _COROUTINES:
            if callable(value) and not isinstance(value, LockedCollection):
                raise AttributeError(f"{name} has no coroutine here")  # rather than a call that is not async
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)  # a real driver lets the other tasks in before the write and after it
            try:
                return value(*args, **kwargs)
            finally:
                await asyncio.sleep(0)

        return call
