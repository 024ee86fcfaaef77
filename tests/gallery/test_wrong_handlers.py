"""Mistakes that people really make: the explorer finds each, in few steps, and shows the damage that it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from onewrite import Message
from tests.gallery import wrong_dynamodb, wrong_mongodb
from tests.gallery.cases import OUTBOX, Worlds, balances, deposit

FEW = 4  # steps, so that a counterexample is easy to read


@dataclass(frozen=True)
class Mistake:
    """What a handler is given, and what is seen in the end."""

    damage: Any
    messages: tuple[Message, ...] = (deposit(1),)
    stores: tuple[str, ...] = ("customers",)
    observe: Callable[[Any], Any] = balances
    bounds: Mapping[str, Any] = field(default_factory=dict)


def and_receipts(customers: Any) -> Any:
    return balances(customers), list(OUTBOX)


def and_outbox(stores: Any) -> Any:
    return balances(stores), [sent["receipt"] for sent in stores["outbox"].find({})]


TWO = (deposit(1), deposit(2))
RENAMED = (deposit(1), Message("m2", body={"name": "Ann"}))
RECEIPTS = ({"c1": 10}, ["m1", "m1"])

COMMON = {
    "read_then_write": Mistake({"c1": 20}),
    "marked_before_the_effect": Mistake({}, stores=("customers", "processed")),
    "marked_after_the_effect": Mistake({"c1": 20}, stores=("customers", "processed")),
    "refusal_taken_for_a_duplicate": Mistake({"c1": 10}, messages=TWO),
    "two_entities_one_mark": Mistake({"alice": -10}),
    "counted_outside_the_guard": Mistake({"c1": 10, "total": 20}),
    "written_over_the_ledger": Mistake({"c1": 20}, messages=RENAMED, bounds={"concurrency": 1}),
    "id_minted_in_the_handler": Mistake({"c1": 20}),
    "high_water_mark_on_an_unordered_queue": Mistake({"c1": 100}, messages=TWO),
    "forgets_within_the_redelivery_window": Mistake({"c1": 20}),
    "lease_outlived": Mistake({"c1": 20}),
}
DYNAMODB = {
    **COMMON,
    "remembers_the_last_id_only": Mistake({"c1": 120}, messages=TWO),
    "side_effect_before_the_write": Mistake(RECEIPTS, observe=and_receipts),
}
MONGODB = {
    **COMMON,
    "remembers_the_last_two_ids": Mistake({"c1": 1120}, messages=(*TWO, deposit(3))),
    "side_effect_before_the_write": Mistake(RECEIPTS, stores=("customers", "outbox"), observe=and_outbox),
}
GALLERY: list[tuple[str, ModuleType, Mapping[str, Mistake]]] = [
    ("dynamodb", wrong_dynamodb, DYNAMODB),
    ("mongodb", wrong_mongodb, MONGODB),
]


@pytest.mark.parametrize(
    ("engine", "build", "mistake"),
    [
        pytest.param(engine, getattr(handlers, name), mistake, id=f"{engine}-{name}")
        for engine, handlers, mistakes in GALLERY
        for name, mistake in mistakes.items()
    ],
)
def test_a_mistake_is_found_in_few_steps(explore: Any, worlds: Worlds, engine: str, build: Any, mistake: Mistake) -> None:
    world = worlds(engine, mistake.stores)
    report = explore(build, messages=mistake.messages, world=world, observe=mistake.observe, **mistake.bounds)
    found = report.counterexample
    assert not report.ok
    assert found.observed == mistake.damage
    assert found.observed not in found.expected
    assert len(found.steps) <= FEW
    with pytest.raises(AssertionError, match="onewrite-replay"):
        report.assert_effectively_once()


@pytest.mark.parametrize(("engine", "handlers", "mistakes"), GALLERY, ids=[engine for engine, _, _ in GALLERY])
def test_every_wrong_handler_is_tried(engine: str, handlers: ModuleType, mistakes: Mapping[str, Mistake]) -> None:
    own = [name for name, value in vars(handlers).items() if getattr(value, "__module__", "") == handlers.__name__]
    assert sorted(mistakes) == sorted(name for name in own if not name.startswith("_"))


def test_a_minted_id_is_also_named_as_the_reason_for_runs_that_differ(explore: Any, worlds: Worlds) -> None:
    report = explore(
        wrong_dynamodb.id_minted_in_the_handler,
        messages=[deposit(1)],
        world=worlds("dynamodb", ("customers",)),
        observe=balances,
    )
    assert "Take ids from the message" in report.nondeterministic
