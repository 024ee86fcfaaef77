"""Check the tables, collections, and keys of a store. An error says what to pass instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, cast

from onewrite.core.ledgers.entry import Terms
from onewrite.errors import ConfigurationError

_MONGODB = ("pymongo", "mongomock", "motor")


def check_table(table: object, table_name: object = None) -> None:
    """Raise unless a guarded table accepts this table or client."""
    _check_argument("GuardedTable", "table", "boto3.resource('dynamodb').Table('orders')", table)
    if _find_package(table) in _MONGODB:
        raise ConfigurationError(f"{type(table).__name__} is from MongoDB. Use GuardedCollection.")
    service = _find_service(table)
    if service not in (None, "dynamodb"):
        raise ConfigurationError(
            f"GuardedTable: expected a DynamoDB client, got a client for {service}. Pass boto3.client('dynamodb') "
            "or a Table."
        )
    if not hasattr(table, "update_item"):
        if hasattr(table, "Table"):
            raise ConfigurationError("GuardedTable: expected a table, got a resource. Pass resource.Table('orders').")
        raise ConfigurationError(
            f"{table!r} has no update_item. Pass a boto3 Table, or a low-level client with table_name='orders'."
        )
    if table_name is not None and not isinstance(table_name, str):
        raise ConfigurationError(f"table_name={table_name!r}: expected the name of the table, a string.")


def check_key(key: Sequence[str], is_taken: Callable[[str], bool]) -> None:
    """Raise unless these fields can identify an entity. `is_taken` returns whether the store itself uses a field."""
    for name in key:
        if not name or name.startswith("$") or "\0" in name:
            raise ConfigurationError(f"key={key!r}: {name!r} isn't the name of a field.")
        if name == "_id":
            raise ConfigurationError(
                f"key={key!r}: _id always identifies a document. Remove _id, or omit key= if it has no other field."
            )
        if is_taken(name.partition(".")[0]):
            raise ConfigurationError(f"key={key!r}: the store uses {name!r} itself. Pass your own fields.")
    if len({*key}) < len(key):
        raise ConfigurationError(f"key={key!r}: a field occurs twice. Pass each field once.")


def check_collection(collection: object) -> None:
    """Raise unless a guarded collection accepts this collection."""
    _check_argument("GuardedCollection", "collection", "pymongo.MongoClient().shop.orders", collection)
    if _find_service(collection) is not None:
        raise ConfigurationError(f"{collection!r} is from DynamoDB. Use GuardedTable.")
    kind = type(collection).__name__
    if kind.endswith("Database"):
        raise ConfigurationError("GuardedCollection: expected a collection, got a database. Pass database['orders'].")
    if kind.endswith("Client"):
        raise ConfigurationError("GuardedCollection: expected a collection, got a client. Pass client['shop']['orders'].")
    if not hasattr(collection, "update_one"):
        raise ConfigurationError(f"{collection!r} has no update_one. Pass a pymongo collection.")


def _check_argument(name: str, expected: str, example: str, argument: object) -> None:
    """Raise for values that are often passed by mistake instead of a table or collection."""
    if isinstance(argument, str):
        raise ConfigurationError(
            f"{name}({argument!r}, ...): expected a {expected}, got its name. Pass for example {example}."
        )
    if isinstance(argument, type):
        raise ConfigurationError(
            f"{name}({argument.__name__}, ...): expected a {expected}, got a class. Pass for example {example}."
        )
    if isinstance(getattr(argument, "terms", None), Terms):
        raise ConfigurationError(
            f"{name}({argument!r}, ...): expected a {expected} first, got a ledger. Pass the ledger second."
        )
    if type(argument).__name__ in ("GuardedTable", "AsyncGuardedTable", "GuardedCollection", "AsyncGuardedCollection"):
        raise ConfigurationError(
            f"{name}: expected a {expected}, got a guarded store. Pass the {expected} itself, for example {example}."
        )
    if argument is None:
        raise ConfigurationError(f"{name}(None, ...): expected a {expected}, for example {example}.")


def _find_package(argument: object) -> str:
    return type(argument).__module__.partition(".")[0]


def _find_service(argument: object) -> str | None:
    """Return the service of a client or resource of botocore's, or None."""
    if _find_package(argument) in _MONGODB:  # a collection has an attribute of any name
        return None
    meta: Any = getattr(argument, "meta", None)
    model: Any = getattr(meta, "service_model", None)
    if model is None:
        model = getattr(getattr(getattr(meta, "client", None), "meta", None), "service_model", None)
    name = cast("object", getattr(model, "service_name", None))
    return name if isinstance(name, str) else None


_BLOCKING_HOMES = ("boto3", "botocore", "pymongo.synchronous")


def is_asynchronous(target: object, method: str) -> bool:
    """Whether this method of a client must be awaited, as far as that is known without a call."""
    home = type(target).__module__
    return iscoroutinefunction(getattr(target, method, None)) or home.partition(".")[0] in ("motor", "aiobotocore")


def check_awaited(target: object, method: str, *, is_async: bool) -> None:
    """Raise before anything is sent if only one of the store and its guard is asynchronous."""
    kind = type(target)
    home = kind.__module__
    must_await = is_asynchronous(target, method)
    if must_await and not is_async:
        raise ConfigurationError(
            f"{kind.__name__} is asynchronous. Guard it with AsyncGuardedTable or AsyncGuardedCollection."
        )
    if is_async and not must_await and home.startswith(_BLOCKING_HOMES):
        raise ConfigurationError(f"{kind.__name__} isn't asynchronous. Guard it with GuardedTable or GuardedCollection.")
