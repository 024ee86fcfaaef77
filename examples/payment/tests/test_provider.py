"""The provider has the habits that the other tests rely on."""

from __future__ import annotations

import pytest

from payment.provider import DECLINED_CARD, KNOWS_KEYS_FOR, NoAnswer, Provider, ProviderDown, Trouble

DAY = KNOWS_KEYS_FOR.total_seconds()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def provider(clock: Clock, *troubles: Trouble) -> Provider:
    return Provider(clock=clock, sleep=clock.sleep, troubles=troubles)


def charge(at: Provider, *, cents: int = 5, card: str = "card-1", key: str | None = "k", timeout: float = 10) -> str:
    return at.charge(cents=cents, card=card, timeout=timeout, idempotency_key=key).id


def test_key_is_charged_once_per_day() -> None:
    clock = Clock()
    found = provider(clock)
    first = charge(found)
    clock.now = DAY - 1
    assert charge(found) == first
    clock.now = DAY
    assert charge(found) != first
    assert len(found.charges) == 2


def test_without_a_key_every_request_is_a_charge() -> None:
    found = provider(Clock())
    assert charge(found, key=None) != charge(found, key=None)


def test_a_key_that_was_used_for_another_charge_is_refused() -> None:
    found = provider(Clock())
    charge(found)
    with pytest.raises(ValueError, match="another charge"):
        charge(found, cents=6)


def test_only_a_refused_connection_leaves_no_charge() -> None:
    clock = Clock()
    found = provider(clock, "answer lost", "slow", "down")
    for key, raised, count in ("a", NoAnswer, 1), ("b", NoAnswer, 2), ("c", ProviderDown, 2):
        with pytest.raises(raised):
            charge(found, key=key)
        assert len(found.charges) == count
    assert clock.now == 10  # the timeout of the one that was slow


def test_a_request_without_time_is_not_sent() -> None:
    found = provider(Clock())
    with pytest.raises(ProviderDown, match="not sent"):
        charge(found, timeout=0.0)
    assert found.requests == []


def test_declined_card_is_booked_and_not_charged() -> None:
    found = provider(Clock())
    charge(found, card=DECLINED_CARD)
    assert found.charges == []
    assert [found.find("k"), found.find("other")] == [found.requests[0], None]
