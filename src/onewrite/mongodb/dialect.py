"""The requests of a guarded write on MongoDB: the caller's own call, with the conditions and changes of each part of the write. Pure.

`build_update` lists the parts. Each part has its condition, change, and values in one function. To add a part, write a function here
and one in the dialect of the other engine, and add a field to `Write`.

Each group of a ledger's slots is one field of the document: {"ow_l": "ow1 14d", "ow_r": {"r0": [...]}},
{"ow_l": "ow1 marks", "ow_@": {"order-7": 3}}. An entity has no token, because the server recognizes a request that its client retries. For a delete,
`deletes.py` passes the stage that makes the tombstone instead of the caller's update.
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
from onewrite.core.ledgers.seen_ids import UNNAMED, hash_message
from onewrite.core.write import Begins, Finishes, NoStepAtAll, Withdraws, Write
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.expression import Update, check_document, has_conditions, read_entity_key
from onewrite.mongodb.indexes import check_collation, has_text_marks
from onewrite.mongodb.layout import Document, locate_slot

_MIN_NUMBER, _MAX_NUMBER = -(2**63) + 1, 2**63 - 1  # BSON's integers have 64 bits
_ABSENT: Document = {"$exists": False}
_NONE_OPEN: Document = {"$in": [None, {}]}  # finishing the last step leaves an empty document


# --- the requests ------------------------------------------------------------------------------------------------------


class GuardedUpdate(NamedTuple):
    """The caller's update with onewrite's parts."""

    filter: dict[str, Any]
    update: dict[str, Any] | list[Any]
    upsert: bool  # as the caller requested
    native: Mapping[str, Any]
    query: Document  # the caller's filter
    change: Update  # the caller's update


def build_update(write: Write, query: Document, update: Update | None, native: Mapping[str, Any]) -> GuardedUpdate:
    """Build the caller's update with onewrite's parts.

    `update` must not touch onewrite's fields. Pass None if only the parts change anything.
    """
    entry, options, upsert = write.entry, native, False
    if update is None:
        update = {}
    if native:
        options = {**native}
        upsert = bool(options.pop("upsert", False))
    if options:
        if "projection" in options:
            raise InvalidUpdate("A guarded write doesn't take a projection. Omit it: the outcome contains the whole entity.")
        check_collation(options.get("collation"), write.key, text=has_text_marks(entry))
        if "CURRENT" in (options.get("let") or ()):
            raise InvalidUpdate(
                'let={"CURRENT": ...} would replace the document, which contains the ledger. Rename the variable.'
            )
        if upsert:
            check_not_in_transaction(options, "upsert=True", _NO_UPSERT)
    # A message that needs a predecessor can't create the entity. An upsert would also copy the predecessor's mark from the filter.
    upsert = upsert and not (type(entry.own) is Advance and entry.has_predecessor)  # only an Advance has a predecessor
    is_pipeline = type(update) is not dict and not isinstance(update, Mapping)
    draft = Draft(stages=is_pipeline)
    add_step(write, draft)
    add_ledger(write, draft)
    if write.emission is not None:
        add_outbox(write, write.emission, draft)
    merged_query = {**query, **draft.asks}
    if draft.extra_conditions:
        merged_query["$and"] = [*query.get("$and", ()), *draft.extra_conditions]
    merged_update: dict[str, Any] | list[Any]
    if is_pipeline:
        merged_update = [*cast("Sequence[Document]", update), draft.stage]
    else:
        merged_update = dict(cast("Document", update))
        # $push and $unset write only a few bytes to the oplog. $addToSet and $slice would write the whole array each time.
        pushes: dict[str, Any] = {}
        for path, marks in draft.pushes.items():
            pushes[path] = marks[0] if len(marks) == 1 else {"$each": marks}
        for operator, change in (("$set", draft.sets), ("$push", pushes), ("$unset", draft.removes), ("$min", draft.lowest)):
            if change:
                merged_update[operator] = {**merged_update[operator], **change} if operator in merged_update else change
    return GuardedUpdate(
        merged_query,
        merged_update,
        upsert=upsert,
        native=options,
        query=query,
        change=update,
    )


def build_insert(write: Write, document: Document, native: Mapping[str, Any]) -> dict[str, Any]:
    """Build the document to insert, with the fields that the parts add."""
    check_document(write.entry.terms, document)
    check_not_in_transaction(native, "insert_one", _NO_INSERT)
    check_earlier_marks(write.entry)  # otherwise, a later delivery that doesn't insert would be refused
    return {**document, **build_new_fields(write)}


def is_creatable_by_record(query: Document, fields: tuple[str, ...], native: Mapping[str, Any]) -> bool:
    """Whether a record can create its entity.

    A record with further conditions can't, because an upsert would copy them into the new document. Neither can a record that
    identifies its entity by other fields, because the server would choose the `_id`, or one in a transaction (see `_NO_UPSERT`).
    """
    entity = read_entity_key(query, fields)
    return "_id" in entity and not has_conditions(query, entity) and not is_in_transaction(native)


_NO_UPSERT = "The duplicate-key error of a redelivery would abort the transaction. Create the entity before, or omit upsert."
_NO_INSERT = "The duplicate-key error of a redelivery would abort the transaction. Create the entity before."


def is_in_transaction(native: Mapping[str, Any]) -> bool:
    session = native.get("session")
    return session is not None and bool(session.in_transaction)


def check_not_in_transaction(native: Mapping[str, Any], name: str, remedy: str) -> None:
    if is_in_transaction(native):
        raise InvalidUpdate(f"{name} in a transaction is refused. {remedy}")


# --- the draft of a request --------------------------------------------------------------------------------------------


class Draft:
    """The conditions and changes of a write, collected from its parts."""

    __slots__ = ("asks", "extra_conditions", "lowest", "pushes", "removes", "sets", "stages")

    def __init__(self, *, stages: bool = False) -> None:
        """Create an empty draft. Pass `stages=True` if the changes become a pipeline stage.

        A stage overwrites values of a wrong type, for which an update operator would fail.
        """
        self.stages = stages
        self.asks: dict[str, Any] = {}  # conditions by field
        self.extra_conditions: list[dict[str, Any]] = []  # further conditions, which can share a field
        self.sets: dict[str, Any] = {}
        self.pushes: dict[str, list[Any]] = {}
        self.removes: dict[str, str] = {}
        self.lowest: dict[str, Any] = {}  # values that must not replace an older, lower one

    @property
    def stage(self) -> dict[str, Any]:
        """The changes as a pipeline stage. Without $literal, a string that begins with "$" would be read as a field path."""
        changes: dict[str, Any] = {path: {"$literal": value} for path, value in self.sets.items()}
        for path, marks in self.pushes.items():
            changes[path] = {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": marks}]}
        # Unlike an update operator, a stage can set a field only if it's missing. So it needs no $min.
        for path, value in self.lowest.items():
            changes[path] = {"$ifNull": [f"${path}", {"$literal": value}]}
        return {"$set": changes | dict.fromkeys(self.removes, "$$REMOVE")}


# --- the parts ---------------------------------------------------------------------------------------------------------


def add_step(write: Write, draft: Draft) -> None:
    """Require that the entity isn't deleted and has no open step of the message, or that it has this worker's step. Change the step."""
    step = write.step
    if isinstance(step, Finishes | Withdraws):
        # The fence alone proves that this worker can record the effect.
        path = locate_step(step.ledger, write.message)
        draft.asks[f"{path}.fence"] = step.fence
        draft.removes[path] = ""
        return
    draft.asks[TOMBSTONE] = _ABSENT
    if isinstance(step, NoStepAtAll):
        draft.asks[STEPS] = dict(step.unsent) if step.unsent else _NONE_OPEN
        draft.removes |= {f"{STEPS}.{step_hash}": "" for step_hash, _ in step.unsent}
        return
    mark = write.entry.own.mark
    for ledger in write.entry.terms.attributes:
        if ledger == UNNAMED and type(mark) is bytes:  # the mark is the message's hash
            draft.asks[f"{STEPS}.{mark.hex()}"] = _ABSENT
        else:
            draft.asks[locate_step(ledger, write.message)] = _ABSENT
        for message in write.other_messages:
            draft.asks[locate_step(ledger, message)] = _ABSENT
    if isinstance(step, Begins):
        _check_number(write.message.sequence)  # the step stores the sequence even if the ledger ignores it
        draft.sets[locate_step(write.entry.terms.attribute, write.message)] = step.step.as_fields()


def locate_step(ledger: str, message: Message) -> str:
    """Return the path of the message's step under this ledger."""
    return f"{STEPS}.{hash_message(message, ledger).hex()}"


