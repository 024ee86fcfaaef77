"""Reads native MongoDB filters and updates just far enough to merge ours into them, and refuses what would harm the ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from bson import ObjectId
from bson.regex import Regex

from onewrite.errors import InvalidUpdate

Document: TypeAlias = Mapping[str, Any]
Update: TypeAlias = Document | Sequence[Document]

_SCALARS = frozenset({str, int, ObjectId})  # what nearly all ids are: nothing to look into
_COMBINATIONS = ("$and", "$or", "$nor")
_REPLACING_STAGES = frozenset({"$replaceWith", "$replaceRoot", "$project"})
_SETTING_STAGES = frozenset({"$set", "$addFields"})


def check_filter(attribute: str, query: object) -> None:
    if not isinstance(query, Mapping):
        raise InvalidUpdate(f"The filter is a {type(query).__name__}: name the one entity, as in {{'_id': ...}}.")
    for path in _queried(cast("Document", query)):
        _check_path(attribute, path)


def check_document(attribute: str, document: object) -> None:
    if not isinstance(document, Mapping) or cast("Document", document).get("_id") is None:
        raise InvalidUpdate(
            "The document needs an _id of its own: one that the driver makes up differs on each delivery, so that each would "
            "create another entity."
        )
    for name in cast("Document", document):
        _check_path(attribute, name)


def check_update(attribute: str, update: object) -> None:
    if isinstance(update, Mapping):
        _check_operators(attribute, cast("Document", update))
    elif isinstance(update, Sequence) and not isinstance(update, str | bytes) and update:
        for stage in cast("Sequence[Document]", update):
            _check_stage(attribute, stage)
    else:
        raise InvalidUpdate("The update is neither operators nor a pipeline: to change nothing but the ledger, use record.")


def identity(query: Document) -> dict[str, Any]:
    """Which entity a filter means, without the conditions that it puts on it.

    `_id` where the filter gives one; else the fields that are given as plain values, not with operators.
    """
    if "_id" in query:
        value = query["_id"]
        if not _has_operators(value):
            return {"_id": value}
        if _is_eq(value):
            return {"_id": value["$eq"]}
    equal = {name: value for name, value in query.items() if not name.startswith("$") and not _has_operators(value)}
    if not equal:
        raise InvalidUpdate(
            f"The filter {dict(query)!r} names no entity: give _id, or another field that names one, a value."
        )
    return equal


def _has_operators(value: object) -> bool:
    if type(value) in _SCALARS:
        return False
    if isinstance(value, re.Pattern | Regex):
        return True
    return isinstance(value, Mapping) and any(str(key).startswith("$") for key in cast("Document", value))


def _is_eq(value: object) -> bool:
    return isinstance(value, Mapping) and list(cast("Document", value)) == ["$eq"]


def _queried(query: Document) -> Iterator[str]:
    """The field paths in a filter."""
    for name, value in query.items():
        if name in _COMBINATIONS and isinstance(value, Sequence):
            for part in cast("Sequence[Document]", value):
                yield from _queried(part)
        elif name == "$expr":
            yield from _read(value)
        elif not name.startswith("$"):
            yield name


def _read(expression: object) -> Iterator[str]:
    """The field paths that an aggregation expression reads."""
    if isinstance(expression, str):
        if expression.startswith("$"):
            yield expression.removeprefix("$$ROOT.").removeprefix("$$CURRENT.").removeprefix("$")
    elif isinstance(expression, Mapping):
        for name, value in cast("Document", expression).items():
            if name != "$literal":
                yield from _read(value)
    elif isinstance(expression, Sequence) and not isinstance(expression, bytes):
        for value in cast("Sequence[object]", expression):
            yield from _read(value)


def _check_operators(attribute: str, update: Document) -> None:
    if not update:
        raise InvalidUpdate("The update is empty: to change nothing but the ledger, use record.")
    for operator, change in update.items():
        if not operator.startswith("$"):
            raise InvalidUpdate(
                f"The update has {operator!r} where operators belong. Replacing the whole document would erase its ledger: "
                "use $set and $unset."
            )
        if not isinstance(change, Mapping):
            raise InvalidUpdate(f"{operator} takes a document of fields, not a {type(change).__name__}.")
        for path, value in cast("Document", change).items():
            _check_path(attribute, path)
            if operator == "$rename" and isinstance(value, str):
                _check_path(attribute, value)


def _check_stage(attribute: str, stage: object) -> None:
    if not isinstance(stage, Mapping) or len(cast("Document", stage)) != 1:
        raise InvalidUpdate(f"{stage!r} is no pipeline stage: a stage is a document with one operator.")
    ((name, body),) = cast("Document", stage).items()
    if name in _REPLACING_STAGES:
        raise InvalidUpdate(f"{name} would erase the ledger: use $set and $unset.")
    if name == "$unset":
        for path in [body] if isinstance(body, str) else cast("Sequence[str]", body):
            _check_path(attribute, path)
    if name in _SETTING_STAGES:
        for path, value in cast("Document", body).items():
            _check_path(attribute, path)
            for read in _read(value):
                _check_path(attribute, read)


def _check_path(attribute: str, path: str) -> None:
    if path == attribute or path.startswith(attribute + "."):
        raise InvalidUpdate(
            f"This call touches {path!r}, which belongs to the ledger: leave it out, or give the ledger another attribute."
        )
