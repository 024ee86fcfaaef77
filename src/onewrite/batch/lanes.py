"""The bookkeeping of one batch: what may be taken next, and what goes back. It knows no clock, no thread and no broker.

Each record stands in a lane, or alone. A lane is what the source keeps in order: a message group, a stream, a partition.

- One record of a lane is under way at a time, and they are taken in the order of the batch.
- After a failure the rest of its lane is never taken. Other lanes go on.
- A closed batch gives nothing more; what is under way may still end.

So a record is settled, or it goes back: never both, never neither. A worker takes until there is nothing to take, and
leaves. It may leave while lanes are busy: whoever is at work there takes on what the end of his record sets free, so that
no lane ever waits for a worker who left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

from onewrite.errors import ConfigurationError


class Lanes:
    """The records of a batch by their positions. `lanes` has one entry for each: its lane, or None where it stands alone."""

    __slots__ = ("_failed", "_free", "_lanes", "_next", "_open", "_settled", "_under_way", "_waiting")

    def __init__(self, lanes: Iterable[Hashable | None]) -> None:
        self._lanes = tuple(lanes)
        self._next = 0  # every position before it was taken, or waits in its lane, or stands behind a failure
        self._open = True
        self._free: deque[int] = deque()  # what waited, and whose lane has come free
        self._waiting: dict[Hashable, deque[int]] = {}  # what waits, by lane; a lane that is in here is busy
        self._failed: set[Hashable] = set()
        self._under_way: set[int] = set()
        self._settled: set[int] = set()

    @property
    def width(self) -> int:
        """How many of its records may be under way at a time."""
        alone = self._lanes.count(None)
        return alone + len({lane for lane in self._lanes if lane is not None})

    @property
    def is_empty(self) -> bool:
        """Whether no record is left that `take` has not come to."""
        return not self._free and self._next == len(self._lanes)

    def take(self) -> int | None:
        """The next record whose turn has come. None: there is none, or none before another one ends."""
        position = self._turn() if self._open else None
        if position is not None:
            self._under_way.add(position)
        return position

    def settle(self, position: int) -> None:
        """It is done, and its lane goes on."""
        self._end(position)
        self._settled.add(position)
        lane = self._lanes[position]
        if lane is None:
            return
        if waiting := self._waiting[lane]:
            self._free.append(waiting.popleft())
        else:
            del self._waiting[lane]

    def fail(self, position: int) -> None:
        """It goes back, and with it all that stands behind it in its lane."""
        self._end(position)
        lane = self._lanes[position]
        if lane is not None:
            del self._waiting[lane]
            self._failed.add(lane)

    def close(self) -> None:
        """Nothing more is taken."""
        self._open = False

    @property
    def remaining(self) -> tuple[int, ...]:
        """What is not settled, in the order of the batch: as soon as nothing is under way, exactly what goes back."""
        return tuple(position for position in range(len(self._lanes)) if position not in self._settled)

    def _turn(self) -> int | None:
        if self._free:
            return self._free.popleft()
        while self._next < len(self._lanes):
            position = self._next
            self._next += 1
            if self._may_go(position):
                return position
        return None

    def _may_go(self, position: int) -> bool:
        lane = self._lanes[position]
        if lane is None:
            return True
        if lane in self._failed:
            return False
        if lane in self._waiting:
            self._waiting[lane].append(position)
            return False
        self._waiting[lane] = deque()
        return True

    def _end(self, position: int) -> None:
        if position not in self._under_way:
            raise ConfigurationError(f"Record {position} is not under way: end what `take` gave, and end it once.")
        self._under_way.remove(position)
