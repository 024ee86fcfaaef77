"""What an update makes of a document, as MongoDB does it, in place of mongomock's own operators. Pure.

MongoDB reads all operators first and then goes through the paths in order, numbers among them by their value. That shows in the order
of the fields that an update adds.
"""

# A value may be anything that BSON holds.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, cast

from bson import Decimal128, Int64, Timestamp
from pymongo.errors import WriteError

from onewrite.testing.errors import StandInLies
from onewrite.testing.standins.collection_methods import REMEDY
from onewrite.testing.standins.mongodb_filters import Expression, is_condition, matcher, value_matcher
from onewrite.testing.standins.mongodb_rules import write_error
from onewrite.testing.standins.mongodb_values import (
    MISSING,
    Document,
    as_decimal,
    compare,
    equal,
    in_order,
    is_number,
    same,
    type_name,
)

_LONGEST = 2**63
_MOST_PADDING = 1_500_000
_NO_CREATING = ("$unset", "$pull", "$pullAll", "$pop")
_OPERATORS = frozenset(
    [
        "$set",
        "$unset",
        "$inc",
        "$mul",
        "$min",
        "$max",
        "$push",
        "$addToSet",
        "$pull",
        "$pullAll",
        "$pop",
        "$rename",
        "$setOnInsert",
        "$currentDate",
    ]
)
_NOT_HERE = frozenset({"$bit"})


class _Change(NamedTuple):
    path: tuple[str, ...]
    operator: str
    argument: Any


def is_positional(update: Document) -> bool:
    """Does a path of it depend on which member of an array the filter has found?"""
    return any(part.startswith("$") for change in _changes(update) for part in change.path)


def check_operators(update: Document) -> None:
    for operator, fields in update.items():
        if operator in _NOT_HERE:
            raise StandInLies(f"mongomock does not know {operator} (ValueError). {REMEDY}.")
        if operator not in _OPERATORS:
            raise write_error(
                9,
                f"Unknown modifier: {operator}. Expected a valid update modifier or pipeline-style update specified as an array",
            )
        if not isinstance(fields, Mapping):
            raise write_error(9, f"Modifiers operate on fields but we found type {type_name(fields)} instead.")


def updated(
    document: Document, update: Document, evaluate: Expression, *, inserts: bool, now: Callable[[], dt.datetime]
) -> dict[str, Any]:
    """The document after the update. The one that is given stays as it is."""
    check_operators(update)
    result: dict[str, Any] = deepcopy(dict(document))
    changes = sorted(_changes(update), key=lambda change: [_place(part) for part in change.path])
    for change in changes:
        if change.operator == "$setOnInsert" and not inserts:
            continue
        if change.operator == "$rename":
            _rename(result, change)
        else:
            _apply(result, change, evaluate, now)
    if "_id" in document and not same({"_id": document["_id"]}, {"_id": result.get("_id")}):
        raise write_error(66, "Performing an update on the path '_id' would modify the immutable field '_id'")
    return result


def _changes(update: Document) -> Iterator[_Change]:
    for operator, fields in update.items():
        for path, argument in cast("Document", fields).items() if isinstance(fields, Mapping) else ():
            place = argument if operator == "$rename" and isinstance(argument, str) else path
            yield _Change(tuple(place.split(".")), operator, path if operator == "$rename" else argument)


