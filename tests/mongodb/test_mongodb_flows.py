"""What a guarded collection does step by step: each flow is driven by hand, with the answers that MongoDB would give."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import (
    AutoReconnect,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
    WTimeoutError,
)
from pymongo.read_concern import ReadConcern

from onewrite import (
    Applied,
    Begun,
    ConfigurationError,
    Deferred,
    Duplicate,
    EntityTooLarge,
    HighWaterMark,
    InSequence,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    Missing,
    Rejected,
    SeenIds,
    Stale,
)
from onewrite.core.flow import Call, Flow
from onewrite.core.ledgers import Ledger
from onewrite.core.step import Step, step_mark
from onewrite.mongodb.flows import LARGEST_DOCUMENT, Flows, is_of_entity
from tests.support.driven import play, reply

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
QUERY: dict[str, Any] = {"_id": "o-1"}
OPEN_ONLY: dict[str, Any] = {"_id": "o-1", "closed": {"$exists": False}}
UPDATE: dict[str, Any] = {"$inc": {"n": 1}}
ENTITY: dict[str, Any] = {"_id": "o-1", "n": 1}
SEEN: dict[str, Any] = {**ENTITY, "ow_l": "ow1 14d", "ow_r": {"r1": [HASH]}}
FOURTH: dict[str, Any] = {**ENTITY, "ow_l": "ow1 marks", "ow_@": {"s": 4}}
BY_ID: dict[str, Any] = {"_id_": {"key": [("_id", 1)]}}
IN_TRANSACTION: Any = SimpleNamespace(in_transaction=True)


class Collection:
    """A collection as the flows see it when they are made; they are then driven by hand."""

    name = "orders"
    write_concern = WriteConcern(wtimeout=500)

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def with_options(self, **asked: Any) -> Collection:
        copy = type(self)()
        copy.asked = asked
        return copy


LANDED, CREATED, NOTHING = reply(1), reply(1, upserted="o-1"), reply()


def flows(ledger: Ledger, *, fields: Any = (), now: float = NOW) -> Flows:
    return Flows(Collection(), ledger, lambda: now, fields, "majority", is_async=False)


def in_use(ledger: Ledger) -> Flows:
    """A store that has seen that its collection has an index on `_id`."""
    store = flows(ledger)
    store._indexes = BY_ID
    return store


def write(ledger: Ledger, query: Any = QUERY, /, update: Any = None, **native: Any) -> Flow[Any]:
    return flows(ledger).write(M5, query, update or UPDATE, writer="update_one", **native)


def methods(steps: list[Call]) -> list[str]:
    return [("upsert" if step.kwargs.get("upsert") else step.method) for step in steps]


def lost_race(**details: Any) -> DuplicateKeyError:
    return DuplicateKeyError("E11000", 11000, {"keyPattern": {"_id": 1}, **details})


def raised_by(flow: Flow[Any], *answers: Any) -> PyMongoError:
    """What the caller sees: the driver's own error, with nothing around it."""
    with pytest.raises(PyMongoError) as raised:
        play(flow, *answers)
    assert raised.value.__cause__ is None
    return raised.value


# --- a write ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "expected"),
    [(SEEN, Duplicate(M5, ENTITY)), (ENTITY, Rejected(M5, ENTITY)), (None, Missing(M5))],
    ids=["seen", "refused", "missing"],
)
def test_a_write_that_matches_nothing_is_explained_by_a_look(found: Any, expected: object) -> None:
    native = {"session": None, "comment": "c", "collation": {"locale": "simple"}, "hint": "_id_"}
    outcome, steps = play(write(SeenIds(), OPEN_ONLY, **native), NOTHING, found, *([None] if found is ENTITY else []))
    assert outcome == expected
    assert steps[1] == Call("find_one", (QUERY,), {"session": None, "comment": "c", "collation": {"locale": "simple"}})


