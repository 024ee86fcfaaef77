"""What handlers rely on outside the stores is varied, refused, or named; right uses of it pass."""

from __future__ import annotations

from itertools import product
from types import ModuleType
from typing import Any

import pytest

from onewrite import ConfigurationError
from tests.gallery import right_outside, wrong_outside
from tests.gallery.banking import Case, list_on_engines
from tests.gallery.cases import Worlds, deposit, handlers_in

BOTH, DYNAMODB, MONGODB = ("dynamodb", "mongodb"), ("dynamodb",), ("mongodb",)
ONE = (deposit(1),)


PARTLY_WRITTEN = {
    "marked_and_added_in_one_command": Case(ONE, MONGODB),
    "all_lines_inserted_at_once": Case(ONE, MONGODB),
    "all_customers_updated_at_once": Case(ONE, MONGODB, {"concurrency": 1}),
    "mark_in_the_batch": Case(ONE, DYNAMODB),
    "first_line_taken_for_all": Case(ONE, DYNAMODB),
    "moved_in_a_batch": Case(ONE, DYNAMODB, {"concurrency": 1}),
    "given_up_after_three_rounds": Case(ONE, DYNAMODB, {"concurrency": 1}),
}
SHARED = (
    *("lock_of_the_module", "ids_of_the_module", "FlagOfTheClass", "flag_of_the_environment"),
    *("key_in_redis", "lock_file", "lock_file_of_the_message"),
)
NOT_REPEATABLE = {
    "customer_of_the_first_message": "state that a module keeps",
    "RateOfTheFirstMessage": "state that a module keeps",
    "tenant_in_a_context_variable": "a context variable",
    **dict.fromkeys(["key_of_the_minute", "key_of_the_hour", "key_of_the_day", "key_of_the_month"], "a year ahead"),
}
ORDERED = ("last_write_wins", "first_write_and_the_last", "doubled_and_added")
RIGHT = {
    "seat_taken_once": Case(),
    "quota_used_up": Case(),
    "address_reserved": Case(),
    "lock_of_the_process": Case(ONE),
    "lock_of_the_loop": Case(engines=("async mongodb",)),
    "pure_function_cached_in_the_module": Case(),
    "setting_cached_in_the_module": Case(ONE),
    "tenant_reset_in_its_context": Case(),
    "balance_of_each_message": Case(),
    "both_guarded_in_one_command": Case(ONE, MONGODB),
}


@pytest.fixture(autouse=True)
def _new_process() -> None:
    """A module's state is as at the start of a process."""
    wrong_outside._SETTINGS.clear()
    right_outside._SETTINGS.clear()
    wrong_outside.RateOfTheFirstMessage.rate = 0


@pytest.mark.parametrize(("name", "engine"), list_on_engines(PARTLY_WRITTEN))
@pytest.mark.few(3)
def test_a_write_that_can_happen_in_part_is_found(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    report = PARTLY_WRITTEN[name].run(explore, worlds, engine, getattr(wrong_outside, name))
    assert "part" in str(report.counterexample)
    assert report.schedules < 500


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("name", SHARED)
@pytest.mark.few(4)
def test_a_lock_that_processes_do_not_share_is_refused(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"behaves differently while m1, delivery 1 is stopped.*outside build\(store\)"
    ):
        Case().run(explore, worlds, engine, getattr(wrong_outside, name))


@pytest.mark.parametrize(
    ("name", "engine"), [*product(NOT_REPEATABLE, BOTH), ("tenant_in_a_context_variable", "async mongodb")]
)
@pytest.mark.few(2)
def test_a_handler_that_depends_on_its_surroundings_is_reported(
    explore: Any, worlds: Worlds, engine: str, name: str
) -> None:
    report = Case().run(explore, worlds, engine, getattr(wrong_outside, name))
    assert not report.ok
    assert NOT_REPEATABLE[name] in str(report.nondeterministic)


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.few(2)
def test_a_handler_that_depends_on_the_order_gets_a_remark(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    report = Case(bounds={"deliveries": 1}).run(explore, worlds, engine, getattr(wrong_outside, name))
    assert "The end depends on the order of the messages" in str(report)


@pytest.mark.parametrize(("name", "engine"), list_on_engines(RIGHT))
@pytest.mark.few(5)
def test_a_right_use_of_the_surroundings_passes(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    report = RIGHT[name].run(explore, worlds, engine, getattr(right_outside, name))
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.parametrize(
    ("handlers", "tried"),
    [(wrong_outside, [*PARTLY_WRITTEN, *SHARED, *NOT_REPEATABLE, *ORDERED]), (right_outside, [*RIGHT])],
    ids=["wrong", "right"],
)
def test_every_handler_is_tested(handlers: ModuleType, tried: list[str]) -> None:
    assert sorted(tried) == sorted(handlers_in(handlers))
