"""The flows of steps under every order of requests within bounds, and what each of their rules is for."""

from __future__ import annotations

import os

import pytest

from onewrite.core.step import STEP_SKEW
from tests.support.step_model import Bounds, Model, Rules, Wrong

# More deliveries, time and faults: minutes instead of seconds.
LARGE = os.environ.get("ONEWRITE_MODEL") == "large"
SKEW = STEP_SKEW.total_seconds()

WORLDS = {
    "two workers whose clocks are right": Bounds(),
    "a first worker whose clock is behind": Bounds(offsets=(-SKEW, SKEW)),
    "a first worker whose clock is ahead": Bounds(offsets=(SKEW, -SKEW)),
    "a later message that moves the mark": Bounds(overtaken=True, ticks=2),
    "a provider that fails for long": Bounds(offsets=(0.0,), deliveries=3),
}
LARGE_WORLDS = {
    "three workers": Bounds(offsets=(0.0, SKEW, -SKEW), ticks=2),
    "two deliveries to each": Bounds(deliveries=2, ticks=2),
    "much that goes wrong": Bounds(offsets=(-SKEW, SKEW), faults=3, ticks=4),
    "many deliveries": Bounds(offsets=(0.0,), deliveries=5, faults=2, ticks=4),
}


@pytest.mark.parametrize("bounds", WORLDS.values(), ids=WORLDS)
@pytest.mark.few(2)
def test_nobody_is_charged_twice_and_every_charge_is_recorded_whatever_happens(bounds: Bounds) -> None:
    assert Model(bounds).explore() > 500


@pytest.mark.skipif(not LARGE, reason="ONEWRITE_MODEL=large asks for it; make chaos sets it")
@pytest.mark.parametrize("bounds", LARGE_WORLDS.values(), ids=LARGE_WORLDS)
def test_nobody_is_charged_twice_and_every_charge_is_recorded_in_larger_worlds(bounds: Bounds) -> None:
    assert Model(bounds).explore() > 10_000


BROKEN = [
    (Rules(first_key=False), "two workers whose clocks are right", "charged 2 times"),
    (Rules(first_time=False), "a provider that fails for long", "charged 2 times"),
    (Rules(skew=False), "a first worker whose clock is ahead", "charged 2 times"),
    (Rules(left=False), "two workers whose clocks are right", "charged 2 times"),
    (Rules(remembers_sent=False), "a provider that fails for long", "charged 2 times"),
    (Rules(outranks=False), "a later message that moves the mark", "never recorded"),
]


@pytest.mark.parametrize(("rules", "world", "harm"), BROKEN)
@pytest.mark.few(3)
def test_each_rule_keeps_from_harm_that_the_model_finds_without_it(rules: Rules, world: str, harm: str) -> None:
    with pytest.raises(Wrong, match=harm):
        Model(WORLDS[world], rules).explore()
