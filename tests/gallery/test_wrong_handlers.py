"""Mistakes that people really make: the explorer finds each, in few steps, and shows the damage that it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from onewrite import Message
from onewrite.testing import sqs_event
from tests.gallery import (
    wrong_by_hand_mongodb,
    wrong_dynamodb,
    wrong_marks_dynamodb,
    wrong_mongodb,
    wrong_on_both,
    wrong_steps_dynamodb,
)
from tests.gallery.cases import CLOSE, OUTBOX, Content, Worlds, awaited_balances, balances, deposit, handlers_in

FEW = 4  # steps, so a counterexample is easy to read
NEVER_EXPECTED = "processing each message once, one at a time, never ends like this"
NEVER_SETTLED = "m1 never settled"
BROKEN = "the invariant is broken"


@dataclass(frozen=True)
class Mistake:
    """What a handler is given, and what is seen in the end."""

    damage: Any
    messages: tuple[Any, ...] = (deposit(1),)
    stores: tuple[str, ...] = ("customers",)
    observe: Callable[[Any], Any] = balances
    bounds: Mapping[str, Any] = field(default_factory=dict)
    content: Content = field(default_factory=dict)
    reason: str = NEVER_EXPECTED
    steps: int = FEW


def and_receipts(customers: Any) -> Any:
    return balances(customers), list(OUTBOX)


async def awaited_amounts(accounts: Any) -> list[int]:
    """Return the amounts without their signs: a schedule may lose either half of a transfer."""
    return sorted(map(abs, (await awaited_balances(accounts)).values()))


TWO = (deposit(1), deposit(2))
RENAMED = (deposit(1), Message("m2", body={"name": "Ann"}))
RECEIPTS = ({"c1": 10}, ["m1", "m1"])

ON_BOTH = {
    "marked_before_the_effect": Mistake({}, stores=("customers", "processed")),
    "marked_after_the_effect": Mistake({"c1": 20}, stores=("customers", "processed")),
    "two_entities_one_mark": Mistake({"alice": -10}),
    "counted_outside_the_guard": Mistake({"c1": 10, "total": 20}),
    "id_minted_in_the_handler": Mistake({"c1": 20}),
    "high_water_mark_on_an_unordered_queue": Mistake({"c1": 100}, messages=TWO),
    "forgets_within_the_redelivery_window": Mistake({"c1": 20}),
    "batch_under_its_first_id": Mistake({"c1": 210}, (sqs_event("1", "2"),)),
    "deleted_with_its_ledger": Mistake({"c1": 10}, (deposit(1), CLOSE), bounds={"reorder": False}),
}
COMMON = {
    "read_then_write": Mistake({"c1": 20}),
    "written_over_the_ledger": Mistake({"c1": 20}, messages=RENAMED, bounds={"concurrency": 1}),
}
DYNAMODB = {
    **COMMON,
    "refusal_taken_for_a_duplicate": Mistake({"c1": 10}, messages=TWO),
    "lease_outlived": Mistake({"c1": 20}),
    "remembers_the_last_id_only": Mistake({"c1": 120}, messages=TWO),
    "side_effect_before_the_write": Mistake(RECEIPTS, observe=and_receipts),
}
MONGODB = {
    **COMMON,
    "remembers_the_last_two_ids": Mistake({"c1": 2110}, messages=(*TWO, deposit(3))),
}
SAME_AMOUNT = (deposit(1), Message("m2", source="bank", sequence=2, body={"amount": 10}))
ONE_WORKER = {"concurrency": 1}
TRANSFERRED_BACK = Mistake({"alice": 0, "bob": 10})
CUSTOMER = {"customers": ({"id": "c1", "balance": 0, "version": 0, "seen": []},)}
PENDING = Mistake(
    {},
    stores=("customers", "pending"),
    content={"pending": ({"id": "c1", "balance": 10},)},
    observe=lambda stores: balances(stores["customers"]),
)
ALL_DEPOSITS: Mapping[str, Any] = {"invariant": lambda customers: sum(balances(customers).values()) in (0, 20, 110)}

MARKS = {
    "payload_hash_taken_for_the_id": Mistake({"c1": 10}, SAME_AMOUNT, bounds=ALL_DEPOSITS, reason=BROKEN),
    "condition_on_a_misspelt_attribute": Mistake({"c1": 20}),
    "mark_that_expires": Mistake({"c1": 20}, stores=("customers", "processed")),
    "token_taken_for_a_mark": Mistake({"c1": 20}),
    "token_of_the_customer": Mistake({"m1": 10}, TWO, ("entries",)),
    "refused_version_taken_for_a_duplicate": Mistake({"c1": 10}, TWO),
    "version_read_again_without_the_rest": Mistake({"c1": 100}, TWO, steps=5),
    "deferred_and_forgotten": Mistake({"c1": 10}, TWO),
    "highest_number_kept": Mistake({"c1": 100}, TWO, bounds=ALL_DEPOSITS, reason=BROKEN),
    "balance_taken_for_a_version": Mistake({"c1": 20}),
}
STEPS = {
    "swallowed_exception": Mistake({}),
    "unprocessed_items_ignored": Mistake({"alice": -10}),
    "undone_on_error": TRANSFERRED_BACK,
    "tried_again_by_hand": Mistake({"c1": 20}),
    "numbered_by_an_index": Mistake({"c1-1": 100}, TWO, ("entries",), bounds=ONE_WORKER),
    "scanned_before_the_write": Mistake({"c1": 20}),
    "processing_state_left_behind": Mistake({}, reason=NEVER_SETTLED),
    "moved_in_two_steps": PENDING,
    "eventually_consistent_look": Mistake({"c1": 20}, bounds=ONE_WORKER),
    "outbox_emptied_before_it_is_sent": Mistake(({"c1": 10}, []), observe=and_receipts),
    "parked_and_left_there": Mistake({"c1": 10}, TWO, ("customers", "parked")),
    "first_failure_ends_the_batch": Mistake({"c1": 10}, (sqs_event("1", "2"),)),
}
DEFAULT_SET = {
    "mark_outside_of_the_transaction": Mistake({"c1": 0}, content=CUSTOMER),
    "conflict_swallowed": Mistake({"c1": 100}, TWO, content=CUSTOMER),
    "looked_at_too_late": Mistake({"c1": 20}),
    "conflict_not_looked_at": Mistake({"c1": 10}, TWO, content=CUSTOMER),
    "duplicate_taken_for_an_error": Mistake({"c1": 10}, content=CUSTOMER, reason=NEVER_SETTLED),
    "look_at_a_secondary": Mistake({"c1": 20}, bounds=ONE_WORKER),
}
GATHERED = {
    "failures_gathered": Mistake([10], observe=awaited_amounts),
}
GALLERY: list[tuple[str, ModuleType, Mapping[str, Mistake]]] = [
    ("dynamodb", wrong_on_both, ON_BOTH),
    ("mongodb", wrong_on_both, ON_BOTH),
    ("dynamodb", wrong_dynamodb, DYNAMODB),
    ("mongodb", wrong_mongodb, MONGODB),
    ("dynamodb", wrong_marks_dynamodb, MARKS),
    ("dynamodb", wrong_steps_dynamodb, STEPS),
    ("mongodb", wrong_by_hand_mongodb, DEFAULT_SET),
    ("async mongodb", wrong_by_hand_mongodb, GATHERED),
]


@pytest.mark.parametrize(
    ("engine", "build", "mistake"),
    [
        pytest.param(engine, getattr(handlers, name), mistake, id=f"{engine}-{name}")
        for engine, handlers, mistakes in GALLERY
        for name, mistake in mistakes.items()
    ],
)
@pytest.mark.few(8)
def test_a_mistake_is_found_in_few_steps(explore: Any, worlds: Worlds, engine: str, build: Any, mistake: Mistake) -> None:
    world = worlds(engine, mistake.stores, mistake.content)
    report = explore(build, messages=mistake.messages, world=world, observe=mistake.observe, **mistake.bounds)
    found = report.counterexample
    assert not report.ok
    assert found.observed == mistake.damage
    assert found.reason.startswith(mistake.reason)
    assert (found.observed not in found.expected) or mistake.reason != NEVER_EXPECTED
    assert len(found.steps) <= mistake.steps
    with pytest.raises(AssertionError, match="onewrite-replay"):
        report.assert_effectively_once()


@pytest.mark.parametrize("handlers", dict.fromkeys(handlers for _, handlers, _ in GALLERY), ids=lambda it: it.__name__)
def test_every_wrong_handler_is_tested(handlers: ModuleType) -> None:
    tried = {name for _, module, mistakes in GALLERY if module is handlers for name in mistakes}
    assert sorted(tried) == sorted(handlers_in(handlers))
