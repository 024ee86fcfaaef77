"""The guarded collection: the blocking and the asynchronous class, whose methods run the flows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, Unpack, cast

from onewrite.core.clock import random_name, wall_clock
from onewrite.core.features.batches import update_batch
from onewrite.core.features.effects import (
    Claim,
    EffectFunction,
    Then,
    begin_effect,
    perform_effect,
    read_open_effects,
    release_effect,
)
from onewrite.core.features.event import Emit, Outbox, require_outboxes
from onewrite.core.features.tombstone import Tombstones
from onewrite.core.flow import Run, arun, run
from onewrite.core.hook import as_async, followed, followed_async, followed_hint
from onewrite.core.label import is_ours
from onewrite.core.ledgers import Ledger
from onewrite.core.pipeline import read_outcome
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.deletes import delete
from onewrite.mongodb.expression import Update
from onewrite.mongodb.flows import Durability, Flows
from onewrite.mongodb.layout import Document
from onewrite.mongodb.native import (
    DeleteOneArguments,
    EffectArguments,
    FindOneAndDeleteArguments,
    FindOneAndUpdateArguments,
    FindOneArguments,
    InsertOneArguments,
    PreviewArguments,
    UpdateOneArguments,
)
from onewrite.mongodb.outboxes import Outboxes
from onewrite.outcome import BeginOutcome, Begun, Busy, Entity, Outcome, Uncertain
from onewrite.stores import SilentClient, check_collection, check_key, find_first_request, with_attributes

# The methods that send a request.
VERBS = (
    "update_one",
    "find_one_and_update",
    "insert_one",
    "delete_one",
    "find_one_and_delete",
    "remember",
    "update_batch",
    "begin_effect",
    "perform_effect",
    "release_effect",
    "open_effects",
    "preview",
    "find_one",
)


class _Store:
    """The constructor of both classes, and the methods that send no request."""

    _is_async: ClassVar[bool]
    _run: ClassVar[Run]

    def __init__(
        self,
        collection: Any,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = wall_clock,
        key: Sequence[str] = (),
        durability: Durability = "majority",
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
    ) -> None:
        check_collection(collection)
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
        """Remove the ledger from a document that you read by other means."""
        return self._flows.without_ledger(document)

    def explain(self, verb: str, /, *args: Any, **arguments: Any) -> dict[str, Any]:
        """Return the arguments of the first request that a method would send: `stock.explain("delete_one", message, filter)`.

        Nothing is sent. `verb` is the method's name, and the other arguments are the method's. A store might first read the collection's
        indexes. Here, they're assumed to fit.
        """
        # This client responds as if the collection didn't exist. The flows are copied so that they don't remember that.
        unique_index = {"key": [(name, 1) for name in self._flows.fields], "unique": True}
        assumed: dict[str, Any] = {"index_information": {"key": unique_index}, "database.list_collection_names": []}
        client = SilentClient(assumed, is_async=self._is_async)
        store = with_attributes(self, _collection=client, _target=client, _flows=copy(self._flows))
        return find_first_request(store, VERBS, verb, args, arguments)

    def replace_one(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse the call, because a new document would have no ledger."""
        raise InvalidUpdate("replace_one would erase the ledger. Use update_one with $set and $unset.")

    def find_one_and_replace(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse the call, because a new document would have no ledger."""
        raise InvalidUpdate("find_one_and_replace would erase the ledger. Use find_one_and_update with $set and $unset.")

    def update_many(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse the call, because a message is guarded in one entity."""
        raise InvalidUpdate("update_many would put one mark into many entities. Guard each entity with its own update_one.")

    @property
    def outboxes(self) -> Outboxes:
        """The outboxes of this collection, which a relay reads and changes."""
        return require_outboxes(self._outboxes)


class GuardedCollection(_Store):
    """A MongoDB collection whose writes take effect once per message.

    Each method takes pymongo's arguments after the message. The filter identifies one entity by `_id`, or by all fields of `key`, for
    example `key=("email",)`. The collection needs a unique index on these fields. All other parts of the filter are business conditions.

    A majority acknowledges and journals each write. Limit the waiting time with `pymongo.timeout()`. `durability="acknowledged"` keeps
    the collection's own write concern instead. With `w=1`, a failover loses messages that the primary acknowledged but didn't replicate:
    their effects and marks vanish together, but the broker has already deleted them.
    """

    _is_async, _run = False, staticmethod(run)

    @followed
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
        """Update the document once per message. `update` is an operator document or a pipeline. `finishes` is the effect that the write ends."""
        flow = self._flows.write(message, filter, update, writer="update_one", emit=emit, finishes=finishes, **native)
        return self._run(flow, self._target)

    @followed
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
        """Update the document once per message. `Applied.entity` is the document before or after the update, as in pymongo."""
        flow = self._flows.write(
            message, filter, update, writer="find_one_and_update", emit=emit, finishes=finishes, **native
        )
        return self._run(flow, self._target)

    @followed
    def insert_one(
        self, message: Message, document: Document, *, emit: Emit = None, **native: Unpack[InsertOneArguments]
    ) -> Outcome:
        """Create the document. If it exists already, the outcome is `Duplicate` or `Rejected`."""
        return self._run(self._flows.insert_one(message, document, emit=emit, **native), self._target)

    @followed
    def delete_one(
        self, message: Message, filter: Document, *, emit: Emit = None, **native: Unpack[DeleteOneArguments]
    ) -> Outcome:
        """Delete the document, and leave a tombstone that refuses late messages. The collection needs `tombstones=`."""
        return self._run(delete(self._flows, message, filter, writer="update_one", emit=emit, **native), self._target)

    @followed
    def find_one_and_delete(
        self, message: Message, filter: Document, *, emit: Emit = None, **native: Unpack[FindOneAndDeleteArguments]
    ) -> Outcome:
        """Delete the document like `delete_one`. `Applied.entity` is the deleted document."""
        return self._run(
            delete(self._flows, message, filter, writer="find_one_and_update", emit=emit, **native), self._target
        )

    @followed
    def update_batch(
        self, messages: Iterable[Message], function: Callable[[list[Message]], Mapping[str, Any]]
    ) -> list[Outcome]:
        """Write the messages in as few requests as possible. The outcomes are in the order of the messages.

        `function` takes the fresh messages, and returns the arguments of the `update_one` or `find_one_and_update` with their changes, or
        only a `filter` to remember them, and optionally `emit`. It's called again with fewer messages if some are duplicates.
        """
        return self._run(update_batch(self._flows, messages, function), self._target)

    @followed
    def remember(
        self,
        message: Message,
        filter: Document,
        *,
        emit: Emit = None,
        finishes: Claim | None = None,
        **native: Unpack[UpdateOneArguments],
    ) -> Outcome:
        """Remember the message without changing your fields. A missing document is created, unless you pass `upsert=False`."""
        return self._run(self._flows.remember(message, filter, emit=emit, finishes=finishes, **native), self._target)

    @followed
    def begin_effect(
        self,
        message: Message,
        name: str,
        filter: Document,
        *,
        lease: timedelta,
        key_valid_for: timedelta,
        after: Uncertain | None = None,
        **native: Unpack[EffectArguments],
    ) -> BeginOutcome:
        """Begin an effect of the message. `Begun` gives this worker alone the right to perform it, for example to charge a card, until `lease` ends.

        `key_valid_for` is how long the effect's provider recognizes its idempotency key: at least the lease plus ten minutes, or
        `timedelta(0)` if the provider has no keys. `after` permits a new attempt if an operator knows that the effect didn't happen.
        """
        flow = begin_effect(
            self._flows, message, name, {"filter": filter, **native}, lease=lease, key_valid_for=key_valid_for, after=after
        )
        return self._run(flow, self._target)

    @followed
    def perform_effect(
        self,
        message: Message,
        name: str,
        function: EffectFunction,
        filter: Document,
        *,
        lease: timedelta,
        key_valid_for: timedelta,
        then: Then,
        **native: Unpack[EffectArguments],
    ) -> Outcome:
        """Begin an effect, call `function(effect)`, and finish with the `update_one` whose arguments `then(result)` returns."""
        flow = perform_effect(
            self._flows,
            message,
            name,
            function,
            {"filter": filter, **native},
            lease=lease,
            key_valid_for=key_valid_for,
            then=then,
        )
        return self._run(flow, self._target)

    def release_effect(self, effect: Begun, *, sent: bool = True) -> None:
        """End the effect's lease now, if this worker still has it. Pass `sent=False` if the effect wasn't sent: then the next `begin_effect` or
        write of the message removes the effect, and a delete doesn't wait for it.
        """
        return self._run(release_effect(self._flows, effect, sent=sent), self._target)

    def open_effects(self, filter: Document, **native: Unpack[EffectArguments]) -> list[Busy | Uncertain]:
        """Return the entity's open effects: `Busy` while their lease lasts, then `Uncertain`. An effect that was released with `sent=False` is
        `Busy` with a time in the past. Its message can be begun or written at once.
        """
        return self._run(read_open_effects(self._flows, {"filter": filter, **native}), self._target)

    @followed_hint
    def preview(self, message: Message, filter: Document, **native: Unpack[PreviewArguments]) -> Outcome:
        """Return the outcome that an unconditional write would have now. It only reads. Use it to skip costly work, not as a guard."""
        return self._run(read_outcome(self._flows, message, {"filter": filter, **native}), self._target)

    def find_one(self, filter: Document, **native: Unpack[FindOneArguments]) -> Entity | None:
        """Return the entity without its ledger, or None."""
        return self._run(self._flows.find_one(filter, **native), self._collection)


class AsyncGuardedCollection(_Store):
    """`GuardedCollection` for pymongo's `AsyncCollection`. It has the same methods. Await them."""

    _is_async, _run = True, cast("Run", staticmethod(arun))

    update_one = followed_async(GuardedCollection.update_one)
    find_one_and_update = followed_async(GuardedCollection.find_one_and_update)
    insert_one = followed_async(GuardedCollection.insert_one)
    delete_one = followed_async(GuardedCollection.delete_one)
    find_one_and_delete = followed_async(GuardedCollection.find_one_and_delete)
    remember = followed_async(GuardedCollection.remember)
    begin_effect = followed_async(GuardedCollection.begin_effect)
    perform_effect = followed_async(GuardedCollection.perform_effect)
    release_effect = as_async(GuardedCollection.release_effect)
    open_effects = as_async(GuardedCollection.open_effects)
    preview = followed_async(GuardedCollection.preview, is_hint=True)
    find_one = as_async(GuardedCollection.find_one)

    @followed_async
    def update_batch(
        self,
        messages: Iterable[Message],
        function: Callable[[list[Message]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]],
    ) -> list[Outcome]:
        """Write the messages in as few requests as possible. The outcomes are in the order of the messages.

        `function` takes the fresh messages, and returns the arguments of the `update_one` or `find_one_and_update` with their changes, or
        only a `filter` to remember them, and optionally `emit`. It's called again with fewer messages if some are duplicates. It can be asynchronous.
        """
        return self._run(update_batch(self._flows, messages, function), self._target)
