"""How long a transaction waits between its attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onewrite import ConfigurationError
from onewrite.core.transaction import Backoff
from tests.support.batches import Clock

SECOND = timedelta(seconds=1)


# --- how long it waits ---------------------------------------------------------------------------------------------------


def pauses(deadline: timedelta, *, chance: float = 1.0, goes_on: bool = True) -> list[float]:
    """All the waits until the time is over."""
    clock, waits = Clock(), list[float]()
    backoff = Backoff(deadline, lambda: chance, clock)
    while (wait := backoff.pause()) is not None:
        waits.append(wait)
        clock.now += wait if goes_on else 0
        assert len(waits) < 1000
    return waits


def test_waits_double_from_milliseconds_to_half_a_second() -> None:
    waits = pauses(timedelta(seconds=10))
    assert waits[0] == 0.005
    assert waits[:7] == pytest.approx([0.005 * 2**n for n in range(7)])
    assert set(waits[7:]) == {0.5}


@pytest.mark.parametrize("goes_on", [True, False], ids=["a clock that goes on", "a clock that stands still"])
def test_waits_take_nearly_as_long_as_the_deadline(*, goes_on: bool) -> None:
    for deadline in (SECOND, timedelta(seconds=30)):
        total = sum(pauses(deadline, goes_on=goes_on))
        assert deadline.total_seconds() - 0.5 <= total <= deadline.total_seconds() + 1e-6


def test_deadline_includes_the_time_of_each_attempt() -> None:
    clock = Clock()
    backoff = Backoff(SECOND, lambda: 1.0, clock)
    clock.now += 0.99
    assert backoff.pause() == 0.005
    clock.now += 0.005
    assert backoff.pause() is None


@pytest.mark.parametrize("deadline", [30, None])
def test_deadline_must_be_a_timedelta(deadline: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"deadline={deadline!r}: expected a timedelta"):
        Backoff(deadline, lambda: 0.0, Clock())
