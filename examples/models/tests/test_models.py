"""Each repository decides each message once, keeps what its mapper knows, and refuses what its mapper read before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import beanie
import pytest
from pymongo import AsyncMongoClient
from pynamodb.exceptions import PutError

from models.accounts_mongoengine import Accounts, State
from models.orders_pynamodb import Line, Orders, Status
from models.stock_beanie import Hold, Shelf, Stock, StockRoom
from onewrite import Applied, Duplicate, Message, Missing, Rejected
from onewrite.testing import explore, mongomock_collection
from onewrite.testing.servers.engines import Mongod

AT = datetime(2026, 11, 27, 8, 30, tzinfo=UTC)
ONE, TWO, THREE, FOUR = (Message(name) for name in ("m1", "m2", "m3", "m4"))


def kinds(*outcomes: Any) -> list[type]:
    return [type(outcome[0] if isinstance(outcome, tuple) else outcome) for outcome in outcomes]


def test_orders(dynamodb: Any) -> None:
    orders = Orders(dynamodb, clock=lambda: AT)
    assert kinds(orders.place(ONE, "o-1"), orders.place(ONE, "o-1")) == [Applied, Duplicate]
    outcome, order = orders.add_line(TWO, "o-1", "pen", 250)
    assert kinds(outcome, orders.add_line(TWO, "o-1", "pen", 250)) == [Applied, Duplicate]
    assert order is not None
    assert (order.status, order.changed_at, order.due, order.version) == (Status.OPEN, AT, 250, 2)
    assert [(line.sku, line.cents) for line in order.lines] == [("pen", 250)]
    assert isinstance(order.lines[0], Line)
    assert kinds(orders.pay(THREE, "o-1", 900), orders.pay(THREE, "o-2", 1)) == [Rejected, Missing]
    assert kinds(orders.pay(THREE, "o-1", 250), orders.cancel(FOUR, "o-1")) == [Applied, Rejected]
    assert orders.get("o-1").paid == 250


def test_created_order_can_be_saved(dynamodb: Any) -> None:
    _, order = Orders(dynamodb, clock=lambda: AT).place(ONE, "o-1")
    assert order is not None
    order.save()
    assert order.version == 2


def test_stale_order_is_not_saved(dynamodb: Any) -> None:
    orders = Orders(dynamodb, clock=lambda: AT)
    orders.place(ONE, "o-1")
    stale = orders.get("o-1")
    orders.add_line(TWO, "o-1", "pen", 250)
    with pytest.raises(PutError):
        stale.save()
    assert kinds(orders.add_line(TWO, "o-1", "pen", 250)) == [Duplicate]


def test_accounts(mongo: Any) -> None:
    accounts = Accounts()
    assert kinds(accounts.open(ONE, "a-1"), accounts.open(ONE, "a-1")) == [Applied, Duplicate]
    outcome, account = accounts.deposit(TWO, "a-1", 1250, AT)
    assert kinds(outcome, accounts.deposit(TWO, "a-1", 1250, AT)) == [Applied, Duplicate]
    assert account is not None
    assert (account.state, account.cents, account.version) == (State.OPEN, 1250, 1)
    assert account.bookings[0].amount == Decimal("12.50")  # pyright: ignore[reportIndexIssue, reportAttributeAccessIssue]  # MongoEngine has no types
    assert kinds(accounts.withdraw(THREE, "a-1", 9000), accounts.withdraw(THREE, "a-1", 250)) == [Rejected, Applied]
    assert kinds(accounts.freeze(FOUR, "a-1"), accounts.freeze(FOUR, "a-1")) == [Applied, Duplicate]
    assert (accounts.get("a-1").cents, accounts.get("a-1").state) == (1000, State.FROZEN)
    accounts.get("a-1").update(set__cents=7)
    assert kinds(accounts.deposit(TWO, "a-1", 1250, AT)) == [Duplicate]


InStockRoom = Callable[[Callable[[StockRoom], Awaitable[None]]], None]


@pytest.fixture
def in_stock_room(engine: Mongod | None) -> InStockRoom:
    """Runs an asynchronous function with a stock room, whose documents Beanie keeps in an empty collection."""

    async def use(function: Callable[[StockRoom], Awaitable[None]], database: Any) -> None:
        await beanie.init_beanie(database, document_models=[Stock])
        await Stock.delete_all()
        await function(StockRoom())

    async def use_engine(function: Callable[[StockRoom], Awaitable[None]], uri: str) -> None:
        async with AsyncMongoClient[Any](uri) as client:
            await use(function, client.test)

    def run(function: Callable[[StockRoom], Awaitable[None]]) -> None:
        database = mongomock_collection(asynchronous=True).database
        asyncio.run(use(function, database) if engine is None else use_engine(function, engine.uri))

    return run


def test_stock(in_stock_room: InStockRoom) -> None:
    async def use(room: StockRoom) -> None:
        assert kinds(await room.open_shelf(ONE, "pen", Decimal("1.50"))) == [Applied]
        assert kinds(await room.open_shelf(ONE, "pen", Decimal("1.50"))) == [Duplicate]
        assert kinds(await room.receive(TWO, "pen", 3), await room.receive(TWO, "pen", 3)) == [Applied, Duplicate]
        hold = Hold(order="o-1", count=2, price=Decimal("1.50"))
        outcome, stock = await room.hold(THREE, "pen", hold)
        assert kinds(outcome, await room.hold(THREE, "pen", hold), await room.hold(FOUR, "pen", hold)) == [
            Applied,
            Duplicate,
            Rejected,
        ]
        assert stock is not None
        assert (stock.left, stock.holds, stock.price, stock.shelf) == (1, [hold], Decimal("1.50"), Shelf.OPEN)
        assert kinds(await room.close_shelf(FOUR, "pen"), await room.receive(FOUR, "ink", 1)) == [Rejected, Missing]

    in_stock_room(use)


def test_stale_stock_is_not_saved(in_stock_room: InStockRoom) -> None:
    async def use(room: StockRoom) -> None:
        await room.open_shelf(ONE, "pen", Decimal(1))
        stale = await room.get("pen")
        assert stale is not None
        await room.receive(TWO, "pen", 3)
        for write in (stale.save, stale.replace):
            with pytest.raises(beanie.exceptions.RevisionIdWasChanged):  # pyright: ignore[reportAttributeAccessIssue]  # Beanie does not export it
                await write()
        assert kinds(await room.receive(TWO, "pen", 3)) == [Duplicate]

    in_stock_room(use)


# --- every schedule of two deliveries --------------------------------------------------------------------------------------


def test_no_schedule_pays_an_order_twice(dynamodb: Any) -> None:
    orders = Orders(dynamodb, clock=lambda: AT)

    def world() -> Any:
        dynamodb.delete_item(TableName="orders", Key={"order_id": {"S": "o-1"}})
        orders.place(ONE, "o-1")
        orders.add_line(TWO, "o-1", "pen", 250)
        return dynamodb

    def paid(_: Any) -> Any:
        return orders.get("o-1").paid

    explore(
        lambda _: lambda message: orders.pay(message, "o-1", 100)[0], messages=[THREE], world=world, observe=paid
    ).assert_effectively_once()


def test_no_schedule_withdraws_twice(mongo: Any) -> None:
    accounts = Accounts()

    def world() -> Any:
        mongo.accounts.delete_many({})
        accounts.open(ONE, "a-1")
        accounts.deposit(TWO, "a-1", 1250, AT)
        return mongo.accounts

    explore(
        lambda _: lambda message: accounts.withdraw(message, "a-1", 250)[0],
        messages=[THREE],
        world=world,
        observe=lambda _: accounts.get("a-1").cents,
    ).assert_effectively_once()


def test_no_schedule_receives_stock_twice() -> None:
    def build(stock: Any) -> Any:
        async def handle(message: Message) -> Any:
            await beanie.init_beanie(stock.database, document_models=[Stock])
            outcome, _ = await StockRoom().receive(message, "pen", 3)
            return outcome

        return handle

    def world() -> Any:
        stock = mongomock_collection("stock", asynchronous=True)
        stock.stand_in.insert_one({"_id": "pen", "left": 0})
        return stock

    async def left(stock: Any) -> int:
        found = await stock.find_one({"_id": "pen"})
        return int(found["left"])

    explore(build, messages=[THREE], world=world, observe=left).assert_effectively_once()
