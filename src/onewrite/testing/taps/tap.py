"""Puts a gate before a store: an object that looks like the store, every request of which passes the gate.

The store itself stays as it is. A boto3 client or Table is tapped by a copy of the object that shares everything with it but
`_make_api_call`, through which all requests go: those of its methods, paginators, waiters and batch writers, and those of a
Table. botocore's work, and a Table's conversion of values, happen beyond the gate, so that requests and answers are seen as the
handler sees them. A collection is tapped by a proxy, of which sub-collections, `with_options` and `database` give proxies.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps import dynamodb, mongodb
from onewrite.testing.taps.traffic import Gate, Key, Request, commute, describe, is_guarded

__all__ = ["Gate", "Key", "Request", "Store", "commute", "describe", "is_async", "is_guarded", "kind_of", "send", "tap"]

Store: TypeAlias = Any  # a boto3 or aiobotocore client or Table, or a pymongo or mongomock collection
Kind: TypeAlias = Literal["table", "client", "collection"]


def kind_of(store: object) -> Kind:
    """What kind of store it is, or `ConfigurationError`."""
    kind = type(store)
    if hasattr(kind, "_make_api_call"):
        service = cast("Any", store).meta.service_model.service_name
        if service == "dynamodb":
            return "client"
        raise ConfigurationError(f"This is a client of {service}: give a client of dynamodb.")
    if hasattr(kind, "meta") and hasattr(kind, "update_item"):
        return "table"
    # A database answers to any name, and with a collection, which is callable.
    other = any(hasattr(kind, name) for name in ("meta", "get_collection", "get_database", "without_ledger"))
    if not other and callable(getattr(store, "find_one_and_update", None)):
        return "collection"
    raise ConfigurationError(f"{kind.__name__} is no store: give a boto3 client or Table, or a pymongo collection.")


def is_async(store: object) -> bool:
    """Are its requests awaited?"""
    kind = kind_of(store)
    if kind == "collection":
        return inspect.iscoroutinefunction(cast("Any", store).update_one)
    client = cast("type[Any]", type(dynamodb.client_of(store)))
    return inspect.iscoroutinefunction(client._make_api_call)  # noqa: SLF001  # its only door


def tap(store: Store, gate: Gate, *, name: str | None = None) -> Store:
    """The store behind a gate; a dict of stores by entry. For an asynchronous store the gate is awaited."""
    if isinstance(store, Mapping):
        entries = cast("Mapping[str, Store]", store).items()
        return {entry: tap(inner, gate, name=entry) for entry, inner in entries}
    awaited = is_async(store)
    if kind_of(store) == "collection":
        return mongodb.tapped(store, gate, name, awaited=awaited)
    return dynamodb.tapped(store, gate, name, awaited=awaited)


def send(store: Store, request: Request) -> Any:
    """Perform a request with a store; to be awaited if the store is asynchronous. Of a dict, the one that it names."""
    if isinstance(store, Mapping):
        return send(cast("Mapping[str, Store]", store)[request.store], request)
    if kind_of(store) == "collection":
        return mongodb.send(store, request, awaited=is_async(store))
    return dynamodb.send(store, request)
