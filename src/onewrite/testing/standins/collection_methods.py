"""Which of pymongo's methods mongomock can answer, and with which arguments. Everything else is refused.

mongomock takes many arguments that it then ignores, so that a test would see what no MongoDB does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onewrite.testing.errors import StandInLies
from onewrite.testing.signatures import bound, signature_of

REMEDY = "Run this test on mongod()"

ANSWERED: Mapping[str, frozenset[str]] = {
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
DATABASE_ANSWERED: Mapping[str, frozenset[str]] = {
    "command": frozenset({"command"}),
    "create_collection": frozenset({"name"}),
    "dereference": frozenset({"dbref"}),
    "drop_collection": frozenset({"name_or_collection"}),
    "list_collection_names": frozenset(),  # with a filter, mongomock also lists collections that were only named
}
# These attributes send nothing, and mongomock or the stand-in has them.
KEPT = frozenset(
    {
        "client",
        "codec_options",
        "database",
        "full_name",
        "get_collection",
        "name",
        "read_concern",
        "read_preference",
        "with_options",
        "write_concern",
    }
)
# These arguments change nothing that a test could see here: mongomock is not given them.
_WITHOUT_EFFECT = frozenset(
    {
        "allowDiskUse",
        "allow_disk_use",
        "allow_partial_results",
        "background",
        "batchSize",
        "batch_size",
        "bypassDocumentValidation",
        "bypass_document_validation",
        "check_exists",
        "comment",
        "maxTimeMS",
        "max_time_ms",
        "no_cursor_timeout",
        "oplog_replay",
    }
)


def arguments_of(
    method: str, answered: frozenset[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that mongomock is called with, or `StandInLies` where it would ignore one."""
    given = bound(method, args, kwargs)
    # An empty value asks for nothing.
    ignored = [name for name, value in given.items() if name not in answered and name not in _WITHOUT_EFFECT and value]
    if ignored:
        raise StandInLies(f"mongomock's {method} does not do what {', '.join(ignored)} asks for. {REMEDY}.")
    first = [given.pop(name) for name in signature_of(method).required]
    return first, {name: value for name, value in given.items() if name in answered}
