"""Compiles a message's entry into the native call that the caller wrote. Pure.

Each group of a ledger's slots is one field of the document: {"messageIDs_ledger": "ow1 14d", "messageIDs_14d": {"r0": [...]}},
{"events_ledger": "ow1 marks", "events@": {"order-7": 3}}.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from onewrite.entry import Advance, Change, Entry, Remember, Sets, Shape, Terms
from onewrite.errors import ConfigurationError, InvalidMessage, InvalidUpdate
from onewrite.event import Emission
from onewrite.label import TOMBSTONE, Slot
from onewrite.mongodb.emit import outbox_condition, outbox_operators, outbox_stage, stored_outbox
from onewrite.mongodb.expression import Update, check_document, check_filter, check_update, identity
from onewrite.mongodb.layout import Document, path_of

_LARGEST = 2**63 - 1  # BSON's integers have 64 bits


class Guarded(NamedTuple):
    """A write that is ready to be sent, and where to look if it did not match. `step`: the path of a step of its message."""

    entry: Entry
    filter: dict[str, Any]
    update: dict[str, Any] | list[Any]
    upsert: bool
    entity: dict[str, Any]
    conditional: bool  # does the caller's filter say more than which entity?
    native: dict[str, Any]
    emission: Emission | None = None
    step: str = ""


def guard_update(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    update: Update,
    native: Mapping[str, Any],
    *,
    step: str,
    emission: Emission | None = None,
) -> Guarded:
    """`fields`: those that name an entity, beside `_id`. `step`: the path at which a step of the message would be."""
    outbox = names_of(emission)
    check_filter(entry.terms, query, outbox)
    check_update(entry.terms, fields, update, outbox)
    return _guard(entry, fields, query, update, native, step=step, emission=emission)


def guard_record(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    native: Mapping[str, Any],
    *,
    step: str,
    emission: Emission | None = None,
) -> Guarded:
    """Compile an update that changes nothing but the ledger."""
    check_filter(entry.terms, query, names_of(emission))
    return _guard(entry, fields, query, {}, native, step=step, emission=emission)


def names_of(emission: Emission | None) -> tuple[str, ...]:
    """The names that belong to the store's outbox."""
    return () if emission is None else emission.shape.names


def _guard(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    update: Update,
    native: Document,
    *,
    step: str,
    emission: Emission | None,
) -> Guarded:
    _check_range(entry)
    _check_collation(entry, fields, native.get("collation"))
    entity, upsert = identity(query, fields), bool(native.get("upsert", False))
    if upsert:
        _check_not_in_transaction(native, "upsert=True", "Create the entity before it, or leave out upsert.")
    emitted = emission if emission is not None and emission.events else None
    return Guarded(
        entry,
        filter=_guarded(entry, query, step, emitted, piped=not isinstance(update, Mapping)),
        update=_fold(entry, update, emitted) if isinstance(update, Mapping) else [*update, _stage(entry, emitted)],
        # What follows a gap creates no entity; and the equality in its filter would be copied into the new document.
        upsert=upsert and not entry.follows_gap,
        entity=entity,
        conditional=len(query) > len(entity),
        native={name: value for name, value in native.items() if name != "upsert"},
        emission=emission,
        step=step,
    )


def guard_insert(
    entry: Entry, document: Document, native: Mapping[str, Any], emission: Emission | None = None
) -> dict[str, Any]:
    check_document(entry.terms, document, names_of(emission))
    _check_range(entry)
    _check_not_in_transaction(native, "insert_one", "Create the entity before it.")
    emitted = stored_outbox(emission) if emission is not None and emission.events else {}
    return {**document, **_initial(entry), **emitted}


def keeps_text(entry: Entry) -> bool:
    """Is there text among the marks, of which a collation may take two for one?"""
    return any(isinstance(change.mark, str) for change in entry.changes)


def in_transaction(native: Mapping[str, Any]) -> bool:
    session = native.get("session")
    return session is not None and bool(session.in_transaction)