@pytest.mark.parametrize(
    "native", [{"query": {"_id": 2}}, {"writeConcern": {"w": 0}}, {"fields": {"all": "$$ROOT"}, "new": True}], ids=str
)
def test_what_pymongo_would_put_into_a_command_beside_or_over_ours_is_refused_unsent(native: Any) -> None:
    with pytest.raises(InvalidUpdate, match=f"takes no {', '.join(sorted(native))}"):
        play(flows(SeenIds()).write(M5, QUERY, UPDATE, writer="find_one_and_update", **native))


def test_an_upsert_that_lost_the_race_to_create_is_tried_again_without_upsert() -> None:
    outcome, steps = play(write(SeenIds(), upsert=True), lost_race(), ENTITY, LANDED)
    assert outcome == Applied(M5)
    assert methods(steps) == ["upsert", "find_one", "update_one"]


def test_an_entity_that_is_created_and_deleted_again_and_again_is_the_drivers_failure_in_the_end() -> None:
    errors = [lost_race() for _ in range(3)]
    answers = [answer for error in errors for answer in (error, None, NOTHING, None)]
    assert raised_by(write(SeenIds(), upsert=True), *answers) is errors[-1]


def test_an_upsert_that_matched_nothing_and_created_nothing_is_tried_again() -> None:
    outcome, steps = play(write(SeenIds(), upsert=True), lost_race(), None, NOTHING, None, CREATED)
    assert outcome == Applied(M5)
    assert methods(steps) == ["upsert", "find_one", "update_one", "find_one", "upsert"]


def test_a_gap_that_was_filled_before_the_look_is_tried_once_more() -> None:
    outcome, steps = play(write(InSequence()), NOTHING, FOURTH, LANDED)
    assert outcome == Applied(M5)
    assert methods(steps) == ["update_one", "find_one", "update_one"]


def test_a_condition_that_holds_by_the_time_of_the_look_is_tried_once_more() -> None:
    outcome, steps = play(write(SeenIds(), OPEN_ONLY), NOTHING, ENTITY, {"_id": "o-1"}, LANDED)
    assert outcome == Applied(M5)
    assert methods(steps) == ["update_one", "find_one", "find_one", "update_one"]
    assert steps[2].args == (OPEN_ONLY,)


def test_a_write_asks_for_its_own_messages_step_alone() -> None:
    _, (step,) = play(write(SeenIds()), LANDED)
    assert step.args[0][f"ow_steps.{step_mark('ow_l', M5).hex()}"] == {"$exists": False}
    assert "ow_steps" not in step.args[0]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [121, 54, 17124, 2, 11000])
def test_an_upsert_that_fails_after_the_message_is_in_is_a_duplicate(code: int) -> None:
    error = lost_race() if code == 11000 else OperationFailure("no", code)
    outcome, steps = play(write(SeenIds(), upsert=True), error, SEEN)
    assert outcome == Duplicate(M5, ENTITY)
    assert methods(steps) == ["upsert", "find_one"]


@pytest.mark.parametrize("code", [121, 54, 17124, 91])
def test_an_upsert_that_fails_where_there_is_no_entity_is_the_drivers_failure(code: int) -> None:
    error = OperationFailure("no", code)
    assert raised_by(write(SeenIds(), upsert=True), error, None) is error


@pytest.mark.parametrize("code", [121, 54, 17124])
def test_an_upsert_that_fails_where_the_entity_refuses_the_message_is_a_refusal(code: int) -> None:
    outcome, steps = play(
        write(SeenIds(), OPEN_ONLY, upsert=True), OperationFailure("no", code), ENTITY, NOTHING, ENTITY, None
    )
    assert outcome == Rejected(M5, ENTITY)
    assert methods(steps) == ["upsert", "find_one", "update_one", "find_one", "find_one"]


@pytest.mark.parametrize(
    ("details", "entity", "expected"),
    [
        ({"keyPattern": {"_id": 1}}, {"_id": 1}, True),
        ({"keyPattern": {"email": 1}}, {"_id": 1}, False),
        ({"keyPattern": {"_id": 1, "email": 1}}, {"_id": 1}, False),
        ({"keyPattern": {"sku": 1}}, {"sku": 1, "shop": 2}, True),
        ({}, {"_id": 1}, True),
        (None, {"_id": 1}, True),
    ],
)
def test_duplicate_key_is_of_the_entity_or_of_the_caller(details: Any, entity: Any, *, expected: bool) -> None:
    assert is_of_entity(DuplicateKeyError("E11000", 11000, details), entity) is expected


