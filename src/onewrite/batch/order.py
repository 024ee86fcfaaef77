"""The order of a batch, which decides which messages form one call, and which record a worker can take next. No clocks,
threads, or brokers.

Each record is in a lane or in none. A lane is an order that the source keeps: a message group, a stream, or a partition. If
the source keeps no order, messages with a sequence form lanes by their own source.

- Each lane has one record in progress at a time, and its records are taken in order.
- After a failure in a lane whose order the source keeps, the rest of the lane isn't taken, because the source redelivers it
  after the failed record. Any other lane continues. If the source keeps no order, `HeldSources` holds the later messages.
- A closed batch gives out no more records. Records in progress can still end.

So each record is either settled or returned. A worker takes records until none is available, and then leaves, even if other
workers are busy: the worker that ends a record takes the next one of the same lane. So no lane waits for a worker that has
left.

With `group_by` a worker takes a unit, whose messages form one call:

- If the source keeps an order, a unit is a run of consecutive messages of one group in a lane. So no message overtakes
  another, not even one of a different group.
- Otherwise a unit has all messages of one group, in the batch's order. Messages of one record, and messages of one source
  with sequences, form a line in which none overtakes another. Lines that share a group share a lane, so no group is in two
  calls at once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, pairwise, repeat
from typing import Any, TypeAlias, cast

from onewrite.batch.function import End, Note
from onewrite.batch.report import Result, is_settled
from onewrite.errors import OnewriteError
from onewrite.identity import Skip, record_id
from onewrite.message import Message
from onewrite.outcome import BeginOutcome, Deferred

# `update_batch` needs three DynamoDB writes for this many messages, each of up to 40 IDs. A larger call would check the deadline too
# rarely, and after an error each of its messages is called alone.
MAX_CALL_SIZE = 100

_ANY = object()  # the group of a skipped record, which fits into a run of any group


class HeldBack(OnewriteError):
    """Recorded for a message that waits for an earlier one of its source."""


_HELD = (
    "An earlier message of its source failed, and would be lost if the ledger's mark moved past it. No action is needed: both messages are "
    "delivered again"
)


@dataclass(slots=True, eq=False)
class RecordState:
    """One record, with the identity's result and its progress.

    `keys` are the groups of its messages. If the identity failed or skipped the record, it has no messages, and `refusal` is
    the reason.
    """

    record: Any
    position: int
    messages: tuple[Message, ...]
    refusal: Skip | Exception | None
    keys: tuple[Hashable, ...]
    clock: Callable[[], float]
    seconds: float = 0.0  # of reading the record and of the calls with its messages
    outcomes: tuple[BeginOutcome, ...] = ()
    unreturned: tuple[Note, ...] = ()  # the ends of guarded calls that the function didn't return
    error: BaseException | None = None
    progress: int = 0  # number of messages that have ended
    has_failed: bool = False
    is_held: bool = False  # its next message must wait for a failed message of the same source

    def turns(self) -> list[Turn]:
        """Return a turn for each message, or one for a record without messages."""
        if self.refusal is None:
            return [*zip(repeat(self), count(), self.keys)]
        # A skipped record fits into any group, and one that can't be read is a group of its own.
        return [(self, 0, _ANY if isinstance(self.refusal, Skip) else object())]

    def end(self, end: End, seconds: float) -> None:
        """Record the end of the next message. After a failure, later ends don't count."""
        if self.has_failed:
            return
        self.progress += 1
        self.seconds += seconds
        self.outcomes += end.outcomes
        self.unreturned += end.notes
        self.error = end.error
        self.has_failed = end.error is not None or not all(map(is_settled, end.outcomes))

    def make_held_result(self) -> Result:
        """Return the result of a held record, whose next message wasn't processed."""
        return replace(self.result(), message=self.messages[self.progress], error=HeldBack(_HELD))

    def result(self) -> Result:
        """Return the result. Without messages, the identity's error is the record's error."""
        refusal = self.refusal
        return Result(
            record=self.record,
            record_id=record_id(self.record),
            message=self.messages[self.progress - 1] if self.progress else None,
            outcomes=self.outcomes,
            error=refusal if isinstance(refusal, Exception) else self.error,
            seconds=self.seconds,
            skipped=isinstance(refusal, Skip),
            unreturned=self.unreturned,
            clock=self.clock,
        )


Turn: TypeAlias = tuple[RecordState, int, Hashable]
"""A record, the index of a message in it, and its group. A record without messages has one turn."""


