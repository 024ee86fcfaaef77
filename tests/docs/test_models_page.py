"""The table of docs/models.md describes what each mapper does to an entity with a ledger."""

# The mappers' own types disagree with how their documents are written.
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportIncompatibleVariableOverride=false

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import beanie
import mongoengine
import pytest
from mongoengine.connection import disconnect
from pydantic import ConfigDict
from pynamodb.attributes import NumberAttribute, UnicodeAttribute, VersionAttribute
from pynamodb.exceptions import PutError
from pynamodb.models import Model

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing import mongomock_collection, moto_table
from onewrite.testing.standins.collection import StandInClient
from tests.support.pages import ROOT

M1 = Message("m1")
ROWS = {
    cells[0]: cells[1:]
    for line in (ROOT / "docs" / "models.md").read_text().splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 3
}


def row(mapper: str) -> list[str]:
    """The cells of a mapper, without marks."""
    return [re.sub(r"[*`]", "", cell) for cell in ROWS[mapper]]


class Order(Model):
    class Meta:
        table_name = "orders"
        region = "eu-west-1"

    order_id = UnicodeAttribute(hash_key=True, attr_name="orderId")
    paid = NumberAttribute(default=0)


class Versioned(Order):
    version = VersionAttribute()


@pytest.mark.parametrize("model", [Order, Versioned])
@pytest.mark.parametrize("bumps", [False, True])
def test_pynamodb(model: type[Order], bumps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_connection", None)
    is_versioned = model is Versioned
    change = "ADD paid :c, version :one" if bumps else "ADD paid :c"
    values = {":c": 5, **({":one": 1} if bumps else {})}
    with moto_table("orders") as table:
        orders = GuardedTable(table, SeenIds())

        def pay() -> str:
            native: Any = {"UpdateExpression": change, "ExpressionAttributeValues": values}
            return type(orders.update_item(M1, Key={"orderId": "o-1"}, **native)).__name__

        model("o-1").save()
        stale = model.get("o-1")
        assert pay() == "Applied"
        assert model.get("o-1").paid == 5
        model.get("o-1").update(actions=[model.paid.set(5)])
        assert pay() == "Duplicate"
        if bumps and is_versioned:
            with pytest.raises(PutError):
                stale.save()
            assert pay() == "Duplicate"
            batches: Any = model.batch_write()  # it checks no version
            with batches as batch:
                batch.save(stale)
            assert pay() == "Applied"
        model.get("o-1").save()
        assert pay() == "Applied"
    mapper = "PynamoDB, `VersionAttribute`" if is_versioned else "PynamoDB"
    assert row(mapper)[0] == "fine"
    assert "applied again" in row(mapper)[1]
    assert ("a stale save is refused" in row(mapper)[1]) == is_versioned


class Stock(beanie.Document):
    id: str  # type: ignore[assignment]  # Beanie's own documents say ObjectId
    left: int = 0

    class Settings:
        name = "stock"


class Revised(Stock):
    class Settings:
        name = "stock"
        use_revision = True


class Loose(Stock):
    model_config = ConfigDict(extra="allow")


class Strict(Stock):
    model_config = ConfigDict(extra="forbid")


async def undo(read: Stock) -> None:
    await read.save()


async def replace(read: Stock) -> None:
    await read.replace()


BEANIE: dict[tuple[str, type[Stock], Callable[[Stock], Awaitable[None]]], str] = {
    ("Beanie", Stock, undo): "Duplicate",
    ("Beanie", Stock, replace): "Applied",
    ("Beanie, `use_revision`", Revised, undo): "Duplicate",
    ("Beanie, `use_revision`", Revised, replace): "Applied",
    ('Beanie, `extra="allow"`', Loose, undo): "Applied",
    ('Beanie, `extra="forbid"`', Strict, undo): "raises",
}


@pytest.mark.parametrize(("mapper", "model", "write"), BEANIE)
def test_beanie(mapper: str, model: type[Stock], write: Callable[[Stock], Awaitable[None]]) -> None:
    async def use() -> str:
        await beanie.init_beanie(mongomock_collection(asynchronous=True).database, document_models=[model])
        store = AsyncGuardedCollection(model.get_pymongo_collection(), SeenIds())

        async def receive(message: Message) -> str:
            return type(await store.update_one(message, {"_id": "a"}, {"$inc": {"left": 3}})).__name__

        await model(id="a").insert()
        assert await receive(Message("m0")) == "Applied"  # so the entity has a ledger when it is read
        stale = await model.get("a")
        assert stale is not None
        assert await receive(M1) == "Applied"
        await model.find_one(model.id == "a").update({"$inc": {"left": 1}})
        assert await receive(M1) == "Duplicate"
        try:
            await write(stale)
        except Exception:
            return "raises"
        return await receive(M1)

    assert asyncio.run(use()) == BEANIE[mapper, model, write]
    assert row(mapper)[0] == "fine"


@pytest.fixture
def connected() -> Iterator[Any]:
    made: Any = mongoengine.connect(
        "test", mongo_client_class=lambda *_, **__: StandInClient(), uuidRepresentation="standard"
    )
    yield made
    disconnect()


@pytest.mark.parametrize("strict", [True, False])
def test_mongoengine(connected: Any, strict: bool) -> None:
    class Account(mongoengine.Document):  # type: ignore[misc]  # MongoEngine says nothing of its types
        number = mongoengine.StringField(primary_key=True)
        cents = mongoengine.IntField(default=0)
        meta = {"collection": "accounts", "strict": strict}  # noqa: RUF012  # as MongoEngine asks for it

    Account(number="a-1").save()
    stale = Account.objects.get(number="a-1")
    store = GuardedCollection(Account._get_collection(), SeenIds())

    def deposit() -> str:
        return type(store.update_one(M1, {"_id": "a-1"}, {"$inc": {"cents": 5}})).__name__

    assert deposit() == "Applied"
    Account.objects(number="a-1").update_one(inc__cents=1)
    if strict:
        with pytest.raises(mongoengine.errors.FieldDoesNotExist):
            Account.objects.get(number="a-1")
        assert row("MongoEngine")[0] == "raises FieldDoesNotExist"
    else:
        assert Account.objects.get(number="a-1").cents == 6
        stale.cents = 7
        stale.save()
        assert deposit() == "Duplicate"
        assert "changed fields only: fine" in row('MongoEngine, `meta={"strict": False}`')[1]
        Account(number="a-1").save()
        assert deposit() == "Applied"
        assert row('MongoEngine, `meta={"strict": False}`')[1].endswith("applied again")
    assert deposit() == "Duplicate"