def test_a_callers_own_unique_index_that_refuses_a_creation_is_the_callers_business() -> None:
    error = DuplicateKeyError("E11000", 11000, {"keyPattern": {"phone": 1}})
    assert raised_by(write(SeenIds(), upsert=True), error, None) is error


def test_a_callers_own_unique_index_that_refuses_a_change_is_not_looked_into() -> None:
    error = DuplicateKeyError("E11000", 11000, {"keyPattern": {"phone": 1}})
    assert raised_by(write(SeenIds()), error) is error


@pytest.mark.parametrize("upsert", [False, True])
@pytest.mark.parametrize(
    "error", [WriteConcernError("wtimeout", 64), WTimeoutError("wtimeout", 64), ExecutionTimeout("time is up", 50)]
)
def test_a_write_that_may_have_landed_leaves_its_failure_to_the_caller_without_a_look(
    error: Exception, upsert: bool
) -> None:
    assert raised_by(write(SeenIds(), upsert=upsert), error) is error


def test_where_the_look_fails_too_the_writes_own_failure_is_seen() -> None:
    error = OperationFailure("no", 2)
    assert raised_by(write(SeenIds(), upsert=True), error, AutoReconnect("gone")) is error


def test_where_only_the_look_fails_its_failure_is_seen() -> None:
    gone = AutoReconnect("gone")
    assert raised_by(write(SeenIds()), NOTHING, gone) is gone


@pytest.mark.parametrize("code", [2, 14, 28, 28664])
def test_something_else_in_the_ledgers_place_is_a_mismatch_and_no_failure_of_the_driver(code: int) -> None:
    error = OperationFailure("no", code)
    with pytest.raises(LedgerMismatch, match="'ow_r' holds a str"):
        play(write(SeenIds()), error, {**ENTITY, "ow_r": "x"})


@pytest.mark.parametrize("found", [ENTITY, SEEN, None])
def test_a_failure_about_the_callers_own_content_is_the_drivers(found: Any) -> None:
    error = OperationFailure("no", 14)
    assert raised_by(write(SeenIds()), error, found) is error


def test_an_upserts_failure_about_content_where_there_is_no_entity_is_the_drivers() -> None:
    error = OperationFailure("no", 14)
    assert raised_by(write(SeenIds(), upsert=True), error, None, None) is error


@pytest.mark.parametrize(
    "error", [*(OperationFailure("no", code) for code in (10334, 17419, 17420)), DocumentTooLarge("no")]
)
@pytest.mark.parametrize("found", [SEEN, None], ids=["there", "missing"])
def test_an_entity_that_is_too_large_is_said_with_its_size(error: Exception, found: Any) -> None:
    known = "it has 81 now, 56 of them its ledger's and 25 the caller's own"
    sizes = known if found else r"its present size is not known\. .* the ledger by a shorter retention"
    with pytest.raises(EntityTooLarge, match=sizes) as raised:
        play(write(SeenIds()), error, found)
    assert raised.value.__cause__ is error
    assert "events" not in str(raised.value)


def test_an_upsert_of_an_entity_that_is_full_is_said_to_be_so_once_it_is_sure() -> None:
    first, second = OperationFailure("no", 17419), OperationFailure("no", 17419)
    with pytest.raises(EntityTooLarge) as raised:
        play(write(SeenIds(), upsert=True), first, ENTITY, second, ENTITY)
    assert raised.value.__cause__ is second


def test_nothing_is_looked_for_in_a_transaction_that_is_aborted() -> None:
    error = OperationFailure("no", 14)
    assert raised_by(write(SeenIds(), session=IN_TRANSACTION), error) is error


# --- a refusal in a sequence ------------------------------------------------------------------------------------------


