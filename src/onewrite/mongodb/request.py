"""Writes a guarded write down for MongoDB: what each part asks in the filter and adds to the update, beside the caller's own. Pure.

Each group of a ledger's slots is one field of the document: {"ow_l": "ow1 14d", "ow_r": {"r0": [...]}},
{"ow_l": "ow1 marks", "ow_@": {"order-7": 3}}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from bson.regex import Regex

from onewrite.core.event import Emission
from onewrite.core.label import MOVED_LABEL, OUTBOX, STEPS, TOMBSTONE
from onewrite.core.ledgers.entry import Advance, Entry, Mark, Remember, Sets, Terms
from onewrite.core.step import step_mark
from onewrite.core.write import Begins, Finishes, NoStep, NoStepAtAll, Withdraws, Write
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.expression import Update, asks_more, check_document, check_projection, identity
from onewrite.mongodb.indexes import check_collation, keeps_text
from onewrite.mongodb.layout import Document, path_of

_SMALLEST, _LARGEST = -(2**63) + 1, 2**63 - 1  # BSON's integers have 64 bits
_ABSENT: Document = {"$exists": False}
_NONE_OPEN: Document = {"$in": [None, {}]}  # the last step that is finished leaves an empty document


class ReadyWrite(NamedTuple):
    """A write that is ready to be sent."""

    write: Write
    filter: dict[str, Any]
    update: dict[str, Any] | list[Any]
    upsert: bool
    native: Mapping[str, Any]
    query: Document  # the caller's own filter
    change: Update  # and update

    @property
    def conditional(self) -> bool:
        """Does the caller's filter say more than which entity?"""
        return asks_more(self.query, self.write.key)

    def of(self, write: Write) -> ReadyWrite:
        """The same call with these parts."""
        merged_query, merged_update = _merge(write, self.query, self.change)
        return self._replace(write=write, filter=merged_query, update=merged_update)


def guard(write: Write, query: Document, update: Update | None, native: Mapping[str, Any]) -> ReadyWrite:
    """`update`: one that touches nothing of ours; None where nothing else changes."""
    entry, options, upsert = write.entry, native, False
    if update is None:
        update = {}
    if native:
        options = {**native}
        upsert = bool(options.pop("upsert", False))
    if options:
        if options.get("projection") is not None:
            check_projection(entry.terms, options["projection"])
        check_collation(options.get("collation"), write.key, text=keeps_text(entry))
        if "CURRENT" in (options.get("let") or ()):
            raise InvalidUpdate(
                'let={"CURRENT": ...} would take the place of the document, of which the ledger is a part: give it another name.'
            )
        if upsert:
            check_not_in_transaction(options, "upsert=True", _NO_UPSERT)
    # What follows a gap creates no entity; and the equality in its filter would be copied into the new document.
    upsert = upsert and not (entry.own.counts and entry.follows_gap)
    merged_query, merged_update = _merge(write, query, update)
    return ReadyWrite(write, merged_query, merged_update, upsert, options, query, update)


def guard_insert(write: Write, document: Document, native: Mapping[str, Any]) -> dict[str, Any]:
    """The document to insert, with what the parts add to a new one."""
    check_document(write.entry.terms, document)
    check_not_in_transaction(native, "insert_one", _NO_INSERT)
    check_looks(write.entry)  # a later delivery that does not insert would be refused
    emission, new_document = write.emission, {**document, **initial(write.entry)}
    if emission is not None and emission.events:
        new_document |= {OUTBOX.label: emission.shape.label, OUTBOX.events: [*emission.events], OUTBOX.due: emission.due}
    return new_document


def creates_by_record(query: Document, fields: tuple[str, ...], native: Mapping[str, Any]) -> bool:
    """May a record create its entity? Not one that asks something of the entity, which an upsert would copy into a new document."""
    entity = identity(query, fields)
    return "_id" in entity and not asks_more(query, entity) and not in_transaction(native)


_NO_UPSERT = (
    "Create the entity before it, or leave out upsert: the duplicate-key error of a redelivery would abort the transaction."
)
_NO_INSERT = "Create the entity before it: the duplicate-key error of a redelivery would abort the transaction."


def in_transaction(native: Mapping[str, Any]) -> bool:
    session = native.get("session")
    return session is not None and bool(session.in_transaction)


def check_not_in_transaction(native: Mapping[str, Any], name: str, remedy: str) -> None:
    if in_transaction(native):
        raise InvalidUpdate(f"{name} in a transaction is refused. {remedy}")


# --- what the parts ask and add ----------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """What all parts of a write ask of a document, and what they add to it."""

    asks: dict[str, Any]  # conditions, by the fields that they are about
    also: list[dict[str, Any]]  # those of which two may be about one field
    sets: dict[str, Any]
    pushes: dict[str, list[Any]]
    removes: dict[str, str]


