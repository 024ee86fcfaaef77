"""How the benchmarks judge a way, and where they write what they have found. They themselves are run by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from onewrite import Applied, Duplicate, Message
from tests.benchmarks.measure import Plan
from tests.benchmarks.peers.race import Costs, line, race
from tests.benchmarks.peers.ways import Engine, Unmeasured, Way
from tests.benchmarks.sections import PAGE, Section, replace

DOCS = Path(__file__).parents[2] / "docs"


class Memory:
    """An engine without a server: it counts the effects of each entity."""

    name, program, port = "Memory", "memory", 0

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.seen: set[str] = set()

    def create(self, entities: Iterable[str], text: str = "") -> None:
        self.counts.update(dict.fromkeys(entities, 0))

    def effects(self, entities: Iterable[str]) -> int:
        return sum(self.counts[entity] for entity in entities)

    def plainly(self, messages: Sequence[Message], entity: str) -> None:
        self.counts[entity] += len(messages)

    def once(self, messages: Sequence[Message], entity: str) -> object:
        outcomes = [Duplicate(each) if f"{entity} {each.id}" in self.seen else Applied(each) for each in messages]
        self.seen.update(f"{entity} {each.id}" for each in messages)
        self.counts[entity] += sum(isinstance(each, Applied) for each in outcomes)
        return outcomes


def raced(memory: Memory, *ways: Way) -> dict[str, Any]:
    return race(cast("Engine", memory), ways, Plan(rounds=30, late=0))


def test_a_way_is_in_order_whose_effects_are_as_many_as_its_guard_lets_through() -> None:
    memory = Memory()
    unguarded = Way("unguarded", memory.plainly, guarded=False)
    found = raced(memory, unguarded, Way("once", memory.once), Way("ten at once", memory.once, batch=10))
    assert {name: runner.error for name, runner in found.items()} == {"unguarded": "", "once": "", "ten at once": ""}


def test_a_way_that_lets_duplicates_through_is_an_error_without_numbers() -> None:
    memory = Memory()
    runners = raced(memory, way := Way("guards nothing", memory.plainly))
    shown = line(way, runners, runners, {way.name: Costs({}, "")})
    assert shown == Unmeasured("guards nothing", "ERROR: 100 effects of 50 messages, where 50 are right")


def test_a_way_that_answers_wrongly_or_raises_is_out_and_the_others_go_on() -> None:
    memory = Memory()

    def refuse(messages: Sequence[Message], entity: str) -> object:
        raise ConnectionError("no")

    always_applied = Way("always applied", lambda messages, entity: Applied(messages[0]))
    found = raced(memory, Way("once", memory.once), Way("refuses", refuse), always_applied)
    assert found["once"].error == ""
    assert found["refuses"].error == "ConnectionError: no"
    assert found["always applied"].error.startswith("WrongOutcomeError: Applied(")


@pytest.mark.parametrize("name", ["peers", "folds"])
def test_the_page_has_a_place_for_each_section(name: str) -> None:
    assert "put here by the test" in replace((DOCS / PAGE).read_text(), Section(name, "put here by the test"))