def test_a_message_of_a_sequence_that_the_caller_refuses_moves_the_mark_in_a_second_request() -> None:
    flow = write(InSequence(), OPEN_ONLY, comment="c", hint="_id_")
    outcome, steps = play(flow, NOTHING, FOURTH, NOTHING, FOURTH, None, LANDED)
    assert outcome == Rejected(M5, ENTITY)
    assert outcome.settled
    query, update = steps[-1].args
    assert {"_id": "o-1"}.items() <= query.items()
    assert "closed" not in query
    assert update == {"$set": {"ow_l": "ow1 marks", "ow_@.s": 5}}
    assert steps[-1].kwargs == {"upsert": False, "comment": "c"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, Missing(M5)),  # the entity was deleted meanwhile
        (ENTITY, Rejected(M5, ENTITY, settled=False)),
        ({**ENTITY, "ow_@": {"s": 5}}, Duplicate(M5, ENTITY)),
        ({**ENTITY, "ow_@": {"s": 7}}, Stale(M5, 7, ENTITY)),
    ],
)
def test_what_changed_before_the_mark_could_be_moved_is_told(found: Any, expected: object) -> None:
    outcome, steps = play(write(InSequence(5), OPEN_ONLY), NOTHING, ENTITY, None, NOTHING, found)
    assert outcome == expected
    assert methods(steps) == ["update_one", "find_one", "find_one", "update_one", "find_one"]


def test_what_changed_before_the_mark_could_be_moved_is_shown_as_the_caller_asks_to_see_it() -> None:
    asked: dict[str, Any] = {"projection": {"n": 1}, "comment": "c"}
    flow = flows(InSequence(5)).write(M5, OPEN_ONLY, UPDATE, writer="find_one_and_update", **asked)
    outcome, steps = play(flow, None, ENTITY, None, NOTHING, ENTITY)
    assert outcome == Rejected(M5, ENTITY, settled=False)
    assert steps[-1] == steps[1]
    assert steps[-1].kwargs["projection"].items() >= {"n": 1}.items()


@pytest.mark.parametrize("shown", [{"_id": "o-1", "twice": 2}, None], ids=["there", "deleted meanwhile"])
def test_a_projection_that_computes_is_read_apart_from_what_the_verdict_rests_on(shown: Any) -> None:
    asked: dict[str, Any] = {"projection": {"twice": {"$multiply": ["$n", 2]}}}
    flow = flows(SeenIds()).write(M5, QUERY, UPDATE, writer="find_one_and_update", **asked)
    outcome, steps = play(flow, None, SEEN, shown)
    assert outcome == Duplicate(M5, shown or {})
    assert [step.kwargs.get("projection") for step in steps[1:]] == [None, asked["projection"]]


def test_a_look_does_not_ask_for_the_element_that_only_the_callers_filter_has_matched() -> None:
    asked: dict[str, Any] = {"projection": {"n": 1, "lines.$": 1}}
    flow = flows(SeenIds()).write(M5, {**QUERY, "lines": 1}, UPDATE, writer="find_one_and_update", **asked)
    outcome, steps = play(flow, None, SEEN)
    assert outcome == Duplicate(M5, ENTITY)
    assert steps[1].kwargs["projection"].items() >= {"n": 1, "ow_r": 1}.items()
    assert "lines.$" not in steps[1].kwargs["projection"]


# --- an insert --------------------------------------------------------------------------------------------------------


def insert(ledger: Ledger, **native: Any) -> Flow[Any]:
    return in_use(ledger).insert_one(M5, ENTITY, **native)


def test_a_refused_insert_is_confirmed_by_a_write_that_matches_nothing() -> None:
    held = {"_id": "o-1", "n": 7}
    outcome, steps = play(insert(SeenIds(), comment="c", bypass_document_validation=True), lost_race(), held, NOTHING, held)
    assert outcome == Rejected(M5, held)
    assert methods(steps) == ["insert_one", "find_one", "update_one", "find_one"]
    query, update = steps[2].args
    assert query == {"$and": [{"_id": "o-1"}, {"_id": {"$exists": False}}]}
    assert update == {"$unset": {"ow_tombstone": ""}}
    assert steps[2].kwargs == {"comment": "c"}


