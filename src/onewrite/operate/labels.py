"""The ledgers of an entity according to its labels, for commands that don't know the store that wrote it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from onewrite.core.label import FORMAT, IDS_LAYOUT, describe_unknown_layout, is_label, is_label_name, read_ledger_name
from onewrite.core.ledgers.ledger import Ledger
from onewrite.core.ledgers.marks import HighWaterMark
from onewrite.core.ledgers.seen_ids import UNITS, SeenIds
from onewrite.errors import ConfigurationError, LedgerMismatch

_MOVED_TO = "> "


class LabelledLedger(NamedTuple):
    """A ledger's label in an entity, in `attribute`. `layout` is the label's text after the version, for example "14d text"."""

    attribute: str
    layout: str

    @property
    def moved_to(self) -> str | None:
        """The attribute of the ledger that replaced this one, or None."""
        return (self.layout.removeprefix(_MOVED_TO) or None) if self.layout.startswith(_MOVED_TO) else None

    @property
    def is_known(self) -> bool:
        """Whether this version of onewrite knows this layout."""
        if self.moved_to is not None:
            return True
        try:
            _ = self.ledger
        except LedgerMismatch:
            return False
        return True

    @property
    def ledger(self) -> Ledger:
        """A ledger with this layout. For marks it is a `HighWaterMark`, although the layout of `InSequence` is the same."""
        name = read_ledger_name(self.attribute)
        with suppress(ConfigurationError, OverflowError, ValueError):  # a number that no ledger can have
            if self.layout == "marks":
                return HighWaterMark(name=name)
            if ids := IDS_LAYOUT.fullmatch(self.layout):
                retention = None if ids["unit"] is None else int(ids["count"]) * UNITS[ids["unit"]]
                return SeenIds(retention, name=name, readable=ids["text"] is not None)
        raise LedgerMismatch(describe_unknown_layout(self.attribute, self.layout))


def find_labels(fields: Iterable[tuple[str, object]]) -> list[LabelledLedger]:
    """Return the ledgers with a label among an entity's top-level attributes or fields, sorted by attribute."""
    labels = [(name, str(text)) for name, text in fields if is_label_name(name) and is_label(text)]
    return sorted([LabelledLedger(name, text.removeprefix(f"{FORMAT} ")) for name, text in labels])
