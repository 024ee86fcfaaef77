"""Accounts to keep in coroutines, alike on both engines, so the handlers of tasks are written once."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, Protocol

import aioboto3

from onewrite import Message, Outcome, SeenIds
from onewrite.dynamodb import AsyncGuardedTable
from onewrite.mongodb import AsyncGuardedCollection


class Books(Protocol):
    async def balance(self, account: str) -> int: ...
    async def put(self, account: str, balance: int) -> None: ...
    async def add(self, account: str, amount: int) -> None: ...
    async def add_once(self, message: Message, account: str, amount: int) -> Outcome: ...


class MongoBooks:
    def __init__(self, accounts: Any, **options: Any) -> None:
        self._accounts = accounts
        self._guarded = AsyncGuardedCollection(accounts, SeenIds(), **options)

    async def balance(self, account: str) -> int:
        return (await self._accounts.find_one({"_id": account}) or {}).get("balance", 0)

    async def put(self, account: str, balance: int) -> None:
        await self._accounts.update_one({"_id": account}, {"$set": {"balance": balance}}, upsert=True)

    async def add(self, account: str, amount: int) -> None:
        await self._accounts.update_one({"_id": account}, {"$inc": {"balance": amount}}, upsert=True)

    async def add_once(self, message: Message, account: str, amount: int) -> Outcome:
        return await self._guarded.update_one(message, {"_id": account}, {"$inc": {"balance": amount}}, upsert=True)


class DynamoBooks:
    """A table of aioboto3. The explorer answers what it sends, so it need not be open where it is used."""

    def __init__(self, _: object, **options: Any) -> None:
        self._table = _table()
        self._guarded = AsyncGuardedTable(self._table, SeenIds(), **options)

    async def balance(self, account: str) -> int:
        answer = await self._table.get_item(Key={"id": account}, ConsistentRead=True)
        return int(answer.get("Item", {}).get("balance", 0))

    async def put(self, account: str, balance: int) -> None:
        values = {":n": balance}
        await self._table.update_item(
            Key={"id": account}, UpdateExpression="SET balance = :n", ExpressionAttributeValues=values
        )

    async def add(self, account: str, amount: int) -> None:
        values = {":n": amount}
        await self._table.update_item(
            Key={"id": account}, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values
        )

    async def add_once(self, message: Message, account: str, amount: int) -> Outcome:
        values = {":n": amount}
        return await self._guarded.update_item(
            message, Key={"id": account}, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values
        )


@cache
def _table() -> Any:
    session = aioboto3.Session(region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")

    async def opened() -> Any:
        async with session.resource("dynamodb") as resource:
            return await resource.Table("customers")

    return asyncio.run(opened())
