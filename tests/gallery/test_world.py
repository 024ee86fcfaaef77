"""What happens to handlers in the world: processes, races of upserts, outages, errors of each class, other company."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from onewrite.testing import sqs_event
from tests.gallery import right_world, wrong_world
from tests.gallery.banking import Case, list_on_engines
from tests.gallery.cases import Worlds, contents, deposit, handlers_in

ON_MONGODB = ("mongodb",)
ONE = (deposit(1),)
BATCH = (sqs_event("1", "2"),)


def and_beside(store: Any) -> Any:
    return contents({"store": store, "effects": store.database.effects})


WRONG = {
    "read_and_written_under_a_lock": Case(),
    "in_flight_in_this_process": Case(bounds={"faults": 0}),
    "balance_kept_under_a_lock": Case(bounds={"faults": 0}),
    "acknowledged_while_in_flight": Case(ONE),
    "dropped_when_busy": Case(),
    "left_to_the_first": Case(),
    "marked_before_an_effect_beside": Case(ONE, ON_MONGODB, observe=and_beside),
    "upserted_by_a_field": Case(ONE, ON_MONGODB, observe=lambda store: store.count_documents({})),
    "found_and_upserted_by_a_field": Case(ONE, ON_MONGODB, observe=lambda store: store.count_documents({})),
    "duplicate_key_taken_for_a_duplicate": Case(engines=ON_MONGODB),
    "replaced_in_bulk": Case(engines=ON_MONGODB),
    "batch_under_its_first_record": Case(BATCH),
    "batch_under_all_its_records": Case(BATCH),
    "record_under_its_place": Case(BATCH),
    "record_taken_back_if_alone": Case(BATCH),
    "timeout_taken_for_success": Case(ONE),
    "error_of_the_server_swallowed": Case(ONE),
    "other_throttling_swallowed": Case(ONE),
    "connection_timeout_swallowed": Case(ONE),
    "closed_connection_taken_for_success": Case(ONE),
    "tried_three_times_and_logged": Case(ONE),
    "tried_again_and_left": Case(ONE),
    "parked_after_five_tries": Case(ONE),
    "given_up_at_the_second_receipt": Case(BATCH),
    "record_under_its_receipt": Case(BATCH),
}
RIGHT = {
    "written_under_a_lock": Case(ONE),
    "limited_by_a_semaphore": Case(ONE),
    "taken_from_a_queue": Case(ONE),
    "sent_back_while_in_flight": Case(ONE),
    "tried_three_times_and_sent_back": Case(ONE),
    "tried_until_it_is_done": Case(),
    "added_by_hand": Case(),
    "each_record_under_its_id": Case(BATCH),
    "warned_of_at_the_second_receipt": Case(BATCH),
    "slept_between_two_reads": Case(),
}


# These take the longest, and the other engine proves the same.
SLOW = {("sent_back_while_in_flight", "mongodb"), ("limited_by_a_semaphore", "dynamodb"), ("taken_from_a_queue", "dynamodb")}


@pytest.mark.parametrize(("name", "engine"), list_on_engines(WRONG))
@pytest.mark.few(5)
def test_handler_that_ignores_a_possible_fault_is_found(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    build = getattr(wrong_world, name)
    report = WRONG[name].run(explore, worlds, engine, build)
    assert report.counterexample is not None
    replayed = WRONG[name].run(explore, worlds, engine, build, replay=report.counterexample.replay_code)
    assert replayed.counterexample.observed == report.counterexample.observed


@pytest.mark.parametrize(("name", "engine"), list_on_engines(RIGHT, slow=SLOW))
@pytest.mark.few(4)
def test_handler_that_tolerates_every_fault_passes(explore: Any, worlds: Worlds, engine: str, name: str) -> None:
    report = RIGHT[name].run(explore, worlds, engine, getattr(right_world, name))
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.parametrize(("handlers", "tried"), [(wrong_world, WRONG), (right_world, RIGHT)])
def test_every_handler_is_tested(handlers: ModuleType, tried: Mapping[str, Any]) -> None:
    assert sorted(tried) == sorted(handlers_in(handlers))
