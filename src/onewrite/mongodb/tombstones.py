"""The pipelines that make a tombstone of a document, and that clear the outbox of one. Pure.

A tombstone keeps what names the document, and the ledgers and outboxes of all stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from onewrite.label import OURS, OUTBOX, TOMBSTONE
from onewrite.ledgers.entry import Terms
from onewrite.mongodb.layout import Document
from onewrite.tombstone import Tombstone

_FIELDS = {"$objectToArray": "$$ROOT"}
_NAME = "$$field.k"
# Every name that begins so stands between these two.
_IS_OURS = {"$and": [{"$gte": [_NAME, OURS]}, {"$lt": [_NAME, OURS[:-1] + chr(ord(OURS[-1]) + 1)]}]}


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
    nothing: list[Any] = []
    pending = {"$ne": [{"$ifNull": [f"${OUTBOX.events}", nothing]}, nothing]}
    return {"$cond": [pending, [], _literal({tombstone.ttl: datetime.fromtimestamp(expires, UTC)})]}


@lru_cache(maxsize=64)
def _kept(terms: Terms, key: tuple[str, ...]) -> dict[str, Any]:
    """The fields that stay: the key, the set of the store's own ledger, and all that is ours."""
    return _fields_where({"$or": [{"$in": [_NAME, {"$literal": [*key, *sorted(terms.plain_sets)]}]}, _IS_OURS]})


def _fields_where(condition: Document) -> dict[str, Any]:
    return {"$filter": {"input": _FIELDS, "as": "field", "cond": condition}}
