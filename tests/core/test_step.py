"""Steps are read as they were stored, and a lease ends within a hundred years."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from onewrite import InvalidUpdate, LedgerMismatch, Message
from onewrite.core.features.claims import StepRequest, check_begin, make_step
from onewrite.core.step import Step, read_step

NOW = 1_790_000_000.0
M1 = Message("m1", source="s", sequence=7)
LEASE, HOUR = timedelta(minutes=1), timedelta(hours=1)
REQUEST = StepRequest("charge", LEASE, HOUR)
OPEN = make_step("ow_l", M1, REQUEST, "call", NOW)
LET_GO = OPEN._replace(is_unsent=True)
OF_ZERO = OPEN._replace(message=Message("m0", source="s", sequence=0))


@pytest.mark.parametrize("step", [OPEN, LET_GO, OF_ZERO, OPEN._replace(first=False), OPEN._replace(ledger="ow_billing:l")])
def test_a_step_is_read_as_it_was_stored(step: Step) -> None:
    assert read_step(step.as_fields()) == step


@pytest.mark.parametrize(("sequence", "stored"), [(None, None), ("7", "7"), (7, 7), (7, Decimal(7))])
@pytest.mark.parametrize("parts", [(), ("stock",)])
def test_message_of_a_step_survives_storage(sequence: Any, stored: object, parts: tuple[str, ...]) -> None:
    message = Message("m1", "s", sequence=sequence, parts=parts)
    step = read_step({**OPEN._replace(message=message).as_fields(), "sequence": stored})
    assert step.message == message
    assert type(step.message.sequence) is type(sequence)


@pytest.mark.parametrize("change", [{"sequence": math.inf}, {"since": 7}, {"parts": 7}, {"id": ""}])
def test_invalid_stored_step_is_a_mismatch(change: dict[str, Any]) -> None:
    with pytest.raises(LedgerMismatch, match="ow_step"):
        read_step({**OPEN.as_fields(), **change})


@pytest.mark.parametrize("lease", [timedelta(days=36_526), timedelta.max])
@pytest.mark.parametrize("safe_for", [timedelta(0), timedelta(days=1)])
def test_lease_of_more_than_a_hundred_years_is_refused(lease: timedelta, safe_for: timedelta) -> None:
    with pytest.raises(
        InvalidUpdate, match=r"^begin: lease=.* between a second and a hundred years\. Pass one just long enough"
    ):
        check_begin(StepRequest("charge", lease, safe_for))
