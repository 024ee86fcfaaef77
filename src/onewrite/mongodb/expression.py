"""Reads native MongoDB filters and updates just enough to merge onewrite's parts into them, and refuses any that would harm the ledger."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

from bson import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex

from onewrite.core.label import OURS
from onewrite.core.ledgers.entry import Terms
from onewrite.errors import InvalidUpdate
from onewrite.mongodb.layout import Document, split_elements

Update: TypeAlias = Document | Sequence[Document]

_SCALARS = frozenset({str, int, ObjectId})  # nearly all ids have these types, which can't contain operators
_COMBINATIONS = ("$and", "$or", "$nor")
_OPAQUE = ("$where", "$jsonSchema")  # any word in JavaScript or a JSON Schema could be a field
_WORDS = re.compile(r"[\w@]+")
_REPLACING_STAGES = frozenset({"$replaceWith", "$replaceRoot", "$project"})
_SETTING_STAGES = frozenset({"$set", "$addFields"})


def read_entity_key(query: object, fields: Sequence[str] = (), terms: Terms | None = None) -> dict[str, Any]:
    """Return the key in a filter, without its other conditions: a value for `_id`, or one for each of `fields`.

    Pass `terms` to check that the filter doesn't touch the ledger.
    """
    filter_value: Any = query
    if type(query) is dict and len(filter_value) == 1:
        value = filter_value.get("_id")
        if type(value) in _SCALARS:  # nearly always
            return {"_id": value}
    if terms is not None:
        check_filter(terms, cast("object", query))
    conditions = [*_list_conditions(cast("Document", query))]
    names = {name for name, _ in conditions}
    if "_id" in names:
        return {"_id": _find_value("_id", conditions)}
    if fields and names >= {*fields}:
        return {name: _find_value(name, conditions) for name in fields}
    remedy = f"_id, or {', '.join(fields)}," if fields else "_id,"
    raise InvalidUpdate(
        f"The filter has the fields {[*cast('Document', query)]!r}, none of which identifies one entity. A redelivery could change "
        f"a different one. Pass a value for {remedy} or pass the fields as key= of the collection, if they have a unique index."
    )


def has_conditions(query: Document, entity: Document) -> bool:
    """Whether the filter has conditions besides the entity's key."""
    return len([*_list_conditions(query)]) > len(entity)


def check_filter(terms: Terms, query: object) -> None:
    """Raise if the filter isn't a mapping, or if it reads onewrite's fields."""
    if not isinstance(query, Mapping):
        raise InvalidUpdate(
            f"The filter is a {type(query).__name__}: expected a dict that identifies one entity, for example {{'_id': ...}}."
        )
    for path in _list_queried_paths(cast("Document", query)):
        check_path(terms, path)


def check_document(terms: Terms, document: object) -> None:
    """Raise if a new document has no `_id`, or contains one of onewrite's fields."""
    if not isinstance(document, Mapping) or cast("Document", document).get("_id") is None:
        raise InvalidUpdate(
            "The document needs an _id. The driver would generate a different one on each delivery, and each would create one more "
            "entity. Derive the _id from the message."
        )
    for name in cast("Document", document):
        check_path(terms, name)


def check_update(terms: Terms, fields: Sequence[str], update: object) -> None:
    """Raise if the update is empty, or changes onewrite's fields or those that identify the entity."""
    changes: Any = update
    if type(update) is dict or isinstance(update, Mapping):
        if not update:
            raise InvalidUpdate(
                "The update is empty. To change only the ledger, use remember, or omit the update in a batch."
            )
        for operator, change in changes.items():
            if not isinstance(operator, str) or not operator.startswith("$"):
                raise InvalidUpdate(
                    f"The update has {operator!r} where an operator is expected. Replacing the whole document would erase its ledger. "
                    "Use $set and $unset."
                )
            if type(change) is not dict and not isinstance(change, Mapping):
                raise InvalidUpdate(_NO_FIELDS.format(operator=operator, kind=type(change).__name__))
            for path, value in cast("Document", change).items():
                if fields or terms.plain_sets or type(path) is not str or path.startswith(OURS):  # hardly ever
                    _check_written(terms, fields, path)
                if operator == "$rename" and isinstance(value, str):  # the value is the new name
                    _check_written(terms, fields, value)
    elif isinstance(update, Sequence) and not isinstance(update, str | bytes) and update:
        for stage in cast("Sequence[Document]", update):
            _check_stage(terms, fields, stage)
    else:
        raise InvalidUpdate("The update: expected operators or a pipeline. To change only the ledger, use remember.")


