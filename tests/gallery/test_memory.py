"""Handlers that keep something in memory: what goes wrong by it is found, and what goes right is no alarm."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from tests.gallery import right_memory, wrong_memory
from tests.gallery.banking import Case, list_on_engines
from tests.gallery.cases import Worlds, deposit, handlers_in

ONE = (deposit(1),)
ALL = ("dynamodb", "mongodb", "async mongodb")
ONE_WORKER: Mapping[str, Any] = {"concurrency": 1}
WRONG = {
    "breaker_that_drops": Case(),
    "LoadSheddingAfterThrottle": Case(bounds=ONE_WORKER),
    "given_up_after_the_second_failure": Case(ONE, bounds={"faults": 2, **ONE_WORKER}),
    "lost_answer_taken_for_success": Case(ONE, bounds=ONE_WORKER),
    "replay_mode": Case(bounds=ONE_WORKER),
    "absence_remembered": Case(bounds={"reorder": False, **ONE_WORKER}),
    "rest_sent_instead": Case(bounds=ONE_WORKER, engines=("dynamodb",)),
    "left_to_the_other_transaction": Case(ONE, ("dynamodb",), ONE_WORKER),
    "creation_remembered": Case(),
    "idle_after_trouble": Case(engines=ALL),
    "written_behind": Case(bounds=ONE_WORKER),
    "IdsOfThisProcess": Case(ONE, bounds=ONE_WORKER),
    "numbered_by_the_process": Case(bounds=ONE_WORKER),
    "sum_of_the_process": Case(bounds=ONE_WORKER),
    "receipt_owed": Case(ONE, ALL, ONE_WORKER),
}
RIGHT = {
    "breaker_that_sends_back": Case(),
    "breaker_beyond_the_bounds": Case(),
    "Counted": Case(),
    "cached_and_checked": Case(bounds=ONE_WORKER),
    "ids_known_to_be_done": Case(engines=ALL),
    "given_up_and_remembered_in_the_store": Case(ONE, bounds={"faults": 2}),
}
SLOW = {("breaker_that_sends_back", "mongodb"), ("breaker_beyond_the_bounds", "mongodb")}


@pytest.mark.parametrize(("name", "engine"), list_on_engines(WRONG))
@pytest.mark.few(3)
def test_mistake_caused_by_memory_is_found(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    report = WRONG[name].run(explore, worlds, engine, getattr(wrong_memory, name))
    assert report.counterexample is not None
    assert report.nondeterministic is None


@pytest.mark.parametrize(("name", "engine"), list_on_engines(RIGHT, slow=SLOW))
@pytest.mark.few(2)
def test_harmless_memory_is_not_reported(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    report = RIGHT[name].run(explore, worlds, engine, getattr(right_memory, name))
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.parametrize(("handlers", "tried"), [(wrong_memory, WRONG), (right_memory, RIGHT)])
def test_every_handler_is_tested(handlers: ModuleType, tried: Mapping[str, Any]) -> None:
    assert sorted(tried) == sorted(handlers_in(handlers))
