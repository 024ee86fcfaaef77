"""mongomock's collections, made to answer as MongoDB does where mongomock is known to answer otherwise.

What is made right: Calls are atomic under threads. Filters and the operators of updates are evaluated by mongodb_rules.py, and not
by mongomock: with MongoDB's types, its order of values and of fields, its arrays and its error codes. Updates
of conflicting paths, of values of the wrong type, beyond 64 bits and beyond 16 MB are refused, and a failing update changes nothing. An
upsert takes its fields from `$and`, and from an `$or`, `$in` or `$all` of one, none from a regular expression, and refuses `$expr`. An
`_id` is no array, no regular expression, and has no name with `$`. What is read is what BSON has: no member of an enum, but its value.
A pipeline removes what `$set` sets from a missing field, keeps the rest of a document that it sets a part of, and knows `$unset` and
`$replaceWith`. Expressions may use `$not` of a list and `$$NOW`, and compare with missing fields. A projection is not changed, and that of
find_one_and_* does not lose the document. `did_upsert` and `modified_count` are right, a DuplicateKeyError has its details, `bulk_write`
takes pymongo's operations, and a collection has `options`.

What is refused with `StandInLies`: the methods and arguments that mongomock does not know or would ignore, operators and expressions that
it does not know, a positional path (`a.$`) whose place follows from more than one condition, a `$slice` alone or a computed field in a
projection, arrays in unique indexes, an `_id` with a Decimal128, one that only Python takes for equal to another one, such as True and 1,
and whatever else makes mongomock itself fail.

What stays wrong: Expressions in pipelines take operands of the wrong type, or refuse them without MongoDB's error code. A projection may
change the order of fields. An index that expires documents does so at once. An upsert takes no `_id` from its update, and none that is null
from its filter. There are no sessions, transactions, validation, collations, change streams or write concerns.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial, wraps
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias, cast

import bson
import mongomock
import pymongo.collection
import pymongo.database
from bson import ObjectId
from bson.errors import BSONError
from mongomock.aggregate import (
    _parse_expression as parse_expression,  # pyright: ignore[reportPrivateUsage]  # nothing public evaluates one expression
)
from mongomock.aggregate import process_pipeline
from mongomock.collection import Collection
from mongomock.command_cursor import CommandCursor
from mongomock.database import Database
from mongomock.mongo_client import MongoClient
from mongomock.store import ServerStore
from pymongo.errors import (
    BulkWriteError,
    DocumentTooLarge,
    DuplicateKeyError,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    WriteError,
)
from pymongo.results import BulkWriteResult, UpdateResult

from onewrite.mongodb.flows import LARGEST_DOCUMENT
from onewrite.testing.errors import StandInLies
from onewrite.testing.standins.mongodb_rules import (
    MISSING,
    REMEDY,
    at_matched_place,
    check_id,
    check_update,
    duplicate_key,
    equal,
    equalities,
    field_at,
    is_condition,
    is_positional,
    known_expression,
    matcher,
    may_be_missing,
    paths_to_set,
    put_at_path,
    update_document,
    value_at_path,
    without_patterns,
    write_error,
)
from onewrite.testing.taps.mongodb_methods import DATABASE_SILENT, SILENT, bind, signature_of

# --- which methods are answered ---------------------------------------------------------------------------------------
#
# Which of pymongo's methods mongomock can answer, and with which arguments. Everything else is refused.
#
# mongomock takes many arguments that it then ignores, so a test would see what no MongoDB does.


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
    "rename": frozenset({"new_name", "dropTarget"}),
    "replace_one": frozenset({"filter", "replacement", "upsert"}),
    "update_many": frozenset({"filter", "update", "upsert"}),
    "update_one": frozenset({"filter", "update", "upsert"}),
}
DATABASE_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "command": frozenset({"command"}),
    "create_collection": frozenset({"name"}),
    "dereference": frozenset({"dbref"}),
    "drop_collection": frozenset({"name_or_collection"}),
    "list_collection_names": frozenset(),  # with a filter, mongomock also lists collections that were only named
}
# These attributes send nothing, and mongomock or the stand-in has them.
ATTRIBUTES = (SILENT | DATABASE_SILENT) - {"next"}
# These arguments change nothing that a test could see here: mongomock is not given them.
_WITHOUT_EFFECT = frozenset({
    "allowDiskUse", "allow_disk_use", "allow_partial_results", "authorizedCollections", "background", "batchSize", "batch_size", "bypassDocumentValidation",
    "bypass_document_validation", "check_exists", "comment", "maxTimeMS", "max_time_ms", "no_cursor_timeout", "oplog_replay",
})  # fmt: skip


def arguments_of(
    method: str, answerable: frozenset[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that mongomock is called with, or `StandInLies` where it would ignore one."""
    arguments = bind(method, args, kwargs)
    # An empty value asks for nothing.
    ignored_names = [
        name for name, value in arguments.items() if name not in answerable and name not in _WITHOUT_EFFECT and value
    ]
    if ignored_names:
        raise StandInLies(f"mongomock's {method} does not do what {', '.join(ignored_names)} asks for. {REMEDY}.")
    first = [arguments.pop(name) for name in signature_of(method).required_names]
    return first, {name: value for name, value in arguments.items() if name in answerable}


