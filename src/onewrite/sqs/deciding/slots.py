"""What is under way in the slots of a worker, and which slots are lost to what hangs. The time is an argument."""

from __future__ import annotations

from math import inf

from onewrite.sqs.deciding.lines import Load
from onewrite.sqs.deciding.terms import Limits

_PACE_WEIGHT = 0.1  # of the last message, in the mean of their durations


class Slots:
    """Each slot has a load: a message, or the messages of a group."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way: dict[Load, None] = {}  # in the order in which they began
        self._overdue: dict[Load, float] = {}  # and when they became so
        self.pace: float | None = None  # the mean seconds of a message
        self.messages = 0  # that are under way

    def __len__(self) -> int:
        """How many are busy, without those that are lost."""
        return len(self._under_way)

    @property
    def number(self) -> int:
        """Those that are not lost."""
        return self._limits.slots - len(self._overdue)

    @property
    def free(self) -> int:
        return max(0, self._limits.slots - len(self._overdue) - len(self._under_way))

    @property
    def overdue(self) -> int:
        return len(self._overdue)

    def begin(self, load: Load, now: float) -> None:
        load.began = now
        self._under_way[load] = None
        self.messages += len(load.members)
        for held in load.members:
            held.under_way = True

    def end(self, load: Load, now: float) -> bool:
        """False: it was overdue, and its messages were given back before."""
        if self._overdue.pop(load, None) is not None:
            return False
        self._leave(load)
        taken = (now - load.began) / len(load.members)
        self.pace = taken if self.pace is None else self.pace + (taken - self.pace) * _PACE_WEIGHT
        return True

    def to_give_up(self, now: float) -> list[Load]:
        """What has just become overdue."""
        found: list[Load] = []
        for load in self._under_way:
            if now < load.began + self._limits.timeout:
                break
            found.append(load)
        for load in found:
            self._leave(load)
            self._overdue[load] = now
        return found

    def _leave(self, load: Load) -> None:
        del self._under_way[load]
        self.messages -= len(load.members)
        for held in load.members:
            held.under_way = False

    def lost(self, now: float) -> list[Load]:
        """What has a slot that is lost."""
        return [load for load, since in self._overdue.items() if now >= since + self._limits.grace]

    def is_stuck(self, now: float) -> bool:
        """More than half of the slots are lost."""
        return 2 * len(self.lost(now)) > self._limits.slots

    def next_due(self, now: float) -> float:
        """When something becomes overdue, or a slot lost."""
        first = next(iter(self._under_way), None)
        late = [since + self._limits.grace for since in self._overdue.values()]
        timeout = inf if first is None else first.began + self._limits.timeout
        return min([timeout, *(moment for moment in late if moment > now)])
