"""What a guarded collection contributes to a transaction: its writes, each as an operation, and what a refused one means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

import bson
from pymongo.errors import DuplicateKeyError

from onewrite.copies import copied
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.event import Emission, Emit, copied_events
from onewrite.flow import Do, Flow, at
from onewrite.joint import numbered
from onewrite.label import TOMBSTONE
from onewrite.ledgers import NO_LEDGER
from onewrite.ledgers.entry import Entry
from onewrite.message import Message
from onewrite.missing import accepted, asked_of
from onewrite.mongodb.folds import FoldFlows
from onewrite.mongodb.verdict import LARGEST_DOCUMENT, is_of_entity, of_creation, unmatched
from onewrite.mongodb.writing.expression import (
    Update,
    check_document,
    check_filter,
    check_update,
    identity,
    is_conditional,
    names_id,
)
from onewrite.mongodb.writing.layout import Document, lookup, without_ledger
from onewrite.mongodb.writing.request import Guarded, guard_insert, guard_record, guard_update
from onewrite.outcome import Gone, Missing, Outcome, Rejected, Unmet

PreparedMethod = Literal["updating", "inserting", "recording"]

_EVERY_WRITE = {"comment", "bypass_document_validation"}
_ARGUMENTS: dict[PreparedMethod, set[str]] = {
    "updating": {"collation", "hint", "let", "array_filters", *_EVERY_WRITE},
    "inserting": _EVERY_WRITE,
    "recording": {"collation", "hint", "let", *_EVERY_WRITE},
}
_WHY = {
    "session": "transact begins a session of its own, so that it can begin again after a conflict.",
    # CVE-2025-10060: an upsert that is sent again within a transaction can end the server.
    "upsert": "servers have crashed on upserts in transactions. Create what may be missing by inserting(...), in a transaction that "
    "may find it there.",
    "finishes": "a transaction that is refused would leave the step open although its effect has happened. Finish it by a "
    "write of its own.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A guarded write that is not sent yet: give it to `transact`, together with others."""

    store: JointFlows = field(repr=False)
    method: PreparedMethod
    document: Document  # the filter, or what is to be inserted
    update: Update | None
    native: Mapping[str, Any]
    emit: Emit = None
    missing_ok: bool = False

    @property
    def entity(self) -> dict[str, Any]:
        return {"_id": self.document["_id"]} if self.method == "inserting" else identity(self.document)


class Operation(NamedTuple):
    """One write of a transaction. No `entry`: its store has no ledger. `guarded`: the write, if it is an update."""

    place: int
    flows: JointFlows
    message: Message
    entity: Document
    method: Literal["update_one", "insert_one"]
    args: tuple[Any, ...]
    native: Mapping[str, Any]
    entry: Entry | None
    guarded: Guarded | None = None
    emission: Emission | None = None
    missing_ok: bool = False
    query: Document | None = None  # the caller's own filter

    @property
    def target(self) -> Any:
        return self.flows.target

    @property
    def inserts(self) -> bool:
        return self.method == "insert_one"

    @property
    def counts(self) -> bool:
        """Do the messages behind this one wait until its mark has moved?"""
        return self.entry is not None and self.entry.own.counts

    @property
    def follows_gap(self) -> bool:
        return self.entry is not None and self.entry.follows_gap

    @property
    def explained(self) -> dict[str, Any]:
        names = ("document",) if self.inserts else ("filter", "update")
        given = dict(zip(names, self.args, strict=True))
        return {self.method: {"collection": self.target.name, **given, **self.native}}

    def sent(self, session: Any) -> Flow[bool]:
        """Send it. Has it been done?"""
        if self.inserts and self.follows_gap:  # such a message creates nothing
            return False
        options = {**self.native, **({} if self.inserts else {"upsert": False}), "session": session}
        reply = yield Do(getattr(self.target, self.method), self.args, options, sends=True)
        return self.inserts or reply.matched_count == 1

    def met(self, error: DuplicateKeyError) -> bool:
        """Has an insert met its own entity? A unique index of the caller's is the caller's business."""
        return self.inserts and is_of_entity(error, self.entity)

    def look(self) -> Flow[Document | None]:
        """The entity as a majority has it, outside of any transaction."""
        options = {name: self.native[name] for name in ("collation", "comment") if name in self.native}
        found: Document | None = yield Do(self.target.find_one, (self.entity,), options, sends=True)
        return found

    def holds(self) -> Flow[bool]:
        """Does the caller's own condition hold by now? Then its document was made between the write and the look."""
        if self.inserts or self.query is None:
            return False
        if not is_conditional(self.query, self.entity):
            return True
        options = {name: self.native[name] for name in ("collation", "comment", "let") if name in self.native}
        found = yield Do(self.target.find_one, (self.query,), {**options, "projection": {"_id": 1}}, sends=True)
        return found is not None

    def verdict(self, found: Document | None, *, first: bool) -> Outcome | None:
        """Why it was refused, given the entity. None: what stood in its way may be gone.

        That is so where an entity was deleted meanwhile, or where a gap was filled before the look.
        """
        outcome = self._verdict(found)
        if not isinstance(outcome, Unmet):
            return outcome
        is_gone = (self.inserts and found is None) or (self.follows_gap and first) or self.facing(found) != self.entry
        return None if is_gone else outcome

    def facing(self, found: Document | None) -> Entry | None:
        """Its entry in the form that fits what is stored; that of an insert has none."""
        if self.entry is None or self.inserts or found is None:
            return self.entry
        return self.entry.facing(lookup(found))

    def _verdict(self, found: Document | None) -> Outcome:
        if self.entry is None:
            if TOMBSTONE in (found or {}):
                return Gone(self.message, participant=self.place)
            if found is None:
                return Missing(self.message, self.missing_ok, participant=self.place)
            return Rejected(self.message, without_ledger(NO_LEDGER.terms, found), participant=self.place)
        now = self.flows.clock()
        outcome = unmatched(self.entry, self.message, found, self.emission, now=now, entity_key=self.entity)
        if self.inserts:
            outcome = of_creation(outcome, self.entity, self.args[0])
        return numbered(accepted(outcome, missing_ok=self.missing_ok, counts=self.counts), self.place)

    def failure(self, error: Exception) -> Flow[Exception]:
        """What the failure of the write means for its ledger, or the failure itself."""
        if self.entry is None:
            return error
        try:
            yield from at(self.target, self.flows.explained_failure(error, self.guarded, self.args[0]))
        except Exception as found:
            return found
        return error

    def check_collection(self) -> Flow[None]:
        if self.entry is not None:
            yield from at(self.target, self.flows.check_collection(self.entry, inserts=self.inserts))