@lru_cache(maxsize=64)
def _build_labels(terms: Terms) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the labels' conditions and changes. The stored labels must match this store's configuration."""
    # Only the labels of moved ledgers contain a name. They need a pattern.
    asks = {
        locate_slot(label.slot): {
            "$in": [None, *[_match_text(text) if text.startswith(MOVED_LABEL) else text for text in label.accepts]]
        }
        for label in terms.labels
    }
    return asks, {locate_slot(label.slot): label.text for label in terms.labels}


def _match_text(text: str) -> Regex[str]:
    """Return a pattern that matches exactly this string.

    A label can contain a name. Under a collation, a different name could compare as equal, but a pattern ignores the collation.
    """
    # "$" would also match before a final newline.
    return Regex(rf"^{re.escape(text)}(?![\s\S])")


def add_ledger(write: Write, draft: Draft) -> None:
    """Require that the ledger accepts the message, and add its marks, unless the write only begins or withdraws a step."""
    entry, step, own = write.entry, write.step, write.entry.own
    label_asks, label_sets = _build_labels(entry.terms)
    draft.asks |= label_asks
    if not isinstance(step, Withdraws):
        draft.sets |= label_sets
    if isinstance(step, Finishes):  # the begin already checked the message, so only the order matters
        if isinstance(own, Advance):
            if step.overtaken:  # later messages have already moved the mark, which stays
                draft.extra_conditions.append({locate_slot(own.slot): {"$gte": own.mark}})
                return
            draft.extra_conditions.append(_build_before(own))
    elif type(own) is Remember and not entry.more and not entry.also and not own.aliases:  # nearly always
        lacks = {"$ne": own.mark}
        for path in _locate_sets(own.sets).live:
            draft.asks[path] = lacks
    else:
        marks_by_path: dict[str, tuple[SetMark, ...]] = {}  # a set must contain none of the marks
        for change in entry.changes:
            if type(change) is Remember:
                for path in _locate_sets(change.sets).live:
                    marks_by_path[path] = (*marks_by_path.get(path, ()), change.mark, *change.aliases)
            else:
                draft.extra_conditions.append(_build_before(change))
        for path, marks in marks_by_path.items():
            draft.asks[path] = {"$ne": marks[0]} if len(marks) == 1 else {"$nin": [*marks]}
    if not isinstance(step, Begins | Withdraws):
        _add_changes(entry, draft)


def _add_changes(entry: Entry, draft: Draft) -> None:
    """Add the message's marks to the ledger, and remove its dead sets."""
    paths: list[str] = []
    match entry.own:
        case Remember(sets, mark):
            set_paths = _locate_sets(sets)
            paths = [set_paths.present]
            draft.pushes[set_paths.present] = [change.mark for change in entry.written_changes] if entry.more else [mark]
            draft.removes |= set_paths.dead
            for earlier_change in entry.also:
                draft.removes |= {locate_slot(slot): "" for slot in earlier_change.dead}
        case Advance():
            for change in cast("tuple[Advance, ...]", entry.written_changes):
                path = locate_slot(change.slot)
                paths.append(path)
                draft.sets[path] = change.new_mark
    if draft.stages:  # a stage overwrites a value of any type, so its values must have the expected types
        parents = dict.fromkeys([".".join(path.split(".")[:n]) for path in paths for n in range(1, path.count(".") + 1)])
        # $type "object" also matches an array that contains a document.
        kinds: dict[str, Document] = {path: {"$type": "object", "$not": {"$type": "array"}} for path in parents}
        kinds |= {path: {"$type": "array"} for path in paths if path in draft.pushes}
        draft.extra_conditions += [{"$or": [{path: _ABSENT}, {path: kind}]} for path, kind in kinds.items()]