def _merge(write: Write, query: Document, update: Update) -> tuple[dict[str, Any], dict[str, Any] | list[Any]]:
    """The caller's filter and update, with our parts beside them."""
    asks, also, sets, pushes, removes = parts = parts_of(write)
    emission = write.emission
    emits = emission if emission is not None and emission.events else None
    is_pipeline = type(update) is not dict and not isinstance(update, Mapping)
    if is_pipeline:
        also.extend(_kinds(write.entry))
    if emission is not None and write.asks_outbox:
        also.append(outbox_condition(emission.shape.label))
    merged_query = {**query, **asks}
    if also:
        merged_query["$and"] = [*query.get("$and", ()), *also]
    if is_pipeline:
        return merged_query, [*cast("Sequence[Document]", update), _stage(parts, emits)]
    # $push and $unset write a few bytes to the oplog. $addToSet, and $slice, would write the whole array each time.
    our_pushes: dict[str, Any] = {path: marks[0] if len(marks) == 1 else {"$each": marks} for path, marks in pushes.items()}
    our_changes = [("$set", sets), ("$push", our_pushes), ("$unset", removes)]
    if emits is not None:
        # $min keeps the time of the oldest event. It also brings a postponed entity forward, which costs one more try of the event that was
        # refused: an update has no operator that sets a field only where it is missing.
        sets[OUTBOX.label] = emits.shape.label
        our_pushes[OUTBOX.events] = {"$each": [*emits.events]}
        our_changes.append(("$min", {OUTBOX.due: emits.due}))
    merged_update = dict(cast("Document", update))
    for operator, change in our_changes:
        if change:
            merged_update[operator] = {**merged_update[operator], **change} if operator in merged_update else change
    return merged_query, merged_update


def parts_of(write: Write) -> Parts:
    entry, step = write.entry, write.step
    own_change, label_parts = entry.own, labels(entry.terms)
    also: list[dict[str, Any]] = []
    asks: dict[str, Any] = {**label_parts.alive}
    removes: dict[str, str] = {}
    finishes: Finishes | None = None
    # --- the entity and its steps
    if isinstance(step, NoStepAtAll):
        asks[STEPS] = _NONE_OPEN
    elif isinstance(step, NoStep | Begins):
        for message in (write.message, *write.other_messages):
            for ledger in entry.terms.attributes:
                asks[step_path(ledger, message)] = _ABSENT
    else:
        # The fence alone says that the effect is this worker's to record.
        path = step_path(step.ledger, write.message)
        asks, removes = {**label_parts.fits, f"{path}.fence": step.fence}, {path: ""}
        finishes = step if isinstance(step, Finishes) else None
    # --- what the ledger asks. A finish is asked only for the order: a mark that others have moved on stays where it is.
    if finishes is not None:
        if type(own_change) is Advance:
            is_reached = {path_of(own_change.slot): {"$gte": own_change.mark}}
            also.append(is_reached if finishes.overtaken else _is_past(own_change))
    elif type(own_change) is Remember and not entry.more and not entry.also:  # nearly always
        asks |= dict.fromkeys(places(own_change.sets).live, _lacks((own_change.mark, *own_change.aliases)))
    else:
        marks_by_path: dict[str, tuple[Mark, ...]] = {}  # a set must lack the marks of all
        for change in entry.changes:
            if type(change) is Remember:
                for path in places(change.sets).live:
                    marks_by_path[path] = (*marks_by_path.get(path, ()), change.mark, *change.aliases)
            else:
                also.append(_is_past(change))
        asks |= {path: _lacks(marks) for path, marks in marks_by_path.items()}
    # --- what it gains
    if isinstance(step, Withdraws):
        return Parts(asks, also, {}, {}, removes)
    sets = {**label_parts.sets}
    pushes: dict[str, list[Any]] = {}
    if isinstance(step, Begins):
        _check_range(write.message.sequence)  # which the step keeps, also where the ledger does not look at it
        sets[step_path(entry.terms.attribute, write.message)] = step.step.as_fields()
    elif finishes is None or not finishes.overtaken:
        gain(entry, sets, pushes, removes)
    return Parts(asks, also, sets, pushes, removes)


def _lacks(marks: tuple[Mark, ...]) -> Document:
    return {"$ne": marks[0]} if len(marks) == 1 else {"$nin": [*marks]}


def gain(entry: Entry, sets: dict[str, Any], pushes: dict[str, list[Any]], removes: dict[str, str]) -> None:
    """What a write adds to the ledger, and the sets of it that it removes."""
    if type(entry.own) is Remember:
        set_places = places(entry.own.sets)
        pushes[set_places.present] = [change.mark for change in entry.written_changes] if entry.more else [entry.own.mark]
        removes |= set_places.dead
        for earlier_change in entry.also:
            if type(earlier_change) is Remember:
                removes |= places(earlier_change.sets).dead
        return
    for change in (entry.own, *entry.more):
        if type(change) is Advance:
            sets[path_of(change.slot)] = change.reaches


def step_path(ledger: str, message: Message) -> str:
    """Where the step of the message is, which was begun under that ledger."""
    return f"{STEPS}.{step_mark(ledger, message).hex()}"


# --- the ledger: what it asks ------------------------------------------------------------------------------------------


class _Labels(NamedTuple):
    fits: dict[str, Any]  # the ledger must be kept as this store keeps it
    alive: dict[str, Any]  # and the entity must not be deleted
    sets: dict[str, Any]


