"""Draws from a seed what stores and relays otherwise draw at random, so that a simulation can be repeated."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from random import Random
from typing import Any

import onewrite.clock


@contextmanager
def seeded(seed: int) -> Generator[None, None, None]:
    """Within the block, the names of calls and the waits of relays are drawn from this seed: with the same clock and the same calls,
    the same is stored. It holds for the whole process, so use it where one thread writes.
    """
    draw = Random(seed)

    def token_hex(size: int) -> str:
        return draw.randbytes(size).hex()

    module: Any = onewrite.clock
    before = module.token_hex, module.random
    module.token_hex, module.random = token_hex, draw.random
    try:
        yield
    finally:
        module.token_hex, module.random = before
