"""mongomock's collections, patched as far as guarded writes need it. Calls whose results are known to be wrong are refused.

docs/standins.md lists the worst differences that remain between mongomock and MongoDB. The others are:

- `{"a.b": None}` doesn't match if `a` is a number or a string.
- `$size` counts a string as one, `$all` of an empty list matches every document, and `$type` accepts only names, and takes
  2,147,483,648 for an `int`.
- A projection that excludes `c.d` also removes `c` if it isn't a document. A sort by an array compares the whole array.
- `$group` and `$count` over an empty input, and `$arrayElemAt` on a missing field, return different results.
- New fields follow the order of the update. MongoDB sorts them by name.
- `$inc` of `True` is `2`, and an integer beyond 64 bits raises `OverflowError`. `$unset` of an array element does nothing,
  and `$pullAll` below a missing field creates it.
- An insert accepts more than 16 MB. An enum member is stored as it is, `$currentDate` has microseconds, and `a..b` is a
  path.
- An index with `expireAfterSeconds` removes documents at once. MongoDB takes a minute.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from itertools import combinations
from typing import Any, NoReturn, Self, TypeAlias, cast

import bson
import pymongo.collection
import pymongo.database
from bson.errors import BSONError
from mongomock.aggregate import (
    _parse_expression as parse_expression,  # pyright: ignore[reportPrivateUsage]  # nothing public evaluates one expression
)
from mongomock.aggregate import process_pipeline
from mongomock.collection import BulkOperationBuilder, Collection
from mongomock.command_cursor import CommandCursor
from mongomock.database import Database
from mongomock.mongo_client import MongoClient
from mongomock.store import ServerStore
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError, WriteError
from pymongo.results import BulkWriteResult, UpdateResult

from onewrite.mongodb.flows import MAX_DOCUMENT_BYTES
from onewrite.testing.errors import UnsupportedByStandIn
from onewrite.testing.taps.mongodb_methods import DATABASE_SILENT, SILENT, bind, is_condition, list_required_names
from onewrite.testing.taps.traffic import walk

_REMEDY = "Run this test on mongod()"

# --- which methods are answered ---------------------------------------------------------------------------------------
#
# pymongo's methods and arguments that mongomock supports. All others are refused.
#
# mongomock accepts many arguments and ignores them, so a test would see behavior that no MongoDB server has.


ARGUMENTS: Mapping[str, frozenset[str]] = {
    "aggregate": frozenset({"pipeline"}),
    "bulk_write": frozenset({"requests", "ordered"}),
    "count_documents": frozenset({"filter", "skip", "limit"}),
    "create_index": frozenset({"keys", "name", "unique", "sparse", "expireAfterSeconds", "partialFilterExpression"}),
    "create_indexes": frozenset({"indexes"}),
    "delete_many": frozenset({"filter"}),
    "delete_one": frozenset({"filter"}),
    "distinct": frozenset({"key", "filter"}),
    "drop": frozenset(),
    "drop_index": frozenset({"index_or_name"}),
    "drop_indexes": frozenset(),
    "estimated_document_count": frozenset(),
    "find": frozenset({"filter", "projection", "skip", "limit", "sort"}),
    "find_one": frozenset({"filter", "projection", "skip", "limit", "sort"}),
    "find_one_and_delete": frozenset({"filter", "projection", "sort"}),
    "find_one_and_replace": frozenset({"filter", "replacement", "projection", "sort", "upsert", "return_document"}),
    "find_one_and_update": frozenset({"filter", "update", "projection", "sort", "upsert", "return_document"}),
    "index_information": frozenset(),
    "insert_many": frozenset({"documents", "ordered"}),
    "insert_one": frozenset({"document"}),
    "list_indexes": frozenset(),
    "options": frozenset(),
    "replace_one": frozenset({"filter", "replacement", "upsert"}),
    "update_many": frozenset({"filter", "update", "upsert"}),
    "update_one": frozenset({"filter", "update", "upsert"}),
}
DATABASE_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "command": frozenset({"command"}),
    "create_collection": frozenset({"name"}),
    "drop_collection": frozenset({"name_or_collection"}),
    "list_collection_names": frozenset(),  # with a filter, mongomock also lists collections that don't exist yet
}
# Attributes that send nothing, and that mongomock or the stand-in has.
ATTRIBUTES = (SILENT | DATABASE_SILENT) - {"next"}
# Arguments without a visible effect here. They aren't passed to mongomock.
_WITHOUT_EFFECT = frozenset({
    "allowDiskUse", "allow_disk_use", "allow_partial_results", "authorizedCollections", "background", "batchSize", "batch_size", "bypassDocumentValidation",
    "bypass_document_validation", "check_exists", "comment", "maxTimeMS", "max_time_ms", "nameOnly", "no_cursor_timeout", "oplog_replay",
})  # fmt: skip


def bind_arguments(
    method: str, answerable: frozenset[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return mongomock's arguments, or raise `UnsupportedByStandIn` if it would ignore one."""
    arguments = bind(method, args, kwargs)
    # An empty value has no effect.
    ignored_names = [
        name for name, value in arguments.items() if name not in answerable and name not in _WITHOUT_EFFECT and value
    ]
    if ignored_names:
        raise UnsupportedByStandIn(
            f"mongomock's {method} ignores {', '.join(ignored_names)}, and MongoDB doesn't. {_REMEDY}."
        )
    first = [arguments.pop(name) for name in list_required_names(method)]
    return first, {name: value for name, value in arguments.items() if name in answerable}


