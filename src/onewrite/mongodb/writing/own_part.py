"""Our own part of a request: what the ledger, and a step, ask of a document and add to it. Pure.

Each group of a ledger's slots is one field of the document: {"messageIDs_ledger": "ow1 14d", "messageIDs_14d": {"r0": [...]}},
{"events_ledger": "ow1 marks", "events@": {"order-7": 3}}.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, cast

from onewrite.entry import Advance, Change, Entry, Remember, Sets, Shape, Terms
from onewrite.event import Emission
from onewrite.label import TOMBSTONE, Slot
from onewrite.mongodb.writing.emit import outbox_condition, outbox_operators, outbox_stage
from onewrite.mongodb.writing.layout import Document, path_of


class Finishes(NamedTuple):
    """The step that a write finishes: its path and its fence. `overtaken`: others have moved the ledger's mark past the message."""

    step: str
    fence: str
    overtaken: bool = False


def guarded_filter(
    entry: Entry, query: Document, step: str, emitted: Emission | None = None, *, piped: bool
) -> dict[str, Any]:
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
    return _joined(query, fields, parts, emitted)


def finishing_filter(
    entry: Entry, entity: Document, finishes: Finishes, emitted: Emission | None = None, *, piped: bool
) -> dict[str, Any]:
    """The filter of a write that finishes a step. The fence alone says that the effect is this worker's to record.

    A mark that others have moved on stays where it is.
    """
    fields = {**_labelled(entry.terms), f"{finishes.step}.fence": finishes.fence}
    parts: list[dict[str, Any]] = []
    if isinstance(entry.own, Advance) and finishes.overtaken:
        parts.append({path_of(entry.own.slot): {"$gte": entry.own.mark}})
    elif isinstance(entry.own, Advance):
        found, more = _is_past(entry.own)
        parts.extend([*more, *([found] if found else [])])
    if piped:
        parts.extend(_kinds(entry))
    return _joined(entity, fields, parts, emitted)


def _joined(
    query: Document, fields: dict[str, Any], parts: list[dict[str, Any]], emitted: Emission | None
) -> dict[str, Any]:
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


def fold(
    entry: Entry, update: Document, emitted: Emission | None = None, finishes: Finishes | None = None
) -> dict[str, Any]:
    ours: dict[str, dict[str, Any]] = {"$set": labels(entry.terms)}
    path = path_of(_target(entry.own))
    if finishes is not None:
        ours["$unset"] = {finishes.step: ""}
    if isinstance(entry.own, Remember):
        # $push and $unset write a few bytes to the oplog. $addToSet, and $slice, would write the whole array each time.
        ours["$push"] = {path: entry.own.mark}
        if dead := _dead(entry.shape):
            ours["$unset"] = {**ours.get("$unset", {}), **dead}
    elif finishes is None or not finishes.overtaken:
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
def labels(terms: Terms) -> dict[str, Any]:
    return {path_of(label.slot): label.text for label in terms.labels}


def stage(entry: Entry, emitted: Emission | None = None, finishes: Finishes | None = None) -> dict[str, Any]:
    path = path_of(_target(entry.own))
    # Without $literal, a pipeline reads text that begins with "$" as a field.
    changed: dict[str, Any] = {name: {"$literal": text} for name, text in labels(entry.terms).items()}
    if isinstance(entry.own, Remember):
        changed[path] = {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": [entry.own.mark]}]}
    elif finishes is None or not finishes.overtaken:
        changed[path] = {"$literal": entry.own.mark}
    if finishes is not None:
        changed[finishes.step] = "$$REMOVE"
    if emitted is not None:
        changed |= outbox_stage(emitted)
    return {"$set": changed | {path_of(slot): "$$REMOVE" for slot in entry.shape.dead}}


def initial(entry: Entry) -> dict[str, Any]:
    slot, mark = _target(entry.own), entry.own.mark
    held: Any = [mark] if isinstance(entry.own, Remember) else mark
    return {**labels(entry.terms), slot.group: {slot.key: held} if slot.key else held}
