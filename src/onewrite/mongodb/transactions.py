"""Several guarded writes as one: all of them or none, with one outcome.

The transaction reads a snapshot, and its commit waits for a majority. A write that matches nothing, or an insert whose document
exists, ends the transaction. onewrite then reads the reason outside of the transaction, from majority-committed data.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from typing import Any, NamedTuple, cast

from bson.errors import InvalidBSON
from pymongo import ReadPreference
from pymongo.errors import DocumentTooLarge, DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from onewrite.core.clock import random_share
from onewrite.core.event import Emit, copy_events, copy_value
from onewrite.core.flow import Do, Flow, Wait, arun, redirect_calls, run, split_missing_ok
from onewrite.core.inbox import Inbox
from onewrite.core.label import TOKEN
from onewrite.core.ledgers.ledger import UNGUARDED
from onewrite.core.pipeline import pass_over
from onewrite.core.targets import make_arguments_optional
from onewrite.core.transaction import (
    DEADLINE,
    Backoff,
    Findings,
    PreparedWrite,
    Transaction,
    TransactionWrite,
    check_prepared,
)
from onewrite.core.unreturned import noted, noted_async
from onewrite.core.write import Image, Write
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.dialect import build_insert
from onewrite.mongodb.expression import has_id
from onewrite.mongodb.flows import CollectionAttempt, Flows, InsertAttempt, is_entity_taken
from onewrite.mongodb.layout import UUIDS, Document, lookup, set_codec
from onewrite.outcome import Applied, Duplicate, Outcome, Rejected, Unmet

_TRANSIENT, _UNKNOWN_RESULT = "TransientTransactionError", "UnknownTransactionCommitResult"


_EVERY_WRITE = {"comment", "bypass_document_validation"}
_ARGUMENTS = {
    "updating": {"collation", "hint", "let", "array_filters", *_EVERY_WRITE},
    "inserting": _EVERY_WRITE,
    "recording": {"collation", "hint", "let", *_EVERY_WRITE},
}
_REASONS = {
    "session": "transact begins its own session, so that it can retry after a conflict.",
    # CVE-2025-10060: an upsert that is retried within a transaction can crash the server.
    "upsert": "upserts in transactions have crashed servers. Create the entity with inserting(...).",
}


@noted
def transact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """Make several guarded writes, or none of them: `transact(message, [accounts.updating({"_id": a}, ...), ...])`.

    Each participant has its own ledger. If any ledger contains the message, the outcome is `Duplicate`, and nothing is written.
    For any other refusal, `participant` is the index of the refusing write. onewrite retries conflicts with other
    transactions until `deadline`.
    """
    transaction = _Transaction(message, participants, inbox, is_async=False)
    if transaction.is_single:
        return run(transaction.send_alone(), transaction.store.target)
    with transaction.new_session() as session:
        return run(transaction.in_session(session, deadline), None)


@noted_async
async def atransact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """Make several writes of an `AsyncGuardedCollection`, or none of them, like `transact`."""
    transaction = _Transaction(message, participants, inbox, is_async=True)
    if transaction.is_single:
        return await arun(transaction.send_alone(), transaction.store.target)
    new_session = transaction.new_session()
    if isawaitable(new_session):  # Motor's start_session is asynchronous, and pymongo's isn't
        new_session = await new_session
    async with new_session as session:
        return await arun(transaction.in_session(session, deadline), None)


make_arguments_optional(transact, atransact)


# --- the participants ----------------------------------------------------------------------------------------------------


class Prepared(PreparedWrite[Flows]):
    """A guarded write that hasn't been sent. Pass it to `transact`, together with other writes."""

    __slots__ = ()

    @property
    def entity(self) -> Document:
        """The fields that identify the document."""
        return {"_id": self.native["document"]["_id"]} if self.creates else self.store.read_key(self.native)

    def make_attempt(self, write: Write) -> CollectionAttempt | InsertAttempt:
        """Return the write with these parts, ready to be sent on its own."""
        if not self.creates:
            return self.store.make_attempt(write, self.native)
        options = {option: value for option, value in self.native.items() if option != "document"}
        document = self.native["document"]
        new_document = build_insert(write, document, options)
        return InsertAttempt(self.store, write, self.store.without_ledger(document), new_document, options)


