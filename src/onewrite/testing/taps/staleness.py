"""Which reads may be answered from before the last write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from onewrite.testing.taps.tap import Store, kind_of
from onewrite.testing.taps.traffic import Request

_READS = frozenset({"GetItem", "Query", "Scan", "BatchGetItem", "ExecuteStatement"})
_DOCUMENT_READS = frozenset({"find", "find_one", "aggregate", "count_documents", "estimated_document_count", "distinct"})
_FROM_SECONDARIES = frozenset({"secondary", "secondaryPreferred", "nearest"})


def may_be_stale(store: Store, request: Request) -> bool:
    """May the answer leave out a write that has been acknowledged?

    DynamoDB's reads are eventually consistent unless they say otherwise. The reads of a transaction cannot say it, because they
    always see the latest.

    On MongoDB, only a read from a secondary is taken for one. Whatever its read concern is, it may lag behind the primary, also
    with "majority". A read from the primary sees what the primary has acknowledged. A session may be causally consistent, and
    then its reads wait for its own writes, so reads in sessions are left out.
    """
    if request.writes:
        return False
    if kind_of(store) == "collection":
        return request.method in _DOCUMENT_READS and _is_from_a_secondary(store, request)
    return request.method in _READS and not any(map(_is_consistent, _parts(request.arguments)))


def _parts(arguments: Mapping[str, Any]) -> list[Any]:
    """What says of itself whether it is consistent: the request, or the part of a BatchGetItem for each table.

    A BatchGetItem of both kinds is not split: it counts as consistent.
    """
    tables = arguments.get("RequestItems")
    return list(cast("Mapping[str, Any]", tables).values()) if isinstance(tables, Mapping) else [arguments]


def _is_consistent(part: Any) -> bool:
    return isinstance(part, Mapping) and bool(cast("Mapping[str, Any]", part).get("ConsistentRead"))


def _is_from_a_secondary(store: Store, request: Request) -> bool:
    own = request.tables[0] == store.name or request.tables[0].startswith(f"{store.name}.")
    preference = request.options.get("read_preference") or getattr(store if own else store.database, "read_preference", None)
    name = getattr(preference, "mongos_mode", None)
    return name in _FROM_SECONDARIES and request.arguments.get("session") is None
