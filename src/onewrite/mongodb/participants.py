"""What a guarded collection contributes to a transaction: its writes, and what a refused one means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from onewrite.core.event import Emit, copied_events, copy_value
from onewrite.core.flow import Do, Flow, redirect_calls, split_missing_ok
from onewrite.core.label import TOKEN
from onewrite.core.ledgers.ledger import UNGUARDED
from onewrite.core.pipeline import pass_over
from onewrite.core.transaction import PreparedWrite, TransactionWrite, check_prepared
from onewrite.core.write import Image, Write
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.mongodb.dialect import build_insert
from onewrite.mongodb.expression import names_id
from onewrite.mongodb.flows import CollectionAttempt, Flows, InsertAttempt, is_entity_taken
from onewrite.mongodb.layout import Document, lookup
from onewrite.outcome import Applied, Duplicate, Outcome, Unmet

_EVERY_WRITE = {"comment", "bypass_document_validation"}
_ARGUMENTS = {
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


class Prepared(PreparedWrite[Flows]):
    """A guarded write that is not sent yet: give it to `transact`, together with others."""

    __slots__ = ()

    @property
    def entity(self) -> Document:
        """The fields that name the document."""
        return {"_id": self.native["document"]["_id"]} if self.creates else self.store.read_key(self.native)

    def make_attempt(self, write: Write) -> CollectionAttempt | InsertAttempt:
        """Return the write with these parts, ready to be sent alone."""
        if not self.creates:
            return self.store.attempt(write, self.native)
        options = {option: value for option, value in self.native.items() if option != "document"}
        document = self.native["document"]
        new_document = build_insert(write, document, options)
        return InsertAttempt(self.store, write, self.store.without_ledger(document), new_document, options)


@dataclass(frozen=True, slots=True, eq=False)
class Action(TransactionWrite[CollectionAttempt | InsertAttempt]):
    """One write of a transaction."""

    @property
    def flows(self) -> Flows:
        return self.attempt.flows

    @property
    def target(self) -> Any:
        return self.flows.target

    @property
    def entity(self) -> Document:
        return self.write.key

    @property
    def native(self) -> Document:
        attempt = self.attempt
        return attempt.native if isinstance(attempt, InsertAttempt) else attempt.request.native

    def send(self, session: Any) -> Flow[bool]:
        """Send the write, and return whether it was done."""
        attempt = self.attempt
        if isinstance(attempt, InsertAttempt):
            if self.write.entry.follows_gap:  # such a message creates nothing
                return False
            options = {**attempt.native, "session": session}
            yield Do(self.target.insert_one, (attempt.new_document,), options, sends=True)
            return True
        request = attempt.request
        options = {**request.native, "upsert": False, "session": session}
        reply = yield Do(self.target.update_one, (request.filter, request.update), options, sends=True)
        return bool(reply.matched_count == 1)

    def has_met(self, error: Exception) -> bool:
        """Whether an insert has met its own entity. A unique index of the caller's is the caller's business."""
        return isinstance(self.attempt, InsertAttempt) and is_entity_taken(error, self.entity)

    def look(self) -> Flow[Document | None]:
        """Return the entity as a majority has it, outside of any transaction."""
        return (yield from redirect_calls(self.target, self.flows.look(self.entity, self.native)))

    def holds(self) -> Flow[bool]:
        """Whether the caller's own condition holds by now. Then its document was created between the write and the read."""
        if isinstance(self.attempt, InsertAttempt):
            return False
        return (yield from redirect_calls(self.target, self.flows.holds(self.attempt.request)))

    def shows_effect(self) -> Flow[bool]:
        """Whether the entity shows what this transaction would have written."""
        if self.write.entry is UNGUARDED:
            return True
        document = yield from self.look()
        return self.write.entry.shows(lookup(document or {}))

    def pass_over(self, image: Image | None) -> Flow[Outcome | None]:
        if not self.write.entry.also:
            return None
        image = self.flows.read_image((yield from self.look()))  # which a majority has
        return (yield from redirect_calls(self.target, pass_over(self.attempt, image)))

    def judge_document(self, document: Document | None, *, first: bool) -> Outcome | None:
        """Return why it was refused, given the entity. None: nothing is in the way any more, and it is to be sent again.

        That is so where an entity was deleted meanwhile, where a gap was filled before the look, or where the inbox has forgotten the message.
        """
        if self.place is None:
            return None if document is None else self._judge_inbox(document)
        outcome = self.judge(self.flows.read_image(document), self.flows.clock())
        may_pass = self.creates and document is None
        if isinstance(outcome, Unmet) and (may_pass or (self.write.entry.follows_gap and first)):
            return None
        return outcome

    def _judge_inbox(self, document: Document) -> Outcome:
        if document["_id"] != self.entity["_id"]:
            raise ConfigurationError(
                f"The inbox compares text by a collation, under which this message is the same as another, {document['_id']!r}, which was "
                "processed. Make the inbox a collection without a collation."
            )
        message = self.write.message
        return Applied(message, retried=True) if document.get(TOKEN) == self.write.token else Duplicate(message)

    def failure(self, error: Exception) -> Flow[Exception]:
        """Return what the failure of the write means for its ledger, or the failure itself."""
        attempt = self.attempt
        if isinstance(attempt, InsertAttempt):
            if not self.flows.exceeds_limit(attempt.new_document):
                return error
            failure = self.flows.too_large(attempt.new_document)
            failure.__cause__ = error
            return failure
        try:
            return (yield from redirect_calls(self.target, self.flows.raise_failure(error, attempt.request)))
        except Exception as meaning:
            return meaning

    def check_collection(self) -> Flow[None]:
        if self.write.entry is not UNGUARDED:
            inserts = isinstance(self.attempt, InsertAttempt)
            yield from redirect_calls(self.target, self.flows.check_collection(self.write.entry, inserts=inserts))


def prepare(flows: Flows, method: str, named: Document, options: Mapping[str, Any], emit: Emit) -> Prepared:
    """Return the write, with all that its transaction needs. `named`: the arguments that are not options, the one that names the document first."""
    options, missing_ok = split_missing_ok(options)
    check_prepared(method, options, _ARGUMENTS[method], _REASONS)
    document = cast("object", next(iter(named.values())))
    if not isinstance(document, Mapping) or not names_id(cast("Document", document)):
        raise InvalidUpdate("A write in a transaction names its document by _id, so no two of them name the same one.")
    return Prepared(flows, method, copy_value({**named, **options}), copied_events(emit), missing_ok)
