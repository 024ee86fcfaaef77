"""Which messages of a batch make one call of the function, and what may be taken next. It knows no clock, no thread and no broker.

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

With `group_by` a worker takes a unit instead, whose messages are one call:

- Where the source keeps an order, a unit is a run of neighbours of one group within their lane. So nothing overtakes anything,
  not even a message of another group.
- Where it keeps none, a unit has all messages of one group, in the order of the batch. Some messages still form a line: those
  of one record, and those of a source by their sequence. In each line nothing is overtaken. Lines that have a group in common
  share a lane, so no group is in two calls at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, TypeAlias

from onewrite.batch.function import Unreturned
from onewrite.batch.report import Result, is_settled
from onewrite.core.unreturned import Note
from onewrite.errors import ConfigurationError
from onewrite.identity import Skip, record_id
from onewrite.message import Message, by_sequence
from onewrite.outcome import Answer, Deferred, Rejected

# Messages in one call: `fold` needs three writes of DynamoDB for so many, each of up to 40 ids. After a call the deadline is looked at again,
# and a call that raises an error is followed by one for each of its messages.
MOST = 100

End: TypeAlias = tuple[Answer, ...] | BaseException
"""How it ended with one message."""
_ANY = object()  # the group of a record that was skipped: it may be among those of any group


# --- a record on its way ---------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class RecordState:
    """One record: what its identity said, and what has become of it so far.

    `keys` are the groups of its messages. It has no messages if the identity failed, or skipped it: `refusal` says which.
    """

    record: Any
    position: int
    messages: tuple[Message, ...]
    refusal: Skip | Exception | None
    keys: tuple[Hashable, ...]
    clock: Callable[[], float]
    seconds: float = 0.0  # that reading it took, and then the calls with its messages
    outcomes: tuple[Answer, ...] = ()
    unreturned: tuple[Note, ...] = ()  # those of the outcomes that the function did not return
    error: BaseException | None = None
    progress: int = 0  # messages of which the end is known
    has_failed: bool = False

    def turns(self) -> list[Turn]:
        if self.refusal is None:
            return [*zip(repeat(self), count(), self.keys)]
        return [(self, 0, _ANY if isinstance(self.refusal, Skip) else object())]

    def end(self, end: End, seconds: float) -> None:
        """How it ended with the next one of its messages. After a failure that counts no more."""
        if self.has_failed:
            return
        self.progress += 1
        self.seconds += seconds
        if isinstance(end, BaseException):
            self.error, self.has_failed = end, True
        else:
            self.outcomes += end
            if isinstance(end, Unreturned):
                self.unreturned += end.notes
            self.has_failed = bool(end) and not all(map(is_settled, end))

    def result(self) -> Result:
        """What became of it. Where it has no messages, the identity's error is its own."""
        refusal = self.refusal
        return Result(
            self.record,
            record_id(self.record),
            self.messages[self.progress - 1] if self.progress else None,
            self.outcomes,
            refusal if isinstance(refusal, Exception) else self.error,
            self.seconds,
            skipped=isinstance(refusal, Skip),
            unreturned=self.unreturned,
            clock=self.clock,
        )


Turn: TypeAlias = tuple[RecordState, int, Hashable]
"""A record, the number of a message in it, and its group. A record without messages has one turn."""


# --- which messages are one call -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unit:
    """What is done at once: a call with these messages, or the end of a record that has none. A lane's units take turns."""

    lane: Hashable
    turns: Sequence[Turn]

    @property
    def positions(self) -> tuple[int, ...]:
        """Its records, each once."""
        return tuple(dict.fromkeys(state.position for state, _, _ in self.turns))


def runs(records: Iterable[RecordState], lanes: Sequence[Hashable]) -> list[Unit]:
    """The units of a source that keeps order, by their first records."""
    of_lane: dict[Hashable, list[Turn]] = defaultdict(list)
    for state in records:
        of_lane[lanes[state.position]] += state.turns()
    units = [Unit(lane, turns) for lane, line in of_lane.items() for _, turns in neighbours(line)]
    return sorted(units, key=lambda unit: (unit.turns[0][0].position, unit.turns[0][1]))


