"""Taps a store: makes an object that looks like the store, and calls a gate with each of its requests.

The store itself isn't changed. A boto3 client or Table is tapped by a copy that shares everything except `_make_api_call`, through
which all requests go. The gate sees requests and responses as the handler does, because botocore and the Table convert values only
afterwards. A collection is tapped by a proxy. Its sub-collections, its database, and the result of `with_options` are proxies too.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps import aws, mongodb
from onewrite.testing.taps.aws import find_service, is_dynamodb_client
from onewrite.testing.taps.traffic import Gate, Request

Store: TypeAlias = Any  # a boto3 or aiobotocore client or Table, or a pymongo or mongomock collection
Kind: TypeAlias = Literal["table", "client", "collection"]


def find_kind(store: object) -> Kind:
    """Return the kind of store, or raise `ConfigurationError`. A client can belong to a service other than DynamoDB."""
    kind = type(store)
    if hasattr(kind, "_make_api_call"):
        return "client"
    if hasattr(kind, "meta") and hasattr(kind, "update_item"):
        return "table"
    # A database has an attribute of any name: a collection, which is callable.
    other = any(hasattr(kind, name) for name in ("meta", "get_collection", "get_database", "without_ledger"))
    if not other and callable(getattr(store, "find_one_and_update", None)):
        return "collection"
    raise ConfigurationError(f"{kind.__name__} isn't a store: pass a boto3 client or Table, or a pymongo collection.")


def check_store(store: object) -> None:
    """Raise `ConfigurationError` unless the store can be tapped."""
    if find_kind(store) == "client" and not is_dynamodb_client(store):
        raise ConfigurationError(
            f"This is a client of {find_service(store)}: make it in the handler or in build, and pass a client of dynamodb."
        )


def is_async(store: object) -> bool:
    """Whether the store's requests are awaited."""
    kind = find_kind(store)
    if kind == "collection":
        return inspect.iscoroutinefunction(cast("Any", store).update_one)
    client = cast("type[Any]", type(aws.find_client(store)))
    return inspect.iscoroutinefunction(client._make_api_call)


def tap(store: Store, gate: Gate, *, name: str | None = None, is_explored: bool = False) -> Store:
    """Return the tapped store, or a dict of tapped stores for a dict of stores. The gate of an asynchronous store is awaited.

    `is_explored`: the gate models MongoDB's transactions, so sessions of a collection's client are tapped as well.
    """
    if isinstance(store, Mapping):
        stores = cast("Mapping[str, Store]", store).items()
        return {key: tap(inner, gate, name=key, is_explored=is_explored) for key, inner in stores}
    check_store(store)
    awaited = is_async(store)
    if find_kind(store) == "collection":
        return mongodb.tap(store, gate, name, awaited=awaited, with_sessions=is_explored)
    return aws.tap(store, gate, name, awaited=awaited)


def send(store: Store, request: Request) -> Any:
    """Send a request to a store, or to the named store in a dict. If the store is asynchronous, the result must be awaited."""
    if isinstance(store, Mapping):
        return send(cast("Mapping[str, Store]", store)[request.store], request)
    if find_kind(store) == "collection":
        return mongodb.send(store, request, awaited=is_async(store))
    return aws.send(store, request)
