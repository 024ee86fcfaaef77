"""Which of the messages at hand are begun next, if the handler takes the messages of a group at once.

- On a standard queue all that is at hand of a group begins together. The first message of a group may wait for others for a
  while; the group begins before that if a call can have no more, and when one of its messages is to be tried again.
- Of a message group of a FIFO queue the first messages begin together that are neighbours and of one group. They wait for no
  others: SQS gives out no more of the message group while some of it is at hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import islice, takewhile
from math import inf

from onewrite.batch.order import MOST
from onewrite.sqs.deciding.intake import MOST_MESSAGES
from onewrite.sqs.deciding.lines import Held, Load, WaitingLines


@dataclass(slots=True, eq=False)
class _Gathering:
    """The messages of one group of a standard queue that wait to begin."""

    due: float
    members: deque[Held] = field(default_factory=deque[Held])
    is_ready: bool = False


class GroupLines(WaitingLines):
    """The messages that wait to begin. `gather` is for how many seconds the first one of a group waits for others."""

    __slots__ = ("_gather", "_gathered", "_gatherings", "_open", "per_slot")

    def __init__(self, queues: int, gather: float) -> None:
        super().__init__(queues)
        self._gather = gather
        self._gatherings: dict[tuple[int, Hashable], _Gathering] = {}
        self._gathered = [0] * queues  # how many messages these have
        self._open: deque[_Gathering] = deque()  # by the time at which they are ready
        self.per_slot = MOST if gather else MOST_MESSAGES

    @property
    def waiting(self) -> int:
        return sum(map(self.waiting_of, range(len(self._ready))))

    def waiting_of(self, queue: int) -> int:
        return self._gathered[queue] or len(self._ready[queue])  # A FIFO queue has no gatherings.

    def add(self, held: Held, now: float) -> None:
        if held.group is not None:
            super().add(held, now)
            return
        gathering = self._gathering_of(held, now + self._gather)
        if not self._gather or len(gathering.members) >= MOST:
            self._begin(gathering)

    def ready_again(self, held: Held) -> None:
        if held.group is not None:
            super().ready_again(held)
        else:
            self._begin(self._gathering_of(held, inf))

    def gathered(self, now: float) -> None:
        while self.next_due() <= now:
            self._begin(self._open.popleft())

    def next_due(self) -> float:
        while self._open and self._open[0].is_ready:
            self._open.popleft()
        return self._open[0].due if self._open else inf

    def take(self) -> Load:
        first = self._next()
        if first.group is not None:
            line = self._groups[first.queue, first.group]
            return Load(tuple(islice(takewhile(lambda held: held.key == first.key, line), MOST)))
        gathering = self._gatherings[first.queue, first.key]
        members = tuple(gathering.members.popleft() for _ in range(min(MOST, len(gathering.members))))
        self._gathered[first.queue] -= len(members)
        if gathering.members:  # Some came again while as many as may be in one call were waiting.
            self._call(gathering)
        else:
            del self._gatherings[first.queue, first.key]
        return Load(members)

    def clear(self) -> list[Held]:
        gathered = [held for gathering in self._gatherings.values() for held in gathering.members]
        self._gatherings.clear()
        self._gathered = [0] * len(self._gathered)
        self._open.clear()
        return gathered + [held for held in super().clear() if held.group is not None]

    def _gathering_of(self, held: Held, due: float) -> _Gathering:
        """That of its group, with the message."""
        place = held.queue, held.key
        gathering = self._gatherings.get(place)
        if gathering is None:
            gathering = self._gatherings[place] = _Gathering(due)
            if due < inf:
                self._open.append(gathering)
        gathering.members.append(held)
        self._gathered[held.queue] += 1
        return gathering

    def _begin(self, gathering: _Gathering) -> None:
        if not gathering.is_ready:
            gathering.is_ready = True
            self._call(gathering)

    def _call(self, gathering: _Gathering) -> None:
        """Its first message stands for it among those that are ready."""
        first = gathering.members[0]
        self._ready[first.queue].append(first)
        self.ready += 1
