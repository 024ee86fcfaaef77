"""What guarded stores take from outside is determined while a call of the handler runs, so schedules can be run again.

A guarded table gives each attempt a random name and writes a token that is made from it, and a store without a clock of its own
asks the clock on the wall, by which the ledger's sets change their places every few minutes. A relay draws at random how long an
event waits that could not be published. With these, two runs of a schedule would not send the same requests. So the functions that
draw and tell the time are replaced here. They stay replaced, which changes nothing elsewhere: outside calls of an explored handler
they do what they did before.
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
_draws: list[Random] = []  # of the blocks of `seeded` that are open, the innermost last


def determine(call_name: str, now: Callable[[], float], on_attempt: Callable[[], None]) -> None:
    """Let `now` tell the time in this context from here on, and name attempts by the call's name and by numbers.

    `on_attempt` is called when an attempt gets its name.
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
    return _draws[-1].random() if _draws else random.random()  # as in `onewrite.core.clock`


def _counted_or_random(size: int) -> str:
    name_of_attempt = _name_of_attempt.get()
    if name_of_attempt is not None:
        return name_of_attempt()
    return _draws[-1].randbytes(size).hex() if _draws else secrets.token_hex(size)


# --- drawn from a seed ------------------------------------------------------------------------------------------------
#
# Draws from a seed what stores and relays otherwise draw at random, so a simulation can be repeated.


@contextmanager
def seeded(seed: int) -> Generator[None, None, None]:
    """Draw the names of attempts and the waits of relays from this seed until the block ends.

    With the same clock and the same calls, the same bytes are stored. This holds for the whole process, so use it if one thread writes.
    """
    _replace_sources()
    _draws.append(Random(seed))
    try:
        yield
    finally:
        _draws.pop()
