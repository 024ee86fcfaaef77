"""The requests of a guarded write on MongoDB: the caller's own call, with the conditions and changes of `core/parts.py`. Pure.

Each group of a ledger's slots is one field of the document: {"ow_l": "ow1 14d", "ow_r": {"r0": [...]}},
{"ow_l": "ow1 marks", "ow_@": {"order-7": 3}}. An entity has no token, because the server recognizes a request that its client retries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from bson.regex import Regex

from onewrite.core import parts
from onewrite.core.forms import Form, cut, fill, list_values, make_sample, read_form
from onewrite.core.label import EFFECTS, MOVED_LABEL, OUTBOX, Label
from onewrite.core.ledgers.entry import Advance, Entry
from onewrite.core.parts import Change, Condition, list_changes, list_conditions
from onewrite.core.write import Burial, Write
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.mongodb.expression import Update, check_document, has_conditions, read_entity_key
from onewrite.mongodb.layout import Document, locate_slot
from onewrite.mongodb.settings import check_collation, has_text_marks

_MIN_NUMBER, _MAX_NUMBER = -(2**63) + 1, 2**63 - 1  # BSON's integers have 64 bits
_ABSENT: Document = {"$exists": False}
_NONE_OPEN: Document = {"$in": [None, {}]}  # finishing the last effect leaves an empty document


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
            raise InvalidUpdate(
                "A guarded write doesn't take a projection. Omit it, because the outcome contains the whole entity."
            )
        check_collation(options.get("collation"), write.key, text=has_text_marks(entry))
        if "CURRENT" in (options.get("let") or ()):
            raise InvalidUpdate(
                'let={"CURRENT": ...} would replace the document, which contains the ledger. Rename the variable.'
            )
        if upsert:
            check_not_in_transaction(options, "upsert=True", _NO_UPSERT)
    # A message that needs a predecessor can't create the entity. An upsert would also copy the predecessor's mark from the filter.
    upsert = upsert and not (type(entry.own) is Advance and entry.has_predecessor)  # only an Advance has a predecessor
    merged_update: dict[str, Any] | list[Any]
    if type(update) is dict or isinstance(update, Mapping):
        part = spell_by_form(write)
        merged_update = dict(cast("Document", update))
        for operator, change in part.change.items():
            merged_update[operator] = {**merged_update.get(operator, {}), **change}
    else:
        part = spell(write, as_stage=True)
        merged_update = [*update, part.change]
    merged_query = {**query, **part.conditions}
    if part.more_conditions:
        merged_query["$and"] = [*query.get("$and", ()), *part.more_conditions]
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
    check_marks(write.entry)  # otherwise, a later delivery that doesn't insert would be refused
    return {**document, **build_new_fields(write)}


def is_creatable_by_record(query: Document, fields: tuple[str, ...], native: Mapping[str, Any]) -> bool:
    """Whether a `remember` can create its entity.

    A `remember` with further conditions can't, because an upsert would copy them into the new document. Neither can a `remember` that
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


# --- the dialect -------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Onewrite's part of a request: conditions by field, further ones, which can share a field, and the changes: operators, or a stage."""

    conditions: dict[str, Any]
    more_conditions: list[dict[str, Any]]
    change: Document


def spell(write: Write, *, as_stage: bool = False) -> Part:
    """Return onewrite's part of the write's request. Pass `as_stage=True` for a pipeline."""
    draft = Draft()
    draft.require(list_conditions(write))
    draft.change(list_changes(write))
    if as_stage:
        draft.require_types()
    return Part(draft.asks, draft.extra_conditions, draft.stage if as_stage else draft.operators)


