"""Handlers that charge at a provider: what is charged twice or never recorded is found, and steps do neither."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from onewrite import Message
from tests.gallery import right_paying, wrong_paying
from tests.gallery.cases import Worlds, handlers_in
from tests.gallery.paying import CONTENT, NAMES, charged_and_recorded, times_charged_and_recorded

ENGINES = ("dynamodb", "mongodb")
M1, M2 = Message("m1"), Message("m2")


@dataclass(frozen=True)
class Mistake:
    """How much is charged and recorded in the end, of the one message that there is."""

    charged: int
    recorded: int
    steps: int
    bounds: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    messages: tuple[Message, ...] = (M1,)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    engines: tuple[str, ...] = ENGINES


ONE_BY_ONE = {"concurrency": 1}  # the explorer knows no timeouts, which keep a charge from arriving after the look for it
NOT_SENT_TWICE = (
    "mongodb",
)  # botocore sends a charge again whose answer is lost: such a provider is called without retries
WRONG = {
    "lease_without_fence": Mistake(1, 2, 8, {"faults": 0}),
    "done_before_it_is_recorded": Mistake(1, 0, 3),
    "done_before_it_is_charged": Mistake(0, 1, 1),
    "foreign_claim_released": Mistake(2, 2, 13, {"deliveries": 3, "faults": 0}),
    "charged_by_the_fence": Mistake(2, 1, 3),
    "takeover_taken_for_done": Mistake(1, 0, 8),
}
RIGHT = {
    "performed": [Work()],
    "begun_and_finished": [Work()],
    "charged_and_then_written": [Work(), Work((M1, M2), engines=("mongodb",))],
    "looked_up": [Work(bounds=ONE_BY_ONE, engines=NOT_SENT_TWICE)],
}
# Minutes instead of seconds.
LARGER = {
    "performed": [Work(bounds={"faults": 2}), Work((M1, M2), {"faults": 0})],
    "begun_and_finished": [Work(bounds={"faults": 2}), Work((M1, M2), {"faults": 0})],
    "charged_and_then_written": [Work((M1, M2), {"faults": 2})],
    "looked_up": [Work(bounds={**ONE_BY_ONE, "faults": 3, "deliveries": 3}, engines=NOT_SENT_TWICE)],
}
WORKS = LARGER if os.environ.get("ONEWRITE_MODEL") == "large" else RIGHT


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.few(3)
def test_a_charge_that_is_doubled_or_lost_is_found(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    mistake, build = WRONG[name], getattr(wrong_paying, name)
    world = worlds(engine, NAMES, CONTENT)
    report = explore(build, messages=[M1], world=world, observe=times_charged_and_recorded, **mistake.bounds)
    found = report.counterexample
    assert found is not None
    assert found.expected == ((1, 1),)
    assert found.observed == (mistake.charged, mistake.recorded)
    assert len(found.steps) <= mistake.steps


@pytest.mark.parametrize(
    ("engine", "name", "work"),
    [
        # It takes ten seconds on mongomock, and four on moto.
        pytest.param(
            engine,
            name,
            work,
            id=f"{engine}-{name}-{number}",
            marks=[pytest.mark.slow] if (engine, name) == ("mongodb", "performed") else [],
        )
        for name, works in WORKS.items()
        for number, work in enumerate(works)
        for engine in work.engines
    ],
)
@pytest.mark.few(1)
def test_a_charge_is_taken_once_and_recorded_once(explore: Any, worlds: Worlds, engine: str, name: str, work: Work) -> None:
    build, world = getattr(right_paying, name), worlds(engine, NAMES, CONTENT)
    report = explore(build, messages=work.messages, world=world, observe=charged_and_recorded, **work.bounds)
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.parametrize(("handlers", "tried"), [(wrong_paying, WRONG), (right_paying, WORKS)])
def test_every_handler_is_tested(handlers: ModuleType, tried: Mapping[str, Any]) -> None:
    assert sorted(tried) == sorted(handlers_in(handlers))
