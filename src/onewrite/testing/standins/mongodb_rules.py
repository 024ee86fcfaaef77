"""MongoDB's rules for updates and upserts, which mongomock does not keep. Pure: each check raises what the server answers."""

# A value may be anything that BSON holds.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import mongomock
from pymongo.errors import DuplicateKeyError, WriteError

from onewrite.testing.standins.mongodb_values import (
    MISSING,
    Document,
    compare,
    is_number,
    is_pattern,
    type_name,
    value_at_path,
)

_COMPARISONS: Mapping[str, Callable[[int], bool]] = {
    "$eq": lambda order: order == 0,
    "$ne": lambda order: order != 0,
    "$gt": lambda order: order > 0,
    "$gte": lambda order: order >= 0,
    "$lt": lambda order: order < 0,
    "$lte": lambda order: order <= 0,
    "$cmp": bool,
}


def write_error(code: int, text: str) -> WriteError:
    return WriteError(text, code, {"index": 0, "code": code, "errmsg": text})


def duplicate_key(collection: str, index: str, values: Document) -> DuplicateKeyError:
    """The error, with details that say which index refused the document."""
    key = ", ".join(f"{name}: {value!r}" for name, value in values.items())
    text = f"E11000 duplicate key error collection: {collection} index: {index} dup key: {{ {key} }}"
    pattern = dict.fromkeys(values, 1)
    details = {"index": 0, "code": 11000, "errmsg": text, "keyPattern": pattern, "keyValue": dict(values)}
    return DuplicateKeyError(text, 11000, details)


def check_update(update: Document | Sequence[Document]) -> None:
    """Refuse paths that overlap, whether of one operator or of two, and paths with an empty part."""
    if not isinstance(update, Mapping):
        for stage in update:
            _check_stage(stage)
        return
    for old, new in cast("Document", update.get("$rename") or {}).items():
        if old == new:
            raise write_error(2, f'The source and target field for $rename must differ: {old}: "{new}"')
    for operator in ("$inc", "$mul"):
        for path, argument in cast("Document", update.get(operator) or {}).items():
            if not is_number(argument):
                word = "increment" if operator == "$inc" else "multiply"
                raise write_error(14, f"Cannot {word} with non-numeric argument: {{{path}: {argument!r}}}")
    seen: list[str] = []
    for path in _paths(update):
        if not all(path.split(".")):
            raise write_error(56, f"The update path '{path}' contains an empty field name, which is not allowed.")
        for other in seen:
            if _overlap(path, other):
                raise write_error(40, f"Updating the path '{path}' would create a conflict at '{min(path, other, key=len)}'")
        seen.append(path)


def _check_stage(stage: Document) -> None:
    """Refuse a stage of a pipeline that sets or removes a path and what is below it."""
    unset, set_ = stage.get("$unset"), stage.get("$set") or stage.get("$addFields")
    paths = list(cast("Sequence[str]", unset if isinstance(unset, list | tuple) else set_ or ()))
    for place, path in enumerate(paths):
        for other in paths[:place]:
            if _overlap(path, other):
                code = 40176 if unset is None else 31249 if len(path) > len(other) else 31250
                raise write_error(code, f"Path collision at {path}: specification contains two conflicting paths")


def _paths(update: Document) -> Iterator[str]:
    for operator, fields in update.items():
        if operator.startswith("$") and isinstance(fields, Mapping):
            for path, value in cast("Document", fields).items():
                yield path
                if operator == "$rename":
                    yield value


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def check_positional(update: Document, query: Document) -> None:
    """Refuse a path such as `a.$.b` of a document that the filter has found by something else than the array."""
    for path in _paths(update):
        array, found, _ = path.partition(".$")
        if found and path[len(array) :].partition("$")[2][:1] in ("", ".") and array not in _asked_arrays(query, array):
            raise write_error(2, "The positional operator did not find the match needed from the query.")


def _asked_arrays(query: Document, array: str) -> Iterator[str]:
    for name, condition in query.items():
        if name in ("$and", "$or", "$nor"):
            for part in cast("Sequence[Document]", condition):
                yield from _asked_arrays(part, array)
        elif name == array or name.startswith(f"{array}."):
            yield array


