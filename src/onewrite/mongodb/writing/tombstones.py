"""The pipelines that make a tombstone of a document, and that clear the outbox of one. Pure.

A tombstone keeps what names the document, and the ledgers and outboxes of all stores, which are known by their labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from onewrite.label import FORMAT, OUTBOX, TOMBSTONE
from onewrite.ledgers.entry import Terms
from onewrite.mongodb.writing.layout import Document
from onewrite.tombstone import Tombstone

_FIELDS = {"$objectToArray": "$$ROOT"}
_LABEL = "_ledger"
_END = r"(?![\s\S])"  # "$" would also match before a newline at the end
_OF_LEDGERS = rf"_(?:ledger|all|[0-9]+(?:d|h|m|s|us)t?){_END}"  # as docs/format.md has them


def burial(terms: Terms, tombstone: Tombstone, expires: float | None) -> dict[str, Any]:
    """The stage that makes a tombstone of a document. `expires`: from when on, if no event is pending; None: one will be."""
    left = [_kept(terms, tombstone.key), _literal({TOMBSTONE: tombstone.stored()})]
    if expires is not None:
        left.append(_expiry(tombstone, expires))
    return _document_of(left)


def emptied(sent: Mapping[str, Any], tombstone: Tombstone, expires: float) -> dict[str, Any]:
    """The stage that clears all that is pending in a tombstone's outbox. `sent`: what it holds of those sent before."""
    gone = [OUTBOX.events, OUTBOX.due, *sent]
    stays = _fields_where({"$not": [{"$in": [_NAME, {"$literal": gone}]}]})
    return _document_of([stays, _literal({**sent, tombstone.ttl: datetime.fromtimestamp(expires, UTC)})])


def _document_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"$replaceRoot": {"newRoot": {"$arrayToObject": {"$concatArrays": parts}}}}


def _literal(fields: Document) -> dict[str, Any]:
    return {"$literal": [{"k": name, "v": value} for name, value in fields.items()]}


def _expiry(tombstone: Tombstone, expires: float) -> dict[str, Any]:
    """When the database may remove the tombstone, if nothing is pending."""
    # Without an outbox's label the field is the caller's own.
    nothing: list[Any] = []
    pending = {"$and": [_IS_OUTBOX, {"$ne": [{"$ifNull": [f"${OUTBOX.events}", nothing]}, nothing]}]}
    return {"$cond": [pending, [], _literal({tombstone.ttl: datetime.fromtimestamp(expires, UTC)})]}


@lru_cache(maxsize=64)
def _kept(terms: Terms, key: tuple[str, ...]) -> dict[str, Any]:
    """The fields that stay: the key, and what the ledgers and the outbox consist of whose labels are in the document."""
    parts: list[Any] = [
        {"$in": [_NAME, {"$literal": [*key, *sorted(terms.plain_sets)]}]},
        {"$in": [_NAME, "$$plain"]},
        {"$in": [_NAME, _each("$$ledgers", {"$concat": ["$$each", "@"]})]},
        {"$and": [_matches(_NAME, _OF_LEDGERS), {"$in": [_NAME, _with_last_part("$$ledgers")]}]},
        {"$and": [{"$in": [_NAME, [*OUTBOX]]}, _IS_OUTBOX]},
    ]
    attributes = {
        "ledgers": {"$concatArrays": [_labelled({"$ne": ["$$label.k", OUTBOX.label]}), {"$literal": [*terms.attributes]}]},
        "plain": _labelled({"$eq": ["$$label.v", f"{FORMAT} all text"]}),
    }
    return {"$let": {"vars": attributes, "in": _fields_where({"$or": parts})}}


_NAME = "$$field.k"
# Every text that begins with "ow1 outbox " stands between these two.
_IS_OUTBOX = {
    "$and": [{"$gte": [f"${OUTBOX.label}", f"{FORMAT} outbox "]}, {"$lt": [f"${OUTBOX.label}", f"{FORMAT} outbox!"]}]
}


def _fields_where(condition: Document) -> dict[str, Any]:
    return {"$filter": {"input": _FIELDS, "as": "field", "cond": condition}}


def _labelled(condition: Document) -> dict[str, Any]:
    """The attributes whose labels in the document meet the condition."""
    # Every text that begins with "ow1 " stands between these two, and nothing of another type does.
    is_label = [{"$gte": ["$$label.v", f"{FORMAT} "]}, {"$lt": ["$$label.v", f"{FORMAT}!"]}]
    cond = {"$and": [_matches("$$label.k", f"{_LABEL}{_END}"), *is_label, condition]}
    # No attribute has an "@" in it, so that this cuts at the end only.
    attribute = {"$arrayElemAt": [{"$split": [{"$concat": ["$$each.k", "@"]}, f"{_LABEL}@"]}, 0]}
    return _each({"$filter": {"input": _FIELDS, "as": "label", "cond": cond}}, attribute)


def _with_last_part(attributes: str) -> dict[str, Any]:
    """Each attribute with what the field's name has behind its last "_"."""
    return _each(attributes, {"$concat": ["$$each", "_", {"$arrayElemAt": [{"$split": [_NAME, "_"]}, -1]}]})


def _each(members: str | Document, made: Document) -> dict[str, Any]:
    return {"$map": {"input": members, "as": "each", "in": made}}


def _matches(text: str, pattern: str) -> dict[str, Any]:
    return {"$regexMatch": {"input": text, "regex": pattern}}