def prepare(flows: Flows, method: str, named: Document, options: Mapping[str, Any], emit: Emit) -> Prepared:
    """Return the prepared write.

    `named` contains the arguments that aren't options. Its first entry must be the filter or the new document.
    """
    options, missing_ok = split_missing_ok(options)
    check_prepared(method, options, _ARGUMENTS[method], _REASONS)
    document = cast("object", next(iter(named.values())))
    if not isinstance(document, Mapping) or not has_id(cast("Document", document)):
        raise InvalidUpdate(
            "A write in a transaction must identify its document by _id, so that no two writes change the same one."
        )
    return Prepared(flows, method, copy_value({**named, **options}), copy_events(emit), missing_ok)


@dataclass(frozen=True, slots=True, eq=False)
class _Action(TransactionWrite[CollectionAttempt | InsertAttempt]):
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
        """Send the write, and return whether it took effect."""
        attempt = self.attempt
        if isinstance(attempt, InsertAttempt):
            if self.write.entry.has_predecessor:  # a message with a predecessor never creates an entity
                return False
            options = {**attempt.native, "session": session}
            yield Do(self.target.insert_one, (attempt.new_document,), options, sends=True)
            return True
        request = attempt.request
        options = {**request.native, "upsert": False, "session": session}
        reply = yield Do(self.target.update_one, (request.filter, request.update), options, sends=True)
        return bool(reply.matched_count == 1)

    def is_already_inserted(self, error: Exception) -> bool:
        """Whether the error means that the inserted entity exists. Conflicts in other unique indexes are left to the caller."""
        return isinstance(self.attempt, InsertAttempt) and is_entity_taken(error, self.entity)

    def look(self) -> Flow[Document | None]:
        """Read the majority-committed entity, outside of any transaction."""
        return (yield from redirect_calls(self.target, self.flows.look(self.entity, self.native)))

    def is_condition_met(self) -> Flow[bool]:
        """Whether the document meets the caller's condition now. If so, it might have changed since the write, which can be sent again."""
        if isinstance(self.attempt, InsertAttempt):
            return False  # an insert has no condition: what refused it is the existing document
        return (yield from redirect_calls(self.target, self.attempt.is_condition_met()))

    def has_effect(self) -> Flow[bool]:
        """Whether the entity shows what this transaction would have written."""
        if self.write.entry is UNGUARDED:
            return True  # nothing in the entity could show it, so the other writes decide
        document = yield from self.look()
        return self.write.entry.is_shown_by(lookup(document or {}))

    def pass_over(self, image: Image | None) -> Flow[Outcome | None]:  # noqa: ARG002  # a refusal on MongoDB doesn't show the entity
        if not self.write.entry.also:
            return None
        current_image = self.flows.read_image((yield from self.look()))
        return (yield from redirect_calls(self.target, pass_over(self.attempt, current_image)))

    def judge_document(self, document: Document | None, *, first: bool) -> Outcome | None:
        """Return why the write was refused, or None if the reason no longer exists, so the write can be sent again.

        The reason no longer exists if the entity was deleted in the meantime, if a gap was filled before the read, or if the
        inbox has forgotten the message. Pass `first=True` in the first round: later, a gap counts as a reason.
        """
        if self.place is None:  # the write to the inbox
            return None if document is None else self._judge_inbox_document(document)
        outcome = self.judge(self.flows.read_image(document), self.flows.clock())
        is_deleted = self.creates and document is None
        if isinstance(outcome, Unmet) and (is_deleted or (self.write.entry.has_predecessor and first)):
            return None
        return outcome

    def _judge_inbox_document(self, document: Document) -> Outcome:
        """Return `Applied` if this call's transaction has written the document, and `Duplicate` otherwise."""
        message = self.write.message
        if document["_id"] != self.entity["_id"]:
            raise ConfigurationError(
                f"The inbox compares strings by a collation, under which this message equals another processed one, "
                f"{document['_id']!r}. Use a collection without a collation as the inbox."
            )
        is_own = document.get(TOKEN) == self.write.token
        return Applied(message, retried=True) if is_own else Duplicate(message)

    def explain_failure(self, error: Exception) -> Flow[Exception]:
        """Return the error that explains the failure, or the failure itself."""
        attempt = self.attempt
        if isinstance(attempt, InsertAttempt):
            if not self.flows.is_too_large(attempt.new_document):
                return error
            failure = self.flows.make_too_large_error(attempt.new_document)
            failure.__cause__ = error
            return failure
        try:
            return (yield from redirect_calls(self.target, attempt.raise_error(error)))
        except Exception as explanation:  # raise_error always raises
            return explanation

    def check_collection(self) -> Flow[None]:
        """Raise if a guarded write's collection could confuse two entities."""
        if self.write.entry is not UNGUARDED:
            inserts = isinstance(self.attempt, InsertAttempt)
            yield from redirect_calls(self.target, self.flows.check_collection(self.write.entry, inserts=inserts))