def check_id(value: object) -> None:
    """Refuse what cannot be the `_id` of a document."""
    if isinstance(value, list | tuple) or is_pattern(value):
        raise write_error(53, f"The '_id' value cannot be of type {type_name(value)}")
    for name in _names(value):
        if name.startswith("$"):
            raise write_error(52, f"_id fields may not contain '$'-prefixed fields: {name} is not valid for storage.")


def _names(value: object) -> Iterator[str]:
    """The names in a document, and in the documents in it."""
    if isinstance(value, Mapping):
        for name, inner in cast("Document", value).items():
            yield name
            yield from _names(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[object]", value):
            yield from _names(inner)


def without_patterns(query: Document) -> Document:
    """The same filter with its bare regular expressions written as `$regex`, which mongomock does not put into a new document."""
    return {name: {"$regex": value} if is_pattern(value) else value for name, value in query.items()}


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
            case _, {"$eq": value}:
                yield name, value
            case _, {"$in": [value]} if not is_pattern(value):
                yield name, value
            case _, {"$all": [*values]}:
                known = [value for value in values if not (isinstance(value, Mapping) and "$elemMatch" in value)]
                yield from [(name, value) for value in known if not is_pattern(value)]
            case _, {**operators} if any(str(operator).startswith("$") for operator in operators):
                pass
            case _ if is_pattern(condition):
                pass
            case _:
                yield name, condition


def known_expression(expression: Any, document: Document | None = None) -> Any:
    """An aggregation expression or a pipeline, written in a way that mongomock knows.

    If the document is known on which it is evaluated, fields are compared here, and paths
    followed through arrays: mongomock fails at a missing field, and at a value in an array that is no document.
    """
    match expression:
        case "$$NOW":
            return {"$literal": cast("Any", mongomock).utcnow()}
        case str() if (
            document is not None and expression.startswith("$") and "." in expression and not expression.startswith("$$")
        ):
            value = value_at_path(document, expression[1:].split("."))
            return expression if value is MISSING else {"$literal": value}
        case list():
            return [known_expression(part, document) for part in cast("list[object]", expression)]
        case {"$not": [operand]}:
            return {"$not": known_expression(operand, document)}
        case Mapping():
            parts = cast("Document", expression)
            if document is not None and (compared := _compared(parts, document)) is not None:
                return {"$literal": compared}
            return {
                name: value if name == "$literal" else known_expression(value, document) for name, value in parts.items()
            }
        case _:
            return expression


def _compared(expression: Document, document: Document) -> bool | int | None:
    """What a comparison of fields and constants gives. None if it is something else."""
    ((name, operands), *others) = expression.items() or [("", None)]
    if others or name not in _COMPARISONS or not isinstance(operands, list):
        return None
    known = [_known(operand, document) for operand in cast("list[Any]", operands)]
    if len(known) != 2 or known[0] is None or known[1] is None:  # noqa: PLR2004  # what a comparison takes
        return None
    (one,), (other,) = known[0], known[1]
    # A field that is missing comes before null.
    order = compare(one, other) or int(other is MISSING) - int(one is MISSING)
    return order if name == "$cmp" else _COMPARISONS[name](order)


def _known(operand: Any, document: Document) -> tuple[Any] | None:
    """The value of an operand that is a field or a constant."""
    match operand:
        case str() if operand.startswith("$"):
            return None if operand.startswith("$$") else (value_at_path(document, operand[1:].split(".")),)
        case {"$literal": value}:
            return (value,)
        case Mapping() | list():
            return None
        case _:
            return (operand,)


def may_be_missing(expression: object) -> bool:
    """Is this an expression that gives nothing where a field is missing? All others give null, or a value."""
    match expression:
        case str():
            return expression.startswith("$")
        case {"$cond": [_, *branches]}:
            return any(map(may_be_missing, branches))
        case {"$cond": {"then": one, "else": other}}:
            return may_be_missing(one) or may_be_missing(other)
        case {"$ifNull": [*operands]}:
            return may_be_missing(operands[-1])
        case {"$switch": _} | {"$getField": _} | {"$arrayElemAt": _} | {"$first": _} | {"$last": _} | {"$let": _}:
            return True
        case _:
            return False
