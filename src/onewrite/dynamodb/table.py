"""The guarded table: the blocking and the asynchronous class, whose methods run the flows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Unpack, cast, overload

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
from onewrite.core.ledgers import Ledger
from onewrite.core.pipeline import read_outcome
from onewrite.dynamodb.deletes import delete
from onewrite.dynamodb.dialect import build_put
from onewrite.dynamodb.flows import Flows
from onewrite.dynamodb.lean import make_lean_client
from onewrite.dynamodb.native import (
    Client,
    DeleteItemArguments,
    EffectArguments,
    GetItemArguments,
    PreviewArguments,
    PutItemArguments,
    RememberArguments,
    Table,
    UpdateItemArguments,
)
from onewrite.dynamodb.outboxes import Outboxes
from onewrite.dynamodb.typed import arun_typed, check_typed, convert_arguments, run_typed, wrap_function
from onewrite.message import Message
from onewrite.outcome import BeginOutcome, Begun, Busy, Entity, Outcome, Uncertain
from onewrite.stores import SilentClient, check_table, find_first_request, with_attributes

# The methods that send a request.
VERBS = (
    *(
        "update_item",
        "put_item",
        "delete_item",
        "remember",
        "update_batch",
        "begin_effect",
        "perform_effect",
        "release_effect",
        "open_effects",
        "preview",
    ),
    "get_item",
)


class _Store:
    """The constructor of both classes, and the methods that send no request."""

    _is_async: ClassVar[bool]
    _runs: ClassVar[tuple[Run, Run]]  # for plain values and for typed values

    @overload
    def __init__(
        self,
        table: Table,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = ...,
        outbox: Outbox | None = ...,
        tombstones: Tombstones | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        table: Client,
        ledger: Ledger,
        *,
        table_name: str,
        typed: bool = ...,
        clock: Callable[[], float] = ...,
        outbox: Outbox | None = ...,
        tombstones: Tombstones | None = ...,
    ) -> None: ...
    def __init__(
        self,
        table: Table | Client,
        ledger: Ledger,
        *,
        table_name: str | None = None,
        typed: bool = False,
        clock: Callable[[], float] = wall_clock,
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
    ) -> None:
        check_table(table, table_name)
        check_typed(typed, table_name)
        self._flows = Flows(
            table,
            ledger,
            table_name,
            clock,
            name_call=random_name,
            outbox=outbox,
            tombstones=tombstones,
            typed=typed,
            is_async=self._is_async,
        )
        self._target = self._flows.target
        self._outboxes = None if outbox is None else Outboxes(table, table_name, outbox)
        self._run = self._runs[typed]
        self._untype: Callable[..., dict[str, Any]] = convert_arguments if typed else dict  # returns plain values

    def _untype_result(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the caller's function so that the arguments it returns, directly or from an awaitable, have plain values."""
        return wrap_function(function) if self._flows.typed else function

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        """Remove the ledger from an item that you read by other means, with plain or typed values."""
        return self._flows.without_ledger(item)

    def explain(self, verb: str, /, *args: Any, **arguments: Any) -> dict[str, Any]:
        """Return the arguments of the first request that a method would send: `orders.explain("delete_item", message, Key=key)`.

        Nothing is sent. `verb` is the method's name, and the other arguments are the method's.
        """
        store = with_attributes(self, _target=SilentClient({}, is_async=self._flows.is_async))
        return find_first_request(store, VERBS, verb, args, arguments)

    @property
    def outboxes(self) -> Outboxes:
        """The outboxes of this table, which a relay reads and changes."""
        return require_outboxes(self._outboxes)


