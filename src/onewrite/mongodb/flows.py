"""What a guarded collection does, step by step, without a client: the flows that both classes run.

A write that matches nothing needs a second look. It reads what a majority holds, from the primary, because "duplicate" lets
the broker forget the message: a mark that a failover can take back is no reason for that. The write that matched nothing has
by then waited for the majority itself, so the look sees whatever stood in its way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, NoReturn, cast

import bson
from pymongo.errors import DocumentTooLarge, DuplicateKeyError, OperationFailure, PyMongoError

from onewrite.clock import checked_clock, random_name
from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidUpdate
from onewrite.event import (
    Emission,
    Outbox,
    check_ledgerless,
    emission,
    emitter_of,
    nothing_emitted,
)
from onewrite.flow import Call, Flow, check_awaited
from onewrite.label import OUTBOX, STEPS, TOMBSTONE
from onewrite.ledgers import NO_LEDGER, Ledger, check_ledger
from onewrite.ledgers.entry import Entry
from onewrite.message import Message
from onewrite.missing import accepting, asked_of
from onewrite.mongodb.durability import Durability, durable
from onewrite.mongodb.verdict import (
    LARGEST_DOCUMENT,
    check_emits,
    is_of_entity,
    is_race,
    is_too_large,
    kept_alive,
    may_be_ledger,
    next_try,
    of_creation,
    says_nothing_was_done,
    steps_of,
    unmatched,
)
from onewrite.mongodb.writing.expression import Update, check_filter, identity, root
from onewrite.mongodb.writing.layout import Document, held_of, lookup, without_ledger
from onewrite.mongodb.writing.projection import check_projection, judged_by, looked_at
from onewrite.mongodb.writing.request import (
    Guarded,
    check_ids_are_unique,
    check_indexes,
    creates_by_record,
    guard_insert,
    guard_record,
    guard_update,
    id_index,
    in_transaction,
    keeps_text,
)
from onewrite.mongodb.writing.same import canonical, codec_of
from onewrite.outcome import Applied, Entity, Outcome, Rejected, Unmet
from onewrite.step import step_mark
from onewrite.tombstone import Tombstones, check_store_tombstones
from onewrite.too_large import Size, too_large
from onewrite.watch import Watch

Writer = Literal["update_one", "find_one_and_update"]

# Each round after the second answers a concurrent delete.
ROUNDS = 6
_LOOK_OPTIONS = ("session", "collation", "comment")


class Flows:
    """What both classes do, without a client."""

    def __init__(
        self,
        collection: Any,
        ledger: Ledger | None,
        clock: Callable[[], float],
        fields: Sequence[str],
        durability: Durability,
        *,
        attempts: Callable[[], str] = random_name,
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
        awaited: bool,
    ) -> None:
        check_ledgerless(ledger, outbox)
        self._ledger: Ledger = NO_LEDGER if ledger is None else ledger
        check_ledger(self._ledger)
        self._emitter = emitter_of(outbox, self._ledger.terms.attribute)
        check_awaited(collection, "update_one", awaited=awaited)
        self.target = durable(collection, durability)
        self.awaited, self.clock, self.attempts = awaited, checked_clock(clock), attempts
        self._fields, self._indexes = _checked(fields), cast("Document", {})
        self._outbox, self._tombstones = outbox, tombstones
        self._nothing = None if outbox is None else nothing_emitted(outbox)
        self._whose = getattr(collection, "full_name", "")
        self._watch = Watch(self._ledger.skew)
        check_store_tombstones(tombstones, self._has)

    @property
    def _key(self) -> tuple[str, ...]:
        """The fields that name an entity, and stay in what is left of it."""
        return tuple(dict.fromkeys(["_id", *map(root, self._fields)]))

    def _has(self, name: str) -> bool:
        """Does the store need this field for itself?"""
        return name in self._key or not self.without_ledger({name: 0})

    def update(
        self,
        message: Message,
        query: Document,
        update: Update,
        native: Document,
        writer: Writer,
        *,
        emit: object = None,
    ) -> Flow[Outcome]:
        native, missing_ok = asked_of(native)
        now = self.clock()
        entry = self._ledger.entry(message, now)
        emitted = self._nothing if emit is None else self._emitted(message, emit, now)
        guarded = guard_update(entry, self._fields, query, update, native, steps=self._steps(message), emission=emitted)
        flow = self._write(message, now, guarded, writer)
        return accepting(flow, counts=entry.own.counts) if missing_ok else flow

    def record(self, message: Message, query: Document, native: Document, emit: object = None) -> Flow[Outcome]:
        native, missing_ok = asked_of(native)
        now = self.clock()
        entry, emitted = self._ledger.entry(message, now), self._emitted(message, emit, now)
        check_filter(entry.terms, query)
        creates = creates_by_record(query, self._fields, native)
        options, steps = {"upsert": creates, **native}, self._steps(message)
        guarded = guard_record(entry, self._fields, query, options, steps=steps, emission=emitted)
        flow = self._write(message, now, guarded, "update_one")
        return accepting(flow, counts=entry.own.counts) if missing_ok else flow

    def insert(self, message: Message, document: Document, native: Document, emit: object = None) -> Flow[Outcome]:
        now = self.clock()
        entry = self._ledger.entry(message, now)
        emitted = self._emitted(message, emit, now)
        guarded = guard_insert(entry, document, native, emitted)
        yield from self._check_collection(entry, inserts=True)
        entity = {"_id": document["_id"]}
        if entry.follows_gap:  # such a message creates nothing
            there = yield from self._look(entity, native)
            outcome = of_creation(self._unmatched(entry, message, entity, there, emitted), entity, document)
            return (yield from self._settled(outcome, entry, entity, native))
        raced: DuplicateKeyError | None = None
        for _ in range(ROUNDS):
            created = yield from self._create(message, guarded, entity, native)
            if isinstance(created, Applied):
                return created
            raced, found = created
            if found is not None:
                return (yield from self._met(message, entry, found, native, inserted=document, emission=emitted))
            yield from self._wait(entity, native)  # it was deleted meanwhile, or no majority has it yet
        raise cast("DuplicateKeyError", raced)

    def _met(
        self,
        message: Message,
        entry: Entry,
        found: Document,
        native: Document,
        *,
        inserted: Document,
        emission: Emission | None,
    ) -> Flow[Outcome]:
        """What an insert means that met the entity."""
        entity = {"_id": found["_id"]}
        outcome = self._unmatched(entry, message, entity, found, emission)
        if isinstance(outcome, Rejected):
            yield from self._wait(entity, native)
            outcome = self._unmatched(entry, message, entity, (yield from self._look(entity, native)), emission)
        return (yield from self._settled(of_creation(outcome, entity, inserted), entry, entity, native))

    def seen(self, message: Message, query: Document, native: Document) -> Flow[Outcome]:
        entry = self._entry(message)
        check_filter(entry.terms, query)
        for name in native:
            if name not in _LOOK_OPTIONS:
                raise InvalidUpdate(
                    f"seen needs the whole entity, as it is now, to find the ledger in it: leave out {name}."
                )
        yield from self._check_collection(entry)
        entity = identity(query, self._fields)
        found = yield from self._look(entity, native)
        outcome = self._unmatched(entry, message, entity, found)
        return Applied(message, outcome.entity) if isinstance(outcome, Unmet) else outcome

    def find(self, query: Document, native: Document) -> Flow[Entity | None]:
        if isinstance(cast("object", query), Message):
            raise InvalidUpdate("find_one reads an entity whatever the message: give it the filter alone.")
        if native.get("projection") is not None:
            check_projection(self._ledger.terms, native["projection"])
        named = query if isinstance(cast("object", query), Mapping) else {"_id": query}
        check_filter(self._ledger.terms, named)
        alive = {**named, TOMBSTONE: {"$exists": False}}
        found = yield Call("find_one", (alive,), dict(native))
        return None if found is None else self._without_ledger(found)

    def canonical(self, entity: Document) -> Hashable:
        """Equal for two values that name one document."""
        return canonical(entity, codec_of(self.target))

    def without_ledger(self, document: Document) -> Entity:
        return without_ledger(self._ledger.terms, document)

    def _emitted(self, message: Message, emit: object, now: float) -> Emission | None:
        return (
            self._nothing
            if emit is None
            else emission(self._emitter, message, emit, now, f"{self._whose} {self.attempts()}")
        )

    def _unmatched(
        self,
        entry: Entry,
        message: Message,
        entity: Document,
        document: Document | None,
        emission: Emission | None = None,
    ) -> Outcome:
        return unmatched(entry, message, document, emission or self._nothing, now=self.clock(), entity_key=entity)

    def _step(self, message: Message, ledger: str = "") -> str:
        """The path at which a step of the message would be."""
        return f"{STEPS}.{step_mark(ledger or self._ledger.attribute, message).hex()}"

    def _steps(self, message: Message) -> tuple[str, ...]:
        """The same under this ledger, and under each in its also=."""
        return tuple([self._step(message, ledger) for ledger in self._ledger.terms.attributes])

    def _entry(self, message: Message) -> Entry:
        return self._ledger.entry(message, self.clock())

    def _write(self, message: Message, now: float, guarded: Guarded, writer: Writer) -> Flow[Outcome]:
        if self._fields or keeps_text(guarded.entry):
            yield from self._check_collection(guarded.entry)
        upsert = guarded.upsert
        failure: Exception | None = None
        for turn in range(1, ROUNDS + 1):
            tried = yield from self._try(message, now, guarded, writer, upsert=upsert)
            if isinstance(tried, Applied):
                return tried
            outcome, facing = yield from self._judged(message, guarded, tried)
            if not isinstance(outcome, Unmet):
                return outcome
            exists, fits = isinstance(outcome, Rejected), facing is guarded
            following = next_try(guarded, turn, failed=tried is not None, exists=exists, fits=fits)
            if following is None and exists and (yield from self._holds(guarded)):
                following = False  # the entity was made between the write and the look
            if following is None:
                return (yield from self._settled(outcome, guarded.entry, guarded.entity, guarded.native))
            guarded, upsert, failure = facing, following, tried or failure
        if failure is None:  # others have written to the entity or deleted it all the time
            return Rejected(message, settled=False)
        raise failure

    def _try(
        self, message: Message, now: float, guarded: Guarded, writer: Writer, *, upsert: bool
    ) -> Flow[Applied | Exception | None]:
        """Write once. None: it matched nothing. An exception: it matched nothing, and could not create either."""
        try:
            reply = yield Call(writer, (guarded.filter, guarded.update), {"upsert": upsert, **guarded.native})
        except (OperationFailure, DocumentTooLarge) as error:
            # An upsert that matches nothing tries to create, which may fail in ways of its own: no verdict yet.
            if not upsert or not says_nothing_was_done(error):
                yield from self._raise(error, guarded)
            return error
        return self._applied(message, now, writer, reply) if landed(writer, reply, upsert=upsert) else None

    def _judged(self, message: Message, guarded: Guarded, failure: Exception | None) -> Flow[tuple[Outcome, Guarded]]:
        """Why nothing was written, as the entity shows it, and the write as it fits; or the failure to create, where there is none."""
        found = yield from self._look_after(failure, guarded)
        now = self.clock()
        outcome = unmatched(guarded.entry, message, found, guarded.emission, now=now, entity_key=guarded.entity)
        if guarded.deletes:
            outcome = kept_alive(outcome, found, now)
        if failure is None or found is not None or not isinstance(outcome, Unmet) or is_race(failure, guarded):
            return outcome, guarded.facing(found) if isinstance(outcome, Unmet) else guarded
        return (yield from self._raise(failure, guarded))

    def _applied(self, message: Message, now: float, writer: Writer, reply: Any) -> Applied:
        if writer == "find_one_and_update":
            return Applied(message, None if reply is None else self._without_ledger(reply))
        if self._watch.wants_clock(now) and (time := reply.raw_result.get("operationTime")):
            self._watch.clock(now, time.time)
        return Applied(message, response=reply)

    def _settled(self, outcome: Outcome, entry: Entry, entity: Document, native: Document) -> Flow[Outcome]:
        """Move the mark over a message that the caller's condition refused, where those behind it wait for that."""
        message = outcome.message
        if not isinstance(outcome, Rejected) or not outcome.settled or not entry.own.counts:
            return outcome
        options = {name: native[name] for name in ("session", "comment") if name in native}
        guarded = guard_record(entry, self._fields, entity, options, steps=self._steps(message))
        reply = yield Call("update_one", (guarded.filter, guarded.update), {"upsert": False, **options})
        if landed("update_one", reply, upsert=False):
            return outcome
        found = self._unmatched(entry, message, entity, (yield from self._look(entity, native, entry)))
        return Rejected(message, found.entity, settled=False) if isinstance(found, Rejected) else found

    def _create(
        self, message: Message, document: Document, entity: Document, native: Document
    ) -> Flow[Applied | tuple[DuplicateKeyError, Document | None]]:
        """Create the entity, or say what stood in the way and what is there."""
        raced: DuplicateKeyError
        try:
            reply = yield Call("insert_one", (document,), dict(native))
        except DuplicateKeyError as error:
            if not is_of_entity(error, entity):
                raise
            raced = error
        except (OperationFailure, DocumentTooLarge) as error:
            if len(bson.encode(document)) > LARGEST_DOCUMENT:  # the server's code for it, 2, is that of any bad value
                raise self._too_large(document) from error
            raise
        else:
            return Applied(message, response=reply)
        return raced, (yield from self._look(entity, native))

    def _wait(self, entity: Document, native: Document) -> Flow[None]:
        """Wait until what stood in the way is safe.

        A duplicate key hides whether a majority has what it met: pymongo drops the write-concern error beside it. A write
        that matches nothing waits for the same, and says so.
        """
        nothing: Document = {"$and": [entity, {"_id": {"$exists": False}}]}
        options = {name: native[name] for name in ("session", "comment") if name in native}
        yield Call("update_one", (nothing, {"$unset": {TOMBSTONE: ""}}), options)

    def _look(self, entity: Document, native: Document, entry: Entry | None = None) -> Flow[Document | None]:
        """The document; with an `entry`, as much as its verdict needs and the caller's projection shows."""
        options = {name: native[name] for name in _LOOK_OPTIONS if name in native}
        projection = None if entry is None else native.get("projection")
        if entry is not None and projection is not None:
            options["projection"] = looked_at(projection, entry) or None  # to find_one, an empty one is another than none
        found: Document | None = yield Call("find_one", (entity,), options)
        if found is not None and entry is not None and projection is not None and looked_at(projection, entry) is None:
            shown: Document = (yield Call("find_one", (entity,), {**options, "projection": projection})) or {}
            found = {**shown, **{name: found[name] for name in judged_by(entry) if name in found}}
        if found is not None:
            self._look_at_ledger(found)
        return found

    def _holds(self, guarded: Guarded) -> Flow[bool]:
        """Does the caller's own condition hold by now? Then something else than the condition has refused the write."""
        if not guarded.conditional:
            return True
        options = {name: guarded.native[name] for name in (*_LOOK_OPTIONS, "let") if name in guarded.native}
        found = yield Call("find_one", (guarded.query,), {**options, "projection": {"_id": 1}})
        return found is not None

    def _look_after(self, failure: Exception | None, guarded: Guarded) -> Flow[Document | None]:
        """Look, and where that fails too, let the write's own failure be the one that is seen."""
        try:
            return (yield from self._look(guarded.entity, guarded.native, guarded.entry))
        except PyMongoError:
            if failure is None or is_race(failure, guarded):
                raise
            raise failure from None

    def _raise(self, error: Exception, guarded: Guarded) -> Flow[NoReturn]:
        """Raise what the failure means for the ledger, or the failure itself."""
        too_large = isinstance(error, DocumentTooLarge) or is_too_large(error)
        if in_transaction(guarded.native) or not (too_large or may_be_ledger(error)):
            raise error  # a transaction is aborted by now, and shows nothing any more
        found = (yield from self._look(guarded.entity, guarded.native)) or {}
        if too_large:
            raise self._too_large(found, guarded.emission) from error
        guarded.entry.judge(Message("unknown"), lookup(found))  # raises where something else stands in the ledger's place
        check_emits(guarded.emission, found)
        steps_of(found)
        raise error

    def _check_collection(self, entry: Entry, *, inserts: bool = False) -> Flow[None]:
        """Can this collection take two entities for one, or one for two? It is asked once, where that matters."""
        text = keeps_text(entry)
        if not (inserts or self._fields or text):
            return
        indexes = self._indexes or (yield from self._read_indexes(inserts=inserts))
        check_indexes(indexes, self._fields, text=text)
        if id_index(indexes) is not None:  # else the collection is not there yet, and may be created with a collation
            self._indexes = indexes

    def _read_indexes(self, *, inserts: bool) -> Flow[Document]:
        indexes: Document = yield Call("index_information")
        if inserts and id_index(indexes) is None:
            # A collection that is not there has no index either. The insert creates it, with an index on _id.
            names: Sequence[str] = yield Call("database.list_collection_names")
            if self.target.name in names:
                indexes = yield Call("index_information")  # another may have created it between the first two requests
                check_ids_are_unique(indexes)
        return indexes

    def _without_ledger(self, document: Document) -> Entity:
        self._look_at_ledger(document)
        return self.without_ledger(document)

    def _look_at_ledger(self, document: Document) -> None:
        held = held_of(self._ledger.terms, document)
        self._watch.ledger(len(bson.encode(held.fields)), held.sources)
        self._watch.numbers(held.tags)

    def _too_large(self, document: Document, adds: Emission | None = None) -> EntityTooLarge:
        """`adds`: what the write would have added to the document."""
        total, own = len(bson.encode(document)), len(bson.encode(self.without_ledger(document)))
        empty = len(bson.encode({}))
        outbox = len(bson.encode({name: document[name] for name in OUTBOX if name in document})) - empty
        emitted = len(bson.encode({"": [*adds.events]})) if adds is not None and adds.events else 0
        size = Size(total, own, outbox, emitted)
        return too_large(f"MongoDB's {LARGEST_DOCUMENT} bytes", size, self._ledger.remedy)


def _checked(fields: object) -> tuple[str, ...]:
    if (
        isinstance(fields, str)
        or not isinstance(fields, Sequence)
        or not all(isinstance(field, str) for field in cast("Sequence[object]", fields))
    ):
        raise ConfigurationError(f'key={fields!r}: give the names of the fields that name one entity, as in ("email",).')
    return tuple(cast("Sequence[str]", fields))


def landed(writer: Writer, reply: Any, *, upsert: bool) -> bool:
    """Did the write match a document, or create one?"""
    if writer == "find_one_and_update":
        return reply is not None or upsert  # with upsert, None is a new document's state before
    return bool(reply.matched_count == 1 or reply.upserted_id is not None)
