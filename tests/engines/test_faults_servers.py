"""Faults and machines on real engines, where botocore and pymongo have somebody to talk to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect

from onewrite import Applied, Duplicate, Message, SeenIds
from onewrite.dynamodb import AsyncGuardedTable
from onewrite.testing.servers.engines import Dynoxide, Mongod
from onewrite.testing.taps.faults import Crash, Faults
from onewrite.testing.taps.tap import is_async
from tests.engines.stores import async_dynamo, dynamo_state

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

M1 = Message("m-1")
BUMP: dict[str, Any] = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}


# ---------------------------------------------------------------- dynoxide


def test_faults_work_with_an_aiobotocore_client(dynoxide: Dynoxide, dynamo: DynamoDBClient, table: str) -> None:
    async def main() -> None:
        async with async_dynamo(dynoxide.endpoint) as client:
            faults = Faults(client)
            assert is_async(faults.store)
            faults.lose_response(1)
            faults.crash_before(2)
            faults.crash_after(3)
            orders = AsyncGuardedTable(faults.store, SeenIds(), table_name=table)
            key = {"id": "e"}
            assert await orders.update_item(M1, Key=key, **BUMP) == Applied(M1, retried=True)
            for _ in range(2):
                with pytest.raises(Crash):
                    await orders.update_item(Message("m-2"), Key=key, **BUMP)
            assert isinstance(await orders.update_item(Message("m-2"), Key=key, **BUMP), Duplicate)
            assert faults.requests[-1].keys == ((table, "e"),)
            faults.assert_all_used()

    asyncio.run(main())
    assert dynamo_state(dynamo, table).n == 2


# ---------------------------------------------------------------- mongod


def test_lost_mongodb_response_raises_if_driver_does_not_retry(
    mongod: Mongod, collection: Collection[dict[str, Any]]
) -> None:
    assert collection.find_one() is None  # the driver knows by now whether its server takes retryable writes
    faults = Faults(collection)
    faults.lose_response(1)
    faults.lose_response(2)
    assert faults.store.update_one({"_id": "e"}, {"$inc": {"n": 1}}, upsert=True).upserted_id == "e"
    with pytest.raises(AutoReconnect):
        faults.store.update_many({}, {"$inc": {"n": 1}})
    with MongoClient[Any](mongod.uri, retryWrites=False) as client:
        faults = Faults(client.test[collection.name])
        faults.lose_response(1)
        with pytest.raises(AutoReconnect):
            faults.store.update_one({"_id": "e"}, {"$inc": {"n": 1}})
    assert collection.find_one() == {"_id": "e", "n": 3}


def test_write_conflict_restarts_the_transaction(
    mongo: MongoClient[dict[str, Any]], collection: Collection[dict[str, Any]]
) -> None:
    collection.insert_one({"_id": "e", "n": 0})
    faults = Faults(collection)
    faults.cancel_transaction(1)
    with mongo.start_session() as session:
        session.with_transaction(lambda inside: faults.store.update_one({"_id": "e"}, {"$inc": {"n": 1}}, session=inside))
    assert len(faults.requests) == 2
    assert collection.find_one() == {"_id": "e", "n": 1}
