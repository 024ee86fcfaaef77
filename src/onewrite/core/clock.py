"""The clock of every store, relay and handler, the names of their calls, and a relay's chance."""

from __future__ import annotations

import time as times
from collections.abc import Callable
from random import random
from secrets import token_hex
from time import time
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError

Clock: TypeAlias = Callable[[], float]

# 2001 and 2286. A clock that counts seconds from the start of a process or a machine shows less, one that counts milliseconds more.
_EARLIEST, _LATEST = 1e9, 1e10


def wall_clock() -> float:
    """Return the time in seconds since 1970."""
    return time()


def checked_clock(clock: object) -> Clock:
    """Return the clock that a caller gives, which raises as soon as it shows no time of the calendar: before anything is sent."""
    if clock is wall_clock or clock is times.time:
        return cast("Clock", clock)
    if not callable(clock):
        raise ConfigurationError(f"clock={clock!r}: give a function that returns seconds since 1970, as time.time does.")
    function = cast("Callable[[], Any]", clock)

    def checked_time() -> float:
        now = function()
        # A Decimal or a Fraction compares with floats, but does not add up with them.
        if isinstance(now, int | float) and _EARLIEST <= now <= _LATEST:
            return now
        raise ConfigurationError(
            f"The clock shows {now!r}: give one that returns seconds since 1970 as an int or a float, as time.time does. Milliseconds "
            "and time.monotonic are something else, and a ledger would forget too early under them."
        )

    return checked_time


def random_name() -> str:
    """Return a name for one call, which no other call has."""
    return token_hex(8)


def random_share() -> float:
    """Return a random part of one."""
    return random()  # it keeps relays apart, and guards nothing
