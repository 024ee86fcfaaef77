"""The kinds of pymongo's collection and database methods, and the request that a call makes.

These functions are pure. A method that isn't listed is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any, TypeAlias, cast
from uuid import UUID

from onewrite.testing.taps.traffic import Key, Request, walk

# --- signatures -------------------------------------------------------------------------------------------------------
#
# pymongo's own signatures, from which each argument of a call gets its name.


def bind(method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a collection's or database's method by name. Raise `TypeError` if pymongo would."""
    arguments = find_signature(method).bind(*args, **kwargs).arguments
    arguments |= arguments.pop("kwargs", {})  # the parameter for all other names, if the method has one
    for name in ("documents", "requests"):
        if isinstance(arguments.get(name), Iterable):
            arguments[name] = list(arguments[name])  # an iterator can be read only once
    return arguments


@cache
def find_signature(method: str) -> inspect.Signature:
    """Return the signature without `self`, or the cursor's collection."""
    from pymongo.collection import Collection
    from pymongo.cursor import Cursor
    from pymongo.database import Database

    if method in ("find", "find_one"):  # these pass their arguments to the cursor
        signature = inspect.signature(cast("Any", Cursor))
    else:
        signature = inspect.signature(getattr(Collection, method, None) or getattr(Database, method))
    _, *parameters = signature.parameters.values()
    return inspect.Signature(parameters)


@cache
def list_required_names(method: str) -> tuple[str, ...]:
    """Return the names of the arguments that a call must have."""
    parameters = find_signature(method).parameters.values()
    return tuple(one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD)


# --- methods ----------------------------------------------------------------------------------------------------------

Document: TypeAlias = Mapping[str, Any]

DOCUMENT_READS = frozenset({"find", "find_one", "aggregate", "count_documents", "estimated_document_count", "distinct"})
DATABASE_READS = frozenset({"list_collection_names", "list_collections"})
DESCRIBING = DATABASE_READS | {"index_information", "list_indexes", "options"}
READS = DOCUMENT_READS | (DESCRIBING - DATABASE_READS)
INDEXING = frozenset({"create_index", "create_indexes", "drop_index", "drop_indexes", "drop", "rename"})
_FINDING_WRITES = frozenset({"find_one_and_update", "find_one_and_replace", "find_one_and_delete"})
RETRYABLE_WRITES = _FINDING_WRITES | {"insert_one", "insert_many", "update_one", "replace_one", "delete_one"}
WRITES = RETRYABLE_WRITES | INDEXING | {"update_many", "delete_many", "bulk_write"}
_ON_MANY = {"update_many": "update_one", "delete_many": "delete_one"}
_OPERATIONS = ("requests", "documents")  # the arguments that contain a write's operations
# The server refuses these in a transaction.
UNFIT_FOR_TRANSACTIONS = INDEXING | DESCRIBING | {"estimated_document_count"}
# These send nothing. `next` raises, because collections and databases aren't iterators.
_SILENT = frozenset({"codec_options", "name", "next", "read_concern", "read_preference", "with_options", "write_concern"})
SILENT = _SILENT | {"database", "full_name"}
DATABASE_REQUESTS = DATABASE_READS | {"command"}
# These commands only read the state of the server. All others are refused.
_ABOUT_SERVER = frozenset({"buildinfo", "connectionstatus", "hello", "ismaster", "ping"})
# `client` is returned untapped, unless sessions are tapped.
DATABASE_SILENT = _SILENT | {"client", "get_collection"}
CURSORS = frozenset({"find", "aggregate", "list_indexes", "list_collections"})  # their results are iterated
# These reads depend on no entity, so each kind has its own key. A write of an entity doesn't change their result, except for the
# first write, which creates the collection with its index on `_id`.
_STRUCTURE = {
    "index_information": ("indexes",),
    "list_indexes": ("indexes",),
    "options": ("options",),
    "list_collection_names": ("collections",),
    "list_collections": ("collections",),
    "command": ("server",),
}
_STORING = frozenset({"$out", "$merge"})
_NAMING_STAGES = _STORING | {"$lookup", "$graphLookup", "$unionWith"}  # the stages that name another collection