# --- bulk writes ------------------------------------------------------------------------------------------------------
#
# `bulk_write` on mongomock, whose own does not fit today's pymongo: each operation is done by the method for it alone.

_INSERT, _UPDATE, _DELETE = range(3)  # the order in which pymongo sends an unordered bulk write


class _Operation(NamedTuple):
    kind: int
    place: int
    description: Mapping[str, Any]  # what an error shows of it
    perform: Callable[[], Any]


def bulk_write(collection: Any, requests: Sequence[Any], *, ordered: bool = True) -> BulkWriteResult:
    """Do the operations, and answer or raise as pymongo's `bulk_write` does."""
    operations = _Operations(collection)
    for request in requests:
        try:
            add = request._add_to_bulk  # noqa: SLF001  # pymongo has no public name for what an operation does
        except AttributeError:
            raise TypeError(f"{request!r} is not a valid request") from None
        add(operations)
    if not operations.all:
        raise InvalidOperation("No operations to execute")
    totals: dict[str, Any] = {
        "writeErrors": [], "writeConcernErrors": [], "nInserted": 0, "nUpserted": 0, "nMatched": 0, "nModified": 0,
        "nRemoved": 0, "upserted": [],
    }  # fmt: skip
    for operation in operations.all if ordered else sorted(operations.all, key=lambda operation: operation.kind):
        try:
            _count(totals, operation, operation.perform())
        except WriteError as error:
            details = {"code": error.code, "errmsg": str(error), **(error.details or {})}
            totals["writeErrors"].append({**details, "index": operation.place, "op": operation.description})
            if ordered:
                break
    if totals["writeErrors"]:
        raise BulkWriteError(totals)
    return BulkWriteResult(totals, acknowledged=True)


class _Operations:
    """Takes pymongo's operations, which call these methods."""

    def __init__(self, collection: Any) -> None:
        self._collection = collection
        self.all: list[_Operation] = []

    def add_insert(self, document: Any) -> None:
        document.setdefault("_id", ObjectId())
        self._add(_INSERT, document, partial(self._collection.insert_one, document))

    def add_update(self, selector: Any, update: Any, multi: bool, upsert: bool | None = None, **options: Any) -> None:  # noqa: FBT001  # pymongo's own signature
        method = self._collection.update_many if multi else self._collection.update_one
        description = {"q": selector, "u": update, "multi": multi, "upsert": bool(upsert)}
        self._add(_UPDATE, description, partial(method, selector, update, upsert=bool(upsert), **_without_none(options)))

    def add_replace(self, selector: Any, replacement: Any, upsert: bool | None = None, **options: Any) -> None:  # noqa: FBT001  # the same
        description = {"q": selector, "u": replacement, "multi": False, "upsert": bool(upsert)}
        replace_one = self._collection.replace_one
        self._add(
            _UPDATE, description, partial(replace_one, selector, replacement, upsert=bool(upsert), **_without_none(options))
        )

    def add_delete(self, selector: Any, limit: int, **options: Any) -> None:
        method = self._collection.delete_one if limit else self._collection.delete_many
        self._add(_DELETE, {"q": selector, "limit": limit}, partial(method, selector, **_without_none(options)))

    def _add(self, kind: int, description: Mapping[str, Any], perform: Callable[[], Any]) -> None:
        self.all.append(_Operation(kind, len(self.all), description, perform))


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _count(totals: dict[str, Any], operation: _Operation, result: Any) -> None:
    if operation.kind == _INSERT:
        totals["nInserted"] += 1
    elif operation.kind == _DELETE:
        totals["nRemoved"] += result.deleted_count
    elif result.upserted_id is not None:
        totals["nUpserted"] += 1
        totals["upserted"].append({"index": operation.place, "_id": result.upserted_id})
    else:
        totals["nMatched"] += result.matched_count
        totals["nModified"] += result.modified_count


