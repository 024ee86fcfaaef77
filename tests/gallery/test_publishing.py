"""Handlers that publish, and relays: what is lost or invented is found, and what is emitted is told once and in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from onewrite import Message
from tests.gallery import right_publishing, wrong_publishing
from tests.gallery.cases import Worlds, deposit, handlers_in
from tests.gallery.publishing import CLOSE, NAMES, RELAY, consumed, received, told, told_in_any_order

ENGINES = ("dynamodb", "mongodb")
PASS = Message(RELAY)  # of a relay; it is delivered as often as a message, so two relays work at once
SECOND = Message(f"{RELAY} 2")
CLOSING = Message(CLOSE, source="bank")
ONE, TWO = (deposit(1), PASS), (deposit(1), deposit(2), PASS)
LIVES = (deposit(1), CLOSING, deposit(2), PASS)
# A payment that is redelivered after the account was deleted would open it once more: the ledger has gone with the account.
EACH_ONCE: Mapping[str, Any] = {"reorder": "within_source", "deliveries": 1}


@dataclass(frozen=True)
class Mistake:
    """`damage` is what a consumer gets that should get the events of one of the `expected` lists."""

    messages: tuple[Message, ...]
    damage: list[int]
    expected: tuple[list[int], ...]
    steps: int
    bounds: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    messages: tuple[Message, ...]
    observe: Callable[[Any], Any] = told
    bounds: Mapping[str, Any] = field(default_factory=dict)
    engines: tuple[str, ...] = ENGINES  # one where the other takes long


WRONG = {
    "saved_then_published": Mistake((deposit(1),), [], ([10],), 1),
    "published_then_saved": Mistake((deposit(1), deposit(2)), [10, 100], ([10], [100]), 6),
    "cleared_before_it_is_published": Mistake(ONE, [], ([10],), 3),
    "cleared_by_the_count_alone": Mistake(LIVES, [10], ([100], [10, 100]), 6, {**EACH_ONCE, "faults": 0}),
}
THREE_AT_ONCE = (deposit(1), PASS, SECOND)
RIGHT = {
    "emitted": [
        Work(ONE),
        Work(ONE, consumed, {"faults": 0}),
        Work(THREE_AT_ONCE, bounds={"concurrency": 3, "deliveries": 1}),
        Work((*LIVES, SECOND), told_in_any_order, EACH_ONCE),
    ],
    "swept": [Work(ONE)],
    "several_emitted": [Work(ONE, engines=("mongodb",))],
    "flushed_by_the_handler": [Work((deposit(1),))],
}
# Minutes instead of seconds.
LARGER = {
    "emitted": [Work(TWO), Work(THREE_AT_ONCE, bounds={"concurrency": 3}), Work(ONE, bounds={"faults": 2})],
    "swept": [Work(TWO)],
    "several_emitted": [Work(ONE, engines=("dynamodb",)), Work(TWO, engines=("mongodb",))],
    "flushed_by_the_handler": [Work((deposit(1), deposit(2)))],
}
WORKS = LARGER if os.environ.get("ONEWRITE_MODEL") == "large" else RIGHT


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.few(2)
def test_a_publisher_that_loses_or_invents_an_event_is_found(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    mistake = WRONG[name]
    build = getattr(wrong_publishing, name)
    report = explore(build, messages=mistake.messages, world=worlds(engine, NAMES), observe=received, **mistake.bounds)
    found = report.counterexample
    assert found is not None
    assert sorted(found.expected) == sorted(mistake.expected)
    assert found.observed == mistake.damage
    assert len(found.steps) <= mistake.steps


@pytest.mark.parametrize(
    ("engine", "name", "work"),
    [
        pytest.param(engine, name, work, id=f"{engine}-{name}-{number}")
        for name, works in WORKS.items()
        for number, work in enumerate(works)
        for engine in work.engines
    ],
)
@pytest.mark.few(2)
def test_events_are_published_once_and_in_order(explore: Any, worlds: Worlds, engine: str, name: str, work: Work) -> None:
    build = getattr(right_publishing, name)
    report = explore(build, messages=work.messages, world=worlds(engine, NAMES), observe=work.observe, **work.bounds)
    # A relay tells others: what is told in the end is the same without it, and there is nothing to tell after another one.
    report.assert_effectively_once(accept=("unseen", "idle"))
    assert report.exhausted


@pytest.mark.parametrize(("handlers", "tried"), [(wrong_publishing, WRONG), (right_publishing, WORKS)])
def test_every_publisher_is_tested(handlers: ModuleType, tried: Mapping[str, Any]) -> None:
    assert sorted(tried) == sorted(handlers_in(handlers))