def groups(records: Sequence[RecordState]) -> list[Unit]:
    """The units of a source that keeps no order. Two that have the same lane are to be done in the order of the list."""
    sources, order = lanes_and_order([state.messages[0] if len(state.messages) == 1 else None for state in records])
    place = {records[index].position: number for number, index in enumerate(order)}
    of_source: dict[Hashable, list[Turn]] = defaultdict(list)
    for index in order:
        of_source[records[index] if sources[index] is None else (sources[index],)] += records[index].turns()
    lines = [*of_source.values()]
    lane_of = _lanes_of_lines(lines)
    next_runs: dict[
        Hashable, list[tuple[int, list[Turn]]]
    ] = {}  # for each group that is next in some lines: its turns there
    runs_of_lines = [neighbours(line) for line in lines]
    units: list[Unit] = []

    def advance(line: int) -> None:
        for key, turns in runs_of_lines[line]:
            next_runs.setdefault(key, []).append((line, turns))
            return

    for line in range(len(lines)):
        advance(line)
    while next_runs:
        group_runs = next_runs.pop(next(iter(next_runs)))
        turns = sorted(
            (turn for _, turns in group_runs for turn in turns), key=lambda turn: (place[turn[0].position], turn[1])
        )
        units += [Unit(lane_of[group_runs[0][0]], turns[at : at + MOST]) for at in range(0, len(turns), MOST)]
        for line, _ in group_runs:
            advance(line)
    return units


def neighbours(line: Iterable[Turn]) -> Iterator[tuple[Hashable, list[Turn]]]:
    """Neighbours of one group, as many as may be in one call."""
    key: Hashable = _ANY
    turns: list[Turn] = []
    for turn in line:
        turn_key = turn[2]
        if turns and (len(turns) == MOST or not (key is _ANY or turn_key is _ANY or turn_key == key)):
            yield key, turns
            key, turns = _ANY, []
        key = key if turn_key is _ANY else turn_key
        turns.append(turn)
    yield key, turns


def _lanes_of_lines(lines: Sequence[Iterable[Turn]]) -> list[int]:
    """For each line its lane, which is one for all lines that have a group in common."""
    parent = [*range(len(lines))]

    def root(line: int) -> int:
        while parent[line] != line:
            parent[line] = parent[parent[line]]
            line = parent[line]
        return line

    first_line: dict[Hashable, int] = {}
    for line, turns in enumerate(lines):
        for _, _, key in turns:
            parent[root(line)] = root(first_line.setdefault(key, line))
    return [root(line) for line in range(len(lines))]


# --- what may be taken next ------------------------------------------------------------------------------------------


