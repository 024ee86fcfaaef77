"""The flows of a guarded collection, which both of its classes run. A flow yields its requests, and doesn't know the client.

If a write matches nothing, a read finds the reason. It reads majority-committed data from the primary. After a `Duplicate`, the
broker forgets the message, and a failover can undo a mark that no majority has. The write has already waited for the majority,
so the read sees the mark that refused it.

A lost response needs no code here. pymongo retries the write under the same number, and the server repeats its first response.
If pymongo gives up, its error is raised, and the redelivery is a `Duplicate`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, NoReturn, cast

from bson import BSON
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import (
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern

from onewrite.core.clock import random_name
from onewrite.core.effect import Effect
from onewrite.core.engine import Engine, FinalWrite, Landed, Native, Refusal
from onewrite.core.features.effects import Claim, finish
from onewrite.core.features.event import Outbox, make_emitter
from onewrite.core.features.tombstone import Tombstones, check_store_tombstones
from onewrite.core.flow import (
    MISSING_OK,
    NOTHING_FINAL,
    REJECTED_OK,
    Call,
    Do,
    Flow,
    split_final_refusals,
)
from onewrite.core.judging import check_emits, judge, judge_creation
from onewrite.core.label import OUTBOX, TOMBSTONE
from onewrite.core.ledgers import Ledger, check_ledger
from onewrite.core.ledgers.entry import Entry, check_message
from onewrite.core.ledgers.seen_ids import hash_message
from onewrite.core.pipeline import MAX_ATTEMPTS, make_write, send_write
from onewrite.core.values import copy_value
from onewrite.core.write import NO_EFFECT, EffectPart, Emission, Finishes, Image, Size, Write, make_too_large_error
from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.dialect import (
    GuardedUpdate,
    build_insert,
    build_update,
    check_marks,
    check_not_in_transaction,
    is_creatable_by_record,
    is_in_transaction,
    locate_effect,
)
from onewrite.mongodb.expression import (
    Update,
    check_filter,
    check_projection,
    check_update,
    find_root,
    has_conditions,
    read_entity_key,
)
from onewrite.mongodb.layout import (
    Document,
    canonical,
    measure_size,
    read_codec,
    read_image,
    read_raw,
    set_lazy_codec,
    without_ledger,
)
from onewrite.mongodb.native import FindOneAndUpdateArguments, UpdateOneArguments
from onewrite.mongodb.settings import (
    check_collation,
    check_id_index,
    check_indexes,
    check_refusal,
    find_id_index,
    has_text_marks,
)
from onewrite.outcome import Entity, Outcome, Rejected, Unmet
from onewrite.stores import check_awaited

Writer = Literal["update_one", "find_one_and_update"]

_READ_OPTIONS = ("session", "collation", "comment")
# Measured on MongoDB 6: above this number, the server's cost per message rises again, because every mark and every effect is a
# separate condition. Also, if one message is refused, all of them are judged.
_MAX_MESSAGES = 100
# Options that only find_one_and_update accepts.
_RETURN_OPTIONS = frozenset({"return_document", "maxTimeMS", "bypassDocumentValidation"})
# pymongo's other methods reject unknown arguments themselves.
_ACCEPTED_ARGUMENTS = FindOneAndUpdateArguments.__required_keys__ | FindOneAndUpdateArguments.__optional_keys__


class Flows(Engine):
    """A guarded collection without its client: the flows of its methods, and its requests."""

    final_write = FinalWrite(
        "update_one",
        UpdateOneArguments.__required_keys__ | UpdateOneArguments.__optional_keys__ | {"update", "emit"},
        '{"update": {"$set": {"charge": charge}}}',
    )
    has_token = False
    entity_argument = "filter"
    too_much = (EntityTooLarge, DocumentTooLarge)  # DocumentTooLarge in a transaction, if nothing was sent

    def __init__(
        self,
        collection: Any,
        ledger: Ledger,
        clock: Callable[[], float],
        fields: Sequence[str],
        durability: Durability,
        *,
        name_call: Callable[[], str] = random_name,
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
        is_async: bool,
    ) -> None:
        check_awaited(collection, "update_one", is_async=is_async)
        self.fields: tuple[str, ...] = _read_fields(fields)  # before the engine's constructor, because `is_taken` reads them
        self._indexes: Document = {}
        check_ledger(ledger)
        super().__init__(ledger, clock, name_call, emitter=make_emitter(outbox, ledger.terms.attribute), is_async=is_async)
        check_store_tombstones(tombstones, self.is_taken)
        self.tombstones = tombstones
        self._codec, self.full_name = read_codec(collection), getattr(collection, "full_name", "")
        self.target = set_lazy_codec(make_durable(collection, durability), self._codec)
        self.has_checked_unique_indexes = False  # whether a check found that no unique index would refuse a second tombstone

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields that identify an entity. They stay in its tombstone."""
        return tuple(dict.fromkeys(["_id", *map(find_root, self.fields)]))

    # --- the methods ---------------------------------------------------------------------------------------------------

    def write(
        self,
        message: Message,
        filter: Document,
        update: Update,
        *,
        writer: Writer,
        emit: object = None,
        finishes: Claim | None = None,
        **options: Any,
    ) -> Flow[Outcome]:
        """Write the message's change with an update. With `finishes`, the write also ends that effect."""
        if finishes is not None:
            arguments = {"filter": filter, "update": update, **options}
            return finish(self, message, arguments, finishes, emit=emit, attempt=partial(self.make_attempt, writer=writer))
        query, native, final = filter, cast("Native", options), NOTHING_FINAL
        if self.is_async:  # the caller can change its arguments while the write waits
            query, update, native = copy_value(query), copy_value(update), _copy_options(native)
        if MISSING_OK in native or REJECTED_OK in native:
            native, final = split_final_refusals(native)
        if type(message) is not Message:
            check_message(message)
        # Check the update before the filter. If the caller swapped them, this error is more useful than a missing key.
        check_update(self.ledger.terms, self.fields, update)
        write = make_write(self, (message,), read_entity_key(query, self.fields, self.ledger.terms), emit=emit)
        request = build_update(write, query, update, native)
        attempt = CollectionAttempt(self, write, request, writer, request.upsert)
        return send_write(attempt, final)

    def remember(
        self,
        message: Message,
        filter: Document,
        *,
        emit: object = None,
        finishes: Claim | None = None,
        **options: Any,
    ) -> Flow[Outcome]:
        """Remember the message without a business change. Create a missing entity, unless the caller's options or filter prevent that."""
        if "update" in options:
            raise InvalidUpdate("remember changes only the ledger. For a business change, use update_one.")
        if finishes is not None:
            return finish(self, message, {"filter": filter, **options}, finishes, emit=emit)
        check_message(message)
        native, final = split_final_refusals(self.keep({"filter": filter, **options}))
        write = make_write(self, (message,), self.read_key(native), emit=emit)
        native = {"upsert": is_creatable_by_record(native["filter"], self.fields, native), **native}
        return send_write(self.make_attempt(write, native), final)

    def insert_one(self, message: Message, document: Document, *, emit: object = None, **options: Any) -> Flow[Outcome]:
        """Create the document with the message's mark."""
        if self.is_async:
            document, options = copy_value(document), _copy_options(options)
        native, final = split_final_refusals(options)
        write = make_write(self, (message,), {}, emit=emit)
        new_document = build_insert(write, document, native)
        yield from self.check_collection(write.entry, inserts=True)
        write = write._replace(key={"_id": document["_id"]})
        return (yield from send_write(InsertAttempt(self, write, document, new_document, native), final))

    def find_one(self, filter: Document, **native: Any) -> Flow[Entity | None]:
        """Return the entity without its ledger, or None if it doesn't exist or was deleted."""
        if isinstance(cast("object", filter), Message):
            raise InvalidUpdate("find_one doesn't take a message. Pass only the filter.")
        if native.get("projection") is not None:
            check_projection(self.ledger.terms, native["projection"])
        query = filter if isinstance(cast("object", filter), Mapping) else {"_id": filter}  # like pymongo's find_one
        check_filter(self.ledger.terms, query)
        document = yield Call("find_one", ({**query, TOMBSTONE: {"$exists": False}},), native)
        return None if document is None else self.without_ledger(document)

    # --- the engine's interface ----------------------------------------------------------------------------------------

    def is_taken(self, name: str) -> bool:
        return name in self.key_fields or not self.without_ledger({name: 0})

    def keep(self, native: Native) -> Native:
        return _copy_options(native) if self.is_async else native

    def read_key(self, native: Native) -> Document:
        return read_entity_key(native["filter"], self.fields, self.ledger.terms)

    def canonical(self, key: Document) -> Hashable:
        return canonical(key, self._codec)

    def make_attempt(self, write: Write, native: Native, writer: Writer = "update_one") -> CollectionAttempt:
        """Return the update with these arguments, ready to be sent. Raise if it could be refused although it finishes an effect."""
        options = {name: value for name, value in native.items() if name not in ("filter", "update")}
        if "update" in native:
            check_update(self.ledger.terms, self.fields, native["update"])
        request = build_update(write, native["filter"], native.get("update"), options)
        attempt = CollectionAttempt(self, write, request, writer, request.upsert)
        if isinstance(write.effect, Finishes) and not write.effect.is_unsent and (request.upsert or attempt.is_conditional):
            raise InvalidUpdate(
                "A write that finishes an effect can't have a condition or create the entity, because a refusal would leave the effect "
                "open. Pass a filter that only identifies the entity, and pass the condition to begin_effect."
            )
        return attempt

    def make_batch_attempt(self, write: Write, native: Native) -> CollectionAttempt:
        """Return the update for several messages, or the write that only remembers them, if the arguments contain no update."""
        arguments = dict(native)
        if arguments.get("update") is None:
            arguments.pop("update", None)
            arguments = {"upsert": is_creatable_by_record(arguments["filter"], self.fields, arguments), **arguments}
        writer: Writer = "find_one_and_update" if _RETURN_OPTIONS & arguments.keys() else "update_one"
        return self.make_attempt(write, arguments, writer)

    def limit_messages(self, entry: Entry) -> int:  # noqa: ARG002  # the same for every ledger
        return _MAX_MESSAGES

    def check_marks(self, entry: Entry) -> None:
        check_marks(entry)

    def make_begin_attempt(self, write: Write, native: Native) -> CollectionAttempt:
        """Return the begin of an effect. Raise if the call would change anything else, or if other workers couldn't see the effect."""
        if "update" in native:
            raise InvalidUpdate("begin_effect changes only the effect. Pass update to the write that finishes the effect.")
        if native.get("upsert"):
            raise InvalidUpdate("begin_effect can't create an entity. Create it before, and omit upsert.")
        check_not_in_transaction(
            native,
            "begin_effect",
            "Other workers wouldn't see the effect until the commit. Call begin_effect before the transaction.",
        )
        return self.make_attempt(write, native)

    def change_effect(
        self, write: Write, native: Native, ledger: str, fence: str, change: Effect | Document
    ) -> CollectionAttempt:
        """Return the update of the effect's field. Its fence is the only condition."""
        path = locate_effect(hash_message(write.message, ledger))
        if isinstance(change, Effect):
            fields = {path: change.as_fields()}
        else:
            fields = {f"{path}.{name}": value for name, value in change.items()}
        options = {name: value for name, value in native.items() if name != "filter"}
        query = {**write.key, f"{path}.fence": fence}
        update = {"$set": fields}
        request = GuardedUpdate(query, update, upsert=False, native=options, query=native["filter"], change={})
        return CollectionAttempt(self, write, request)

    def read(self, key: Document, native: Native, entry: Entry | None = None) -> Flow[Image]:
        """Read the current document. With an `entry`, raise if its marks or the key could be confused in this collection."""
        options = {name: value for name, value in native.items() if name != "filter"}
        if unknown := [name for name in options if name not in _READ_OPTIONS]:
            raise InvalidUpdate(f"This call reads the whole current entity. Omit {', '.join(unknown)}.")
        check_collation(options.get("collation"), key, text=entry is not None and has_text_marks(entry))
        if entry is not None:
            yield from self.check_collection(entry)
        return self.read_image((yield from self.look(key, options)))

    # --- one write and its refusal -----------------------------------------------------------------------------------

    def make_record_attempt(self, write: Write, native: Document) -> CollectionAttempt:
        """Return the write that remembers the message and changes nothing else."""
        options = {name: native[name] for name in ("session", "comment") if name in native}
        parts = write._replace(emission=None, effect=NO_EFFECT, burial=None)
        return CollectionAttempt(self, parts, build_update(parts, write.key, None, options))

    def wait_for_majority(self, entity: Document, native: Document) -> Flow[None]:
        """Wait until a majority has the document whose key refused an insert.

        The duplicate-key error doesn't show that, because pymongo drops the accompanying write-concern error. A write that matches
        nothing also waits for the majority, and raises the write-concern error.
        """
        no_match: Document = {"$and": [entity, {"_id": {"$exists": False}}]}
        options = {name: native[name] for name in ("session", "comment") if name in native}
        yield Call("update_one", (no_match, {"$unset": {TOMBSTONE: ""}}), options)

    # --- reads ---------------------------------------------------------------------------------------------------------

    def look(self, entity: Document, native: Document) -> Flow[Document | None]:
        """Return the document as the client reads it. A stand-in returns Python values, which are returned unchanged."""
        options = {name: native[name] for name in _READ_OPTIONS if name in native}
        document: Document | None = yield Call("find_one", (entity,), options)
        return read_raw(self.ledger.terms, document, self._codec) if isinstance(document, RawBSONDocument) else document

    def read_entity(self, response: Document) -> Entity | None:
        """Return the document in a write's response as the client reads it, or None if the client can't read it."""
        try:
            document = BSON(response.raw).decode(self._codec) if isinstance(response, RawBSONDocument) else response
            self.watch.weigh(document)
            return self.without_ledger(document)
        except Exception:  # a client's own types can raise any error
            return None

    def read_image(self, document: Document | None) -> Image:
        image = read_image(self.ledger.terms, document)
        self.watch.weigh(image.fields)
        return image

    def check_collection(self, entry: Entry, *, inserts: bool = False) -> Flow[None]:
        """Raise if the collection could confuse two entities or split one into two. Read its indexes once, and only if needed."""
        text = has_text_marks(entry)
        if not (inserts or self.fields or text):
            return
        indexes = self._indexes or (yield from self.read_indexes(inserts=inserts))
        check_indexes(indexes, self.fields, text=text)
        if find_id_index(indexes) is not None:  # otherwise, it doesn't exist yet, and might be created with a collation
            self._indexes = indexes

    def read_indexes(self, *, inserts: bool) -> Flow[Document]:
        """Return the indexes by name. Before an insert, raise if an existing collection has no index on `_id`."""
        indexes = yield from self._list_indexes()
        if inserts and find_id_index(indexes) is None:
            # A missing collection has no indexes either. The insert creates it with an index on _id.
            names: Sequence[str] = yield Call("database.list_collection_names")
            if self.target.name in names:
                indexes = yield from self._list_indexes()  # it might have been created between the first two requests
                check_id_index(indexes)
        return indexes

    def _list_indexes(self) -> Flow[Document]:
        """Return the indexes by name, in the form of pymongo's `index_information`."""
        try:
            return cast("Document", (yield Call("index_information")))
        except InvalidBSON:  # the condition of a partial index can contain any value
            # A collection has at most 64 indexes, and a first batch has room for 101.
            options = {"codec_options": self.target.codec_options}
            response = yield Do(self.target.database.command, ({"listIndexes": self.target.name},), options, sends=True)
            return {index["name"]: {**index, "key": [*index["key"].items()]} for index in response["cursor"]["firstBatch"]}

    def without_ledger(self, document: Document) -> Entity:
        return without_ledger(self.ledger.terms, document)

    def measure_size(self, document: Document) -> int:
        return measure_size(document, self._codec)

    def is_too_large(self, document: Document) -> bool:
        """Whether an insert was refused for its size. The server's error code, 2, doesn't show that, because it means any bad value."""
        return self.measure_size(document) > MAX_DOCUMENT_BYTES

    def make_too_large_error(self, document: Document, adds: Emission | None = None) -> EntityTooLarge:
        """Return the error for a document that would be too large. `adds` contains the events that the write would have added."""
        # A missing document has no bytes, whereas an empty one has five.
        total, caller = [self.measure_size(fields) if fields else 0 for fields in (document, self.without_ledger(document))]
        outbox = self.measure_size({name: document[name] for name in OUTBOX if name in document}) - self.measure_size({})
        new_events = self.measure_size({"": adds.events}) if adds is not None and adds.events else 0
        size = Size(total, caller, outbox, new_events)
        return make_too_large_error(f"MongoDB's {MAX_DOCUMENT_BYTES} bytes", size, self.ledger.remedy)