def _list_conditions(query: Document) -> Iterator[tuple[str, Any]]:
    """Yield the conditions of a filter with their field or operator names, including conditions inside $and."""
    for name, value in query.items():
        if name == "$and" and isinstance(value, Sequence) and not isinstance(value, str):
            for part in cast("Sequence[object]", value):
                if isinstance(part, Mapping):
                    yield from _list_conditions(cast("Document", part))
        elif name != "$comment":
            yield name, value


def _find_value(name: str, conditions: list[tuple[str, Any]]) -> Any:
    """Return the value that the field must have. If it has several conditions, one of them must contain the value."""
    values = [value for field, value in conditions if field == name]
    for value in values[:-1]:
        with suppress(InvalidUpdate):
            return _read_value(name, value)
    return _read_value(name, values[-1])


def _read_value(name: str, value: Any) -> Any:
    """Return the one value that a condition requires of a field. Raise if it can match several values."""
    if type(value) in _SCALARS:
        return value
    if _list_names(value) == ["$eq"] and not _has_operators(value["$eq"]):
        value = value["$eq"]
    elif _has_operators(value):  # also inside $eq, because the key is used without the $eq and would become a query again
        raise InvalidUpdate(f"The value of {name} is a query, which can match several entities. Pass one value.")
    if value is None or (name != "_id" and isinstance(value, list | tuple)):
        raise InvalidUpdate(
            f"The value of {name} is a {type(cast('object', value)).__name__}, which doesn't identify one entity. Null also matches a missing field, and a list can match "
            "several documents. Pass one value."
        )
    return value


def _has_operators(value: object) -> bool:
    """Whether a filter's value is a query instead of a plain value. A pattern is a query too."""
    if isinstance(value, re.Pattern | Regex):
        return True
    return any(str(name).startswith("$") for name in _list_names(value))


def _list_names(value: object) -> list[str]:
    """Return the names in a document. A raw document's values aren't decoded, because the driver might be unable to."""
    if isinstance(value, RawBSONDocument):
        return [name for name, _ in split_elements(value)]
    return [*cast("Document", value)] if isinstance(value, Mapping) else []


def _list_queried_paths(query: Document) -> Iterator[str]:
    """Yield the field paths in a filter."""
    for name, value in query.items():
        if name in _COMBINATIONS and isinstance(value, Sequence):
            for part in cast("Sequence[object]", value):
                if isinstance(part, Mapping):
                    yield from _list_queried_paths(cast("Document", part))
        elif name == "$expr":
            yield from list_read_paths(value)
        elif name in _OPAQUE:
            yield from _WORDS.findall(repr(value))
        elif not isinstance(cast("object", name), str) or not name.startswith("$"):
            yield name


_WHOLE_DOCUMENT = ("$$ROOT", "$$CURRENT")
# The sort key isn't among these, because it can be a field of the ledger.
_HARMLESS_METADATA = ("textScore", "recordId", "geoNearDistance", "geoNearPoint")


def list_read_paths(expression: object) -> Iterator[str]:
    """Yield the field paths that an aggregation expression reads."""
    if isinstance(expression, str):
        if expression in _WHOLE_DOCUMENT:
            raise InvalidUpdate(f"{expression} is the whole entity, including the ledger. Name the fields instead.")
        if expression.startswith("$"):
            yield expression.removeprefix("$$ROOT.").removeprefix("$$CURRENT.").removeprefix("$")
    elif isinstance(expression, Mapping):
        for name, value in cast("Document", expression).items():
            if name == "$getField":
                yield _read_getter_field(value)
            if name == "$meta" and value not in _HARMLESS_METADATA:
                raise InvalidUpdate(f"The call reads {value!r} of the query, which can contain the ledger. Omit this $meta.")
            if name != "$literal":
                yield from list_read_paths(value)
    elif isinstance(expression, Sequence) and not isinstance(expression, bytes):
        for value in cast("Sequence[object]", expression):
            yield from list_read_paths(value)


def _read_getter_field(getter: object) -> str:
    """Return the field that a $getField reads."""
    name = cast("Document", getter).get("field", getter) if isinstance(getter, Mapping) else getter
    if isinstance(name, Mapping) and list(cast("Document", name)) == ["$literal"]:
        name = cast("Document", name)["$literal"]
    if not isinstance(name, str):
        raise InvalidUpdate(
            f"$getField reads a {type(cast('object', name)).__name__}, which can be a field of the ledger. Name the field."
        )
    return name


