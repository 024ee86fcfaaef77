"""The guarded table: its flows, written once, and the two classes that run them."""

from __future__ import annotations

import os
import time
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias, cast

from botocore.exceptions import ClientError

from onewrite.dynamodb.request import guard_put, guard_update
from onewrite.dynamodb.values import Spell, plain, sendable, size, typed, typed_value
from onewrite.dynamodb.verdict import Attempt, refused, stored, without_ledger
from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidUpdate
from onewrite.flow import Call, Flow, Wait, arun, run
from onewrite.ledger import Entry, Ledger
from onewrite.message import Message
from onewrite.outcome import Applied, Entity, Outcome

# A transaction holds an item for milliseconds. botocore does not retry a conflict with one, and nothing was written.
_CONFLICT_WAITS = (0.025, 0.05, 0.1, 0.2, 0.4)
_LARGEST_ITEM = 400 * 1024


# Set where requests must be the same each time a program is run, as under onewrite.testing.
minting: ContextVar[Callable[[], str] | None] = ContextVar("onewrite.minting", default=None)


def new_attempt() -> str:
    """A token for one call: 48 random bits are few bytes in the entity, and no two calls of a fortnight share them."""
    mint = minting.get()
    return b2a_base64(os.urandom(6), newline=False).decode() if mint is None else mint()


Guard: TypeAlias = Callable[[str, Entry, str, Mapping[str, Any], Spell], Call]


class _Flows:
    """What both classes do, without a client."""

    def __init__(
        self,
        table: object,
        ledger: Ledger,
        table_name: str | None,
        clock: Callable[[], float],
        attempts: Callable[[], str],
    ) -> None:
        _check_wiring(table, ledger, table_name)
        self._ledger = ledger
        self._clock = clock
        self._attempts = attempts
        # A client is told which table, and speaks in typed values; a Table knows, and takes plain ones.
        self._table = {} if table_name is None else {"TableName": table_name}
        self._spell = sendable if table_name is None else typed_value

    def write(self, message: Message, native: Mapping[str, Any], guard: Guard = guard_update) -> Flow[Outcome]:
        entry, token = self._ledger.entry(message, self._clock()), self._attempts()
        call = self._call(guard, entry, token, native)
        try:
            try:
                response = yield call
            except ClientError as error:
                response = yield from self._insist(error, call)
        except ClientError as error:
            return (yield from self._explain(error, Attempt(call, entry, token), message))
        attributes = response.get("Attributes")
        return Applied(message, None if attributes is None else self._entity(attributes))

    def seen(self, message: Message, native: Mapping[str, Any]) -> Flow[Outcome]:
        entry = self._ledger.entry(message, self._clock())
        item = yield from self._read({"ConsistentRead": True, **self._named(native)})
        entity = None if item is None else without_ledger(self._ledger.attribute, item)
        refusal = entry.judge(message, stored(self._ledger.attribute, item or {}), entity=entity)
        return Applied(message, entity) if refusal is None else refusal

    def get(self, native: Mapping[str, Any]) -> Flow[Entity | None]:
        item = yield from self._read(self._named(native))
        return None if item is None else without_ledger(self._ledger.attribute, item)

    def explain(self, message: Message, native: Mapping[str, Any]) -> dict[str, Any]:
        guard = guard_put if "Item" in native else guard_update
        return self._call(guard, self._ledger.entry(message, self._clock()), self._attempts(), native).kwargs

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        return without_ledger(self._ledger.attribute, item)

    def _call(self, guard: Guard, entry: Entry, token: str, native: Mapping[str, Any]) -> Call:
        return guard(self._ledger.attribute, entry, token, {**self._table, **native}, self._spell)

    def _insist(self, error: ClientError, call: Call) -> Flow[Mapping[str, Any]]:
        """Send again what met a transaction, and raise anything else."""
        for wait in _CONFLICT_WAITS:
            if _code(error) != "TransactionConflictException":
                break
            yield Wait(wait)
            try:
                return cast("Mapping[str, Any]", (yield call))
            except ClientError as again:
                error = again
        raise error

    def _explain(self, error: ClientError, attempt: Attempt, message: Message) -> Flow[Outcome]:
        if _code(error) == "ConditionalCheckFailedException":
            # Typed values even from the resource layer: boto3 does not deserialise the members of an error.
            item = cast("Mapping[str, Any] | None", error.response.get("Item"))
            return refused(self._ledger.attribute, attempt, message, None if item is None else plain(item))
        if _is_too_large(error):
            raise (yield from self._too_large(attempt.call)) from error
        raise error

    def _too_large(self, call: Call) -> Flow[EntityTooLarge]:
        """The entity refuses every further message, so its size is worth one more request."""
        if "Item" in call.kwargs:
            item: Entity | None = self._plain(call.kwargs["Item"])
        else:
            try:
                item = yield from self._read({**self._table, "Key": call.kwargs["Key"], "ConsistentRead": True})
            except ClientError:  # as where only writing is allowed
                item = None
        sizes = "its present size is not known" if item is None else _sizes(item, self.without_ledger(item))
        return EntityTooLarge(
            f"The entity would exceed DynamoDB's {_LARGEST_ITEM} bytes: {sizes}. It is unchanged, and will refuse every "
            "further message: split it, or give the ledger a shorter retention or digest=True."
        )

    def _read(self, request: dict[str, Any]) -> Flow[Entity | None]:
        response = yield Call("get_item", (), request)
        item: Entity | None = response.get("Item")
        return None if item is None else self._plain(item)

    def _named(self, native: Mapping[str, Any]) -> dict[str, Any]:
        key = {"Key": typed(native["Key"])} if self._table and "Key" in native else {}
        return {**self._table, **native, **key}

    def _entity(self, attributes: Mapping[str, Any]) -> Entity:
        return self._plain(without_ledger(self._ledger.attribute, attributes))

    def _plain(self, item: Entity) -> Entity:
        return plain(item) if self._table else item


