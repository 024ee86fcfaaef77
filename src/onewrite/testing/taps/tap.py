"""Taps a store: makes an object that looks like the store, and calls a gate with each of its requests.

The store itself is not changed. A boto3 client or Table is tapped by a copy that shares everything with it but `_make_api_call`,
through which all requests go. What botocore does to a request, and what a Table does to its values, comes after the gate, so that
requests and answers are seen as the handler sees them. A collection is tapped by a proxy, and the sub-collections, the database
and the result of `with_options` that one gets from it are proxies too.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.aws import dynamodb
from onewrite.testing.taps.aws.clients import is_dynamodb, service_of
from onewrite.testing.taps.mongodb import collection as mongodb
from onewrite.testing.taps.traffic import Gate, Key, Request, commute, describe, is_guarded

__all__ = [
    "Gate",
    "Key",
    "Request",
    "Store",
    "check_store",
    "commute",
    "describe",
    "is_async",
    "is_guarded",
    "kind_of",
    "send",
    "tap",
]

Store: TypeAlias = Any  # a boto3 or aiobotocore client or Table, or a pymongo or mongomock collection
Kind: TypeAlias = Literal["table", "client", "collection"]


def kind_of(store: object) -> Kind:
    """What kind of store it is, or `ConfigurationError`. A client may be one of another service than DynamoDB."""
    kind = type(store)
    if hasattr(kind, "_make_api_call"):
        return "client"
    if hasattr(kind, "meta") and hasattr(kind, "update_item"):
        return "table"
    # A database has an attribute of any name: a collection, which is callable.
    other = any(hasattr(kind, name) for name in ("meta", "get_collection", "get_database", "without_ledger"))
    if not other and callable(getattr(store, "find_one_and_update", None)):
        return "collection"
    raise ConfigurationError(f"{kind.__name__} is no store: give a boto3 client or Table, or a pymongo collection.")


def check_store(store: object) -> None:
    """Raise `ConfigurationError` unless it is a store that can be tapped."""
    if kind_of(store) == "client" and not is_dynamodb(store):
        raise ConfigurationError(f"This is a client of {service_of(store)}: give a client of dynamodb.")


def is_async(store: object) -> bool:
    """Are its requests awaited?"""
    kind = kind_of(store)
    if kind == "collection":
        return inspect.iscoroutinefunction(cast("Any", store).update_one)
    client = cast("type[Any]", type(dynamodb.client_of(store)))
    return inspect.iscoroutinefunction(client._make_api_call)  # noqa: SLF001  # all requests go through it


def tap(store: Store, gate: Gate, *, name: str | None = None, explored: bool = False) -> Store:
    """The tapped store, or a dict of tapped stores for a dict of stores. The gate of an asynchronous store is awaited.

    `explored`: the gate knows what transactions of MongoDB do, so that sessions of a collection's client are tapped, and which
    attributes are the keys of DynamoDB's tables, so that the tap sends nothing of its own.
    """
    if isinstance(store, Mapping):
        stores = cast("Mapping[str, Store]", store).items()
        return {key: tap(inner, gate, name=key, explored=explored) for key, inner in stores}
    check_store(store)
    awaited = is_async(store)
    if kind_of(store) == "collection":
        return mongodb.tapped(store, gate, name, awaited=awaited, with_sessions=explored)
    return dynamodb.tapped(store, gate, name, awaited=awaited, completes=explored)


def send(store: Store, request: Request) -> Any:
    """Send a request to a store, or to the one that it names in a dict. The result is awaited if the store is asynchronous."""
    if isinstance(store, Mapping):
        return send(cast("Mapping[str, Store]", store)[request.store], request)
    if kind_of(store) == "collection":
        return mongodb.send(store, request, awaited=is_async(store))
    return dynamodb.send(store, request)
