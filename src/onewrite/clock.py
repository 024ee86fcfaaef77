"""The clock of every store that is given none."""

from __future__ import annotations

from time import time


def wall_clock() -> float:
    """The time in seconds since 1970."""
    return time()
