"""Handlers that reach a real mongod through a client or a library of their own are explored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import beanie
import pytest
from pymongo import AsyncMongoClient, MongoClient

from onewrite import Message
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.explore import explore
from onewrite.testing.servers.engines import Mongod

pytestmark = pytest.mark.measured

M1 = Message("m1", "s", 1, 30)


class Customer(beanie.Document):
    id: str  # type: ignore[assignment]  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]  # Beanie's own documents say ObjectId
    credit: int = 0
    seen: list[str] = []  # noqa: RUF012  # as Beanie asks for it

    class Settings:
        name = "customers"


@pytest.fixture
def world(mongo: MongoClient[Any]) -> Callable[[], Any]:
    def made() -> Any:
        mongo.any.customers.drop()
        mongo.any.customers.insert_one({"_id": "c1", "credit": 0, "seen": []})
        return mongo.any.customers

    return made


def credit(collection: Any) -> Any:
    return collection.find_one({"_id": "c1"}, {"credit": 1})


def on(world: Any, build: Any, **options: Any) -> Exploration:
    chosen: dict[str, Any] = {"messages": [M1], "world": world, "observe": credit, **options}
    return explore(build, **chosen)


def assert_found(report: Exploration, first: str) -> None:
    assert report.counterexample is not None, report
    assert str(report.counterexample.steps[0]).startswith(f"m1, delivery 1: {first}")


def assert_right(report: Exploration) -> None:
    report.assert_effectively_once()
    assert report.exhausted
    assert report.schedules > 1


@pytest.mark.parametrize("guarded", [False, True])
def test_handlers_own_mongodb_client_is_explored(mongod: Mongod, world: Any, guarded: bool) -> None:
    def handle(message: Message) -> None:
        with MongoClient[Any](mongod.uri.replace("127.0.0.1", "localhost")) as client:
            guard = {"seen": {"$ne": message.id}} if guarded else {}
            change = {"$inc": {"credit": message.body}, "$push": {"seen": message.id}}
            client.any.customers.update_one({"_id": "c1", **guard}, change)

    report = on(world, lambda _: handle)
    if guarded:
        assert_right(report)
    else:
        assert_found(report, "update_one customers c1: applied")


async def initialised(uri: str) -> None:
    """The client is closed, which makes no difference: a store of the world performs what the document sends."""
    async with AsyncMongoClient[Any](uri) as client:
        await beanie.init_beanie(client.any, document_models=[Customer])


@pytest.mark.parametrize("guarded", [False, True])
def test_beanie_document_is_explored(mongod: Mongod, world: Any, guarded: bool) -> None:
    asyncio.run(initialised(mongod.uri))

    async def handle(message: Message) -> None:
        query = {"_id": "c1", **({"seen": {"$ne": message.id}} if guarded else {})}
        await Customer.find_one(query).update({"$inc": {"credit": message.body}, "$push": {"seen": message.id}})

    report = on(world, lambda _: handle)
    if guarded:
        assert_right(report)
    else:
        assert_found(report, "update_one customers c1: applied")
