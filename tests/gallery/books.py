"""Accounts to keep in coroutines, alike on both engines, so the handlers of tasks are written once."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, Protocol

from aiobotocore.session import get_session

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
    """A client of aiobotocore. The explorer answers what it sends, so it need not be open where it is used."""

    def __init__(self, _: object, **options: Any) -> None:
        self._client = _client()
        self._guarded = AsyncGuardedTable(self._client, SeenIds(), table_name="customers", **options)

    async def balance(self, account: str) -> int:
        answer = await self._client.get_item(TableName="customers", Key={"id": {"S": account}}, ConsistentRead=True)
        return int(answer.get("Item", {}).get("balance", {"N": "0"})["N"])

    async def put(self, account: str, balance: int) -> None:
        await self._update(account, "SET balance = :n", balance)

    async def add(self, account: str, amount: int) -> None:
        await self._update(account, "ADD balance :n", amount)

    async def _update(self, account: str, expression: str, number: int) -> None:
        await self._client.update_item(
            TableName="customers",
            Key={"id": {"S": account}},
            UpdateExpression=expression,
            ExpressionAttributeValues={":n": {"N": str(number)}},
        )

    async def add_once(self, message: Message, account: str, amount: int) -> Outcome:
        values = {":n": amount}
        return await self._guarded.update_item(
            message, Key={"id": account}, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values
        )


@cache
def _client() -> Any:
    keys: Any = {"region_name": "eu-west-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}

    async def opened() -> Any:
        async with get_session().create_client("dynamodb", **keys) as client:
            return client

    return asyncio.run(opened())
