"""What the gallery's handlers share: customers with a balance, deposits that add to it, and a world to do that in.

Each deposit adds another power of ten, so a balance says by itself which message was lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from onewrite import Message
from onewrite.dynamodb.values import plain

Worlds: TypeAlias = Callable[[str, Sequence[str]], Callable[[], Any]]

NOW = 1_790_000_000
OUTBOX: list[str] = []  # a side effect outside of any database; the handler that fills it empties it when it is built


def deposit(n: int) -> Message:
    return Message(f"m{n}", source="bank", sequence=n, body={"amount": 10**n})


def balances(world: Any) -> dict[str, int]:
    """The balance of everybody who has one, in one store or several."""
    stores = world.values() if isinstance(world, Mapping) else [world]
    return _balances(item for store in stores for item in _content(store))


async def awaited_balances(collection: Any) -> dict[str, int]:
    return _balances([document async for document in collection.find({})])


def _balances(found: Iterable[Any]) -> dict[str, int]:
    return {item.get("_id") or item["id"]: int(item["balance"]) for item in found if "balance" in item}


def _content(store: Any) -> list[Any]:
    if hasattr(store, "find"):
        return list(store.find({}))
    if hasattr(store, "table_name"):
        return list(store.scan()["Items"])
    return [plain(item) for item in store.scan(TableName="customers")["Items"]]
