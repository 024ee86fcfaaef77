"""The limits of a worker, for tests of what it decides."""

from __future__ import annotations

from onewrite.sqs.state import Limits


def limits(*, slots: int, has_groups: bool = False) -> Limits:
    return Limits(
        slots,
        timeout=300.0,
        grace=5.0,
        wait=20,
        stop_when_empty=False,
        has_groups=has_groups,
        backoff=lambda tries: 2.0**tries,
    )
