"""Whether this is a run in CI, where every engine must be there and every property is tried in full."""

from __future__ import annotations

import os


def in_ci() -> bool:
    return bool(os.environ.get("CI"))  # as the Makefile asks