class GuardedTable(_Store):
    """A DynamoDB table whose writes take effect once per message.

    `table` is a boto3 Table, or a low-level client together with `table_name`, which is faster. Both accept and return plain Python
    values, and threads can share either. With `typed=True`, a client accepts and returns typed values, such as `{"S": "text"}`, in
    keys, items, expressions, and entities. Each method takes the native arguments after the message, and normally sends one request.
    With `lean=True`, the first attempt of a guarded write or a read bypasses botocore and takes a third of the processor time: see
    docs/dynamodb.md.
    """

    _is_async = False
    _runs = run, run_typed

    @overload
    def __init__(
        self,
        table: Table,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = ...,
        outbox: Outbox | None = ...,
        tombstones: Tombstones | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        table: Client,
        ledger: Ledger,
        *,
        table_name: str,
        lean: bool = ...,
        typed: bool = ...,
        clock: Callable[[], float] = ...,
        outbox: Outbox | None = ...,
        tombstones: Tombstones | None = ...,
    ) -> None: ...
    def __init__(
        self,
        table: Any,
        ledger: Ledger,
        *,
        table_name: str | None = None,
        lean: bool = False,
        typed: bool = False,
        clock: Callable[[], float] = wall_clock,
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
    ) -> None:
        options: dict[str, Any] = {"clock": clock, "outbox": outbox, "tombstones": tombstones}
        super().__init__(table, ledger, table_name=cast("str", table_name), typed=typed, **options)
        if lean:
            self._target = make_lean_client(table, table_name)

    @followed
    def update_item(
        self, message: Message, *, emit: Emit = None, finishes: Claim | None = None, **native: Unpack[UpdateItemArguments]
    ) -> Outcome:
        """Update the item once per message. `Applied.entity` has the attributes that `ReturnValues` requests. `finishes` is the effect that the write ends."""
        return self._run(self._flows.write(message, self._untype(native), emit=emit, finishes=finishes), self._target)

    @followed
    def put_item(self, message: Message, *, emit: Emit = None, **native: Unpack[PutItemArguments]) -> Outcome:
        """Create the item. An existing item is never replaced. The outcome is then `Duplicate` or `Rejected`."""
        return self._run(self._flows.write(message, self._untype(native), build_put, emit=emit), self._target)

    @followed
    def delete_item(self, message: Message, *, emit: Emit = None, **native: Unpack[DeleteItemArguments]) -> Outcome:
        """Delete the item, and leave a tombstone that refuses late messages. The table needs `tombstones=`.

        With `ReturnValues="ALL_OLD"`, `Applied.entity` is the deleted item.
        """
        return self._run(delete(self._flows, message, emit=emit, **self._untype(native)), self._target)

    @followed
    def remember(
        self, message: Message, *, emit: Emit = None, finishes: Claim | None = None, **native: Unpack[RememberArguments]
    ) -> Outcome:
        """Remember the message without changing your attributes. A missing item is created."""
        return self._run(self._flows.remember(message, emit=emit, finishes=finishes, **self._untype(native)), self._target)

    @followed
    def update_batch(
        self, messages: Iterable[Message], function: Callable[[list[Message]], Mapping[str, Any]]
    ) -> list[Outcome]:
        """Write the messages in as few requests as possible. The outcomes are in the order of the messages.

        `function` takes the fresh messages, and returns the arguments of the `update_item` with their changes, or only a `Key` to remember
        them, and optionally `emit`. It's called again with fewer messages if some are duplicates, or if the write is too large.
        """
        return self._run(update_batch(self._flows, messages, self._untype_result(function)), self._target)

    @followed
    def begin_effect(
        self,
        message: Message,
        name: str,
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
            self._flows, message, name, self._untype(native), lease=lease, key_valid_for=key_valid_for, after=after
        )
        return self._run(flow, self._target)

    @followed
    def perform_effect(
        self,
        message: Message,
        name: str,
        function: EffectFunction,
        *,
        lease: timedelta,
        key_valid_for: timedelta,
        then: Then,
        **native: Unpack[EffectArguments],
    ) -> Outcome:
        """Begin an effect, call `function(effect)`, and finish with the `update_item` whose arguments `then(result)` returns."""
        then = self._untype_result(then)
        flow = perform_effect(
            self._flows, message, name, function, self._untype(native), lease=lease, key_valid_for=key_valid_for, then=then
        )
        return self._run(flow, self._target)

    def release_effect(self, effect: Begun, *, sent: bool = True) -> None:
        """End the effect's lease now, if this worker still has it. Pass `sent=False` if the effect wasn't sent: then the next `begin_effect` or
        write of the message removes the effect, and a delete doesn't wait for it.
        """
        return self._run(release_effect(self._flows, effect, sent=sent), self._target)

    def open_effects(self, **native: Unpack[PreviewArguments]) -> list[Busy | Uncertain]:
        """Return the entity's open effects: `Busy` while their lease lasts, then `Uncertain`. An effect that was released with `sent=False` is
        `Busy` with a time in the past. Its message can be begun or written at once.
        """
        return self._run(read_open_effects(self._flows, self._untype(native)), self._target)

    @followed_hint
    def preview(self, message: Message, **native: Unpack[PreviewArguments]) -> Outcome:
        """Return the outcome that an unconditional write would have now. It only reads. Use it to skip costly work, not as a guard."""
        return self._run(read_outcome(self._flows, message, self._untype(native)), self._target)

    def get_item(self, **native: Unpack[GetItemArguments]) -> Entity | None:
        """Return the entity without its ledger, or None."""
        return self._run(self._flows.get_item(**self._untype(native)), self._target)


class AsyncGuardedTable(_Store):
    """`GuardedTable` for an aioboto3 Table, or an aiobotocore client with `table_name`. It has the same methods. Await them."""

    _is_async = True
    _runs = cast("Run", arun), cast("Run", arun_typed)

    update_item = followed_async(GuardedTable.update_item)
    put_item = followed_async(GuardedTable.put_item)
    delete_item = followed_async(GuardedTable.delete_item)
    remember = followed_async(GuardedTable.remember)
    begin_effect = followed_async(GuardedTable.begin_effect)
    perform_effect = followed_async(GuardedTable.perform_effect)
    release_effect = as_async(GuardedTable.release_effect)
    open_effects = as_async(GuardedTable.open_effects)
    preview = followed_async(GuardedTable.preview, is_hint=True)
    get_item = as_async(GuardedTable.get_item)

    @followed_async
    def update_batch(
        self,
        messages: Iterable[Message],
        function: Callable[[list[Message]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]],
    ) -> list[Outcome]:
        """Write the messages in as few requests as possible. The outcomes are in the order of the messages.

        `function` takes the fresh messages, and returns the arguments of the `update_item` with their changes, or only a `Key` to remember
        them, and optionally `emit`. It's called again with fewer messages if some are duplicates, or if the write is too large.
        It can be asynchronous.
        """
        flow = update_batch(self._flows, messages, self._untype_result(function))
        return self._run(flow, self._target)
