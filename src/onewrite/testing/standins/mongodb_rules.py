"""MongoDB's rules for updates and upserts, which mongomock does not keep. Pure: each check raises what the server answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import mongomock
from pymongo.errors import DuplicateKeyError, WriteError

Document: TypeAlias = Mapping[str, Any]

_ARITHMETIC = {"$inc": "Cannot increment with", "$mul": "Cannot multiply with"}
_OF_ARRAYS = {"$push": 2, "$addToSet": 2, "$pull": 2, "$pullAll": 2, "$pop": 14}
_CREATING = ("$set", "$inc", "$mul", "$min", "$max", "$push", "$addToSet", "$currentDate", "$setOnInsert")
_MISSING = object()


def write_error(code: int, text: str) -> WriteError:
    return WriteError(text, code, {"index": 0, "code": code, "errmsg": text})


def duplicate_key(collection: str, index: str, values: Document) -> DuplicateKeyError:
    """The error, with details that say which index refused the document."""
    key = ", ".join(f"{name}: {value!r}" for name, value in values.items())
    text = f"E11000 duplicate key error collection: {collection} index: {index} dup key: {{ {key} }}"
    pattern = dict.fromkeys(values, 1)
    details = {"index": 0, "code": 11000, "errmsg": text, "keyPattern": pattern, "keyValue": dict(values)}
    return DuplicateKeyError(text, 11000, details)


def check_update(update: Document) -> None:
    """Refuse paths that overlap, whether of one operator or of two, and paths with an empty part."""
    seen: list[str] = []
    for path in _paths(update):
        if not all(path.split(".")):
            raise write_error(56, f"The update path '{path}' contains an empty field name, which is not allowed.")
        for other in seen:
            if _overlap(path, other):
                raise write_error(40, f"Updating the path '{path}' would create a conflict at '{min(path, other, key=len)}'")
        seen.append(path)


def _paths(update: Document) -> Iterator[str]:
    for operator, fields in update.items():
        if operator.startswith("$") and isinstance(fields, Mapping):
            for path, value in cast("Document", fields).items():
                yield path
                if operator == "$rename":
                    yield value


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def check_types(document: Document, update: Document, *, inserts: bool) -> None:
    """Refuse operators whose values have the wrong type, before any operator has changed anything."""
    for operator, fields in update.items():
        if operator == "$setOnInsert" and not inserts:
            continue
        for path, argument in cast("Document", fields).items() if operator.startswith("$") else ():
            if not any(part.startswith("$") for part in path.split(".")):  # only mongomock knows which element this is
                _check_type(document, operator, path, argument)


def _check_type(document: Document, operator: str, path: str, argument: object) -> None:
    value, blocked = _at(document, path)
    if blocked is not None and operator in _CREATING:
        raise write_error(28, f"Cannot create field '{path.rpartition('.')[2]}' in element {{{blocked}}}")
    if operator in _ARITHMETIC:
        if not _is_number(argument):
            raise write_error(14, f"{_ARITHMETIC[operator]} non-numeric argument: {{{path}: {argument!r}}}")
        if value is not _MISSING and not _is_number(value):
            raise write_error(
                14,
                f"Cannot apply {operator} to a value of non-numeric type. {{_id: {document.get('_id')!r}}} has the field "
                f"'{path.rpartition('.')[2]}' of non-numeric type {type(value).__name__}",
            )
    if operator in _OF_ARRAYS and value is not _MISSING and not isinstance(value, list):
        raise write_error(
            _OF_ARRAYS[operator], f"The field '{path}' must be an array but is of type {type(value).__name__}: {operator}"
        )


def _at(document: Document, path: str) -> tuple[object, str | None]:
    """The value at a path or `_MISSING`, and the scalar on the path that stands in the way, if there is one."""
    value: Any = document
    for part in path.split("."):
        if isinstance(value, list) and part.isdigit():
            members = cast("list[object]", value)
            value = members[int(part)] if int(part) < len(members) else _MISSING
        elif isinstance(value, Mapping):
            value = cast("Document", value).get(part, _MISSING)
        else:
            return _MISSING, repr(cast("object", value))
        if value is _MISSING:
            return _MISSING, None
    return value, None


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and (isinstance(value, int | float) or hasattr(value, "to_decimal"))


def equalities(query: Document) -> dict[str, Any]:
    """The fields that an upsert takes from its filter: those that must equal one value."""
    found: dict[str, Any] = {}
    for name, value in _equalities(query):
        if name in found:
            raise write_error(54, f"cannot infer query fields to set, path '{name}' is matched twice")
        found[name] = value
    return found


def _equalities(query: Document) -> Iterator[tuple[str, Any]]:
    for name, condition in query.items():
        match name, condition:
            case "$expr", _:
                raise write_error(224, "$expr is not allowed in the query predicate for an upsert")
            case "$and", _:
                for part in cast("Sequence[Document]", condition):
                    yield from _equalities(part)
            case "$or", [part]:
                yield from _equalities(cast("Document", part))
            case _, _ if name.startswith("$"):
                pass
            case _, {"$eq": value} | {"$in": [value]}:
                yield name, value
            case _, {**operators} if any(str(operator).startswith("$") for operator in operators):
                pass
            case _:
                yield name, condition


def known_filter(query: Any) -> Any:
    """The filter, with its `$expr` written in a way that mongomock knows."""
    if not isinstance(query, Mapping):
        return query
    known: dict[str, Any] = {}
    for name, condition in cast("Document", query).items():
        if name == "$expr":
            known[name] = known_expression(condition)
        elif name in ("$and", "$or", "$nor") and isinstance(condition, list):
            known[name] = [known_filter(part) for part in cast("list[object]", condition)]
        else:
            known[name] = condition
    return known


def known_expression(expression: Any) -> Any:
    """An aggregation expression or a pipeline, written in a way that mongomock knows."""
    match expression:
        case "$$NOW":
            return {"$literal": cast("Any", mongomock).utcnow()}
        case list():
            return [known_expression(part) for part in cast("list[object]", expression)]
        case {"$not": [operand]}:
            return {"$not": known_expression(operand)}
        case Mapping():
            return {name: _operand(name, value) for name, value in cast("Document", expression).items()}
        case _:
            return expression


def _operand(name: str, value: Any) -> Any:
    if name == "$literal":
        return value
    return known_filter(value) if name == "$match" else known_expression(value)