# --- refusals ---------------------------------------------------------------------------------------------------------

Document: TypeAlias = Mapping[str, Any]

# For each known difference: what mongomock does, and how to recognize the part of a filter, update, or pipeline.
DIFFERENCES: Mapping[str, Callable[[str, Any], bool]] = {
    "doesn't support $mod, $mul, and $bit": lambda name, _: name in ("$mod", "$mul", "$bit"),
    "evaluates $not of a list as false": lambda name, value: name == "$not" and isinstance(value, list),
    "ignores $$NOW": lambda _, value: "$$NOW" in (value if isinstance(value, list) else [value]),
    "can change another member of an array at a positional path": lambda name, _: ".$" in name,
}
# The same for the filter of an upsert.
DIFFERENCES_OF_UPSERTS: Mapping[str, Callable[[Document], bool]] = {
    "accepts $expr in the filter of an upsert": lambda query: any(name == "$expr" for name, _ in walk(query)),
    "creates its own _id if $and, $or, or $in contains it": lambda query: (
        (is_condition(query.get("_id")) and "$eq" not in query["_id"])
        or any("_id" in part for name in ("$and", "$or") for part in query.get(name, ()))
    ),
}


def _refuse_differences(part: Any) -> None:
    for name, value in walk(part):
        for difference, is_asked_for in DIFFERENCES.items():
            if is_asked_for(name, value):
                _refuse(difference)


def _refuse_computed_fields(projection: Any) -> None:
    if isinstance(projection, Mapping) and any(
        isinstance(value, str | Mapping) for value in cast("Document", projection).values()
    ):
        _refuse("returns other fields for a projection with an expression or an operator")


def _refuse(difference: str) -> NoReturn:
    raise UnsupportedByStandIn(f"mongomock {difference}, and MongoDB doesn't. {_REMEDY}.")


# --- updates ----------------------------------------------------------------------------------------------------------

_MISSING = object()
_OF_ARRAYS = ("$push", "$addToSet", "$pull", "$pullAll", "$pop")


def _check_paths(document: Document, update: Document) -> None:
    """Raise MongoDB's errors for paths at which mongomock fails, writes nothing, or writes twice.

    These are paths of which one contains the other, paths below a scalar, and array operators on another value.
    """
    for one, other in combinations(sorted(path for fields in update.values() for path in fields), 2):
        if f"{other}.".startswith(f"{one}."):
            raise _write_error(40, f"Updating the path '{other}' would create a conflict at '{one}'")
    for operator, path in [(operator, path) for operator, fields in update.items() for path in fields]:
        at: Any = document
        for part in path.split("."):
            if isinstance(at, Mapping):
                at = cast("Document", at).get(part, _MISSING)
            elif isinstance(at, list) and part.isdigit():
                at = at[int(part)] if int(part) < len(cast("list[Any]", at)) else _MISSING
            elif at is not _MISSING and operator not in ("$unset", "$setOnInsert"):
                raise _write_error(28, f"Cannot create field '{part}' in element {at!r} of '{path}'")
        if operator in _OF_ARRAYS and at is not _MISSING and not isinstance(at, list):
            raise _write_error(14 if operator == "$pop" else 2, f"The field '{path}' must be an array but is {at!r}")


def _write_error(code: int, text: str) -> WriteError:
    return WriteError(text, code, {"index": 0, "code": code, "errmsg": text})


