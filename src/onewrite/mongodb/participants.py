"""What a guarded collection contributes to a transaction: its writes, each as an operation, and what a refused one means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, cast

from pymongo.errors import DuplicateKeyError

from onewrite.core.event import Emit, copied_events, copy_of
from onewrite.core.flow import Do, Flow, at, settle_missing, split_missing_ok
from onewrite.core.inbox import Inbox
from onewrite.core.label import TOKEN, TOMBSTONE
from onewrite.core.ledgers import NO_LEDGER
from onewrite.core.pipeline import Attempt, pass_over
from onewrite.core.transaction import check_arguments, with_participant
from onewrite.core.write import Write, judge, of_creation, token_of
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.dialect import GuardedUpdate, build_insert, build_update
from onewrite.mongodb.expression import (
    Update,
    asks_more,
    check_document,
    check_update,
    identity,
    names_id,
)
from onewrite.mongodb.flows import CollectionAttempt, Flows, InsertAttempt, is_of_entity
from onewrite.mongodb.indexes import check_collation
from onewrite.mongodb.layout import UUIDS, Document, lookup, with_codec, without_ledger
from onewrite.outcome import Applied, Duplicate, Entity, Gone, Missing, Outcome, Rejected, Unmet

PreparedMethod = Literal["updating", "inserting", "recording"]

_EVERY_WRITE = {"comment", "bypass_document_validation"}
_ARGUMENTS: dict[PreparedMethod, set[str]] = {
    "updating": {"collation", "hint", "let", "array_filters", *_EVERY_WRITE},
    "inserting": _EVERY_WRITE,
    "recording": {"collation", "hint", "let", *_EVERY_WRITE},
}
_REASONS = {
    "session": "transact begins a session of its own, so it can begin again after a conflict.",
    # CVE-2025-10060: an upsert that is sent again within a transaction can end the server.
    "upsert": "servers have crashed on upserts in transactions. Create what may be missing by inserting(...), in a transaction that "
    "may find it there.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A guarded write that is not sent yet: give it to `transact`, together with others."""

    store: Flows = field(repr=False)
    method: PreparedMethod
    document: Document  # the filter, or what is to be inserted
    update: Update | None
    native: Mapping[str, Any]
    emit: Emit = None
    missing_ok: bool = False

    @property
    def entity(self) -> dict[str, Any]:
        return {"_id": self.document["_id"]} if self.method == "inserting" else identity(self.document)


