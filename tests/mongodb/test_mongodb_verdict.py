"""What MongoDB returned, as an outcome."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Int64
from bson.decimal128 import Decimal128
from pymongo.errors import (
    ConnectionFailure,
    DuplicateKeyError,
    ExecutionTimeout,
    OperationFailure,
    WriteConcernError,
    WTimeoutError,
)

from onewrite import (
    Deferred,
    Duplicate,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    LedgerMismatch,
    Message,
    MessageIDs,
    Missing,
    Rejected,
    SeenIds,
    Stale,
    sortable,
)
from onewrite.core.label import Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import ABSENT
from onewrite.core.write import NO_STEP, Write, judge
from onewrite.mongodb.flows import is_of_entity, is_too_large, may_be_ledger, says_nothing_was_done
from onewrite.mongodb.layout import image_of, is_made_by, lookup, path_of, without_ledger

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
ENTITY = {"_id": "o-1", "n": 1}
BY_HAND = MessageIDs()
LEDGERS: list[Ledger] = [SeenIds(), SeenIds(readable=True), SeenIds(retention=None), BY_HAND, HighWaterMark(), InSequence(5)]


def verdict(ledger: Ledger, document: dict[str, Any] | None, message: Message = M5) -> object:
    write = Write(message, {"_id": "o-1"}, NOW, ledger.entry(message, NOW), NO_STEP)
    return judge(write, image_of(ledger.terms, document))


# --- whose refusal it was ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ledger", LEDGERS)
def test_what_the_ledger_does_not_explain_is_the_callers_own_refusal(ledger: Ledger) -> None:
    assert verdict(ledger, ENTITY) == Rejected(M5, ENTITY)
    assert verdict(ledger, None) == Missing(M5)


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"ow_r": {"r1": [b"another", HASH]}}),
        (SeenIds(), {"ow_r": {"r0": [HASH]}}),
        (SeenIds(), {"ow_r": {"r4": [HASH]}}),
        (SeenIds(readable=True), {"ow_14dt_r": {"r4": ["@s/m5"]}}),
        (SeenIds(retention=None), {"ow_all": [HASH]}),
        (BY_HAND, {"messageIDs": ["m4", "@s/m5"]}),
        (HighWaterMark(), {"ow_@": {"s": 5}}),
        (InSequence(), {"ow_@": {"s": 5}}),
        (SeenIds(name="ids", also=BY_HAND), {"messageIDs": ["m5"]}),
        (SeenIds(also=HighWaterMark()), {"ow_@": {"s": 5}}),
    ],
)
def test_a_message_that_the_ledger_holds_is_a_duplicate(ledger: Ledger, held: Any) -> None:
    assert verdict(ledger, {**ENTITY, **held}) == Duplicate(M5, ENTITY)


@pytest.mark.parametrize(
    "held",
    [
        {"ow_r": {}},
        {"ow_r": {"r1": []}},
        {"ow_r": {"r1": [b"another"]}},
        {"ow_r": {"r2": [HASH]}},
        {"ow_all": [HASH]},
        {"ow_14dt_r": {"r1": ["@s/m5"]}},
    ],
)
def test_marks_of_other_messages_and_in_other_places_are_no_duplicates(held: Any) -> None:
    assert verdict(SeenIds(), {**ENTITY, **held}) == Rejected(M5, ENTITY)


def test_a_mark_that_is_past_the_message_makes_it_stale_and_a_gap_defers_it() -> None:
    assert verdict(HighWaterMark(), {**ENTITY, "ow_@": {"s": 7}}) == Stale(M5, 7, ENTITY)
    assert verdict(InSequence(), {**ENTITY, "ow_@": {"s": 3}}) == Deferred(M5, 4, ENTITY)
    assert verdict(InSequence(), None) == Deferred(M5, 1, None)


@pytest.mark.parametrize("held", [7, 7.0, Int64(7)])
def test_a_mark_is_an_int_however_it_is_stored(held: Any) -> None:
    outcome = verdict(HighWaterMark(), {**ENTITY, "ow_@": {"s": held}})
    assert outcome == Stale(M5, 7, ENTITY)
    assert isinstance(outcome, Stale)
    assert type(outcome.mark) is int


@pytest.mark.parametrize(
    "held", ["5", True, None, 4.5, Decimal128("5"), [5], {"a": 5}, float("inf"), float("nan")], ids=repr
)
@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence(), SeenIds(also=HighWaterMark())])
def test_a_mark_of_another_type_is_a_mismatch(ledger: Ledger, held: Any) -> None:
    with pytest.raises(LedgerMismatch):
        verdict(ledger, {**ENTITY, "ow_@": {"s": held}})


@pytest.mark.parametrize(
    "held", ["m5", 5, None, {"a": 1}, [HASH, "text"], [{"a": 1}], [HASH, {"a": 1}], [[HASH]], 7.0, True], ids=repr
)
@pytest.mark.parametrize("slot", ["r4", "r1"])
def test_a_slot_that_holds_something_else_is_a_mismatch_though_another_has_the_mark(slot: str, held: Any) -> None:
    with pytest.raises(LedgerMismatch, match="set of bytes"):
        verdict(SeenIds(), {**ENTITY, "ow_r": {"r0": [HASH], slot: held}})


@pytest.mark.parametrize("held", [None, 5, "m5", [], ["m5"], True], ids=repr)
@pytest.mark.parametrize(("ledger", "field"), [(SeenIds(), "ow_r"), (HighWaterMark(), "ow_@")])
def test_something_else_in_place_of_the_ledger_is_a_mismatch(ledger: Ledger, field: str, held: Any) -> None:
    with pytest.raises(LedgerMismatch, match=f"'{field}' holds a {type(held).__name__} where the ledger keeps a document"):
        verdict(ledger, {**ENTITY, field: held})


@pytest.mark.parametrize("held", [None, 5, "m5", {}, {"r1": []}, [b"m5"]], ids=repr)
def test_something_else_in_place_of_ids_that_are_kept_for_ever_is_a_mismatch(held: Any) -> None:
    with pytest.raises(LedgerMismatch, match="set of str"):
        verdict(BY_HAND, {**ENTITY, "messageIDs": held})


@pytest.mark.parametrize(
    ("ledger", "held", "said"),
    [
        (SeenIds(), {"ow_l": "ow1 30d"}, "kept as '30d', and this store keeps '14d'"),
        (SeenIds(), {"ow_l": "ow1 > ow_ids:l"}, "has moved from 'ow_l' to 'ow_ids:l'"),
        (SeenIds(), {"ow_l": "note"}, "which no ledger of this version"),
        (SeenIds(), {"ow_l": 5}, "which no ledger of this version"),
        (SeenIds(), {"ow_l": ["ow1 14d"]}, "which no ledger of this version"),
        (SeenIds(), {"ow_l": "ow1 marks"}, "kept as 'marks'"),
        (HighWaterMark(), {"ow_l": "ow1 14d"}, "kept as '14d'"),
    ],
)
def test_an_entity_with_another_ledger_is_a_mismatch(ledger: Ledger, held: dict[str, Any], said: str) -> None:
    with pytest.raises(LedgerMismatch, match=said):
        verdict(ledger, {**ENTITY, **held})


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"messageIDs": "business"}),
        (SeenIds(), {"messageIDs": {"a": ["m5"]}}),
        (SeenIds(), {"messageIDs": ["m5"]}),
        (SeenIds(), {"messageIDs": [{"a": 1}, "m5", 5]}),
        (HighWaterMark(), {"events": ["placed"]}),
    ],
)
def test_what_stands_where_handlers_keep_ids_by_hand_is_the_callers_own(ledger: Ledger, held: dict[str, Any]) -> None:
    assert verdict(ledger, {**ENTITY, **held}) == Rejected(M5, {**ENTITY, **held})


@pytest.mark.parametrize(
    ("sequence", "mark", "error"),
    [
        ("10", "9", InvalidMessage),
        ("9", "10", InvalidMessage),
        (sortable(9), "5", LedgerMismatch),
        ("5555", sortable(9), LedgerMismatch),  # as many letters, and yet no number
        ("5555", "-001", LedgerMismatch),
        ("9", "", LedgerMismatch),
        ("10", sortable(9), LedgerMismatch),
    ],
)
def test_text_that_does_not_compare_is_refused_and_not_taken_for_the_callers_refusal(
    sequence: str, mark: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        verdict(HighWaterMark(), {**ENTITY, "ow_@": {"s": mark}}, Message("m", source="s", sequence=sequence))


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_a_stored_ledger_is_told_in_the_ledgers_own_words() -> None:
    held = lookup(
        {
            "ow_a:l": "ow1 14d",
            "a": ["x", "y"],
            "ow_a:r": {"r0": [b"x", b"y"]},
            "ow_a:@": {"s": Int64(5), "%": "text", "u": 6.0, "b%2Ec": True},
        }
    )
    assert held(Slot("ow_a:l")) == "ow1 14d"
    assert held(Slot("a")) == frozenset({"x", "y"})
    assert held(Slot("ow_a:r", "r0")) == frozenset({b"x", b"y"})
    assert [held(Slot("ow_a:@", key)) for key in ("s", "%", "u")] == [5, "text", 6]
    assert [type(held(Slot("ow_a:@", key))) for key in ("s", "u")] == [int, int]
    assert held(Slot("ow_a:@", "b%2Ec")) is True
    assert [held(slot) for slot in (Slot("b"), Slot("b", "r0"), Slot("ow_a:r", "r1"))] == [ABSENT] * 3


@pytest.mark.parametrize("value", [True, None, 4.5, "b", {"f": 1}], ids=repr)
def test_what_no_ledger_wrote_stays_what_it_is(value: Any) -> None:
    assert lookup({"a": value})(Slot("a")) is value
    assert lookup({"a": {"b": value}})(Slot("a", "b")) is value


def test_an_array_is_a_set_whatever_is_in_it_and_what_is_no_mark_is_one_thing() -> None:
    held = lookup({"a": ["x", {"b": 1}, ["c"], {"d": 2}, b"y", 5], "b": {"r0": [{"x": 1}, [HASH]]}, "c": []})
    found, only = held(Slot("a")), held(Slot("b", "r0"))
    assert isinstance(found, frozenset)
    assert isinstance(only, frozenset)
    assert len(only) == 1
    assert found - only == frozenset({"x", b"y", 5})
    assert held(Slot("c")) == frozenset()


def test_a_slot_is_a_path() -> None:
    slots = (Slot("a"), Slot("ow_a:r", "r0"), Slot("ow_a:@", "s"), Slot("ow_a:@", "%"))
    assert [path_of(slot) for slot in slots] == ["a", "ow_a:r.r0", "ow_a:@.s", "ow_a:@.%"]


def test_a_ledgers_fields_are_those_that_it_makes_and_no_others() -> None:
    theirs = (
        "ow_a:r",
        "ow_a:14dt_r",
        "ow_a:36h_r",
        "ow_a:90m_r",
        "ow_a:1s_r",
        "ow_a:1500000us_r",
        "ow_a:all",
        "ow_a:l",
        "ow_a:@",
    )
    others = (
        "a",
        "ab",
        "a.b",
        "a_",
        "a_14",
        "a_14w",
        "a_d",
        "ow_a:r0",
        "ow_a:@s",
        "ow_a:t0",
        "ow_b:all",
        "",
        "xa_all",
        "ow_a:all\n",
    )
    assert [name for name in (*theirs, *others) if is_made_by("ow_a:l", name)] == [*theirs]


def test_a_set_of_the_callers_is_one_field() -> None:
    assert [name for name in ("a", "ab", "ow_l", "ow_r", "ow_a:l") if is_made_by("a", name)] == ["a"]


BUSINESS: dict[str, Any] = {
    "_id": "o-1",
    "events": ["placed"],
    "events.x": 1,
    "events_note": "x",
    "messageIDs": 1,
    "messageIDs_note": "x",
    "messageIDs_r0": ["x"],
    "note_ledger": "ow2 14d",
    "map": {"ow_all": ["x"]},
}
OWN: dict[str, Any] = {"ow_l": "ow1 14d", "ow_r": {"r0": [HASH]}, "ow_30dt_r": {"r5": ["m1"]}, "ow_all": [HASH]}
SECOND: dict[str, Any] = {"ow_other:l": "ow1 marks", "ow_other:@": {"s": 5, "%": "text"}}
SHARED = dict.fromkeys(("ow_o", "ow_events", "ow_steps", "ow_", "ow_of a later version"), "anything")


def test_an_entity_is_a_document_without_all_that_is_ours() -> None:
    assert without_ledger(SeenIds().terms, {**OWN, **BUSINESS, **SECOND, **SHARED}) == BUSINESS


def test_a_set_that_was_kept_by_hand_is_part_of_the_ledger_that_looks_into_it() -> None:
    document = {**ENTITY, "messageIDs": ["m1"], "ow_ids:r": {"r0": [HASH]}}
    assert without_ledger(SeenIds(name="ids", also=BY_HAND).terms, document) == ENTITY


# --- what a failure means ---------------------------------------------------------------------------------------------


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
def test_a_duplicate_key_is_the_entitys_own_or_the_callers_business(details: Any, entity: Any, *, expected: bool) -> None:
    assert is_of_entity(DuplicateKeyError("E11000", 11000, details), entity) is expected


@pytest.mark.parametrize("code", [10334, 17419, 17420])
def test_an_entity_that_is_too_large_is_told_by_its_code(code: int) -> None:
    assert is_too_large(OperationFailure("", code))
    assert not may_be_ledger(OperationFailure("", code))


@pytest.mark.parametrize("code", [2, 14, 28, 28664])
def test_a_failure_about_content_may_be_the_ledgers(code: int) -> None:
    assert may_be_ledger(OperationFailure("", code))
    assert not is_too_large(OperationFailure("", code))


@pytest.mark.parametrize("error", [OperationFailure(""), OperationFailure("", 91), ValueError(2), ConnectionError(28)])
def test_any_other_failure_is_neither(error: Exception) -> None:
    assert not is_too_large(error)
    assert not may_be_ledger(error)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationFailure("", 121), True),
        (DuplicateKeyError("", 11000), True),
        (WriteConcernError("", 64), False),
        (WTimeoutError("", 64), False),
        (ExecutionTimeout("", 50), False),
        (ConnectionFailure(""), False),
        (ValueError(), False),
    ],
    ids=repr,
)
def test_a_failure_of_the_write_itself_says_that_nothing_was_done(error: Exception, *, expected: bool) -> None:
    assert says_nothing_was_done(error) is expected
