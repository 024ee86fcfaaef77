"""Compiles a message's entry into the native call that the caller wrote. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from onewrite.errors import ConfigurationError, InvalidMessage, InvalidUpdate
from onewrite.event import Emission
from onewrite.label import STEPS
from onewrite.ledgers.entry import Advance, Entry, Number
from onewrite.mongodb.writing.emit import outbox_condition, stored_outbox
from onewrite.mongodb.writing.expression import Update, check_document, check_filter, check_update, identity, is_conditional
from onewrite.mongodb.writing.layout import Document, lookup
from onewrite.mongodb.writing.own_part import Finishes, finishing_filter, guarded_filter, initial, labels, operators, stage
from onewrite.mongodb.writing.projection import check_projection
from onewrite.step import Step

_LARGEST = 2**63 - 1  # BSON's integers have 64 bits


class Guarded(NamedTuple):
    """A write that is ready to be sent, and where to look if it did not match. `steps`: the paths of steps of its messages."""

    entry: Entry
    filter: dict[str, Any]
    update: dict[str, Any] | list[Any]
    upsert: bool
    entity: dict[str, Any]
    conditional: bool  # does the caller's filter say more than which entity?
    native: dict[str, Any]
    emission: Emission | None = None
    steps: tuple[str, ...] = ()
    deletes: bool = False
    query: Document = MappingProxyType({})  # the caller's own filter
    change: Update = ()  # and update

    def facing(self, document: Document | None) -> Guarded:
        """The same write in the form that fits what is stored."""
        entry = self.entry.facing(lookup(document or {}))
        if entry == self.entry:
            return self
        found, update = _merged(entry, self.query, self.change, self.steps, _events_of(self.emission))
        return self._replace(entry=entry, filter={**found, STEPS: _NO_STEP} if self.deletes else found, update=update)


def guard_update(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    update: Update,
    native: Mapping[str, Any],
    *,
    steps: Sequence[str],
    emission: Emission | None = None,
) -> Guarded:
    """`fields`: those that name an entity, beside `_id`. `steps`: the paths at which steps of its messages would be."""
    check_filter(entry.terms, query)
    check_update(entry.terms, fields, update)
    return _guard(entry, fields, query, update, native, steps=steps, emission=emission)


def guard_record(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    native: Mapping[str, Any],
    *,
    steps: Sequence[str],
    emission: Emission | None = None,
) -> Guarded:
    """Compile an update that changes nothing but the ledger."""
    check_filter(entry.terms, query)
    return _guard(entry, fields, query, {}, native, steps=steps, emission=emission)


def creates_by_record(query: Document, fields: tuple[str, ...], native: Mapping[str, Any]) -> bool:
    """May a record create its entity? Not one that asks something of the entity, which an upsert would copy into a new document."""
    entity = identity(query, fields)
    return "_id" in entity and not is_conditional(query, entity) and not in_transaction(native)


def guard_fold(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    update: Update | None,
    native: Mapping[str, Any],
    *,
    steps: Sequence[str],
    emission: Emission | None = None,
) -> Guarded:
    """Compile one write of several messages. `update` is None where it changes nothing but the ledger."""
    if update is None:
        options = {"upsert": creates_by_record(query, fields, native), **native}
        guarded = guard_record(entry, fields, query, options, steps=steps, emission=emission)
    else:
        guarded = guard_update(entry, fields, query, update, native, steps=steps, emission=emission)
    return guarded


def guard_delete(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    stage: Document,
    native: Mapping[str, Any],
    *,
    emission: Emission | None = None,
) -> Guarded:
    """Compile an update that leaves of a document what the `stage` of a pipeline leaves, if no message has a step open.

    A document that is not there is made, so that a message that comes late meets it; but not where the filter asks more of it.
    """
    check_filter(entry.terms, query)
    creates = not is_conditional(query, identity(query, fields)) and not in_transaction(native)
    guarded = _guard(entry, fields, query, [stage], {**native, "upsert": creates}, steps=(STEPS,), emission=emission)
    return guarded._replace(filter={**guarded.filter, STEPS: _NO_STEP}, deletes=True)


_NO_STEP: Document = {"$in": [None, {}]}  # the last step that is finished leaves an empty document


def guard_begin(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    native: Mapping[str, Any],
    *,
    paths: Sequence[str],
    step: Step,
    outbox: str | None = None,
) -> Guarded:
    """Compile the begin of a step, in a document that is there. `outbox`: the label that its outbox must have, if it has one.

    A finish that emits must not be the first to meet another outbox.
    """
    check_filter(entry.terms, query)
    if native.get("upsert"):
        raise InvalidUpdate("begin creates nothing: create the entity before, and leave out upsert.")
    _check_not_in_transaction(native, "begin", "Nobody else would see the step until the commit: begin before it.")
    guarded = _guard(entry, fields, query, {}, native, steps=paths, emission=None)
    begins = {"$set": {**labels(entry.terms), paths[0]: step.stored()}}
    if outbox is None:
        return guarded._replace(update=begins)
    asked = [*guarded.filter.get("$and", []), outbox_condition(outbox)]
    return guarded._replace(filter={**guarded.filter, "$and": asked}, update=begins)


def guard_finish(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    update: Update | None,
    native: Mapping[str, Any],
    *,
    finishes: Finishes,
    emission: Emission | None = None,
) -> Guarded:
    """Compile the write that finishes a step. `update` is None where it changes nothing but the ledger."""
    check_filter(entry.terms, query)
    if update is not None:
        check_update(entry.terms, fields, update)
    guarded = _guard(entry, fields, query, update or {}, native, steps=(finishes.step,), emission=emission)
    if guarded.upsert or guarded.conditional:
        raise InvalidUpdate(_CONDITIONAL)
    emitted, changed = _events_of(emission), update or {}
    piped = not isinstance(changed, Mapping)
    return guarded._replace(
        filter=finishing_filter(entry, guarded.entity, finishes, emitted, piped=piped),
        update=operators(entry, changed, emitted, finishes)
        if isinstance(changed, Mapping)
        else [*changed, stage(entry, emitted, finishes)],
    )


def _events_of(emission: Emission | None) -> Emission | None:
    """The emission, if it emits anything."""
    return emission if emission is not None and emission.events else None


_CONDITIONAL = (
    "A write that finishes a step takes no condition and creates nothing: if it were refused, the effect would never be recorded. Name "
    "the entity alone, and put the condition into the filter of begin."
)


def _guard(
    entry: Entry,
    fields: tuple[str, ...],
    query: Document,
    update: Update,
    native: Document,
    *,
    steps: Sequence[str],
    emission: Emission | None,
) -> Guarded:
    _check_sendable(entry, fields, native)
    entity = identity(query, fields)
    return Guarded(
        entry,
        *_merged(entry, query, update, steps, _events_of(emission)),
        # What follows a gap creates no entity; and the equality in its filter would be copied into the new document.
        upsert=bool(native.get("upsert", False)) and not entry.follows_gap,
        entity=entity,
        conditional=is_conditional(query, entity),
        native={name: value for name, value in native.items() if name != "upsert"},
        emission=emission,
        steps=tuple(steps),
        query=query,
        change=update,
    )


def _merged(
    entry: Entry, query: Document, update: Update, steps: Sequence[str], emitted: Emission | None
) -> tuple[dict[str, Any], dict[str, Any] | list[Any]]:
    """The caller's filter and update, each with our part of it."""
    if isinstance(update, Mapping):
        return guarded_filter(entry, query, steps, emitted, piped=False), operators(entry, update, emitted)
    return guarded_filter(entry, query, steps, emitted, piped=True), [*update, stage(entry, emitted)]


