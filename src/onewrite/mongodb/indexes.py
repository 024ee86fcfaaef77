"""What a collection must be so no two entities count as one, and no entity as two: its indexes and its collation. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from onewrite.core.ledgers.entry import Entry
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.mongodb.layout import Document


def keeps_text(entry: Entry) -> bool:
    """Is there text among the marks, of which a collation may take two for one?"""
    return type(entry.own.mark) is str or any(type(change.mark) is str for change in entry.more + entry.also)


def id_index(indexes: Document) -> Document | None:
    """The index on `_id`, which every collection has but those that do not keep `_id` unique. Its collation is the collection's."""
    for index in indexes.values():
        if list(index["key"]) == [("_id", 1)]:
            return cast("Document", index)
    return None


def check_ids_are_unique(indexes: Document) -> None:
    """Refuse a collection that is there, and has no index on `_id`."""
    if id_index(indexes) is None:
        raise ConfigurationError(
            "This collection does not keep _id unique (it holds time series, or has no index on _id): a message inserted twice "
            "would be there twice. Insert it into a collection that does."
        )


def check_indexes(indexes: Document, fields: Sequence[str], *, text: bool) -> None:
    """Refuse a collection in which one entity, named by `fields`, may be two, or two be one."""
    collation = cast("Document", (id_index(indexes) or {}).get("collation") or {})
    if collation.get("locale", "simple") != "simple" and (text or fields):
        raise ConfigurationError(
            f"The collection compares text by the collation {collation['locale']!r}, under which two different marks, or the names of "
            "two entities, can count as one. Keep no text in the ledger (SeenIds without readable, sequences that are ints), and "
            "name entities by _id."
        )
    for index in indexes.values():
        keys = {name for name, _ in index["key"]}
        if index.get("unique") and keys <= {*fields} and "partialFilterExpression" not in index:
            return
    if fields:
        raise ConfigurationError(
            f"key={fields!r} names one entity only under a unique index on these fields, not a partial one: create it, or name "
            "the entity by _id."
        )


def check_collation(collation: object, *, text: bool, has_key_fields: bool) -> None:
    """Refuse a call's own collation. `text`: does the ledger keep text? `has_key_fields`: do fields other than `_id` name the entity?"""
    if collation is None or not (has_key_fields or text):
        return
    options = cast("Document", collation if isinstance(collation, Mapping) else getattr(collation, "document", {}))
    if options.get("locale") != "simple":
        raise InvalidUpdate(
            "Under this collation two different marks, or the names of two entities, could count as one. Leave it out, or keep no "
            "text in the ledger (SeenIds without readable, sequences that are ints) and name the entity by _id."
        )


def check_unique_indexes(indexes: Document, fields: Sequence[str]) -> None:
    """Refuse a collection in which two tombstones would have the same key in a unique index: null, for what they do not have."""
    key_fields = {"_id", *[field.partition(".")[0] for field in fields]}
    for name, index in indexes.items():
        keys = [key for key, _ in index["key"]]
        other_keys = [key for key in keys if key.partition(".")[0] not in key_fields]
        is_alone = "_id" in keys or (fields and {*fields} <= {*keys})  # what names the entity is part of the key
        is_left_out = "partialFilterExpression" in index or (index.get("sparse") and other_keys == keys)
        if index.get("unique") and other_keys and not is_alone and not is_left_out:
            partial = {key: {"$exists": True} for key in other_keys}
            raise ConfigurationError(
                f"The second entity that is deleted from this collection would meet the first in the unique index {name!r}, where both "
                f"have null for {', '.join(other_keys)}. Create the index with partialFilterExpression={partial!r}, so it leaves out what "
                "was deleted."
            )
