"""Explains: what MongoDB returned, as an outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pymongo.errors import DuplicateKeyError, OperationFailure

from onewrite.errors import LedgerMismatch
from onewrite.ledger import Entry, Stored
from onewrite.message import Message
from onewrite.mongodb.expression import Document
from onewrite.outcome import Entity, Outcome, Rejected

# BSONObjectTooLarge, the same for an upsert, and what the result of a pipeline raises.
_TOO_LARGE = frozenset({10334, 17419, 17420})
# BadValue, TypeMismatch, PathNotViable, and $concatArrays on no array: maybe the caller's fault, maybe a broken ledger.
_CONTENT = frozenset({2, 14, 28, 28664})


def without_ledger(attribute: str, document: Document) -> Entity:
    return {name: value for name, value in document.items() if name != attribute}


def stored(attribute: str, document: Document, entry: Entry) -> Stored:
    """The ledger in a document, as the ledgers speak of it."""
    if attribute not in document:
        return {}
    found: object = document[attribute]
    if isinstance(found, Mapping) and entry.slot:
        return {slot: _neutral(value) for slot, value in cast("Document", found).items()}
    if isinstance(found, list) and not entry.slot:
        return {"": _neutral(cast("object", found))}
    raise LedgerMismatch(
        f"{attribute!r} holds a {type(cast('object', found)).__name__}, and not this ledger: another writer uses it, "
        "or `retention` was changed from or to None. Give the ledger an attribute of its own."
    )


def unmatched(attribute: str, entry: Entry, message: Message, document: Document | None) -> Outcome:
    """Why a guarded write matched nothing, given the document. The ledger comes before the caller's own condition."""
    entity = None if document is None else without_ledger(attribute, document)
    refusal = entry.judge(message, stored(attribute, document or {}, entry), entity=entity)
    return Rejected(message, entity) if refusal is None else refusal


def check_ledger(attribute: str, entry: Entry, document: Document) -> None:
    """Raise `LedgerMismatch` where something else stands in the ledger's place."""
    entry.judge(Message("unknown"), stored(attribute, document, entry))


def is_of_entity(error: DuplicateKeyError, entity: Mapping[str, Any]) -> bool:
    """Is the duplicate key the entity's own? A unique index of the caller's is the caller's business."""
    pattern = (error.details or {}).get("keyPattern")
    return pattern is None or set(pattern) <= set(entity)  # mongomock gives no details


def is_too_large(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code in _TOO_LARGE


def may_be_ledger(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code in _CONTENT


def _neutral(value: object) -> object:
    match value:
        case list():
            try:
                return frozenset(cast("list[object]", value))
            except TypeError:  # documents or arrays in it: no marks
                return cast("object", value)
        case float() if value.is_integer():  # as a shell writes numbers
            return int(value)
        case int() if not isinstance(value, bool):
            return int(value)  # Int64 is an int of its own
        case _:
            return value