class JointFlows(FoldFlows):
    """The flows of a guarded collection that may also take part in a transaction, with a ledger or without one."""

    @property
    def guards(self) -> bool:
        return self._ledger is not NO_LEDGER

    def prepared(
        self, method: PreparedMethod, document: Document, update: Update | None, native: Mapping[str, Any], emit: Emit
    ) -> Prepared:
        native, missing_ok = asked_of(native)
        for name in native:
            if name not in _ARGUMENTS[method]:
                why = _WHY.get(name, f"it takes {', '.join(sorted(_ARGUMENTS[method]))} and emit.")
                raise InvalidUpdate(f"{method} takes no {name}: {why}")
        if not isinstance(cast("object", document), Mapping) or not names_id(document):
            raise InvalidUpdate(
                "A write in a transaction names its document by _id, so that no two of them name the same one."
            )
        # It is sent later, and the caller may use all of these again before.
        return Prepared(self, method, copied(document), copied(update), copied(native), copied_events(emit), missing_ok)

    def alone(self, message: Message, prepared: Prepared) -> Flow[Outcome]:
        """The prepared write as one of its own. A refusal names its participant as in a transaction."""
        native = {**prepared.native, **({"missing_ok": True} if prepared.missing_ok else {})}
        if prepared.method == "inserting":
            outcome = yield from self.insert(message, prepared.document, native, prepared.emit)
        elif prepared.method == "recording":
            outcome = yield from self.record(message, prepared.document, {"upsert": False, **native}, prepared.emit)
        else:
            update = prepared.update or {}
            outcome = yield from self.update(message, prepared.document, update, native, "update_one", emit=prepared.emit)
        return numbered(outcome, 0)

    def operation(self, place: int, message: Message, prepared: Prepared, before: Entry | None = None) -> Operation:
        """The prepared write as a part of a transaction, its entry in the form of the one `before`."""
        query = None if prepared.method == "inserting" else prepared.document
        return self._operation(place, message, prepared, before)._replace(missing_ok=prepared.missing_ok, query=query)

    def _operation(self, place: int, message: Message, prepared: Prepared, before: Entry | None) -> Operation:
        if not self.guards:
            return self._plain(place, message, prepared)
        now = self.clock()
        entry, emission = self._ledger.entry(message, now), self._emitted(message, prepared.emit, now)
        entry = entry if before is None else entry.like(before)
        document, native = prepared.document, prepared.native
        if prepared.method == "inserting":
            inserted = guard_insert(entry, document, native, emission)
            entity = {"_id": document["_id"]}
            return Operation(place, self, message, entity, "insert_one", (inserted,), native, entry, None, emission)
        steps = self._steps(message)
        if prepared.method == "recording":
            guarded = guard_record(entry, self._fields, document, native, steps=steps, emission=emission)
        else:
            update = prepared.update or {}
            guarded = guard_update(entry, self._fields, document, update, native, steps=steps, emission=emission)
        args = (guarded.filter, guarded.update)
        entity = guarded.entity
        return Operation(place, self, message, entity, "update_one", args, guarded.native, entry, guarded, emission)

    def _plain(self, place: int, message: Message, prepared: Prepared) -> Operation:
        """The caller's own write, which what is left of a deleted entity refuses too."""
        document, native, terms = prepared.document, prepared.native, NO_LEDGER.terms
        if prepared.emit is not None:
            raise ConfigurationError("This store has no outbox to emit into: emit in a store that has one.")
        if prepared.method == "inserting":
            check_document(terms, document)
            entity = {"_id": document["_id"]}
            return Operation(place, self, message, entity, "insert_one", (dict(document),), native, None)
        if prepared.method == "recording":
            raise InvalidUpdate("A store without a ledger has nothing to record: write to it, or leave it out.")
        check_filter(terms, document)
        check_update(terms, (), prepared.update)
        query = {**document, TOMBSTONE: {"$exists": False}}
        args = (query, prepared.update)
        return Operation(place, self, message, identity(document), "update_one", args, native, None)

    def check_collection(self, entry: Entry, *, inserts: bool) -> Flow[None]:
        """Refuse a collection that may take two entities for one."""
        return self._check_collection(entry, inserts=inserts)

    def explained_failure(self, error: Exception, guarded: Guarded | None, document: Document) -> Flow[None]:
        """Raise what the failure of a write means for its ledger, or the failure itself."""
        if guarded is not None:
            yield from self._raise(error, guarded)
        if len(bson.encode(document)) > LARGEST_DOCUMENT:  # the server's code for it, 2, is that of any bad value
            raise self._too_large(document) from error
