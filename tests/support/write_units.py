"""What DynamoDB charges for one write of one item, by the rules of its documentation, on which `onewrite plan` rests as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onewrite.dynamodb.size import item_size
from onewrite.operate.plan.dynamodb import Item, SecondaryIndex
from onewrite.operate.plan.inputs import units


def units_of(index: SecondaryIndex, before: Item | None, after: Item) -> int:
    """What one write of the item costs in the index."""
    old, new = index.entry(before), index.entry(after)
    if old == new:
        return 0
    if old is None or new is None:
        return units(item_size(old or new or {}))
    if any(old[name] != new[name] for name in index.key):
        return units(item_size(old)) + units(item_size(new))
    return units(max(item_size(old), item_size(new)))


class Bill(NamedTuple):
    """The units of one write: of the table, and of each index that is written."""

    table: int
    indexes: dict[str, int]


def bill(before: Item | None, after: Item, indexes: Sequence[SecondaryIndex]) -> Bill:
    """What a write costs that makes this of an item; None: there was none."""
    table = units(max(item_size(before or {}), item_size(after)))
    index_units = {index.name: units_of(index, before, after) for index in indexes}
    return Bill(table, {name: unit_count for name, unit_count in index_units.items() if unit_count})
