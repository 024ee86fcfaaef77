"""What a guarded collection does with several messages: the requests, and each answer that MongoDB can give to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo import ReturnDocument
from pymongo.errors import DocumentTooLarge, DuplicateKeyError, OperationFailure, WriteConcernError

from onewrite import (
    Applied,
    Deferred,
    Duplicate,
    EntityTooLarge,
    Event,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    MessageIDs,
    Outbox,
    Rejected,
    SeenIds,
    Stale,
)
from onewrite.core.flow import Call
from onewrite.core.ledgers import Ledger
from onewrite.mongodb.dialect import step_path
from onewrite.mongodb.flows import Flows
from onewrite.mongodb.folds import fold_into
from tests.support.driven import Collection, play_requests, reply

NOW = 1_790_000_000.0
OTHER = {"$exists": False}
OBJECT = {"$type": "object", "$not": {"$type": "array"}}
QUERY: dict[str, Any] = {"_id": "o-1"}
OPEN_ONLY: dict[str, Any] = {"_id": "o-1", "closed": OTHER}
ENTITY: dict[str, Any] = {"_id": "o-1", "n": 1}
IN_TRANSACTION: Any = SimpleNamespace(in_transaction=True)
BY_ID: dict[str, Any] = {"_id_": {"key": [("_id", 1)]}}
M4, M5, M6 = (Message(f"m{n}", source="s", sequence=n) for n in (4, 5, 6))
OTHERS = Message("x1", source="t", sequence=1)
# Of the source "s" and the ids "m4", "m5" and "m6".
HASHES = [bytes.fromhex(each) for each in ("dc96f0811e6071696f18", "e2925dfad35a3323aea4", "9a23c1da928532fde365")]


LANDED, CREATED, NOTHING = reply(1), reply(1, upserted="o-1"), reply()


def flows(ledger: Ledger, *, clock: Callable[[], float] = lambda: NOW, **more: Any) -> Flows:
    store = Flows(Collection(), ledger, clock, more.pop("fields", ()), "majority", is_async=False, **more)
    store._indexes = BY_ID
    return store


def adding(query: Any = QUERY, **native: Any) -> Callable[[list[Message]], dict[str, Any]]:
    def function(fresh: list[Message]) -> dict[str, Any]:
        return {"filter": query, "update": {"$inc": {"n": len(fresh)}}, **native}

    return function


def fold(
    ledger: Ledger, messages: Sequence[Message], function: Any = None, *answers: Any, **more: Any
) -> tuple[list[Any], list[Call]]:
    return play_requests(fold_into(flows(ledger, **more), messages, function or adding()), *answers)


def methods(calls: list[Call]) -> list[str]:
    return [("upsert" if call.kwargs.get("upsert") else call.method) for call in calls]


def lost_race() -> DuplicateKeyError:
    return DuplicateKeyError("E11000", 11000, {"keyPattern": {"_id": 1}})


def seen(*hashes: bytes) -> dict[str, Any]:
    return {**ENTITY, "ow_l": "ow1 14d", "ow_r": {"r1": [*hashes]}}


def marked(**marks: int) -> dict[str, Any]:
    return {**ENTITY, "ow_l": "ow1 marks", "ow_@": marks}


# --- the request ------------------------------------------------------------------------------------------------------

M4_STEP, M5_STEP, M6_STEP, OTHERS_STEP = ({step_path("ow_l", each): OTHER} for each in (M4, M5, M6, OTHERS))
IDS_LABEL: dict[str, Any] = {"ow_tombstone": OTHER, "ow_l": {"$in": [None, "ow1 14d"]}}
MARKS_LABEL: dict[str, Any] = {"ow_tombstone": OTHER, "ow_l": {"$in": [None, "ow1 marks"]}}
DROPS = {"ow_r.r2": "", "ow_r.r3": "", "ow_r.r5": ""}


def sent(ledger: Ledger, messages: Sequence[Message], function: Any = None) -> tuple[Any, Any]:
    _, (call,) = fold(ledger, messages, function, LANDED)
    return call.args[0], call.args[1]


def test_ids_of_one_set_are_one_condition_and_one_push() -> None:
    query, update = sent(SeenIds(), [M4, M5, M6])
    lacks = {f"ow_r.{slot}": {"$nin": HASHES} for slot in ("r4", "r0", "r1")}
    assert query == {**QUERY, **IDS_LABEL, **lacks, **M4_STEP, **M5_STEP, **M6_STEP}
    assert update == {
        "$inc": {"n": 3},
        "$set": {"ow_l": "ow1 14d"},
        "$push": {"ow_r.r1": {"$each": HASHES}},
        "$unset": DROPS,
    }


def test_ids_that_may_have_been_kept_by_hand_are_looked_for_in_both_spellings() -> None:
    query, update = sent(MessageIDs(), [M4, M5])
    assert query["messageIDs"] == {"$nin": ["@s/m4", "m4", "@s/m5", "m5"]}
    assert update["$push"] == {"messageIDs": {"$each": ["@s/m4", "@s/m5"]}}


def below(source: str, first: int) -> dict[str, Any]:
    """What is asked of the mark of a source."""
    mark = f"ow_@.{source}"
    return {"$or": [{mark: OTHER}, {mark: {"$lt": first}, f"{mark}.0": OTHER}]}


def test_the_mark_of_a_source_moves_to_its_last_message_if_it_is_below_the_first() -> None:
    query, update = sent(HighWaterMark(), [M6, OTHERS, M4])
    assert query == {**QUERY, **MARKS_LABEL, **M4_STEP, **M6_STEP, **OTHERS_STEP, "$and": [below("s", 4), below("t", 1)]}
    assert update == {"$inc": {"n": 3}, "$set": {"ow_l": "ow1 marks", "ow_@.s": 6, "ow_@.t": 1}}


def test_a_source_without_gaps_begins_where_it_ended_or_with_its_first() -> None:
    query, update = sent(InSequence(), [M4, M5, OTHERS])
    assert query["$and"] == [
        {"ow_@.s": 3, "ow_@.s.0": OTHER},
        {"$or": [{"ow_@.t": OTHER}, {"ow_@.t": 0, "ow_@.t.0": OTHER}]},
    ]
    assert update["$set"] == {"ow_l": "ow1 marks", "ow_@.s": 5, "ow_@.t": 1}


def test_an_earlier_ledger_is_asked_about_each_message_and_not_written() -> None:
    query, update = sent(SeenIds(also=HighWaterMark()), [M4, M5, OTHERS])
    assert query["$and"] == [below("s", 4), below("t", 1)]
    assert update["$set"] == {"ow_l": "ow1 14d"}


def test_an_earlier_ledger_of_ids_is_asked_about_each_of_the_messages_that_move_one_mark() -> None:
    query, _ = sent(HighWaterMark(also=SeenIds(retention=None)), [M4, M5])
    assert query["ow_all"] == {"$nin": HASHES[:2]}


def test_a_pipeline_takes_the_marks_of_all_messages_in_one_stage() -> None:
    change = {"$set": {"n": {"$add": ["$n", 1]}}}
    query, update = sent(SeenIds(), [M4, M5], lambda _: {"filter": QUERY, "update": [change]})
    group, path = "ow_r", "ow_r.r1"
    assert query["$and"] == [
        {"$or": [{group: OTHER}, {group: OBJECT}]},
        {"$or": [{path: OTHER}, {path: {"$type": "array"}}]},
    ]
    assert update[0] == change
    assert update[1]["$set"][path] == {"$concatArrays": [{"$ifNull": [f"${path}", []]}, {"$literal": HASHES[:2]}]}
    assert {name for name, value in update[1]["$set"].items() if value == "$$REMOVE"} == {*DROPS}


def test_a_pipeline_moves_the_marks_of_all_sources() -> None:
    change = {"$set": {"n": {"$add": ["$n", 1]}}}
    query, update = sent(HighWaterMark(), [M4, M5, OTHERS], lambda _: {"filter": QUERY, "update": [change]})
    assert query["$and"][-1] == {"$or": [{"ow_@": OTHER}, {"ow_@": OBJECT}]}
    assert len(query["$and"]) == 3
    assert update[1] == {"$set": {"ow_l": {"$literal": "ow1 marks"}, "ow_@.s": {"$literal": 5}, "ow_@.t": {"$literal": 1}}}


def test_all_marks_go_into_the_set_of_one_moment_however_long_the_function_takes() -> None:
    years = count(NOW, 400 * 86_400)
    _, (call,) = fold(SeenIds(), [M4, M5, M6], None, LANDED, clock=lambda: next(years))
    update = call.args[1]
    assert [len(marks["$each"]) for marks in update["$push"].values()] == [3]
    assert {*update["$push"]}.isdisjoint(update["$unset"])


@pytest.mark.parametrize(
    ("native", "options"),
    [
        ({"filter": QUERY}, {"upsert": True}),
        ({"filter": QUERY, "upsert": False}, {"upsert": False}),
        ({"filter": QUERY, "session": IN_TRANSACTION}, {"upsert": False, "session": IN_TRANSACTION}),
    ],
    ids=["by id", "told not to", "in a transaction"],
)
def test_without_an_update_messages_are_recorded_as_single_ones_are(native: Any, options: Any) -> None:
    _, (call,) = fold(SeenIds(), [M4, M5], lambda _: native, LANDED)
    assert call.kwargs == options
    assert set(call.args[1]) == {"$set", "$push", "$unset"}


@pytest.mark.parametrize("n", [1, 2])
def test_where_the_document_is_asked_for_it_is_the_entity_of_each_outcome(n: int) -> None:
    function = adding(return_document=ReturnDocument.AFTER)
    outcomes, (call,) = fold(SeenIds(), [M4, M5][:n], function, {**seen(*HASHES[:2]), "n": 2})
    assert outcomes == [Applied(each, {"_id": "o-1", "n": 2}) for each in [M4, M5][:n]]
    assert call.method == "find_one_and_update"


def test_each_event_is_stored_with_the_message_that_led_to_it() -> None:
    function = adding(emit=[Event("Added", 1, cause=M5), Event("Added", 2, cause=M4.id)])
    _, (call,) = fold(SeenIds(), [M4, M5], function, LANDED, outbox=Outbox("shop"), attempts=lambda: "a")
    pushed = call.args[1]["$push"]
    assert [event["cause"] for event in pushed["ow_events"]["$each"]] == ["m5", "m4"]
    assert pushed["ow_r.r1"] == {"$each": HASHES[:2]}


# --- the answers ------------------------------------------------------------------------------------------------------


def test_a_fold_that_lands_is_one_request_and_each_outcome_has_the_drivers_answer() -> None:
    outcomes, calls = fold(SeenIds(), [M5, M4], adding(hint="_id_"), LANDED)
    assert outcomes == [Applied(M5), Applied(M4)]
    assert [outcome.response for outcome in outcomes] == [LANDED, LANDED]
    assert calls[0].kwargs == {"upsert": False, "hint": "_id_"}


def test_duplicates_are_told_by_a_look_and_the_rest_is_written_with_what_the_function_says_of_it() -> None:
    outcomes, calls = fold(SeenIds(), [M4, M5, M6], None, NOTHING, seen(HASHES[1]), LANDED)
    assert outcomes == [Applied(M4), Duplicate(M5, ENTITY), Applied(M6)]
    assert methods(calls) == ["update_one", "find_one", "update_one"]
    assert calls[2].args[1]["$inc"] == {"n": 2}


def test_a_race_to_create_is_tried_again_at_once_for_all() -> None:
    outcomes, calls = fold(SeenIds(), [M4, M5], adding(upsert=True), lost_race(), ENTITY, LANDED)
    assert outcomes == [Applied(M4), Applied(M5)]
    assert methods(calls) == ["upsert", "find_one", "update_one"]
    assert calls[0].args == calls[2].args


def test_a_document_that_was_created_and_deleted_meanwhile_is_created_at_once() -> None:
    answers = [lost_race(), None, NOTHING, None, CREATED]
    outcomes, calls = fold(SeenIds(), [M4, M5], adding(upsert=True), *answers)
    assert outcomes == [Applied(M4), Applied(M5)]
    assert methods(calls) == ["upsert", "find_one", "update_one", "find_one", "upsert"]


def test_a_document_that_comes_and_goes_is_the_drivers_failure_in_the_end() -> None:
    errors = [lost_race() for _ in range(3)]
    answers = [answer for error in errors for answer in (error, None, NOTHING, None)]
    with pytest.raises(DuplicateKeyError) as raised:
        fold(SeenIds(), [M4, M5], adding(upsert=True), *answers)
    assert raised.value is errors[-1]


def test_a_gap_that_was_filled_before_the_look_is_tried_once_more_for_all() -> None:
    outcomes, calls = fold(InSequence(), [M4, M5], None, NOTHING, marked(s=3), LANDED)
    assert outcomes == [Applied(M4), Applied(M5)]
    assert methods(calls) == ["update_one", "find_one", "update_one"]


def test_what_follows_a_gap_creates_nothing_whatever_place_it_has_in_the_fold() -> None:
    outcomes, calls = fold(InSequence(), [OTHERS, M4], adding(upsert=True), NOTHING, None, CREATED)
    assert outcomes == [Applied(OTHERS), Deferred(M4, 1)]
    assert methods(calls) == ["update_one", "find_one", "upsert"]


def test_what_the_condition_refuses_is_sent_again_one_by_one_and_the_look_alone_refuses_none() -> None:
    answers = [NOTHING, ENTITY, LANDED, NOTHING, ENTITY, None]
    outcomes, calls = fold(SeenIds(), [M4, M5], adding(OPEN_ONLY), *answers)
    assert outcomes == [Applied(M4), Rejected(M5, ENTITY)]
    assert methods(calls) == ["update_one", "find_one", "update_one", "update_one", "find_one", "find_one"]
    assert [call.args[1].get("$inc") for call in calls if call.method == "update_one"] == [{"n": 2}, {"n": 1}, {"n": 1}]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upsert", [False, True])
def test_a_unique_index_of_the_callers_own_is_the_callers_business(upsert: bool) -> None:
    error = DuplicateKeyError("E11000", 11000, {"keyPattern": {"phone": 1}})
    with pytest.raises(DuplicateKeyError) as raised:
        fold(SeenIds(), [M4, M5], adding(upsert=upsert), error, *([None] if upsert else []))
    assert raised.value is error


def test_a_write_that_may_have_landed_leaves_its_failure_to_the_caller_without_a_look() -> None:
    error = WriteConcernError("wtimeout", 64)
    with pytest.raises(WriteConcernError) as raised:
        fold(SeenIds(), [M4, M5], adding(upsert=True), error)
    assert raised.value is error


@pytest.mark.parametrize("error", [OperationFailure("no", 17419), DocumentTooLarge("no")])
def test_what_makes_the_document_too_large_is_halved(error: Exception) -> None:
    outcomes, calls = fold(SeenIds(), [M4, M5, M6, OTHERS], None, error, ENTITY, LANDED, LANDED)
    assert [type(outcome) for outcome in outcomes] == [Applied] * 4
    assert methods(calls) == ["update_one", "find_one", "update_one", "update_one"]
    assert [call.args[1]["$inc"] for call in calls if call.method == "update_one"] == [{"n": 4}, {"n": 2}, {"n": 2}]


def test_one_message_that_makes_the_document_too_large_is_the_error_and_those_before_it_are_written() -> None:
    error = OperationFailure("no", 17419)
    flow = fold_into(flows(SeenIds()), [M4, M5], adding())
    with pytest.raises(EntityTooLarge, match="would exceed"):
        play_requests(flow, error, ENTITY, LANDED, error, ENTITY)


def test_in_a_transaction_that_is_aborted_nothing_is_looked_for() -> None:
    error = OperationFailure("no", 17419)
    with pytest.raises(OperationFailure) as raised:
        fold(SeenIds(), [M4, M5], adding(session=IN_TRANSACTION), error)
    assert raised.value is error


def test_a_request_that_is_too_large_to_be_sent_is_halved_also_in_a_transaction() -> None:
    outcomes, _ = fold(SeenIds(), [M4, M5], adding(session=IN_TRANSACTION), DocumentTooLarge("no"), LANDED, LANDED)
    assert outcomes == [Applied(M4), Applied(M5)]


def test_something_else_in_the_place_of_the_outbox_is_a_mismatch() -> None:
    function = adding(emit=[Event("Added", 1, cause=M4)])
    with pytest.raises(LedgerMismatch, match="outbox"):
        fold(SeenIds(), [M4, M5], function, NOTHING, {**ENTITY, "ow_events": "x"}, outbox=Outbox("shop"))


# --- misuse -----------------------------------------------------------------------------------------------------------


def test_a_last_sequence_that_does_not_fit_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidMessage, match="Sequence 9223372036854775808 does not fit"):
        fold(HighWaterMark(), [M4, Message("m", source="s", sequence=2**63)])


@pytest.mark.parametrize(
    ("native", "error"),
    [
        ({"filter": {"status": "new"}}, "none that names one entity"),
        ({"filter": QUERY, "update": {}}, "leave it out"),
        ({"filter": QUERY, "update": [{"$replaceWith": {}}]}, "would erase"),
        ({"filter": QUERY, "upsert": True, "session": IN_TRANSACTION}, "in a transaction is refused"),
    ],
)
def test_what_a_single_write_refuses_a_fold_refuses(native: Any, error: str) -> None:
    with pytest.raises(InvalidUpdate, match=error):
        fold(SeenIds(), [M4, M5], lambda _: native)


def test_under_a_collation_that_may_take_two_marks_for_one_nothing_is_sent() -> None:
    with pytest.raises(InvalidUpdate, match="collation"):
        fold(SeenIds(readable=True), [M4, M5], adding(collation={"locale": "en", "strength": 1}))


# --- others who write at the same time ----------------------------------------------------------------------------------


def test_what_others_move_between_all_looks_is_sent_one_by_one_in_the_end() -> None:
    batch = [Message(f"{source}2", source=source, sequence=2) for source in "stu"]
    looks = [marked(s=1, t=1), marked(s=2, t=1, u=1), marked(s=2, t=2, u=1)]
    outcomes, calls = fold(InSequence(), batch, None, *[answer for look in looks for answer in (NOTHING, look)], LANDED)
    assert [type(outcome) for outcome in outcomes] == [Duplicate, Duplicate, Applied]
    assert [call.args[1]["$inc"]["n"] for call in calls if call.method == "update_one"] == [3, 2, 2, 1]


def test_a_source_that_others_have_moved_meanwhile_is_asked_about_again() -> None:
    answers = [NOTHING, marked(s=3)] * 2 + [NOTHING, marked(s=6)] * 2
    outcomes, _ = fold(InSequence(), [M4, M5], adding(OPEN_ONLY), *answers)
    assert outcomes == [Stale(M4, 6, ENTITY), Stale(M5, 6, ENTITY)]
