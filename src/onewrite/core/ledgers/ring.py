"""Slots that time uses in turn, so what is old can be forgotten without reading it first. Pure.

How a ring forgets without reading, failing or growing
------------------------------------------------------
Time is cut into generations of one width W. What is written goes into the slot of the writer's present generation.

Promise: what is written at true time T is found at true time T' <= T + R by every reader whose clock is off by at most S.
The writer's clock showed w, |w - T| <= S; the reader's shows r, |r - T'| <= S. Hence

    r - R - 2S  <=  w  <=  r + 2S

so a reader that looks at every generation which touches that window, its *live* generations, always finds it. The window
is R + 4S long. With W = (R + 4S) / 2 it touches three generations, never more.

A generation that is not live for some reader holds nothing that anybody still needs (else, by the same line, it would be
live), so each write also removes every slot that is not live. What is forgotten last is R + 2S + W old.

Three generations need three different slots. Generation g lives in slot floor(stride * g) mod n, the stride being between
one and two: it is one or two slots after the one before, so any three in a row differ. Why not g mod n? One slot cannot be
emptied and written in one request, so an entity that slept and woke in step with the ring would always wake to the same slot,
and that slot would grow by a burst each time. Steps of uneven length keep no rhythm for long: simulated over thirty years
with six slots and a retention of 14 days, an entity with a burst every P days, P from 16 to 400, keeps three or four bursts as
a rule, 15 at most, and 24 of 37 at P = 296, the worst. What such a slot still holds from long ago is found as well, and that
is right: it is what the promise asks for, kept longer than promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple

_LIVE = 3  # generations that the window of a reader can touch
SLOTS: Final = tuple([f"r{n}" for n in range(6)])
_STRIDE = 6_524_557_312  # 1.519 in 32-bit fixed point; picked from 60 at random for keeping the fewest leftovers
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """The slots as one moment sees them: the one to write, those to look at (it is among them), and those to remove."""

    present: str
    live: tuple[str, ...]
    dead: tuple[str, ...]


class Window(NamedTuple):
    """How far a reader looks behind and ahead, and the width of a generation, in microseconds."""

    behind: int
    ahead: int
    width: int


def window(retention: timedelta, skew: timedelta) -> Window:
    """Return the window of a ring. `retention`: how long a mark must be found. `skew`: how far a clock may be off."""
    # A microsecond of slack at both ends, for the rounding of float clocks.
    behind, ahead = (retention + 2 * skew) // _MICROSECOND + 1, 2 * skew // _MICROSECOND + 1
    return Window(behind, ahead, -(-(behind + ahead) // (_LIVE - 1)))


def find_ring(reach: Window, moment: int) -> Ring:
    """Return the ring at a moment in microseconds."""
    return _ring((moment - reach.behind) // reach.width, moment // reach.width, (moment + reach.ahead) // reach.width)


@lru_cache(maxsize=256)  # it changes a few times in a retention, and is asked for at every write
def _ring(oldest: int, present: int, newest: int) -> Ring:
    live = tuple(map(_slot, range(oldest, newest + 1)))
    return Ring(_slot(present), live, tuple([slot for slot in SLOTS if slot not in live]))


def next_change(reach: Window, moment: int) -> int:
    """Return the first moment after this one, in microseconds, at which the ring is another."""
    edges = (-reach.behind, 0, reach.ahead)
    return min([((moment + edge) // reach.width + 1) * reach.width - edge for edge in edges])


def _slot(generation: int) -> str:
    """Return the slot in which a generation lives."""
    return SLOTS[(generation * _STRIDE >> 32) % len(SLOTS)]


class Span(NamedTuple):
    """When the generation began and ended that had a slot last, in epoch seconds. `live`: do readers look there?"""

    since: float
    until: float
    live: bool


def span_at(reach: Window, now: float, slot: str) -> Span:
    """Return the generation whose slot this is, or was before `now`. It may hold what an earlier one has left there."""
    moment = int(now * 1_000_000)
    generation, oldest = (moment + reach.ahead) // reach.width, (moment - reach.behind) // reach.width
    while _slot(generation) != slot:
        generation -= 1
    return Span(generation * reach.width / 1e6, (generation + 1) * reach.width / 1e6, generation >= oldest)


class Present:
    """What was last made of a ring: from which moment, in microseconds, until which, and what. It saves the making of it for every message."""

    __slots__ = ("memo",)

    def __init__(self) -> None:
        self.memo: tuple[float, float, Any] = (inf, inf, None)
