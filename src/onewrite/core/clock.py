"""The clock of every store, relay, and handler, the names of their calls, and a relay's random numbers."""

from __future__ import annotations

import time as times
from collections.abc import Callable
from random import random
from secrets import token_hex
from time import time
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError

Clock: TypeAlias = Callable[[], float]

# 2001 and 2286. A clock that counts from the start of a process or machine shows less, and one that counts milliseconds shows more.
_EARLIEST, _LATEST = 1e9, 1e10


def wall_clock() -> float:
    """Return the time in seconds since 1970."""
    return time()


def checked_clock(clock: object) -> Clock:
    """Return the caller's clock with a check. It raises before anything is sent if the time isn't plausible."""
    if clock is wall_clock or clock is times.time:
        return cast("Clock", clock)
    if not callable(clock):
        raise ConfigurationError(f"clock={clock!r}: expected a function that returns seconds since 1970, such as time.time.")
    function = cast("Callable[[], Any]", clock)

    def checked_time() -> float:
        now = function()
        # A Decimal or a Fraction can be compared with floats, but not added to them.
        if isinstance(now, int | float) and _EARLIEST <= now <= _LATEST:
            return now
        raise ConfigurationError(
            f"The clock returned {now!r}: expected seconds since 1970 as an int or a float. With milliseconds or time.monotonic, a ledger "
            "would forget messages too early. Pass a function such as time.time."
        )

    return checked_time


def random_name() -> str:
    """Return a unique name for one call."""
    return token_hex(8)


def random_share() -> float:
    """Return a random number from 0 to 1, which spreads the work of several relays over time."""
    return random()
