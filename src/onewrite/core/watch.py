"""Warnings for the operator of a store, in the log `onewrite`: none is said again for every message."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from logging import WARNING
from math import inf

from onewrite.core.ledgers.seen_numbers import leaps
from onewrite.core.log import log

LARGE_LEDGER = 10 * 1024  # bytes: ten DynamoDB write units in every write of the entity
MANY_SOURCES = 100  # with names of 40 characters, five write units in every write of the entity
_MOST_TOPICS = 100  # so a store remembers little of what it has said
_PAUSE = 3600.0  # seconds between two comparisons with the server's clock


class Watch:
    """Looks at what a store has received anyway: the time in an answer, the ledger in an entity. It makes no request."""

    def __init__(self, skew: timedelta | None) -> None:
        self._skew = skew
        self.since, self.until = (-inf, inf) if skew is None else (inf, -inf)  # between these the clocks are not compared
        self._topics: set[str] = set()

    def wants_clock(self, now: float) -> bool:
        """Is it time to compare the clocks again? A ledger that knows no time never asks."""
        if self.since < now < self.until:
            return False
        self.since, self.until = now - _PAUSE, now + _PAUSE
        return True

    def clock(self, now: float, server: float) -> None:
        if self._skew is not None and abs(now - server) > self._skew.total_seconds():
            self._say(
                "clock",
                f"This process's clock is {abs(now - server):.0f} seconds {'ahead of' if now > server else 'behind'} the database's, "
                f"and the ledger bears {self._skew.total_seconds():.0f}: messages may be forgotten too early, for all writers of "
                "the entity. Set the clock right.",
            )

    def ledger(self, size: int, sources: int) -> None:
        if size > LARGE_LEDGER:
            self._say(
                "size",
                f"The ledger of an entity has {size} bytes, which DynamoDB bills in every write of it and MongoDB reads and "
                "rewrites. SeenIds takes less with a shorter retention, and every ledger with fewer messages or sources for one entity. "
                "Said once for this store.",
            )
        if sources > MANY_SOURCES:
            self._say(
                "sources",
                f"An entity holds the marks of {sources} sources, none of which is ever removed: let fewer sources feed one "
                "entity, or use SeenIds. Said once for this store.",
            )

    def numbers(self, entries: Iterable[tuple[str, object]]) -> None:
        """Look at what a ledger of numbers holds under its names."""
        for leap in leaps(entries):
            if len(self._topics) < _MOST_TOPICS:
                self._say(
                    leap.name,
                    f"{leap.name!r} is for numbers from {leap.number} on, and all others of this source that the entity holds are at most "
                    f"{leap.highest}. If that number is wrong, every message whose number belongs into the same slot is Stale until the "
                    f"source has come so far: set {leap.name!r} to {leap.remedy} then, by hand. If the source has leapt, all is well. "
                    "Said once for each slot.",
                )

    def _say(self, topic: str, text: str) -> None:
        if topic not in self._topics:
            self._topics.add(topic)
            log(WARNING, text)
