"""A message's entry, folded into the native call: the expected requests, and what is refused before anything is sent."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.collation import Collation

from onewrite import HighWaterMark, InSequence, InvalidMessage, InvalidUpdate, Message, SeenIds
from onewrite.ledger import Advance, Ledger, Remember, Ring
from onewrite.mongodb.request import Guarded, guard_insert, guard_record, guard_update, in_bson, in_transaction

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
QUERY: dict[str, Any] = {"_id": "o-1"}
OPEN: Any = SimpleNamespace(in_transaction=True)
IDLE: Any = SimpleNamespace(in_transaction=False)


def guard(ledger: Ledger, query: Any = QUERY, update: Any = None, /, message: Message = M5, **native: Any) -> Guarded:
    entry = in_bson(ledger.entry(message, NOW))
    return guard_update(ledger.attribute, entry, query, {"$inc": {"n": 1}} if update is None else update, native)


LACKS = {
    "messageIDs.r4": {"$ne": b"698:m5"},
    "messageIDs.r0": {"$ne": b"699:m5"},
    "messageIDs.r1": {"$ne": b"699:m5"},
}
DROPS = {"messageIDs.r2": "", "messageIDs.r3": "", "messageIDs.r5": ""}
ALONE = {"events.@s.0": {"$exists": False}}
BELOW = {"$or": [{"events.@s": {"$exists": False}}, {"events.@s": {"$lt": 5}, **ALONE}]}


@pytest.mark.parametrize(
    ("ledger", "guards", "folded"),
    [
        (SeenIds(), LACKS, {"$push": {"messageIDs.r1": b"699:m5"}, "$unset": DROPS}),
        (SeenIds(retention=None), {"messageIDs": {"$ne": "m5"}}, {"$push": {"messageIDs": "m5"}}),
        (HighWaterMark(), {"$and": [BELOW]}, {"$set": {"events.@s": 5}}),
        (InSequence(), {"events.@s": 4, **ALONE}, {"$set": {"events.@s": 5}}),
        (InSequence(5), {"events.@s": {"$exists": False}}, {"$set": {"events.@s": 5}}),
    ],
)
def test_a_ledgers_guard_joins_the_filter_and_its_mark_the_operators(ledger: Ledger, guards: Any, folded: Any) -> None:
    guarded = guard(ledger, {"_id": "o-1", "left": {"$gte": 2}}, {"$inc": {"left": -2}})
    assert guarded == Guarded(
        in_bson(ledger.entry(M5, NOW)),
        filter={"_id": "o-1", "left": {"$gte": 2}, **guards},
        update={"$inc": {"left": -2}, **folded},
        upsert=False,
        entity={"_id": "o-1"},
        conditional=True,
        native={},
    )


@pytest.mark.parametrize(
    ("ledger", "stage"),
    [
        (
            SeenIds(),
            {
                "messageIDs.r1": {"$concatArrays": [{"$ifNull": ["$messageIDs.r1", []]}, {"$literal": [b"699:m5"]}]},
                "messageIDs.r2": "$$REMOVE",
                "messageIDs.r3": "$$REMOVE",
                "messageIDs.r5": "$$REMOVE",
            },
        ),
        (
            SeenIds(retention=None),
            {"messageIDs": {"$concatArrays": [{"$ifNull": ["$messageIDs", []]}, {"$literal": ["m5"]}]}},
        ),
        (HighWaterMark(), {"events.@s": {"$literal": 5}}),
        (InSequence(), {"events.@s": {"$literal": 5}}),
    ],
)
@pytest.mark.parametrize("sequence", [list, tuple])
def test_a_pipeline_gets_one_stage_more(ledger: Ledger, stage: Any, sequence: Any) -> None:
    pipeline = sequence([{"$set": {"a": "$b"}}])
    assert guard(ledger, QUERY, pipeline).update == [{"$set": {"a": "$b"}}, {"$set": stage}]


def test_our_operators_join_the_callers_of_the_same_kind() -> None:
    update = {"$push": {"lines": 1}, "$unset": {"old": ""}, "$set": {"a": 1}}
    assert guard(SeenIds(), QUERY, update).update == {
        "$push": {"lines": 1, "messageIDs.r1": b"699:m5"},
        "$unset": {"old": "", **DROPS},
        "$set": {"a": 1},
    }
    assert guard(HighWaterMark(), QUERY, update).update == {**update, "$set": {"a": 1, "events.@s": 5}}


def test_a_callers_own_alternatives_stay_beside_the_ledgers() -> None:
    query = {"_id": 1, "$or": [{"a": 1}, {"b": 1}], "$and": [{"c": 1}], "$nor": [{"d": 1}]}
    assert guard(HighWaterMark(), query).filter == {**query, "$and": [{"c": 1}, BELOW]}


def test_the_callers_own_documents_are_left_as_they_were() -> None:
    query, update = {"_id": 1, "$and": [{"c": 1}]}, {"$set": {"a": 1}, "$push": {"b": 1}, "$unset": {"c": ""}}
    before = copy.deepcopy((query, update))
    for ledger in (SeenIds(), HighWaterMark()):
        guard(ledger, query, update)
    assert (query, update) == before


def test_a_sequence_of_text_is_compared_as_text() -> None:
    guarded = guard(HighWaterMark(), message=Message("m", source="s", sequence="$a"))
    assert guarded.filter["$and"][0]["$or"][1] == {"events.@s": {"$lt": "$a"}, **ALONE}
    assert guarded.update == {"$inc": {"n": 1}, "$set": {"events.@s": "$a"}}


def test_native_arguments_pass_and_upsert_is_taken_out() -> None:
    guarded = guard(SeenIds(), hint="_id_", comment="c", upsert=True)
    assert guarded.native == {"hint": "_id_", "comment": "c"}
    assert guarded.upsert is True


def test_a_record_is_the_ledgers_own_part() -> None:
    guarded = guard_record("events", HighWaterMark().entry(M5, NOW), {"_id": 1, "a": {"$gt": 1}}, {"upsert": True})
    assert guarded.filter == {"_id": 1, "a": {"$gt": 1}, "$and": [BELOW]}
    assert guarded.update == {"$set": {"events.@s": 5}}
    assert guarded.upsert is True


def test_a_record_that_reads_the_ledger_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match="belongs to the ledger"):
        guard_record("events", HighWaterMark().entry(M5, NOW), {"_id": 1, "events.@s": 4}, {})


@pytest.mark.parametrize(
    ("ledger", "creates"), [(SeenIds(), True), (HighWaterMark(), True), (InSequence(5), True), (InSequence(), False)]
)
def test_what_follows_a_gap_creates_no_entity(ledger: Ledger, *, creates: bool) -> None:
    assert guard(ledger, upsert=True).upsert is creates
    assert guard(ledger, upsert=False).upsert is False


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"r1": [b"699:m5"]}),
        (SeenIds(retention=None), ["m5"]),
        (HighWaterMark(), {"@s": 5}),
        (InSequence(5), {"@s": 5}),
    ],
)
def test_a_new_document_gets_its_ledger(ledger: Ledger, held: Any) -> None:
    document = {"_id": 1, "n": 1}
    assert guard_insert(ledger.attribute, in_bson(ledger.entry(M5, NOW)), document, {}) == {
        **document,
        ledger.attribute: held,
    }
    assert document == {"_id": 1, "n": 1}


def test_marks_that_are_dropped_one_day_are_bytes_and_those_kept_for_ever_stay() -> None:
    ring = Ring("r0", 0, (("r0", 0), ("r1", 1)), ("r2",), (7, 6))
    entry = Remember(("7:é", "6:é"), ring)
    raw = Remember(("7:é".encode(), "6:é".encode()), ring)
    assert in_bson(entry) == raw
    assert in_bson(raw) == raw
    for same in (SeenIds(retention=None).entry(M5, NOW), Advance("@s", "a", "below"), Advance("@s", 5, "next", 1)):
        assert in_bson(same) is same


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "update"),
    [
        ({"_id": 1, "events.@s": 1}, {"$set": {"a": 1}}),
        ({"_id": 1, "$or": [{"events": 1}]}, {"$set": {"a": 1}}),
        ({"_id": 1}, {"$unset": {"events": ""}}),
        ({"_id": 1}, [{"$unset": "events"}]),
    ],
)
def test_a_call_that_touches_the_ledger_is_refused(query: Any, update: Any) -> None:
    with pytest.raises(InvalidUpdate, match="belongs to the ledger"):
        guard(HighWaterMark(), query, update)


def test_a_new_document_that_brings_a_ledger_or_no_id_is_refused() -> None:
    entry = HighWaterMark().entry(M5, NOW)
    with pytest.raises(InvalidUpdate, match="belongs to the ledger"):
        guard_insert("events", entry, {"_id": 1, "events": {}}, {})
    with pytest.raises(InvalidUpdate, match="_id of its own"):
        guard_insert("events", entry, {"n": 1}, {})


@pytest.mark.parametrize(
    "query", [{"sku": 1}, {"_id": {"$gt": 1}, "sku": 1}, {"_id": None}, {"_id": {"$eq": None}}], ids=str
)
def test_an_upsert_needs_an_id(query: Any) -> None:
    assert guard(SeenIds(), query).upsert is False
    with pytest.raises(InvalidUpdate, match="upsert=True needs an _id in the filter"):
        guard(SeenIds(), query, upsert=True)


def test_nothing_is_created_inside_a_transaction() -> None:
    assert guard(SeenIds(), session=OPEN).native == {"session": OPEN}
    with pytest.raises(InvalidUpdate, match="upsert=True in a transaction"):
        guard(SeenIds(), session=OPEN, upsert=True)
    with pytest.raises(InvalidUpdate, match="insert_one in a transaction"):
        guard_insert("events", HighWaterMark().entry(M5, NOW), {"_id": 1}, {"session": OPEN})


def test_a_session_without_a_transaction_is_no_hindrance() -> None:
    assert guard(SeenIds(), session=IDLE, upsert=True).upsert is True
    assert guard_insert("events", HighWaterMark().entry(M5, NOW), {"_id": 1}, {"session": IDLE})["_id"] == 1
    assert [in_transaction({"session": session}) for session in (OPEN, IDLE, None)] == [True, False, False]
    assert in_transaction({}) is False


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sequence_has_64_bits_at_most(ledger: Ledger, sign: int) -> None:
    longest = sign * (2**63 - 1)
    guarded = guard(ledger, message=Message("m", source="s", sequence=longest))
    assert isinstance(guarded.update, dict)
    assert guarded.update["$set"] == {"events.@s": longest}
    too_long = ledger.entry(Message("m", source="s", sequence=longest + sign), NOW)
    with pytest.raises(InvalidMessage, match=r"64 bits.*sortable"):
        guard_update("events", too_long, QUERY, {"$inc": {"n": 1}}, {})
    with pytest.raises(InvalidMessage, match="64 bits"):
        guard_insert("events", too_long, {"_id": 1}, {})


TEXTS = [(SeenIds(retention=None), M5), (HighWaterMark(), Message("m", source="s", sequence="a"))]


@pytest.mark.parametrize("collation", [{"locale": "en", "strength": 2}, Collation("en"), {}])
@pytest.mark.parametrize(("ledger", "message"), TEXTS)
def test_a_collation_that_may_take_two_marks_for_one_is_refused(ledger: Ledger, message: Message, collation: Any) -> None:
    with pytest.raises(InvalidUpdate, match="Under this collation two different marks could count as one"):
        guard(ledger, message=message, collation=collation)


@pytest.mark.parametrize("collation", [{"locale": "simple"}, Collation("simple"), None])
@pytest.mark.parametrize(("ledger", "message"), TEXTS)
def test_the_simple_collation_tells_every_two_marks_apart(ledger: Ledger, message: Message, collation: Any) -> None:
    assert guard(ledger, message=message, collation=collation).native == {"collation": collation}


@pytest.mark.parametrize(
    "ledger", [SeenIds(), SeenIds(digest=True), SeenIds(None, digest=True), HighWaterMark(), InSequence()]
)
def test_a_ledger_without_text_takes_any_collation(ledger: Ledger) -> None:
    assert "collation" in guard(ledger, collation=Collation("en", strength=2)).native
