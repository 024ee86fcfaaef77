"""Reads the schema of a table and some of its items. It writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onewrite.costs.capacity import Index, IndexLoad
from onewrite.costs.sample import Measured, Sample, sample_of
from onewrite.dynamodb.layout import business
from onewrite.dynamodb.size import item_size
from onewrite.dynamodb.values import plain
from onewrite.flow import Call, Flow
from onewrite.ledgers import NO_LEDGER


def table_sample(table_name: str, most: int) -> Flow[Sample]:
    """The first page of a scan, whose order is that of a hash and so as good as random; eventually consistent, at half the price."""
    described = (yield Call("describe_table", (), {"TableName": table_name}))["Table"]
    page = yield Call("scan", (), {"TableName": table_name, "Limit": most})
    items = [plain(item) for item in page["Items"]]
    # DynamoDB counts the items anew about every six hours.
    entities = max(described.get("ItemCount", 0), len(items))
    found = sample_of("dynamodb", table_name, entities, items, [_measured(item) for item in items])
    loads = {index.name: _load(index, [_business(item) for item in items]) for index in indexes_of(described)}
    used = tuple([load for load in loads.values() if load is not None])
    return found._replace(indexes=used, unused=tuple([name for name, load in loads.items() if load is None]))


def _business(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return business(NO_LEDGER.terms, item)


def _measured(item: Mapping[str, Any]) -> Measured:
    own = item_size(_business(item))
    return Measured(own, item_size(item) - own)


def indexes_of(described: Mapping[str, Any]) -> list[Index]:
    """The secondary indexes of a table as DynamoDB describes it."""
    key = tuple([part["AttributeName"] for part in described["KeySchema"]])
    both = [*described.get("GlobalSecondaryIndexes", []), *described.get("LocalSecondaryIndexes", [])]
    return [_index(each, key) for each in both]


def _index(described: Mapping[str, Any], table_key: tuple[str, ...]) -> Index:
    key = tuple([part["AttributeName"] for part in described["KeySchema"]])
    projection = described["Projection"]
    names = None if projection["ProjectionType"] == "ALL" else tuple(projection.get("NonKeyAttributes", []))
    return Index(described["IndexName"], key, table_key, names)


def _load(index: Index, items: list[Mapping[str, Any]]) -> IndexLoad | None:
    """What the index has of those items that are in it. What the caller's writes do to it does not show."""
    sizes = [item_size(entry) for item in items if (entry := index.entry(item)) is not None]
    if not sizes:
        return None
    only_keys = index.names == ()
    return IndexLoad(index.name, round(sum(sizes) / len(sizes)), index.names is None, "still" if only_keys else "changes")
