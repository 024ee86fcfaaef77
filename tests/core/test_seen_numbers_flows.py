"""What a ledger of numbers makes of races, request by request: the flows are driven by hand, with the answers of MongoDB."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from onewrite import Applied, Duplicate, Message, Missing, Outcome, Rejected, SeenNumbers, Stale
from onewrite.core.flow import Call, Flow
from onewrite.mongodb.flows import Flows
from tests.support.driven import Collection, play, reply

NOW = 1_790_000_000.0
LEDGER = SeenNumbers(8)  # blocks of two in five slots
M10 = Message("m10", source="s", sequence=10)
QUERY: dict[str, Any] = {"_id": "e"}
OPEN: dict[str, Any] = {"_id": "e", "closed": None}
MATCHED, MISSED = reply(1), reply()
RACE = DuplicateKeyError("dup", 11000, {"keyPattern": {"_id": 1}})
TAG, SET = "ow_@.%w8=s.t0", "ow_@.%w8=s.s0"


def update(query: dict[str, Any] = QUERY, change: Any = None, *, upsert: bool = False) -> Flow[Outcome]:
    flows = Flows(Collection(), LEDGER, lambda: NOW, (), "majority", is_async=False)
    return flows.write(M10, query, change or {"$inc": {"n": 1}}, {"upsert": upsert}, "update_one")


def held(tag: int | None, *numbers: int) -> dict[str, Any]:
    slot = {} if tag is None else {"t0": tag, "s0": [*numbers]}
    return {"_id": "e", "n": 1, "ow_l": "ow1 numbers 8", "ow_@": {"%w8=s": slot}}


def forms(calls: list[Call]) -> list[str]:
    """The form of each write among the requests."""
    writes = [call.args[1] for call in calls if call.method == "update_one"]
    return ["joins" if "$push" in write else "enters" for write in writes]


def test_the_first_write_joins_a_block_and_the_second_enters_it() -> None:
    outcome, calls = play(update(), MISSED, held(0, 1), MATCHED)
    assert isinstance(outcome, Applied)
    first, _, second = calls
    slot_is_free = {TAG: {"$exists": False}}
    alone = {f"{TAG}.0": {"$exists": False}}
    assert first.args[0]["$and"] == [{"$or": [slot_is_free, {TAG: {"$eq": 5}, **alone}]}, {SET: {"$ne": 10}}]
    assert first.args[1] == {"$inc": {"n": 1}, "$set": {"ow_l": "ow1 numbers 8", TAG: 5}, "$push": {SET: 10}}
    assert second.args[0]["$and"] == [{TAG: {"$lt": 5}, **alone}]
    assert second.args[1] == {"$inc": {"n": 1}, "$set": {"ow_l": "ow1 numbers 8", TAG: 5, SET: [10]}}


def test_a_pipeline_enters_a_block_too_and_overwrites_nothing_of_another_kind() -> None:
    outcome, calls = play(update(change=[{"$set": {"n": 2}}]), MISSED, held(0, 1), MATCHED)
    assert isinstance(outcome, Applied)
    first, second = (call.args for call in calls if call.method == "update_one")
    assert first[1][1]["$set"][SET] == {"$concatArrays": [{"$ifNull": [f"${SET}", []]}, {"$literal": [10]}]}
    assert second[1][1]["$set"][SET] == {"$literal": [10]}
    kinds = [
        {"$or": [{path: {"$exists": False}}, {path: {"$type": "object", "$not": {"$type": "array"}}}]}
        for path in ("ow_@", "ow_@.%w8=s")
    ]
    assert second[0]["$and"][1:] == kinds
    assert first[0]["$and"][2:] == [*kinds, {"$or": [{SET: {"$exists": False}}, {SET: {"$type": "array"}}]}]


@pytest.mark.parametrize(
    ("looks", "expected", "kinds"),
    [
        ([held(0), held(5, 11)], Applied, ["joins", "enters", "joins"]),  # another has entered the block
        # others came late, and on time
        ([held(None), held(0), held(5, 11)], Applied, ["joins", "joins", "enters", "joins"]),
        ([held(0), held(5, 10)], Duplicate, ["joins", "enters"]),
        ([held(0), held(10, 20)], Stale, ["joins", "enters"]),
    ],
)
def test_each_writer_that_comes_in_between_costs_one_write_and_one_look(
    looks: list[Any], expected: type[Outcome], kinds: list[str]
) -> None:
    refusals = [answer for look in looks for answer in (MISSED, look)]
    outcome, calls = play(update(OPEN), *refusals, *([MATCHED] if expected is Applied else []))
    assert isinstance(outcome, expected)
    assert forms(calls) == kinds


@pytest.mark.parametrize("tag", [None, 0, 5])
def test_a_refusal_is_the_callers_own_only_where_two_looks_show_the_same_slot(tag: int | None) -> None:
    outcome, calls = play(update(OPEN), MISSED, held(tag), MISSED, held(tag), None)
    assert outcome == Rejected(M10, {"_id": "e", "n": 1})
    assert forms(calls) == ["joins", "enters" if tag == 0 else "joins"]


def test_an_upsert_that_meets_an_older_block_enters_it_without_creating() -> None:
    outcome, calls = play(update(upsert=True), RACE, held(0, 1), MATCHED)
    assert isinstance(outcome, Applied)
    assert [call.kwargs["upsert"] for call in calls if call.method == "update_one"] == [True, False]


def test_a_missing_entity_is_told_at_once_and_one_that_goes_round_for_ever_lets_the_message_come_again() -> None:
    assert play(update(), MISSED, None)[0] == Missing(M10)
    looks = [answer for n in range(6) for answer in (MISSED, held(n % 2))]  # deleted and created all the time
    assert play(update(), *looks)[0] == Rejected(M10, None, settled=False)
