"""The guarded collection: the two classes that run its flows, one line per method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, Unpack, cast

from onewrite.core.clock import random_name, wall_clock
from onewrite.core.event import Emit, Outbox, require_outboxes
from onewrite.core.explaining import SilentClient, first_request, with_attributes
from onewrite.core.flow import Run, arun, awaited, run
from onewrite.core.folding import fold
from onewrite.core.label import is_ours
from onewrite.core.ledgers import Ledger
from onewrite.core.pipeline import look_up
from onewrite.core.step import Claim
from onewrite.core.steps import Effect, Then, begin, open_steps, perform, release
from onewrite.core.targets import check_collection, check_deletes, check_key, let_flow_refuse
from onewrite.core.tombstone import Tombstones
from onewrite.core.unreturned import noted, noted_async
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.deletes import delete
from onewrite.mongodb.expression import Update
from onewrite.mongodb.flows import Durability, Flows
from onewrite.mongodb.layout import Document
from onewrite.mongodb.native import (
    BeginArguments,
    DeleteOneArguments,
    FindOneAndDeleteArguments,
    FindOneAndUpdateArguments,
    FindOneArguments,
    InsertingArguments,
    InsertOneArguments,
    RecordingArguments,
    SeenArguments,
    UpdateOneArguments,
    UpdatingArguments,
)
from onewrite.mongodb.outboxes import Outboxes
from onewrite.mongodb.transactions import Prepared, prepare
from onewrite.outcome import Answer, Begun, Busy, Entity, Outcome, Uncertain

# The methods that send a request.
VERBS = (
    "update_one",
    "find_one_and_update",
    "insert_one",
    "delete_one",
    "find_one_and_delete",
    "record",
    "fold",
    "begin",
    "perform",
    "release",
    "open_steps",
    "seen",
    "find_one",
)


class _Store:
    """The constructor of both classes, and the methods that send no request."""

    _is_async: ClassVar[bool]
    _run: ClassVar[Run]

    def __init__(
        self,
        collection: Any,
        ledger: Ledger | None,
        *,
        clock: Callable[[], float] = wall_clock,
        key: Sequence[str] = (),
        durability: Durability = "majority",
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
    ) -> None:
        check_collection(collection)
        check_deletes(ledger, tombstones)
        self._flows = Flows(
            collection,
            ledger,
            clock,
            key,
            durability,
            name_call=random_name,
            outbox=outbox,
            tombstones=tombstones,
            is_async=self._is_async,
        )
        check_key(key, lambda name: is_ours(name) or not self._flows.without_ledger({name: 0}))
        self._collection, self._target = collection, self._flows.target
        self._outboxes = None if outbox is None else Outboxes(collection, key, outbox)

    def without_ledger(self, document: Document) -> Entity:
        """Return the entity without its ledger, for a document that was read another way."""
        return self._flows.without_ledger(document)

    def explain(self, verb: str, /, *args: Any, **arguments: Any) -> dict[str, Any]:
        """Return the arguments of the first request that a method would send: `stock.explain("delete_one", message, filter)`.

        Nothing is sent. `verb` is the name of the method, and all that follows is what the method takes. The indexes of the collection,
        which a store may read before, are taken to fit.
        """
        # The client answers as if the collection were missing. A copy of the flows keeps what they learn from that.
        unique_index = {"key": [(name, 1) for name in self._flows.fields], "unique": True}
        assumed: dict[str, Any] = {"index_information": {"key": unique_index}, "database.list_collection_names": []}
        client = SilentClient(assumed, is_async=self._is_async)
        store = with_attributes(self, _collection=client, _target=client, _flows=copy(self._flows))
        return first_request(store, VERBS, verb, args, arguments)

    def replace_one(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a new document has no ledger."""
        raise _refusal("replace_one")

    def find_one_and_replace(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a new document has no ledger."""
        raise _refusal("find_one_and_replace")

    def update_many(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: a message is guarded in one entity."""
        raise _refusal("update_many")

    @noted
    def updating(
        self, filter: Document, update: Update, *, emit: Emit = None, **native: Unpack[UpdatingArguments]
    ) -> Prepared:
        """`update_one` for `transact`."""
        return prepare(self._flows, "updating", {"filter": filter, "update": update}, native, emit)

    @noted
    def inserting(self, document: Document, *, emit: Emit = None, **native: Unpack[InsertingArguments]) -> Prepared:
        """`insert_one` for `transact`."""
        return prepare(self._flows, "inserting", {"document": document}, native, emit)

    @noted
    def recording(self, filter: Document, *, emit: Emit = None, **native: Unpack[RecordingArguments]) -> Prepared:
        """`record` for `transact`, in a document that is there."""
        return prepare(self._flows, "recording", {"filter": filter}, native, emit)

    @property
    def outboxes(self) -> Outboxes:
        """The outboxes of this collection, as a relay reads and changes them."""
        return require_outboxes(self._outboxes)


class GuardedCollection(_Store):
    """A MongoDB collection whose writes take effect once per message.

    Every call is pymongo's own with the message in front. The filter names one entity by `_id`, or by all fields of `key`,
    as in `key=("email",)`, on which the collection needs a unique index. Whatever else it says is a business condition.

    Writes are acknowledged by a majority and journaled. Bound their waiting with `pymongo.timeout()`.
    `durability="acknowledged"` keeps the collection's own write concern instead. With `w=1` that loses the messages that the
    primary had acknowledged and not yet replicated when it failed: their effect and their mark vanish together, but the
    broker has been told that they are done. A collection without a ledger (None) takes part in a `transact` with `inbox=`, and
    can be read.
    """

    _is_async, _run = False, staticmethod(run)

    @noted
    def update_one(
        self,
        message: Message,
        filter: Document,
        update: Update,
        *,
        emit: Emit = None,
        finishes: Claim | None = None,
        **native: Unpack[UpdateOneArguments],
    ) -> Outcome:
        """Make the guarded write. `update` is an operator document or a pipeline. `finishes` is the step that it ends."""
        flow = self._flows.write(message, filter, update, writer="update_one", emit=emit, finishes=finishes, **native)
        return self._run(flow, self._target)

    @noted
    def find_one_and_update(
        self,
        message: Message,
        filter: Document,
        update: Update,
        *,
        emit: Emit = None,
        finishes: Claim | None = None,
        **native: Unpack[FindOneAndUpdateArguments],
    ) -> Outcome:
        """Make the guarded write, with the document, before or after as natively, in `Applied.entity`."""
        flow = self._flows.write(
            message, filter, update, writer="find_one_and_update", emit=emit, finishes=finishes, **native
        )
        return self._run(flow, self._target)

    @noted
    def insert_one(
        self, message: Message, document: Document, *, emit: Emit = None, **native: Unpack[InsertOneArguments]
    ) -> Outcome:
        """Create only: a document that is already there is `Duplicate` or `Rejected`."""
        return self._run(self._flows.insert_one(message, document, emit=emit, **native), self._target)

    @noted
    def delete_one(
        self, message: Message, filter: Document, *, emit: Emit = None, **native: Unpack[DeleteOneArguments]
    ) -> Outcome:
        """Delete the document, and leave a tombstone that refuses every message that comes late. Needs `tombstones=`."""
        return self._run(delete(self._flows, message, filter, writer="update_one", emit=emit, **native), self._target)

    @noted
    def find_one_and_delete(
        self, message: Message, filter: Document, *, emit: Emit = None, **native: Unpack[FindOneAndDeleteArguments]
    ) -> Outcome:
        """`delete_one`, with the document that was deleted in `Applied.entity`."""
        return self._run(
            delete(self._flows, message, filter, writer="find_one_and_update", emit=emit, **native), self._target
        )

    @noted
    def fold(self, messages: Iterable[Message], function: Callable[[list[Message]], Mapping[str, Any]]) -> list[Outcome]:
        """Write the messages in as few requests as possible. The outcomes are in the order of the messages.

        `function` is given those that are fresh, and returns the arguments of the `update_one` or `find_one_and_update` with their
        effect, or only a `filter` to record them, and `emit`. It may be called again for fewer of them.
        """
        return self._run(fold(self._flows, messages, function), self._target)

    @noted
    def record(
        self,
        message: Message,
        filter: Document,
        *,
        emit: Emit = None,
        finishes: Claim | None = None,
        **native: Unpack[UpdateOneArguments],
    ) -> Outcome:
        """Remember the message with no business change, in a new document if there is none (`upsert=False` forbids that)."""
        return self._run(self._flows.record(message, filter, emit=emit, finishes=finishes, **native), self._target)

    @noted
    def begin(
        self,
        message: Message,
        name: str,
        filter: Document,
        *,
        lease: timedelta,
        safe_for: timedelta,
        after: Uncertain | None = None,
        **native: Unpack[BeginArguments],
    ) -> Answer:
        """Begin a step of the message: `Begun` if its effect, such as a charge, is this worker's alone for the time of `lease`.

        `safe_for` is how long whoever performs the effect recognises its key: the lease and ten minutes at least, or
        `timedelta(0)`. `after` permits an effect once more that an operator knows not to have happened.
        """
        flow = begin(self._flows, message, name, {"filter": filter, **native}, lease=lease, safe_for=safe_for, after=after)
        return self._run(flow, self._target)

    @noted
    def perform(
        self,
        message: Message,
        name: str,
        effect: Effect,
        filter: Document,
        *,
        lease: timedelta,
        safe_for: timedelta,
        then: Then,
        **native: Unpack[BeginArguments],
    ) -> Outcome:
        """Begin a step, call `effect(step)`, and finish with the `update_one` whose arguments `then(result)` returns."""
        flow = perform(
            self._flows, message, name, effect, {"filter": filter, **native}, lease=lease, safe_for=safe_for, then=then
        )
        return self._run(flow, self._target)

    def release(self, step: Begun, *, sent: bool = True) -> None:
        """End the step's lease now, if it is still this worker's. `sent=False` says that its effect was not sent: the next `begin` or
        write of the message ends what may stay of the step, and a delete does not wait for it.
        """
        return self._run(release(self._flows, step, sent=sent), self._target)

    def open_steps(self, filter: Document, **native: Unpack[BeginArguments]) -> list[Busy | Uncertain]:
        """Return the steps of the entity that were begun and not finished: `Busy` while their lease lasts, then `Uncertain`. One that
        was released with `sent=False` is `Busy` until now: its message can be begun or written at once.
        """
        return self._run(open_steps(self._flows, {"filter": filter, **native}), self._target)

    def seen(self, message: Message, filter: Document, **native: Unpack[SeenArguments]) -> Outcome:
        """Read only: what an unconditional write would get now. A hint to skip costly work, not a guard."""
        return self._run(look_up(self._flows, message, {"filter": filter, **native}), self._target)

    def find_one(self, filter: Document, **native: Unpack[FindOneArguments]) -> Entity | None:
        """Return the entity without its ledger, or None."""
        return self._run(self._flows.find_one(filter, **native), self._collection)


class AsyncGuardedCollection(_Store):
    """`GuardedCollection` for pymongo's `AsyncCollection`. Await its methods, which are otherwise the same."""

    _is_async, _run = True, cast("Run", staticmethod(arun))

    update_one = awaited(GuardedCollection.update_one)
    """Await `GuardedCollection.update_one`."""
    find_one_and_update = awaited(GuardedCollection.find_one_and_update)
    """Await `GuardedCollection.find_one_and_update`."""
    insert_one = awaited(GuardedCollection.insert_one)
    """Await `GuardedCollection.insert_one`."""
    delete_one = awaited(GuardedCollection.delete_one)
    """Await `GuardedCollection.delete_one`."""
    find_one_and_delete = awaited(GuardedCollection.find_one_and_delete)
    """Await `GuardedCollection.find_one_and_delete`."""
    record = awaited(GuardedCollection.record)
    """Await `GuardedCollection.record`."""

    @noted_async
    async def fold(
        self,
        messages: Iterable[Message],
        function: Callable[[list[Message]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]],
    ) -> list[Outcome]:
        """Write the messages in as few requests as possible. The outcomes are in the order of the messages.

        `function` is given those that are fresh, and returns the arguments of the `update_one` or `find_one_and_update` with their
        effect, or only a `filter` to record them, and `emit`. It may be called again for fewer of them. It may be asynchronous.
        """
        return await arun(fold(self._flows, messages, function), self._target)

    begin = awaited(GuardedCollection.begin)
    """Await `GuardedCollection.begin`."""
    perform = awaited(GuardedCollection.perform)
    """Await `GuardedCollection.perform`."""
    release = awaited(GuardedCollection.release)
    """Await `GuardedCollection.release`."""
    open_steps = awaited(GuardedCollection.open_steps)
    """Await `GuardedCollection.open_steps`."""
    seen = awaited(GuardedCollection.seen)
    """Await `GuardedCollection.seen`."""
    find_one = awaited(GuardedCollection.find_one)
    """Await `GuardedCollection.find_one`."""


_GUARDED = [verb for verb in VERBS if verb not in ("release", "open_steps", "find_one")]
let_flow_refuse(*[vars(GuardedCollection)[verb] for verb in _GUARDED], AsyncGuardedCollection.fold)


def _refusal(method: str) -> InvalidUpdate:
    if method == "update_many":
        return InvalidUpdate("update_many would put one mark into many entities: guard each by an update_one of its own.")
    return InvalidUpdate(f"{method} would erase the ledger: use update_one with $set and $unset.")
