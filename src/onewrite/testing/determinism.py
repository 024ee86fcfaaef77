"""Replaces the time and randomness of guarded stores while a handler is explored. Schedules are then repeatable.

A guarded table writes a token that is derived from a random name, a store without its own clock reads the system's, which decides
which of a ledger's sets is current, and a relay draws the pause after a failed event at random. Two runs of a schedule would then
send different requests. The functions for time and randomness are therefore replaced. They remain replaced, but outside calls of
an explored handler they behave as before.
"""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any

import onewrite.core.clock

# --- while an explored handler runs -----------------------------------------------------------------------------------

_now: ContextVar[Callable[[], float] | None] = ContextVar("onewrite.testing.now", default=None)
_name_of_attempt: ContextVar[Callable[[], str] | None] = ContextVar("onewrite.testing.name_of_attempt", default=None)
_draws: list[Random] = []  # the generators of the open `seeded` blocks, the innermost last


def determine(call_name: str, now: Callable[[], float], on_attempt: Callable[[], None]) -> None:
    """From here on, use `now` as this context's clock, and name attempts by the call's name and a number.

    `on_attempt` is called for each new name.
    """
    numbers = itertools.count(1)

    def next_name() -> str:
        on_attempt()
        return f"{call_name}, attempt {next(numbers)}"

    _now.set(now)
    _name_of_attempt.set(next_name)
    _replace_sources()


def _replace_sources() -> None:
    module: Any = onewrite.core.clock
    module.time = _fixed_or_real_time
    module.token_hex = _counted_or_random
    module.random = _fixed_or_random


def _fixed_or_real_time() -> float:
    now = _now.get()
    return time.time() if now is None else now()


def _fixed_or_random() -> float:
    if _now.get() is not None:
        return 0.5
    return _draws[-1].random() if _draws else random.random()  # like `onewrite.core.clock`


def _counted_or_random(size: int) -> str:
    name_of_attempt = _name_of_attempt.get()
    if name_of_attempt is not None:
        return name_of_attempt()
    return _draws[-1].randbytes(size).hex() if _draws else secrets.token_hex(size)


# --- drawn from a seed ------------------------------------------------------------------------------------------------
#
# Replaces the randomness of stores and relays by a seed. A simulation can then be repeated.


@contextmanager
def seeded(seed: int) -> Generator[None, None, None]:
    """Derive the names of attempts and the pauses of relays from this seed until the block ends.

    With the same clock and the same calls, stores then write the same bytes. The seed applies to the whole process, so write in one
    thread only.
    """
    _replace_sources()
    _draws.append(Random(seed))
    try:
        yield
    finally:
        _draws.pop()