class Action(NamedTuple):
    """One write of a transaction. No `write`: its store has no ledger. `request`: the write, if it is an update.

    The document of a message in an inbox has the `token` of the call instead. It is there if the message was processed.
    """

    place: int | None  # among the participants
    flows: Flows
    message: Message
    entity: Document
    method: Literal["update_one", "insert_one"]
    args: tuple[Any, ...]
    native: Mapping[str, Any]
    write: Write | None = None
    request: GuardedUpdate | None = None
    missing_ok: bool = False
    query: Document | None = None  # the caller's own filter
    token: bytes | None = None

    @property
    def target(self) -> Any:
        return self.flows.target

    @property
    def inserts(self) -> bool:
        return self.method == "insert_one"

    @property
    def counts(self) -> bool:
        """Do the messages behind this one wait until its mark has moved?"""
        return self.write is not None and self.write.entry.own.counts

    @property
    def follows_gap(self) -> bool:
        return self.write is not None and self.write.entry.follows_gap

    def send(self, session: Any) -> Flow[bool]:
        """Send it. Has it been done?"""
        if self.inserts and self.follows_gap:  # such a message creates nothing
            return False
        options = {**self.native, **({} if self.inserts else {"upsert": False}), "session": session}
        reply = yield Do(getattr(self.target, self.method), self.args, options, sends=True)
        return self.inserts or reply.matched_count == 1

    def is_met_by(self, error: DuplicateKeyError) -> bool:
        """Has an insert met its own entity? A unique index of the caller's is the caller's business."""
        return self.inserts and is_of_entity(error, self.entity)

    def look(self) -> Flow[Document | None]:
        """The entity as a majority has it, outside of any transaction."""
        return (yield from at(self.target, self.flows.look(self.entity, self.native)))

    def holds(self) -> Flow[bool]:
        """Does the caller's own condition hold by now? Then its document was made between the write and the look."""
        if self.inserts or self.query is None:
            return False
        if not asks_more(self.query, self.entity):
            return True
        options = {name: self.native[name] for name in ("collation", "comment", "let") if name in self.native}
        match = yield Do(self.target.find_one, (self.query,), {**options, "projection": {"_id": 1}}, sends=True)
        return match is not None

    def shows_effect(self) -> Flow[bool]:
        """Does the entity show what this transaction would have written?"""
        if self.write is None:
            return True
        document = yield from self.look()
        return self.write.entry.shows(lookup(document or {}))

    def pass_over(self, entity: Entity | None) -> Flow[Outcome | None]:  # noqa: ARG002  # a majority must have it, as the look shows
        write = self.write
        if write is None or not write.entry.also:
            return None
        image = self.flows.image_of((yield from self.look()))
        if self.request is None:
            attempt: Attempt = InsertAttempt(self.flows, write, self.args[0], self.args[0], {})
        else:
            attempt = CollectionAttempt(self.flows, self.request, "update_one")
        return (yield from at(self.target, pass_over(attempt, image)))

    def verdict(self, document: Document | None, *, first: bool) -> Outcome | None:
        """Why it was refused, given the entity. None: nothing is in the way any more, and it is to be sent again.

        That is so where an entity was deleted meanwhile, where a gap was filled before the look, or where the inbox has forgotten the message.
        """
        if self.token is not None:
            return None if document is None else self._inbox_verdict(document)
        if self.write is None:
            if TOMBSTONE in (document or {}):
                return Gone(self.message, participant=self.place)
            if document is None:
                return Missing(self.message, self.missing_ok, participant=self.place)
            return Rejected(self.message, without_ledger(NO_LEDGER.terms, document), participant=self.place)
        answer = judge(self.write._replace(now=self.flows.clock()), self.flows.image_of(document))
        if self.inserts and document is not None:
            answer = of_creation(answer, self.flows.without_ledger(self.args[0]), keys=1)
        if isinstance(answer, Unmet) and ((self.inserts and document is None) or (self.follows_gap and first)):
            return None
        return with_participant(settle_missing(answer, missing_ok=self.missing_ok, counts=self.counts), self.place)

    def _inbox_verdict(self, document: Document) -> Outcome:
        if document["_id"] != self.entity["_id"]:
            raise ConfigurationError(
                f"The inbox compares text by a collation, under which this message is the same as another, {document['_id']!r}, which was "
                "processed. Make the inbox a collection without a collation."
            )
        return Applied(self.message, retried=True) if document.get(TOKEN) == self.token else Duplicate(self.message)

    def failure(self, error: Exception) -> Flow[Exception]:
        """What the failure of the write means for its ledger, or the failure itself."""
        if self.write is None:
            return error
        if self.request is None:
            if not self.flows.exceeds_limit(self.args[0]):
                return error
            failure = self.flows.too_large(self.args[0])
            failure.__cause__ = error
            return failure
        try:
            return (yield from at(self.target, self.flows.raise_failure(error, self.request)))
        except Exception as meaning:
            return meaning

    def check_collection(self) -> Flow[None]:
        if self.write is not None:
            yield from at(self.target, self.flows.check_collection(self.write.entry, inserts=self.inserts))


def prepare(
    flows: Flows,
    method: PreparedMethod,
    document: Document,
    update: Update | None,
    native: Mapping[str, Any],
    *,
    emit: Emit,
) -> Prepared:
    """The write, with all that its transaction needs."""
    native, missing_ok = split_missing_ok(native)
    check_arguments(method, native, _ARGUMENTS[method], _REASONS)
    if not isinstance(cast("object", document), Mapping) or not names_id(document):
        raise InvalidUpdate("A write in a transaction names its document by _id, so no two of them name the same one.")
    # It is sent later, and the caller may use all of these again before.
    return Prepared(flows, method, copy_of(document), copy_of(update), copy_of(native), copied_events(emit), missing_ok)


