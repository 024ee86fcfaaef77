"""The answers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from onewrite import (
    Applied,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    Gone,
    Message,
    Missing,
    Rejected,
    Stale,
    TakenOver,
    Uncertain,
)

MESSAGE = Message("m1")
ANSWERS: list[Any] = [
    *[kind(MESSAGE) for kind in (Applied, Duplicate, Rejected, Missing, Gone, TakenOver)],
    *[Stale(MESSAGE, 3), Deferred(MESSAGE, 2), Busy(MESSAGE, 7.0), Uncertain(MESSAGE, 7.0, "f")],
]
UNSETTLED = (Deferred, Missing, Rejected, Busy, Uncertain, TakenOver)


def test_begun_effect_is_unsettled_and_shows_its_time() -> None:
    times = iter([100.0, 112.5])
    effect = Begun(MESSAGE, "key", "f", since=90.0, until=110.0, clock=lambda: next(times))
    assert (effect.settled, effect.time_left(), effect.time_left()) == (False, 10.0, 0.0)
    with pytest.raises(TypeError, match="Begun has no truth value"):
        bool(effect)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_outcome_has_no_truth_value(answer: Any) -> None:
    with pytest.raises(TypeError, match=f"{type(answer).__name__} has no truth value.*settled"):
        bool(answer)


@pytest.mark.parametrize("answer", ANSWERS)
def test_only_the_listed_outcomes_require_a_redelivery(answer: Any) -> None:
    assert answer.settled is not isinstance(answer, UNSETTLED)


@pytest.mark.parametrize("answer", ANSWERS)
def test_outcome_is_frozen_and_slotted(answer: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.message = Message("m2")
    assert not hasattr(answer, "__dict__")