# --- the transaction ----------------------------------------------------------------------------------------------------


class _Refusal(NamedTuple):
    """The write that was refused, which ended the transaction."""

    action: _Action
    error: DuplicateKeyError | InvalidBSON | None


class _Transaction(Transaction[Prepared, _Action, _Refusal]):
    """A transaction, whose flow `in_session` runs."""

    kind = Prepared
    action = _Action
    stores = "collections"
    instead = "[orders.updating(...), stock.updating(...)], as you would write orders.update_one(message, ...)"
    _session: Any

    def open_inbox(self, inbox: Inbox) -> Flows:
        """Return the inbox as a store without a ledger. Raise if it isn't a collection."""
        if inbox.table_name is not None or not hasattr(inbox.store, "with_options"):
            raise ConfigurationError(
                "Inbox: expected a collection, because the transaction is on MongoDB. Omit table_name=."
            )
        collection = set_codec(inbox.store, UUIDS)  # reads strings and tokens as they are stored
        clock = inbox.clock or self.store.clock
        return Flows(collection, None, clock, (), "majority", is_async=self.store.is_async)

    def attempt_inbox(self, write: Write, expires: float) -> InsertAttempt:
        ttl_attribute = cast("Inbox", self.inbox).ttl_attribute
        (key,) = write.key.values()
        write = write._replace(key={"_id": key})
        document = {"_id": key, ttl_attribute: datetime.fromtimestamp(expires, UTC), TOKEN: write.token}
        return InsertAttempt(cast("Flows", self.inbox_store), write, document, document, {})

    def check(self) -> None:
        """Raise if the stores have different clients, or if two writes change the same document."""
        stores = [*[write.store for write in self.participants], *filter(None, [self.inbox_store])]
        client, *other_clients = [_read_client(store.target) for store in stores]
        if not all(_is_same(client, other_client) for other_client in other_clients):
            raise ConfigurationError(
                "These collections have different clients. Create all of them with the same MongoClient."
            )
        documents: set[Hashable] = set()
        for write in self.participants:
            document = (write.store.full_name, write.store.canonical(write.entity))
            if document in documents:
                raise InvalidUpdate(_SAME_DOCUMENT)
            documents.add(document)

    def check_stores(self) -> Flow[None]:
        for action in self.make_actions(""):
            yield from action.check_collection()

    def new_session(self) -> Any:
        """Return a session of the stores' client, or an awaitable of one."""
        try:
            return _read_client(self.store.target).start_session()
        except NotImplementedError as error:
            raise ConfigurationError(
                "This client doesn't support sessions, which a transaction needs. In a test, run the handler in explore(...), which "
                "supports transactions, or on onewrite.testing.mongod()."
            ) from error

    def in_session(self, session: Any, deadline: timedelta) -> Flow[Outcome]:
        self._session = session
        return (yield from self.flow(Backoff(deadline, random_share, self.store.clock)))

    def make(self, actions: Sequence[_Action], name: str, round_number: int, backoff: Backoff) -> Flow[Applied | _Refusal]:  # noqa: ARG002  # the server recognizes retries itself
        """Execute the transaction, and retry it while it conflicts with other transactions."""
        session, concerns = self._session, [write.store.target.write_concern for write in self.participants]
        majority_concerns = [concern for concern in concerns if concern.document.get("w") == "majority"]
        options = {
            "read_concern": ReadConcern("snapshot"),
            "write_concern": (majority_concerns or concerns)[0],  # the most durable concern of the stores
            "read_preference": ReadPreference.PRIMARY,
        }
        while True:
            try:
                yield Do(session.start_transaction, (), options)
                refusal = yield from _write(session, actions)
                if refusal is None:
                    yield from _commit(session, backoff)
            except PyMongoError as error:
                yield from _abort(session)
                wait = backoff.pause() if error.has_error_label(_TRANSIENT) else None
                if wait is None:
                    raise
            else:
                return Applied(self.message) if refusal is None else refusal
            yield Wait(wait)

    def find_reasons(self, actions: Sequence[_Action], refusal: _Refusal, round_number: int) -> Flow[Findings]:
        """Find out why a write was refused.

        The writes before it were accepted. Later writes weren't sent, but their outcomes count if their ledger contains the
        message, or if their outcome takes precedence.
        """
        later_actions = actions[actions.index(refusal.action) :]
        findings = yield from self._judge_documents(later_actions, refusal, first=round_number == 0)
        if not any(isinstance(outcome, Applied | Duplicate) for outcome in findings.outcomes):
            for action in later_actions:
                yield from redirect_calls(action.target, action.flows.wait_for_majority(action.entity, {}))
            # A majority now has the documents that refused the writes, so this second read decides.
            findings = yield from self._judge_documents(later_actions, refusal, first=round_number == 0)
        is_token_found = any(isinstance(outcome, Applied) for outcome in findings.outcomes)
        if is_token_found and not (yield from _has_all_effects(actions)):
            return Findings([Duplicate(self.message)])  # a different call has the same token by chance
        return findings

    def _judge_documents(self, actions: Sequence[_Action], refusal: _Refusal, *, first: bool) -> Flow[Findings]:
        """Read the documents of the writes, and return the outcomes. Without any outcome, the transaction can be sent again."""
        outcomes: list[Outcome] = []
        for action in actions:
            document = yield from action.look()
            outcome = action.judge_document(document, first=first)
            is_refused = action is refusal.action
            if is_refused and isinstance(outcome, Rejected) and (yield from action.is_condition_met()):
                continue
            # The server hasn't checked the conditions of the later writes, so none of them is rejected yet.
            if outcome is not None and (is_refused or not isinstance(outcome, Rejected)):
                outcomes.append(outcome)
            if isinstance(outcome, Applied | Duplicate):  # takes precedence over all others
                break
        return Findings(outcomes, passes=not outcomes, waits=not outcomes)

    def give_up(self, actions: Sequence[_Action], refusal: _Refusal) -> Flow[Outcome]:
        """Raise the error of the refusal, or an error if two writes change the same document. Otherwise, return an unsettled outcome."""
        if refusal.error is not None:
            raise refusal.error
        yield from _check_distinct(actions, refusal.action)
        # The reads found no reason for the refusal. For example, the index in a hint might leave out the document.
        return Rejected(self.message, settled=False, participant=refusal.action.place)


