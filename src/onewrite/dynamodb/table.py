"""The guarded table: the two classes that run its flows, a line a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack, overload

from onewrite.clock import random_name, wall_clock
from onewrite.dynamodb.deletes import Deletes
from onewrite.dynamodb.native import (
    Client,
    DeleteItemArguments,
    ExplainArguments,
    GetItemArguments,
    PutItemArguments,
    RecordArguments,
    SeenArguments,
    Table,
    UpdateItemArguments,
)
from onewrite.dynamodb.outboxes import Outboxes
from onewrite.dynamodb.request import guard_put
from onewrite.event import Emit, Outbox, made_with_outbox
from onewrite.flow import arun, run
from onewrite.ledger import Ledger
from onewrite.message import Message
from onewrite.outcome import Entity, Outcome
from onewrite.tombstone import Tombstones


class GuardedTable:
    """A DynamoDB table whose writes take effect once a message.

    `table` is a boto3 Table, or a low-level client together with `table_name`, which is the faster way. Both take and give
    plain Python values. Every call is the native one with the message in front, and is one request.
    """

    @overload
    def __init__(
        self,
        table: Table,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = ...,
        attempts: Callable[[], str] = ...,
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
        clock: Callable[[], float] = ...,
        attempts: Callable[[], str] = ...,
        outbox: Outbox | None = ...,
        tombstones: Tombstones | None = ...,
    ) -> None: ...
    def __init__(
        self,
        table: Table | Client,
        ledger: Ledger,
        *,
        table_name: str | None = None,
        clock: Callable[[], float] = wall_clock,
        attempts: Callable[[], str] = random_name,
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
    ) -> None:
        self._flows = Deletes(
            table, ledger, table_name, clock, attempts, outbox=outbox, tombstones=tombstones, awaited=False
        )
        self._target = table
        self._outboxes = None if outbox is None else Outboxes(table, table_name, outbox)

    def update_item(self, message: Message, *, emit: Emit = None, **native: Unpack[UpdateItemArguments]) -> Outcome:
        """The guarded write. `Applied.entity` is what `ReturnValues` asks for."""
        return run(self._flows.write(message, native, emit=emit), self._target)

    def put_item(self, message: Message, *, emit: Emit = None, **native: Unpack[PutItemArguments]) -> Outcome:
        """Create only: an item that is already there is `Duplicate` or `Rejected`, never replaced."""
        return run(self._flows.write(message, native, guard_put, emit), self._target)

    def delete_item(self, message: Message, *, emit: Emit = None, **native: Unpack[DeleteItemArguments]) -> Outcome:
        """Delete the item, and leave a tombstone that refuses every message that comes late. Needs `tombstones=`.

        With `ReturnValues="ALL_OLD"`, `Applied.entity` is what was deleted.
        """
        return run(self._flows.delete(message, native, emit), self._target)

    def record(self, message: Message, *, emit: Emit = None, **native: Unpack[RecordArguments]) -> Outcome:
        """Remember the message with no business change, in a new item if there is none."""
        return run(self._flows.record(message, native, emit), self._target)

    def seen(self, message: Message, **native: Unpack[SeenArguments]) -> Outcome:
        """Read only: what an unconditional write would get now. A hint to skip costly work, not a guard."""
        return run(self._flows.seen(message, native), self._target)

    def get_item(self, **native: Unpack[GetItemArguments]) -> Entity | None:
        """The entity without its ledger, or None."""
        return run(self._flows.get(native), self._target)

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        """The entity without its ledger, for an item that was read another way, in plain or typed values."""
        return self._flows.without_ledger(item)

    def explain(self, message: Message, *, emit: Emit = None, **native: Unpack[ExplainArguments]) -> dict[str, Any]:
        """The request that `update_item` (or with `Item`, `put_item`) would send. Nothing is sent."""
        return self._flows.explain(message, native, emit)

    @property
    def outboxes(self) -> Outboxes:
        """What a relay asks of this table."""
        return made_with_outbox(self._outboxes)


class AsyncGuardedTable:
    """`GuardedTable` for an aioboto3 Table, or an aiobotocore client with `table_name`."""

    @overload
    def __init__(
        self,
        table: Table,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = ...,
        attempts: Callable[[], str] = ...,
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
        clock: Callable[[], float] = ...,
        attempts: Callable[[], str] = ...,
        outbox: Outbox | None = ...,
        tombstones: Tombstones | None = ...,
    ) -> None: ...
    def __init__(
        self,
        table: Table | Client,
        ledger: Ledger,
        *,
        table_name: str | None = None,
        clock: Callable[[], float] = wall_clock,
        attempts: Callable[[], str] = random_name,
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
    ) -> None:
        self._flows = Deletes(table, ledger, table_name, clock, attempts, outbox=outbox, tombstones=tombstones, awaited=True)
        self._target = table
        self._outboxes = None if outbox is None else Outboxes(table, table_name, outbox)

    async def update_item(self, message: Message, *, emit: Emit = None, **native: Unpack[UpdateItemArguments]) -> Outcome:
        """The guarded write. `Applied.entity` is what `ReturnValues` asks for."""
        return await arun(self._flows.write(message, native, emit=emit), self._target)

    async def put_item(self, message: Message, *, emit: Emit = None, **native: Unpack[PutItemArguments]) -> Outcome:
        """Create only: an item that is already there is `Duplicate` or `Rejected`, never replaced."""
        return await arun(self._flows.write(message, native, guard_put, emit), self._target)

    async def delete_item(self, message: Message, *, emit: Emit = None, **native: Unpack[DeleteItemArguments]) -> Outcome:
        """Delete the item, and leave a tombstone that refuses every message that comes late. Needs `tombstones=`.

        With `ReturnValues="ALL_OLD"`, `Applied.entity` is what was deleted.
        """
        return await arun(self._flows.delete(message, native, emit), self._target)

    async def record(self, message: Message, *, emit: Emit = None, **native: Unpack[RecordArguments]) -> Outcome:
        """Remember the message with no business change, in a new item if there is none."""
        return await arun(self._flows.record(message, native, emit), self._target)

    async def seen(self, message: Message, **native: Unpack[SeenArguments]) -> Outcome:
        """Read only: what an unconditional write would get now. A hint to skip costly work, not a guard."""
        return await arun(self._flows.seen(message, native), self._target)

    async def get_item(self, **native: Unpack[GetItemArguments]) -> Entity | None:
        """The entity without its ledger, or None."""
        return await arun(self._flows.get(native), self._target)

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        """The entity without its ledger, for an item that was read another way, in plain or typed values."""
        return self._flows.without_ledger(item)

    def explain(self, message: Message, *, emit: Emit = None, **native: Unpack[ExplainArguments]) -> dict[str, Any]:
        """The request that `update_item` (or with `Item`, `put_item`) would send. Nothing is sent."""
        return self._flows.explain(message, native, emit)

    @property
    def outboxes(self) -> Outboxes:
        """What a relay asks of this table."""
        return made_with_outbox(self._outboxes)
