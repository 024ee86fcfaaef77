"""Slots that are used in turn over time, so that a write can remove old marks without reading them. Pure.

How a ring forgets without reading, failing or growing
------------------------------------------------------
Time is cut into generations of one width W. A write stores its mark in the slot of the writer's present generation.

Promise: a mark written at true time T is found at true time T' <= T + R by every reader whose clock is off by at most S, if the writer and
the reader each read their clock at most L before their requests landed. The writer's clock showed w, T - L - S <= w <= T + S; the reader's
showed r, T' - L - S <= r <= T' + S. Since 0 <= T' - T <= R,

    r - w  <=  (T' + S) - (T - L - S)  <=   R + 2S + L
    r - w  >=  (T' - L - S) - (T + S)  >=      -2S - L        hence      r - R - 2S - L  <=  w  <=  r + 2S + L

so a reader that searches every generation that touches that window, its *live* generations, always finds the mark. The window
is R + 4S + 2L long. With W = (R + 4S + 2L) / 2 it touches three generations, never more. L is on both sides: on the left, for a writer that
landed long after it read its clock; on the right, for a reader that did, and finds marks that others wrote while it waited.

Each write also removes every slot that isn't live for it, and that never removes a mark that a reader needs. Let the mark be written at T,
the remover land at T', and a reader need the mark at T'': T <= T' <= T'' <= T + R. Then T' <= T + R, so the inequality holds for the
remover as for any reader: the mark's generation is live for the remover, however late it lands. A removed mark is at most R + 2S + L + W old.

Three generations need three different slots. Generation g lives in slot floor(stride * g) mod n, the stride being between
one and two: it is one or two slots after that of g - 1, so any three in a row differ. Why not g mod n? A request can't empty and
write one slot, so an entity with bursts in step with the ring would always write to the same slot,
and that slot would grow by a burst each time. Uneven steps prevent that rhythm: simulated over thirty years
with six slots and a retention of 14 days, an entity with a burst every P days, P from 16 to 400, keeps three or four bursts as
a rule, 10 or 11 at most, and 19 of 47 at P = 230, the worst. Readers still find the old marks in such a slot. That is correct: the marks are only kept longer
than promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple

_MAX_LIVE_SLOTS = 3  # the number of generations that a reader's window can touch
SLOTS: Final = tuple([f"r{n}" for n in range(6)])
_STRIDE = 6_334_871_319  # 1.475 in 32-bit fixed point: of 60 random values, it kept the fewest old marks in the worst rhythm
_MICROSECOND = timedelta(microseconds=1)
# How long before its landing a write can have read its clock. A client that waits for a connection, and then sends the request again after each
# timeout, takes minutes: botocore's three attempts of 60 seconds and more. Even a paused process seldom continues after an hour.
MAX_LATENESS = timedelta(hours=1)


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """The slots at one moment: the slot to write, the slots to search (including the first), and the slots to remove."""

    present: str
    live: tuple[str, ...]
    dead: tuple[str, ...]


class Window(NamedTuple):
    """The distances that a reader searches back and ahead, and the width of a generation, in microseconds."""

    behind: int
    ahead: int
    width: int


def make_window(retention: timedelta, skew: timedelta, lateness: timedelta = MAX_LATENESS) -> Window:
    """Return the window of a ring that finds a mark for `retention`, if clocks are off by up to `skew`, and read up to `lateness` too early."""
    # One microsecond at both ends allows for the rounding of float clocks.
    ahead = (2 * skew + lateness) // _MICROSECOND + 1
    behind = (retention + 2 * skew + lateness) // _MICROSECOND + 1
    return Window(behind, ahead, -(-(behind + ahead) // (_MAX_LIVE_SLOTS - 1)))


def find_ring(window: Window, moment: int) -> Ring:
    """Return the ring at a moment in microseconds."""
    behind, ahead, width = window
    return _make_ring((moment - behind) // width, moment // width, (moment + ahead) // width)


@lru_cache(maxsize=256)  # the ring changes a few times in a retention, but is needed by every write
def _make_ring(oldest: int, present: int, newest: int) -> Ring:
    live = tuple(map(_find_slot, range(oldest, newest + 1)))
    return Ring(_find_slot(present), live, tuple([slot for slot in SLOTS if slot not in live]))


def find_next_change(window: Window, moment: int) -> int:
    """Return the next moment, in microseconds, at which the ring changes."""
    edges = (-window.behind, 0, window.ahead)
    return min([((moment + edge) // window.width + 1) * window.width - edge for edge in edges])


def _find_slot(generation: int) -> str:
    """Return the slot of a generation."""
    return SLOTS[(generation * _STRIDE >> 32) % len(SLOTS)]


class Span(NamedTuple):
    """The start and end of the generation that last had a slot, in epoch seconds, and whether readers search the slot."""

    since: float
    until: float
    live: bool


def find_span(window: Window, now: float, slot: str) -> Span:
    """Return the generation that has this slot at `now`, or had it last. The slot can also have marks of earlier generations."""
    moment = int(now * 1_000_000)
    generation, oldest = (moment + window.ahead) // window.width, (moment - window.behind) // window.width
    while _find_slot(generation) != slot:
        generation -= 1
    return Span(generation * window.width / 1e6, (generation + 1) * window.width / 1e6, generation >= oldest)


class SetCache:
    """A cache of the last sets that were derived from a ring: their start and end in microseconds, and the sets. It saves time per message."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: tuple[float, float, Any] = (inf, inf, None)
