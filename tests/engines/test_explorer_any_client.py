"""Handlers that reach a real mongod or a DynamoDB engine through clients and libraries of their own are explored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import beanie
import mongoengine
import pytest
from aiobotocore.session import get_session
from mongoengine.connection import disconnect
from motor.motor_asyncio import AsyncIOMotorClient
from pydantic import ConfigDict
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import DuplicateKeyError

from onewrite import Applied, ConfigurationError, Duplicate, Message, Outcome, SeenIds
from onewrite.mongodb import AsyncGuardedCollection
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.explore import explore
from onewrite.testing.servers.engines import REGION, Dynoxide, Mongod

pytestmark = pytest.mark.measured

M1 = Message("m1", "s", 1, 30)


class Customer(beanie.Document):
    id: str  # type: ignore[assignment]  # Beanie's own documents say ObjectId
    credit: int = 0
    seen: list[str] = []  # noqa: RUF012  # as Beanie asks for it

    class Settings:
        name = "customers"


class Payment(mongoengine.Document):  # type: ignore[misc]  # mongoengine says nothing of its types
    message = mongoengine.StringField(unique=True)
    credit = mongoengine.IntField()


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
    return explore(build, **{"messages": [M1], "world": world, "observe": credit, **options})


def assert_found(report: Exploration, first: str) -> None:
    assert report.counterexample is not None, report
    assert str(report.counterexample.steps[0]).startswith(f"m1, delivery 1: {first}")


def assert_right(report: Exploration) -> None:
    report.assert_effectively_once()
    assert report.exhausted
    assert report.schedules > 1


@pytest.mark.parametrize("guarded", [False, True])
def test_a_client_of_the_handlers_own(mongod: Mongod, world: Any, guarded: bool) -> None:
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
def test_a_beanie_document(mongod: Mongod, world: Any, guarded: bool) -> None:
    asyncio.run(initialised(mongod.uri))

    async def handle(message: Message) -> None:
        query = {"_id": "c1", **({"seen": {"$ne": message.id}} if guarded else {})}
        await Customer.find_one(query).update({"$inc": {"credit": message.body}, "$push": {"seen": message.id}})

    report = on(world, lambda _: handle)
    if guarded:
        assert_right(report)
    else:
        assert_found(report, "update_one customers c1: applied")


def test_beanie_may_be_initialised_in_the_handler_and_read_before_it_writes(mongod: Mongod, world: Any) -> None:
    async def handle(message: Message) -> None:
        async with AsyncMongoClient[Any](mongod.uri) as client:
            await beanie.init_beanie(client.any, document_models=[Customer])
            customer = await Customer.get("c1")
            assert customer is not None
            if message.id not in customer.seen:
                customer.credit += message.body
                customer.seen.append(message.id)
                await customer.save()
                await Customer.find_one({"_id": "c1"}).update({"$inc": {"credit": 1}})

    assert_found(on(world, lambda _: handle), "command customers: read")


@pytest.mark.parametrize("committing", [True, False])
def test_a_session_of_a_client_of_the_handlers_own(
    mongod: Mongod, mongo: MongoClient[Any], world: Any, committing: bool
) -> None:
    with MongoClient[Any](mongod.uri) as client:

        def write(message: Message, session: Any) -> None:
            client.any.marks.insert_one({"_id": message.id}, session=session)
            client.any.customers.update_one({"_id": "c1"}, {"$inc": {"credit": message.body}}, session=session)

        def handle(message: Message) -> None:
            with client.start_session() as session, suppress(DuplicateKeyError):
                if committing:
                    session.with_transaction(lambda _: write(message, session))
                else:
                    write(message, session)

        report = on(lambda: with_no_marks(mongo, world), lambda _: handle)
    if committing:
        assert_right(report)
    else:
        assert_found(report, "insert_one marks m1: applied")


@pytest.mark.parametrize("committing", [True, False])
def test_an_asynchronous_session_of_a_client_of_the_handlers_own(
    mongod: Mongod, mongo: MongoClient[Any], world: Any, committing: bool
) -> None:
    client = AsyncMongoClient[Any](mongod.uri, connect=False)

    async def write(message: Message, session: Any) -> None:
        await client.any.marks.insert_one({"_id": message.id}, session=session)
        await client.any.customers.update_one({"_id": "c1"}, {"$inc": {"credit": message.body}}, session=session)

    async def handle(message: Message) -> None:
        async with client.start_session() as session:
            with suppress(DuplicateKeyError):
                if committing:
                    await session.with_transaction(lambda _: write(message, session))
                else:
                    await write(message, session)

    report = on(lambda: with_no_marks(mongo, world), lambda _: handle)
    if committing:
        assert_right(report)
    else:
        assert_found(report, "insert_one marks m1: applied")


def with_no_marks(mongo: MongoClient[Any], world: Any) -> Any:
    mongo.any.marks.delete_many({})
    return world()


@pytest.fixture
def connected(mongod: Mongod) -> Iterator[None]:
    mongoengine.connect("any", host=mongod.uri, uuidRepresentation="standard")
    Payment._collection = None
    yield
    disconnect()


@pytest.mark.usefixtures("connected")
def test_a_mongoengine_document_with_a_unique_field(mongo: MongoClient[Any]) -> None:
    def emptied() -> Any:
        mongo.any.payment.drop()
        return mongo.any.payment

    def handle(message: Message) -> None:
        try:
            Payment(message=message.id, credit=message.body).save()
        except mongoengine.NotUniqueError:
            return

    def payments(_: Any) -> Any:
        return [(payment.message, payment.credit) for payment in Payment.objects]

    assert_right(on(emptied, lambda _: handle, observe=payments))


def test_a_mongoengine_document_that_is_read_and_saved(mongod: Mongod, connected: None, world: Any) -> None:
    class Account(mongoengine.Document):  # type: ignore[misc]  # the same
        id = mongoengine.StringField(primary_key=True)
        credit = mongoengine.IntField()
        seen = mongoengine.ListField(mongoengine.StringField())
        meta = {"collection": "customers"}  # noqa: RUF012  # as mongoengine asks for it

    def handle(message: Message) -> None:
        account = Account.objects(id="c1").first()
        Account.objects(id="c1").update_one(set__credit=account.credit + message.body)

    assert_found(on(world, lambda _: handle), "find customers c1: read")


def test_motor_is_refused(mongod: Mongod, world: Any) -> None:
    async def handle(message: Message) -> None:
        client: Any = AsyncIOMotorClient(mongod.uri)
        try:
            await client.any.customers.update_one({"_id": "c1"}, {"$inc": {"credit": message.body}})
        finally:
            client.close()

    with pytest.raises(ConfigurationError, match="update_one was sent by Motor"):
        on(world, lambda _: handle)


@pytest.mark.parametrize("guarded", [False, True])
def test_an_aiobotocore_client_of_an_engine(dynoxide: Dynoxide, guarded: bool) -> None:
    session: Any = get_session()
    keys = {"aws_access_key_id": "other", "aws_secret_access_key": "other", "region_name": REGION}

    async def handle(message: Message) -> None:
        values = {":n": {"N": "1"}, ":ids": {"SS": [message.id]}, **({":id": {"S": message.id}} if guarded else {})}
        guard = {"ConditionExpression": "NOT contains(seen, :id)"} if guarded else {}
        async with session.create_client("dynamodb", endpoint_url=dynoxide.endpoint, **keys) as client:
            try:
                await client.update_item(
                    TableName="any",
                    Key={"id": {"S": "c1"}},
                    UpdateExpression="ADD n :n, seen :ids",
                    ExpressionAttributeValues=values,
                    **guard,
                )
            except client.exceptions.ConditionalCheckFailedException:
                return

    def total(table: Any) -> Any:
        return table.get_item(Key={"id": "c1"})["Item"]["n"]

    report = on(lambda: dynoxide.table("any", "id"), lambda _: handle, observe=total)
    if guarded:
        assert_right(report)
    else:
        assert_found(report, "UpdateItem any c1: applied")


class Loose(Customer):
    model_config = ConfigDict(extra="allow")


def test_what_the_writes_of_a_beanie_document_do_to_a_ledger(mongod: Mongod, world: Any) -> None:
    world()

    async def outcomes() -> None:
        async with AsyncMongoClient[Any](mongod.uri) as client:
            await beanie.init_beanie(client.any, document_models=[Customer, Loose])
            store = AsyncGuardedCollection(Customer.get_pymongo_collection(), SeenIds())

            async def pay(message: Message) -> Outcome:
                return await store.update_one(message, {"_id": "c1"}, {"$inc": {"credit": 10}})

            read = await Customer.get("c1")
            assert read is not None
            assert isinstance(await pay(M1), Applied)
            await read.set({"seen": ["x"]})
            assert isinstance(await pay(M1), Duplicate)

            await read.save()  # what was read before the message, but the message stays remembered
            assert isinstance(await pay(M1), Duplicate)

            loose = await Loose.get("c1")
            assert loose is not None
            assert isinstance(await pay(Message("m2")), Applied)
            await loose.save()  # with the ledger as it was read
            assert isinstance(await pay(Message("m2")), Applied)

            await read.replace()
            assert isinstance(await pay(M1), Applied)

    asyncio.run(outcomes())
