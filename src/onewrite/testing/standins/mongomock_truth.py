"""Makes mongomock answer as MongoDB does, where it is known to do otherwise; what it cannot be made to do is refused loudly.

Mended: calls are atomic under threads; updates of conflicting paths, of values of the wrong type and beyond 64 bits or 16 MB are
refused, and a failing update leaves nothing behind; an upsert takes its fields from `$and`, from an `$or` or `$in` of one, and
refuses `$expr`; `$not` of a list and `$$NOW` in expressions; projections of find_one_and_*; `did_upsert`; the details of a
DuplicateKeyError; `comment=`. Refused: what makes mongomock itself fail, and options that it would ignore.

Not mended: values of different types that Python holds for equal (True and 1), the order of keys in a document that is compared,
indexes that expire documents (here at once), sessions and transactions, validation, collation, change streams, write concerns.
"""

# mongomock says little of its types.
# mypy: allow-untyped-calls
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from typing import Any, TypeAlias

import bson
import mongomock
from bson.errors import BSONError
from mongomock.collection import Collection
from mongomock.database import Database
from pymongo.errors import DocumentTooLarge, DuplicateKeyError, OperationFailure, PyMongoError, WriteError
from pymongo.results import UpdateResult

from onewrite.mongodb.verdict import LARGEST_DOCUMENT
from onewrite.testing.errors import StandInLies
from onewrite.testing.standins.mongomock_update import (
    check_types,
    check_update,
    duplicate,
    equalities,
    spoken,
    spoken_filter,
    write_error,
)

Document: TypeAlias = Mapping[str, Any]

_REMEDY = "Run this test on mongod()"
_IGNORED = ("array_filters", "collation", "hint", "let")


def new_database(name: str) -> StandInDatabase:
    """An empty database on a server of its own."""
    client: Any = mongomock.MongoClient()
    return StandInDatabase(client, name, client._store[name])  # noqa: SLF001  # mongomock's own way to make one


