"""The warnings about clock skew and about a hot entity in the log `onewrite`. A store logs each of them once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from itertools import islice
from logging import WARNING
from math import inf
from typing import Any, cast

from onewrite.core.label import OUTBOX, is_ours
from onewrite.core.log import log

_PAUSE = 3600.0  # seconds between two comparisons with the server's clock
_MAX_DURATION = 1.0  # a slower request shows too little, because the server's time has whole seconds
_MIN_WHOLE_SECONDS = 10.0  # below, the log also shows a part of a second


# Bytes of an entity's ledger. DynamoDB bills a write unit for each KiB of the entity, in every write.
MAX_LEDGER_BYTES = 10 * 1024
_NUMBER_BYTES = 8
_MAX_MEMBERS = 100  # a larger map is estimated from its first members


class Watch:
    """Compares the clock with the time in the store's responses, and measures the ledgers in them, without a request of its own."""

    def __init__(self, skew: timedelta | None, attribute: str) -> None:
        self._skew, self._attribute = skew, attribute
        self._has_warned = self._has_weighed = False
        # The clocks aren't compared between these times, and never for a ledger that doesn't depend on time.
        self.since, self.until = (-inf, inf) if skew is None else (inf, -inf)

    def weigh(self, fields: Mapping[str, Any]) -> None:
        """Log a warning if the ledger in an entity's attributes or fields is large."""
        if self._has_weighed:
            return
        size = sum(
            [
                estimate_bytes(value)
                for name, value in fields.items()
                if name == self._attribute or (is_ours(name) and name not in OUTBOX)
            ]
        )
        if size > MAX_LEDGER_BYTES:
            self._has_weighed = True
            log(
                WARNING,
                f"Hot entity: the ledger {self._attribute!r} of an entity has about {size // 1024} KB. On DynamoDB, each write of this entity "
                "costs as many write units, even if it changes little. Shorten the ledger's retention, use HighWaterMark if each source "
                'numbers its messages, or record this entity\'s messages in a table: see "A table of processed messages" in '
                "docs/several.md. The doctor shows the largest ledger of its sample.",
            )

    def start_pause(self, now: float) -> None:
        """Skip further comparisons for an hour, or until this process's clock is set back by an hour."""
        self.since, self.until = now - _PAUSE, now + _PAUSE

    def compare(self, before: float, after: float, server_second: int) -> None:
        """Log a warning if the clocks certainly differ by more than the ledger tolerates.

        This process's clock showed `before` before the request and `after` after it. In between, the server's clock showed a time within
        `server_second`, which is a whole second. Hence the difference is only known to be within an interval.
        """
        if self._skew is None or self._has_warned:
            return
        tolerated, ahead, behind = self._skew.total_seconds(), before - (server_second + 1), server_second - after
        difference = max(ahead, behind)
        if difference > tolerated:
            self._has_warned = True
            log(
                WARNING,
                f"Clock skew: this process is at least {_format_seconds(difference)} s {'ahead of' if ahead > behind else 'behind'} the database, "
                f"but the ledger tolerates only {_format_seconds(tolerated)} s. Messages can be forgotten too early, for every writer of the same "
                "entities, and a redelivery can then be applied again. Correct the clock of this machine.",
            )
        elif after - before > max(tolerated, _MAX_DURATION):  # a slow request shows too little. Compare the next one too
            self.since, self.until = inf, -inf


def estimate_bytes(value: Any) -> int:
    """Return about how many bytes a stored value has. The members of a list, a set, or a large map are taken to be like the first one."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        sizes = [len(name) + estimate_bytes(member) for name, member in islice(members.items(), _MAX_MEMBERS)]
        return sum(sizes) if len(members) <= _MAX_MEMBERS else sum(sizes) * len(members) // _MAX_MEMBERS
    if isinstance(value, list | tuple | AbstractSet):
        collection = cast("Collection[Any]", value)
        return len(collection) * estimate_bytes(next(iter(collection))) if collection else 0
    return _NUMBER_BYTES


def _format_seconds(value: float) -> str:
    return f"{value:.0f}" if value >= _MIN_WHOLE_SECONDS else f"{value:.2g}"
