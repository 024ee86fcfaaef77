"""Work done right by other means than a guard alone: every schedule within the bounds is run, and none ends wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from onewrite import Message
from onewrite.testing import sqs_event
from tests.gallery import right_by_hand_dynamodb, right_by_hand_mongodb, right_lambda
from tests.gallery.cases import Content, Worlds, awaited_balances, balances, contents, deposit, handlers_in

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
    "put_by_the_id": Work(),
    "mark_in_each_entity": Work(ONE),
    "version_checked": Work(),
    "read_then_condition": Work(stores=("customers", "entries"), content={"customers": ({"id": "c1", "factor": 2},)}),
    "mark_in_a_transaction_with_a_token": Work(stores=("customers", "processed")),
    "taken_in_a_transaction": Work(stores=MOVED, content=PENDING),
    "put_before_it_is_deleted": Work(stores=MOVED, content=PENDING, observe=contents),
    "phases": Work(PHASES, content=PLACED),
    "newest_wins": Work(),
    "unprocessed_items_again": Work(ONE),
    "batch_writer": Work(ONE),
    "fenced_lease": Work(ONE),
    "outbox_cleared_after_sending": Work(ONE, stores=("customers", "receipts")),
    "undone_as_a_part_of_its_own": Work(ONE),
    "parked_until_its_turn": Work(stores=("customers", "parked"), bounds={"deliveries": 1}),
    "withdrawn_when_covered": Work((deposit(1), WITHDRAWAL)),
    "refused_for_now": Work((deposit(1), WITHDRAWAL), content=NEW),
}
MONGODB = {
    "inserted_in_any_order": Work(),
    "found_and_updated": Work(content=NEW),
    "added_by_a_pipeline": Work(),
    "kept_in_a_set": Work(observe=lambda customers: {entry["id"] for entry in customers.find_one({"_id": "c1"})["entries"]}),
    "inbox_in_a_transaction": Work(ONE, content=NEW),
    "in_bulk": Work(),
}
ASYNC_MONGODB = {
    "awaited_version_checked": Work(content=NEW, observe=awaited_balances),
}
LAMBDA = {
    "with_powertools": Work((sqs_event("1", "2"),)),
    "by_hand": Work((sqs_event("1", "2"),)),
}
GALLERY: list[tuple[str, ModuleType, Mapping[str, Work]]] = [
    ("dynamodb", right_by_hand_dynamodb, DYNAMODB),
    ("mongodb", right_by_hand_mongodb, MONGODB),
    ("async mongodb", right_by_hand_mongodb, ASYNC_MONGODB),
    ("dynamodb", right_lambda, LAMBDA),
]


@pytest.mark.parametrize(
    ("engine", "build", "work"),
    [
        pytest.param(engine, getattr(handlers, name), work, id=f"{engine}-{name}")
        for engine, handlers, works in GALLERY
        for name, work in works.items()
    ],
)
@pytest.mark.few(3)
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


@pytest.mark.parametrize("handlers", dict.fromkeys(handlers for _, handlers, _ in GALLERY), ids=lambda it: it.__name__)
def test_every_right_handler_is_tested(handlers: ModuleType) -> None:
    tried = [name for _, module, works in GALLERY if module is handlers for name in works]
    assert sorted(tried) == sorted(handlers_in(handlers))