class CollectionAttempt(NamedTuple):
    """A ready-to-send write of a guarded collection."""

    flows: Flows
    write: Write
    request: GuardedUpdate
    writer: Writer = "update_one"
    upsert: bool = False

    @property
    def is_conditional(self) -> bool:
        """Whether the caller's filter has conditions besides the entity's key."""
        return has_conditions(self.request.query, self.write.key)

    def send(self) -> Flow[Landed | Refusal]:
        """Send the write. If it matched nothing or failed, read the document, and return it with the failure as a refusal."""
        flows, write, request = self.flows, self.write, self.request
        entry, returns_document = write.entry, self.writer == "find_one_and_update"
        # A quick check comes first, because only these can need the indexes. The begin of an effect has already checked them.
        if (flows.fields or entry.own.has_text or len(entry.checked) > 1) and not isinstance(write.effect, Finishes):
            yield from flows.check_collection(entry)
        if returns_document and not request.native.keys() <= _ACCEPTED_ARGUMENTS:
            unknown = ", ".join(sorted(request.native.keys() - _ACCEPTED_ARGUMENTS))
            raise InvalidUpdate(
                f"This call doesn't accept {unknown}, because pymongo would add it to the command, where it could replace the guard. "
                "Omit it."
            )
        failure: Exception | None = None
        try:
            reply = yield Call(self.writer, (request.filter, request.update), {"upsert": self.upsert, **request.native})
            if returns_document:
                if reply is not None or self.upsert:  # with upsert, None can mean that the document is new
                    return Landed(None if reply is None else flows.read_entity(reply))
            elif reply.raw_result["n"]:  # number of documents matched or created
                watch, now = flows.watch, write.now  # now and then, compare the clock with the server's
                if not watch.since < now < watch.until:
                    watch.start_pause(now)
                    time = reply.raw_result.get("operationTime")
                    if time:
                        watch.compare(now, flows.clock(), time.time)
                return Landed(response=reply)
        except (OperationFailure, DocumentTooLarge, InvalidBSON) as error:
            # The ledger might have refused the message too. The failure is then about a document that this write wouldn't have changed.
            if is_in_transaction(request.native) or not can_entity_show_verdict(error):
                yield from self.raise_error(error)
            failure = error
        try:
            document = yield from flows.look(write.key, request.native)
        except PyMongoError:
            # If the write failed too, raise its error instead, unless that only says that the entity exists.
            if failure is None or is_entity_taken(failure, write.key):
                raise
            raise failure from None
        image = flows.read_image(document)
        return Refusal(write._replace(now=flows.clock()), image, failure)

    def is_condition_met(self) -> Flow[bool]:
        """Whether the entity meets the caller's condition now. If so, something else refused the write."""
        if not self.is_conditional:
            return True
        native = self.request.native
        options = {name: native[name] for name in (*_READ_OPTIONS, "let") if name in native}
        return (yield Call("find_one", (self.request.query,), {**options, "projection": {"_id": 1}})) is not None

    def try_send(self) -> Flow[bool]:
        """Send the write, and return whether it matched a document. Don't find out why if it didn't."""
        request = self.request
        try:
            reply = yield Call("update_one", (request.filter, request.update), {"upsert": False, **request.native})
        except (OperationFailure, DocumentTooLarge, InvalidBSON) as error:
            return (yield from self.raise_error(error))
        return bool(reply.raw_result["n"])

    def raise_failure(self, refusal: Refusal) -> Flow[None]:
        if refusal.failure is not None:
            yield from self.raise_error(refusal.failure, refusal.image)

    def raise_error(self, error: Exception, image: Image | None = None) -> Flow[NoReturn]:
        """Raise the error that explains the failure, or the failure itself. Pass `image` if the entity was read since."""
        flows, write, native = self.flows, self.write, self.request.native
        check_refusal(error)
        is_large = isinstance(error, DocumentTooLarge) or getattr(error, "code", None) in _TOO_LARGE_CODES
        if is_in_transaction(native) or not (is_large or getattr(error, "code", None) in _CONTENT_CODES):
            raise error  # nothing can be read in the aborted transaction, or the document isn't the cause
        if image is None:
            image = flows.read_image((yield from flows.look(write.key, native)))
        if is_large:
            raise flows.make_too_large_error(image.fields, write.emission) from error
        # If the ledger or the outbox is broken, these raise an error that explains the failure.
        write.entry.judge(Message("unknown"), image.ledger)
        check_emits(write, image)
        raise error

    def retry(self, refusal: Refusal, attempts: int) -> Flow[CollectionAttempt | None]:
        """Return the next attempt, or None. The cause of the refusal might no longer exist when the document is read."""
        write, request, failure, exists = self.write, self.request, refusal.failure, refusal.image.exists
        if failure is not None and not self.upsert:
            yield from self.raise_failure(refusal)
        # The caller has no condition. So the entity has changed between the write and the read, or a hint hides it.
        if isinstance(write.effect, Finishes) and not write.effect.is_unsent:
            if attempts == MAX_ATTEMPTS and request.native.get("hint") is not None:
                raise InvalidUpdate(_HINTED)
            return self
        if failure is not None:
            if not exists and not is_entity_taken(failure, write.key):
                yield from self.raise_failure(refusal)
            return self._replace(upsert=False)  # the next write matches the entity, which exists, or is refused for a reason
        # The ledger would have accepted the message of the last attempt.
        if request.upsert and not (exists and self.is_conditional):
            # The entity was deleted in the meantime, and maybe created again. Nothing else could refuse the message.
            return self._replace(upsert=True)
        if attempts == 1 and write.entry.has_predecessor and len(write.messages) > 1:
            return self._replace(upsert=False)  # the gap that refused the batch might have been filled before the read
        # Don't repeat a refused batch, which sends its messages one by one instead.
        if exists and len(write.messages) == 1 and (yield from self.is_condition_met()):
            return self._replace(upsert=False)  # the entity was created, or the gap filled, between the write and the read
        return None

    def with_effect(self, effect: EffectPart) -> CollectionAttempt:
        """Return the attempt with this effect instead of its own."""
        write, request = self.write._replace(effect=effect), self.request
        upsert = self.upsert and not isinstance(effect, Finishes)  # an upsert would copy the fence into a new document
        native = {**request.native, "upsert": request.upsert}
        return self._replace(write=write, request=build_update(write, request.query, request.change, native), upsert=upsert)

    def make_ledger_write(self) -> Flow[CollectionAttempt]:
        yield from ()
        return self.flows.make_record_attempt(self.write, self.request.native)

    def show(self, outcome: Outcome) -> Outcome:
        return outcome


