"""What is said of an entity that would become too large. Pure."""

from __future__ import annotations

from typing import NamedTuple

from onewrite.errors import EntityTooLarge


class Size(NamedTuple):
    """The bytes of an entity, in `total`, and what they are. `emitted` would come with the write's own events."""

    total: int
    own: int  # the caller's
    outbox: int
    emitted: int = 0

    @property
    def ledger(self) -> int:
        return self.total - self.own - self.outbox


def too_large(limit: str, size: Size, remedy: str) -> EntityTooLarge:
    """`remedy` is what helps where the ledger takes more than the events. Nothing is known of an entity of no size."""
    if not size.total:
        shares = "its present size is not known"
    else:
        waiting = f", {size.outbox} its outbox's, whose events wait for a relay," if size.outbox else ""
        shares = f"it has {size.total} now, {size.ledger} of them its ledger's{waiting} and {size.own} the caller's own"
    brings = f" The events of this write would add {size.emitted}." if size.emitted else ""
    if size.outbox + size.emitted > size.ledger:
        remedy = "Emit less, and let a relay publish what waits: until then it stands in the entity."
    return EntityTooLarge(
        f"The entity would exceed {limit}: {shares}.{brings} It is unchanged, and will refuse every further message that adds to it. {remedy}"
    )
