"""The rules of a step: who is told what while it is open, when it may be taken over, and what a begin may ask for."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from onewrite import Busy, InvalidUpdate, Message, Uncertain
from onewrite.core.step import (
    STEP_SKEW,
    Step,
    StepRequest,
    check_begin,
    judge_open_step,
    may_be_taken_over,
    new_step,
    read_step,
)

NOW = 1_790_000_000.0
M1 = Message("m1", source="s", sequence=7)
LEASE, HOUR = timedelta(minutes=1), timedelta(hours=1)
REQUEST = StepRequest("charge", LEASE, HOUR)
OPEN = new_step("ow_l", M1, REQUEST, "call", NOW)
LET_GO = OPEN._replace(is_unsent=True)


@pytest.mark.parametrize("step", [OPEN, LET_GO, OPEN._replace(first=False), OPEN._replace(ledger="ow_billing:l")])
def test_a_step_is_read_as_it_was_stored(step: Step) -> None:
    assert read_step(step.as_fields()) == step


@pytest.mark.parametrize(("sequence", "stored"), [(None, None), ("7", "7"), (7, 7), (7, Decimal(7))])
@pytest.mark.parametrize("parts", [(), ("stock",)])
def test_the_message_of_a_step_is_read_as_it_was(sequence: Any, stored: object, parts: tuple[str, ...]) -> None:
    message = Message("m1", "s", sequence=sequence, parts=parts)
    step = read_step({**OPEN._replace(message=message).as_fields(), "sequence": stored})
    assert step.message == message
    assert type(step.message.sequence) is type(sequence)


def test_reopened_step_has_the_key_and_is_not_first() -> None:
    uncertain = Uncertain(M1, OPEN.since, OPEN.fence, "its key", entity_key={"id": "e"})
    fresh = new_step("ow_l", M1, REQUEST, "another call", NOW + 60)
    assert fresh.reopen(uncertain) == fresh._replace(key="its key", first=False)


def answered(step: Step, now: float) -> Busy | Uncertain:
    return judge_open_step(step, M1, now, None, {"id": "e"})


def test_step_is_busy_during_its_lease_and_uncertain_later() -> None:
    assert answered(OPEN, OPEN.until - 0.001) == Busy(M1, OPEN.until)
    assert answered(OPEN, OPEN.until) == Uncertain(M1, OPEN.since, OPEN.fence, OPEN.key, entity_key={"id": "e"})


def test_effect_that_was_not_sent_is_never_uncertain() -> None:
    assert answered(LET_GO, OPEN.until + 1) == Busy(M1, OPEN.until + 1)


def test_step_is_taken_over_if_its_lease_is_over() -> None:
    for step in (OPEN, LET_GO):
        assert [may_be_taken_over(step, step.until + late, REQUEST) for late in (-0.001, 0, 1)] == [False, True, True]


def test_step_is_taken_over_if_its_key_outlives_the_lease() -> None:
    last = OPEN.since + (HOUR - LEASE - 2 * STEP_SKEW).total_seconds()
    assert [may_be_taken_over(OPEN, now, REQUEST) for now in (last, last + 0.001)] == [True, False]
    assert may_be_taken_over(LET_GO, last + 0.001, REQUEST)  # its key was never used


SHORTEST_MEMORY = timedelta(minutes=11)  # the lease, and twice by how much clocks may be off


@pytest.mark.parametrize("lease", [timedelta(seconds=1), LEASE])
@pytest.mark.parametrize("safe_for", [timedelta(0), SHORTEST_MEMORY, HOUR])
def test_shortest_and_least_safe_step_is_taken(lease: timedelta, safe_for: timedelta) -> None:
    check_begin(StepRequest("charge", lease, safe_for))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"name": ""}, "name"),
        ({"lease": timedelta(milliseconds=999)}, "lease="),
        ({"safe_for": -timedelta.resolution}, "safe_for="),
        ({"safe_for": 3600}, "safe_for="),
        ({"safe_for": SHORTEST_MEMORY - timedelta.resolution}, "can ever take over the step"),
    ],
)
def test_a_begin_that_could_not_work_is_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidUpdate, match=rf"^begin: .*{complaint}"):
        check_begin(REQUEST._replace(**wrong))


@pytest.mark.parametrize("lease", [timedelta(days=365 * 9000), timedelta.max])
def test_lease_that_ends_after_the_year_9999_is_refused(lease: timedelta) -> None:
    with pytest.raises(InvalidUpdate, match=r"^begin: lease=.*ends after the year 9999\. Pass a lease"):
        new_step("ow", Message("m1"), StepRequest("charge", lease, timedelta(0)), "call", 1_700_000_000.0)
