"""Our own part of a request: what the ledger, and a step, ask of a document and add to it. Pure.

Each group of a ledger's slots is one field of the document: {"ow_l": "ow1 14d", "ow_r": {"r0": [...]}},
{"ow_l": "ow1 marks", "ow_@": {"order-7": 3}}.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from onewrite.event import Emission
from onewrite.label import TOMBSTONE, Slot
from onewrite.ledgers.entry import Advance, Change, Entry, Form, Mark, Number, Remember, Sets, Terms
from onewrite.mongodb.writing.emit import outbox_condition, outbox_operators, outbox_stage
from onewrite.mongodb.writing.layout import Document, path_of


class Finishes(NamedTuple):
    """The step that a write finishes: its path and its fence. `overtaken`: others have moved the ledger's mark past the message."""

    step: str
    fence: str
    overtaken: bool = False


def guarded_filter(
    entry: Entry, query: Document, steps: Sequence[str], emitted: Emission | None = None, *, piped: bool
) -> dict[str, Any]:
    """The caller's filter, and the ledger's conditions beside it."""
    fields = {**fits_labels(entry.terms), TOMBSTONE: {"$exists": False}, **{step: {"$exists": False} for step in steps}}
    lacks, parts = _lets_in(entry)
    fields.update(lacks)
    if piped:
        parts.extend(_kinds(entry))
    return _joined(query, fields, parts, emitted)


def withdrawing_filter(entry: Entry, entity: Document, step: str, fence: str) -> dict[str, Any]:
    """The filter of a write that takes a claim back, without which the message could still be done."""
    lacks, parts = _lets_in(entry)
    return _joined(entity, {**fits_labels(entry.terms), f"{step}.fence": fence, **lacks}, parts, None)


def _lets_in(entry: Entry) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the ledger asks, as fields, and as members of $and."""
    if isinstance(entry.own, Remember) and not entry.also and not entry.more:  # the usual case
        return _lacks([entry.own]), []
    parts: list[dict[str, Any]] = []
    remembered: list[Remember] = []
    for change in entry.changes:
        match change:
            case Remember():
                remembered.append(change)
            case Advance():
                found, more = _is_past(change)
                # These go into $and, because two ledgers may ask about the same path.
                parts.extend([*more, *([found] if found else [])])
            case _:
                parts.extend([_fits(change), *([] if change.form == "enters" else [_lacks_number(change)])])
    return _lacks(remembered), parts


def finishing_filter(
    entry: Entry, entity: Document, finishes: Finishes, emitted: Emission | None = None, *, piped: bool
) -> dict[str, Any]:
    """The filter of a write that finishes a step. The fence alone says that the effect is this worker's to record.

    A mark that others have moved on stays where it is.
    """
    fields = {**fits_labels(entry.terms), f"{finishes.step}.fence": finishes.fence}
    parts: list[dict[str, Any]] = []
    if isinstance(entry.own, Advance) and finishes.overtaken:
        parts.append({path_of(entry.own.slot): {"$gte": entry.own.mark}})
    elif isinstance(entry.own, Advance):
        found, more = _is_past(entry.own)
        parts.extend([*more, *([found] if found else [])])
    elif isinstance(entry.own, Number):
        parts.append(_fits(entry.own))
    if piped:
        parts.extend(_kinds(entry))
    return _joined(entity, fields, parts, emitted)


def _joined(
    query: Document, fields: dict[str, Any], parts: list[dict[str, Any]], emitted: Emission | None
) -> dict[str, Any]:
    if emitted is not None:
        parts.append(outbox_condition(emitted.shape.label))
    # Where the caller's filter names the same field, its condition and ours both hold.
    parts.extend([{name: fields.pop(name)} for name in query if name in fields])
    guarded = {**query, **fields}
    return guarded | {"$and": [*query.get("$and", []), *parts]} if parts else guarded


@lru_cache(maxsize=64)
def fits_labels(terms: Terms) -> dict[str, Any]:
    """The ledger must be kept as this store keeps it."""
    return {path_of(label.slot): {"$in": [None, *label.accepts]} for label in terms.labels}


def _lacks(changes: Sequence[Remember]) -> dict[str, Any]:
    """What each live set must lack: of several messages, the marks of all."""
    if len(changes) == 1:
        return dict.fromkeys(_paths(changes[0].sets), _none_of((changes[0].mark, *changes[0].aliases)))
    wrong: dict[str, list[Mark]] = {}
    for change in changes:
        for path in _paths(change.sets):
            wrong.setdefault(path, []).extend((change.mark, *change.aliases))
    return {path: _none_of(marks) for path, marks in wrong.items()}


def _none_of(marks: Sequence[Mark]) -> dict[str, Any]:
    return {"$nin": [*marks]} if len(marks) > 1 else {"$ne": marks[0]}


@lru_cache(maxsize=64)
def _paths(sets: Sets) -> list[str]:
    return [path_of(slot) for slot in sets.live]


def _is_past(change: Advance) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    path = path_of(change.slot)
    absent: dict[str, Any] = {path: {"$exists": False}}
    # A comparison also matches an element of an array. An array is not a mark, and must not be overwritten.
    alone = {f"{path}.0": {"$exists": False}}
    if change.rule != "below":
        before = {path: int(change.mark) - 1, **alone}
        return (before, []) if change.rule == "next" else ({}, [{"$or": [absent, before]}])
    below: dict[str, Any] = {"$lt": change.mark}
    if change.has_digits:
        below |= {"$gte": "0", "$regex": rf"^[\s\S]{{{len(cast('str', change.mark))}}}(?![\s\S])"}
    # {"$not": {"$gte": mark}} would match a mark of any other type, which would then be overwritten.
    return {}, [{"$or": [absent, {path: below, **alone}]}]


_OPERATORS: dict[Form, str] = {"joins": "$eq", "enters": "$lt", "asks": "$lte", "overtaken": "$gt"}


def _fits(change: Number) -> dict[str, Any]:
    """Is the slot's block as the form wants it?"""
    tag = path_of(change.tag)
    # A comparison also matches an element of an array, which is no tag.
    compared = {tag: {_OPERATORS[change.form]: change.block}, f"{tag}.0": {"$exists": False}}
    return {"$or": [{tag: {"$exists": False}}, compared]} if change.form in ("joins", "asks") else compared


