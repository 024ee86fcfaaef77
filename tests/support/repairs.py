"""One entity on either engine, guarded writes to it, and the verbs that look at it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import boto3
import pytest

from onewrite import Message
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import plain_values, typed_values
from onewrite.mongodb import GuardedCollection
from onewrite.operate import main
from onewrite.testing import moto_table
from onewrite.testing.standins.collection import StandInClient

NOW = 1_790_000_000.0


class _Place:
    """The entity `e`, whose business part is {"n": ...}, in a table or a collection."""

    options: tuple[str, ...]
    key: str
    store: Any
    write: Any
    names_tokens: bool  # does an entity keep the token of its last write?

    def apply(self, ledger: Ledger, *messages: Message, entity: str = "e", at: float = NOW) -> list[str]:
        """The outcomes of guarded writes, each of which adds one to n."""
        store = self.store(ledger, clock=lambda: at)
        return [type(self.write(store, message, entity)).__name__ for message in messages]

    def run(self, verb: str, *arguments: str, entity: str = "e") -> int:
        return main([verb, *self.options, "--key", self.key.format(entity), *arguments])


class TablePlace(_Place):
    key = '{{"id": "{}"}}'
    names_tokens = True

    def __init__(self, client: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client, self.name, self.options = client, name, ("--table", name)
        monkeypatch.setattr("onewrite.operate.stores.make_client", lambda *_: client)

    def store(self, ledger: Ledger, **more: Any) -> GuardedTable:
        return GuardedTable(self.client, ledger, table_name=self.name, **more)

    def write(self, store: Any, message: Message, entity: str = "e", **more: Any) -> Any:
        change = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
        return store.update_item(message, Key={"id": entity}, **change, **more)

    def address(self, entity: str = "e") -> dict[str, Any]:
        """How a guarded store is told which entity is meant."""
        return {"Key": {"id": entity}}

    def call(self, store: Any, method: str, message: Message, *arguments: Any, **more: Any) -> Any:
        """Another method of a store, on the entity `e`."""
        return getattr(store, {"delete": "delete_item"}.get(method, method))(message, *arguments, Key={"id": "e"}, **more)

    def contents(self, entity: str = "e") -> dict[str, Any] | None:
        answer = self.client.get_item(TableName=self.name, Key={"id": {"S": entity}}, ConsistentRead=True)
        return plain_values(answer["Item"]) if "Item" in answer else None

    def put(self, entity: str = "e", **fields: Any) -> None:
        self.client.put_item(TableName=self.name, Item=typed_values({"id": entity, **fields}))

    def place(self, group: str, key: str = "") -> str:
        """Where a slot stands, as the verbs show it."""
        return group if not key else f"{group}{key}" if group.endswith("@") else f"{group[:-1]}{key}"


class CollectionPlace(_Place):
    key = "{}"
    options = ("--collection", "mongodb://host/shop.orders")
    names_tokens = False

    def __init__(self, collection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.collection = collection
        monkeypatch.setattr("onewrite.operate.stores.open_collection", lambda _: collection)

    def store(self, ledger: Ledger, **more: Any) -> GuardedCollection:
        return GuardedCollection(self.collection, ledger, **more)

    def write(self, store: Any, message: Message, entity: str = "e", **more: Any) -> Any:
        return store.update_one(message, {"_id": entity}, {"$inc": {"n": 1}}, upsert=True, **more)

    def address(self, entity: str = "e") -> dict[str, Any]:
        return {"filter": {"_id": entity}}

    def call(self, store: Any, method: str, message: Message, *arguments: Any, **more: Any) -> Any:
        method_of_store = getattr(store, {"delete": "delete_one"}.get(method, method))
        return method_of_store(message, *arguments, filter={"_id": "e"}, **more)

    def contents(self, entity: str = "e") -> dict[str, Any] | None:
        document: dict[str, Any] | None = self.collection.find_one({"_id": entity})
        return document

    def put(self, entity: str = "e", **fields: Any) -> None:
        document = {name: sorted(value) if isinstance(value, set) else value for name, value in fields.items()}
        self.collection.replace_one({"_id": entity}, document, upsert=True)

    def place(self, group: str, key: str = "") -> str:
        return f"{group}.{key}" if key else group


Place: TypeAlias = TablePlace | CollectionPlace


def output_of(capsys: pytest.CaptureFixture[str], run: Callable[[], int]) -> Any:
    """The JSON document that a verb prints, and nothing else."""
    capsys.readouterr()
    assert run() == 0
    return json.loads(capsys.readouterr().out)


@contextmanager
def stand_in_place(engine: str, monkeypatch: pytest.MonkeyPatch) -> Generator[Place]:
    """The place on a stand-in of this engine."""
    if engine == "mongodb":
        yield CollectionPlace(StandInClient().shop.orders, monkeypatch)
        return
    with moto_table("orders", "id"):
        yield TablePlace(boto3.client("dynamodb"), "orders", monkeypatch)


@contextmanager
def log_as_it_was() -> Generator[None]:
    """The verbs set up logging for their process."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
