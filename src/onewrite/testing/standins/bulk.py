"""`bulk_write` on mongomock, whose own does not fit today's pymongo: each operation is done by the method for it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bson import ObjectId
from pymongo.errors import BulkWriteError, InvalidOperation, WriteError
from pymongo.results import BulkWriteResult

_INSERT, _UPDATE, _DELETE = range(3)  # the order in which pymongo sends an unordered bulk write


class _Operation(NamedTuple):
    kind: int
    place: int
    sent: Mapping[str, Any]  # what an error shows of it
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
    found: dict[str, Any] = {
        "writeErrors": [], "writeConcernErrors": [], "nInserted": 0, "nUpserted": 0, "nMatched": 0, "nModified": 0,
        "nRemoved": 0, "upserted": [],
    }  # fmt: skip
    for operation in operations.all if ordered else sorted(operations.all, key=lambda one: one.kind):
        try:
            _count(found, operation, operation.perform())
        except WriteError as error:
            details = {"code": error.code, "errmsg": str(error), **(error.details or {})}
            found["writeErrors"].append({**details, "index": operation.place, "op": operation.sent})
            if ordered:
                break
    if found["writeErrors"]:
        raise BulkWriteError(found)
    return BulkWriteResult(found, acknowledged=True)


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
        sent = {"q": selector, "u": update, "multi": multi, "upsert": bool(upsert)}
        self._add(_UPDATE, sent, partial(method, selector, update, upsert=bool(upsert), **_given(options)))

    def add_replace(self, selector: Any, replacement: Any, upsert: bool | None = None, **options: Any) -> None:  # noqa: FBT001  # the same
        sent = {"q": selector, "u": replacement, "multi": False, "upsert": bool(upsert)}
        replace_one = self._collection.replace_one
        self._add(_UPDATE, sent, partial(replace_one, selector, replacement, upsert=bool(upsert), **_given(options)))

    def add_delete(self, selector: Any, limit: int, **options: Any) -> None:
        method = self._collection.delete_one if limit else self._collection.delete_many
        self._add(_DELETE, {"q": selector, "limit": limit}, partial(method, selector, **_given(options)))

    def _add(self, kind: int, sent: Mapping[str, Any], perform: Callable[[], Any]) -> None:
        self.all.append(_Operation(kind, len(self.all), sent, perform))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _count(found: dict[str, Any], operation: _Operation, result: Any) -> None:
    if operation.kind == _INSERT:
        found["nInserted"] += 1
    elif operation.kind == _DELETE:
        found["nRemoved"] += result.deleted_count
    elif result.upserted_id is not None:
        found["nUpserted"] += 1
        found["upserted"].append({"index": operation.place, "_id": result.upserted_id})
    else:
        found["nMatched"] += result.matched_count
        found["nModified"] += result.modified_count
