"""The warning about clock skew in the log `onewrite`. A store logs it once."""

from __future__ import annotations

from datetime import timedelta
from logging import WARNING
from math import inf

from onewrite.core.log import log

_PAUSE = 3600.0  # seconds between two comparisons with the server's clock


class Watch:
    """Compares the clock with the time in the store's responses, without a request of its own."""

    def __init__(self, skew: timedelta | None) -> None:
        self._skew = skew
        self._has_warned = False
        # The clocks aren't compared between these times, and never for a ledger that doesn't depend on time.
        self.since, self.until = (-inf, inf) if skew is None else (inf, -inf)

    def start_pause(self, now: float) -> None:
        """Skip further comparisons for an hour, or until this process's clock is set back by an hour."""
        self.since, self.until = now - _PAUSE, now + _PAUSE

    def compare(self, now: float, server_time: float) -> None:
        """Log a warning if the clocks differ by more than the ledger tolerates."""
        if self._has_warned or self._skew is None or abs(now - server_time) <= self._skew.total_seconds():
            return
        self._has_warned = True
        log(
            WARNING,
            f"Clock skew: this process is {abs(now - server_time):.0f} s {'ahead of' if now > server_time else 'behind'} the database, but the ledger "
            f"tolerates only {self._skew.total_seconds():.0f} s. Messages can be forgotten too early, for every writer of the same entities, "
            "and a redelivery would then be applied again. Correct the clock of this machine.",
        )
