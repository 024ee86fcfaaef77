"""Work done right by other means than a guard alone: every schedule within the bounds is run, and none ends wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from onewrite import Message
from tests.gallery import right_by_hand_dynamodb, right_by_hand_mongodb
from tests.gallery.cases import Content, Worlds, balances, contents, deposit

ONE = (deposit(1),)
TWO = (deposit(1), deposit(2))
WITHDRAWAL = Message("m2", source="bank", sequence=2, body={"amount": -10})
PHASES = tuple(Message(f"m{n}", body={"phase": phase, "amount": 10**n}) for n, phase in enumerate(("paid", "shipped"), 1))
PLACED = {"customers": ({"id": "c1", "phase": "placed"},)}
NEW = {"customers": ({"id": "c1", "balance": 0, "version": 0, "lastNumber": 0, "seen": []},)}
PENDING = {"pending": ({"id": "m1", "balance": 10}, {"id": "m2", "balance": 100})}
MOVED = ("customers", "pending")


@dataclass(frozen=True)
class Work:
    messages: tuple[Any, ...] = TWO
    stores: tuple[str, ...] = ("customers",)
    content: Content = field(default_factory=dict)
    observe: Callable[[Any], Any] = balances
    bounds: Mapping[str, Any] = field(default_factory=dict)


DYNAMODB = {
    "ids_in_the_condition": Work(),
    "mark_in_a_transaction_with_a_token": Work(stores=("customers", "processed")),
    "put_before_it_is_deleted": Work(stores=MOVED, content=PENDING, observe=contents),
    "phases": Work(PHASES, content=PLACED),
    "fenced_lease": Work(ONE),
    "parked_until_its_turn": Work(stores=("customers", "parked"), bounds={"deliveries": 1}),
}
MONGODB = {
    "inserted_in_any_order": Work(),
    "filtered_by_the_ids": Work(),
    "added_by_a_pipeline": Work(),
    "inbox_in_a_transaction": Work(ONE, content=NEW),
}
GALLERY: list[tuple[str, ModuleType, Mapping[str, Work]]] = [
    ("dynamodb", right_by_hand_dynamodb, DYNAMODB),
    ("mongodb", right_by_hand_mongodb, MONGODB),
]


@pytest.mark.parametrize(
    ("engine", "build", "work"),
    [
        pytest.param(engine, getattr(handlers, name), work, id=f"{engine}-{name}")
        for engine, handlers, works in GALLERY
        for name, work in works.items()
    ],
)
@pytest.mark.few(6)
def test_handwritten_work_takes_effect_once_in_every_schedule(
    explore: Any, worlds: Worlds, engine: str, build: Any, work: Work
) -> None:
    report = explore(
        build,
        messages=work.messages,
        world=worlds(engine, work.stores, work.content),
        observe=work.observe,
        **work.bounds,
    )
    report.assert_effectively_once()
    assert report.exhausted
