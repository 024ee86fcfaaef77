"""The guarded collection: its flows, written once, and the two classes that run them.

A write that matches nothing needs a second look. It reads what a majority holds, from the primary, because "duplicate" lets
the broker forget the message: a mark that a failover can take back is no reason for that. The write that matched nothing has
by then waited for the majority itself, so the look sees whatever stood in its way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import bson
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import DocumentTooLarge, DuplicateKeyError, OperationFailure
from pymongo.read_concern import ReadConcern

from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidUpdate
from onewrite.flow import Call, Flow, arun, run
from onewrite.ledger import Advance, Entry, Ledger
from onewrite.message import Message
from onewrite.mongodb.expression import Document, Update, check_filter, identity
from onewrite.mongodb.request import Guarded, guard_insert, guard_record, guard_update, in_bson, in_transaction
from onewrite.mongodb.verdict import check_ledger, is_of_entity, is_too_large, may_be_ledger, unmatched, without_ledger
from onewrite.outcome import Applied, Entity, Outcome, Rejected

Writer = Literal["update_one", "find_one_and_update"]
Durability = Literal["majority", "acknowledged"]

# Each round after the second answers a concurrent delete.
_ROUNDS = 6
_LARGEST_DOCUMENT = 16 * 1024 * 1024
_LOOK_OPTIONS = ("session", "collation", "comment")


class _Flows:
    """What both classes do, without a client."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock

    def update(self, message: Message, query: Document, update: Update, native: Document, writer: Writer) -> Flow[Outcome]:
        return self._write(
            message, guard_update(self._ledger.attribute, self._entry(message), query, update, native), writer
        )

    def record(self, message: Message, query: Document, native: Document) -> Flow[Outcome]:
        check_filter(self._ledger.attribute, query)
        creates = "_id" in identity(query) and not in_transaction(native)
        guarded = guard_record(self._ledger.attribute, self._entry(message), query, {"upsert": creates, **native})
        return self._write(message, guarded, "update_one")

    def insert(self, message: Message, document: Document, native: Document) -> Flow[Outcome]:
        entry = self._entry(message)
        guarded = guard_insert(self._ledger.attribute, entry, document, native)
        entity = {"_id": document["_id"]}
        turn = 0
        while True:
            turn += 1
            raced: DuplicateKeyError | None = None
            if not _follows_gap(entry):  # such a message creates nothing
                raced = yield from self._create(guarded, entity, native)
                if raced is None:
                    return Applied(message)
            found = yield from self._look(entity, native)
            if found is not None or raced is None:
                return unmatched(self._ledger.attribute, entry, message, found)
            if turn == _ROUNDS:
                raise raced

    def seen(self, message: Message, query: Document, native: Document) -> Flow[Outcome]:
        check_filter(self._ledger.attribute, query)
        found = yield from self._look(identity(query), native)
        outcome = unmatched(self._ledger.attribute, self._entry(message), message, found)
        return Applied(message, outcome.entity) if isinstance(outcome, Rejected) else outcome

    def find(self, query: Document, native: Document) -> Flow[Entity | None]:
        found = yield Call("find_one", (query,), dict(native))
        return None if found is None else self.without_ledger(found)

    def explain(self, message: Message, query: Document, update: Update, native: Document) -> dict[str, Any]:
        guarded = guard_update(self._ledger.attribute, self._entry(message), query, update, native)
        return {"filter": guarded.filter, "update": guarded.update, "upsert": guarded.upsert, **guarded.native}

    def without_ledger(self, document: Document) -> Entity:
        return without_ledger(self._ledger.attribute, document)

    def _entry(self, message: Message) -> Entry:
        return in_bson(self._ledger.entry(message, self._clock()))

    def _write(self, message: Message, guarded: Guarded, writer: Writer) -> Flow[Outcome]:
        upsert, turn = guarded.upsert, 0
        raced: DuplicateKeyError | None = None
        while True:
            turn += 1
            lost: DuplicateKeyError | None = None
            try:
                reply = yield Call(writer, (guarded.filter, guarded.update), {"upsert": upsert, **guarded.native})
            except (OperationFailure, DocumentTooLarge) as error:
                lost = yield from self._failed(error, guarded, upsert=upsert)
            else:
                if _landed(writer, reply, upsert=upsert):
                    return Applied(message, self._entity(writer, reply))
            found = yield from self._look(guarded.entity, guarded.native)
            outcome = unmatched(self._ledger.attribute, guarded.entry, message, found)
            if not isinstance(outcome, Rejected):
                return outcome
            if lost is not None:
                raced, upsert = lost, False  # the entity is there, so this time it matches, or has a reason not to
            elif guarded.upsert and (found is None or not guarded.conditional):
                upsert = True  # it was deleted meanwhile, and maybe created again: nothing else could keep the message out
            elif turn > 1 or not _follows_gap(guarded.entry):
                return outcome  # else the gap that kept the message out may have been filled before the look
            if turn == _ROUNDS and raced is not None:
                raise raced

    def _entity(self, writer: Writer, reply: Any) -> Entity | None:
        return None if writer == "update_one" or reply is None else self.without_ledger(reply)

    def _failed(
        self, error: OperationFailure | DocumentTooLarge, guarded: Guarded, *, upsert: bool
    ) -> Flow[DuplicateKeyError]:
        """Raise the error, unless it may be that of one who lost the race to create the entity."""
        if not isinstance(error, DuplicateKeyError):
            yield from self._diagnose(error, guarded)
        elif upsert and is_of_entity(error, guarded.entity):
            return error  # no verdict: a duplicate gets this, and a fresh message that lost the race gets it too
        raise error

    def _create(self, document: Document, entity: Document, native: Document) -> Flow[DuplicateKeyError | None]:
        try:
            yield Call("insert_one", (document,), dict(native))
        except DuplicateKeyError as error:
            if is_of_entity(error, entity):
                return error
            raise
        except (OperationFailure, DocumentTooLarge) as error:
            if len(bson.encode(document)) > _LARGEST_DOCUMENT:  # the server's code for it, 2, is that of any bad value
                raise self._too_large(document) from error
            raise
        return None

    def _look(self, entity: Document, native: Document) -> Flow[Document | None]:
        options = {name: native[name] for name in _LOOK_OPTIONS if name in native}
        found: Document | None = yield Call("find_one", (entity,), options)
        return found

    def _diagnose(self, error: Exception, guarded: Guarded) -> Flow[None]:
        """Raise what the failure means for the ledger, if anything."""
        too_large = isinstance(error, DocumentTooLarge) or is_too_large(error)
        if in_transaction(guarded.native) or not (too_large or may_be_ledger(error)):
            return  # a transaction is aborted by now, and shows nothing any more
        found = (yield from self._look(guarded.entity, guarded.native)) or {}
        if too_large:
            raise self._too_large(found) from error
        check_ledger(self._ledger.attribute, guarded.entry, found)

    def _too_large(self, document: Document) -> EntityTooLarge:
        total, own = len(bson.encode(document)), len(bson.encode(self.without_ledger(document)))
        return EntityTooLarge(
            f"The entity would exceed MongoDB's {_LARGEST_DOCUMENT} bytes. It has {total} bytes, {total - own} of them its "
            "ledger's. It is unchanged, and will refuse every further message: split it, or give the ledger a shorter "
            "retention or digest=True."
        )