_PLAIN_OPTIONS = frozenset({"upsert"})  # what needs no look at it alone


def _check_sendable(entry: Entry, fields: tuple[str, ...], native: Document) -> None:
    _check_range(entry)
    if native.keys() <= _PLAIN_OPTIONS:
        return
    if native.get("projection") is not None:
        check_projection(entry.terms, native["projection"])
    _check_collation(entry, fields, native.get("collation"))
    if native.get("upsert"):
        _check_not_in_transaction(native, "upsert=True", _NO_UPSERT)


def guard_insert(
    entry: Entry, document: Document, native: Mapping[str, Any], emission: Emission | None = None
) -> dict[str, Any]:
    check_document(entry.terms, document)
    _check_range(entry)
    _check_not_in_transaction(native, "insert_one", _NO_INSERT)
    emitted = stored_outbox(emission) if emission is not None and emission.events else {}
    return {**document, **initial(entry), **emitted}


_NO_UPSERT = (
    "Create the entity before it, or leave out upsert: the duplicate-key error of a redelivery would abort the transaction."
)


_NO_INSERT = "Create the entity before it: the duplicate-key error of a redelivery would abort the transaction."


def keeps_text(entry: Entry) -> bool:
    """Is there text among the marks, of which a collation may take two for one?"""
    return any(isinstance(change.mark, str) for change in entry.changes)


def in_transaction(native: Mapping[str, Any]) -> bool:
    session = native.get("session")
    return session is not None and bool(session.in_transaction)


# --- what cannot be sent -----------------------------------------------------------------------------------------------


def _check_range(entry: Entry) -> None:
    for change in entry.changes:
        for mark in (change.mark, change.reaches) if isinstance(change, Advance) else (change.mark,):
            if isinstance(mark, int) and not -_LARGEST <= mark <= _LARGEST:
                remedy = (
                    "SeenNumbers keeps nothing else: use SeenIds"
                    if isinstance(change, Number)
                    else "use onewrite.sortable(n)"
                )
                raise InvalidMessage(f"Sequence {mark} does not fit the 64 bits of a BSON integer: {remedy}.")


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
        raise InvalidUpdate(f"{what} in a transaction is refused. {remedy}")


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
            f"key={fields!r} names one entity only under a unique index on these fields, not a partial one: create it, or name "
            "the entity by _id."
        )


def _keeps_unique(index: Document, fields: tuple[str, ...]) -> bool:
    keys = {name for name, _ in index["key"]}
    return bool(index.get("unique")) and keys <= set(fields) and "partialFilterExpression" not in index