class GuardedTable:
    """A DynamoDB table whose writes take effect once a message.

    `table` is a boto3 Table, or a low-level client together with `table_name`, which is the faster way. Both take and give
    plain Python values. Every call is the native one with the message in front, and is one request.
    """

    def __init__(
        self,
        table: Any,
        ledger: Ledger,
        *,
        table_name: str | None = None,
        clock: Callable[[], float] = time.time,
        attempts: Callable[[], str] = new_attempt,
    ) -> None:
        self._flows = _Flows(table, ledger, table_name, clock, attempts)
        self._target = table

    def update_item(self, message: Message, **native: Any) -> Outcome:
        """The guarded write. `Applied.entity` is what `ReturnValues` asks for."""
        return run(self._flows.write(message, native), self._target)

    def put_item(self, message: Message, **native: Any) -> Outcome:
        """Create only: an item that is already there is `Duplicate` or `Rejected`, never replaced."""
        return run(self._flows.write(message, native, guard_put), self._target)

    def record(self, message: Message, **native: Any) -> Outcome:
        """Remember the message with no business change, in a new item if there is none."""
        return run(self._flows.write(message, _record(native)), self._target)

    def seen(self, message: Message, **native: Any) -> Outcome:
        """Read only: what an unconditional write would get now. A hint to skip costly work, not a guard."""
        return run(self._flows.seen(message, native), self._target)

    def get_item(self, **native: Any) -> Entity | None:
        """The entity without its ledger, or None."""
        return run(self._flows.get(native), self._target)

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        """The entity without its ledger, for an item that was read another way, in plain or typed values."""
        return self._flows.without_ledger(item)

    def explain(self, message: Message, **native: Any) -> dict[str, Any]:
        """The request that `update_item` (or with `Item`, `put_item`) would send. Nothing is sent."""
        return self._flows.explain(message, native)


class AsyncGuardedTable:
    """`GuardedTable` for an aioboto3 Table, or an aiobotocore client with `table_name`."""

    def __init__(
        self,
        table: Any,
        ledger: Ledger,
        *,
        table_name: str | None = None,
        clock: Callable[[], float] = time.time,
        attempts: Callable[[], str] = new_attempt,
    ) -> None:
        self._flows = _Flows(table, ledger, table_name, clock, attempts)
        self._target = table

    async def update_item(self, message: Message, **native: Any) -> Outcome:
        """The guarded write. `Applied.entity` is what `ReturnValues` asks for."""
        return await arun(self._flows.write(message, native), self._target)

    async def put_item(self, message: Message, **native: Any) -> Outcome:
        """Create only: an item that is already there is `Duplicate` or `Rejected`, never replaced."""
        return await arun(self._flows.write(message, native, guard_put), self._target)

    async def record(self, message: Message, **native: Any) -> Outcome:
        """Remember the message with no business change, in a new item if there is none."""
        return await arun(self._flows.write(message, _record(native)), self._target)

    async def seen(self, message: Message, **native: Any) -> Outcome:
        """Read only: what an unconditional write would get now. A hint to skip costly work, not a guard."""
        return await arun(self._flows.seen(message, native), self._target)

    async def get_item(self, **native: Any) -> Entity | None:
        """The entity without its ledger, or None."""
        return await arun(self._flows.get(native), self._target)

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        """The entity without its ledger, for an item that was read another way, in plain or typed values."""
        return self._flows.without_ledger(item)

    def explain(self, message: Message, **native: Any) -> dict[str, Any]:
        """The request that `update_item` (or with `Item`, `put_item`) would send. Nothing is sent."""
        return self._flows.explain(message, native)


def _record(native: Mapping[str, Any]) -> Mapping[str, Any]:
    if "UpdateExpression" in native or "Item" in native:
        raise InvalidUpdate("record changes nothing but the ledger: for a business change use update_item or put_item.")
    return native


def _check_wiring(table: object, ledger: object, table_name: str | None) -> None:
    named = isinstance(getattr(table, "name", None), str)
    if not named and not table_name:
        raise ConfigurationError("A low-level client serves every table: say which one with table_name=.")
    if named and table_name:
        raise ConfigurationError("A Table knows its own name: leave out table_name, or give the low-level client.")
    if not callable(getattr(ledger, "entry", None)):
        raise ConfigurationError(f"{ledger!r} is no ledger: give SeenIds(), HighWaterMark() or InSequence().")


def _sizes(item: Entity, entity: Entity) -> str:
    return f"it has {size(item)}, of which its ledger has {size(item) - size(entity)}"


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _is_too_large(error: ClientError) -> bool:
    # The code is the same as for any bad request: only the text tells.
    text = error.response.get("Error", {}).get("Message", "")
    return _code(error) == "ValidationException" and "size" in text and "exceeded the maximum allowed size" in text