# --- our part of the filter --------------------------------------------------------------------------------------------


def _guarded(entry: Entry, query: Document, step: str, emitted: Emission | None = None, *, piped: bool) -> dict[str, Any]:
    """The caller's filter, and the ledger's conditions beside it."""
    fields = {**_labelled(entry.terms), TOMBSTONE: {"$exists": False}, step: {"$exists": False}}
    parts: list[dict[str, Any]] = []
    for change in entry.changes:
        if isinstance(change, Remember):
            fields.update(_lacks(change))
        else:
            found, more = _is_past(change)
            # These go into $and, because two ledgers may ask about the same path.
            parts.extend([*more, *([found] if found else [])])
    if piped:
        parts.extend(_kinds(entry))
    if emitted is not None:
        parts.append(outbox_condition(emitted.shape.names))
    # Where the caller's filter names the same field, its condition and ours both hold.
    parts.extend([{name: fields.pop(name)} for name in query if name in fields])
    guarded = {**query, **fields}
    return guarded | {"$and": [*query.get("$and", []), *parts]} if parts else guarded


@lru_cache(maxsize=64)
def _labelled(terms: Terms) -> dict[str, Any]:
    fields: dict[str, Any] = {path_of(label.slot): {"$in": [None, *label.accepts]} for label in terms.labels}
    fields |= {path_of(slot): {"$exists": False} for slot in terms.no_label}
    if terms.no_set is not None:
        fields[path_of(terms.no_set)] = {"$not": {"$type": "array"}}
    return fields


def _lacks(change: Remember) -> dict[str, Any]:
    wrong = {"$nin": [change.mark, *change.aliases]} if change.aliases else {"$ne": change.mark}
    return dict.fromkeys(_paths(change.sets), wrong)


@lru_cache(maxsize=64)
def _paths(sets: Sets) -> list[str]:
    return [path_of(slot) for slot in sets.live]


def _is_past(change: Advance) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    path = path_of(change.slot)
    if change.rule == "absent":
        return {path: {"$exists": False}}, []
    # A comparison also matches an element of an array. An array is not a mark, and must not be overwritten.
    alone = {f"{path}.0": {"$exists": False}}
    if change.rule == "next":
        return {path: int(change.mark) - 1, **alone}, []
    below: dict[str, Any] = {"$lt": change.mark}
    if change.has_digits:
        below |= {"$gte": "0", "$regex": rf"^[\s\S]{{{len(cast('str', change.mark))}}}(?![\s\S])"}
    # {"$not": {"$gte": mark}} would match a mark of any other type, which would then be overwritten.
    return {}, [{"$or": [{path: {"$exists": False}}, {path: below, **alone}]}]


def _kinds(entry: Entry) -> list[dict[str, Any]]:
    """Conditions on types for a pipeline, whose $set would overwrite a value of another type where an update operator fails."""
    slot = _target(entry.own)
    kinds: list[dict[str, Any]] = []
    if slot.key:
        alone = {f"{slot.group}.0": {"$exists": False}}  # $type "object" also matches an array of documents
        kinds.append({"$or": [{slot.group: {"$exists": False}}, {slot.group: {"$type": "object"}, **alone}]})
    if isinstance(entry.own, Remember):
        path = path_of(slot)
        kinds.append({"$or": [{path: {"$exists": False}}, {path: {"$type": "array"}}]})
    return kinds


def _target(change: Change) -> Slot:
    return change.sets.present if isinstance(change, Remember) else change.slot


# --- our part of the update --------------------------------------------------------------------------------------------


