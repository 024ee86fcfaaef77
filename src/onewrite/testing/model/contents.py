"""What a table or a collection holds: read whole, told apart, and put back. All of it un-tapped.

Blocking and awaited stores alike are read and written in steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from onewrite.testing.model.canonical import canonical, digest
from onewrite.testing.taps.steps import Steps
from onewrite.testing.taps.tap import Store, kind_of, send
from onewrite.testing.taps.traffic import Request

Entity: TypeAlias = Mapping[str, Any]

_MISSING = "ResourceNotFoundException"


@dataclass(frozen=True, slots=True)
class Contents:
    """The entities of one table or collection, by their keys. Where there is no such table it has no key either."""

    key: tuple[str, ...]
    entities: Mapping[Hashable, Entity]
    spelling: Mapping[Hashable, Hashable]
    digest: bytes


def read(store: Store, table: str, key: tuple[str, ...] = ()) -> Steps[Contents]:
    """All that is there. `key` spares a request where it is known."""
    if kind_of(store) == "collection":
        documents = yield partial(send, store, _request("find", {}, table))
        return _contents(("_id",), documents, ordered=True)
    try:
        key = key or (yield from _key_of(store, table))
        items = yield from _scan(store, table)
    except Exception as error:
        if cast("Any", getattr(error, "response", {})).get("Error", {}).get("Code") != _MISSING:
            raise
        return Contents((), {}, {}, b"")
    return _contents(key, items, ordered=False)


def restore(store: Store, table: str, present: Contents, wanted: Contents) -> Steps[None]:
    """Make the table hold what is wanted, by touching what differs."""
    removal, addition = (_delete_document, _insert) if kind_of(store) == "collection" else (_delete_item, _put)
    for name, entity in present.entities.items():
        if present.spelling[name] != wanted.spelling.get(name):
            yield partial(send, store, removal(table, {part: entity[part] for part in present.key}))
    for name, entity in wanted.entities.items():
        if wanted.spelling[name] != present.spelling.get(name):
            yield partial(send, store, addition(table, entity))


def tables_of(store: Store) -> Steps[tuple[str, ...]]:
    """The tables of a store at its beginning."""
    if kind_of(store) != "client":
        return (store.name,)
    tables: list[str] = []
    more: dict[str, Any] = {}
    while True:
        answer = yield partial(store.list_tables, **more)
        tables += answer["TableNames"]
        if "LastEvaluatedTableName" not in answer:
            return tuple(tables)
        more = {"ExclusiveStartTableName": answer["LastEvaluatedTableName"]}


def _contents(key: tuple[str, ...], found: list[Entity], *, ordered: bool) -> Contents:
    entities = {canonical([entity[name] for name in key], ordered=ordered): entity for entity in found}
    spelling = {name: canonical(entity, ordered=ordered) for name, entity in entities.items()}
    return Contents(key, entities, spelling, digest(tuple(sorted(spelling.values(), key=repr))))


def _request(method: str, arguments: Mapping[str, Any], table: str) -> Request:
    return Request("", method, arguments, None, writes=True, tables=(table,))


def _key_of(store: Store, table: str) -> Steps[tuple[str, ...]]:
    answer = yield partial(send, store, _request("DescribeTable", {"TableName": table}, table))
    return tuple(part["AttributeName"] for part in answer["Table"]["KeySchema"])


def _scan(store: Store, table: str) -> Steps[list[Entity]]:
    items: list[Entity] = []
    arguments: dict[str, Any] = {"TableName": table, "ConsistentRead": True}
    while True:
        answer = yield partial(send, store, _request("Scan", arguments, table))
        items += answer["Items"]
        if "LastEvaluatedKey" not in answer:
            return items
        arguments = {**arguments, "ExclusiveStartKey": answer["LastEvaluatedKey"]}


def _delete_document(table: str, key: Entity) -> Request:
    return _request("delete_one", {"filter": key}, table)


def _insert(table: str, document: Entity) -> Request:
    return _request("insert_one", {"document": document}, table)


def _delete_item(table: str, key: Entity) -> Request:
    return _request("DeleteItem", {"TableName": table, "Key": key}, table)


def _put(table: str, item: Entity) -> Request:
    return _request("PutItem", {"TableName": table, "Item": item}, table)
