"""What MongoDB returned, as an outcome."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Int64
from bson.decimal128 import Decimal128
from pymongo.errors import DuplicateKeyError, OperationFailure

from onewrite import Deferred, Duplicate, HighWaterMark, InSequence, LedgerMismatch, Message, Rejected, SeenIds, Stale
from onewrite.ledger import Ledger
from onewrite.mongodb.request import in_bson
from onewrite.mongodb.verdict import (
    check_ledger,
    is_of_entity,
    is_too_large,
    may_be_ledger,
    stored,
    unmatched,
    without_ledger,
)

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
ENTITY = {"_id": "o-1", "n": 1}
LEDGERS: list[Ledger] = [SeenIds(), SeenIds(digest=True), SeenIds(retention=None), HighWaterMark(), InSequence(5)]


def verdict(ledger: Ledger, document: dict[str, Any] | None) -> object:
    return unmatched(ledger.attribute, in_bson(ledger.entry(M5, NOW)), M5, document)


@pytest.mark.parametrize("ledger", LEDGERS)
def test_what_the_ledger_does_not_explain_is_the_callers_own_refusal(ledger: Ledger) -> None:
    assert verdict(ledger, ENTITY) == Rejected(M5, ENTITY)
    assert verdict(ledger, None) == Rejected(M5, None)


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"r1": [b"699:m4", b"699:m5"]}),
        (SeenIds(), {"r0": [b"699:m5"]}),
        (SeenIds(), {"r4": [b"698:m5"]}),
        (SeenIds(retention=None), ["m4", "m5"]),
        (HighWaterMark(), {"@s": 5}),
        (InSequence(), {"@s": 5}),
    ],
)
def test_a_message_that_the_ledger_holds_is_a_duplicate(ledger: Ledger, held: Any) -> None:
    assert verdict(ledger, {**ENTITY, ledger.attribute: held}) == Duplicate(M5, ENTITY)


@pytest.mark.parametrize("held", [{}, {"r1": []}, {"r1": [b"699:m4"]}, {"r2": [b"699:m5"]}, {"r1": [b"693:m5"]}])
def test_marks_of_other_messages_and_of_other_times_are_no_duplicates(held: Any) -> None:
    assert verdict(SeenIds(), {**ENTITY, "messageIDs": held}) == Rejected(M5, ENTITY)


def test_a_mark_that_is_past_the_message_makes_it_stale_and_a_gap_defers_it() -> None:
    assert verdict(HighWaterMark(), {**ENTITY, "events": {"@s": 7}}) == Stale(M5, 7, ENTITY)
    assert verdict(InSequence(), {**ENTITY, "events": {"@s": 3}}) == Deferred(M5, 4, ENTITY)
    assert verdict(InSequence(), None) == Deferred(M5, 1, None)


@pytest.mark.parametrize("held", [7, 7.0, Int64(7)])
def test_a_mark_is_an_int_however_it_is_stored(held: Any) -> None:
    outcome = verdict(HighWaterMark(), {**ENTITY, "events": {"@s": held}})
    assert outcome == Stale(M5, 7, ENTITY)
    assert isinstance(outcome, Stale)
    assert type(outcome.mark) is int


@pytest.mark.parametrize(
    "held", ["5", True, None, 4.5, Decimal128("5"), [5], {"a": 5}, float("inf"), float("nan")], ids=repr
)
def test_a_mark_of_another_type_is_a_mismatch(held: Any) -> None:
    with pytest.raises(LedgerMismatch):
        verdict(HighWaterMark(), {**ENTITY, "events": {"@s": held}})


@pytest.mark.parametrize(
    "held", ["699:m5", 5, None, {"a": 1}, [b"699:m5", "text"], [{"a": 1}], [[b"699:m5"]], 7.0], ids=repr
)
def test_a_slot_that_holds_something_else_is_a_mismatch_and_no_duplicate(held: Any) -> None:
    with pytest.raises(LedgerMismatch):
        verdict(SeenIds(), {**ENTITY, "messageIDs": {"r1": held}})


@pytest.mark.parametrize("held", [None, 5, "m5", [], ["m5"], True], ids=repr)
@pytest.mark.parametrize("ledger", [SeenIds(), HighWaterMark()])
def test_something_else_in_place_of_the_ledger_is_a_mismatch(ledger: Ledger, held: Any) -> None:
    with pytest.raises(LedgerMismatch, match=f"'{ledger.attribute}' holds a {type(held).__name__}, and not this ledger"):
        verdict(ledger, {**ENTITY, ledger.attribute: held})


@pytest.mark.parametrize("held", [None, 5, "m5", {}, {"r1": []}], ids=repr)
def test_something_else_in_place_of_a_set_that_is_kept_for_ever_is_a_mismatch(held: Any) -> None:
    with pytest.raises(LedgerMismatch, match="`retention` was changed"):
        verdict(SeenIds(retention=None), {**ENTITY, "messageIDs": held})


def test_a_stored_ledger_is_told_in_the_ledgers_own_words() -> None:
    entry = HighWaterMark().entry(M5, NOW)
    held = {"@s": Int64(5), "@t": "text", "@u": 6.0, "r0": [b"x", b"y"]}
    assert stored("a", {"n": 1, "a": held}, entry) == {"@s": 5, "@t": "text", "@u": 6, "r0": frozenset([b"x", b"y"])}
    assert stored("a", {"n": 1}, entry) == {}
    # What no ledger wrote stays what it is, for the refusal to name.
    strange = {"a": [{"b": 1}], "b": True, "c": None, "d": 4.5, "e": {"f": 1}}
    assert stored("a", {"a": strange}, entry) == strange
    assert stored("a", {"a": {"b": True}}, entry)["b"] is True


def test_an_entity_is_a_document_without_its_ledger() -> None:
    assert without_ledger("events", {"a": 1, "events": {"@s": 1}, "eventsx": 2}) == {"a": 1, "eventsx": 2}


def test_a_broken_ledger_is_told_and_a_sound_one_is_not() -> None:
    entry = HighWaterMark().entry(M5, NOW)
    check_ledger("events", entry, {**ENTITY, "events": {"@s": 9}})
    check_ledger("events", entry, ENTITY)
    with pytest.raises(LedgerMismatch):
        check_ledger("events", entry, {**ENTITY, "events": {"@s": "9"}})
    with pytest.raises(LedgerMismatch):
        check_ledger("events", entry, {**ENTITY, "events": 9})


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


@pytest.mark.parametrize("code", [10334, 17419])
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
