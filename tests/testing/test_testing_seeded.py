"""A seed in the place of chance."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from onewrite import Event, Message, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.testing import explore, mongomock_collection, moto_table, seeded

NOW = 1_790_000_000.0


def stored(seed: int | None) -> list[Any]:
    """An item and a document with a token, an event and a wait after a refusal."""
    with moto_table() as table, mongomock_collection() as collection, nullcontext() if seed is None else seeded(seed):
        items = GuardedTable(table, SeenIds(), outbox=Outbox("shop"), clock=lambda: NOW)
        documents = GuardedCollection(collection, SeenIds(), outbox=Outbox("shop"), clock=lambda: NOW)
        items.put_item(Message("m1"), Item={"orderId": "o-1"}, emit=[Event("Placed", 1)])
        documents.insert_one(Message("m1"), {"_id": "o-1"}, emit=[Event("Placed", 1)])
        Relay(items, lambda events: events, clock=lambda: NOW).flush(Key={"orderId": "o-1"})
        Relay(documents, lambda events: events, clock=lambda: NOW).flush({"_id": "o-1"})
        return [table.scan()["Items"], [*collection.find()]]


def test_equal_seeds_store_equal_values() -> None:
    assert stored(1) == stored(1)
    for ours, others in zip(stored(1), stored(2), strict=True):
        assert ours != others


def test_exploration_does_not_consume_the_seeded_randomness() -> None:
    def drawn(*, explores: bool) -> list[Any]:
        with seeded(1), mongomock_collection() as collection:
            if explores:
                explore(lambda things: lambda message: add(things, message), [Message("m1")], mongomock_collection, observe)
            documents = GuardedCollection(collection, SeenIds(), outbox=Outbox("shop"), clock=lambda: NOW)
            documents.insert_one(Message("m1"), {"_id": "o-1"}, emit=[Event("Placed", 1)])
            Relay(documents, lambda events: events, clock=lambda: NOW).flush({"_id": "o-1"})
            return [*collection.find()]

    def add(things: Any, message: Message) -> object:
        return GuardedCollection(things, SeenIds()).update_one(message, {"_id": 1}, {"$inc": {"n": 1}}, upsert=True)

    def observe(things: Any) -> object:
        return things.find_one({"_id": 1}, {"n": 1})

    assert drawn(explores=True) == drawn(explores=True) == drawn(explores=False)


def test_randomness_is_restored_after_the_block_raises() -> None:
    with pytest.raises(ValueError, match="in the block"), seeded(1):
        raise ValueError("in the block")
    assert stored(None) != stored(None)
