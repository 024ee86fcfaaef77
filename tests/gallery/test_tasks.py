"""Handlers whose tasks run side by side: the wrong ones are found or refused, and the right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onewrite import ConfigurationError
from tests.gallery import left_behind, right_tasks, wrong_tasks
from tests.gallery.books import DynamoBooks, MongoBooks
from tests.gallery.cases import Content, Worlds, awaited_balances, balances, deposit, handlers_in

ENGINES = ("dynamodb", "async mongodb")
BOOKS: dict[str, Callable[..., Any]] = {"dynamodb": DynamoBooks, "async mongodb": MongoBooks}
SEEN: dict[str, Callable[[Any], Any]] = {"dynamodb": balances, "async mongodb": awaited_balances}
FEES: Content = {"customers": ({"id": "domestic", "balance": 2}, {"id": "foreign", "balance": 3})}
ALONE = {"deliveries": 1, "concurrency": 1}  # so it is the tasks that get in each other's way
UNDISTURBED = {**ALONE, "faults": 0}
WITH_A_FAULT = ("waits_a_moment_first", "cancelled_taken_for_undone", "too_late_taken_for_undone")
WITH_A_REDELIVERY = ("the_quicker_wins",)

LEFT = {
    "fired_and_forgotten": "add_once",
    "written_behind": "the task written_behind.<locals>.later",
    "written_two_at_a_time": "which has not ended",
    "waited_for_the_first": "created at left_behind.py:",
    "read_to_the_first": "async generator",
    "called_later": "add_once",
    "cancelled_with_its_loop": "had not ended when its event loop was closed",
    "left_in_a_loop_that_is_closed": "is about to send",
    "left_in_a_loop_that_stands_still": "which is about to send",
}


@pytest.fixture(params=ENGINES)
def explored(request: pytest.FixtureRequest, explore: Any, worlds: Worlds) -> Callable[..., Any]:
    """Explore a handler on this engine."""
    engine = request.param

    def run(build: Any, **options: Any) -> Any:
        return explore(
            lambda store: build(BOOKS[engine](store)),
            **{"messages": [deposit(1)], "world": worlds(engine, ("customers",), FEES), "observe": SEEN[engine], **options},
        )

    return run


@pytest.mark.parametrize("name", handlers_in(wrong_tasks))
@pytest.mark.few(5)
def test_a_mistake_with_tasks_is_found_in_one_delivery(explored: Any, name: str) -> None:
    bounds = {"concurrency": 1} if name in WITH_A_REDELIVERY else ALONE if name in WITH_A_FAULT else UNDISTURBED
    report = explored(getattr(wrong_tasks, name), **bounds)
    found = report.counterexample
    assert found is not None, report
    assert report.nondeterministic is None
    assert found.observed not in found.expected
    replayed = explored(getattr(wrong_tasks, name), **bounds, replay=found.replay_code)
    assert replayed.counterexample == found


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.few(6)
def test_unfinished_work_of_a_handler_is_refused_by_name(explored: Any, name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        explored(getattr(left_behind, name))
    assert str(refused.value).startswith("m1, delivery 1 has returned and left ")
    assert LEFT[name] in str(refused.value)


def test_every_handler_with_unfinished_work_is_tested() -> None:
    assert sorted(LEFT) == sorted(handlers_in(left_behind))


@pytest.mark.parametrize("name", handlers_in(right_tasks))
@pytest.mark.few(1)
def test_work_in_tasks_takes_effect_once_in_every_schedule(explored: Any, name: str) -> None:
    report = explored(getattr(right_tasks, name))
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gathered", "grouped"])
def test_work_in_tasks_takes_effect_once_with_a_ticking_clock(explored: Any, worlds: Worlds, name: str) -> None:
    """Two messages, and a minute goes by with each look at the clock."""

    def build(books: Any) -> Any:
        minutes = iter(range(1_790_000_000, 1_800_000_000, 60))
        books._guarded = type(books)(getattr(books, "_accounts", None), clock=lambda: float(next(minutes)))._guarded
        return getattr(right_tasks, name)(books)

    explored(build, messages=[deposit(1)]).assert_effectively_once()