class Draft:
    """The filter and the changes to which each condition and change of a write contributes."""

    __slots__ = ("asks", "extra_conditions", "lowest", "pushes", "removes", "sets")

    def __init__(self) -> None:
        self.asks: dict[str, Any] = {}  # conditions by field
        self.extra_conditions: list[dict[str, Any]] = []  # further conditions, which can share a field
        self.sets: dict[str, Any] = {}
        self.pushes: dict[str, list[Any]] = {}
        self.removes: dict[str, str] = {}
        self.lowest: dict[str, Any] = {}  # values that must not replace an older, lower one

    def require(self, conditions: Iterable[Condition]) -> None:
        """Spell the conditions."""
        asks = self.asks
        for condition in conditions:
            match condition:
                case parts.Absent(name):
                    asks[name] = _ABSENT
                case parts.LacksEffects(effect_hashes):
                    for effect_hash in effect_hashes:
                        asks[locate_effect(effect_hash)] = _ABSENT
                case Label(slot, _, accepted_texts):
                    asks[locate_slot(slot)] = _match_label(accepted_texts)
                case parts.Lacks(slots, marks):
                    lacks = {"$ne": marks[0]} if len(marks) == 1 else {"$nin": [*marks]}
                    for path in map(locate_slot, slots):
                        asks[path] = {"$nin": [*_list_lacked_marks(asks[path]), *marks]} if path in asks else lacks
                case Advance():
                    self.extra_conditions.append(_build_before(condition))
                case parts.IsPast(slot, mark):
                    self.extra_conditions.append({locate_slot(slot): {"$gte": _check_number(mark)}})
                case parts.OutboxFits(label):
                    # An $or of the two conditions would cost mongod several times as much.
                    without_label = {OUTBOX.label: None, OUTBOX.events: {"$exists": True}}
                    self.extra_conditions.append(
                        {OUTBOX.label: {"$in": [None, _match_text(label)]}, "$nor": [without_label]}
                    )
                case parts.HasFence(effect_hash, fence):
                    asks[f"{locate_effect(effect_hash)}.fence"] = fence
                case parts.OnlyEffects(effects):
                    asks[EFFECTS] = dict(effects) if effects else _NONE_OPEN

    def change(self, changes: Iterable[Change]) -> None:
        """Spell the changes."""
        for change in changes:
            match change:
                case parts.Set(slot, value):
                    self.sets[locate_slot(slot)] = _check_number(value)
                case parts.AddMarks(slot, marks):
                    self.pushes[locate_slot(slot)] = [*marks]
                case parts.Remove(slots):
                    self.removes |= {locate_slot(slot): "" for slot in slots}
                case parts.Append(name, values):
                    self.pushes[name] = [*values]
                case parts.SetOnce(OUTBOX.shard):
                    pass  # the index of a collection needs no shards
                case parts.SetOnce(name, value):
                    # $min keeps the time of the oldest event. It also makes a postponed entity due at once, which costs one more attempt
                    # of the refused event, but no update operator sets a field only if it's missing.
                    self.lowest[name] = value
                case parts.OpenEffect(effect_hash, fields):
                    _check_number(fields.get("sequence"))  # the effect stores the sequence even if the ledger ignores it
                    self.sets[locate_effect(effect_hash)] = fields
                case parts.EndEffects(effect_hashes):
                    self.removes |= {locate_effect(effect_hash): "" for effect_hash in effect_hashes}
                case Burial():
                    pass  # deletes.py passes the stage that makes the tombstone as the caller's update

    def require_types(self) -> None:
        """Require that the ledger's fields have the expected types, because a stage overwrites values of any type."""
        marks = [path for path in self.pushes if path != OUTBOX.events]
        parents = dict.fromkeys(
            [".".join(path.split(".")[:n]) for path in (*marks, *self.sets) for n in range(1, path.count(".") + 1)]
        )
        # $type "object" also matches an array that contains a document.
        kinds: dict[str, Document] = {path: {"$type": "object", "$not": {"$type": "array"}} for path in parents}
        kinds |= {path: {"$type": "array"} for path in marks}
        self.extra_conditions += [{"$or": [{path: _ABSENT}, {path: kind}]} for path, kind in kinds.items()]

    @property
    def operators(self) -> dict[str, Document]:
        """The changes as update operators."""
        # $push and $unset write only a few bytes to the oplog. $addToSet and $slice would write the whole array each time.
        pushes = {path: values[0] if len(values) == 1 else {"$each": values} for path, values in self.pushes.items()}
        changes = (("$set", self.sets), ("$push", pushes), ("$unset", self.removes), ("$min", self.lowest))
        return {operator: change for operator, change in changes if change}

    @property
    def stage(self) -> dict[str, Any]:
        """The changes as a pipeline stage. Without $literal, a string that begins with "$" would be read as a field path."""
        changes: dict[str, Any] = {path: {"$literal": value} for path, value in self.sets.items()}
        for path, values in self.pushes.items():
            changes[path] = {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": values}]}
        # Unlike an update operator, a stage can set a field only if it's missing. So it needs no $min.
        for path, value in self.lowest.items():
            changes[path] = {"$ifNull": [f"${path}", {"$literal": value}]}
        return {"$set": changes | dict.fromkeys(self.removes, "$$REMOVE")}


def locate_effect(effect_hash: str) -> str:
    """Return the path of the open effect with that hash."""
    return f"{EFFECTS}.{effect_hash}"


@lru_cache(maxsize=64)
def _match_label(accepted_texts: tuple[str, ...]) -> Document:
    # Only the labels of moved ledgers contain a name. They need a pattern.
    texts = [_match_text(text) if text.startswith(MOVED_LABEL) else text for text in accepted_texts]
    return {"$in": [None, *texts]}


def _list_lacked_marks(condition: Document) -> list[str]:
    """Return the marks that a condition on a set already excludes."""
    return cast("list[str]", condition["$nin"] if "$nin" in condition else [condition["$ne"]])


def _match_text(text: str) -> Regex[str]:
    """Return a pattern that matches exactly this string.

    A label can contain a name. Under a collation, a different name could compare as equal, but a pattern ignores the collation.
    """
    # "$" would also match before a final newline.
    return Regex(rf"^{re.escape(text)}(?![\s\S])")


def _build_before(change: Advance) -> dict[str, Any]:
    """Return the condition that the stored mark is before the message's mark. Raise if a mark can't be stored."""
    _check_number(change.mark)
    path = locate_slot(change.slot)
    if change.rule == "below":
        # {"$not": {"$gte": mark}} would match a mark of any other type, which would then be overwritten.
        expected: Any = {"$lt": change.mark}
        if change.floor is not None:  # a mark with a different spelling isn't comparable
            expected |= {"$gte": change.floor}
        if change.is_numeral:
            # Strings of digits compare like numbers only if they have the same length. "$" would also match before a final newline.
            expected |= {"$regex": rf"^[\s\S]{{{len(cast('str', change.mark))}}}(?![\s\S])"}
    else:
        expected = int(change.mark) - 1
    # A comparison also matches an element of an array. An array isn't a mark, and must not be overwritten.
    comparison = {path: expected, f"{path}.0": _ABSENT}
    return comparison if change.rule == "next" else {"$or": [{path: _ABSENT}, comparison]}


# --- a new document ----------------------------------------------------------------------------------------------------


def build_new_fields(write: Write) -> dict[str, Any]:
    """Return the fields that the changes add to a new document."""
    draft = Draft()
    draft.change(list_changes(write))
    fields: dict[str, Any] = {}
    for path, value in {**draft.sets, **draft.pushes, **draft.lowest}.items():
        *parents, name = path.split(".")
        inner = fields
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return fields


def check_marks(entry: Entry) -> None:
    """Raise if a write of the message would store or check a mark that can't be stored."""
    for change in entry.checked:
        _check_number(change.mark)


def _check_number(value: Any) -> Any:
    """Return the value. Raise if it's a number that MongoDB can't store."""
    if type(value) is int and not _MIN_NUMBER <= value <= _MAX_NUMBER:
        raise InvalidMessage(f"Sequence {value} doesn't fit into a 64-bit BSON integer. Pass onewrite.sortable(n).")
    return value


# --- the cache ---------------------------------------------------------------------------------------------------------


def spell_by_form(write: Write) -> Part:
    """Return the same as `spell`, in a fraction of the time if the write is usual."""
    form = read_form(write)
    if form is None:
        return spell(write)
    check_marks(write.entry)
    values = _list_values(write)
    return Part(*[fill(template, values) for template in _make_template(form)])


@lru_cache(maxsize=256)
def _make_template(form: Form) -> list[Any]:
    """Return templates of the members of each `Part` of this form."""
    sample = make_sample(form)
    values = _list_values(sample)
    return [cut(member, values) for member in spell(sample)]


def _list_values(write: Write) -> list[Any]:
    """Return the values of a usual write, also in the forms that only MongoDB has."""
    own, values = write.entry.checked[0], list_values(write)
    values.append(locate_effect(values[0]))
    if type(own) is Advance:
        path = locate_slot(own.slot)
        values += (path, f"{path}.0")
    return values