class _SetPaths(NamedTuple):
    """The paths of a ledger's sets: the live ones are read, the present one gains a mark, and the dead ones are removed."""

    live: tuple[str, ...]
    present: str
    dead: dict[str, str]


@lru_cache(maxsize=64)
def _locate_sets(sets: Sets) -> _SetPaths:
    dead_paths = {locate_slot(slot): "" for slot in sets.dead}  # as $unset takes them
    return _SetPaths(tuple(map(locate_slot, sets.live)), locate_slot(sets.present), dead_paths)


def _build_before(change: Advance) -> dict[str, Any]:
    """Return the condition that the stored mark is before the message's mark. Raise if a mark can't be stored."""
    _check_number(change.mark)
    _check_number(change.new_mark)
    path = locate_slot(change.slot)
    if change.rule == "below":
        # {"$not": {"$gte": mark}} would match a mark of any other type, which would then be overwritten.
        expected: Any = {"$lt": change.mark}
        if change.is_numeral:
            # Strings of digits compare like numbers only if they have the same length. "$" would also match before a final newline.
            expected |= {"$gte": "0", "$regex": rf"^[\s\S]{{{len(cast('str', change.mark))}}}(?![\s\S])"}
    else:
        expected = int(change.mark) - 1
    # A comparison also matches an element of an array. An array isn't a mark, so it must not be overwritten.
    comparison = {path: expected, f"{path}.0": _ABSENT}
    return comparison if change.rule == "next" else {"$or": [{path: _ABSENT}, comparison]}


