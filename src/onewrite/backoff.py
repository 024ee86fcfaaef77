"""How long a transaction waits before it is tried again, and when it is given up. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

from onewrite.errors import ConfigurationError

_FIRST, _LONGEST = 0.005, 0.5  # seconds: a transaction holds an entity for milliseconds, throttling lasts longer


class Backoff:
    """Waits that double, each of them partly left to chance, so that two who met once do not meet again."""

    def __init__(self, deadline: timedelta, chance: Callable[[], float], clock: Callable[[], float]) -> None:
        if not isinstance(cast("object", deadline), timedelta):
            raise ConfigurationError(f"deadline={deadline!r}: give a timedelta, as in timedelta(seconds=30).")
        self._clock = clock
        self._chance = chance
        self._ends = clock() + deadline.total_seconds()
        self._left = deadline.total_seconds()  # of the waiting itself, for a clock that stands still
        self._next = _FIRST

    def pause(self) -> float | None:
        """Seconds to wait before the next try, or None: the time is over."""
        wait = self._next * (1 + self._chance()) / 2
        if self._clock() + wait > self._ends or wait > self._left:
            return None
        self._left -= wait
        self._next = min(_LONGEST, self._next * 2)
        return wait
