"""The write units that DynamoDB charges, by the rules of its documentation. Pure.

A write is charged for the item before or after it, whichever is larger, in whole units of 1 KB, and at least one. A condition that
fails is charged for the item that is there. Each index is charged for itself, and only where what it projects of the item changes: one
write of the larger of the two entries; where the entry's key changes, the old one is removed and the new one is put, and both are charged.
A transaction charges twice for its items, and once for the indexes. The 100 bytes that an entry of an index has beside its attributes are
stored, and not counted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from onewrite.dynamodb.size import item_size

UNIT = 1024
Item: TypeAlias = Mapping[str, Any]
Does: TypeAlias = Literal["still", "changes", "moves"]  # what the caller's own write does to an index's entry


def units(size: int) -> int:
    """The write units of so many bytes."""
    return max(1, -(-size // UNIT))


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index. `names`: the attributes that it projects, or None for all of them."""

    name: str
    key: tuple[str, ...]
    table_key: tuple[str, ...]
    names: tuple[str, ...] | None

    def entry(self, item: Item | None) -> dict[str, Any] | None:
        """The item's entry in the index; none where the item lacks a part of the index's key."""
        if item is None or any(name not in item for name in self.key):
            return None
        if self.names is None:
            return dict(item)
        projected = dict.fromkeys([*self.table_key, *self.key, *self.names])
        return {name: item[name] for name in projected if name in item}

    def units(self, before: Item | None, after: Item) -> int:
        """What one write of the item costs in the index."""
        old, new = self.entry(before), self.entry(after)
        if old == new:
            return 0
        if old is None or new is None:
            return units(item_size(old or new or {}))
        if any(old[name] != new[name] for name in self.key):
            return units(item_size(old)) + units(item_size(new))
        return units(max(item_size(old), item_size(new)))


class Bill(NamedTuple):
    """The units of one write: of the table, and of each index that is written."""

    table: int
    indexes: dict[str, int]


def bill(before: Item | None, after: Item, indexes: Sequence[Index]) -> Bill:
    """What a write costs that makes this of an item; None: there was none."""
    table = units(max(item_size(before or {}), item_size(after)))
    written = {index.name: index.units(before, after) for index in indexes}
    return Bill(table, {name: each for name, each in written.items() if each})


def refused(item: Item | None) -> int:
    """What a write costs whose condition fails."""
    return units(item_size(item or {}))


@dataclass(frozen=True, slots=True)
class IndexLoad:
    """What is known of an index where there are no items yet: the bytes of its entry without the ledger, and what happens to it."""

    name: str
    size: int
    copies_ledger: bool
    does: Does

    def units(self, ledger: int) -> int:
        """What a fresh message costs in the index, the item having a ledger of so many bytes."""
        if self.copies_ledger and ledger:
            return units(self.size + ledger) * (2 if self.does == "moves" else 1)
        return units(self.size) * ("still", "changes", "moves").index(self.does)
