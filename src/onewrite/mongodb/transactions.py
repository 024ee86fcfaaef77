"""Several guarded writes as one: all of them or none, and one answer.

The transaction reads a snapshot and is committed by a majority. A write that matches nothing, or meets what it would create, ends
it. Why that was is looked up outside of the transaction, where a majority must have what the answer rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from pymongo import ReadPreference, WriteConcern
from pymongo.errors import DocumentTooLarge, DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from onewrite.backoff import Backoff
from onewrite.clock import random_share
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.flow import Do, Flow, Wait, arun, run
from onewrite.inbox import Inbox
from onewrite.joint import DEADLINE, check_stores, checked, heaviest, to_come_again
from onewrite.label import TOMBSTONE
from onewrite.message import Message
from onewrite.mongodb.inboxes import INBOX, Mark, marks_of
from onewrite.mongodb.layout import Document
from onewrite.mongodb.participants import Action, Prepared, action, alone
from onewrite.outcome import Applied, Duplicate, Outcome, Rejected
from onewrite.write import Write

Part: TypeAlias = Action | Mark

_TRANSIENT, _UNKNOWN = "TransientTransactionError", "UnknownTransactionCommitResult"


def transact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    completes: bool = False,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """Make all of these guarded writes, or none: `transact(message, [accounts.updating({"_id": a}, ...), ...])`.

    Each participant is guarded by its own ledger. If any holds the message, the answer is `Duplicate`, and nothing is written;
    `completes=True` then writes what is missing, for a handler that made single writes before. Any other refusal says in
    `participant` whose it is. A conflict with another transaction is tried again, `deadline` long.
    """
    transaction = _Transaction(message, participants, completes=completes, inbox=inbox, awaited=False)
    if transaction.is_single:
        return run(transaction.alone(), transaction.target)
    with transaction.new_session() as session:
        return run(transaction.flow(session, deadline, random_share), None)


async def atransact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    completes: bool = False,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """`transact` for the writes of an `AsyncGuardedCollection`."""
    transaction = _Transaction(message, participants, completes=completes, inbox=inbox, awaited=True)
    if transaction.is_single:
        return await arun(transaction.alone(), transaction.target)
    async with transaction.new_session() as session:
        return await arun(transaction.flow(session, deadline, random_share), None)


def explain_transaction(
    message: Message, participants: Sequence[Prepared], *, inbox: Inbox | None = None
) -> list[dict[str, Any]]:
    """The writes that `transact` or `atransact` would send, one request each and one more to commit, in their order, those of an inbox
    last; one participant alone is a plain write. Each is the arguments by the name of the write. Nothing is sent.
    """
    return [part.explained for part in _Transaction(message, participants, inbox=inbox, awaited=None).parts()]


class _Refusal(NamedTuple):
    """A write that was not done, so that nothing was."""

    part: Part
    error: DuplicateKeyError | None


class _Transaction:
    """One call of `transact`."""

    def __init__(
        self,
        message: Message,
        participants: Sequence[Prepared],
        *,
        awaited: bool | None,
        inbox: Inbox | None,
        completes: bool = False,
    ) -> None:
        self._message = message
        self._participants = checked(
            participants,
            Prepared,
            stores="collections",
            instead="[orders.updating(...), stock.updating(...)], as you would write orders.update_one(message, ...)",
        )
        self._completes = completes
        self._inbox = inbox
        self._name = self._participants[0].store.attempts()
        _check_stores(self._participants, inbox, awaited=awaited)

    @property
    def is_single(self) -> bool:
        return len(self._participants) == 1 and self._inbox is None

    @property
    def target(self) -> Any:
        return self._participants[0].store.target

    def new_session(self) -> Any:
        try:
            return _client_of(self.target).start_session()
        except NotImplementedError as error:
            raise ConfigurationError(
                "This client has no sessions, which a transaction needs. In a test, run the handler in explore(...), which brings "
                "its own, or on a mongod() of onewrite.testing."
            ) from error

    def alone(self) -> Flow[Outcome]:
        return alone(self._message, self._participants[0])

    def parts(self, before: Mapping[int, Write] = MappingProxyType({})) -> list[Part]:
        """`before`: the writes in the forms that fit what is stored, as far as somebody has looked."""
        message = self._message
        writes: list[Part] = [
            action(place, message, each, before.get(place)) for place, each in enumerate(self._participants)
        ]
        if self._inbox is None:
            return writes
        return [*marks_of(self._inbox, message, self._name, self._participants[0].store.clock), *writes]

    def flow(self, session: Any, deadline: timedelta, chance: Callable[[], float]) -> Flow[Outcome]:
        backoff = Backoff(deadline, chance, self._participants[0].store.clock)
        for part in self.parts():
            yield from part.check_collection()
        done: frozenset[int] = frozenset()
        first, facing = True, cast("dict[int, Write]", {})
        while True:
            parts = [part for part in self.parts(facing) if part.place not in done]
            refusal = yield from self._made(session, parts, backoff)
            if refusal is None:
                return Applied(self._message)
            judged = yield from _judged(parts, refusal, facing, first=first, completes=self._completes)
            outcome, first = self._outcome(judged, parts), False
            if isinstance(outcome, Applied) and not (yield from _shown(parts)):
                return Duplicate(self._message)  # another call's token is the same by chance
            if outcome is not None:
                return outcome
            done |= _holding(judged)
            if not judged:
                wait = backoff.pause()
                if wait is None and refusal.error is not None:
                    raise refusal.error
                if wait is None:  # something keeps a write out that no look finds, as a hint may
                    yield from _check_distinct(parts, refusal.part)
                    return Rejected(self._message, settled=False, participant=max(refusal.part.place, 0))
                yield Wait(wait)

    def _made(self, session: Any, parts: Sequence[Part], backoff: Backoff) -> Flow[_Refusal | None]:
        """Make the transaction, again and again while another is in the way."""
        while True:
            try:
                yield Do(session.start_transaction, (), self._options())
                refusal = yield from _written(session, parts)
                if refusal is None:
                    yield from _committed(session, backoff)
            except PyMongoError as error:
                yield from _aborted(session)
                wait = backoff.pause() if error.has_error_label(_TRANSIENT) else None
                if wait is None:
                    raise
            else:
                return refusal
            yield Wait(wait)

    def _options(self) -> dict[str, Any]:
        """The concerns of the transaction: as durable as the most durable of its stores."""
        concerns: list[WriteConcern] = [each.store.target.write_concern for each in self._participants]
        majority = [concern for concern in concerns if concern.document.get("w") == "majority"]
        return {
            "read_concern": ReadConcern("snapshot"),
            "write_concern": (majority or concerns)[0],
            "read_preference": ReadPreference.PRIMARY,
        }

    def _outcome(self, judged: Mapping[int, Outcome], parts: Sequence[Part]) -> Outcome | None:
        """The answer, or None: the transaction is to be made again, without the writes that are done."""
        outcome = heaviest(judged.values())
        if isinstance(outcome, Duplicate):
            # What is in the inbox was done as a whole. Anything else may have been done in part.
            held = _holding(judged)
            left = [part for part in parts if part.place not in held] if INBOX not in held else []
            missing = any(isinstance(part, Action) for part in left)
            return None if self._completes and missing else outcome
        return to_come_again(outcome, counts=any(part.counts for part in parts if isinstance(part, Action)))


# --- the steps of a transaction ----------------------------------------------------------------------------------------


def _written(session: Any, parts: Sequence[Part]) -> Flow[_Refusal | None]:
    """Make the writes, until one is refused."""
    for part in parts:
        try:
            is_done = yield from part.sent(session)
        except DuplicateKeyError as error:
            if not part.met(error):
                raise
            yield from _aborted(session)
            return _Refusal(part, error)
        except (OperationFailure, DocumentTooLarge) as error:
            if isinstance(error, OperationFailure) and error.has_error_label(_TRANSIENT):
                raise
            yield from _aborted(session)
            raise (yield from part.failure(error)) from None
        if not is_done:
            yield from _aborted(session)
            return _Refusal(part, None)
    return None


def _committed(session: Any, backoff: Backoff) -> Flow[None]:
    """Commit, until it is known what became of it. To commit twice is to commit once."""
    while True:
        try:
            yield Do(session.commit_transaction, sends=True)
        except PyMongoError as error:
            wait = backoff.pause() if error.has_error_label(_UNKNOWN) else None
            if wait is None:
                raise
        else:
            return
        yield Wait(wait)


def _aborted(session: Any) -> Flow[None]:
    if session.in_transaction:
        yield Do(session.abort_transaction, sends=True)


def _shown(parts: Sequence[Part]) -> Flow[bool]:
    """Does each entity show what this transaction would have written?"""
    for part in parts:
        if isinstance(part, Action) and not (yield from part.shows_effect()):
            return False
    return True


def _check_distinct(parts: Sequence[Part], refused: Part) -> Flow[None]:
    """Raise if the document that refused a write is one that this transaction writes under another name.

    Only the server knows that under a collation.
    """
    found = (yield from refused.look()) if isinstance(refused, Action) else None
    for part in parts:
        if (
            found is None
            or part is refused
            or not isinstance(part, Action)
            or part.target.full_name != refused.target.full_name
        ):
            continue
        other = yield from part.look()
        names = [part.flows.canonical({"_id": each["_id"]}) for each in (found, other or {"_id": None})]
        if names[0] == names[1]:
            raise InvalidUpdate(_SAME)


_SAME = "Two participants write the same document: make them one write."


def _judged(
    parts: Sequence[Part], refusal: _Refusal, facing: dict[int, Write], *, first: bool, completes: bool
) -> Flow[dict[int, Outcome]]:
    """The outcomes of the writes that were refused, by their places; none if they may be done now.

    Those before the refused one have passed. Those behind it were not tried: they matter if they hold the message, or weigh more.
    `facing` is for the next try.
    """
    left = parts[parts.index(refusal.part) :]
    judged = yield from _looked_at(left, refusal, facing, first=first, completes=completes)
    if any(isinstance(outcome, Applied | Duplicate) for outcome in judged.values()):
        return judged
    for part in left:
        yield from _waited(part)
    return (yield from _looked_at(left, refusal, facing, first=first, completes=completes))


def _looked_at(
    left: Sequence[Part], refusal: _Refusal, facing: dict[int, Write], *, first: bool, completes: bool
) -> Flow[dict[int, Outcome]]:
    """The outcomes by their places. It also notes in `facing` the writes that are to be sent in another form."""
    judged: dict[int, Outcome] = {}
    for part in left:
        found = yield from part.look()
        outcome = part.verdict(found, first=first)
        if isinstance(outcome, Write):
            facing[part.place] = outcome
            continue
        is_refused = part is refusal.part
        if is_refused and isinstance(outcome, Rejected) and isinstance(part, Action) and (yield from part.holds()):
            continue
        if outcome is not None and (is_refused or not isinstance(outcome, Rejected)):
            judged[part.place] = outcome
        if isinstance(outcome, Applied | Duplicate) and (part.place == INBOX or not completes):
            break
    return judged


def _waited(part: Part) -> Flow[None]:
    """Wait until a majority has what stood in the way: a write that matches nothing waits for all that came before it."""
    nothing: Document = {"$and": [part.entity, {"_id": {"$exists": False}}]}
    yield Do(part.target.update_one, (nothing, {"$unset": {TOMBSTONE: ""}}), sends=True)


def _holding(judged: Mapping[int, Outcome]) -> frozenset[int]:
    """The places of those that hold the message."""
    return frozenset([place for place, outcome in judged.items() if isinstance(outcome, Duplicate)])


# --- what cannot be sent -----------------------------------------------------------------------------------------------


def _check_stores(participants: Sequence[Prepared], inbox: Inbox | None, *, awaited: bool | None) -> None:
    check_stores(participants, inbox, awaited=awaited)
    targets = [each.store.target for each in participants] + ([] if inbox is None else [inbox.store])
    if not all(_is_same(_client_of(targets[0]), _client_of(target)) for target in targets):
        raise ConfigurationError(
            "A transaction belongs to one client: make all these collections with the same MongoClient."
        )
    seen: set[Hashable] = set()
    for each in participants:
        document = (each.store.target.full_name, each.store.canonical(each.entity))
        if document in seen:
            raise InvalidUpdate(_SAME)
        seen.add(document)


def _client_of(collection: Any) -> Any:
    return collection.database.client


def _is_same(one: Any, other: Any) -> bool:
    """Two of pymongo's clients are equal if they have the same servers, and yet a session belongs to one of them."""
    return one is other or (not type(one).__module__.startswith("pymongo.") and bool(one == other))
