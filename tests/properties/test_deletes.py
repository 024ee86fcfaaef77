"""Creations, updates, deletes and their redeliveries in every order, by two services of which one knows no tombstones.

What a small oracle says of each delivery is what the store answers, and what was deleted never comes to life again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import pytest

from onewrite import Applied, Duplicate, Gone, Message, Outcome, Rejected, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.standins.stores import mongomock_collection, moto_table
from onewrite.testing.taps.faults import Crash, Faults

NOW = 1_790_000_000.0
TOMBSTONES = Tombstones(timedelta(days=30))
# Each is delivered as a message of this name. "other" is an update by a service with a ledger of its own and without tombstones.
ORDERS = sorted({*itertools.permutations(["create", "update", "delete", "delete", "other"])})


@dataclass
class Oracle:
    """What must come of each delivery."""

    n: int | None = None
    dead: bool = False
    seen: set[str] = field(default_factory=set[str])

    def deliver(self, what: str) -> type[Any]:
        if what in self.seen:
            return Duplicate
        if self.dead:
            return Gone
        if what == "create" and self.n is not None:
            return Rejected
        self.seen.add(what)
        self.dead = what == "delete"
        self.n = None if self.dead else 0 if what == "create" else (self.n or 0) + 1
        return Applied


class Shop(Protocol):
    """An entity in a store."""

    def deliver(self, what: str) -> Outcome: ...
    def deliver_and_die(self, what: str, after: int) -> None: ...
    def get(self) -> dict[str, Any] | None: ...
    def left(self) -> set[str]: ...


class TableShop:
    def __init__(self, table: Any, name: str) -> None:
        self.table, self.key = table, {"orderId": name}
        self.other = GuardedTable(table, SeenIds(name="mine"), clock=lambda: NOW)

    def deliver(self, what: str, store: Any = None) -> Outcome:
        orders = GuardedTable(store or self.table, SeenIds(), clock=lambda: NOW, tombstones=TOMBSTONES)
        message, add = Message(what), {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
        match what:
            case "create":
                return orders.put_item(message, Item={**self.key, "n": 0})
            case "delete":
                return orders.delete_item(message, Key=self.key)
            case _:
                return (orders if what == "update" else self.other).update_item(message, Key=self.key, **add)  # type: ignore[arg-type]  # a dict of a test

    def deliver_and_die(self, what: str, after: int) -> None:
        faults = Faults(self.table)
        faults.after(after, optional=True)
        with suppress(Crash):
            self.deliver(what, faults.store)

    def get(self) -> dict[str, Any] | None:
        return self.other.get_item(Key=self.key)

    def left(self) -> set[str]:
        held = self.table.get_item(Key=self.key).get("Item", {})
        return {name for name in held if not name.startswith("ow_")} - self.key.keys()


class CollectionShop:
    def __init__(self, collection: Any, name: str) -> None:
        self.collection, self.key = collection, {"_id": name}
        self.other = GuardedCollection(collection, SeenIds(name="mine"), clock=lambda: NOW)

    def deliver(self, what: str, store: Any = None) -> Outcome:
        orders = GuardedCollection(store or self.collection, SeenIds(), clock=lambda: NOW, tombstones=TOMBSTONES)
        message = Message(what)
        match what:
            case "create":
                return orders.insert_one(message, {**self.key, "n": 0})
            case "delete":
                return orders.delete_one(message, self.key)
            case _:
                guarded = orders if what == "update" else self.other
                return guarded.update_one(message, self.key, {"$inc": {"n": 1}}, upsert=True)

    def deliver_and_die(self, what: str, after: int) -> None:
        faults = Faults(self.collection)
        faults.after(after, optional=True)
        with suppress(Crash):
            self.deliver(what, faults.store)

    def get(self) -> dict[str, Any] | None:
        return self.other.find_one(self.key)

    def left(self) -> set[str]:
        held = self.collection.find_one(self.key) or {}
        return {name for name in held if not name.startswith("ow_")} - self.key.keys()


@pytest.fixture(scope="module", params=["table", "collection"])
def store(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "collection":
        yield CollectionShop, mongomock_collection()
        return
    with moto_table() as table:
        yield TableShop, table


@pytest.mark.parametrize("dies_after", [None, 1, 2], ids=["nobody dies", "dies after one request", "dies after two"])
@pytest.mark.few(2)
def test_no_order_brings_to_life_what_was_deleted(store: Any, dies_after: int | None) -> None:
    orders = ORDERS[::3] if store[0] is TableShop else ORDERS  # moto takes long
    for n, order in enumerate(orders):
        shop, oracle, died = store[0](store[1], f"{dies_after}-{n}"), Oracle(), False
        for what in (*order, *order):
            if what == "delete" and dies_after is not None and not died:
                died = True
                shop.deliver_and_die(what, dies_after)
                # A collection's first request asks for the indexes.
                if dies_after == 2 or isinstance(shop, TableShop):
                    oracle.deliver(what)
                continue
            assert type(shop.deliver(what)) is oracle.deliver(what), order
            entity = shop.get()
            assert (entity and entity["n"]) == oracle.n, order
        assert oracle.dead
        assert shop.left() == {"expiresAt"}, order