def _lacks_number(change: Number) -> dict[str, Any]:
    return {path_of(change.numbers): {"$ne": change.mark}}


def _kinds(entry: Entry) -> list[dict[str, Any]]:
    """Conditions on types for a pipeline, whose $set would overwrite a value of another type where an update operator fails."""
    arrays = dict.fromkeys([array for change in entry.written if (array := _array(change)) is not None])
    slots = dict.fromkeys([_place(change) for change in entry.written])
    parents = dict.fromkeys([parent for slot in slots for parent in _prefixes(path_of(slot))[:-1]])
    # $type "object" also matches an array that has a document in it.
    objects = [_is_kind(parent, {"$type": "object", "$not": {"$type": "array"}}) for parent in parents]
    return [*objects, *[_is_kind(path_of(array), {"$type": "array"}) for array in arrays]]


def _is_kind(path: str, kind: dict[str, Any]) -> dict[str, Any]:
    """Is nothing there, or something of this kind?"""
    return {"$or": [{path: {"$exists": False}}, {path: kind}]}


def _prefixes(path: str) -> list[str]:
    names = path.split(".")
    return [".".join(names[: n + 1]) for n in range(len(names))]


def _array(change: Change) -> Slot | None:
    """The array to which the write adds something."""
    if isinstance(change, Number):
        return change.numbers if change.form == "joins" else None
    return change.sets.present if isinstance(change, Remember) else None


def _place(change: Change) -> Slot:
    """What the write changes of the ledger."""
    match change:
        case Remember():
            return change.sets.present
        case Advance():
            return change.slot
        case _:
            return _array(change) or change.tag


