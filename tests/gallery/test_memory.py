"""Handlers that keep something in memory: what goes wrong by it is found, and what goes right is no alarm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from onewrite import Message
from tests.gallery import right_memory, wrong_memory
from tests.gallery.banking import explore_customers
from tests.gallery.cases import Worlds, deposit, handlers_in

ENGINES = ("dynamodb", "mongodb", "async mongodb")
ONE = (deposit(1),)
TWO = (deposit(1), deposit(2))


@dataclass(frozen=True)
class Case:
    messages: tuple[Message, ...] = TWO
    bounds: Mapping[str, Any] = field(default_factory=dict)
    engines: tuple[str, ...] = ENGINES


ONE_WORKER: Mapping[str, Any] = {"concurrency": 1}
WRONG = {
    "breaker_that_drops": Case(),
    "LoadSheddingAfterThrottle": Case(bounds=ONE_WORKER),
    "given_up_after_the_second_failure": Case(ONE, {"faults": 2, **ONE_WORKER}),
    "lost_answer_taken_for_success": Case(ONE, ONE_WORKER),
    "replay_mode": Case(bounds=ONE_WORKER),
    "absence_remembered": Case(bounds={"reorder": False, **ONE_WORKER}),
    "rest_sent_instead": Case(bounds=ONE_WORKER, engines=("dynamodb",)),
    "left_to_the_other_transaction": Case(ONE, ONE_WORKER, ("dynamodb",)),
    "creation_remembered": Case(),
    "idle_after_trouble": Case(),
    "written_behind": Case(bounds=ONE_WORKER),
    "IdsOfThisProcess": Case(ONE, ONE_WORKER),
    "numbered_by_the_process": Case(bounds=ONE_WORKER),
    "sum_of_the_process": Case(bounds=ONE_WORKER),
    "receipt_owed": Case(ONE, ONE_WORKER),
}
RIGHT = {
    "breaker_that_sends_back": Case(),
    "breaker_beyond_the_bounds": Case(),
    "Counted": Case(),
    "cached_and_checked": Case(bounds=ONE_WORKER),
    "ids_known_to_be_done": Case(),
    "given_up_and_remembered_in_the_store": Case(ONE, {"faults": 2}),
}


def explored(explore: Any, worlds: Worlds, engine: str, handlers: ModuleType, name: str, case: Case) -> Any:
    return explore_customers(explore, worlds, engine, getattr(handlers, name), case.messages, case.bounds)


@pytest.mark.parametrize(("name", "engine"), [(name, engine) for name, case in WRONG.items() for engine in case.engines])
@pytest.mark.few(3)
def test_mistake_caused_by_memory_is_found(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    report = explored(explore, worlds, engine, wrong_memory, name, WRONG[name])
    assert report.counterexample is not None
    assert report.nondeterministic is None


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        # Each of these takes ten seconds and more on mongomock, and three on moto.
        pytest.param(name, engine, marks=[pytest.mark.slow] if "breaker" in name and engine != "dynamodb" else [])
        for name, case in RIGHT.items()
        for engine in case.engines
    ],
)
@pytest.mark.few(2)
def test_harmless_memory_is_not_reported(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    report = explored(explore, worlds, engine, right_memory, name, RIGHT[name])
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.parametrize(("handlers", "tried"), [(wrong_memory, WRONG), (right_memory, RIGHT)])
def test_every_handler_is_tested(handlers: ModuleType, tried: Mapping[str, Any]) -> None:
    assert sorted(tried) == sorted(handlers_in(handlers))
