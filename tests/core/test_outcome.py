"""The answers."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest

from onewrite import (
    Answer,
    Applied,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    Gone,
    Message,
    Missing,
    Outcome,
    Rejected,
    Stale,
    Superseded,
    Uncertain,
)

MESSAGE = Message("m1")
ANSWERS: list[Any] = [
    Applied(MESSAGE),
    Duplicate(MESSAGE),
    Stale(MESSAGE, 3),
    Deferred(MESSAGE, 2),
    Rejected(MESSAGE),
    Missing(MESSAGE),
    Gone(MESSAGE),
    Busy(MESSAGE, 7.0),
    Uncertain(MESSAGE, 7.0, "f"),
    Superseded(MESSAGE),
]
UNSETTLED = (Deferred, Missing, Busy, Uncertain, Superseded)


def test_an_outcome_is_one_of_ten_and_a_step_may_have_begun() -> None:
    assert get_args(Outcome) == (Applied, Duplicate, Stale, Deferred, Rejected, Missing, Gone, Busy, Uncertain, Superseded)
    assert get_args(Answer) == (*get_args(Outcome), Begun)


def test_a_step_that_has_begun_is_not_settled_and_says_how_long_it_may_last() -> None:
    times = iter([100.0, 112.5])
    step = Begun(MESSAGE, "key", "f", since=90.0, until=110.0, clock=lambda: next(times))
    assert (step.settled, step.left(), step.left()) == (False, 10.0, 0.0)
    with pytest.raises(TypeError, match="Begun has no truth value"):
        bool(step)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_outcome_has_no_truth_value(answer: Any) -> None:
    with pytest.raises(TypeError, match=f"{type(answer).__name__} has no truth value.*settled"):
        bool(answer)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_message_must_come_again_after_these_answers_only(answer: Any) -> None:
    assert answer.settled is not isinstance(answer, UNSETTLED)


def test_a_refusal_that_nobody_remembers_must_come_again() -> None:
    assert Rejected(MESSAGE, settled=False).settled is False
    assert Rejected(MESSAGE, settled=False) != Rejected(MESSAGE)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_outcome_is_frozen_and_has_no_room_for_other_fields(answer: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.message = Message("m2")
    assert not hasattr(answer, "__dict__")


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_outcome_carries_its_message_and_no_entity_unless_given(answer: Any) -> None:
    assert answer.message is MESSAGE
    assert answer.entity is None
    if not isinstance(answer, Missing):
        assert dataclasses.replace(answer, entity={"n": 1}).entity == {"n": 1}


def test_an_applied_message_was_not_retried_unless_said_so() -> None:
    assert Applied(MESSAGE).retried is False
    assert Applied(MESSAGE, retried=True) != Applied(MESSAGE)


def test_the_drivers_own_answer_neither_compares_nor_shows() -> None:
    applied = Applied(MESSAGE, response={"ConsumedCapacity": 1})
    assert applied.response == {"ConsumedCapacity": 1}
    assert applied == Applied(MESSAGE)
    assert repr(applied) == repr(Applied(MESSAGE))


def test_answers_compare_by_kind_and_content() -> None:
    assert Duplicate(MESSAGE, {"n": 1}) == Duplicate(Message("m1"), {"n": 1})
    assert ANSWERS[1] != ANSWERS[4]
    assert Stale(MESSAGE, 3) != Stale(MESSAGE, 4)
    assert Deferred(MESSAGE, 3) != Deferred(MESSAGE, 4)