def _changed(own: Change, *, overtaken: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a write sets in the ledger, and what it adds to an array of it."""
    match own:
        case Remember():
            return {}, {path_of(own.sets.present): own.mark}
        case Advance():
            return ({} if overtaken else {path_of(own.slot): own.reaches}), {}
        case Number(form="joins"):
            return {path_of(own.tag): own.block}, {path_of(own.numbers): own.mark}
        case Number(form="enters"):
            return {path_of(own.tag): own.block, path_of(own.numbers): [own.mark]}, {}
        case _:
            return {}, {}


# --- our part of the update --------------------------------------------------------------------------------------------


def operators(
    entry: Entry, update: Document, emitted: Emission | None = None, finishes: Finishes | None = None
) -> dict[str, Any]:
    """The caller's operators with ours among them."""
    sets, adds = _gained(entry, finishes)
    set_by_us = {**labels(entry.terms), **sets}
    ours: dict[str, dict[str, Any]] = {"$set": set_by_us} if set_by_us else {}
    if finishes is not None:
        ours["$unset"] = {finishes.step: ""}
    if adds:
        # $push and $unset write a few bytes to the oplog. $addToSet, and $slice, would write the whole array each time.
        ours["$push"] = {path: marks[0] if len(marks) == 1 else {"$each": marks} for path, marks in adds.items()}
    if isinstance(entry.own, Remember) and (dead := _dead(entry)):
        ours["$unset"] = {**ours.get("$unset", {}), **dead}
    if emitted is not None:
        for operator, change in outbox_operators(emitted).items():
            ours[operator] = {**ours.get(operator, {}), **change}
    merged = dict(update)
    for operator, change in ours.items():
        merged[operator] = {**update.get(operator, {}), **change}
    return merged


def _gained(entry: Entry, finishes: Finishes | None) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """What the write sets in the ledger, and what it adds to each array of it, by their paths."""
    overtaken = finishes is not None and finishes.overtaken
    sets, added = _changed(entry.own, overtaken=overtaken)
    adds: dict[str, list[Any]] = {path: [mark] for path, mark in added.items()}
    for change in entry.more:
        set_by_it, added_by_it = _changed(change, overtaken=overtaken)
        sets |= set_by_it
        for path, mark in added_by_it.items():
            adds.setdefault(path, []).append(mark)
    return sets, adds


def _dead(entry: Entry) -> dict[str, str]:
    """The paths of the sets that the write removes."""
    if isinstance(entry.own, Remember) and not entry.also and not entry.more:  # the usual case
        return _dead_paths((entry.own.sets,))
    sets = dict.fromkeys([change.sets for change in entry.changes if isinstance(change, Remember)])
    return _dead_paths(tuple(sets))


@lru_cache(maxsize=64)
def _dead_paths(sets: tuple[Sets, ...]) -> dict[str, str]:
    return {path_of(slot): "" for each in sets for slot in each.dead}


@lru_cache(maxsize=64)
def labels(terms: Terms) -> dict[str, Any]:
    return {path_of(label.slot): label.text for label in terms.labels}


def stage(entry: Entry, emitted: Emission | None = None, finishes: Finishes | None = None) -> dict[str, Any]:
    """Our stage of the caller's pipeline."""
    sets, adds = _gained(entry, finishes)
    # Without $literal, a pipeline reads text that begins with "$" as a field.
    changed: dict[str, Any] = {path: {"$literal": value} for path, value in [*labels(entry.terms).items(), *sets.items()]}
    for path, marks in adds.items():
        changed[path] = {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": marks}]}
    if finishes is not None:
        changed[finishes.step] = "$$REMOVE"
    if emitted is not None:
        changed |= outbox_stage(emitted)
    return {"$set": changed | dict.fromkeys(_dead(entry), "$$REMOVE")}


def initial(entry: Entry) -> dict[str, Any]:
    own = entry.own._replace(form="enters") if isinstance(entry.own, Number) else entry.own
    sets, adds = _changed(own, overtaken=False)
    held: dict[str, Any] = {**labels(entry.terms)}
    for path, value in {**sets, **{path: [mark] for path, mark in adds.items()}}.items():
        *parents, name = path.split(".")
        inner = held
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return held