def _place(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


def _apply(document: dict[str, Any], change: _Change, evaluate: Expression, now: Callable[[], dt.datetime]) -> None:
    holder, last = _holder(document, change)
    if holder is None:
        return
    value = _get(holder, last)
    new = _new_value(document, change, value, evaluate, now)
    if new is MISSING:
        _remove(holder, last)
    elif new is not value:
        _set(holder, last, new, change.path)


def _holder(document: dict[str, Any], change: _Change) -> tuple[Any, str]:
    """What holds the last part of the path, made where it is missing; None if there is nothing to do."""
    path, operator, _ = change
    at: Any = document
    creates = operator not in _NO_CREATING
    for place, part in enumerate(path):
        blocked = not part.isdigit() if isinstance(at, list) else not isinstance(at, Mapping)
        if blocked:
            if operator == "$unset":
                return None, part
            raise _blocked(path, place, part, at, creates=creates)
        if place == len(path) - 1:
            return at, part
        inner = _get(at, part)
        if inner is MISSING:
            if not creates:
                return None, part
            inner = {}
            _set(at, part, inner, path)
        at = inner
    raise AssertionError(path)  # a path has one part at least


def _blocked(path: Sequence[str], place: int, part: str, at: Any, *, creates: bool) -> WriteError:
    element = f"{{{path[place - 1]}: {at!r}}}"
    if creates:
        return write_error(28, f"Cannot create field '{part}' in element {element}")
    return write_error(28, f"Cannot use the part ({part}) of ({'.'.join(path)}) to traverse the element ({element})")


def _get(holder: Any, part: str) -> Any:
    if isinstance(holder, list):
        members = cast("list[Any]", holder)
        return members[int(part)] if int(part) < len(members) else MISSING
    return holder.get(part, MISSING)


def _set(holder: Any, part: str, value: Any, path: Sequence[str]) -> None:
    if not isinstance(holder, list):
        holder[part] = value
        return
    members, place = cast("list[Any]", holder), int(part)
    if place - len(members) > _MOST_PADDING:
        raise write_error(2, f"Can't backfill more than {_MOST_PADDING} elements at {'.'.join(path)}")
    members.extend([None] * (place + 1 - len(members)))
    members[place] = value


def _remove(holder: Any, part: str) -> None:
    if not isinstance(holder, list):
        holder.pop(part, None)
    elif int(part) < len(cast("list[Any]", holder)):
        holder[int(part)] = None


def _new_value(document: Document, change: _Change, value: Any, evaluate: Expression, now: Callable[[], dt.datetime]) -> Any:
    """What the operator makes of a value. MISSING removes it, and the value itself leaves it."""
    path, operator, argument = change
    match operator:
        case "$set" | "$setOnInsert":
            return deepcopy(argument)
        case "$unset":
            return MISSING
        case "$inc" | "$mul":
            return _calculated(document, path, operator, argument, value)
        case "$min" | "$max":
            if value is MISSING:
                return deepcopy(argument)
            order = compare(argument, value)
            return deepcopy(argument) if (order < 0 if operator == "$min" else order > 0) else value
        case "$currentDate":
            return _date(argument, now)
        case "$push":
            return _pushed(_array(path, operator, value), argument)
        case "$addToSet":
            return _with_members(_array(path, operator, value), argument)
        case _:
            return value if value is MISSING else _without_members(path, operator, argument, value, evaluate)


def _array(path: Sequence[str], operator: str, value: Any) -> list[Any]:
    if value is MISSING:
        return []
    if not isinstance(value, list):
        code = 14 if operator == "$pop" else 2
        raise write_error(
            code, f"The field '{'.'.join(path)}' must be an array but is of type {type_name(value)}: {operator}"
        )
    return cast("list[Any]", value)


def _calculated(document: Document, path: Sequence[str], operator: str, argument: Any, value: Any) -> Any:
    if value is MISSING:
        return argument if operator == "$inc" else type(argument)("0") if isinstance(argument, Decimal128) else argument * 0
    if not is_number(value):
        raise write_error(
            14,
            f"Cannot apply {operator} to a value of non-numeric type. {{_id: {document.get('_id')!r}}} has the field "
            f"'{path[-1]}' of non-numeric type {type_name(value)}",
        )
    if isinstance(value, Decimal128) or isinstance(argument, Decimal128):
        one, other = as_decimal(value), as_decimal(argument)
        return Decimal128(one + other if operator == "$inc" else one * other)
    result: Any = value + argument if operator == "$inc" else value * argument
    if isinstance(result, float):
        return result
    if not -_LONGEST <= result < _LONGEST:
        raise write_error(
            2,
            f"Failed to apply {operator} operations to current value ({value}) for document {{_id: {document.get('_id')!r}}}",
        )
    return Int64(result) if isinstance(value, Int64) or isinstance(argument, Int64) else result


def _date(argument: Any, now: Callable[[], dt.datetime]) -> Any:
    if argument is True or argument is False or argument == {"$type": "date"}:
        return now()
    if argument == {"$type": "timestamp"}:
        return Timestamp(int(now().replace(tzinfo=dt.UTC).timestamp()), 1)
    raise write_error(
        2, f"{argument!r} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression"
    )


def _pushed(members: list[Any], argument: Any) -> list[Any]:
    if not (isinstance(argument, Mapping) and "$each" in argument):
        return [*members, deepcopy(argument)]
    options = cast("Document", argument)
    if unknown := [name for name in options if name not in ("$each", "$slice", "$position", "$sort")]:
        raise write_error(2, f"Unrecognized clause in $push: {unknown[0]}")
    if not isinstance(options["$each"], list):
        raise write_error(
            2, f"The argument to $each in $push must be an array but it was of type: {type_name(options['$each'])}"
        )
    new = deepcopy(cast("list[Any]", options["$each"]))
    place = options.get("$position", len(members))
    at = max(len(members) + place, 0) if place < 0 else place
    result = [*members[:at], *new, *members[at:]]
    if "$sort" in options:
        result = _in_order(result, options["$sort"])
    if "$slice" in options:
        slice_ = options["$slice"]
        result = result[:slice_] if slice_ >= 0 else result[slice_:]
    return result


def _in_order(members: list[Any], by: Any) -> list[Any]:
    if not isinstance(by, Mapping):
        return sorted(members, key=in_order, reverse=by == -1)
    for path, direction in reversed(list(cast("Document", by).items())):

        def at_path(member: Any, path: str = path) -> Any:
            return in_order(_deep(member, path))

        members = sorted(members, key=at_path, reverse=direction == -1)
    return members


def _deep(value: Any, path: str) -> Any:
    for part in path.split("."):
        value = cast("Document", value).get(part) if isinstance(value, Mapping) else None
    return value


def _with_members(members: list[Any], argument: Any) -> list[Any]:
    new: Any = [argument]
    if isinstance(argument, Mapping) and "$each" in argument:
        new = cast("Document", argument)["$each"]
        if not isinstance(new, list):
            raise write_error(14, f"The argument to $each in $addToSet must be an array but it was of type {type_name(new)}")
    result = list(members)
    for one in new:
        if not any(equal(one, member) for member in result):
            result.append(deepcopy(one))
    return result if len(result) > len(members) or not members else members


def _without_members(path: Sequence[str], operator: str, argument: Any, value: Any, evaluate: Expression) -> Any:
    members = _array(path, operator, value)
    if operator == "$pop":
        if argument not in (1, -1):
            raise write_error(9, f"$pop expects 1 or -1, found: {argument!r}")
        return members[:-1] if argument == 1 else members[1:]
    if operator == "$pullAll":
        if not isinstance(argument, list):
            raise write_error(2, f"$pullAll requires an array argument but was given a {type_name(argument)}")
        kept = [member for member in members if not any(equal(one, member) for one in cast("list[Any]", argument))]
    else:
        kept = [member for member in members if not _is_pulled(member, argument, evaluate)]
    return members if len(kept) == len(members) else kept


def _is_pulled(member: Any, argument: Any, evaluate: Expression) -> bool:
    if isinstance(argument, Mapping) and not is_condition(argument):
        return isinstance(member, Mapping) and matcher(argument, evaluate)(member)
    if is_condition(argument) or not isinstance(argument, list | Mapping):
        # The members of a member that is an array do not count for a value.
        whole = isinstance(member, list) and not is_condition(argument)
        return value_matcher(argument, evaluate)(tuple(cast("list[Any]", member)) if whole else member)
    return equal(member, argument)


def _cannot_traverse(source: str, part: str, at: object) -> WriteError:
    return write_error(28, f"cannot use the part ({part} of {source}) to traverse the element ({at!r})")


def _rename(document: dict[str, Any], change: _Change) -> None:
    source = cast("str", change.argument)
    if not isinstance(cast("Any", source), str):
        raise write_error(2, "The 'to' field for $rename must be a string")
    at: Any = document
    parts = source.split(".")
    for part in parts[:-1]:
        if isinstance(at, list) and not part.isdigit():
            raise _cannot_traverse(source, part, at)
        if isinstance(at, list):
            raise write_error(
                2, f"The source field cannot be an array element, '{source}' in doc with _id: {document.get('_id')!r}"
            )
        if not isinstance(at, Mapping):
            raise _cannot_traverse(source, part, at)
        if part not in at:
            return
        at = cast("Any", at)[part]
    if isinstance(at, list) and parts[-1].isdigit():
        raise write_error(
            2, f"The source field cannot be an array element, '{source}' in doc with _id: {document.get('_id')!r}"
        )
    if not isinstance(at, dict):
        raise _cannot_traverse(source, parts[-1], at)
    if parts[-1] not in at:
        return
    value = cast("dict[str, Any]", at)[parts[-1]]
    holder: Any = document
    for part in change.path[:-1]:
        holder = cast("Any", holder).get(part) if isinstance(holder, Mapping) else holder
    if isinstance(holder, list):
        raise write_error(
            2,
            f"The destination field cannot be an array element, '{'.'.join(change.path)}' in doc with _id: {document.get('_id')!r}",
        )
    target, last = _holder(document, change)
    cast("dict[str, Any]", at).pop(parts[-1])
    _set(target, last, value, change.path)


# ---------------------------------------------------------------- of stages of a pipeline


def flattened(fields: Document, before: str = "") -> Iterator[tuple[str, Any]]:
    """The paths that $set sets, and the expressions: a document in it names the fields that are set, and keeps the others."""
    for name, expression in fields.items():
        if isinstance(expression, Mapping) and expression and not is_condition(expression):
            yield from flattened(cast("Document", expression), f"{before}{name}.")
        else:
            yield f"{before}{name}", expression


def put(document: Any, path: Sequence[str], value: Any, *, creates: bool = True) -> None:
    """Set what is at the path, in each document of an array on its way. MISSING removes it."""
    if isinstance(document, list):
        for place, member in enumerate(cast("list[Any]", document)):
            if isinstance(member, dict | list):
                put(member, path, value, creates=creates)
            elif creates:
                cast("list[Any]", document)[place] = {}
                put(cast("list[Any]", document)[place], path, value)
    elif len(path) == 1 and value is MISSING:
        document.pop(path[0], None)
    elif len(path) == 1:
        document[path[0]] = deepcopy(value)
    else:
        if not isinstance(document.get(path[0]), dict | list):
            if not creates:
                return
            document[path[0]] = {}
        put(document[path[0]], path[1:], value, creates=creates)
