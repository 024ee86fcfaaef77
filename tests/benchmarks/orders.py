"""The business write that the contenders make, on each engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pymongo import WriteConcern

from onewrite.testing.servers.engines import Dynoxide
from tests.engines.stores import create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "orders"
DYNAMODB_UPDATE: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status ADD shipments :one",
    "ExpressionAttributeNames": {"#status": "status"},
    "ExpressionAttributeValues": {":status": "SHIPPED", ":one": 1},
}
MONGODB_UPDATE: dict[str, Any] = {"$set": {"status": "SHIPPED"}, "$inc": {"shipments": 1}}
DURABLE = WriteConcern("majority", j=True)


@contextmanager
def orders(server: Dynoxide) -> Iterator[DynamoDBClient]:
    """A client, and the table that the benchmarks write to."""
    client = server.client()
    create_table(client, TABLE)
    yield client
    client.close()