# --- the classes ------------------------------------------------------------------------------------------------------

# mongomock says little of its types.
# mypy: allow-untyped-calls
# mypy: disable-error-code="override"
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportIncompatibleMethodOverride=false


Document: TypeAlias = Mapping[str, Any]


class StandInClient(MongoClient):
    """A mongomock server of its own. One lock makes every call to it atomic."""

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
        raise StandInLies(f"mongomock has no sessions. {REMEDY}.")


class StandInDatabase(Database):
    """A mongomock database whose collections are stand-ins."""

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> StandInCollection:
        return _stand_in(super().get_collection(name, *args, **kwargs))

    def __getitem__(self, coll_name: str) -> StandInCollection:
        return self.get_collection(coll_name)

    @property
    def lock(self) -> Any:
        return self.client.lock

    @property
    def write_concern(self) -> pymongo.WriteConcern:
        return pymongo.WriteConcern()

    def with_options(self, *args: Any, **kwargs: Any) -> StandInDatabase:
        if any(value is not None for value in (*args, *kwargs.values())):
            raise StandInLies(f"mongomock's databases have no options: give them to each collection. {REMEDY}.")
        return self


def _stand_in(plain: Any) -> StandInCollection:
    return StandInCollection(
        plain.database,
        plain.name,
        plain._db_store,  # noqa: SLF001  # an argument of mongomock's own constructor
        plain.write_concern,
        plain.read_concern,
        plain.read_preference,
        plain.codec_options,
    )


