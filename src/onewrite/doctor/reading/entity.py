"""What an item or a document says of itself, whatever the engine. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from onewrite.doctor.facts import Entity
from onewrite.errors import LedgerMismatch
from onewrite.label import OUTBOX, PREFIX, STEPS, TOMBSTONE, is_outbox_label, prefix_of, whose
from onewrite.ledgers import HighWaterMark
from onewrite.ledgers.entry import Terms
from onewrite.ledgers.kept import Kept, kept_ledgers
from onewrite.ledgers.seen_ids import KEPT, SLOTS
from onewrite.message import printable
from onewrite.tombstone import read_tombstone

# What a ledger keeps beside its label and its tokens, as docs/format.md names it.
_KEPT = re.compile(rf"(?P<prefix>{PREFIX})(?:{KEPT}r[0-{SLOTS - 1}]?|allt?|@.*)", re.DOTALL)


def kept_in(fields: Mapping[str, Any]) -> tuple[Kept, ...]:
    return tuple(kept_ledgers(fields.items()))


def terms_of(kept: Kept) -> Terms:
    """By which the names of a ledger are known; those of one that has moved, or that this version does not know, as well."""
    try:
        return (HighWaterMark(name=whose(kept.attribute)) if kept.moved_to is not None else kept.ledger).terms
    except LedgerMismatch:
        return HighWaterMark(name=whose(kept.attribute)).terms


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
    labels = {f"{found['prefix']}l" for each in fields if (found := _KEPT.fullmatch(each)) is not None}
    unlabelled = {label for label in labels if label not in fields}
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


def _is_marked(kept: Kept, names: frozenset[str], fields: Mapping[str, Any]) -> bool:
    """Has the ledger a mark beside its label and its tokens? One that has moved needs none."""
    others = [name for name in names if name != kept.attribute and not name.startswith(f"{prefix_of(kept.attribute)}t")]
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
