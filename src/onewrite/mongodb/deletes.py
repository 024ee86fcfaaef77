"""Deletes from a collection: one update turns the document into a tombstone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from onewrite.core.features.tombstone import Tombstone, make_tombstone, require_tombstones
from onewrite.core.flow import Flow, split_final_refusals
from onewrite.core.label import OURS, OUTBOX, TOMBSTONE
from onewrite.core.ledgers.entry import Terms, check_message
from onewrite.core.pipeline import make_write, send_write
from onewrite.core.write import NoEffectAtAll
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.dialect import build_update, is_in_transaction
from onewrite.mongodb.expression import has_conditions
from onewrite.mongodb.flows import CollectionAttempt, Flows, Writer
from onewrite.mongodb.layout import Document
from onewrite.mongodb.settings import check_unique_indexes, find_id_index
from onewrite.outcome import Outcome


def delete(
    flows: Flows, message: Message, filter: Document, *, writer: Writer, emit: object = None, **options: Any
) -> Flow[Outcome]:
    """Turn the document into a tombstone. With the writer `find_one_and_update`, `Applied.entity` is the deleted document."""
    check_message(message)
    native, final = split_final_refusals(flows.keep({"filter": filter, **options}))
    for name in ("upsert", "return_document", "array_filters"):
        if name in native:
            raise InvalidUpdate(f"A delete doesn't accept {name}. Omit it.")
    tombstones = require_tombstones(flows.tombstones)
    write = make_write(flows, (message,), flows.read_key(native), NoEffectAtAll(), emit=emit)
    terms, emission = write.entry.terms, write.emission
    tombstone = make_tombstone(tombstones, write.now, flows.name_call(), flows.key_fields)
    expires = None if emission is not None and emission.events else tombstone.expiry(write.now)
    write = write._replace(burial=tombstone.as_burial())
    options = {name: value for name, value in native.items() if name != "filter"}
    request = build_update(write, native["filter"], [_make_burial_stage(terms, tombstone, expires)], options)
    # A missing document gets a tombstone too, which refuses late messages, unless the filter has conditions.
    creates = not (has_conditions(native["filter"], write.key) or is_in_transaction(options) or write.entry.has_predecessor)
    if not flows.has_checked_unique_indexes:
        indexes = yield from flows.read_indexes(inserts=False)
        check_unique_indexes(indexes, flows.fields)
        flows.has_checked_unique_indexes = find_id_index(indexes) is not None  # otherwise, the collection doesn't exist yet
    return (yield from send_write(CollectionAttempt(flows, write, request, writer, creates), final))


# --- the pipelines -------------------------------------------------------------------------------------------------

# A tombstone keeps the fields that identify the document, and the ledgers and outboxes of all stores.

_FIELDS = {"$objectToArray": "$$ROOT"}


def _make_burial_stage(terms: Terms, tombstone: Tombstone, expires: float | None) -> dict[str, Any]:
    """Return the stage that turns a document into a tombstone.

    If no event is pending, the tombstone expires at `expires`. Pass None if the delete itself emits events.
    """
    parts = [_list_lasting_fields(terms, tombstone.key), _make_literal({TOMBSTONE: tombstone.as_fields()})]
    if expires is not None:
        # The expiry stays unset while events are pending, because the database must keep them.
        empty: list[Any] = []
        is_pending = {"$ne": [{"$ifNull": [f"${OUTBOX.events}", empty]}, empty]}
        expiry = _make_literal({tombstone.ttl: datetime.fromtimestamp(expires, UTC)})
        parts.append({"$cond": [is_pending, [], expiry]})
    return _build_document(parts)


def make_clear_stage(counts: Mapping[str, Any], tombstone: Tombstone, expires: float) -> dict[str, Any]:
    """Return the stage that removes all pending events from a tombstone's outbox. `counts` are the fields that count the sent events."""
    rest = _filter_fields({"$not": {"$or": _match_names([OUTBOX.events, OUTBOX.due, *counts])}})
    return _build_document([rest, _make_literal({**counts, tombstone.ttl: datetime.fromtimestamp(expires, UTC)})])


def _build_document(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the stage that replaces the document by one of these lists of fields."""
    return {"$replaceRoot": {"newRoot": {"$arrayToObject": {"$concatArrays": parts}}}}


def _make_literal(fields: Document) -> dict[str, Any]:
    return {"$literal": [{"k": name, "v": value} for name, value in fields.items()]}


@lru_cache(maxsize=64)
def _list_lasting_fields(terms: Terms, key: tuple[str, ...]) -> dict[str, Any]:
    """Return the expression for the fields that stay: the key, the sets of the store's ledger, and all onewrite fields."""
    return _filter_fields({"$or": [_match_name(f"\0{OURS}"), *_match_names([*key, *sorted(terms.plain_sets)])]})


def _match_names(names: Iterable[str]) -> list[dict[str, Any]]:
    return [_match_name(f"\0{name}\0") for name in names]


def _match_name(text: str) -> dict[str, Any]:
    """Return the condition that a field's name contains this text, in which "\\0" marks the start or end of the name.

    No name contains "\\0". $split compares bytes; a collation would change a string comparison, and a regular expression fails
    for a name that isn't valid UTF-8.
    """
    return {"$gt": [{"$size": {"$split": [{"$concat": ["\0", "$$field.k", "\0"]}, text]}}, 1]}


def _filter_fields(condition: Document) -> dict[str, Any]:
    return {"$filter": {"input": _FIELDS, "as": "field", "cond": condition}}
