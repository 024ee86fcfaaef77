"""The guarded table: its flows, written once, and the two classes that run them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.dynamodb.request import Guarded, guard_put, guard_update
from onewrite.dynamodb.values import plain, size, typed
from onewrite.dynamodb.verdict import refused, stored, without_ledger
from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidUpdate
from onewrite.flow import Call, Flow, Wait, arun, run
from onewrite.ledger import Ledger
from onewrite.message import Message
from onewrite.outcome import Applied, Entity, Outcome

# A transaction holds an item for milliseconds. botocore does not retry a conflict with one, and nothing was written.
_CONFLICT_WAITS = (0.025, 0.05, 0.1, 0.2, 0.4)
_LARGEST_ITEM = 400 * 1024


# Set where requests must be the same each time a program is run, as under onewrite.testing.
minting: ContextVar[Callable[[], str] | None] = ContextVar("onewrite.minting", default=None)


def new_attempt() -> str:
    """A token for one call: 40 random bits are few bytes in the entity, and no two calls of a fortnight share them."""
    mint = minting.get()
    return secrets.token_urlsafe(5) if mint is None else mint()


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
        self._table_name = table_name
        self._clock = clock
        self._attempts = attempts

    def write(self, message: Message, native: Mapping[str, Any]) -> Flow[Outcome]:
        guarded = self.guard(message, native)
        try:
            response = yield from self._send(guarded)
        except ClientError as error:
            return (yield from self._explain(error, guarded, message))
        attributes = response.get("Attributes")
        return Applied(message, None if attributes is None else self._entity(attributes))

    def seen(self, message: Message, native: Mapping[str, Any]) -> Flow[Outcome]:
        entry = self._ledger.entry(message, self._clock())
        item = yield from self._read({"ConsistentRead": True, **native})
        entity = None if item is None else without_ledger(self._ledger.attribute, item)
        refusal = entry.judge(message, stored(self._ledger.attribute, item or {}), entity=entity)
        return Applied(message, entity) if refusal is None else refusal

    def get(self, native: Mapping[str, Any]) -> Flow[Entity | None]:
        item = yield from self._read(native)
        return None if item is None else without_ledger(self._ledger.attribute, item)

    def explain(self, message: Message, native: Mapping[str, Any]) -> dict[str, Any]:
        return self._request(self.guard(message, native).kwargs)

    def guard(self, message: Message, native: Mapping[str, Any]) -> Guarded:
        entry = self._ledger.entry(message, self._clock())
        guard = guard_put if "Item" in native else guard_update
        return guard(self._ledger.attribute, entry, self._attempts(), native)

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        return without_ledger(self._ledger.attribute, item)

    def _send(self, guarded: Guarded) -> Flow[Mapping[str, Any]]:
        call = Call(guarded.method, kwargs=self._request(guarded.kwargs))
        for wait in _CONFLICT_WAITS:
            try:
                return cast("Mapping[str, Any]", (yield call))
            except ClientError as error:
                if _code(error) != "TransactionConflictException":
                    raise
            yield Wait(wait)
        return cast("Mapping[str, Any]", (yield call))

    def _explain(self, error: ClientError, guarded: Guarded, message: Message) -> Flow[Outcome]:
        if _code(error) == "ConditionalCheckFailedException":
            # Typed values even from the resource layer: boto3 does not deserialise the members of an error.
            item = cast("Mapping[str, Any] | None", error.response.get("Item"))
            return refused(self._ledger.attribute, guarded, message, None if item is None else plain(item))
        if _is_too_large(error):
            raise (yield from self._too_large(guarded)) from error
        raise error

    def _too_large(self, guarded: Guarded) -> Flow[EntityTooLarge]:
        """The entity refuses every further message, so its size is worth one more request."""
        item: Entity | None = guarded.kwargs.get("Item")
        if item is None:
            try:
                item = yield from self._read({"Key": guarded.kwargs["Key"], "ConsistentRead": True})
            except ClientError:  # as where only writing is allowed
                item = None
        sizes = "its present size is not known" if item is None else _sizes(item, self.without_ledger(item))
        return EntityTooLarge(
            f"The entity would exceed DynamoDB's {_LARGEST_ITEM} bytes: {sizes}. It is unchanged, and will refuse every "
            "further message: split it, or give the ledger a shorter retention or digest=True."
        )

    def _read(self, native: Mapping[str, Any]) -> Flow[Entity | None]:
        response = yield Call("get_item", kwargs=self._request(native))
        item: Entity | None = response.get("Item")
        return item if item is None or self._table_name is None else plain(item)

    def _entity(self, attributes: Mapping[str, Any]) -> Entity:
        attributes = without_ledger(self._ledger.attribute, attributes)
        return attributes if self._table_name is None else plain(attributes)

    def _request(self, native: Mapping[str, Any]) -> dict[str, Any]:
        """Plain values for a Table, which turns them into typed ones by itself; typed ones for a client."""
        if self._table_name is None:
            return dict(native)
        request: dict[str, Any] = {"TableName": self._table_name, **native}
        for name in ("Key", "Item", "ExpressionAttributeValues"):
            if name in request:
                request[name] = typed(request[name])
        return request


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
        return run(self._flows.write(message, _update(native)), self._target)

    def put_item(self, message: Message, **native: Any) -> Outcome:
        """Create only: an item that is already there is `Duplicate` or `Rejected`, never replaced."""
        return run(self._flows.write(message, _put(native)), self._target)

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
        return await arun(self._flows.write(message, _update(native)), self._target)

    async def put_item(self, message: Message, **native: Any) -> Outcome:
        """Create only: an item that is already there is `Duplicate` or `Rejected`, never replaced."""
        return await arun(self._flows.write(message, _put(native)), self._target)

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


def _update(native: Mapping[str, Any]) -> Mapping[str, Any]:
    if "Item" in native:
        raise InvalidUpdate("update_item takes no Item: give it an UpdateExpression, or create with put_item.")
    return native


def _put(native: Mapping[str, Any]) -> Mapping[str, Any]:
    if not native.get("Item"):
        raise InvalidUpdate("put_item needs the Item to create.")
    return native


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