class InsertAttempt(NamedTuple):
    """A ready-to-send insert into a guarded collection."""

    flows: Flows
    write: Write
    document: Document  # the caller's document
    new_document: Document
    native: Document

    def send(self) -> Flow[Landed | Refusal]:
        """Insert the document. If that failed, read the existing document, and return it with the failure as a refusal."""
        flows, key, native = self.flows, self.write.key, self.native
        failure: Exception | None = None
        if not self.write.entry.has_predecessor:  # a message with a predecessor never creates an entity
            try:
                return Landed(response=(yield Call("insert_one", (self.new_document,), dict(native))))
            except (OperationFailure, DocumentTooLarge, InvalidBSON) as error:
                if not can_entity_show_verdict(error):
                    raise
                failure = error
        write, image = self.write._replace(now=flows.clock()), flows.read_image((yield from flows.look(key, native)))
        if failure is not None and isinstance(judge(write, image), Unmet):
            if not is_entity_taken(failure, key):  # a different index, a validator, or the size
                check_refusal(failure)
                if flows.is_too_large(self.new_document):
                    raise flows.make_too_large_error(self.new_document) from failure
                raise failure
            yield from flows.wait_for_majority(key, native)
            # A majority now has the document that refused the insert. A second read decides. Without a document, `retry` inserts again.
            if image.exists:
                image = flows.read_image((yield from flows.look(key, native)))
        return Refusal(write, image, failure)

    def try_send(self) -> Flow[bool]:
        return isinstance((yield from self.send()), Landed)

    def raise_failure(self, refusal: Refusal) -> Flow[None]:
        yield from ()
        if refusal.failure is not None:
            raise refusal.failure

    def retry(self, refusal: Refusal, attempts: int) -> Flow[InsertAttempt | None]:  # noqa: ARG002  # same signature as in other attempts
        yield from ()
        # The entity was deleted in the meantime, or no majority has it yet.
        return None if refusal.image.exists or self.write.entry.has_predecessor else self

    def with_effect(self, effect: EffectPart) -> InsertAttempt:
        return self._replace(write=self.write._replace(effect=effect))

    def make_ledger_write(self) -> Flow[CollectionAttempt]:
        yield from ()
        return self.flows.make_record_attempt(self.write, self.native)

    def show(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Rejected):
            return outcome
        # Compare with the key as the driver returned it, which can have a different form than the caller passed.
        document = self.document if outcome.entity is None else {**self.document, "_id": outcome.entity["_id"]}
        return judge_creation(outcome, document, max_keys=1)


