"""Which messages of a batch make one call of the function, and which calls must wait for one another. Pure.

- Where the source keeps an order, a call has a run of neighbours of one group within their lane. So nothing overtakes anything,
  not even a message of another group.
- Where it keeps none, a call has all messages of one group, in the order of the batch. Some messages still form a line: those
  of one record, and those of a source by their sequence. In each line nothing is overtaken. Lines that have a group in common
  share a lane, so that no group is in two calls at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onewrite.batch.grouping.records import GroupedRecord
from onewrite.batch.lanes import ordered
from onewrite.identity import Skip

# Messages in one call: `fold` needs three writes of DynamoDB for so many, each of up to 40 ids. After a call the deadline is looked at again,
# and a call that raises an error is followed by one for each of its messages.
MOST = 100

Part: TypeAlias = tuple[int, int]
"""The position of a record in its batch, and of a message in its record. A record without messages has one part."""
_Step: TypeAlias = tuple[Part, Hashable]
"""A part and its group."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is done at once: a call with these messages, or the end of a record that has none. A lane's units take turns."""

    lane: Hashable
    parts: tuple[Part, ...]

    @property
    def positions(self) -> tuple[int, ...]:
        """Its records, each once."""
        return tuple(dict.fromkeys(position for position, _ in self.parts))


_ANY = object()  # the group of a record that was skipped: it may be among those of any group


def runs(records: Mapping[int, GroupedRecord], lanes: Sequence[Hashable]) -> list[Unit]:
    """The units of a source that keeps order, by their first records."""
    of_lane: dict[Hashable, list[_Step]] = defaultdict(list)
    for position, record in records.items():
        of_lane[lanes[position]] += _steps(position, record)
    units = [Unit(lane, tuple(parts)) for lane, steps in of_lane.items() for _, parts in _runs(steps)]
    return sorted(units, key=lambda unit: unit.parts[0])


def groups(records: Mapping[int, GroupedRecord]) -> list[Unit]:
    """The units of a source that keeps no order. Two that have the same lane are to be done in the order of the list."""
    lines, place = _lines(records)
    lane_of = _joined(lines)
    waiting: dict[Hashable, list[tuple[int, list[Part]]]] = {}  # for each group that is next in some lines: its parts there
    rest = [_runs(line) for line in lines]
    units: list[Unit] = []

    def advance(line: int) -> None:
        for key, parts in rest[line]:
            waiting.setdefault(key, []).append((line, parts))
            return

    for line in range(len(lines)):
        advance(line)
    while waiting:
        taken = waiting.pop(next(iter(waiting)))
        parts = sorted((part for _, parts in taken for part in parts), key=lambda part: (place[part[0]], part[1]))
        units += [Unit(lane_of[taken[0][0]], tuple(parts[at : at + MOST])) for at in range(0, len(parts), MOST)]
        for line, _ in taken:
            advance(line)
    return units


def _steps(position: int, record: GroupedRecord) -> list[_Step]:
    if not record.messages:
        return [((position, 0), _ANY if isinstance(record.found, Skip) else object())]
    return [((position, number), key) for number, key in enumerate(record.keys)]


def _runs(steps: Iterable[_Step]) -> Iterator[tuple[Hashable, list[Part]]]:
    """Neighbours of one group, as many as may be in one call."""
    key: Hashable = _ANY
    parts: list[Part] = []
    for part, other in steps:
        if parts and (len(parts) == MOST or not (key is _ANY or other is _ANY or other == key)):
            yield key, parts
            key, parts = _ANY, []
        key = key if other is _ANY else other
        parts.append(part)
    yield key, parts


def _lines(records: Mapping[int, GroupedRecord]) -> tuple[list[list[_Step]], dict[int, int]]:
    """What must be done one after the other: a record's messages, and those of a source by their sequence.

    And for each record its place in the batch, once the messages of each source are in the order of their sequence.
    """
    positions = [*records]
    only = [record.messages[0] if len(record.messages) == 1 else None for record in records.values()]
    sources, order = ordered(only)
    lines: dict[Hashable, list[_Step]] = defaultdict(list)
    for index in order:
        position, source = positions[index], sources[index]
        lines[position if source is None else (source,)] += _steps(position, records[position])
    return [*lines.values()], {positions[index]: place for place, index in enumerate(order)}


def _joined(lines: Sequence[Iterable[_Step]]) -> list[int]:
    """For each line its lane, which is one for all lines that have a group in common."""
    parent = [*range(len(lines))]

    def root(line: int) -> int:
        while parent[line] != line:
            parent[line] = parent[parent[line]]
            line = parent[line]
        return line

    first: dict[Hashable, int] = {}
    for line, steps in enumerate(lines):
        for _, key in steps:
            parent[root(line)] = root(first.setdefault(key, line))
    return [root(line) for line in range(len(lines))]
