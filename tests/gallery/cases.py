"""What the gallery's handlers share: customers with a balance, deposits that add to it, and a world to do that in.

Each deposit adds another power of ten, so a balance says by itself which message was lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

from onewrite import Message
from onewrite.dynamodb.values import plain_values

Content: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]  # of stores by their names
Worlds: TypeAlias = Callable[..., Callable[[], Any]]  # of an engine, the names of stores, and their content

NOW = 1_790_000_000
OUTBOX: list[str] = []  # a side effect outside of any database; the handler that fills it empties it when it is built


CLOSE = Message("close", body={})


def handlers_in(module: ModuleType) -> list[str]:
    """The names of the handlers that a module defines."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return [name for name in own if not name.startswith("_") and not name.endswith("Error")]


def deposit(n: int) -> Message:
    return Message(f"m{n}", source="bank", sequence=n, body={"amount": 10**n})


def balances(world: Any) -> dict[str, int]:
    """The balance of everybody who has one, in one store or several."""
    return _balances(item for items in contents(world).values() for item in items)


def contents(world: Any) -> dict[str, list[Any]]:
    """Everything in each store."""
    stores = world if isinstance(world, Mapping) else {"": world}
    return {name: sorted(_content(store), key=str) for name, store in stores.items()}


async def awaited_balances(collection: Any) -> dict[str, int]:
    return _balances([document async for document in collection.find({})])


def _balances(found: Iterable[Any]) -> dict[str, int]:
    return dict(sorted((item.get("_id") or item["id"], int(item["balance"])) for item in found if "balance" in item))


def _content(store: Any) -> list[Any]:
    if hasattr(store, "find"):
        return list(store.find({}))
    if hasattr(store, "table_name"):
        return list(store.scan()["Items"])
    return [plain_values(item) for item in store.scan(TableName="customers")["Items"]]


def added_item(message: Message) -> dict[str, Any]:
    """What adds the message to a balance on DynamoDB."""
    return {"UpdateExpression": "ADD balance :n", "ExpressionAttributeValues": {":n": message.body["amount"]}}


def marked_item(message: Message) -> dict[str, Any]:
    """What also keeps the id of the message."""
    values = {":n": message.body["amount"], ":ids": {message.id}}
    return {"UpdateExpression": "ADD balance :n, seen :ids", "ExpressionAttributeValues": values}
