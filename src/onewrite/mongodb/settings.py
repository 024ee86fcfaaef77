"""Checks of a collection's settings: whether its indexes and collation can confuse two entities or split one, and whether its validator
refuses onewrite's names. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import NoneType
from typing import Any, cast
from uuid import UUID

from bson import Decimal128, ObjectId, Timestamp

from onewrite.core.label import is_ours
from onewrite.core.ledgers.entry import Entry
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.mongodb.layout import Document


def has_text_marks(entry: Entry) -> bool:
    """Whether the ledger contains the caller's strings, which a collation can treat as equal although they differ."""
    return any(change.has_text for change in entry.checked)


def find_id_index(indexes: Document) -> Document | None:
    """Return the index on `_id`, or None if the collection doesn't keep `_id` unique. The index has the collection's collation."""
    for index in indexes.values():
        if list(index["key"]) == [("_id", 1)]:
            return cast("Document", index)
    return None


def check_id_index(indexes: Document) -> None:
    """Raise if an existing collection has no index on `_id`."""
    if find_id_index(indexes) is None:
        raise ConfigurationError(
            "This collection doesn't keep _id unique (it's a time series, or has no index on _id), and a message could be inserted "
            "twice. Use a different collection."
        )


def check_indexes(indexes: Document, fields: Sequence[str], *, text: bool) -> None:
    """Raise if `fields` might not identify exactly one entity in this collection."""
    collation = cast("Document", (find_id_index(indexes) or {}).get("collation") or {})
    if collation.get("locale", "simple") != "simple" and (text or fields):
        raise ConfigurationError(
            f"The collection compares text by the collation {collation['locale']!r}, under which two different marks or keys can be "
            "equal. Keep strings out of the ledger (SeenIds without readable=True, and integer sequences), and identify entities by "
            "_id."
        )
    for index in indexes.values():
        keys = {name for name, _ in index["key"]}
        # If two fields are inside one array, different elements can have their values. No index entry then contains both values.
        has_own_roots = len({name.partition(".")[0] for name in keys}) == len(keys)
        if index.get("unique") and keys <= {*fields} and has_own_roots and "partialFilterExpression" not in index:
            return
    if fields:
        raise ConfigurationError(
            f"key={fields!r}: there is no unique index that makes these fields identify one entity. Create a unique, non-partial index "
            "on them (two of them can't share a parent field, which could be an array), or identify entities by _id."
        )


# No collation treats different values of these types as equal.
_NO_TEXT = (int, float, bytes, datetime, UUID, ObjectId, Decimal128, Timestamp, NoneType)


def check_collation(collation: object, key: Document, *, text: bool) -> None:
    """Raise if, under the call's collation, different entities or marks could be equal.

    Pass `text=True` if the ledger contains strings.
    """
    options = cast("Document", collation if isinstance(collation, Mapping) else getattr(collation, "document", {}))
    if collation is None or options.get("locale") == "simple":
        return
    if text or [*key] != ["_id"] or has_text(key):
        raise InvalidUpdate(
            "Under this collation, two entities or two marks can be equal. A message could be lost or change the wrong entity. Omit "
            "the collation. Or identify the entity by an _id without strings, and keep strings out of the ledger (SeenIds without "
            "readable=True, and integer sequences)."
        )


def has_text(value: object) -> bool:
    """Whether a value is or contains a string, or a value of an unknown type, which counts as one."""
    if isinstance(value, Mapping):
        return any(map(has_text, cast("Document", value).values()))
    if isinstance(value, list | tuple):
        return any(map(has_text, cast("Sequence[object]", value)))
    return not isinstance(value, _NO_TEXT)


def check_unique_indexes(indexes: Document, fields: Sequence[str]) -> None:
    """Raise if two tombstones would have the same key in a unique index, because both have null for the index's missing fields."""
    key_fields = {"_id", *[field.partition(".")[0] for field in fields]}
    for name, index in indexes.items():
        keys = [key for key, _ in index["key"]]
        other_keys = [key for key in keys if key.partition(".")[0] not in key_fields]
        has_entity_key = "_id" in keys or (bool(fields) and {*fields} <= {*keys})  # so the index distinguishes tombstones
        leaves_out_tombstones = "partialFilterExpression" in index or (index.get("sparse") and other_keys == keys)
        if index.get("unique") and other_keys and not has_entity_key and not leaves_out_tombstones:
            partial = {key: {"$exists": True} for key in other_keys}
            raise ConfigurationError(
                f"The unique index {name!r} would refuse the second entity that is deleted from this collection, because all deleted "
                f"entities have null for {', '.join(other_keys)}. Create the index with partialFilterExpression={partial!r}, which leaves "
                "out deleted entities. If another store identifies entities by these fields, pass its key= to this store too."
            )


# --- the validator -----------------------------------------------------------------------------------------------------

_FAILED_VALIDATION = 121  # MongoDB's code


def check_refusal(error: Exception) -> None:
    """Raise `ConfigurationError` if a validator refused a write because of onewrite's names.

    Servers before MongoDB 5.0 don't report the reason. For those, this raises nothing.
    """
    if getattr(error, "code", None) != _FAILED_VALIDATION:
        return
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    names = sorted({*filter(is_ours, _list_unwanted_names(details.get("errInfo")))})
    if names:
        raise ConfigurationError(
            f"The collection's validator refuses {', '.join(names)}, which a guarded write adds to a document. Nothing was written. "
            'Add "patternProperties": {"^ow_": {}} to its $jsonSchema, with the command collMod.'
        ) from error


def _list_unwanted_names(report: Any) -> Iterator[str]:
    """Yield the names in a server's report that the validator doesn't allow, at any depth."""
    if isinstance(report, Mapping):
        for name, value in cast("Mapping[str, Any]", report).items():
            if name == "additionalProperties" and isinstance(value, list):
                yield from (member for member in cast("list[Any]", value) if isinstance(member, str))
            else:
                yield from _list_unwanted_names(value)
    elif isinstance(report, list):
        for member in cast("list[Any]", report):
            yield from _list_unwanted_names(member)
