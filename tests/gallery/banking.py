"""A customer's balance on either engine, for handlers that are the same on both, blocking or in coroutines.

The handlers are coroutine functions. With a blocking store nothing in them ever waits, so `blocking` makes functions of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError
from pymongo import ReadPreference
from pymongo.errors import AutoReconnect, DuplicateKeyError, OperationFailure

from onewrite import Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from tests.gallery.cases import Worlds, awaited_balances, balances, deposit

Coroutine: TypeAlias = Callable[[Message], Awaitable[Any]]
Build: TypeAlias = Callable[["Bank"], Coroutine]

NO_CONNECTION = (ConnectionClosedError, EndpointConnectionError, AutoReconnect)  # the request may have arrived, or not
_REFUSED = "ConditionalCheckFailedException"


class Bank:
    """One store with customers, of whom `c1` is one."""

    def __init__(self, store: Any, customer: str = "c1", *, ledger: Any = None, **options: Any) -> None:
        self.store = store
        self.on_mongodb = hasattr(store, "find_one")
        self.awaited = self.on_mongodb and inspect.iscoroutinefunction(store.find_one)
        self.key = {"_id" if self.on_mongodb else "id": customer}
        kind = GuardedTable if not self.on_mongodb else AsyncGuardedCollection if self.awaited else GuardedCollection
        self._guarded: Any = kind(store, ledger or SeenIds(), **options)

    def of(self, customer: str) -> Bank:
        return Bank(self.store, customer)

    async def add(self, message: Message) -> Outcome:
        """A guarded write."""
        if self.on_mongodb:
            change = {"$inc": {"balance": message.body["amount"]}}
            return await _come(self._guarded.update_one(message, self.key, change, upsert=True))
        return await _come(self._guarded.update_item(message, Key=self.key, **_added(message.body["amount"])))

    async def add_plainly(self, amount: int) -> None:
        """A write that has its effect each time."""
        if self.on_mongodb:
            await _come(self.store.update_one(self.key, {"$inc": {"balance": amount}}, upsert=True))
        else:
            await _come(self.store.update_item(Key=self.key, **_added(amount)))

    async def add_under(self, mark: str, amount: int) -> bool:
        """Add by hand, once for each mark. False if the mark is there."""
        if self.on_mongodb:
            change = {"$inc": {"balance": amount}, "$push": {"seen": mark}}
            fresh = {**self.key, "seen": {"$ne": mark}}
            try:
                await _come(self.store.update_one(fresh, change, upsert=True))
            except DuplicateKeyError:  # it is there, or was created at the same time by another message
                return bool((await _come(self.store.update_one(fresh, change))).matched_count)
            return True
        native = {
            "UpdateExpression": "ADD balance :n, seen :marks",
            "ConditionExpression": "NOT contains(seen, :mark)",
            "ExpressionAttributeValues": {":n": amount, ":marks": {mark}, ":mark": mark},
        }
        try:
            await _come(self.store.update_item(Key=self.key, **native))
        except ClientError as error:
            if _code(error) != _REFUSED:
                raise
            return False
        return True

    async def swap(self, version: int, balance: int, **more: Any) -> bool:
        """Set the balance if the version is still this one. False if it is not."""
        fields = {"balance": balance, "version": version + 1, **more}
        if self.on_mongodb:
            wanted = {**self.key, "version": version}
            try:
                answer = await _come(self.store.update_one(wanted, {"$set": fields}, upsert=version == 0))
            except DuplicateKeyError:
                return False
            return bool(answer.matched_count or answer.upserted_id)
        condition = "version = :version" if version else "attribute_not_exists(id)"
        values = {":version": version} if version else {}
        try:
            await _come(
                self.store.put_item(
                    Item={**self.key, **fields},
                    ConditionExpression=condition,
                    **({"ExpressionAttributeValues": values} if values else {}),
                )
            )
        except ClientError as error:
            if _code(error) != _REFUSED:
                raise
            return False
        return True

    async def put(self, balance: int, **more: Any) -> None:
        """Set the balance, whatever it is."""
        if self.on_mongodb:
            await _come(self.store.update_one(self.key, {"$set": {"balance": balance, **more}}, upsert=True))
        else:
            await _come(self.store.put_item(Item={**self.key, "balance": balance, **more}))

    async def create(self, **fields: Any) -> bool:
        """Create the customer. False if it is there."""
        try:
            if self.on_mongodb:
                await _come(self.store.insert_one({**self.key, **fields}))
            else:
                item = {**self.key, **fields}
                await _come(self.store.put_item(Item=item, ConditionExpression="attribute_not_exists(id)"))
        except DuplicateKeyError:
            return False
        except ClientError as error:
            if _code(error) != _REFUSED:
                raise
            return False
        return True

    async def delete(self) -> None:
        """Delete the customer."""
        await _come(self.store.delete_one(self.key) if self.on_mongodb else self.store.delete_item(Key=self.key))

    async def read(self, *, late: bool = False) -> Mapping[str, Any] | None:
        """`late`: it may leave out the last writes."""
        if self.on_mongodb:
            store = self.store.with_options(read_preference=ReadPreference.SECONDARY) if late else self.store
            return cast("Mapping[str, Any] | None", await _come(store.find_one(self.key)))
        found = await _come(self.store.get_item(Key=self.key, ConsistentRead=not late))
        return cast("Mapping[str, Any] | None", found.get("Item"))


def _code(error: ClientError) -> str:
    response: Any = error.response
    return str(response["Error"]["Code"])


def is_throttled(error: Exception) -> bool:
    if isinstance(error, ClientError):
        return _code(error) == "ProvisionedThroughputExceededException"
    return isinstance(error, OperationFailure) and error.code == 462  # IngressRequestRateLimitExceeded


def make_handler(build: Build, store: Any) -> Callable[[Message], Any]:
    bank = Bank(store)
    handle = build(bank)
    return handle if bank.awaited else blocking(handle)


def blocking(handle: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Any]:
    """Return the coroutine function as a function."""

    def call(message: Any) -> Any:
        try:
            cast("Any", handle(message)).send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("It waits for something.")

    return call


def _added(amount: int) -> dict[str, Any]:
    return {"UpdateExpression": "ADD balance :n", "ExpressionAttributeValues": {":n": amount}}


async def _come(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


@dataclass(frozen=True)
class Case:
    """How a handler of deposits is explored, and on which engines. Without `observe`, the balances count."""

    messages: tuple[Any, ...] = (deposit(1), deposit(2))
    engines: tuple[str, ...] = ("dynamodb", "mongodb")
    bounds: Mapping[str, Any] = field(default_factory=dict)
    observe: Any = None

    def run(self, explore: Any, worlds: Worlds, engine: str, build: Any, **options: Any) -> Any:
        return explore(
            lambda store: make_handler(build, store),
            messages=self.messages,
            world=worlds(engine, ("customers",)),
            observe=self.observe or (awaited_balances if engine.startswith("async") else balances),
            **self.bounds,
            **options,
        )


def list_on_engines(cases: Mapping[str, Case], *, slow: Collection[tuple[str, str]] = ()) -> list[Any]:
    """Return the parameters of a test: each handler's name with each of its engines."""
    pairs = [(name, engine) for name, case in cases.items() for engine in case.engines]
    return [pytest.param(*pair, marks=[pytest.mark.slow] if pair in slow else []) for pair in pairs]
