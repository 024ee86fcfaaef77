"""What was found of a live table or collection: enough to fill in what nobody said. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from onewrite.costs.capacity import IndexLoad
from onewrite.ledgers.kept import kept_ledgers


class Sample(NamedTuple):
    """Some entities of a store. Sizes are in bytes; `own` and `ledger` are those of an average entity, without its ledger and of it."""

    engine: str
    name: str
    entities: int  # as the database estimates it
    looked_at: int
    own: int
    ledger: int
    largest: int
    largest_share: float  # of the ledger in the entity that has the largest
    kept: Mapping[str, int]  # how the ledgers are kept, by attribute, and how many of the entities have each
    indexes: tuple[IndexLoad, ...] = ()
    unused: tuple[str, ...] = ()  # indexes in which none of the entities is


class Measured(NamedTuple):
    """The bytes of one entity without what onewrite keeps in it, and of that."""

    own: int
    ledger: int

    @property
    def size(self) -> int:
        return self.own + self.ledger

    @property
    def share(self) -> float:
        return self.ledger / self.size


def sample_of(
    engine: str, name: str, entities: int, items: Sequence[Mapping[str, Any]], measured: Sequence[Measured]
) -> Sample:
    """What the `items` show. `measured` has the bytes of each."""
    kept: dict[str, int] = {}
    for item in items:
        for each in kept_ledgers(item.items()):
            text = f"{each.attribute}: {each.layout}"
            kept[text] = kept.get(text, 0) + 1
    count = len(measured) or 1
    own, ledger = (round(sum(sizes) / count) for sizes in zip(*measured, strict=True)) if measured else (0, 0)
    largest = max((each.size for each in measured), default=0)
    share = max((each.share for each in measured), default=0.0)
    return Sample(engine, name, entities, len(items), own, ledger, largest, share, kept)