class StandInCollection(Collection):
    """A mongomock collection that answers as MongoDB does, or refuses to answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    @property
    def lock(self) -> Any:
        return self.database.lock

    def with_options(self, *args: Any, **kwargs: Any) -> StandInCollection:
        return _stand_in(super().with_options(*args, **kwargs))

    def options(self) -> dict[str, Any]:
        """mongomock does not have this method. It creates no collections with options either."""
        return {}

    def update_one(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _as_pymongo_has_it(super().update_one(*args, **kwargs))

    def update_many(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _as_pymongo_has_it(super().update_many(*args, **kwargs))

    def replace_one(self, *args: Any, **kwargs: Any) -> UpdateResult:
        return _as_pymongo_has_it(super().replace_one(*args, **kwargs))

    def aggregate(self, pipeline: Any) -> Any:
        documents: list[Any] = list(cast("Any", self.find()))
        for stage in pipeline:
            if isinstance(stage, Mapping) and list(stage) == ["$match"]:
                matches = matcher(stage["$match"], _evaluate)
                documents = [document for document in documents if matches(document)]
            elif not (isinstance(stage, Mapping) and list(stage) == ["$count"] and not documents):  # which counts nothing
                documents = self._after(stage, documents)
        return CommandCursor(documents)

    def _after(self, stage: Any, documents: list[Any]) -> list[Any]:
        with _failing_as_a_stand_in(f"the stage {stage!r}"):
            return list(cast("Any", process_pipeline(documents, self.database, [known_expression(stage)], None)))

    def distinct(self, key: Any, filter: Any = None) -> list[Any]:
        with _failing_as_a_stand_in(f"the values of {key!r}"):
            return cast("list[Any]", super().distinct(key, filter))

    def create_indexes(self, indexes: Any) -> list[str]:
        """mongomock ignores some options of an index that is created in this way, and not if it is created alone."""
        documents = [dict(index.document) for index in indexes]
        return [self.create_index(list(document.pop("key").items()), **document) for document in documents]

    def rename(self, new_name: str, **options: Any) -> Any:
        return Database.rename_collection(self.database, self.name, new_name, **options)

    def bulk_write(self, requests: Any, *, ordered: bool = True) -> Any:
        return bulk_write(self, requests, ordered=ordered)

    def _iter_documents(self, filter: Document) -> Any:
        matches = matcher(_as_sent({"q": filter})["q"], _evaluate)
        return (document for document in list(self._store.documents) if matches(document))

    def _get_dataset(self, *args: Any) -> Any:
        # A cursor reads after the call that made it has returned.
        with self.lock, _failing_as_a_stand_in("a read"):
            return list(super()._get_dataset(*args))

    def _insert(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(data, Mapping):
            return super()._insert(data, *args, **kwargs)
        if (size := len(bson.encode(data))) > LARGEST_DOCUMENT:
            raise DocumentTooLarge(
                f"BSON document too large ({size} bytes) - the connected server supports BSON document sizes up to "
                f"{LARGEST_DOCUMENT} bytes."
            )
        check_id(data.get("_id"))
        if "_id" not in data:
            cast("dict[str, Any]", data)["_id"] = ObjectId()
        try:
            with _failing_as_a_stand_in(f"the _id {data['_id']!r}"):
                super()._insert(_as_sent({"_id": data["_id"], **data}), *args, **kwargs)
            return data["_id"]
        except DuplicateKeyError as error:
            if error.details:
                raise
            if not any(equal(document["_id"], data["_id"]) for document in self._store.documents):
                raise StandInLies(
                    f"mongomock takes the _id {data['_id']!r} for one that is there, as Python takes True for 1. MongoDB does not. {REMEDY}."
                ) from None
            raise duplicate_key(self.full_name, "_id_", {"_id": data["_id"]}) from None

    def _ensure_uniques(self, new_data: Document) -> None:
        for name, index in self._store.indexes.items():
            if index.get("unique") and any(_goes_through_array(new_data, field) for field, _ in index["key"]):
                raise StandInLies(
                    f"mongomock does not compare the members of an array, as the unique index {name} does. {REMEDY}."
                )
        try:
            super()._ensure_uniques(new_data)
        except DuplicateKeyError as error:
            raise duplicate_key(self.full_name, *self._violated_index(new_data)) from error

    def _violated_index(self, document: Document) -> tuple[str, dict[str, Any]]:
        """The unique index in which another document has the same values, and these."""
        violation: tuple[str, dict[str, Any]] = "", {}
        for name, index in self._store.indexes.items():
            values = {field: field_at(document, field) for field, _ in index["key"]}
            if index.get("unique") and len(list(self._iter_documents(values))) > 1:
                violation = name, values
        return violation

    def _update(self, spec: Any, document: Any, upsert: bool = False, *args: Any, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002  # mongomock's own signature
        spec, document = _as_sent({"q": spec, "u": document}).values()  # the driver refuses what has no form in BSON
        if isinstance(document, Mapping | list):
            check_update(document)
        if upsert:
            spec = {**without_patterns(spec), **equalities(spec)}
        self._change_count = 0
        try:
            result = super()._update(spec, document, upsert, *args, **kwargs)
        except WriteError as error:
            if error.code is not None:
                raise
            raise StandInLies(f"mongomock fails at an upsert by {spec!r} ({error}). {REMEDY}.") from error
        return {**result, "nModified": self._change_count if result["updatedExisting"] else 0}

    @contextmanager
    def _counting_changes(self, document: Any, update: Any) -> Generator[None, None, None]:
        """Count the documents whose bytes an update changes. Python takes 1 and 1.0 for equal, and does not see the order of keys.

        MongoDB takes every replacement for a change that does not name the `_id`.
        """
        is_nameless = isinstance(update, Mapping) and not is_condition(update) and "_id" not in update
        before = bson.encode(document)
        yield
        self._change_count += is_nameless or bson.encode(document) != before

    def _apply_update_document(self, existing_document: Any, spec: Any, document: Any, was_insert: bool) -> None:  # noqa: FBT001  # the same
        if is_positional(document):
            document = at_matched_place(document, spec, None if was_insert else existing_document, _evaluate)
        with self._counting_changes(existing_document, document), _all_or_nothing(existing_document):
            if not is_condition(document):  # a replacement
                super()._apply_update_document(existing_document, spec, document, was_insert)
            else:
                change = update_document(
                    existing_document, document, _evaluate, inserts=was_insert, now=cast("Any", mongomock).utcnow
                )
                existing_document.clear()
                existing_document.update(change)

    def _apply_update_pipeline(self, existing_document: Any, pipeline: Any, session: Any) -> None:  # noqa: ARG002  # the same
        with self._counting_changes(existing_document, pipeline), _all_or_nothing(existing_document):
            document = existing_document
            try:
                for stage in pipeline:
                    document = _after_stage(document, stage, self.database)
            except OperationFailure as error:
                raise WriteError(str(error), error.code, error.details) from error
            new = dict(document)
            if "_id" in existing_document and new.get("_id", existing_document["_id"]) != existing_document["_id"]:
                raise write_error(66, "Performing an update on the path '_id' would modify the immutable field '_id'")
            existing_document.clear()
            existing_document.update(new)

    def _copy_only_fields(self, doc: Any, fields: Any, container: Any) -> Any:
        fields = deepcopy(fields)  # mongomock takes out what it has done
        if isinstance(fields, Mapping):
            names = cast("Document", fields)
            if any(
                isinstance(value, str) or (is_condition(value) and next(iter(value)) not in ("$slice", "$elemMatch"))
                for value in names.values()
            ):
                raise StandInLies(f"mongomock does not compute the fields of a projection. {REMEDY}.")
            excluded_names = [name for name, value in names.items() if value == 0]
            if excluded_names and {*names} - {*excluded_names} <= {"_id"}:
                rest = container(deepcopy(doc))
                for name in excluded_names:
                    put_at_path(rest, name.split("."), MISSING, creates=False)
                return rest
            conditions = [value for name, value in names.items() if name != "_id"]
            if conditions and all(isinstance(value, Mapping) and "$slice" in value for value in conditions):
                raise StandInLies(f"mongomock leaves out the other fields where a projection has $slice alone. {REMEDY}.")
        with _failing_as_a_stand_in(f"the projection {fields!r}"):
            return super()._copy_only_fields(doc, fields, container)

    def _find_and_modify(
        self,
        query: Any,
        projection: Any = None,
        update: Any = None,
        upsert: bool = False,  # noqa: FBT001, FBT002  # mongomock's own signature
        sort: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        try:  # mongomock finds the document again by its _id, which a projection may have taken away
            if isinstance(update, Mapping | list):
                check_update(update)
            if isinstance(update, Mapping) and is_positional(update):  # by the _id alone no place is found
                found = cast("Document | None", self.find_one(query, sort=sort))
                update = update if found is None else at_matched_place(update, query, found, _evaluate)
            document = super()._find_and_modify(query, None, update, upsert, sort, *args, **kwargs)
        except WriteError as error:
            if isinstance(error, DuplicateKeyError):
                raise
            raise OperationFailure(str(error), error.code, error.details) from error
        return None if document is None else self._copy_only_fields(document, projection, dict)


def _evaluate(expression: Any, document: Any) -> Any:
    """The value of an aggregation expression, or MISSING."""
    if isinstance(expression, str) and expression.startswith("$") and not expression.startswith("$$"):
        return value_at_path(document, expression[1:].split("."))
    try:
        return parse_expression(known_expression(expression, document), document, ignore_missing_keys=True)
    except KeyError as missing:
        if may_be_missing(expression):
            return MISSING
        raise StandInLies(f"mongomock cannot evaluate {expression!r} where {missing} is missing. {REMEDY}.") from missing


def _after_stage(document: Document, stage: Document, database: Any) -> Document:
    """The document after one stage of an update that is a pipeline."""
    ((name, argument),) = stage.items()
    if name in ("$set", "$addFields") and isinstance(argument, Mapping) and argument:
        # All are evaluated before any is set.
        values = [(path.split("."), _evaluate(expression, document)) for path, expression in paths_to_set(argument)]
        result = deepcopy(dict(document))
        for path, value in values:
            put_at_path(result, path, value)
        return result
    if name == "$unset":
        result = deepcopy(dict(document))
        for field in [argument] if isinstance(argument, str) else argument:
            put_at_path(result, field.split("."), MISSING, creates=False)
        return result
    if name == "$replaceWith":
        name, argument = "$replaceRoot", {"newRoot": argument}
    (result,) = process_pipeline([document], database, [{name: known_expression(argument)}], None)
    return cast("Document", result)


def _as_pymongo_has_it(result: UpdateResult) -> UpdateResult:
    """mongomock says `"upserted": None` where nothing was inserted, and pymongo takes the name alone for an insert."""
    raw = {name: value for name, value in (result.raw_result or {}).items() if (name, value) != ("upserted", None)}
    return UpdateResult(raw, acknowledged=True)


@contextmanager
def _failing_as_a_stand_in(what: str) -> Generator[None, None, None]:
    """Let it be seen that mongomock itself fails, and not MongoDB."""
    try:
        yield
    except (PyMongoError, BSONError, StandInLies):
        raise
    except Exception as error:
        raise StandInLies(f"mongomock fails at {what} ({type(error).__name__}: {error}). {REMEDY}.") from error


@contextmanager
def _all_or_nothing(document: dict[str, Any]) -> Generator[None, None, None]:
    """Put the document back as it was where its update fails halfway."""
    before = deepcopy(document)
    try:
        yield
        result = _as_stored(document)
        document.clear()
        document.update(result)
    except Exception as error:
        document.clear()
        document.update(before)
        if isinstance(error, PyMongoError | BSONError):
            raise
        raise StandInLies(
            f"mongomock fails at this update, which MongoDB answers ({type(error).__name__}: {error}). {REMEDY}."
        ) from error


def _as_sent(document: Document) -> dict[str, Any]:
    """What a client reads of a document that it has sent: of a member of an enum its value, and of a Python pattern a Regex."""
    return bson.decode(bson.encode(document))


def _as_stored(document: Document) -> dict[str, Any]:
    try:
        data = bson.encode(document)
    except OverflowError as error:
        raise write_error(2, f"Failed to apply $inc operations to current value: {error}") from error
    if len(data) > LARGEST_DOCUMENT:
        raise write_error(17419, f"Resulting document after update is larger than {LARGEST_DOCUMENT}")
    return bson.decode(data)


def _goes_through_array(document: Document, field: str) -> bool:
    """Is there an array at the path, or on the way?"""
    value: Any = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, list | tuple):
            return True
    return False


# ---------------------------------------------------------------- what can be called


def _answer(method: str, answerable: frozenset[str], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
        first, options = arguments_of(method, answerable, args, kwargs)
        with owner.lock:
            try:
                return original(owner, *first, **options)
            except StandInLies:
                raise
            except NotImplementedError as error:
                raise StandInLies(f"{error}. {REMEDY}.") from error

    return call


def _refuse(method: str) -> Callable[..., NoReturn]:
    def call(*_: Any, **__: Any) -> NoReturn:
        raise StandInLies(f"mongomock cannot answer {method}. {REMEDY}.")

    return call


def _restrict(stand_in: Any, real: Any, answerable: Mapping[str, frozenset[str]]) -> None:
    """Let the class answer what mongomock can, and refuse all else that it or pymongo's own class has in public."""
    for name in sorted({*dir(stand_in), *dir(real)}):
        if not name.startswith("_") and name not in ATTRIBUTES and name != "lock":
            method = _answer(name, answerable[name], getattr(stand_in, name)) if name in answerable else _refuse(name)
            setattr(stand_in, name, method)


_restrict(StandInCollection, pymongo.collection.Collection, ARGUMENTS)
_restrict(StandInDatabase, pymongo.database.Database, DATABASE_ARGUMENTS)


# --- the same, awaited ------------------------------------------------------------------------------------------------
#
# A stand-in collection for code that is written for pymongo's AsyncCollection.


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


def _asynchronous(value: Any) -> Any:
    """The asynchronous form of what a collection or a database has."""
    if isinstance(value, StandInCollection):
        return AsyncStandInCollection(value)
    return _asynchronous_method(value) if inspect.ismethod(value) else value


def _asynchronous_method(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)  # a real driver lets other tasks run before the write and after it
        try:
            return _asynchronous(method(*args, **kwargs))
        finally:
            await asyncio.sleep(0)

    return call
