"""What an item or a document says of itself, whatever the engine. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from onewrite.doctor.facts import Entity
from onewrite.errors import LedgerMismatch
from onewrite.label import OUTBOX, STEPS, TOMBSTONE, is_outbox_label
from onewrite.ledgers import HighWaterMark
from onewrite.ledgers.entry import Terms
from onewrite.ledgers.kept import Kept, kept_ledgers
from onewrite.ledgers.seen_ids import SLOTS
from onewrite.message import printable
from onewrite.tombstone import read_tombstone

# Marks and tokens as docs/format.md names them. Nobody else names a set so by chance.
_MARKS = re.compile(rf"(.+)_(?:\d+(?:d|h|m|s|us)t?_r[0-{SLOTS - 1}]|try_r[0-4])", re.DOTALL)
_GENERATIONS = re.compile(r"(.+)_\d+(?:d|h|m|s|us)t?", re.DOTALL)
_SLOT = re.compile(rf"r[0-{SLOTS - 1}]")


def kept_in(fields: Mapping[str, Any]) -> tuple[Kept, ...]:
    return tuple(kept_ledgers(fields.items()))


def terms_of(kept: Kept) -> Terms:
    """By which the names of a ledger are known; those of one that has moved, or that this version does not know, as well."""
    try:
        return (HighWaterMark(kept.attribute) if kept.moved_to is not None else kept.ledger).terms
    except LedgerMismatch:
        return HighWaterMark(kept.attribute).terms


def entity_of(
    name: str,
    fields: Mapping[str, Any],
    *,
    own: frozenset[str],
    ledgers: Mapping[Kept, frozenset[str]],
    sizes: Mapping[str, int],
    total: int,
    expires: float | None,
) -> Entity:
    """`ledgers`: the names of what each ledger has in these fields."""
    named = frozenset[str]().union(*ledgers.values())
    unlabelled = {attribute for each in own if (attribute := _of_marks(each, fields[each])) is not None}
    return Entity(
        printable(name),
        total,
        own,
        {each: sizes[each] for each in sorted(named)},
        tuple(ledgers),
        unlabelled=tuple(sorted(unlabelled)),
        unmarked=tuple([kept.attribute for kept, names in ledgers.items() if not _is_marked(kept, names, fields)]),
        tombstone=_tombstone(fields),
        in_use=STEPS in fields or is_outbox_label(fields.get(OUTBOX.label)),
        expires=expires,
    )


def _of_marks(name: str, value: object) -> str | None:
    """The attribute of the ledger whose marks these are, as far as name and value tell."""
    if isinstance(value, AbstractSet):
        found = _MARKS.fullmatch(name)
    elif isinstance(value, Mapping):
        slots = cast("Mapping[str, object]", value)
        found = _GENERATIONS.fullmatch(name) if slots and all(map(_SLOT.fullmatch, slots)) else None
    else:
        found = None
    return None if found is None else found[1]


def _is_marked(kept: Kept, names: frozenset[str], fields: Mapping[str, Any]) -> bool:
    """Has the ledger a mark beside its label and its tokens? One that has moved needs none."""
    others = [
        name for name in names if name != f"{kept.attribute}_ledger" and not name.startswith(f"{kept.attribute}_try_r")
    ]
    return kept.moved_to is not None or any(_holds(fields[name]) for name in others)


def _holds(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds, cast("Mapping[str, object]", value).values()))
    return len(cast("list[object]", value)) > 0 if isinstance(value, list | AbstractSet) else True


def _tombstone(fields: Mapping[str, Any]) -> int | None:
    if TOMBSTONE not in fields:
        return None
    try:
        return read_tombstone(fields[TOMBSTONE]).seconds
    except LedgerMismatch:
        return None