def add_outbox(write: Write, emission: Emission, draft: Draft) -> None:
    """Require that the entity has this outbox or none, and append the events."""
    if not write.has_outbox_condition:
        return
    label = emission.label
    # Otherwise, the events would be appended to a different outbox. An $or of the two conditions would cost mongod several times as much.
    without_label = {OUTBOX.label: None, OUTBOX.events: {"$exists": True}}
    draft.extra_conditions.append({OUTBOX.label: {"$in": [None, _match_text(label)]}, "$nor": [without_label]})
    if emission.events:
        draft.sets[OUTBOX.label] = label
        draft.pushes[OUTBOX.events] = [*emission.events]
        # $min keeps the time of the oldest event. It also makes a postponed entity due at once, which costs one more attempt of the
        # refused event, but no update operator sets a field only if it's missing.
        draft.lowest[OUTBOX.due] = emission.due


# --- a new document ----------------------------------------------------------------------------------------------------


def build_new_fields(write: Write) -> dict[str, Any]:
    """Return the fields that the parts add to a new document."""
    entry = write.entry
    _check_number(entry.own.mark)
    draft = Draft()
    draft.sets |= _build_labels(entry.terms)[1]
    _add_changes(Entry(entry.terms, entry.own), draft)
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
    """Raise if a ledger in `also=` would need a mark of the message that can't be stored.

    An insert doesn't check these marks, but a later write of the message would.
    """
    for change in entry.also:
        _check_number(change.mark)


def _check_number(mark: SetMark | int | None) -> None:
    if type(mark) is int and not _MIN_NUMBER <= mark <= _MAX_NUMBER:
        raise InvalidMessage(f"Sequence {mark} doesn't fit into a 64-bit BSON integer. Pass onewrite.sortable(n).")
