"""Compiles: a message's entry, folded into the native call that the caller wrote. Pure.

The ledger is one sub-document, with a slot as an array or a mark as a value: {"messageIDs": {"r0": [...]}},
{"events": {"@order-7": 3}}. A set that is kept for ever is an array by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.ledger import Advance, Entry, Mark, Remember, Ring
from onewrite.mongodb.expression import Document, Update, check_document, check_filter, check_update, identity

_LARGEST = 2**63 - 1  # BSON's integers have 64 bits


@dataclass(frozen=True, slots=True)
class Guarded:
    """A write that is ready to be sent, and where to look if it did not match."""

    entry: Entry
    filter: dict[str, Any]
    update: dict[str, Any] | list[Any]
    upsert: bool
    entity: dict[str, Any]
    conditional: bool  # does the caller's filter say more than which entity?
    native: dict[str, Any]


def guard_update(attribute: str, entry: Entry, query: Document, update: Update, native: Mapping[str, Any]) -> Guarded:
    check_filter(attribute, query)
    check_update(attribute, update)
    return _guard(attribute, entry, query, update, native)


def guard_record(attribute: str, entry: Entry, query: Document, native: Mapping[str, Any]) -> Guarded:
    """The ledger's own part of an update, and nothing else."""
    check_filter(attribute, query)
    return _guard(attribute, entry, query, {}, native)


def _guard(attribute: str, entry: Entry, query: Document, update: Update, native: Mapping[str, Any]) -> Guarded:
    _check_range(entry)
    _check_collation(entry, native.get("collation"))
    entity = identity(query)
    upsert = bool(native.get("upsert", False))
    if upsert:
        _check_upsert(entity, native)
    # What follows a gap creates no entity; and the equality in its filter would be copied into the new document.
    creates = upsert and not (isinstance(entry, Advance) and entry.rule == "next")
    return Guarded(
        entry,
        filter=_guarded(attribute, entry, query, piped=not isinstance(update, Mapping)),
        update=_fold(attribute, entry, update) if isinstance(update, Mapping) else [*update, _stage(attribute, entry)],
        upsert=creates,
        entity=entity,
        conditional=len(query) > len(entity),
        native={name: value for name, value in native.items() if name != "upsert"},
    )


def guard_insert(attribute: str, entry: Entry, document: Document, native: Mapping[str, Any]) -> dict[str, Any]:
    check_document(attribute, document)
    _check_range(entry)
    if in_transaction(native):
        raise InvalidUpdate(
            "insert_one in a transaction: the duplicate-key error of a redelivery would abort the transaction. Create the "
            "entity before it."
        )
    return {**document, attribute: _initial(entry)}


def path_of(attribute: str, slot: str) -> str:
    return f"{attribute}.{slot}" if slot else attribute


def in_bson(entry: Entry) -> Entry:
    """Marks that are dropped one day are kept as bytes: no collation takes two of these for one."""
    if isinstance(entry, Advance) or not entry.forgets:
        return entry
    return Remember(tuple([_bytes(mark) for mark in entry.marks]), entry.ring)


def in_transaction(native: Mapping[str, Any]) -> bool:
    session = native.get("session")
    return session is not None and bool(session.in_transaction)


def _bytes(mark: Mark) -> bytes:
    return mark.encode() if isinstance(mark, str) else mark


def _guarded(attribute: str, entry: Entry, query: Document, *, piped: bool) -> dict[str, Any]:
    """The caller's filter, and the ledger's conditions beside it."""
    fields, parts = _conditions(attribute, entry)
    if piped:
        parts = [*parts, *_kinds(attribute, entry)]
    guarded = {**query, **fields}
    return guarded | {"$and": [*query.get("$and", []), *parts]} if parts else guarded


