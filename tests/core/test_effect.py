"""Effects are read as they were stored, and a lease ends within a hundred years."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from onewrite import InvalidUpdate, LedgerMismatch, Message
from onewrite.core.effect import Effect, read_effect
from onewrite.core.features.effects import EffectRequest, check_begin, make_effect

NOW = 1_790_000_000.0
M1 = Message("m1", source="s", sequence=7)
LEASE, HOUR = timedelta(minutes=1), timedelta(hours=1)
REQUEST = EffectRequest("charge", LEASE, HOUR)
OPEN = make_effect("ow_l", M1, REQUEST, "call", NOW)
LET_GO = OPEN._replace(is_unsent=True)
OF_ZERO = OPEN._replace(message=Message("m0", source="s", sequence=0))


@pytest.mark.parametrize("effect", [OPEN, LET_GO, OF_ZERO, OPEN._replace(first=False), OPEN._replace(ledger="ow_billing:l")])
def test_an_effect_is_read_as_it_was_stored(effect: Effect) -> None:
    assert read_effect(effect.as_fields()) == effect


@pytest.mark.parametrize(("sequence", "stored"), [(None, None), ("7", "7"), (7, 7), (7, Decimal(7))])
@pytest.mark.parametrize("parts", [(), ("stock",)])
def test_message_of_an_effect_survives_storage(sequence: Any, stored: object, parts: tuple[str, ...]) -> None:
    message = Message("m1", "s", sequence=sequence, parts=parts)
    effect = read_effect({**OPEN._replace(message=message).as_fields(), "sequence": stored})
    assert effect.message == message
    assert type(effect.message.sequence) is type(sequence)


@pytest.mark.parametrize("change", [{"sequence": math.inf}, {"since": 7}, {"parts": 7}, {"id": ""}])
def test_invalid_stored_effect_is_a_mismatch(change: dict[str, Any]) -> None:
    with pytest.raises(LedgerMismatch, match="ow_effect"):
        read_effect({**OPEN.as_fields(), **change})


@pytest.mark.parametrize("lease", [timedelta(days=36_526), timedelta.max])
@pytest.mark.parametrize("key_valid_for", [timedelta(0), timedelta(days=1)])
def test_lease_of_more_than_a_hundred_years_is_refused(lease: timedelta, key_valid_for: timedelta) -> None:
    with pytest.raises(
        InvalidUpdate, match=r"^begin_effect: lease=.* between a second and a hundred years\. Pass one just long enough"
    ):
        check_begin(EffectRequest("charge", lease, key_valid_for))
