"""What a pass knows of the entities whose events it publishes, and of those that it passes over."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field

from onewrite.pending import Box, Outgoing

_log = logging.getLogger("onewrite")


@dataclass(slots=True)
class Lane:
    """One entity in a pass: its events go out one after the other."""

    box: Box
    accepted: int = 0  # of the events in the box, from the front
    published: list[Outgoing] = field(default_factory=list[Outgoing])
    refused: Outgoing | None = None
    error: Exception | None = None
    overtaken: bool = False  # another relay was faster, so that what is in the box is not known any more
    broken: bool = False  # something else stands in the outbox by now
    unsettled: Exception | None = None  # the database would not clear what was accepted, or put off what was refused

    @property
    def is_known(self) -> bool:
        """Is the outbox still as the box says?"""
        return not self.overtaken and not self.broken

    @property
    def runs(self) -> bool:
        halted = self.refused is not None or self.error is not None or self.unsettled is not None or not self.is_known
        return not halted and self.accepted < len(self.box.events)

    @property
    def event(self) -> Outgoing:
        return self.box.outgoing(self.accepted)

    def answered(self, event: Outgoing, *, accepted: bool) -> None:
        if accepted:
            self.published.append(event)
            self.accepted += 1
        else:
            self.refused = event


class PassedOver:
    """Entities, by their canonical names, that a pass passes over for some time, which is twice as long each time."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self._waits: dict[Hashable, tuple[float, float]] = {}  # until when, and for how long

    def add(self, entity: Hashable, now: float) -> float:
        """For how many seconds is the entity passed over from now on?"""
        _, before = self._waits.get(entity, (now, 0.0))
        wait = min(max(2 * before, self._shortest), self._longest)
        self._waits[entity] = now + wait, wait
        return wait

    def has(self, entity: Hashable, now: float) -> bool:
        until, _ = self._waits.get(entity, (now, 0.0))
        return until > now

    def forget(self, now: float) -> None:
        """Forget those of which nothing was heard for long."""
        self._waits = {each: (until, wait) for each, (until, wait) in self._waits.items() if until + self._longest > now}


def tell(level: int, text: str, *values: object) -> None:
    """Write to the log. A filter or a handler of the user's that fails there ends no pass."""
    with suppress(Exception):
        _log.log(level, text, *values)
