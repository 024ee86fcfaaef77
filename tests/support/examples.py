"""How many examples a property is tried on: all of them in CI, and a quarter where somebody waits for the tests to end."""

from __future__ import annotations

import os

_SHARE = 1 if "CI" in os.environ else 4


def examples(count: int) -> int:
    return max(count // _SHARE, 10)
