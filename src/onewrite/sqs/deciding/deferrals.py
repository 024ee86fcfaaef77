"""Messages that came too early, or while another worker had their step. They stay at hand, and are tried again as soon as that may help.

- When a message of a source is settled, the source has made progress: then the deferred message of that source with the lowest
  sequence is tried at once. If it is settled too, that is progress again, and the next one is tried: a gap of a thousand
  messages closes without another delivery. Messages without a sequence have no order, and are all tried.
- Another worker may have brought the missing message, so each is also tried again after a growing pause.
- A source that makes no progress for `PATIENCE` seconds waits for a message that may never come. Its messages go back to
  the queue, which counts their receives and moves them to its dead-letter queue in the end.
- What waits for another worker's step waits for no message: it is tried again at the end of the step's lease.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from math import inf
from typing import NamedTuple, TypeAlias

from onewrite.sqs.deciding.lines import Held

PATIENCE = 300.0  # seconds: the missing message may fail a few times, and wait for its visibility timeout after each failure
_MOST_SOURCES = 10_000  # of which the last progress is remembered
_UNORDERED = ""
_NEVER = (0, -inf)

Sequence: TypeAlias = int | str | None


class _Place(NamedTuple):
    """Where a message stands among those of its source. What has no sequence stands before what has one."""

    kind: str  # of the sequence: numbers and texts cannot be compared
    sequence: int | str
    number: int  # of the deferral, so that no two places are equal

    @property
    def is_ordered(self) -> bool:
        return self.kind != _UNORDERED


class _Entry(NamedTuple):
    source: str | None  # None: it waits for no progress
    place: _Place
    due: float


class Deferrals:
    """`backoff(tries)` is how many seconds a message waits for its next try, if no progress comes first."""

    def __init__(self, backoff: Callable[[int], float]) -> None:
        self._backoff = backoff
        self._entries: dict[Held, _Entry] = {}
        self._sources: dict[str, list[tuple[_Place, Held]]] = {}  # each list in order
        self._due: list[tuple[float, int, Held]] = []  # a heap; it may hold what has been tried since
        self._progress: OrderedDict[str, tuple[int, float]] = OrderedDict()  # the last one's number and time
        self._numbers = count()
        self.progresses = 0  # so far, of all sources

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, held: Held, source: str, sequence: Sequence, now: float) -> bool:
        """Keep it at hand. False: its source has made progress since this try began, so that another one may end better."""
        if self._progress.get(source, _NEVER)[0] > held.progresses:
            held.tries = 0
            return False
        if not held.tries:
            held.deferred_since = now
        held.tries += 1
        number, due = next(self._numbers), now + max(0.0, self._backoff(held.tries))
        place = _Place(_UNORDERED, 0, number) if sequence is None else _Place(type(sequence).__name__, sequence, number)
        self._keep(held, _Entry(source, place, due))
        insort(self._sources.setdefault(source, []), (place, held))
        return True

    def wait(self, held: Held, until: float) -> None:
        """Keep it at hand until then, whatever its source does meanwhile."""
        self._keep(held, _Entry(None, _Place(_UNORDERED, 0, next(self._numbers)), until))

    def _keep(self, held: Held, entry: _Entry) -> None:
        self._entries[held] = entry
        heapq.heappush(self._due, (entry.due, entry.place.number, held))

    def progress(self, source: str, now: float) -> list[Held]:
        """A message of the source is settled. Returns those to try at once."""
        self.progresses += 1
        self._progress[source] = self.progresses, now
        self._progress.move_to_end(source)
        if len(self._progress) > _MOST_SOURCES:
            self._progress.popitem(last=False)
        found: list[Held] = []
        for place, held in self._sources.get(source, ()):
            found.append(held)
            if place.is_ordered:
                break
        for held in found:
            held.tries = 0
            self.remove(held)
        return found

    def due(self, now: float) -> tuple[list[Held], list[Held]]:
        """Those whose next try is due, and those whose source has made no progress for too long. They are at hand no more."""
        again: list[Held] = []
        hopeless: list[Held] = []
        while self.next_due() <= now:
            held = heapq.heappop(self._due)[-1]
            source = self._entries[held].source
            since = inf if source is None else max(held.deferred_since, self._progress.get(source, _NEVER)[1])
            (hopeless if now - since >= PATIENCE else again).append(held)
            self.remove(held)
        return again, hopeless

    def next_due(self) -> float:
        while self._due:
            due, number, held = self._due[0]
            entry = self._entries.get(held)
            if entry is not None and entry.place.number == number:
                return due
            heapq.heappop(self._due)
        return inf

    def remove(self, held: Held) -> None:
        """It is tried again, or goes back."""
        entry = self._entries.pop(held)
        if entry.source is None:
            return
        of_source = self._sources[entry.source]
        del of_source[bisect_left(of_source, entry.place, key=_place)]
        if not of_source:
            del self._sources[entry.source]

    def clear(self) -> list[Held]:
        found = [*self._entries]
        self._entries.clear()
        self._sources.clear()
        self._due.clear()
        return found


def _place(entry: tuple[_Place, Held]) -> _Place:
    return entry[0]
