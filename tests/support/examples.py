"""How many examples a property is tried on: all of them in CI, and a quarter where somebody waits for the tests to end."""

from __future__ import annotations

from tests.support.ci import in_ci

_SHARE = 1 if in_ci() else 4


def examples(count: int) -> int:
    return max(count // _SHARE, 10)
