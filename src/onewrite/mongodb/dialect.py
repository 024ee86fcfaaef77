"""The requests of a guarded write on MongoDB: the caller's own call, with what each part of the write asks of the document and changes in it. Pure.

`_merge` has the list of the parts, and each has its condition, its change and its values in one place. A new part is one function here, one in the
dialect of the other engine, and a field of `Write`.

Each group of a ledger's slots is one field of the document: {"ow_l": "ow1 14d", "ow_r": {"r0": [...]}},
{"ow_l": "ow1 marks", "ow_@": {"order-7": 3}}. An entity has no token, because the server recognizes a request that its client sends again. The tombstone is a
stage of `deletes.py`, in the place of the caller's update.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from bson.regex import Regex

from onewrite.core.event import Emission
from onewrite.core.label import MOVED_LABEL, OUTBOX, STEPS, TOMBSTONE
from onewrite.core.ledgers.entry import Advance, Entry, Remember, SetMark, Sets, Terms
from onewrite.core.ledgers.seen_ids import hash_message
from onewrite.core.write import Begins, Finishes, NoStep, NoStepAtAll, Withdraws, Write
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.expression import Update, asks_more, check_document, check_projection, computes, read_entity_key
from onewrite.mongodb.indexes import check_collation, keeps_text
from onewrite.mongodb.layout import Document, locate_slot

_MIN_NUMBER, _MAX_NUMBER = -(2**63) + 1, 2**63 - 1  # BSON's integers have 64 bits
_ABSENT: Document = {"$exists": False}
_NONE_OPEN: Document = {"$in": [None, {}]}  # the last step that is finished leaves an empty document


# --- the requests ------------------------------------------------------------------------------------------------------


class GuardedUpdate(NamedTuple):
    """The caller's update with our parts in it."""

    write: Write
    filter: dict[str, Any]
    update: dict[str, Any] | list[Any]
    upsert: bool  # as the caller asks for it
    upserts_at_once: bool  # not if the projection may fail, because its failure must not look like that of a creation
    native: Mapping[str, Any]
    query: Document  # the caller's own filter
    change: Update  # and update

    @property
    def conditional(self) -> bool:
        """Whether the caller's filter has more conditions than the entity's key."""
        return asks_more(self.query, self.write.key)

    def with_write(self, write: Write) -> GuardedUpdate:
        """Return the same call with these parts."""
        merged_query, merged_update = _merge(write, self.query, self.change)
        return self._replace(write=write, filter=merged_query, update=merged_update)


def build_update(write: Write, query: Document, update: Update | None, native: Mapping[str, Any]) -> GuardedUpdate:
    """Build the caller's update with our parts in it. `update`: one that touches nothing of ours; None where nothing else changes."""
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
    upsert = upsert and not (type(entry.own) is Advance and entry.has_predecessor)  # no other change has one
    at_once = upsert and ("projection" not in options or not computes(options["projection"]))
    merged_query, merged_update = _merge(write, query, update)
    return GuardedUpdate(write, merged_query, merged_update, upsert, at_once, options, query, update)


def build_insert(write: Write, document: Document, native: Mapping[str, Any]) -> dict[str, Any]:
    """Build the document to insert, with what the parts add to a new one."""
    check_document(write.entry.terms, document)
    check_not_in_transaction(native, "insert_one", _NO_INSERT)
    check_earlier_marks(write.entry)  # a later delivery that does not insert would be refused
    return {**document, **new_fields(write)}


def may_create_by_record(query: Document, fields: tuple[str, ...], native: Mapping[str, Any]) -> bool:
    """Whether a record may create its entity. Not one that asks something of the entity, which an upsert would copy into a new document."""
    entity = read_entity_key(query, fields)
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


def _merge(write: Write, query: Document, update: Update) -> tuple[dict[str, Any], dict[str, Any] | list[Any]]:
    """Merge our parts into the caller's filter and update."""
    is_pipeline = type(update) is not dict and not isinstance(update, Mapping)
    draft = Draft(stages=is_pipeline)
    add_step(write, draft)
    add_ledger(write, draft)
    if write.emission is not None:
        add_outbox(write, write.emission, draft)
    merged_query = {**query, **draft.asks}
    if draft.extra_conditions:
        merged_query["$and"] = [*query.get("$and", ()), *draft.extra_conditions]
    if is_pipeline:
        return merged_query, [*cast("Sequence[Document]", update), draft.stage]
    merged_update = dict(cast("Document", update))
    # $push and $unset write a few bytes to the oplog. $addToSet, and $slice, would write the whole array each time.
    pushes: dict[str, Any] = {}
    for path, marks in draft.pushes.items():
        pushes[path] = marks[0] if len(marks) == 1 else {"$each": marks}
    for operator, change in (("$set", draft.sets), ("$push", pushes), ("$unset", draft.removes), ("$min", draft.lowest)):
        if change:
            merged_update[operator] = {**merged_update[operator], **change} if operator in merged_update else change
    return merged_query, merged_update


