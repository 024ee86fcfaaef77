"""The request that a call of a pymongo collection is. Pure, but for a look at pymongo's signatures."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias, cast

from onewrite.testing.errors import needed_by
from onewrite.testing.taps.traffic import Key, Request

Document: TypeAlias = Mapping[str, Any]

READS = frozenset(
    {
        "find",
        "find_one",
        "aggregate",
        "count_documents",
        "estimated_document_count",
        "distinct",
        "index_information",
        "list_indexes",
        "options",
    }
)
WRITES = frozenset(
    {
        "insert_one",
        "insert_many",
        "update_one",
        "update_many",
        "replace_one",
        "delete_one",
        "delete_many",
        "find_one_and_update",
        "find_one_and_replace",
        "find_one_and_delete",
        "bulk_write",
        "create_index",
        "create_indexes",
        "drop_index",
        "drop_indexes",
        "drop",
        "rename",
    }
)
REFUSED = frozenset(
    {
        "watch",
        "find_raw_batches",
        "aggregate_raw_batches",
        "create_search_index",
        "create_search_indexes",
        "drop_search_index",
        "list_search_indexes",
        "update_search_index",
    }
)
INDEXING = frozenset({"create_index", "create_indexes", "drop_index", "drop_indexes", "drop", "rename"})
CURSORS = frozenset({"find", "aggregate", "list_indexes"})  # what they answer is iterated
_STORING = frozenset({"$out", "$merge"})
_ELSEWHERE = _STORING | {"$lookup", "$graphLookup", "$unionWith"}  # the stages that name another collection


def bound(method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by pymongo's names; `TypeError` as from pymongo."""
    found = _signature(method).bind(*args, **kwargs).arguments
    if isinstance(found.get("documents"), Iterable):
        found["documents"] = list(found["documents"])  # it may be read but once
    return {**found, **found.pop("kwargs", {})}


def request_of(
    store: str, collection: str, method: str, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> Request:
    """The request that a call is. Its keys are right where no unique index but `_id`'s ties documents together."""
    pipeline = arguments.get("pipeline")
    stores = any(name in _STORING for name in _names(pipeline))
    tables = (collection, *_elsewhere(pipeline), *([arguments["new_name"]] if method == "rename" else []))
    keys = None if arguments.get("collation") is not None else _keys(collection, arguments)
    return Request(store, method, arguments, keys, method in WRITES or stores, tuple(dict.fromkeys(tables)), options)


def _names(pipeline: object) -> Iterator[str]:
    for stage in cast("Sequence[object]", pipeline) if isinstance(pipeline, list | tuple) else ():
        yield from cast("Document", stage) if isinstance(stage, Mapping) else ()


def _elsewhere(value: object) -> Iterator[str]:
    """The other collections that a pipeline names, at any depth."""
    if isinstance(value, Mapping):
        for name, inner in cast("Document", value).items():
            if name in _ELSEWHERE:
                yield from _named(inner)
            yield from _elsewhere(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[object]", value):
            yield from _elsewhere(inner)


def _named(value: object) -> Iterator[str]:
    """A collection as the stages name it: "archive", {"db": ..., "coll": "archive"}, {"from": "archive"}, {"into": ...}."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name in ("coll", "from", "into"):
            yield from _named(cast("Document", value).get(name))


def _keys(collection: str, arguments: Mapping[str, Any]) -> tuple[Key, ...] | None:
    documents = arguments.get("documents", [arguments["document"]] if "document" in arguments else None)
    if not arguments.get("upsert") and _matches_nothing(arguments.get("filter")):
        return ()
    if isinstance(documents, list):
        found = [_key(_id(document)) for document in cast("list[object]", documents)]
    else:
        found = [_key(_equal(_id(arguments.get("filter"))))]
    return None if None in found else tuple((collection, key) for key in found)


def _matches_nothing(query: object) -> bool:
    """Does the filter want documents without `_id`? There are none: such a write only waits for those before it."""
    if not isinstance(query, Mapping):
        return False
    parts = cast("Document", query).get("$and")
    wanted: list[object] = [query, *(cast("list[object]", parts) if isinstance(parts, list) else [])]
    return any(_id(part) == {"$exists": False} for part in wanted)


def _id(document: object) -> object:
    return cast("Document", document).get("_id") if isinstance(document, Mapping) else None


def _equal(condition: object) -> object:
    """The value that a filter's `_id` must equal, or None."""
    if hasattr(condition, "pattern"):  # a regular expression
        return None
    if not isinstance(condition, Mapping):
        return condition
    query = cast("Document", condition)
    if list(query) == ["$eq"]:
        return query["$eq"]
    return None if any(str(name).startswith("$") for name in query) else query


def _key(value: object) -> Hashable:
    """A value that equals another where the two may be one `_id`; None if it is not known."""
    if hasattr(value, "to_decimal"):  # bson's own decimals
        value = cast("Any", value).to_decimal()
    if isinstance(value, Mapping):
        return frozenset((name, _key(inner)) for name, inner in cast("Document", value).items())
    if isinstance(value, list | tuple):
        return tuple([_key(inner) for inner in cast("Sequence[object]", value)])
    if isinstance(value, datetime):  # kept to the millisecond, without its zone
        return int(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000)
    return value if isinstance(value, Hashable) and value == value else None  # noqa: PLR0124  # NaN does not


def positional(method: str) -> list[str]:
    """The names of the arguments that pymongo requires: mongomock has other names for some."""
    return [name for name, parameter in _signature(method).parameters.items() if _is_required(parameter)]


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD


@cache
def _signature(method: str) -> inspect.Signature:
    with needed_by("A tap on a collection", "mongodb"):
        from pymongo.collection import Collection  # noqa: PLC0415  # who tests on DynamoDB may lack it
        from pymongo.cursor import Cursor  # noqa: PLC0415  # the same

    finds = method in ("find", "find_one")  # these hand their arguments on to the cursor
    signature = inspect.signature(cast("Any", Cursor) if finds else getattr(Collection, method))
    return signature.replace(
        parameters=list(signature.parameters.values())[1:]
    )  # without `self`, or the cursor's collection