def _apply_stage(document: dict[str, Any], stage: Document, database: Any) -> dict[str, Any]:
    """Return the document after one stage of an update pipeline."""
    (result,) = process_pipeline([deepcopy(document)], database, [stage], None)
    for path, expression in (stage.get("$set") or stage.get("$addFields") or {}).items():
        if isinstance(expression, Mapping) and not is_condition(expression):
            _refuse(f"replaces {path}, to which $set adds in a pipeline")
        try:
            parse_expression(expression, document, ignore_missing_keys=True)
        except KeyError:  # MongoDB removes a field that is set to a missing one, or to "$$REMOVE"
            if not isinstance(expression, str):
                raise
            *parents, name = path.split(".")
            fields = result
            for part in parents:
                fields = fields.get(part, {})
            fields.pop(name, None)
    return cast("dict[str, Any]", result)


@contextmanager
def _all_or_nothing(document: dict[str, Any]) -> Generator[None, None, None]:
    """Restore the document if its update fails halfway."""
    before = deepcopy(document)
    try:
        yield
        _check_size(document)
    except BaseException:
        document.clear()
        document.update(before)
        raise


def _check_size(document: Document) -> None:
    if len(bson.encode(document)) > MAX_DOCUMENT_BYTES:
        raise _write_error(17419, f"Resulting document after update is larger than {MAX_DOCUMENT_BYTES}")


@contextmanager
def _failing_as_a_stand_in(what: str) -> Generator[None, None, None]:
    """Raise `UnsupportedByStandIn` for an error of mongomock that MongoDB doesn't raise."""
    try:
        yield
    except (PyMongoError, BSONError, ValueError, OverflowError, UnsupportedByStandIn):  # as the driver raises them
        raise
    except Exception as error:
        raise UnsupportedByStandIn(f"mongomock fails at {what} ({type(error).__name__}: {error}). {_REMEDY}.") from error


