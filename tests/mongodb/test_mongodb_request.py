"""A message's entry, folded into the native call: the expected requests, and what is refused before anything is sent."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from bson import DBRef, ObjectId
from bson.regex import Regex
from pymongo.collation import Collation

from onewrite import (
    ConfigurationError,
    Event,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    Message,
    MessageIDs,
    Outbox,
    SeenIds,
    sortable,
)
from onewrite.core.event import emission, emitter_of
from onewrite.core.label import OUTBOX
from onewrite.core.ledgers import Ledger
from onewrite.core.write import NO_STEP, Write
from onewrite.mongodb.expression import check_update, identity
from onewrite.mongodb.indexes import check_ids_are_unique, check_indexes
from onewrite.mongodb.request import ReadyWrite, guard_insert, in_transaction
from onewrite.mongodb.request import guard as guard_request

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
QUERY: dict[str, Any] = {"_id": "o-1"}
OPEN: Any = SimpleNamespace(in_transaction=True)
IDLE: Any = SimpleNamespace(in_transaction=False)
BY_HAND = MessageIDs()


def write_of(ledger: Ledger, message: Message = M5) -> Write:
    return Write(message, {}, NOW, ledger.entry(message, NOW), NO_STEP)


def guard_write(
    write: Write,
    fields: Any,
    query: Any,
    update: Any,
    native: Any,
    /,  # as a collection does it
) -> ReadyWrite:
    terms = write.entry.terms
    if update is not None:
        check_update(terms, fields, update)
    return guard_request(write._replace(key=identity(query, fields, terms)), query, update, native)


def guard(
    ledger: Ledger, query: Any = QUERY, update: Any = None, /, message: Message = M5, fields: Any = (), **native: Any
) -> ReadyWrite:
    change = {"$inc": {"n": 1}} if update is None else update
    return guard_write(write_of(ledger, message), fields, query, change, native)


NOT_GONE = {"ow_tombstone": {"$exists": False}}
# A step of the message, under a ledger without a name, and under one that was kept by hand.
STEP, STEP_BY_HAND = {f"ow_steps.{HASH.hex()}": {"$exists": False}}, {"ow_steps.0a434f161f21c0968ad9": {"$exists": False}}
SHARED = {**NOT_GONE, **STEP}
IDS_LABEL = {**SHARED, "ow_l": {"$in": [None, "ow1 14d"]}}
LACKS = {**IDS_LABEL, "ow_r.r4": {"$ne": HASH}, "ow_r.r0": {"$ne": HASH}, "ow_r.r1": {"$ne": HASH}}
LACKS_ALL = {**IDS_LABEL, "ow_l": {"$in": [None, "ow1 all"]}, "ow_all": {"$ne": HASH}}
LACKS_TEXT = {**NOT_GONE, **STEP_BY_HAND, "messageIDs": {"$nin": ["@s/m5", "m5"]}}
DROPS = {"ow_r.r2": "", "ow_r.r3": "", "ow_r.r5": ""}
MARKS_LABEL = {**SHARED, "ow_l": {"$in": [None, "ow1 marks"]}}
ALONE = {"ow_@.s.0": {"$exists": False}}
BELOW = {"$or": [{"ow_@.s": {"$exists": False}}, {"ow_@.s": {"$lt": 5}, **ALONE}]}
FIRST = {"$or": [{"ow_@.s": {"$exists": False}}, {"ow_@.s": 4, **ALONE}]}
MOVES = {"$set": {"ow_l": "ow1 marks", "ow_@.s": 5}}


# --- expected requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ledger", "guards", "folded"),
    [
        (SeenIds(), LACKS, {"$set": {"ow_l": "ow1 14d"}, "$push": {"ow_r.r1": HASH}, "$unset": DROPS}),
        (SeenIds(retention=None), LACKS_ALL, {"$set": {"ow_l": "ow1 all"}, "$push": {"ow_all": HASH}}),
        (BY_HAND, LACKS_TEXT, {"$push": {"messageIDs": "@s/m5"}}),
        (HighWaterMark(), {**MARKS_LABEL, "$and": [BELOW]}, MOVES),
        (InSequence(), {**MARKS_LABEL, "$and": [{"ow_@.s": 4, **ALONE}]}, MOVES),
        (InSequence(5), {**MARKS_LABEL, "$and": [FIRST]}, MOVES),
    ],
)
def test_a_ledgers_guard_joins_the_filter_and_its_mark_the_operators(ledger: Ledger, guards: Any, folded: Any) -> None:
    write = write_of(ledger)
    guarded = guard_write(write, (), {"_id": "o-1", "left": {"$gte": 2}}, {"$inc": {"left": -2}}, {})
    assert guarded == ReadyWrite(
        write._replace(key={"_id": "o-1"}),
        filter={"_id": "o-1", "left": {"$gte": 2}, **guards},
        update={"$inc": {"left": -2}, **folded},
        upsert=False,
        native={},
        query={"_id": "o-1", "left": {"$gte": 2}},
        change={"$inc": {"left": -2}},
    )


NO_ARRAY_OF_OBJECTS = {"$type": "object", "$not": {"$type": "array"}}
OBJECT = [{"$or": [{"ow_r": {"$exists": False}}, {"ow_r": NO_ARRAY_OF_OBJECTS}]}]
ARRAY = [{"$or": [{"ow_r.r1": {"$exists": False}}, {"ow_r.r1": {"$type": "array"}}]}]
MARKS_OBJECT = [{"$or": [{"ow_@": {"$exists": False}}, {"ow_@": NO_ARRAY_OF_OBJECTS}]}]


@pytest.mark.parametrize(
    ("ledger", "guards", "stage"),
    [
        (
            SeenIds(),
            {**LACKS, "$and": OBJECT + ARRAY},
            {
                "ow_l": {"$literal": "ow1 14d"},
                "ow_r.r1": {"$concatArrays": [{"$ifNull": ["$ow_r.r1", []]}, {"$literal": [HASH]}]},
                "ow_r.r2": "$$REMOVE",
                "ow_r.r3": "$$REMOVE",
                "ow_r.r5": "$$REMOVE",
            },
        ),
        (
            HighWaterMark(),
            {**MARKS_LABEL, "$and": [BELOW, *MARKS_OBJECT]},
            {"ow_l": {"$literal": "ow1 marks"}, "ow_@.s": {"$literal": 5}},
        ),
    ],
)
@pytest.mark.parametrize("sequence", [list, tuple])
def test_a_pipeline_gets_one_stage_more_and_looks_at_what_it_would_replace(
    ledger: Ledger, guards: Any, stage: Any, sequence: Any
) -> None:
    guarded = guard(ledger, QUERY, sequence([{"$set": {"a": "$b"}}]))
    assert guarded.filter == {**QUERY, **guards}
    assert guarded.update == [{"$set": {"a": "$b"}}, {"$set": stage}]


def test_our_operators_join_the_callers_of_the_same_kind() -> None:
    update = {"$push": {"lines": 1}, "$unset": {"old": ""}, "$set": {"a": 1}}
    assert guard(SeenIds(), QUERY, update).update == {
        "$push": {"lines": 1, "ow_r.r1": HASH},
        "$unset": {"old": "", **DROPS},
        "$set": {"a": 1, "ow_l": "ow1 14d"},
    }
    assert guard(HighWaterMark(), QUERY, update).update == {**update, "$set": {"a": 1, **MOVES["$set"]}}


def test_what_the_caller_and_the_ledger_ask_goes_side_by_side() -> None:
    query = {"_id": 1, "$and": [{"c": 1}], "$or": [{"a": 1}]}
    assert guard(SeenIds(), query).filter == {**query, **LACKS}
    piped = guard(SeenIds(), query, [{"$set": {"a": 1}}]).filter
    assert piped == {**query, **LACKS, "$and": [{"c": 1}, *OBJECT, *ARRAY]}


def test_the_callers_own_documents_are_left_as_they_were() -> None:
    query, update = {"_id": 1, "$and": [{"c": 1}]}, {"$set": {"a": 1}, "$push": {"b": 1}, "$unset": {"c": ""}}
    before = copy.deepcopy((query, update))
    for ledger in (SeenIds(), HighWaterMark()):
        guard(ledger, query, update)
    assert (query, update) == before


@pytest.mark.parametrize(
    ("sequence", "below"),
    [
        ("$a", {"$lt": "$a"}),
        (sortable(5), {"$lt": "#115"}),
        # Only a mark of as many digits compares as its number does.
        ("0050", {"$lt": "0050", "$gte": "0", "$regex": r"^[\s\S]{4}(?![\s\S])"}),
    ],
)
def test_a_sequence_of_text_is_compared_as_text(sequence: str, below: Any) -> None:
    guarded = guard(HighWaterMark(), message=Message("m", source="s", sequence=sequence))
    assert guarded.filter["$and"][0]["$or"][1] == {"ow_@.s": below, **ALONE}
    assert guarded.update == {"$inc": {"n": 1}, "$set": {"ow_l": "ow1 marks", "ow_@.s": sequence}}


# --- after another ledger ---------------------------------------------------------------------------------------------


def test_a_ledger_before_this_one_is_looked_into_and_its_own_slots_emptied() -> None:
    guarded = guard(SeenIds(timedelta(days=30), also=SeenIds()))
    assert guarded.filter == {
        **QUERY,
        **SHARED,
        "ow_l": {"$in": [None, "ow1 30d", "ow1 14d"]},
        "ow_30d_r.r5": {"$ne": HASH},
        "ow_30d_r.r0": {"$ne": HASH},
        "ow_30d_r.r2": {"$ne": HASH},
        "ow_r.r4": {"$ne": HASH},
        "ow_r.r0": {"$ne": HASH},
        "ow_r.r1": {"$ne": HASH},
    }
    assert guarded.update == {
        "$inc": {"n": 1},
        "$set": {"ow_l": "ow1 30d"},
        "$push": {"ow_30d_r.r2": HASH},
        "$unset": {"ow_30d_r.r1": "", "ow_30d_r.r3": "", "ow_30d_r.r4": "", **DROPS},
    }


def test_ids_that_were_kept_by_hand_are_looked_for_with_their_source_and_without() -> None:
    guarded = guard(HighWaterMark(also=BY_HAND))
    assert guarded.filter == {
        **QUERY,
        **SHARED,
        **STEP_BY_HAND,
        "ow_l": {"$in": [None, "ow1 marks", Regex(r"^ow1\ >\ messageIDs(?![\s\S])")]},
        "messageIDs": {"$nin": ["@s/m5", "m5"]},
        "$and": [BELOW],
    }
    assert guarded.update == {"$inc": {"n": 1}, "$set": {"ow_l": "ow1 marks", "ow_@.s": 5}}


def test_a_mark_before_a_set_is_looked_at_and_not_moved() -> None:
    guarded = guard(SeenIds(also=InSequence()))
    assert guarded.filter["$and"] == [BELOW]
    assert "ow_@" not in str(guarded.update)


# --- the rest of a call -----------------------------------------------------------------------------------------------


def test_native_arguments_pass_and_upsert_is_taken_out() -> None:
    guarded = guard(SeenIds(), hint="_id_", comment="c", upsert=True)
    assert guarded.native == {"hint": "_id_", "comment": "c"}
    assert guarded.upsert is True


@pytest.mark.parametrize(
    ("query", "fields", "entity", "conditional"),
    [
        ({"_id": 1}, (), {"_id": 1}, False),
        ({"_id": 1, "$comment": "c"}, (), {"_id": 1}, False),
        ({"$and": [{"_id": 1}, {"$comment": "c"}]}, (), {"_id": 1}, False),
        ({"_id": 1, "state": "new"}, (), {"_id": 1}, True),
        ({"email": "a@b", "$or": []}, ("email",), {"email": "a@b"}, True),
        ({"_id": 1, "email": "a@b"}, ("email",), {"_id": 1}, True),
    ],
)
def test_what_a_filter_says_beside_the_entity_is_a_condition(
    query: Any, fields: Any, entity: Any, conditional: bool
) -> None:
    guarded = guard(SeenIds(), query, fields=fields)
    assert (guarded.write.key, guarded.conditional) == (entity, conditional)


def test_a_record_is_the_ledgers_own_part() -> None:
    guarded = guard_write(write_of(HighWaterMark()), (), {"_id": 1, "a": {"$gt": 1}}, None, {"upsert": True})
    assert guarded.filter == {"_id": 1, "a": {"$gt": 1}, **MARKS_LABEL, "$and": [BELOW]}
    assert guarded.update == MOVES
    assert guarded.upsert is True


@pytest.mark.parametrize(
    ("ledger", "creates"), [(SeenIds(), True), (HighWaterMark(), True), (InSequence(5), True), (InSequence(), False)]
)
def test_what_follows_a_gap_creates_no_entity(ledger: Ledger, *, creates: bool) -> None:
    assert guard(ledger, upsert=True).upsert is creates
    assert guard(ledger, upsert=False).upsert is False


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"ow_l": "ow1 14d", "ow_r": {"r1": [HASH]}}),
        (SeenIds(retention=None), {"ow_l": "ow1 all", "ow_all": [HASH]}),
        (BY_HAND, {"messageIDs": ["@s/m5"]}),
        (HighWaterMark(), {"ow_l": "ow1 marks", "ow_@": {"s": 5}}),
    ],
)
def test_a_new_document_gets_its_ledger(ledger: Ledger, held: Any) -> None:
    document = {"_id": 1, "n": 1}
    assert guard_insert(write_of(ledger), document, {}) == {**document, **held}
    assert document == {"_id": 1, "n": 1}


def test_a_new_document_holds_the_events_that_its_creation_emits() -> None:
    emitter = emitter_of(Outbox("shop"), "ow_l")
    emits = emission(emitter, M5, [Event("Created", 1)], NOW, "a call")
    created = guard_insert(write_of(SeenIds())._replace(emission=emits), {"_id": 1}, {})
    (stored,) = created["ow_events"]
    assert (stored["type"], stored["cause"]) == ("Created", "m5")
    assert (created[OUTBOX.label], created[OUTBOX.due]) == (emits.shape.label, stored["time"])
    silent = emission(emitter, M5, [], NOW, "a call")
    assert not {*OUTBOX} & guard_insert(write_of(SeenIds())._replace(emission=silent), {"_id": 1}, {}).keys()


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_nothing_is_created_inside_a_transaction() -> None:
    assert guard(SeenIds(), session=OPEN).native == {"session": OPEN}
    with pytest.raises(InvalidUpdate, match="upsert=True in a transaction"):
        guard(SeenIds(), session=OPEN, upsert=True)
    with pytest.raises(InvalidUpdate, match="insert_one in a transaction"):
        guard_insert(write_of(HighWaterMark()), {"_id": 1}, {"session": OPEN})


def test_a_session_without_a_transaction_is_no_hindrance() -> None:
    assert guard(SeenIds(), session=IDLE, upsert=True).upsert is True
    assert guard_insert(write_of(HighWaterMark()), {"_id": 1}, {"session": IDLE})["_id"] == 1
    assert [in_transaction({"session": session}) for session in (OPEN, IDLE, None)] == [True, False, False]
    assert in_transaction({}) is False


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sequence_has_64_bits_at_most(sign: int) -> None:
    ledger = HighWaterMark()
    longest = sign * (2**63 - 1)
    guarded = guard(ledger, message=Message("m", source="s", sequence=longest))
    assert isinstance(guarded.update, dict)
    assert guarded.update["$set"]["ow_@.s"] == longest
    too_long = write_of(ledger, Message("m", source="s", sequence=longest + sign))
    with pytest.raises(InvalidMessage, match=r"64 bits.*sortable"):
        guard_write(too_long, (), QUERY, {"$inc": {"n": 1}}, {})
    with pytest.raises(InvalidMessage, match="64 bits"):
        guard_insert(too_long, {"_id": 1}, {})


def test_a_sequence_that_is_only_looked_at_has_64_bits_at_most_too() -> None:
    too_long = write_of(SeenIds(also=HighWaterMark()), Message("m", source="s", sequence=2**63))
    with pytest.raises(InvalidMessage, match=r"64 bits.*sortable"):
        guard_write(too_long, (), QUERY, {"$inc": {"n": 1}}, {})
    with pytest.raises(InvalidMessage, match=r"64 bits.*sortable"):
        guard_insert(too_long, {"_id": 1}, {})


TEXTS = [
    (SeenIds(readable=True), M5),
    (HighWaterMark(), Message("m", "s", sequence="a")),
    (SeenIds(name="ids", also=BY_HAND), M5),
]


@pytest.mark.parametrize("collation", [{"locale": "en", "strength": 2}, Collation("en"), {}])
@pytest.mark.parametrize(("ledger", "message"), TEXTS)
def test_a_collation_that_may_take_two_marks_for_one_is_refused(ledger: Ledger, message: Message, collation: Any) -> None:
    with pytest.raises(InvalidUpdate, match="or two different marks count as one"):
        guard(ledger, message=message, collation=collation)


@pytest.mark.parametrize("collation", [{"locale": "simple"}, Collation("simple"), None])
@pytest.mark.parametrize(("ledger", "message"), TEXTS)
def test_the_simple_collation_tells_every_two_marks_apart(ledger: Ledger, message: Message, collation: Any) -> None:
    assert guard(ledger, message=message, collation=collation).native == {"collation": collation}


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(None), HighWaterMark(), InSequence()])
@pytest.mark.parametrize(
    "entity_id", [1, b"a", ObjectId("0" * 24), {"tenant": 1, "at": datetime(2026, 9, 22, tzinfo=UTC)}, [None]], ids=str
)
def test_a_ledger_without_text_takes_any_collation_where_the_entity_is_named_without_text(
    ledger: Ledger, entity_id: Any
) -> None:
    assert "collation" in guard(ledger, {"_id": entity_id}, collation=Collation("en", strength=2)).native


@pytest.mark.parametrize(
    "query", [{"email": 1}, {"_id": "a"}, {"_id": {"tenant": {"name": "a"}}}, {"_id": DBRef("c", 1)}], ids=str
)
def test_a_collation_under_which_the_name_of_an_entity_may_be_another_ones_is_refused(query: Any) -> None:
    with pytest.raises(InvalidUpdate, match="the name of this entity could be that of another"):
        guard(SeenIds(), query, fields=("email",), collation=Collation("en", strength=2))


def test_no_variable_takes_the_place_of_the_document_of_which_the_ledger_is_a_part() -> None:
    assert guard(SeenIds(), let={"current": 1}).native == {"let": {"current": 1}}
    with pytest.raises(InvalidUpdate, match="give it another name"):
        guard(SeenIds(), let={"CURRENT": {"n": 1}})


# --- what a collection must be like -----------------------------------------------------------------------------------

BY_ID: dict[str, Any] = {"_id_": {"v": 2, "key": [("_id", 1)]}}
ENGLISH: dict[str, Any] = {"_id_": {"v": 2, "key": [("_id", 1)], "collation": {"locale": "en", "strength": 2}}}
UNIQUE: dict[str, Any] = {"email_1": {"v": 2, "key": [("email", 1)], "unique": True}}


@pytest.mark.parametrize(
    ("indexes", "fields", "text"),
    [
        ({}, (), True),  # it is not there, or the server refuses updates of it by itself
        (BY_ID, (), True),
        (ENGLISH, (), False),
        ({"_id_": {"key": [("_id", 1)], "collation": {"locale": "simple"}}, **UNIQUE}, ("email",), True),
        ({**BY_ID, "text_1": {"key": [("text", 1)], "collation": {"locale": "en"}}}, (), True),
    ],
)
def test_a_collection_that_takes_no_two_for_one_will_do(indexes: Any, fields: Any, text: bool) -> None:
    check_indexes(indexes, fields, text=text)


@pytest.mark.parametrize(("fields", "text"), [((), True), (("email",), False), (("email",), True)])
def test_a_collection_whose_collation_may_take_two_for_one_is_refused(fields: Any, text: bool) -> None:
    with pytest.raises(ConfigurationError, match="compares text by the collation 'en'"):
        check_indexes({**UNIQUE, **ENGLISH}, fields, text=text)


def test_a_collection_with_an_index_on_id_keeps_ids_unique() -> None:
    check_ids_are_unique({**UNIQUE, **BY_ID})


@pytest.mark.parametrize(
    "indexes", [{}, UNIQUE, {"_id_hashed": {"key": [("_id", "hashed")]}}, {"both": {"key": [("_id", 1), ("at", 1)]}}]
)
def test_a_collection_without_an_index_on_id_alone_does_not_keep_ids_unique(indexes: Any) -> None:
    with pytest.raises(ConfigurationError, match="does not keep _id unique"):
        check_ids_are_unique(indexes)


EMAIL: dict[str, Any] = {"v": 2, "key": [("email", 1)]}


@pytest.mark.parametrize(
    ("indexes", "fields", "unique"),
    [
        ({"email_1": {**EMAIL, "unique": True, "sparse": True}}, ("email",), True),  # it is given a value each time
        # Fewer fields are unique with more of them too.
        ({"email_1": {**EMAIL, "unique": True}}, ("shop", "email"), True),
        ({"both": {"key": [("shop", 1), ("email", -1)], "unique": True}}, ("email", "shop"), True),
        ({"email_1": EMAIL, "again": {**EMAIL, "unique": True}}, ("email",), True),
        ({"a.x_1": {"key": [("a.x", 1)], "unique": True}}, ("a.x", "a.y"), True),
        ({"both": {"key": [("a.x", 1), ("b.x", 1)], "unique": True}}, ("a.x", "b.x"), True),
        # Where `a` is an array, one element may have the first value and another the second.
        ({"both": {"key": [("a.x", 1), ("a.y", 1)], "unique": True}}, ("a.x", "a.y"), False),
        ({"both": {"key": [("a", 1), ("a.b.x", 1)], "unique": True}}, ("a", "a.b.x"), False),
        ({"email_1": EMAIL}, ("email",), False),
        ({"both": {"key": [("shop", 1), ("email", -1)], "unique": True}}, ("email",), False),
        ({"email_1": {**EMAIL, "unique": True, "partialFilterExpression": {"a": 1}}}, ("email",), False),
    ],
)
def test_fields_name_one_entity_under_a_unique_index_only(indexes: Any, fields: Any, unique: bool) -> None:
    if unique:
        check_indexes({**BY_ID, **indexes}, fields, text=False)
        return
    with pytest.raises(ConfigurationError, match=r"key=\(.*only under a unique index on these fields"):
        check_indexes({**BY_ID, **indexes}, fields, text=False)