def _conditions(attribute: str, entry: Entry) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if not isinstance(entry, Advance):
        return {path: {"$ne": entry.marks[place]} for path, place in _live(attribute, entry.ring)}, []
    path = path_of(attribute, entry.slot)
    if entry.rule == "absent":
        return {path: {"$exists": False}}, []
    # A comparison looks into an array, which is no mark, and would then be overwritten.
    alone = {f"{path}.0": {"$exists": False}}
    if entry.rule == "next":
        return {path: int(entry.mark) - 1, **alone}, []
    # Not {"$not": {"$gte": mark}}: it lets a mark of any other type through, to be overwritten.
    return {}, [{"$or": [{path: {"$exists": False}}, {path: {"$lt": entry.mark}, **alone}]}]


@lru_cache(maxsize=64)
def _live(attribute: str, ring: Ring) -> list[tuple[str, int]]:
    return [(path_of(attribute, slot), place) for slot, place in ring.live]


@lru_cache(maxsize=64)
def _dead(attribute: str, ring: Ring) -> dict[str, str]:
    return {path_of(attribute, slot): "" for slot in ring.drops}


def _kinds(attribute: str, entry: Entry) -> list[dict[str, Any]]:
    """A pipeline's $set puts a document, or $ifNull an array, over whatever stands in the ledger's place; operators fail."""
    kinds: list[dict[str, Any]] = []
    if entry.slot:
        alone = {f"{attribute}.0": {"$exists": False}}  # an array of documents has "object" for a type too
        kinds.append({"$or": [{attribute: {"$exists": False}}, {attribute: {"$type": "object"}, **alone}]})
    if isinstance(entry, Remember):
        path = path_of(attribute, entry.slot)
        kinds.append({"$or": [{path: {"$exists": False}}, {path: {"$type": "array"}}]})
    return kinds


def _fold(attribute: str, entry: Entry, update: Document) -> dict[str, Any]:
    ours: dict[str, dict[str, Any]] = {}
    if isinstance(entry, Advance):
        ours["$set"] = {path_of(attribute, entry.slot): entry.mark}
    else:
        # $push and $unset write a few bytes to the oplog. $addToSet, and $slice, would write the whole array each time.
        ours["$push"] = {path_of(attribute, entry.slot): entry.mark}
        if entry.ring.drops:
            ours["$unset"] = _dead(attribute, entry.ring)
    folded = dict(update)
    for operator, change in ours.items():
        folded[operator] = {**update.get(operator, {}), **change}
    return folded


def _stage(attribute: str, entry: Entry) -> dict[str, Any]:
    path = path_of(attribute, entry.slot)
    if isinstance(entry, Advance):
        return {"$set": {path: {"$literal": entry.mark}}}  # a pipeline reads text that begins with "$" as a field
    added: dict[str, Any] = {path: {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": [entry.mark]}]}}
    return {"$set": added | {path_of(attribute, slot): "$$REMOVE" for slot in entry.ring.drops}}


def _initial(entry: Entry) -> Any:
    held = entry.mark if isinstance(entry, Advance) else [entry.mark]
    return {entry.slot: held} if entry.slot else held


def _check_upsert(entity: Mapping[str, Any], native: Mapping[str, Any]) -> None:
    if entity.get("_id") is None:
        raise InvalidUpdate(
            "upsert=True needs an _id in the filter: by any other field, a redelivery would find no document without its "
            "mark, and create a second one."
        )
    if in_transaction(native):
        raise InvalidUpdate(
            "upsert=True in a transaction: the duplicate-key error of a redelivery would abort the transaction. Create the "
            "entity before it, or leave out upsert."
        )


def _check_range(entry: Entry) -> None:
    if isinstance(entry, Advance) and isinstance(entry.mark, int) and not -_LARGEST <= entry.mark <= _LARGEST:
        raise InvalidMessage(f"Sequence {entry.mark} does not fit the 64 bits of a BSON integer: use onewrite.sortable(n).")


def _check_collation(entry: Entry, collation: object) -> None:
    if collation is None or not isinstance(entry.mark, str):
        return
    options = cast("Document", collation if isinstance(collation, Mapping) else getattr(collation, "document", {}))
    if options.get("locale") != "simple":
        raise InvalidUpdate(
            "Under this collation two different marks could count as one. Leave it out, or keep no text in the ledger: "
            "SeenIds(digest=True), or sequences that are ints."
        )