@lru_cache(maxsize=64)
def labels(terms: Terms) -> _Labels:
    fits = {
        path_of(label.slot): {
            "$in": [None, *[_is_text(text) if text.startswith(MOVED_LABEL) else text for text in label.accepts]]
        }
        for label in terms.labels
    }
    return _Labels(fits, {**fits, TOMBSTONE: _ABSENT}, {path_of(label.slot): label.text for label in terms.labels})


def _is_text(text: str) -> Regex[str]:
    """Matches this text alone. Where there is a name in a label, a collation could take another name for it, and has no say in a pattern."""
    return Regex(rf"^{re.escape(text)}(?![\s\S])")


class _Places(NamedTuple):
    """Where the sets of a ledger are: those to look into, the one that gains a mark, those to remove."""

    live: tuple[str, ...]
    present: str
    dead: dict[str, str]


@lru_cache(maxsize=64)
def places(sets: Sets) -> _Places:
    return _Places(tuple(map(path_of, sets.live)), path_of(sets.present), {path_of(slot): "" for slot in sets.dead})


def _is_past(change: Advance) -> dict[str, Any]:
    _check_range(change.mark)
    if change.last is not None:
        _check_range(change.last)
    path = path_of(change.slot)
    # A comparison also matches an element of an array. An array is not a mark, and must not be overwritten.
    is_no_array = {f"{path}.0": _ABSENT}
    is_before: Any = int(change.mark) - 1 if change.rule != "below" else {"$lt": change.mark}
    if change.rule == "below" and change.has_digits:
        is_before |= {"$gte": "0", "$regex": rf"^[\s\S]{{{len(cast('str', change.mark))}}}(?![\s\S])"}
    # {"$not": {"$gte": mark}} would match a mark of any other type, which would then be overwritten.
    comparison = {path: is_before, **is_no_array}
    return comparison if change.rule == "next" else {"$or": [{path: _ABSENT}, comparison]}


def check_looks(entry: Entry) -> None:
    """Refuse a message of which a write would look for a mark that cannot be stored, where this write does not look for it."""
    for change in entry.also:
        _check_range(change.mark)


def _check_range(mark: Mark | int | None) -> None:
    if type(mark) is int and not _SMALLEST <= mark <= _LARGEST:
        raise InvalidMessage(f"Sequence {mark} does not fit the 64 bits of a BSON integer: use onewrite.sortable(n).")


def _kinds(entry: Entry) -> list[dict[str, Any]]:
    """Conditions on types for a pipeline, whose $set would overwrite a value of another type where an update operator fails."""
    sets, pushes = cast("dict[str, Any]", {}), cast("dict[str, list[Any]]", {})
    gain(entry, sets, pushes, {})
    paths = dict.fromkeys([*sets, *pushes])
    parents = dict.fromkeys([".".join(path.split(".")[:n]) for path in paths for n in range(1, path.count(".") + 1)])
    # $type "object" also matches an array that has a document in it.
    objects = [_is_kind(parent, {"$type": "object", "$not": {"$type": "array"}}) for parent in parents]
    return [*objects, *[_is_kind(path, {"$type": "array"}) for path in pushes]]


def _is_kind(path: str, kind: dict[str, Any]) -> dict[str, Any]:
    """Is nothing there, or something of this kind?"""
    return {"$or": [{path: _ABSENT}, {path: kind}]}


def initial(entry: Entry) -> dict[str, Any]:
    """The ledger of a new entity."""
    change = entry.own
    if not isinstance(change, Remember):
        _check_range(change.mark)
    sets, pushes = {**labels(entry.terms).sets}, cast("dict[str, list[Any]]", {})
    gain(Entry(entry.terms, change), sets, pushes, {})
    ledger: dict[str, Any] = {}
    for path, value in {**sets, **pushes}.items():
        *parents, name = path.split(".")
        inner = ledger
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return ledger


# --- the outbox, and a pipeline ----------------------------------------------------------------------------------------


def outbox_condition(label: str) -> dict[str, Any]:
    """The entity's outbox must be ours, or not there at all: what stands in its place would be appended to."""
    # A $or of the two would cost mongod several times as much.
    return {OUTBOX.label: {"$in": [None, _is_text(label)]}, "$nor": [{OUTBOX.label: None, OUTBOX.events: {"$exists": True}}]}


def _stage(parts: Parts, emits: Emission | None) -> dict[str, Any]:
    """Our stage behind the caller's pipeline. Without $literal, a pipeline reads text that begins with "$" as a field."""
    sets, pushes = dict(parts.sets), dict(parts.pushes)
    if emits is not None:
        sets[OUTBOX.label] = emits.shape.label
        pushes[OUTBOX.events] = [*emits.events]
    changes: dict[str, Any] = {path: {"$literal": value} for path, value in sets.items()}
    for path, marks in pushes.items():
        changes[path] = {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": marks}]}
    if emits is not None:
        changes[OUTBOX.due] = {"$ifNull": [f"${OUTBOX.due}", {"$literal": emits.due}]}
    return {"$set": changes | dict.fromkeys(parts.removes, "$$REMOVE")}