class GuardedCollection:
    """A MongoDB collection whose writes take effect once a message.

    Every call is pymongo's own with the message in front. The filter names one entity: by `_id`, or by fields that are given
    as plain values; write a business condition with an operator, as in `{"state": {"$eq": "new"}}`. `upsert=True` needs `_id`.

    Writes are acknowledged by a majority and journaled. Bound their waiting with `pymongo.timeout()`.
    `durability="acknowledged"` keeps the collection's own write concern instead. With `w=1` that loses the messages that the
    primary had acknowledged and not yet replicated when it failed: their effect and their mark vanish together, but the
    broker has been told that they are done.
    """

    def __init__(
        self,
        collection: Any,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = time.time,
        durability: Durability = "majority",
    ) -> None:
        self._collection = collection
        self._target = _durable(collection, ledger, durability)
        self._flows = _Flows(ledger, clock)

    def update_one(self, message: Message, filter: Document, update: Update, **native: Any) -> Outcome:
        """The guarded write. `update` is an operator document or a pipeline."""
        return run(self._flows.update(message, filter, update, native, "update_one"), self._target)

    def find_one_and_update(self, message: Message, filter: Document, update: Update, **native: Any) -> Outcome:
        """The guarded write, with the document, before or after as natively, in `Applied.entity`."""
        return run(self._flows.update(message, filter, update, native, "find_one_and_update"), self._target)

    def insert_one(self, message: Message, document: Document, **native: Any) -> Outcome:
        """Create only: a document that is already there is `Duplicate` or `Rejected`."""
        return run(self._flows.insert(message, document, native), self._target)

    def record(self, message: Message, filter: Document, **native: Any) -> Outcome:
        """Remember the message with no business change, in a new document if there is none (`upsert=False` forbids that)."""
        return run(self._flows.record(message, filter, native), self._target)

    def seen(self, message: Message, filter: Document, **native: Any) -> Outcome:
        """Read only: what an unconditional write would get now. A hint to skip costly work, not a guard."""
        return run(self._flows.seen(message, filter, native), self._target)

    def find_one(self, filter: Document, **native: Any) -> Entity | None:
        """The entity without its ledger, or None."""
        return run(self._flows.find(filter, native), self._collection)

    def without_ledger(self, document: Document) -> Entity:
        """The entity without its ledger, for a document that was read another way."""
        return self._flows.without_ledger(document)

    def explain(self, message: Message, filter: Document, update: Update, **native: Any) -> dict[str, Any]:
        """The arguments that `update_one` would send. Nothing is sent."""
        return self._flows.explain(message, filter, update, native)

    def replace_one(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a new document has no ledger."""
        raise _refusal("replace_one")

    def find_one_and_replace(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a new document has no ledger."""
        raise _refusal("find_one_and_replace")

    def update_many(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a message is guarded in one entity."""
        raise _refusal("update_many")


class AsyncGuardedCollection:
    """`GuardedCollection` for pymongo's `AsyncCollection`."""

    def __init__(
        self,
        collection: Any,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = time.time,
        durability: Durability = "majority",
    ) -> None:
        self._collection = collection
        self._target = _durable(collection, ledger, durability)
        self._flows = _Flows(ledger, clock)

    async def update_one(self, message: Message, filter: Document, update: Update, **native: Any) -> Outcome:
        """The guarded write. `update` is an operator document or a pipeline."""
        return await arun(self._flows.update(message, filter, update, native, "update_one"), self._target)

    async def find_one_and_update(self, message: Message, filter: Document, update: Update, **native: Any) -> Outcome:
        """The guarded write, with the document, before or after as natively, in `Applied.entity`."""
        return await arun(self._flows.update(message, filter, update, native, "find_one_and_update"), self._target)

    async def insert_one(self, message: Message, document: Document, **native: Any) -> Outcome:
        """Create only: a document that is already there is `Duplicate` or `Rejected`."""
        return await arun(self._flows.insert(message, document, native), self._target)

    async def record(self, message: Message, filter: Document, **native: Any) -> Outcome:
        """Remember the message with no business change, in a new document if there is none (`upsert=False` forbids that)."""
        return await arun(self._flows.record(message, filter, native), self._target)

    async def seen(self, message: Message, filter: Document, **native: Any) -> Outcome:
        """Read only: what an unconditional write would get now. A hint to skip costly work, not a guard."""
        return await arun(self._flows.seen(message, filter, native), self._target)

    async def find_one(self, filter: Document, **native: Any) -> Entity | None:
        """The entity without its ledger, or None."""
        return await arun(self._flows.find(filter, native), self._collection)

    def without_ledger(self, document: Document) -> Entity:
        """The entity without its ledger, for a document that was read another way."""
        return self._flows.without_ledger(document)

    def explain(self, message: Message, filter: Document, update: Update, **native: Any) -> dict[str, Any]:
        """The arguments that `update_one` would send. Nothing is sent."""
        return self._flows.explain(message, filter, update, native)

    async def replace_one(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a new document has no ledger."""
        raise _refusal("replace_one")

    async def find_one_and_replace(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a new document has no ledger."""
        raise _refusal("find_one_and_replace")

    async def update_many(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a message is guarded in one entity."""
        raise _refusal("update_many")


def _durable(collection: Any, ledger: object, durability: Durability) -> Any:
    if not callable(getattr(ledger, "entry", None)):
        raise ConfigurationError(f"{ledger!r} is no ledger: give SeenIds(), HighWaterMark() or InSequence().")
    if "." in getattr(ledger, "attribute", ""):
        raise ConfigurationError("MongoDB reads a dot in attribute= as a path: name a top-level field.")
    concern: WriteConcern = collection.write_concern
    if concern.document.get("w") == 0:
        raise ConfigurationError("The collection writes with w=0: the server would tell no outcome. Leave w out.")
    if durability == "acknowledged":
        return collection.with_options(read_preference=ReadPreference.PRIMARY)
    if durability != "majority":
        raise ConfigurationError(f'durability={durability!r}: give "majority", or "acknowledged" to risk a failover.')
    return collection.with_options(
        write_concern=WriteConcern("majority", j=True, wtimeout=concern.document.get("wtimeout")),
        read_concern=ReadConcern("majority"),
        read_preference=ReadPreference.PRIMARY,
    )


def _refusal(method: str) -> InvalidUpdate:
    if method == "update_many":
        return InvalidUpdate("update_many would put one mark into many entities: guard each by an update_one of its own.")
    return InvalidUpdate(f"{method} would erase the ledger: use update_one with $set and $unset.")


def _follows_gap(entry: Entry) -> bool:
    return isinstance(entry, Advance) and entry.rule == "next"


def _landed(writer: Writer, reply: Any, *, upsert: bool) -> bool:
    """Did the write match or create? Not `did_upsert` or `modified_count`: mongomock has another idea of the first."""
    if writer == "find_one_and_update":
        return reply is not None or upsert  # with upsert, None is a new document's state before
    return bool(reply.matched_count == 1 or reply.upserted_id is not None)
