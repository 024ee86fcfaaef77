"""The clock of every store that is given none, and the names of its calls."""

from __future__ import annotations

from secrets import token_hex
from time import time


def wall_clock() -> float:
    """The time in seconds since 1970."""
    return time()


def random_name() -> str:
    """A name for one call, which no other call has."""
    return token_hex(8)