# --- the requests of a transaction ----------------------------------------------------------------------------------------


def _write(session: Any, actions: Sequence[_Action]) -> Flow[_Refusal | None]:
    """Send the writes until one is refused."""
    for action in actions:
        try:
            is_done = yield from action.send(session)
        except (DuplicateKeyError, InvalidBSON) as error:
            if not action.is_already_inserted(error):
                raise
            yield from _abort(session)
            return _Refusal(action, error)
        except (OperationFailure, DocumentTooLarge) as error:
            if isinstance(error, OperationFailure) and error.has_error_label(_TRANSIENT):
                raise
            yield from _abort(session)
            raise (yield from action.explain_failure(error)) from None
        if not is_done:
            yield from _abort(session)
            return _Refusal(action, None)
    return None


def _commit(session: Any, backoff: Backoff) -> Flow[None]:
    """Commit, and retry while the result is unknown. Committing twice has no further effect."""
    while True:
        try:
            yield Do(session.commit_transaction, sends=True)
        except PyMongoError as error:
            wait = backoff.pause() if error.has_error_label(_UNKNOWN_RESULT) else None
            if wait is None:
                raise
        else:
            return
        yield Wait(wait)


def _abort(session: Any) -> Flow[None]:
    """Abort the transaction, unless it has already ended."""
    if session.in_transaction:
        yield Do(session.abort_transaction, sends=True)


def _has_all_effects(actions: Sequence[_Action]) -> Flow[bool]:
    """Whether each entity shows what this transaction would have written."""
    for action in actions:
        if not (yield from action.has_effect()):
            return False
    return True


def _check_distinct(actions: Sequence[_Action], refusing_action: _Action) -> Flow[None]:
    """Raise if another write of this transaction changes the document that refused a write.

    With a collation, different ids can identify the same document, and only the server knows that.
    """
    document = yield from refusing_action.look()
    if document is None:
        return
    for action in actions:
        if action is not refusing_action and action.target.full_name == refusing_action.target.full_name:
            other_document = yield from action.look()
            if other_document is not None and _read_id(action, other_document) == _read_id(refusing_action, document):
                raise InvalidUpdate(_SAME_DOCUMENT)


def _read_id(action: _Action, document: Document) -> Hashable:
    return action.flows.canonical({"_id": document["_id"]})


_SAME_DOCUMENT = "Two participants write to the same document. Combine them into one write."


def _read_client(collection: Any) -> Any:
    return collection.database.client


def _is_same(client: Any, other_client: Any) -> bool:
    """Whether both are the same client. pymongo's clients are equal if they have the same servers, but a session needs its own client."""
    return client is other_client or (not type(client).__module__.startswith("pymongo.") and bool(client == other_client))