def write_alone(message: Message, participant: Prepared) -> Flow[Outcome]:
    """The prepared write as one of its own. A refusal names its participant as in a transaction."""
    flows, emit = participant.store, participant.emit
    native: dict[str, Any] = {**participant.native, "missing_ok": participant.missing_ok}
    if participant.method == "inserting":
        outcome = yield from flows.insert_one(message, participant.document, emit=emit, **participant.native)
    elif participant.method == "recording":
        outcome = yield from flows.record(message, participant.document, emit=emit, upsert=False, **native)
    else:
        update = participant.update or {}
        outcome = yield from flows.write(message, participant.document, update, writer="update_one", emit=emit, **native)
    return with_participant(outcome, 0)


def action(place: int, message: Message, participant: Prepared) -> Action:
    """The prepared write as a part of a transaction."""
    flows, document, native = participant.store, participant.document, participant.native
    inserts, query = participant.method == "inserting", None if participant.method == "inserting" else document
    if not flows.guards:
        return _plain_action(place, message, participant)._replace(missing_ok=participant.missing_ok, query=query)
    update = None if participant.method == "recording" else participant.update or {}
    if update is not None and not inserts:
        check_update(flows.ledger.terms, flows.fields, update)
    entity = {} if query is None else identity(query, flows.fields, flows.ledger.terms)
    write = flows.new_write(message, entity, emit=participant.emit)
    if inserts:
        args: tuple[Any, ...] = (build_insert(write, document, native),)
        write = write._replace(key={"_id": document["_id"]})
        return Action(place, flows, message, write.key, "insert_one", args, native, write, None, participant.missing_ok)
    request = build_update(write, document, update, native)
    args = (request.filter, request.update)
    method: Literal["update_one"] = "update_one"
    ok = participant.missing_ok
    return Action(place, flows, message, write.key, method, args, request.native, request.write, request, ok, query)


def _plain_action(place: int, message: Message, participant: Prepared) -> Action:
    """The caller's own write, which what is left of a deleted entity refuses too."""
    flows, document, native, terms = participant.store, participant.document, participant.native, NO_LEDGER.terms
    if participant.emit is not None:
        raise ConfigurationError("This store has no outbox to emit into: emit in a store that has one.")
    if participant.method == "inserting":
        check_document(terms, document)
        return Action(place, flows, message, {"_id": document["_id"]}, "insert_one", (dict(document),), native)
    if participant.method == "recording":
        raise InvalidUpdate("A store without a ledger has nothing to record: write to it, or leave it out.")
    entity = identity(document, (), terms)
    check_collation(native.get("collation"), entity, text=False)
    check_update(terms, (), participant.update)
    args = ({**document, TOMBSTONE: {"$exists": False}}, participant.update)
    return Action(place, flows, message, entity, "update_one", args, native)


# --- a message's document in an inbox ------------------------------------------------------------------------------


def inbox_flows(inbox: Inbox, store: Flows) -> Flows:
    """The inbox as a store, for a transaction with this one."""
    if inbox.table_name is not None or not hasattr(inbox.store, "with_options"):
        raise ConfigurationError("Inbox: the store of a transaction on MongoDB is a collection, without table_name=.")
    collection = with_codec(inbox.store, UUIDS)  # its texts and its tokens are read as they are stored
    return Flows(collection, None, inbox.clock or store.clock, (), "majority", is_async=store.is_async)


def inbox_actions(inbox: Inbox, store: Flows, message: Message, name: str) -> list[Action]:
    """What remembers the message in the inbox, as parts of the call of that name in this store."""
    flows, token = inbox_flows(inbox, store), token_of(name)
    expires = datetime.fromtimestamp(inbox.expires(flows.clock()), UTC)
    other_fields = {inbox.ttl_attribute: expires, TOKEN: token}
    documents = [{"_id": mark, **other_fields} for mark in inbox.marks(message)]
    return [
        Action(None, flows, message, {"_id": document["_id"]}, "insert_one", (document,), {}, token=token)
        for document in documents
    ]