def make_request(
    store: str, collection: str, method: str, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> Request:
    """Return a call as a request. Its keys are right only if the collection has no unique index other than the one on `_id`."""
    if method in DATABASE_REQUESTS:
        return Request(store, method, arguments, (("", _STRUCTURE[method]),), writes=False, options=options)
    pipeline = arguments.get("pipeline")
    writes = method in WRITES or any(name in _STORING for name, _ in walk(pipeline))
    tables = (collection, *_find_other_collections(pipeline), *([arguments["new_name"]] if method == "rename" else []))
    keys = ((collection, _STRUCTURE[method]),) if method in _STRUCTURE else _find_keys(collection, arguments)
    return Request(store, method, arguments, keys, writes, tables=tuple(dict.fromkeys(tables)), options=options)


def count_operations(request: Request) -> int:
    """Return how many operations a write consists of, each of which the server performs on its own. One on many documents counts as two."""
    if request.method in _ON_MANY:
        return 2
    return max(len(request.arguments.get(name, ())) for name in _OPERATIONS)


def cut(request: Request, *, early: bool) -> Request:
    """Return the part of a write that the server performs before it fails: all but the last operation, or the first one only."""
    if request.method in _ON_MANY:
        return replace(request, method=_ON_MANY[request.method])
    part = slice(1) if early else slice(-1)
    operations = {name: request.arguments[name][part] for name in _OPERATIONS if name in request.arguments}
    return replace(request, arguments={**request.arguments, **operations})


def may_find_nothing(request: Request) -> bool:
    """Whether the request is a single upsert outside a transaction that can find nothing at the same time as a concurrent upsert.

    If its filter contains only the `_id`, MongoDB itself retries it.
    """
    if request.transaction is not None or len(request.tables) != 1 or not request.arguments.get("upsert"):
        return False
    return "filter" in request.arguments and not has_only_equalities(request.arguments["filter"], ["_id"])


def has_only_equalities(query: object, fields: Sequence[str]) -> bool:
    """Whether the filter tests exactly these fields, each for equality. MongoDB itself retries such an upsert after a duplicate-key error."""
    if not isinstance(query, Mapping) or set(cast("Mapping[str, Any]", query)) != set(fields):
        return False
    return not any(map(is_condition, cast("Mapping[str, object]", query).values()))


def is_condition(value: object) -> bool:
    """Whether this is a document of operators, for example {"$gt": 1}."""
    return isinstance(value, Mapping) and any(str(name).startswith("$") for name in cast("Document", value))


def is_about_server(command: object) -> bool:
    """Whether the command only reads the state of the server. A command is a name, or a document that begins with the name."""
    name = next(iter(cast("Document", command)), "") if isinstance(command, Mapping) else command
    return str(name).lower() in _ABOUT_SERVER


def _find_other_collections(pipeline: object) -> Iterator[str]:
    """Yield the other collections that a pipeline names at any depth."""
    for name, inner in walk(pipeline):
        if name in _NAMING_STAGES:
            yield from _list_collections(inner)


def _list_collections(value: object) -> Iterator[str]:
    """Yield the name of a collection in a stage: "archive", {"db": ..., "coll": "archive"}, {"from": "archive"}, {"into": ...}."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name in ("coll", "from", "into"):
            yield from _list_collections(cast("Document", value).get(name))


def _find_keys(collection: str, arguments: Mapping[str, Any]) -> tuple[Key, ...] | None:
    if isinstance(arguments.get("requests"), list):
        return _list_keys(collection, arguments["requests"])
    if arguments.get("collation") is not None:
        return None
    documents = arguments.get("documents", [arguments["document"]] if "document" in arguments else None)
    if not arguments.get("upsert") and _matches_nothing(arguments.get("filter")):
        return ()
    if isinstance(documents, list):
        keys = [_make_key(_read_id(document)) for document in cast("list[object]", documents)]
    else:
        keys = [_make_key(_find_equal_id(_read_id(arguments.get("filter"))))]
    return None if None in keys else tuple((collection, key) for key in keys)


def _list_keys(collection: str, operations: Sequence[object]) -> tuple[Key, ...] | None:
    """Return the keys of the operations of a bulk write, which pymongo keeps in private attributes."""
    all_keys: list[Key] = []
    for operation in operations:
        names = ("filter", "upsert", "collation") if hasattr(operation, "_filter") else ("document",)
        attributes = {"document": "_doc", "filter": "_filter", "upsert": "_upsert", "collation": "_collation"}
        keys = _find_keys(collection, {name: getattr(operation, attributes[name], None) for name in names})
        if keys is None:
            return None
        all_keys += keys
    return tuple(dict.fromkeys(all_keys))


def split_runs(arguments: Mapping[str, Any]) -> list[list[int]]:
    """Return the indexes of a bulk write's operations, grouped by command.

    pymongo sends successive operations of one kind in one command. If the operations are unordered, it sends all insertions, then
    all updates, and then all deletions.
    """
    kinds = ("Insert", "Update", "Delete")  # a replacement is an update
    names = [type(operation).__name__.replace("Replace", "Update") for operation in arguments["requests"]]
    ranks = [next((rank for rank, kind in enumerate(kinds) if name.startswith(kind)), -1) for name in names]
    places = range(len(ranks)) if arguments.get("ordered", True) else sorted(range(len(ranks)), key=ranks.__getitem__)
    return [list(run) for _, run in groupby(places, ranks.__getitem__)]


def _matches_nothing(query: object) -> bool:
    """Whether the filter requires documents without `_id`. None exist, so the write only waits for earlier writes."""
    if not isinstance(query, Mapping):
        return False
    parts = cast("Document", query).get("$and")
    queries: list[object] = [query, *(cast("list[object]", parts) if isinstance(parts, list) else [])]
    return any(_read_id(part) == {"$exists": False} for part in queries)


def _read_id(document: object) -> object:
    return cast("Document", document).get("_id") if isinstance(document, Mapping) else None


def _find_equal_id(condition: object) -> object:
    """Return the value that a filter's `_id` must equal, or None."""
    if hasattr(condition, "pattern"):  # a regular expression
        return None
    if not isinstance(condition, Mapping):
        return condition
    query = cast("Document", condition)
    if list(query) == ["$eq"]:
        return query["$eq"]
    return None if is_condition(query) else query


def _make_key(value: object) -> Hashable:
    return None if value is None else make_document_key(value)


def make_document_key(value: object) -> Hashable:
    """Return the same value for all IDs that the server treats as equal."""
    if type(value) in (str, UUID):  # equal only to itself. The canonical form of a UUID isn't readable in a report
        return value
    from onewrite.mongodb.layout import canonical

    form: Any = canonical({"_id": value})
    match form:
        case ((_, ("number", str())),):  # NaN or an infinite number, whose readable form is that of a text
            return cast("Hashable", form)
        case ((_, ("text" | "number" | "ObjectId", readable)),):
            return cast("Hashable", readable)
        case _:
            return cast("Hashable", form)
