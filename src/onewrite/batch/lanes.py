"""The bookkeeping of one batch: what may be taken next, and what goes back. It knows no clock, no thread and no broker.

Each record is in a lane, or in none. A lane is what the source keeps in order: a message group, a stream, a partition. Where
the source keeps no order, the messages that say their place themselves make lanes by their own source.

- Of each lane one record is under way at a time, and its records are taken in their order.
- After a failure the rest of its lane is never taken if the source keeps the order: it would deliver them again behind the
  failed one. Otherwise the lane goes on. Other lanes go on in any case.
- A closed batch gives out nothing more. What is under way may still end.
- A record that was deferred may be taken again.

So each record is either settled or goes back. A worker takes records until there is nothing to take, and then leaves. It may
leave while other workers are busy in their lanes: ending a record frees the next one of its lane, and the worker that ended
it takes records again. So no lane waits for a worker that has left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence

from onewrite.errors import ConfigurationError


class Lanes:
    """The records of a batch by their positions. `lanes` holds the lane of each record, or None if it is in none.

    `order` is the positions in the order in which to take them. What is not in it is taken only `again`. `strict`: a failure
    stops its lane.
    """

    __slots__ = ("_failed", "_freed", "_lanes", "_next", "_open", "_order", "_settled", "_strict", "_under_way", "_waiting")

    def __init__(self, lanes: Iterable[Hashable | None], order: Sequence[int] | None = None, *, strict: bool = True) -> None:
        self._lanes = tuple(lanes)
        self._order = range(len(self._lanes)) if order is None else order
        self._strict = strict
        self._next = 0  # Whatever comes before it in the order was taken, waits in its lane, or comes after a failure there.
        self._open = True
        self._freed: deque[int] = deque()  # positions that waited for another record and may be taken now
        self._waiting: dict[Hashable, deque[int]] = {}  # for each busy lane, the positions that wait in it
        self._failed: set[Hashable] = set()
        self._under_way: set[int] = set()
        self._settled: set[int] = set()

    @property
    def width(self) -> int:
        """How many records may be under way at a time."""
        without_lane = self._lanes.count(None)
        return without_lane + len({lane for lane in self._lanes if lane is not None})

    @property
    def is_empty(self) -> bool:
        """Whether there is no record left that `take` could give out or pass over."""
        return not self._freed and self._next == len(self._order)

    def take(self) -> int | None:
        """The position of a record to process. None: there is none, or none until another record ends."""
        position = self._next_to_take() if self._open else None
        if position is not None:
            self._under_way.add(position)
        return position

    def settle(self, position: int) -> None:
        """The record is done, and its lane goes on."""
        self._end(position)
        self._settled.add(position)
        self._go_on(self._lanes[position])

    def fail(self, position: int) -> None:
        """The record goes back, and with it all that come after it in a strict lane."""
        self._end(position)
        lane = self._lanes[position]
        if lane is None or not self._strict:
            self._go_on(lane)
        else:
            del self._waiting[lane]
            self._failed.add(lane)

    def again(self, position: int) -> None:
        """The record has failed, and is to be taken again before what waits in its lane."""
        lane = self._lanes[position]
        if lane is not None and lane in self._waiting:
            self._waiting[lane].appendleft(position)
            return
        if lane is not None:
            self._waiting[lane] = deque()
        self._freed.append(position)

    def close(self) -> None:
        """Nothing more is taken."""
        self._open = False

    @property
    def remaining(self) -> tuple[int, ...]:
        """What is not settled, in the order of the batch. Once nothing is under way, this is exactly what goes back."""
        return tuple(position for position in range(len(self._lanes)) if position not in self._settled)

    def _next_to_take(self) -> int | None:
        if self._freed:
            return self._freed.popleft()
        while self._next < len(self._order):
            position = self._order[self._next]
            self._next += 1
            if self._enters_its_lane(position):
                return position
        return None

    def _enters_its_lane(self, position: int) -> bool:
        """Make the lane busy with this record, if it is free; otherwise let the record wait, or pass it over."""
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

    def _go_on(self, lane: Hashable | None) -> None:
        if lane is None:
            return
        if waiting := self._waiting[lane]:
            self._freed.append(waiting.popleft())
        else:
            del self._waiting[lane]

    def _end(self, position: int) -> None:
        if position not in self._under_way:
            raise ConfigurationError(f"Record {position} is not under way: end each record that `take` gave, once.")
        self._under_way.remove(position)