class _Operations(BulkOperationBuilder):
    """mongomock's own class, without the options that current pymongo versions pass."""

    def add_update(self, *args: Any, **options: Any) -> None:
        _refuse_options(options)
        super().add_update(*args)

    def add_replace(self, *args: Any, **options: Any) -> None:
        _refuse_options(options)
        super().add_replace(*args)

    def add_delete(self, *args: Any, **options: Any) -> None:
        _refuse_options(options)
        super().add_delete(*args)

    def execute(self, *args: Any) -> Any:
        """Do the operations. The index of an upsert is its operation's, as on the server; mongomock counts the upserts."""
        positions: list[int] = []

        def note_upsert(position: int, operation: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
            @wraps(operation)  # mongomock reads the name
            def perform() -> dict[str, Any]:
                result = operation()
                if "upserted" in result:
                    positions.append(position)
                return result

            return perform

        self.executors = [note_upsert(position, operation) for position, operation in enumerate(self.executors)]
        try:
            details = super().execute(*args)
        except BulkWriteError as error:
            _set_indexes(error.details, positions)
            raise
        _set_indexes(details, positions)
        return details


def perform_bulk_write(collection: Any, requests: Any, *, ordered: bool = True) -> BulkWriteResult:
    """Do the operations on a collection of mongomock, whose own method doesn't support current pymongo versions."""
    _refuse_options({"ordered=False": not ordered})
    operations = _Operations(collection, ordered=True)
    for request in requests:
        request._add_to_bulk(operations)
    return BulkWriteResult(operations.execute(), acknowledged=True)


def _set_indexes(details: Any, positions: Sequence[int]) -> None:
    for entry, position in zip(details["upserted"], positions, strict=True):
        entry["index"] = position


def _refuse_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value:
            raise UnsupportedByStandIn(f"mongomock's bulk_write ignores {name}, and MongoDB doesn't. {_REMEDY}.")


# --- the classes ------------------------------------------------------------------------------------------------------

# mongomock has few types.
# mypy: allow-untyped-calls
# mypy: disable-error-code="override"
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportIncompatibleMethodOverride=false


class StandInClient(MongoClient):
    """A separate mongomock server. One lock makes every call to it atomic."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.contents = ServerStore()
        super().__init__(_store=self.contents)

    def get_database(self, name: str, *_: Any, **__: Any) -> StandInDatabase:
        return StandInDatabase(self, name, self.contents[name])

    def drop_database(self, name_or_db: Any) -> None:
        with self.lock:
            super().drop_database(getattr(name_or_db, "name", name_or_db))

    def start_session(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedByStandIn(f"mongomock has no sessions. {_REMEDY}.")


class StandInDatabase(Database):
    """A mongomock database whose collections are stand-ins."""

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> StandInCollection:
        return _make_stand_in(super().get_collection(name, *args, **kwargs))

    def __getitem__(self, coll_name: str) -> StandInCollection:
        return self.get_collection(coll_name)

    @property
    def lock(self) -> Any:
        return self.client.lock

    @property
    def write_concern(self) -> pymongo.WriteConcern:
        return pymongo.WriteConcern()

    def command(self, command: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Support `buildInfo` too, which Beanie requests when it starts."""
        if "buildInfo" in (command, *(command if isinstance(command, Mapping) else ())):
            return {**self.client.server_info(), "ok": 1.0}
        return cast("dict[str, Any]", super().command(command, *args, **kwargs))

    def with_options(self, *args: Any, **kwargs: Any) -> StandInDatabase:
        if any(value is not None for value in (*args, *kwargs.values())):
            raise UnsupportedByStandIn(
                "mongomock's databases ignore options. Pass them to each collection, or run this test on mongod()."
            )
        return self


def _make_stand_in(plain: Any) -> StandInCollection:
    return StandInCollection(
        plain.database,
        plain.name,
        plain._db_store,
        write_concern=plain.write_concern,
        read_concern=plain.read_concern,
        read_preference=plain.read_preference,
        codec_options=plain.codec_options,
    )


class _NoOpContext:
    """A `with` block that closes nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class StandInCollection(_NoOpContext, Collection):
    """A mongomock collection that behaves like MongoDB, or refuses the call."""

    @property
    def lock(self) -> Any:
        return self.database.lock

    def with_options(self, *args: Any, **kwargs: Any) -> StandInCollection:
        return _make_stand_in(super().with_options(*args, **kwargs))

    def options(self) -> dict[str, Any]:
        """Return no options: mongomock lacks this method, and creates no collections with options."""
        return {}

    def update_one(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _drop_empty_upsert(super().update_one(*args, **kwargs))

    def update_many(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _drop_empty_upsert(super().update_many(*args, **kwargs))

    def replace_one(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _drop_empty_upsert(super().replace_one(*args, **kwargs))

    def create_indexes(self, indexes: Any) -> list[str]:
        """Create each index separately, because mongomock ignores some options if several are created at once."""
        documents = [dict(index.document) for index in indexes]
        return [self.create_index(list(document.pop("key").items()), **document) for document in documents]

    def bulk_write(self, requests: Any, *, ordered: bool = True) -> BulkWriteResult:
        return perform_bulk_write(self, requests, ordered=ordered)

    def _iter_documents(self, filter: Document) -> Any:
        _refuse_differences(filter)
        return super()._iter_documents(filter)

    def _get_dataset(self, *args: Any) -> Any:
        # A cursor reads after the call that created it has returned.
        with self.lock, _failing_as_a_stand_in("a read"):
            return list(super()._get_dataset(*args))

    def _update(self, spec: Any, document: Any, upsert: bool = False, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002  # mongomock's own signature
        _refuse_differences(document)
        for difference, is_asked_for in DIFFERENCES_OF_UPSERTS.items() if upsert else ():
            if is_asked_for(spec):
                _refuse(difference)
        return super()._update(spec, document, upsert, *args, **kwargs)

    def _insert(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Insert a document. Report an existing `_id` as the server does, because Beanie reads the details to recognize a stale revision."""
        try:
            return super()._insert(data, *args, **kwargs)
        except DuplicateKeyError as error:
            taken_id = data.get("_id") if isinstance(data, Mapping) else None
            if error.details is None and any(document["_id"] == taken_id for document in self._store.documents):
                details = {"code": 11000, "keyPattern": {"_id": 1}, "keyValue": {"_id": taken_id}}
                raise DuplicateKeyError(str(error), 11000, details) from None
            raise

    def _apply_update_document(self, existing_document: Any, spec: Any, document: Any, was_insert: bool) -> None:  # noqa: FBT001  # mongomock's signature
        with _all_or_nothing(existing_document):
            if is_condition(document):
                _check_paths(existing_document, document)
            super()._apply_update_document(existing_document, spec, document, was_insert)

    def _apply_update_pipeline(self, existing_document: Any, pipeline: Any, session: Any) -> None:  # noqa: ARG002  # mongomock's signature
        """Apply the stages one by one, because `_apply_stage` corrects mongomock's result of each."""
        with _all_or_nothing(existing_document):
            for stage in pipeline:
                document = _apply_stage(existing_document, stage, self.database)
                existing_document.clear()
                existing_document.update(document)

    def _copy_only_fields(self, doc: Any, fields: Any, container: Any) -> Any:
        _refuse_computed_fields(fields)
        return super()._copy_only_fields(doc, fields, container)

    def _find_and_modify(self, query: Any, projection: Any = None, *args: Any, **kwargs: Any) -> Any:
        _refuse_computed_fields(projection)  # before anything is written
        # mongomock finds the document again by its _id, which a projection can remove.
        document = super()._find_and_modify(query, None, *args, **kwargs)
        return None if document is None else self._copy_only_fields(document, projection, dict)


def _drop_empty_upsert(result: UpdateResult) -> UpdateResult:
    """Return the result without mongomock's `"upserted": None`, which pymongo treats as an insert."""
    raw = {name: value for name, value in (result.raw_result or {}).items() if (name, value) != ("upserted", None)}
    return UpdateResult(raw, acknowledged=True)


# --- the restriction to supported methods -----------------------------------------------------------------------------


def _wrap_method(method: str, answerable: frozenset[str], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
        first, options = bind_arguments(method, answerable, args, kwargs)
        with owner.lock, _failing_as_a_stand_in(method):
            return original(owner, *first, **options)

    return call


def _refuse_method(method: str) -> Callable[..., NoReturn]:
    def call(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedByStandIn(f"mongomock doesn't support {method}. {_REMEDY}.")

    return call


def _restrict(stand_in: Any, real: Any, answerable: Mapping[str, frozenset[str]]) -> None:
    """Support the methods that mongomock supports, and refuse all other public methods of mongomock's and pymongo's classes."""
    for name in sorted({*dir(stand_in), *dir(real)}):
        if not name.startswith("_") and name not in ATTRIBUTES and name != "lock":
            method = (
                _wrap_method(name, answerable[name], getattr(stand_in, name)) if name in answerable else _refuse_method(name)
            )
            setattr(stand_in, name, method)


_restrict(StandInCollection, pymongo.collection.Collection, ARGUMENTS)
_restrict(StandInDatabase, pymongo.database.Database, DATABASE_ARGUMENTS)


# --- the same, awaited ------------------------------------------------------------------------------------------------
#
# A stand-in for pymongo's AsyncCollection.


class _AsyncStandIn(_NoOpContext):
    """A stand-in whose methods are awaited."""

    def __init__(self, stand_in: Any) -> None:
        self.stand_in = stand_in

    def with_options(self, *args: Any, **kwargs: Any) -> Self:
        return type(self)(self.stand_in.with_options(*args, **kwargs))

    def __getitem__(self, name: str) -> AsyncStandInCollection:
        return AsyncStandInCollection(self.stand_in[name])

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.stand_in, name)
        return _make_awaited(value) if inspect.ismethod(value) else _make_async(value)


class AsyncStandInCollection(_AsyncStandIn):
    """A StandInCollection whose methods are awaited."""

    def find(self, *args: Any, **kwargs: Any) -> AsyncStandInCursor:
        return AsyncStandInCursor(self.stand_in.find(*args, **kwargs))


class AsyncStandInDatabase(_AsyncStandIn):
    """A StandInDatabase whose methods are awaited, with asynchronous collections."""

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> AsyncStandInCollection:
        return AsyncStandInCollection(self.stand_in.get_collection(name, *args, **kwargs))


class AsyncStandInCursor:
    """The results of a query, for `async for` or `to_list`."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Callable[..., AsyncStandInCursor]:
        option = getattr(self._cursor, name)  # sort, skip, limit

        def chain(*args: Any, **kwargs: Any) -> AsyncStandInCursor:
            return AsyncStandInCursor(option(*args, **kwargs))

        return chain

    async def __aiter__(self) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        for document in self._cursor:
            yield document

    async def to_list(self, length: int | None = None) -> list[Any]:
        await asyncio.sleep(0)
        return list(self._cursor)[:length]


def _make_async(value: Any) -> Any:
    """Return the asynchronous form of a stand-in or cursor, and any other value unchanged."""
    match value:
        case StandInCollection():
            return AsyncStandInCollection(value)
        case StandInDatabase():
            return AsyncStandInDatabase(value)
        case CommandCursor() | Generator():
            return AsyncStandInCursor(value)
        case _:
            return value


def _make_awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)  # a real driver lets other tasks run before the write and after it
        try:
            return _make_async(method(*args, **kwargs))
        finally:
            await asyncio.sleep(0)

    return call
