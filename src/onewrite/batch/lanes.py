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

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from itertools import filterfalse
from typing import TypeAlias

from onewrite.errors import ConfigurationError
from onewrite.message import Message, by_sequence
from onewrite.outcome import Answer, Deferred, Rejected


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
        return self._lanes.count(None) + len({*self._lanes} - {None})

    @property
    def is_empty(self) -> bool:
        """Whether there is no record left that `take` could give out or pass over."""
        return not self._freed and self._next == len(self._order)

    def take(self) -> int | None:
        """The position of a record to process. None: there is none, or none until another record ends."""
        if not self._open:
            return None
        position = self._freed.popleft() if self._freed else None
        while position is None and self._next < len(self._order):
            position = self._order[self._next]
            self._next += 1
            if (lane := self._lanes[position]) is not None and not self._enters(lane, position):
                position = None
        if position is not None:
            self._under_way.add(position)
        return position

    def settle(self, position: int) -> None:
        """The record is done, and its lane goes on."""
        self._end(position)
        self._settled.add(position)
        if (lane := self._lanes[position]) is not None:
            self._go_on(lane)

    def fail(self, position: int) -> None:
        """The record goes back, and with it all that come after it in a strict lane."""
        self._end(position)
        lane = self._lanes[position]
        if lane is not None and not self._strict:
            self._go_on(lane)
        elif lane is not None:
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
        return tuple(filterfalse(self._settled.__contains__, range(len(self._lanes))))

    def _enters(self, lane: Hashable, position: int) -> bool:
        """Make the lane busy with this record, if it is free; otherwise let the record wait, or pass it over."""
        if lane in self._failed:
            return False
        if lane in self._waiting:
            self._waiting[lane].append(position)
            return False
        self._waiting[lane] = deque()
        return True

    def _go_on(self, lane: Hashable) -> None:
        if waiting := self._waiting[lane]:
            self._freed.append(waiting.popleft())
        else:
            del self._waiting[lane]

    def _end(self, position: int) -> None:
        if position not in self._under_way:
            raise ConfigurationError(f"Record {position} is not under way: end each record that `take` gave, once.")
        self._under_way.remove(position)


# --- messages that say their place themselves ------------------------------------------------------------------------
#
# The order of messages that come without one: who is taken first, and when a deferred message is worth another try. Pure.


_Place: TypeAlias = tuple[str, tuple[str, ...], int]  # the source, the parts and the sequence of a message


def ordered(messages: Sequence[Message | None]) -> tuple[list[Hashable | None], list[int]]:
    """For each message its lane, and all positions in the order in which to take them.

    The lane is the message's source, if it has a sequence. The messages of a source are taken by their sequence, at the
    positions that the source has in the batch, so that no source is put off until the others are done.
    """
    lanes: list[Hashable | None] = [
        None if message is None or message.sequence is None else message.source for message in messages
    ]
    return lanes, by_sequence(messages)


class SecondTries:
    """Which deferred records are worth another try: those whose predecessor was settled after their last try had begun.

    A place counts as settled once only. So a record is tried again at most once for each place that it waits for. One that
    waits for a step as well is not tried again: the end of a step seldom comes while the batch is under way.
    """

    __slots__ = ("_begun", "_settled", "_waiting")

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}  # for each position how many places were settled when its last try began
        self._settled: dict[_Place, int] = {}  # for each settled place its number, from 0
        self._waiting: dict[_Place, list[int]] = defaultdict(list)

    def begin(self, position: int) -> None:
        self._begun[position] = len(self._settled)

    def settle(self, outcomes: Iterable[Answer]) -> list[int]:
        """The positions to try again, now that there are these outcomes."""
        again: dict[int, None] = {}
        for outcome in outcomes:
            place = _place(outcome.message)
            if outcome.settled and place is not None and place not in self._settled:
                self._settled[place] = len(self._settled)
                again.update(dict.fromkeys(self._waiting.pop(place, ())))
        for waiting in self._waiting.values():
            waiting[:] = [position for position in waiting if position not in again]
        return [*again]

    def defer(self, position: int, outcomes: Sequence[Answer]) -> bool:
        """Keep in mind what the record waits for. True: that came while it was tried, and it is to be tried again now."""
        if not all(each.settled or isinstance(each, Deferred | Rejected) for each in outcomes):
            return False
        before = [_place(each.message, -1) for each in outcomes if isinstance(each, Deferred)]
        places = [place for place in before if place is not None]
        if any(self._settled.get(place, -1) >= self._begun[position] for place in places):
            return True
        for place in places:
            self._waiting[place].append(position)
        return False


def _place(message: Message, distance: int = 0) -> _Place | None:
    if type(message.sequence) is not int:
        return None
    return message.source, message.parts, message.sequence + distance
