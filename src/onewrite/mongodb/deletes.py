"""Deletes from a collection: one update with a pipeline makes a tombstone of the document.

The pipeline keeps what names the document, and the ledgers and outboxes of all stores, which it knows by their labels. All else goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from onewrite.entry import Terms
from onewrite.errors import ConfigurationError
from onewrite.event import Outbox
from onewrite.flow import Flow
from onewrite.label import FORMAT, OUTBOX, TOMBSTONE
from onewrite.ledger import Ledger
from onewrite.message import Message
from onewrite.mongodb.flows import Durability, Writer
from onewrite.mongodb.layout import Document
from onewrite.mongodb.request import guard_delete
from onewrite.mongodb.steps import StepFlows
from onewrite.outcome import Outcome
from onewrite.tombstone import Tombstone, Tombstones, check_store_tombstones, made_with_tombstones, new_tombstone


class DeleteFlows(StepFlows):
    """The flows of `StepFlows`, and those of deletes."""

    def __init__(
        self,
        collection: Any,
        ledger: Ledger,
        clock: Callable[[], float],
        fields: Sequence[str],
        durability: Durability,
        *,
        attempts: Callable[[], str],
        outbox: Outbox | None,
        tombstones: Tombstones | None,
        awaited: bool,
    ) -> None:
        super().__init__(collection, ledger, clock, fields, durability, attempts=attempts, outbox=outbox, awaited=awaited)
        self._key = tuple(dict.fromkeys(["_id", *[_root(field) for field in self._fields]]))
        check_store_tombstones(tombstones, lambda name: name in self._key or not self.without_ledger({name: 0}))
        self._tombstones = tombstones
        self._indexes_fit = False

    def delete(
        self, message: Message, query: Document, native: Document, writer: Writer, emit: object = None
    ) -> Flow[Outcome]:
        now = self._clock()
        tombstone = new_tombstone(made_with_tombstones(self._tombstones), now, self._attempts(), self._key)
        entry, emitted = self._ledger.entry(message, now), self._emitted(message, emit, now)
        expires = None if emitted is not None and emitted.events else tombstone.expiry(now)
        stage = _burial(entry.terms, tombstone, expires)
        guarded = guard_delete(entry, self._fields, query, stage, native, emission=emitted)
        yield from self._check_indexes_fit()
        return (yield from self._write(message, now, guarded, writer))

    def _check_indexes_fit(self) -> Flow[None]:
        if not self._indexes_fit:
            check_unique_indexes((yield from self._read_indexes(inserts=False)), self._fields)
            self._indexes_fit = True


def check_unique_indexes(indexes: Document, fields: tuple[str, ...]) -> None:
    """Refuse a collection in which two tombstones would have the same key in a unique index: null, for what they do not have."""
    kept = {"_id", *map(_root, fields)}
    for name, index in indexes.items():
        keys = [key for key, _ in index["key"]]
        lost = [key for key in keys if _root(key) not in kept]
        is_alone = "_id" in keys or (fields and {*fields} <= {*keys})  # what names the entity is part of the key
        is_left_out = "partialFilterExpression" in index or (index.get("sparse") and lost == keys)
        if index.get("unique") and lost and not is_alone and not is_left_out:
            partial = {key: {"$exists": True} for key in lost}
            raise ConfigurationError(
                f"The second entity that is deleted from this collection would meet the first in the unique index {name!r}, where both "
                f"have null for {', '.join(lost)}. Create the index with partialFilterExpression={partial!r}, so that it leaves out what "
                "was deleted."
            )


def _root(path: str) -> str:
    return path.partition(".")[0]


# --- the pipeline ------------------------------------------------------------------------------------------------------

_FIELDS = {"$objectToArray": "$$ROOT"}
_LABEL = "_ledger"
_END = r"(?![\s\S])"  # "$" would also match before a newline at the end
_OF_LEDGERS = rf"_(?:ledger|all|[0-9]+(?:d|h|m|s|us)t?){_END}"  # as docs/format.md has them
_OF_OUTBOXES = rf"_(?:ledger|events|sent|incarnation|due|shard){_END}"


def _burial(terms: Terms, tombstone: Tombstone, expires: float | None) -> dict[str, Any]:
    """The stage that makes a tombstone of a document. `expires`: from when on, if no event is pending; None: one will be."""
    left: list[Any] = [_kept(terms, tombstone.key), {"$literal": [{"k": TOMBSTONE, "v": tombstone.stored()}]}]
    if expires is not None:
        expiry = {"$literal": [{"k": tombstone.ttl, "v": datetime.fromtimestamp(expires, UTC)}]}
        left.append({"$cond": [_pending(), [], expiry]})
    return {"$replaceRoot": {"newRoot": {"$arrayToObject": {"$concatArrays": left}}}}


@lru_cache(maxsize=64)
def _kept(terms: Terms, key: tuple[str, ...]) -> dict[str, Any]:
    """The fields that stay: the key, and what the ledgers and outboxes consist of whose labels are in the document."""
    parts: list[Any] = [
        {"$in": [_NAME, {"$literal": [*key, *sorted(terms.plain_sets)]}]},
        {"$in": [_NAME, "$$plain"]},
        {"$in": [_NAME, _each("$$ledgers", {"$concat": ["$$each", "@"]})]},
        {"$and": [_matches(_NAME, _OF_LEDGERS), {"$in": [_NAME, _with_last_part("$$ledgers")]}]},
        {"$and": [_matches(_NAME, _OF_OUTBOXES), {"$in": [_NAME, _with_last_part("$$outboxes")]}]},
    ]
    attributes = {
        "ledgers": {"$concatArrays": [_labelled({"$ne": ["$$label.v", OUTBOX]}), {"$literal": [*terms.attributes]}]},
        "plain": _labelled({"$eq": ["$$label.v", f"{FORMAT} all text"]}),
        "outboxes": _labelled({"$eq": ["$$label.v", OUTBOX]}),
    }
    return {"$let": {"vars": attributes, "in": _fields_where({"$or": parts})}}


@lru_cache(maxsize=1)
def _pending() -> dict[str, Any]:
    """Is there an outbox in which something is pending?"""
    lists = _each(_labelled({"$eq": ["$$label.v", OUTBOX]}), {"$concat": ["$$each", "_events"]})
    return {"$ne": [_fields_where({"$and": [{"$in": [_NAME, lists]}, {"$ne": ["$$field.v", []]}]}), []]}


_NAME = "$$field.k"


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
