"""The message that arrives before its entity is redelivered, unless the handler says that a missing entity is an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onewrite import Applied, InvalidUpdate, Message, Missing, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore, moto_table
from onewrite.testing.standins.stores import mongomock_collection

PLACE, PAY = Message("place", "s"), Message("pay", "s")
Handler = Callable[[Message], Any]


class Orders:
    """One order in a collection: it is placed, and paid. `accepts`: a missing order is an answer."""

    def __init__(self, collection: Any, *, accepts: bool = False) -> None:
        self.guarded = GuardedCollection(collection, SeenIds())
        self.options: Any = {"missing_ok": True} if accepts else {}

    def place(self, message: Message) -> Outcome:
        return self.guarded.insert_one(message, {"_id": "o", "paid": 0})

    def pay(self, message: Message) -> Outcome:
        return self.guarded.update_one(message, {"_id": "o"}, {"$inc": {"paid": 1}}, **self.options)


def returns(orders: Orders) -> Handler:
    return lambda message: orders.place(message) if message.id == "place" else orders.pay(message)


def ignores(orders: Orders) -> Handler:
    """It writes, and forgets to return what came of it."""

    def handle(message: Message) -> None:
        returns(orders)(message)

    return handle


def ignores_later(orders: Orders) -> Callable[[Message], Awaitable[None]]:
    async def handle(message: Message) -> None:
        returns(orders)(message)

    return handle


def replaces_it(orders: Orders) -> Handler:
    def handle(message: Message) -> Outcome:
        outcome = returns(orders)(message)
        return Applied(message) if isinstance(outcome, Missing) else outcome

    return handle


def explored(made: Callable[[Orders], Handler], *messages: Message, **options: Any) -> Any:
    return explore(
        lambda collection: made(Orders(collection, **options)),
        messages=messages or (PLACE, PAY),
        world=lambda: mongomock_collection("orders"),
        observe=lambda collection: (collection.find_one({"_id": "o"}) or {}).get("paid"),
    )


IN_EITHER_ORDER = pytest.mark.parametrize("messages", [(PLACE, PAY), (PAY, PLACE)], ids=["in order", "overtaken"])


@IN_EITHER_ORDER
def test_a_handler_that_drops_what_came_too_early_is_found(messages: tuple[Message, ...]) -> None:
    assert not explored(replaces_it, *messages).ok


@pytest.mark.parametrize("made", [returns, ignores, ignores_later])
@IN_EITHER_ORDER
def test_a_handler_whose_message_comes_again_is_right(
    made: Callable[[Orders], Handler], messages: tuple[Message, ...]
) -> None:
    report = explored(made, *messages)
    assert report.ok
    assert report.exhausted


@pytest.mark.parametrize("made", [returns, ignores])
def test_handler_may_take_a_missing_entity_for_an_answer(made: Callable[[Orders], Handler]) -> None:
    assert explored(made, accepts=True).ok


# --- what becomes of the record -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [1, None])
def test_missing_ok_is_true_or_false(wrong: Any) -> None:
    documents: Any = GuardedCollection(mongomock_collection("orders"), SeenIds())
    with pytest.raises(InvalidUpdate, match="missing_ok="):
        documents.update_one(PAY, {"_id": "o"}, {"$inc": {"paid": 1}}, missing_ok=wrong)
    with moto_table("orders") as table, pytest.raises(InvalidUpdate, match="missing_ok="):
        GuardedTable(table, SeenIds()).record(PAY, Key={"orderId": "o"}, missing_ok=wrong)