def test_a_refused_insert_that_was_not_safe_is_a_duplicate_where_the_second_look_says_so() -> None:
    assert play(insert(SeenIds()), lost_race(), ENTITY, NOTHING, SEEN)[0] == Duplicate(M5, ENTITY)


def test_an_insert_over_nothing_but_a_key_comes_again_in_whatever_form_the_driver_returns_the_key() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    held = {"_id": at.replace(tzinfo=None)}
    flow = in_use(SeenIds()).insert_one(M5, {"_id": at, "n": 1})
    outcome, _ = play(flow, lost_race(), held, NOTHING, held)
    assert outcome == Rejected(M5, held, settled=False)


def test_a_confirmation_that_a_majority_does_not_give_leaves_as_the_driver_raised_it() -> None:
    error = WriteConcernError("wtimeout", 64)
    assert raised_by(insert(SeenIds()), lost_race(), ENTITY, error) is error


def test_an_insert_of_what_was_deleted_meanwhile_is_tried_again() -> None:
    outcome, steps = play(insert(SeenIds()), lost_race(), None, "nothing matched", "the answer")
    assert outcome == Applied(M5)
    assert methods(steps) == ["insert_one", "find_one", "update_one", "insert_one"]


def test_an_insert_of_what_was_deleted_before_the_second_look_is_tried_again() -> None:
    outcome, steps = play(insert(SeenIds()), lost_race(), ENTITY, NOTHING, None, "the answer")
    assert outcome == Applied(M5)
    assert methods(steps) == ["insert_one", "find_one", "update_one", "find_one", "insert_one"]


def test_an_insert_of_what_comes_and_goes_is_the_drivers_failure_in_the_end() -> None:
    errors = [lost_race() for _ in range(6)]
    assert (
        raised_by(insert(SeenIds()), *[answer for error in errors for answer in (error, None, "nothing matched")])
        is errors[-1]
    )


def test_a_callers_own_unique_index_that_refuses_an_insert_is_the_callers_business() -> None:
    error = DuplicateKeyError("E11000", 11000, {"keyPattern": {"email": 1}})
    assert raised_by(insert(SeenIds()), error) is error


@pytest.mark.parametrize("error", [OperationFailure("too large", 2), DocumentTooLarge("too large")])
def test_an_insert_that_is_too_large_is_said_with_its_size(error: Exception) -> None:
    flow = in_use(SeenIds()).insert_one(M5, {"_id": 1, "text": "x" * LARGEST_DOCUMENT})
    with pytest.raises(EntityTooLarge, match="it has 16777297 now, 56 of them its ledger's") as raised:
        play(flow, error)
    assert raised.value.__cause__ is error


def test_an_insert_that_fails_otherwise_leaves_as_the_driver_raised_it() -> None:
    error = OperationFailure("no", 121)
    assert raised_by(insert(SeenIds()), error) is error


def test_an_insert_after_a_gap_creates_nothing_and_looks() -> None:
    assert play(insert(InSequence()), None)[0] == Deferred(M5, 1)
    assert play(insert(InSequence()), {**ENTITY, "ow_@": {"s": 3}})[0] == Deferred(M5, 4, ENTITY)
    assert play(insert(InSequence()), {**ENTITY, "ow_@": {"s": 5}})[0] == Duplicate(M5, ENTITY)


def test_an_insert_that_follows_others_is_refused_and_moves_the_mark() -> None:
    outcome, steps = play(insert(InSequence()), FOURTH, LANDED)
    assert outcome == Rejected(M5, ENTITY)
    assert methods(steps) == ["find_one", "update_one"]


def test_the_first_message_of_a_source_that_finds_its_entity_there_is_confirmed_and_moves_the_mark() -> None:
    outcome, steps = play(insert(InSequence(5)), lost_race(), ENTITY, NOTHING, ENTITY, LANDED)
    assert outcome == Rejected(M5, ENTITY)
    assert methods(steps) == ["insert_one", "find_one", "update_one", "find_one", "update_one"]


# --- what else is asked -----------------------------------------------------------------------------------------------


