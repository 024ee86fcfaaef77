"""The clock of every store and every relay that is given none, the names of their calls, and a relay's chance."""

from __future__ import annotations

from os import urandom
from random import random
from time import time


def wall_clock() -> float:
    """The time in seconds since 1970."""
    return time()


def random_name() -> str:
    """A name for one call, which no other call has."""
    return token_hex(8)


def token_hex(size: int) -> str:
    """As that of `secrets`, in half the time."""
    return urandom(size).hex()


def random_share() -> float:
    """A random part of one."""
    return random()  # it keeps relays apart, and guards nothing