def _fold(entry: Entry, update: Document, emitted: Emission | None = None) -> dict[str, Any]:
    ours: dict[str, dict[str, Any]] = {"$set": _labels(entry.terms)}
    path = path_of(_target(entry.own))
    if isinstance(entry.own, Remember):
        # $push and $unset write a few bytes to the oplog. $addToSet, and $slice, would write the whole array each time.
        ours["$push"] = {path: entry.own.mark}
        if dead := _dead(entry.shape):
            ours["$unset"] = dead
    else:
        ours["$set"] = {**ours["$set"], path: entry.own.mark}
    if emitted is not None:
        for operator, change in outbox_operators(emitted).items():
            ours[operator] = {**ours.get(operator, {}), **change}
    folded = dict(update)
    for operator, change in ours.items():
        folded[operator] = {**update.get(operator, {}), **change}
    return folded


@lru_cache(maxsize=64)
def _dead(shape: Shape) -> dict[str, str]:
    return {path_of(slot): "" for slot in shape.dead}


@lru_cache(maxsize=64)
def _labels(terms: Terms) -> dict[str, Any]:
    return {path_of(label.slot): label.text for label in terms.labels}


def _stage(entry: Entry, emitted: Emission | None = None) -> dict[str, Any]:
    path = path_of(_target(entry.own))
    # Without $literal, a pipeline reads text that begins with "$" as a field.
    changed: dict[str, Any] = {name: {"$literal": text} for name, text in _labels(entry.terms).items()}
    if isinstance(entry.own, Remember):
        changed[path] = {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": [entry.own.mark]}]}
    else:
        changed[path] = {"$literal": entry.own.mark}
    if emitted is not None:
        changed |= outbox_stage(emitted)
    return {"$set": changed | {path_of(slot): "$$REMOVE" for slot in entry.shape.dead}}


def _initial(entry: Entry) -> dict[str, Any]:
    slot, mark = _target(entry.own), entry.own.mark
    held: Any = [mark] if isinstance(entry.own, Remember) else mark
    return {**_labels(entry.terms), slot.group: {slot.key: held} if slot.key else held}


# --- what cannot be sent -----------------------------------------------------------------------------------------------


def _check_range(entry: Entry) -> None:
    for change in entry.changes:
        if isinstance(change.mark, int) and not -_LARGEST <= change.mark <= _LARGEST:
            raise InvalidMessage(
                f"Sequence {change.mark} does not fit the 64 bits of a BSON integer: use onewrite.sortable(n)."
            )


def _check_collation(entry: Entry, fields: tuple[str, ...], collation: object) -> None:
    if collation is None or not (fields or keeps_text(entry)):
        return
    options = cast("Document", collation if isinstance(collation, Mapping) else getattr(collation, "document", {}))
    if options.get("locale") != "simple":
        raise InvalidUpdate(
            "Under this collation two different marks, or the names of two entities, could count as one. Leave it out, or keep no "
            "text in the ledger (SeenIds without readable, sequences that are ints) and name the entity by _id."
        )


def _check_not_in_transaction(native: Mapping[str, Any], what: str, remedy: str) -> None:
    if in_transaction(native):
        raise InvalidUpdate(
            f"{what} in a transaction: the duplicate-key error of a redelivery would abort the transaction. {remedy}"
        )


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


def check_indexes(indexes: Document, fields: tuple[str, ...], *, text: bool) -> None:
    """Refuse a collection in which one entity may be two, or two be one."""
    collation = cast("Document", (id_index(indexes) or {}).get("collation") or {})
    if collation.get("locale", "simple") != "simple" and (text or fields):
        raise ConfigurationError(
            f"The collection compares text by the collation {collation['locale']!r}, under which two different marks, or the names of "
            "two entities, can count as one. Keep no text in the ledger (SeenIds without readable, sequences that are ints), and "
            "name entities by _id."
        )
    if fields and not any(_keeps_unique(index, fields) for index in indexes.values()):
        raise ConfigurationError(
            f"identity={fields!r} names one entity only under a unique index on these fields, not a partial one: create it, or name "
            "the entity by _id."
        )


def _keeps_unique(index: Document, fields: tuple[str, ...]) -> bool:
    keys = {name for name, _ in index["key"]}
    return bool(index.get("unique")) and keys <= set(fields) and "partialFilterExpression" not in index