def test_a_record_creates_where_the_entity_is_named_by_id_and_no_transaction_forbids_it() -> None:
    assert play(flows(SeenIds()).record(M5, QUERY), CREATED)[1][0].kwargs == {"upsert": True}
    assert play(flows(SeenIds()).record(M5, QUERY, upsert=False), LANDED)[1][0].kwargs == {"upsert": False}
    session = {"session": IN_TRANSACTION}
    assert play(flows(SeenIds()).record(M5, QUERY, **session), LANDED)[1][0].kwargs == {"upsert": False, **session}
    by_email = flows(SeenIds(), fields=["email"]).record(M5, {"email": "a@b"})
    indexes = {"email_1": {"key": [("email", 1)], "unique": True}}
    assert play(by_email, indexes, LANDED)[1][1].kwargs == {"upsert": False}


def test_seen_looks_once() -> None:
    outcome, steps = play(flows(SeenIds()).seen(M5, OPEN_ONLY, comment="c"), ENTITY)
    assert outcome == Applied(M5, ENTITY)
    assert steps == [Call("find_one", (QUERY,), {"comment": "c"})]


def test_a_read_takes_a_filter_and_no_message() -> None:
    odd: Any = M5
    with pytest.raises(InvalidUpdate, match="the filter alone"):
        next(flows(SeenIds()).find_one(odd))


def test_a_finish_that_nothing_refuses_and_that_never_lands_says_that_the_entity_needs_repair() -> None:
    step = Step("ow_l", M5, "key", "fence", NOW, NOW + 60, True)
    claim = Begun(M5, "key", "fence", NOW, NOW + 60, True, entity_key=QUERY)
    held = {**ENTITY, "ow_steps": {step_mark("ow_l", M5).hex(): step.as_fields()}}
    with pytest.raises(LedgerMismatch, match="Repair the entity"):
        play(flows(SeenIds()).write(M5, QUERY, UPDATE, writer="update_one", finishes=claim), *[NOTHING, held] * 6)


# --- the collection ---------------------------------------------------------------------------------------------------

ENGLISH: dict[str, Any] = {"_id_": {"key": [("_id", 1)], "collation": {"locale": "en"}}}
UNIQUE = {**BY_ID, "email_1": {"key": [("email", 1)], "unique": True}}
READABLE = SeenIds(readable=True)
NAMES = "database.list_collection_names"


def test_the_indexes_of_a_collection_are_asked_for_once_where_they_matter() -> None:
    store = flows(READABLE)
    first = play(store.write(M5, QUERY, UPDATE, writer="update_one"), BY_ID, LANDED)[1]
    second = play(store.write(M5, QUERY, UPDATE, writer="update_one"), LANDED)[1]
    assert [methods(first), methods(second)] == [["index_information", "update_one"], ["update_one"]]


def test_a_collection_that_is_not_there_yet_is_asked_again_since_it_may_be_created_with_a_collation() -> None:
    store = flows(READABLE)
    play(store.write(M5, QUERY, UPDATE, writer="update_one"), {}, NOTHING, None)
    with pytest.raises(ConfigurationError, match="compares text by the collation 'en'"):
        play(store.write(M5, QUERY, UPDATE, writer="update_one"), ENGLISH)


def test_an_insert_may_create_the_collection() -> None:
    steps = play(flows(SeenIds()).insert_one(M5, ENTITY), {}, ["others"], "the answer")[1]
    assert methods(steps) == ["index_information", NAMES, "insert_one"]


def test_a_collection_that_another_creates_between_two_looks_takes_an_insert() -> None:
    steps = play(flows(SeenIds()).insert_one(M5, ENTITY), {}, ["orders"], BY_ID, "the answer")[1]
    assert methods(steps) == ["index_information", NAMES, "index_information", "insert_one"]


def test_a_collation_of_the_collection_is_refused_before_each_write_that_it_could_spoil() -> None:
    store, message = flows(HighWaterMark()), Message("m", "s", sequence="a")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="compares text by the collation 'en'"):
            play(store.write(message, QUERY, UPDATE, writer="update_one"), ENGLISH)
    with pytest.raises(ConfigurationError, match="compares text by the collation 'en'"):
        play(store.seen(message, QUERY), ENGLISH)