class Lanes:
    """What a worker may take, by its number. `lanes` holds the lane of each, or None if it is in none.

    `order` is the numbers in the order in which to take them. What is not in it is taken only by `take_again`. `strict`: a failure
    stops its lane.
    """

    __slots__ = (
        "_failed_lanes",
        "_free_numbers",
        "_is_open",
        "_is_strict",
        "_lanes",
        "_next_place",
        "_order",
        "_queues",
        "_under_way",
    )

    def __init__(self, lanes: Sequence[Hashable | None], order: Sequence[int] | None = None, *, strict: bool = True) -> None:
        self._lanes = lanes
        self._order = range(len(lanes)) if order is None else order
        self._is_strict = strict
        # Whatever comes before it in the order was taken, waits in its lane, or comes after a failure there.
        self._next_place = 0
        self._is_open = True
        self._free_numbers: deque[int] = deque()  # those that waited for another one and may be taken now
        self._queues: dict[Hashable, deque[int]] = {}  # for each busy lane, those that wait in it
        self._failed_lanes: set[Hashable] = set()
        self._under_way: set[int] = set()

    @property
    def width(self) -> int:
        """How many may be under way at a time."""
        lanes = [self._lanes[number] for number in self._order]
        return lanes.count(None) + len({*lanes} - {None})

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing left that `take` could give out or pass over."""
        return not self._free_numbers and self._next_place == len(self._order)

    def take(self) -> int | None:
        """What to process next. None: nothing, or nothing until something under way ends."""
        if not self._is_open:
            return None
        number = self._free_numbers.popleft() if self._free_numbers else None
        while number is None and self._next_place < len(self._order):
            number = self._order[self._next_place]
            self._next_place += 1
            lane = self._lanes[number]
            if lane is None:
                break
            if lane in self._failed_lanes:
                number = None
            elif lane in self._queues:
                self._queues[lane].append(number)
                number = None
            else:
                self._queues[lane] = deque()
        if number is not None:
            self._under_way.add(number)
        return number

    def end(self, number: int, *, is_done: bool) -> None:
        """If it is done its lane goes on. Otherwise it goes back, and with it all that come after it in a strict lane."""
        if number not in self._under_way:
            raise ConfigurationError(f"Record {number} is not under way: end each record that `take` gave, once.")
        self._under_way.remove(number)
        if (lane := self._lanes[number]) is None:
            return
        if not is_done and self._is_strict:
            del self._queues[lane]
            self._failed_lanes.add(lane)
        elif queue := self._queues[lane]:
            self._free_numbers.append(queue.popleft())
        else:
            del self._queues[lane]

    def take_again(self, numbers: Iterable[int]) -> None:
        """They have failed, and are to be taken again in this order, before what waits in their lanes."""
        insertions: Counter[Hashable] = Counter()  # in each lane, those that are put in here
        for number in numbers:
            lane = self._lanes[number]
            if lane is not None and lane in self._queues:
                self._queues[lane].insert(insertions[lane], number)
                insertions[lane] += 1
                continue
            if lane is not None:
                self._queues[lane] = deque()
            self._free_numbers.append(number)

    def close(self) -> None:
        """Nothing more is taken."""
        self._is_open = False


# The order of messages that come without one: who is taken first, and when a deferred message is worth another try.


_Place: TypeAlias = tuple[str, tuple[str, ...], int]  # the source, the parts and the sequence of a message


def lanes_and_order(messages: Sequence[Message | None]) -> tuple[list[Hashable | None], list[int]]:
    """For each message its lane, and all positions in the order in which to take them.

    The lane is the message's source, if it has a sequence. The messages of a source are taken by their sequence, at the
    positions that the source has in the batch, so no source is put off until the others are done.
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

    __slots__ = ("_begin_counts", "_queues", "_settled_places")

    def __init__(self) -> None:
        self._begin_counts: dict[int, int] = {}  # for each position how many places were settled when its last try began
        self._settled_places: dict[_Place, int] = {}  # for each settled place its number, from 0
        self._queues: dict[_Place, list[int]] = defaultdict(list)

    def begin(self, position: int) -> None:
        self._begin_counts[position] = len(self._settled_places)

    def settle(self, outcomes: Iterable[Answer]) -> list[int]:
        """The positions to try again, now that there are these outcomes."""
        retries: dict[int, None] = {}
        for outcome in outcomes:
            place = _place(outcome.message)
            if outcome.settled and place is not None and place not in self._settled_places:
                self._settled_places[place] = len(self._settled_places)
                retries.update(dict.fromkeys(self._queues.pop(place, ())))
        for positions in self._queues.values() if retries else ():
            positions[:] = [position for position in positions if position not in retries]
        return [*retries]

    def defer(self, position: int, outcomes: Sequence[Answer]) -> bool:
        """Keep in mind what the record waits for. True: that came while it was tried, and it is to be tried again now."""
        if not all(outcome.settled or isinstance(outcome, Deferred | Rejected) for outcome in outcomes):
            return False
        predecessors = [_place(outcome.message, -1) for outcome in outcomes if isinstance(outcome, Deferred)]
        places = [place for place in predecessors if place is not None]
        if any(self._settled_places.get(place, -1) >= self._begin_counts[position] for place in places):
            return True
        for place in places:
            self._queues[place].append(position)
        return False


def _place(message: Message, distance: int = 0) -> _Place | None:
    if type(message.sequence) is not int:
        return None
    return message.source, message.parts, message.sequence + distance