def _copy_options(native: Native) -> dict[str, Any]:
    """Return deep copies of the options, because the caller can change its own. A session can't be copied."""
    return {name: value if name == "session" else copy_value(value) for name, value in native.items()}


def _read_fields(fields: object) -> tuple[str, ...]:
    """Return the field names that the caller passed as `key=`. Raise if they aren't strings."""
    names = cast("Sequence[object]", fields)
    if isinstance(fields, str) or not isinstance(fields, Sequence) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f'key={fields!r}: expected the fields that identify one entity, for example ("email",).')
    return tuple(cast("Sequence[str]", names))


_HINTED = (
    "The effect is open, but the write that finishes it didn't find the entity. The index in hint= might not contain it. Omit hint=, "
    "because the filter only identifies the entity."
)


# --- what MongoDB's errors mean ------------------------------------------------------------------------------------


MAX_DOCUMENT_BYTES = 16 * 1024 * 1024  # bytes of BSON, the server's limit
# BSONObjectTooLarge, and the equivalent codes for an upsert and for the result of a pipeline.
_TOO_LARGE_CODES = frozenset({10334, 17419, 17420})
# Unauthorized, AuthenticationFailed, and rate limits of MongoDB and of compatible services. They don't depend on the document.
_UNRELATED_CODES = frozenset({13, 18, 462, 16500})
# BadValue, TypeMismatch, PathNotViable, and $concatArrays on a non-array. The caller's update or a broken ledger can cause them.
_CONTENT_CODES = frozenset({2, 14, 28, 28664})


