"""The warning about clock skew in the log `onewrite`. A store logs it once."""

from __future__ import annotations

from datetime import timedelta
from logging import WARNING
from math import inf

from onewrite.core.log import log

_PAUSE = 3600.0  # seconds between two comparisons with the server's clock
_MAX_DURATION = 1.0  # of a request that shows as much of the difference as the server's whole seconds allow
_MIN_WHOLE_SECONDS = 10.0  # below, the log also shows a part of a second


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
        elif after - before > max(tolerated, _MAX_DURATION):  # a slow request shows too little, so compare the next one too
            self.since, self.until = inf, -inf


def _format_seconds(value: float) -> str:
    return f"{value:.0f}" if value >= _MIN_WHOLE_SECONDS else f"{value:.2g}"
