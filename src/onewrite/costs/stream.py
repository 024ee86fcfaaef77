"""Messages that come to one entity at even intervals, and how many of them its sets hold at a moment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from onewrite.ledgers.ring import Window, next_change, ring_of

SECOND = 1_000_000  # all moments are in microseconds, as the rings are
DAY = 86_400 * SECOND
CENTURY = 36_525 * DAY
# Any moment will do for an entity's birth. This one is no edge of a generation of the usual rings.
BIRTH = 1_790_000_000 * SECOND + 123_456_789
# How far back to look, in widths of a generation and in messages. What a steady stream has written is removed within four widths; in an entity
# that sleeps between its messages some stand longer, by chance of the slots: see ledgers/ring.py.
_WIDTHS, _MESSAGES = 16, 100


class Stream(NamedTuple):
    """Message n comes `n * every / of` microseconds after the first, rounded down."""

    every: int
    of: int = 1
    born: int = BIRTH

    @property
    def per_day(self) -> float:
        return DAY * self.of / self.every

    def moment(self, n: int) -> int:
        return self.born + n * self.every // self.of

    def first_from(self, moment: int) -> int:
        """The number of the first message that does not come before this moment."""
        return max(0, -((self.born - moment) * self.of // self.every))

    def last_by(self, moment: int) -> int:
        """The number of the last message that has come by this moment, or -1."""
        return self.first_from(moment + 1) - 1


def stream_of(per_second: float) -> Stream:
    interval = Fraction(SECOND / per_second).limit_denominator(SECOND)
    return Stream(interval.numerator, interval.denominator)


@lru_cache(maxsize=4096)  # the tokens of attempts are the same beside each ledger
def held(stream: Stream, seen: Window, slots: int, moment: int) -> Mapping[str, int]:
    """How many members stand in each slot of a ring of so many `slots` when all messages up to this moment were written."""
    found: dict[str, int] = {}
    last = stream.last_by(moment)
    n = max(0, min(stream.first_from(moment - _WIDTHS * seen.width), last - _MESSAGES))
    while n <= last:
        ring = ring_of(seen, stream.moment(n), slots)
        end = min(last + 1, stream.first_from(next_change(seen, stream.moment(n))))
        for dead in ring.dead:
            found.pop(dead, None)
        found[ring.present] = found.get(ring.present, 0) + end - n
        n = end
    return MappingProxyType(found)


def moments(seen: Window, age: int, count: int, generations: int = 2) -> tuple[list[int], list[int]]:
    """When to look at an entity of this age: at even intervals, for averages; and around each change of its ring, for extremes.

    Two generations show all that a steady stream does. One whose messages are further apart than a generation is wide needs more.
    """
    end, back = BIRTH + age, min(age, generations * seen.width)
    even = [end - back * step // count for step in range(count)]
    changes: list[int] = []
    at = next_change(seen, end - back)
    while at <= end:
        changes.append(at)
        at = next_change(seen, at)
    return even, changes
