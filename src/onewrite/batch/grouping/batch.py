"""What the workers of a batch share whose messages are grouped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onewrite.batch.grouping.plan import Unit
from onewrite.batch.lanes import Lanes
from onewrite.batch.report import Result
from onewrite.batch.workers import Deadline, Shared


class GroupedBatch(Shared[Mapping[int, Result]]):
    """A worker takes the number of a unit, or the number of all units and the position of a record that is tried again.

    `records`: how many the batch has. `tries_again`: a deferred one is tried again, by itself, as soon as the one before it is in.
    """

    def __init__(self, units: Sequence[Unit], records: int, deadline: Deadline, *, tries_again: bool) -> None:
        lane_of = {position: unit.lane for unit in units for position in unit.positions}
        lanes = [unit.lane for unit in units] + [lane_of.get(position) for position in range(records)]
        super().__init__(Lanes(lanes, range(len(units)), strict=not tries_again), deadline, tries_again=tries_again)
        self._units = units

    def positions(self, number: int, /) -> Sequence[int]:
        return self._units[number].positions if number < len(self._units) else (number - len(self._units),)

    def end(self, number: int, ended: Mapping[int, Result], /) -> None:
        """`ended` are the results of the records of which nothing is left to do."""
        with self._lock:
            self.results.update(ended)
            for position in self._worth_another_try(ended):
                self._lanes.again(len(self._units) + position)
            if all(result.settled for result in ended.values()):
                self._lanes.settle(number)
            else:
                self._lanes.fail(number)

    def _worth_another_try(self, ended: Mapping[int, Result]) -> list[int]:
        """The last one first, because each is put before what waits in its lane."""
        if self._second_tries is None:
            return []
        again = [position for result in ended.values() for position in self._second_tries.settle(result.outcomes)]
        for position, result in ended.items():
            if not result.settled and self._second_tries.defer(position, result.outcomes):
                again.append(position)
        return again[::-1]
