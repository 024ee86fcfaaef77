"""A table or collection that a verb looks at or repairs, as its options name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.cli.store_urls import dynamodb_client, mongo_collection
from onewrite.errors import ConfigurationError

TableName: TypeAlias = Annotated[str | None, typer.Option("--table", metavar="NAME", help="A table of DynamoDB.")]
CollectionUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--collection", metavar="URL", help="A collection of MongoDB: mongodb://HOST/DATABASE.COLLECTION."),
]


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table, and boto3's plain client for it."""

    client: Any
    name: str


@dataclass(frozen=True, slots=True)
class NamedCollection:
    """A collection, as pymongo's own."""

    collection: Any


NamedStore: TypeAlias = NamedTable | NamedCollection


def named_store(table: str | None, collection: str | None) -> NamedStore:
    """The table or collection that the options name."""
    if table is not None and collection is None:
        return NamedTable(dynamodb_client(), table)
    if collection is not None and table is None:
        return NamedCollection(mongo_collection(collection))
    raise ConfigurationError("Give --table NAME or --collection mongodb://HOST/DATABASE.COLLECTION, and not both.")