_NO_FIELDS = "{operator} expects a document of fields, got a {kind}."


def _check_stage(terms: Terms, fields: Sequence[str], stage: object) -> None:
    """Raise if a pipeline stage would replace the document, or touches onewrite's fields or those that identify the entity."""
    if not isinstance(stage, Mapping) or len(cast("Document", stage)) != 1:
        names = f"A document with {', '.join(map(repr, cast('Document', stage))) or 'nothing'}"
        kind = names if isinstance(stage, Mapping) else f"A {type(stage).__name__}"
        raise InvalidUpdate(f"{kind} isn't a pipeline stage: expected a document with one operator.")
    ((name, body),) = cast("Document", stage).items()
    if name in _REPLACING_STAGES:
        raise InvalidUpdate(f"{name} would erase the ledger. Use $set and $unset.")
    if name == "$unset":
        for path in cast("Sequence[str]", body if isinstance(body, list | tuple) else [body]):
            _check_written(terms, fields, path)
    if name in _SETTING_STAGES:
        if not isinstance(body, Mapping):
            raise InvalidUpdate(_NO_FIELDS.format(operator=name, kind=type(cast("object", body)).__name__))
        for path, value in cast("Document", body).items():
            _check_written(terms, fields, path)
            for source_path in list_read_paths(value):
                check_path(terms, source_path)


def _check_written(terms: Terms, fields: Sequence[str], path: str) -> None:
    """Raise if a changed path is one of onewrite's, or contains or is part of a field that identifies the entity."""
    check_path(terms, path)
    changed_path = _drop_indexes(path)
    for field in fields:
        key_path = _drop_indexes(field)
        if f"{changed_path}.".startswith(f"{key_path}.") or f"{key_path}.".startswith(f"{changed_path}."):
            raise InvalidUpdate(
                f"This call changes {path!r}, which identifies the entity according to key=. A redelivery wouldn't find the entity. Don't "
                "change it, or identify entities by _id and omit key=."
            )


def _drop_indexes(path: str) -> str:
    """Return the path without array indexes and positional operators, which a path in `key=` can leave out."""
    root, *names = path.split(".")  # the root is always a field, even if it's a number
    return ".".join([root, *[name for name in names if not name.isdigit() and not name.startswith("$")]])


def check_path(terms: Terms, path: str) -> None:
    """Raise if a path isn't a string, or leads to onewrite's fields."""
    if not isinstance(cast("object", path), str):
        raise InvalidUpdate(f"Field name: expected a string, got a {type(path).__name__}.")
    if path.startswith(OURS):
        raise InvalidUpdate(
            f"This call touches {path!r}: names that begin with {OURS} are reserved for onewrite. Omit it, or rename your field."
        )
    if terms.plain_sets and path.partition(".")[0] in terms.plain_sets:
        raise InvalidUpdate(
            f"This call touches {path!r}, in which the store's ledger keeps IDs. Omit it, or pass a different attribute to IdSet."
        )


def find_root(path: str) -> str:
    """Return the top-level field of a path."""
    return path.partition(".")[0]


# --- projections ---------------------------------------------------------------------------------------------------


def check_projection(terms: Terms, projection: object) -> None:
    """Raise if a projection names onewrite's fields, or computes a value from them, which couldn't be removed from the result."""
    for path, value in _read_projection(projection).items():
        check_path(terms, path)
        _check_projected_value(terms, value)


def _check_projected_value(terms: Terms, value: object) -> None:
    """Raise if an expression in a projection reads onewrite's fields."""
    names = _list_names(value)
    if names and not _has_operators(value):  # a nested projection, such as {"a": {"b": 1}}
        for member in cast("Document", value).values():
            _check_projected_value(terms, member)
    elif "$elemMatch" not in names:  # $elemMatch returns the field itself
        for path in list_read_paths(value):
            check_path(terms, path)


def _read_projection(projection: object) -> Mapping[str, Any]:
    """Return a projection as a mapping. A list of names includes these fields."""
    if isinstance(projection, Mapping):
        return cast("Document", projection)
    if isinstance(projection, str) or not isinstance(projection, Iterable):
        raise InvalidUpdate(f"The projection: expected a dict or a list of names, got a {type(projection).__name__}.")
    return dict.fromkeys(cast("Iterable[str]", projection), 1)