class StandInDatabase(Database):
    """A mongomock database, all of whose collections share one lock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.lock = threading.RLock()
        super().__init__(*args, **kwargs)

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> StandInCollection:
        return _ours(super().get_collection(name, *args, **kwargs))

    def __getitem__(self, coll_name: str) -> StandInCollection:
        return self.get_collection(coll_name)


def _ours(plain: Any) -> StandInCollection:
    return StandInCollection(
        plain.database,
        plain.name,
        plain._db_store,  # noqa: SLF001  # what its own constructor takes
        plain.write_concern,
        plain.read_concern,
        plain.read_preference,
        plain.codec_options,
    )


class StandInCollection(Collection):
    """A mongomock collection that tells the truth."""

    def with_options(self, *args: Any, **kwargs: Any) -> StandInCollection:
        return _ours(super().with_options(*args, **kwargs))

    def update_one(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _settled(super().update_one(*args, **kwargs))

    def update_many(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _settled(super().update_many(*args, **kwargs))

    def replace_one(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _settled(super().replace_one(*args, **kwargs))

    def aggregate(self, pipeline: Any, *args: Any, **kwargs: Any) -> Any:
        return super().aggregate(spoken(pipeline), *args, **kwargs)

    def options(self, session: Any = None) -> dict[str, Any]:  # noqa: ARG002  # as pymongo's own
        """mongomock creates no collection with options, and does not know this method."""
        return {}

    def bulk_write(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().bulk_write(*args, **kwargs)
        except TypeError as error:
            raise StandInLies(f"mongomock knows no bulk_write of this pymongo ({error}). {_REMEDY}.") from error

    def _iter_documents(self, filter: Document) -> Any:
        return super()._iter_documents(spoken_filter(filter))

    def _get_dataset(self, *args: Any) -> Any:
        with self.database.lock:  # a cursor is read after the call that made it
            return list(super()._get_dataset(*args))

    def _insert(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(data, Mapping):
            return super()._insert(data, *args, **kwargs)
        if (size := len(bson.encode(data))) > LARGEST_DOCUMENT:
            raise DocumentTooLarge(
                f"BSON document too large ({size} bytes) - the connected server supports BSON document sizes up to "
                f"{LARGEST_DOCUMENT} bytes."
            )
        try:
            return super()._insert(data, *args, **kwargs)
        except DuplicateKeyError as error:
            raise error if error.details else duplicate(self.full_name, "_id_", {"_id": data["_id"]}) from None

    def _ensure_uniques(self, new_data: Document) -> None:
        try:
            super()._ensure_uniques(new_data)
        except DuplicateKeyError as error:
            raise duplicate(self.full_name, *self._violated(new_data)) from error

    def _violated(self, document: Document) -> tuple[str, dict[str, Any]]:
        """The unique index that another document has the same values in."""
        found: tuple[str, dict[str, Any]] = "", {}
        for name, index in self._store.indexes.items():
            values = {field: _value(document, field) for field, _ in index["key"]}
            if index.get("unique") and len(list(self._iter_documents(values))) > 1:
                found = name, values
        return found

    def _update(self, spec: Any, document: Any, upsert: bool = False, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002  # mongomock's own signature
        bson.encode({"q": spec, "u": document})  # what cannot be sent is refused by the driver
        if isinstance(document, Mapping):
            check_update(document)
        if upsert:
            spec = {**spec, **equalities(spec)}
        return super()._update(spec, spoken(document) if isinstance(document, list) else document, upsert, *args, **kwargs)

    def _apply_update_document(self, existing_document: Any, spec: Any, document: Any, was_insert: bool) -> None:  # noqa: FBT001  # the same
        with _whole(existing_document):
            check_types(existing_document, document, inserts=was_insert)
            super()._apply_update_document(existing_document, spec, document, was_insert)

    def _apply_update_pipeline(self, existing_document: Any, *args: Any) -> None:
        with _whole(existing_document):
            super()._apply_update_pipeline(existing_document, *args)

    def _find_and_modify(self, query: Any, projection: Any = None, *args: Any, **kwargs: Any) -> Any:
        if ignored := [name for name in _IGNORED if kwargs.get(name)]:
            raise StandInLies(f"mongomock would ignore {', '.join(ignored)} here. {_REMEDY}.")
        try:  # with a projection it would lose the _id of what it found, and with it the document
            found = super()._find_and_modify(query, None, *args, **kwargs)
        except WriteError as error:
            if isinstance(error, DuplicateKeyError):
                raise
            raise OperationFailure(str(error), error.code, error.details) from error
        return None if found is None else self._copy_only_fields(found, deepcopy(projection), dict)


def _settled(result: UpdateResult) -> UpdateResult:
    """Without an `upserted` that is None: pymongo takes its presence for an insert."""
    raw = {name: value for name, value in (result.raw_result or {}).items() if (name, value) != ("upserted", None)}
    return UpdateResult(raw, acknowledged=True)


@contextmanager
def _whole(document: dict[str, Any]) -> Generator[None, None, None]:
    """An update of a document: all of it or nothing."""
    before = deepcopy(document)
    try:
        yield
        _check_size(document)
    except Exception as error:
        document.clear()
        document.update(before)
        if isinstance(error, PyMongoError | BSONError):
            raise
        raise StandInLies(
            f"mongomock fails at this update, which MongoDB answers ({type(error).__name__}: {error}). {_REMEDY}."
        ) from error


def _check_size(document: Document) -> None:
    try:
        size = len(bson.encode(document))
    except OverflowError as error:
        raise write_error(2, f"Failed to apply $inc operations to current value: {error}") from error
    if size > LARGEST_DOCUMENT:
        raise write_error(17419, f"Resulting document after update is larger than {LARGEST_DOCUMENT}")


def _value(document: Document, field: str) -> Any:
    value: Any = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _atomic(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(collection: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("comment", None)  # it changes nothing, and mongomock does not know it everywhere
        with collection.database.lock:
            try:
                return method(collection, *args, **kwargs)
            except StandInLies:
                raise
            except NotImplementedError as error:
                raise StandInLies(f"{error}. {_REMEDY}.") from error

    return call


for _name, _method in inspect.getmembers(StandInCollection, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(StandInCollection, _name, _atomic(_method))


class AsyncStandInCollection:
    """A StandInCollection for code that is written for pymongo's AsyncCollection."""

    def __init__(self, collection: StandInCollection) -> None:
        self._collection = collection
        self.database = AsyncStandInDatabase(collection.database)

    def find(self, *args: Any, **kwargs: Any) -> AsyncStandInCursor:
        return AsyncStandInCursor(self._collection.find(*args, **kwargs))

    async def aggregate(self, *args: Any, **kwargs: Any) -> AsyncStandInCursor:
        await asyncio.sleep(0)
        return AsyncStandInCursor(self._collection.aggregate(*args, **kwargs))

    def with_options(self, *args: Any, **kwargs: Any) -> AsyncStandInCollection:
        return AsyncStandInCollection(self._collection.with_options(*args, **kwargs))

    def __getitem__(self, name: str) -> AsyncStandInCollection:
        return AsyncStandInCollection(self._collection[name])

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._collection, name)
        if isinstance(value, StandInCollection):
            return AsyncStandInCollection(value)
        return _awaited(value) if inspect.ismethod(value) else value


class AsyncStandInDatabase:
    """A StandInDatabase that hands out asynchronous collections."""

    def __init__(self, database: StandInDatabase) -> None:
        self._database = database
        self.name = database.name

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> AsyncStandInCollection:
        return AsyncStandInCollection(self._database.get_collection(name, *args, **kwargs))

    def __getitem__(self, name: str) -> AsyncStandInCollection:
        return self.get_collection(name)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._database, name)
        if isinstance(value, StandInCollection):
            return AsyncStandInCollection(value)
        return _awaited(value) if inspect.ismethod(value) else value


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


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)  # a real driver lets the other tasks in before the write and after it
        try:
            return method(*args, **kwargs)
        finally:
            await asyncio.sleep(0)

    return call
