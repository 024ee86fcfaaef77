"""The databases of the three services: a stand-in of each, and the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import boto3
import mongoengine
import pytest
from mongoengine.connection import disconnect
from pymongo import MongoClient

from models.accounts_mongoengine import Account
from models.orders_pynamodb import Order
from onewrite.testing import dynoxide, mongod, moto_table
from onewrite.testing.servers.engines import Mongod
from onewrite.testing.standins.collection import StandInClient
from tests.support.engines import dynoxide_binary, mongod_binary, require


@pytest.fixture(params=["moto", "dynoxide"])
def dynamodb(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A low-level client with the table of the orders in it, to which the model is connected."""
    monkeypatch.setattr(Order, "_connection", None)
    with ExitStack() as stack:
        if request.param == "moto":
            stack.enter_context(moto_table("orders", "order_id"))
            yield boto3.client("dynamodb", region_name="eu-west-1")
        else:
            require(dynoxide_binary)
            engine = stack.enter_context(dynoxide())
            engine.table("orders", "order_id")
            monkeypatch.setattr(Order.Meta, "host", engine.endpoint, raising=False)
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.setenv(name, "of a stand-in")
            yield engine.client()


@pytest.fixture(scope="session")
def server() -> Iterator[Mongod]:
    require(mongod_binary)
    with mongod() as server:
        yield server


@pytest.fixture(params=["mongomock", "mongod"])
def engine(request: pytest.FixtureRequest) -> Any:
    """The engine for a test of MongoDB, or None for the stand-in."""
    return request.getfixturevalue("server") if request.param == "mongod" else None


@pytest.fixture
def mongo(engine: Mongod | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The database to which MongoEngine is connected."""

    def opened(*_: Any, **options: Any) -> Any:
        return StandInClient() if engine is None else MongoClient[Any](engine.uri, uuidRepresentation="standard")

    client: Any = mongoengine.connect("test", mongo_client_class=opened, uuidRepresentation="standard")
    monkeypatch.setattr(Account, "_collection", None)
    client.test.accounts.delete_many({})
    yield client.test
    disconnect()
