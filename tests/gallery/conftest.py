from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.gallery.cases import Content, Worlds

INDEXED_BY_CUSTOMER: dict[str, Any] = {
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "customer",
            "KeySchema": [{"AttributeName": "customer", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "ALL"},
        }
    ]
}
INDEXED_BY_WHAT_IS_PENDING: dict[str, Any] = {
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "pending",
            "KeySchema": [
                {"AttributeName": "ow_shard", "KeyType": "HASH"},
                {"AttributeName": "ow_due", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
    "types": {"ow_shard": "N"},
}
# Of the tables of these names.
INDEXES = {"entries": INDEXED_BY_CUSTOMER, "accounts": INDEXED_BY_WHAT_IS_PENDING}


@pytest.fixture
def worlds(moto_table: Any, mongomock_collection: Any) -> Worlds:
    """For an engine and the names of stores: what makes them with this content, one alone or a dict of several."""

    def table(name: str, content: Sequence[Mapping[str, Any]]) -> Any:
        made = moto_table(name, key="id", **INDEXES.get(name, {}))
        for item in content:
            made.put_item(Item=item)
        return made

    def collection(name: str, content: Sequence[Mapping[str, Any]], **options: bool) -> Any:
        made = mongomock_collection(name, **options)
        for item in content:
            named = {"_id" if field == "id" else field: value for field, value in item.items()}
            (made.stand_in if options else made).insert_one(named)
        return made

    def make(engine: str, names: Sequence[str], content: Content | None = None) -> Callable[[], Any]:
        def new(name: str) -> Any:
            given = (content or {}).get(name, ())
            if engine == "dynamodb":
                return table(name, given)
            return collection(name, given, **({"asynchronous": True} if engine == "async mongodb" else {}))

        return lambda: new(names[0]) if len(names) == 1 else {name: new(name) for name in names}

    return make