def test_what_was_no_matter_to_the_first_write_is_refused_where_it_matters_to_a_later_one() -> None:
    store = flows(READABLE)
    play(store.seen(M5, QUERY), {}, None)
    with pytest.raises(ConfigurationError, match="does not keep _id unique"):
        play(store.insert_one(M5, ENTITY), {}, ["orders"], {})
    store = flows(HighWaterMark())
    play(store.insert_one(M5, ENTITY), ENGLISH, "the answer")
    with pytest.raises(ConfigurationError, match="compares text by the collation 'en'"):
        next(store.write(Message("m", "s", sequence="a"), QUERY, UPDATE, writer="update_one"))


def test_declared_fields_are_checked_once_against_a_unique_index() -> None:
    store, query = flows(SeenIds(), fields=["email"]), {"email": "a@b"}
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="only under a unique index"):
            play(store.write(M5, query, UPDATE, writer="update_one"), BY_ID)
    first = play(store.write(M5, query, UPDATE, writer="update_one"), UNIQUE, LANDED)[1]
    second = play(store.seen(M5, query), None)[1]
    assert [methods(first), methods(second)] == [["index_information", "update_one"], ["find_one"]]


def test_declared_fields_name_the_entity_of_every_request() -> None:
    store, query = flows(InSequence(5), fields=["email"]), {"email": "a@b", "closed": {"$exists": False}}
    flow = store.write(M5, query, UPDATE, writer="update_one")
    outcome, steps = play(flow, UNIQUE, NOTHING, ENTITY, None, LANDED)
    assert outcome == Rejected(M5, ENTITY)
    assert steps[2].args == ({"email": "a@b"},)
    assert steps[3].args == (query,)
    assert {"email": "a@b"}.items() <= steps[4].args[0].items()


def test_an_asynchronous_collection_is_refused_by_the_class_that_does_not_wait() -> None:
    class Asynchronous(Collection):
        async def update_one(self) -> None: ...

    with pytest.raises(ConfigurationError, match="guard it with the Async class"):
        Flows(Asynchronous(), SeenIds(), lambda: NOW, (), "majority", is_async=False)


def test_writes_are_acknowledged_by_a_majority_and_looks_see_what_it_has() -> None:
    assert flows(SeenIds()).target.asked == {
        "write_concern": WriteConcern("majority", j=True, wtimeout=500),
        "read_concern": ReadConcern("majority"),
        "read_preference": ReadPreference.PRIMARY,
    }
    lax = Flows(Collection(), SeenIds(), lambda: NOW, (), "acknowledged", is_async=False)
    assert lax.target.asked == {"read_preference": ReadPreference.PRIMARY}


def test_a_collection_that_tells_no_outcome_is_refused() -> None:
    class Careless(Collection):
        write_concern = WriteConcern(w=0)

    with pytest.raises(ConfigurationError, match="w=0"):
        Flows(Careless(), SeenIds(), lambda: NOW, (), "acknowledged", is_async=False)
    odd: Any = "none"
    with pytest.raises(ConfigurationError, match="durability='none'"):
        Flows(Collection(), SeenIds(), lambda: NOW, (), odd, is_async=False)


# --- clocks and sizes -------------------------------------------------------------------------------------------------


def test_a_clock_that_is_off_by_more_than_the_ledger_bears_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "onewrite")
    clock = iter([n * 4000 + NOW for n in range(20)])
    store = Flows(Collection(), SeenIds(), lambda: next(clock), (), "majority", is_async=False)
    for time in (None, int(NOW), int(NOW) + 90_000, int(NOW) + 900_000):
        result = {} if time is None else {"operationTime": Timestamp(time, 1)}
        play(store.write(M5, QUERY, UPDATE, writer="update_one"), reply(1, **result))
    (record,) = caplog.records
    assert "seconds behind the database's, and the ledger bears 21600" in record.getMessage()
