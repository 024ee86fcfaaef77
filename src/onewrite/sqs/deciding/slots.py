"""What is under way in the slots of a worker, and which slots are lost to what hangs. The time is an argument."""

from __future__ import annotations

from math import inf

from onewrite.sqs.deciding.lines import Held, Load
from onewrite.sqs.deciding.terms import Limits

_PACE_WEIGHT = 0.1  # of the last message, in the mean of their durations
_MANY_LATE = 3  # different messages: one or two may be to blame themselves
_LATE_FOR = 2  # times the timeout


class Slots:
    """Each slot has a load: a message, or the messages of a group."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way: dict[Load, None] = {}  # in the order in which they began
        self._overdue: dict[Load, float] = {}  # and when they became so
        self.pace: float | None = None  # the mean seconds of a message
        self.messages = 0  # that are under way
        self._late: set[str] = set()  # messages that were given up since one has last ended in time
        self._late_since = 0.0

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
        if self._late:
            self._late.clear()
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
            self._late_since = self._late_since if self._late else now
            self._late.update(held.message["MessageId"] for held in load.members)
        return found

    def under_way(self) -> list[Held]:
        return [held for load in self._under_way for held in load.members]

    def count_anew(self, now: float) -> None:
        """The process itself stood still, so that nothing could end."""
        for load in self._under_way:
            load.began = now
        self._overdue = dict.fromkeys(self._overdue, now)
        self._late.clear()

    @property
    def late(self) -> int:
        """Messages that did not end in time, one after the other."""
        return len(self._late)

    def is_starved(self, now: float) -> bool:
        """Nothing ends in time any more, although what is given up costs no slot: maybe all wait for what is never free again."""
        return len(self._late) >= _MANY_LATE and now >= self._late_since + _LATE_FOR * self._limits.timeout

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