class HeldSources:
    """The failed messages of a batch that have a sequence. Later messages of their sources must wait.

    Otherwise, a later message could move the mark of `HighWaterMark`, and the failed one would be `Stale`, and lost. A message that is only
    `Deferred` holds nothing, because its ledger also defers the later ones, and the earlier one can be in a later record.
    """

    __slots__ = ("_sequences",)

    def __init__(self) -> None:
        self._sequences: dict[str, int | str] = {}  # the first failed sequence of each source

    def hold(self, state: RecordState) -> None:
        """Hold the sources of a record that has failed, from its failed message on."""
        is_deferred = state.error is None and all(each.settled or isinstance(each, Deferred) for each in state.outcomes)
        self._add(state.messages[state.progress - (not is_deferred) :])

    def _add(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.sequence is not None:
                held = self._sequences.setdefault(message.source, message.sequence)
                if not _is_later(message.sequence, held):
                    self._sequences[message.source] = message.sequence

    def check(self, turn: Turn) -> bool:
        """Return whether the turn's message must wait. If so, its record is held, with the sources of the record's other messages."""
        state, at, _ = turn
        if self._sequences and not state.is_held and state.messages:
            message = state.messages[at]
            held = None if message.sequence is None else self._sequences.get(message.source)
            if held is not None and _is_later(cast("int | str", message.sequence), held):
                state.is_held = True
                self._add(state.messages[at:])
        return state.is_held


def _is_later(sequence: int | str, other: int | str) -> bool:
    """Whether a sequence is above the other, or can't be compared with it."""
    if isinstance(sequence, str):
        return not isinstance(other, str) or sequence > other
    return isinstance(other, str) or sequence > other


@dataclass(frozen=True, slots=True)
class Unit:
    """The turns that a worker takes at once. They are a call with these messages, or the end of a record without messages.

    A lane has one unit in progress.
    """

    lane: Hashable
    turns: Sequence[Turn]


def make_run_units(records: Iterable[RecordState], lanes: Sequence[Hashable]) -> list[Unit]:
    """Return the units of a source that keeps an order, sorted by their first record. `lanes`: the records' lanes, by position."""
    turns_by_lane: dict[Hashable, list[Turn]] = defaultdict(list)
    for state in records:
        turns_by_lane[lanes[state.position]] += state.turns()
    units = [Unit(lane, turns) for lane, line in turns_by_lane.items() for _, turns in split_runs(line)]
    return sorted(units, key=lambda unit: (unit.turns[0][0].position, unit.turns[0][1]))


def make_group_units(records: Sequence[RecordState]) -> list[Unit]:
    """Return the units of a source that keeps no order. Units of the same lane must be processed in list order."""
    lanes, order = find_order(records)
    ranks = {records[index].position: rank for rank, index in enumerate(order)}
    # A line has the messages of one source, and of those that share a record with it, or of one record without a sequence.
    turns_by_line: dict[Hashable, list[Turn]] = defaultdict(list)
    for index in order:
        lane = lanes[index]
        turns_by_line[records[index] if lane is None else lane] += records[index].turns()
    lines = [*turns_by_line.values()]
    line_lanes = _join([[key for _, _, key in turns] for turns in lines])
    # The next turns of each line, by their group.
    next_runs: dict[Hashable, list[tuple[int, list[Turn]]]] = {}
    line_runs = [split_runs(line) for line in lines]
    units: list[Unit] = []

    def advance(line: int) -> None:
        """Note the line's next run under its group."""
        run = next(line_runs[line], None)
        if run is not None:
            key, turns = run
            next_runs.setdefault(key, []).append((line, turns))

    for line in range(len(lines)):
        advance(line)
    while next_runs:
        group_runs = next_runs.pop(next(iter(next_runs)))  # those of the group that has been next for longest
        turns = sorted(
            (turn for _, turns in group_runs for turn in turns), key=lambda turn: (ranks[turn[0].position], turn[1])
        )
        lane = line_lanes[group_runs[0][0]]  # the same for all, because they share the group
        units += [Unit(lane, turns[start : start + MAX_CALL_SIZE]) for start in range(0, len(turns), MAX_CALL_SIZE)]
        for line, _ in group_runs:
            advance(line)
    return units


def split_runs(line: Iterable[Turn]) -> Iterator[tuple[Hashable, list[Turn]]]:
    """Yield each run of consecutive turns of one group with the group. A run is at most one call long."""
    key: Hashable = _ANY
    turns: list[Turn] = []
    for turn in line:
        turn_key = turn[2]
        is_same_group = key is _ANY or turn_key is _ANY or turn_key == key
        if turns and (len(turns) == MAX_CALL_SIZE or not is_same_group):
            yield key, turns
            key, turns = _ANY, []
        key = key if turn_key is _ANY else turn_key
        turns.append(turn)
    yield key, turns


def _join(keys_by_member: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return a number for each member. Members that share a key have the same one."""
    parent = [*range(len(keys_by_member))]

    def find_root(member: int) -> int:
        while parent[member] != member:
            parent[member] = parent[parent[member]]  # shortens the path for the next search
            member = parent[member]
        return member

    first_member: dict[Hashable, int] = {}
    for member, keys in enumerate(keys_by_member):
        for key in keys:
            parent[find_root(member)] = find_root(first_member.setdefault(key, member))
    return [find_root(member) for member in range(len(keys_by_member))]


class Lanes:
    """The numbers that workers can take. `lanes` has the lane of each number, or None.

    `order` lists the numbers in the order in which to take them. `strict`: a failure stops its lane.
    """

    __slots__ = ("_failed_lanes", "_free_numbers", "_is_open", "_is_strict", "_lanes", "_next_index", "_order", "_queues")

    def __init__(self, lanes: Sequence[Hashable | None], order: Sequence[int] | None = None, *, strict: bool = True) -> None:
        self._lanes = lanes
        self._order = range(len(lanes)) if order is None else order
        self._is_strict = strict
        # Every number before this index of the order was taken, waits in its lane, or follows a failure there.
        self._next_index = 0
        self._is_open = True
        self._free_numbers: deque[int] = deque()  # numbers whose lane has become free
        self._queues: dict[Hashable, deque[int]] = {}  # for each busy lane, its waiting numbers
        self._failed_lanes: set[Hashable] = set()

    @property
    def width(self) -> int:
        """The maximum number of records in progress at once."""
        return self._lanes.count(None) + len({*self._lanes} - {None})

    def take(self) -> int | None:
        """Return the next number to process, or None if there is none until another one ends."""
        if not self._is_open:
            return None
        number = self._free_numbers.popleft() if self._free_numbers else None
        while number is None and self._next_index < len(self._order):
            number = self._order[self._next_index]
            self._next_index += 1
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
        return number

    def end(self, number: int, *, is_done: bool) -> None:
        """End a number. If it is done, its lane continues.

        Otherwise it is returned, and in a strict lane all later numbers with it.
        """
        lane = self._lanes[number]
        if lane is None:
            return
        if not is_done and self._is_strict:
            del self._queues[lane]
            self._failed_lanes.add(lane)
        elif queue := self._queues[lane]:
            self._free_numbers.append(queue.popleft())
        else:
            del self._queues[lane]

    def close(self) -> None:
        """Give out no more numbers."""
        self._is_open = False


def find_order(records: Sequence[RecordState | None]) -> tuple[list[Hashable | None], list[int]]:
    """Return each record's lane, and all positions in processing order. None represents a record that wasn't read.

    Records share a lane if they have messages with a sequence of the same source. Within a lane, no record comes before one that has an
    earlier message of the same source, unless it has a later one too. A lane keeps the positions that it has in the batch, so no source
    waits for all others.
    """
    places: dict[str, list[tuple[str, int | str, int]]] = defaultdict(list)  # of each source's messages
    sources: list[set[str]] = [set()] * len(records)
    for index, state in enumerate(records):
        for message in () if state is None else state.messages:
            if message.sequence is not None:
                # Sort by type first, because numbers and strings can't be compared. The ledger refuses a source that has both.
                places[message.source].append((type(message.sequence).__name__, message.sequence, index))
                sources[index] = sources[index] | {message.source}
    if not places:
        return [None] * len(records), [*range(len(records))]
    lanes = [lane if own_sources else None for lane, own_sources in zip(_join(sources), sources, strict=True)]
    positions: dict[int, Iterator[int]] = {}
    for lane in {*lanes} - {None}:
        positions[cast("int", lane)] = iter([position for position, other in enumerate(lanes) if other == lane])
    order = [*range(len(records))]
    for index in _sort_by_predecessors(places.values(), len(records)):
        lane = lanes[index]
        if lane is not None:
            order[next(positions[lane])] = index
    return [*lanes], order


def _sort_by_predecessors(sources: Iterable[list[tuple[str, int | str, int]]], count: int) -> Iterator[int]:
    """Yield each number below `count` after its predecessors in all sources, and otherwise in ascending order."""
    successors: dict[int, list[int]] = defaultdict(list)
    counts = [0] * count  # of the predecessors
    for keys in sources:
        for (_, _, earlier), (_, _, later) in pairwise(sorted(keys)):
            if earlier != later:
                successors[earlier].append(later)
                counts[later] += 1
    ready, waiting = [number for number in range(count) if not counts[number]], dict.fromkeys(range(count))
    while waiting:
        number = heappop(ready) if ready else next(iter(waiting))  # two records that have to precede each other
        if number in waiting:
            del waiting[number]
            yield number
            for successor in successors[number]:
                counts[successor] -= 1
                if not counts[successor]:
                    heappush(ready, successor)