# --- what the parts put together ---------------------------------------------------------------------------------------


class Draft:
    """The conditions and changes of a write, which its parts collect."""

    __slots__ = ("asks", "extra_conditions", "lowest", "pushes", "removes", "sets", "stages")

    def __init__(self, *, stages: bool = False) -> None:
        """`stages`: the changes become a stage of a pipeline, which overwrites a value of a type at which an operator fails."""
        self.stages = stages
        self.asks: dict[str, Any] = {}  # conditions by their fields
        self.extra_conditions: list[dict[str, Any]] = []  # conditions of which several can have one field
        self.sets: dict[str, Any] = {}
        self.pushes: dict[str, list[Any]] = {}
        self.removes: dict[str, str] = {}
        self.lowest: dict[str, Any] = {}  # values that are stored if they are lower than the present ones

    @property
    def stage(self) -> dict[str, Any]:
        """Return the changes as a stage of a pipeline. Without $literal, it would read text that begins with "$" as a field."""
        changes: dict[str, Any] = {path: {"$literal": value} for path, value in self.sets.items()}
        for path, marks in self.pushes.items():
            changes[path] = {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": marks}]}
        for path, value in self.lowest.items():
            changes[path] = {"$ifNull": [f"${path}", {"$literal": value}]}
        return {"$set": changes | dict.fromkeys(self.removes, "$$REMOVE")}


# --- the parts ---------------------------------------------------------------------------------------------------------


def add_step(write: Write, draft: Draft) -> None:
    step = write.step
    if isinstance(step, NoStep | NoStepAtAll | Begins):
        draft.asks[TOMBSTONE] = _ABSENT
        if isinstance(step, NoStepAtAll):
            draft.asks[STEPS] = dict(step.unsent) if step.unsent else _NONE_OPEN
            draft.removes |= {f"{STEPS}.{step_hash}": "" for step_hash, _ in step.unsent}
            return
        for message in (write.message, *write.other_messages):
            for ledger in write.entry.terms.attributes:
                draft.asks[locate_step(ledger, message)] = _ABSENT
        if isinstance(step, Begins):
            _check_number(write.message.sequence)  # which the step keeps, also where the ledger does not look at it
            draft.sets[locate_step(write.entry.terms.attribute, write.message)] = step.step.as_fields()
        return
    # The fence alone says that the effect is this worker's to record.
    path = locate_step(step.ledger, write.message)
    draft.asks[f"{path}.fence"] = step.fence
    draft.removes[path] = ""


def locate_step(ledger: str, message: Message) -> str:
    """Return the path of the message's step under this ledger."""
    return f"{STEPS}.{hash_message(message, ledger).hex()}"


@lru_cache(maxsize=64)
def _labels(terms: Terms) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the labels ask and set: the ledger must be kept as this store keeps it."""
    asks = {
        locate_slot(label.slot): {
            "$in": [None, *[_equal_text(text) if text.startswith(MOVED_LABEL) else text for text in label.accepts]]
        }
        for label in terms.labels
    }
    return asks, {locate_slot(label.slot): label.text for label in terms.labels}


def _equal_text(text: str) -> Regex[str]:
    """Match this text alone. Where there is a name in a label, a collation could take another name for it, and has no say in a pattern."""
    return Regex(rf"^{re.escape(text)}(?![\s\S])")


def add_ledger(write: Write, draft: Draft) -> None:
    entry, step, own = write.entry, write.step, write.entry.own
    label_asks, label_sets = _labels(entry.terms)
    draft.asks |= label_asks
    if not isinstance(step, Withdraws):
        draft.sets |= label_sets
    if isinstance(step, Finishes):  # the step let the message in: only the order is asked
        if isinstance(own, Advance):
            draft.extra_conditions.append({locate_slot(own.slot): {"$gte": own.mark}} if step.overtaken else _before(own))
            if step.overtaken:  # a mark that others have moved past the message stays where it is
                return
    elif type(own) is Remember and not entry.more and not entry.also and not own.aliases:  # nearly always
        lacks = {"$ne": own.mark}
        for path in _places(own.sets).live:
            draft.asks[path] = lacks
    else:
        marks_by_path: dict[str, tuple[SetMark, ...]] = {}  # a set must lack the marks of all
        for change in entry.changes:
            if type(change) is Remember:
                for path in _places(change.sets).live:
                    marks_by_path[path] = (*marks_by_path.get(path, ()), change.mark, *change.aliases)
            else:
                draft.extra_conditions.append(_before(change))
        for path, marks in marks_by_path.items():
            draft.asks[path] = {"$ne": marks[0]} if len(marks) == 1 else {"$nin": [*marks]}
    if not isinstance(step, Begins | Withdraws):
        _gain(entry, draft)


def _gain(entry: Entry, draft: Draft) -> None:
    """Add the marks that the ledger gains, and remove its dead sets."""
    paths: list[str] = []
    match entry.own:
        case Remember(sets, mark):
            if not sets.live:
                return
            places = _places(sets)
            paths = [places.present]
            draft.pushes[places.present] = [change.mark for change in entry.written_changes] if entry.more else [mark]
            draft.removes |= places.dead
            for earlier_change in entry.also:
                draft.removes |= {locate_slot(slot): "" for slot in earlier_change.dead}
        case Advance():
            for change in cast("tuple[Advance, ...]", entry.written_changes):
                paths.append(locate_slot(change.slot))
                draft.sets[paths[-1]] = change.reaches
    if draft.stages:
        draft.extra_conditions += _kinds(paths, draft)


def _kinds(paths: list[str], draft: Draft) -> list[dict[str, Any]]:
    """Return conditions on the types of the values that a stage would overwrite."""
    parents = dict.fromkeys([".".join(path.split(".")[:n]) for path in paths for n in range(1, path.count(".") + 1)])
    # $type "object" also matches an array that has a document in it.
    kinds: dict[str, Document] = {path: {"$type": "object", "$not": {"$type": "array"}} for path in parents}
    kinds |= {path: {"$type": "array"} for path in paths if path in draft.pushes}
    return [{"$or": [{path: _ABSENT}, {path: kind}]} for path, kind in kinds.items()]


class _Places(NamedTuple):
    """The paths of a ledger's sets: the live ones are read, the present one gains a mark, and the dead ones are removed."""

    live: tuple[str, ...]
    present: str
    dead: dict[str, str]


@lru_cache(maxsize=64)
def _places(sets: Sets) -> _Places:
    return _Places(
        tuple(map(locate_slot, sets.live)), locate_slot(sets.present), {locate_slot(slot): "" for slot in sets.dead}
    )


def _before(change: Advance) -> dict[str, Any]:
    """Return the condition that the stored mark is before the message's."""
    _check_number(change.mark)
    _check_number(change.reaches)
    path = locate_slot(change.slot)
    # A comparison also matches an element of an array. An array is not a mark, and must not be overwritten.
    is_no_array = {f"{path}.0": _ABSENT}
    is_before: Any = int(change.mark) - 1 if change.rule != "below" else {"$lt": change.mark}
    if change.rule == "below" and change.has_digits:
        is_before |= {"$gte": "0", "$regex": rf"^[\s\S]{{{len(cast('str', change.mark))}}}(?![\s\S])"}
    # {"$not": {"$gte": mark}} would match a mark of any other type, which would then be overwritten.
    comparison = {path: is_before, **is_no_array}
    return comparison if change.rule == "next" else {"$or": [{path: _ABSENT}, comparison]}


def add_outbox(write: Write, emission: Emission, draft: Draft) -> None:
    if not write.asks_outbox:
        return
    label = emission.label
    # The entity must have this outbox, or none: otherwise the events would join a list of someone else's. A $or of the two conditions
    # costs mongod several times as much.
    is_free = {OUTBOX.label: None, OUTBOX.events: {"$exists": True}}
    draft.extra_conditions.append({OUTBOX.label: {"$in": [None, _equal_text(label)]}, "$nor": [is_free]})
    if emission.events:
        draft.sets[OUTBOX.label] = label
        draft.pushes[OUTBOX.events] = [*emission.events]
        # This keeps the time of the oldest event. It also brings a postponed entity forward, which costs one more attempt of the event that
        # was refused: an update has no operator that sets a field only where it is missing.
        draft.lowest[OUTBOX.due] = emission.due


# --- a new document ----------------------------------------------------------------------------------------------------


def new_fields(write: Write) -> dict[str, Any]:
    """Return what the parts add to a new document."""
    entry = write.entry
    _check_number(entry.own.mark)
    draft = Draft()
    draft.sets |= _labels(entry.terms)[1]
    _gain(Entry(entry.terms, entry.own), draft)
    if write.emission is not None:
        add_outbox(write, write.emission, draft)
    fields: dict[str, Any] = {}
    for path, value in {**draft.sets, **draft.pushes, **draft.lowest}.items():
        *parents, name = path.split(".")
        inner = fields
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return fields


def check_earlier_marks(entry: Entry) -> None:
    """Refuse a message of which a write would look for a mark that cannot be stored, where this write does not look for it."""
    for change in entry.also:
        _check_number(change.mark)


def _check_number(mark: SetMark | int | None) -> None:
    if type(mark) is int and not _MIN_NUMBER <= mark <= _MAX_NUMBER:
        raise InvalidMessage(f"Sequence {mark} does not fit the 64 bits of a BSON integer: use onewrite.sortable(n).")
