from __future__ import annotations

import threading
import time

import pytest

_PATIENCE = 10.0


@pytest.fixture(scope="module", autouse=True)
def _no_worker_is_left() -> None:
    """Hypothesis refuses an example if something else draws from `random` meanwhile, as a worker of another test may before it ends.

    What hangs for good draws nothing, so there is an end to the wait.
    """
    limit = time.monotonic() + _PATIENCE
    for thread in threading.enumerate():
        if thread.name.startswith("onewrite-") and not thread.name.startswith("onewrite-servers"):
            thread.join(max(0.0, limit - time.monotonic()))
