"""The endpoints that the suite can run against: engines of this machine, and those that an environment variable names.

`ONEWRITE_TEST_DYNAMODB` is the URL of anything that speaks DynamoDB, or `aws` for DynamoDB itself with the credentials and the
region of the environment. `ONEWRITE_TEST_MONGODB` is a MongoDB URI. What the suite makes there has a name that nobody else uses,
and is removed again at the end. docs/proof.md tells users about it.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import boto3
import pymongo
from botocore.exceptions import ClientError
from pymongo.errors import OperationFailure

from onewrite.testing.servers.engines import Dynoxide, Mongod

DYNAMODB = "ONEWRITE_TEST_DYNAMODB"
MONGODB = "ONEWRITE_TEST_MONGODB"
DUMMIES: dict[str, Any] = {"region_name": "eu-west-1", "aws_access_key_id": "dummy", "aws_secret_access_key": "dummy"}
TABLE: dict[str, Any] = {
    "TableName": "orders",
    "KeySchema": [{"AttributeName": "orderId", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "orderId", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
# Five minutes: DynamoDB makes a table in some ten seconds as a rule, and promises no time.
_UNTIL_ACTIVE = {"Delay": 2, "MaxAttempts": 150}


class TablePlace(NamedTuple):
    """A table, and what a client needs to know to reach it."""

    client: Mapping[str, Any]
    table: str


class CollectionPlace(NamedTuple):
    """A collection, and the server that has it."""

    uri: str
    database: str
    collection: str


@contextmanager
def dynoxide_table() -> Iterator[TablePlace]:
    with Dynoxide() as server, _own_table({**DUMMIES, "endpoint_url": server.endpoint}) as place:
        yield place


@contextmanager
def mongod_collection() -> Iterator[CollectionPlace]:
    with Mongod() as server:
        yield CollectionPlace(server.uri, "shop", "orders")


@contextmanager
def endpoint_table() -> Iterator[TablePlace]:
    """A table on the DynamoDB that the environment names."""
    with _ended_in_order(), _own_table(client_settings(os.environ)) as place:
        yield place


@contextmanager
def endpoint_collection() -> Iterator[CollectionPlace]:
    """A collection in a database of its own, on the MongoDB that the environment names."""
    place = CollectionPlace(os.environ[MONGODB], f"onewrite_contract_{uuid.uuid4().hex}", "orders")
    with _ended_in_order(), pymongo.MongoClient[dict[str, Any]](place.uri) as client:
        try:
            _shard_where_sharded(client, place)
            yield place
        finally:
            _remove_database(client, place)


def client_settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """What a client needs to be told to reach the DynamoDB that the environment names."""
    named = environment[DYNAMODB]
    if named == "aws":
        return {}
    if not named.startswith(("http://", "https://")):
        raise ValueError(f"{DYNAMODB}={named}: give a URL, as in http://localhost:8000, or aws.")
    if "AWS_ACCESS_KEY_ID" in environment or "AWS_PROFILE" in environment:
        return {"endpoint_url": named}
    return {**DUMMIES, "endpoint_url": named}  # engines for tests ask for credentials, and take any


@contextmanager
def _own_table(settings: Mapping[str, Any]) -> Iterator[TablePlace]:
    client: Any = boto3.client("dynamodb", **settings)
    name = f"onewrite-contract-{uuid.uuid4().hex}"
    try:
        client.create_table(**{**TABLE, "TableName": name})
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig=_UNTIL_ACTIVE)
        yield TablePlace(settings, name)
    finally:
        _remove_table(client, name)
        client.close()


def _remove_table(client: Any, name: str) -> None:
    try:
        client.delete_table(TableName=name)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "ResourceInUseException":  # interrupted while the table was made: until it is, it cannot be deleted
            client.get_waiter("table_exists").wait(TableName=name, WaiterConfig=_UNTIL_ACTIVE)
            client.delete_table(TableName=name)
        elif code != "ResourceNotFoundException":  # it was never made
            raise


def _shard_where_sharded(client: pymongo.MongoClient[dict[str, Any]], place: CollectionPlace) -> None:
    """Spread the orders over all shards. The answer to `hello` says whether the server is a mongos."""
    if client.admin.command("hello").get("msg") == "isdbgrid":
        client.admin.command("enableSharding", place.database)
        client.admin.command("shardCollection", f"{place.database}.{place.collection}", key={"_id": "hashed"})


def _remove_database(client: pymongo.MongoClient[dict[str, Any]], place: CollectionPlace) -> None:
    client[place.database].drop_collection(place.collection)
    try:
        client.drop_database(place.database)
    except OperationFailure as error:
        # A user with the role readWrite may not drop a database; an empty one is gone with its last collection.
        if error.code not in (13, 8000):  # Unauthorized, and Atlas's own code for it
            raise


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM ends the tests as Ctrl-C does, and what was made is removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


TABLES: dict[str, Callable[[], AbstractContextManager[TablePlace]]] = {"dynoxide": dynoxide_table}
COLLECTIONS: dict[str, Callable[[], AbstractContextManager[CollectionPlace]]] = {"mongod": mongod_collection}
if DYNAMODB in os.environ:
    TABLES["endpoint dynamodb"] = endpoint_table
if MONGODB in os.environ:
    COLLECTIONS["endpoint mongodb"] = endpoint_collection