def can_entity_show_verdict(error: OperationFailure | DocumentTooLarge | InvalidBSON) -> bool:
    """Whether a read of the entity can show the verdict after this failure.

    It can't if only the durability or a time limit failed, or if the failure doesn't depend on the document.
    """
    # The driver doesn't send a document that is too large. A response that it can't decode quotes the key of a duplicate-key error.
    if isinstance(error, DocumentTooLarge | InvalidBSON):
        return True
    return not isinstance(error, WriteConcernError | ExecutionTimeout) and error.code not in _UNRELATED_CODES


def is_entity_taken(error: Exception, entity: Mapping[str, Any]) -> bool:
    """Whether the error is a duplicate of the entity's own key. Conflicts in other unique indexes are left to the caller."""
    if not isinstance(error, DuplicateKeyError):
        return isinstance(error, InvalidBSON)  # the entity must be read, because the driver can't decode which key it is
    pattern = (error.details or {}).get("keyPattern")
    # Servers before MongoDB 4.2, and Amazon DocumentDB, don't report which index refused the write.
    return pattern is None or set(pattern) <= set(entity)


# --- durability ----------------------------------------------------------------------------------------------------


Durability = Literal["majority", "acknowledged"]


def make_durable(collection: Any, durability: Durability) -> Any:
    """Return the collection with the concerns that a guarded store needs for its writes and its verdict reads."""
    if collection.write_concern.document.get("w") == 0:
        raise ConfigurationError("The collection writes with w=0, and the server wouldn't return an outcome. Omit w.")
    if durability == "acknowledged":
        return collection.with_options(read_preference=ReadPreference.PRIMARY)
    if durability != "majority":
        raise ConfigurationError(
            f'durability={durability!r}: expected "majority", or "acknowledged" if a failover may lose messages.'
        )
    return require_majority(collection)


def require_majority(collection: Any) -> Any:
    """Return the collection with journaled majority writes, and majority reads from the primary."""
    return collection.with_options(
        write_concern=WriteConcern("majority", j=True, wtimeout=collection.write_concern.document.get("wtimeout")),
        read_concern=ReadConcern("majority"),
        read_preference=ReadPreference.PRIMARY,
    )
