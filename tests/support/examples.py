"""How many examples a property is tried on: all of them in `make chaos`, half in CI, an eighth where somebody waits for the tests."""

from __future__ import annotations

import os

from tests.support.ci import in_ci

_SHARE = 1 if os.environ.get("ONEWRITE_MODEL") == "large" else 2 if in_ci() else 8


def examples(count: int) -> int:
    return max(count // _SHARE, 10)
