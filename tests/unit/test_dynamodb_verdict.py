"""What DynamoDB returned, as an outcome."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import Binary

from onewrite import (
    Applied,
    Deferred,
    Duplicate,
    HighWaterMark,
    InSequence,
    LedgerMismatch,
    Message,
    Rejected,
    SeenIds,
    Stale,
)
from onewrite.dynamodb.request import guard_put, guard_update
from onewrite.dynamodb.verdict import Attempt, refused, stored, without_ledger
from onewrite.ledger import Ledger

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
ENTITY = {"orderId": "o-1", "n": 1}
NATIVE = {"Key": {"orderId": "o-1"}}


def verdict(ledger: Ledger, item: dict[str, Any] | None, **native: Any) -> object:
    entry = ledger.entry(M5, NOW)
    call = guard_update(ledger.attribute, entry, "try", {**NATIVE, **native})
    return refused(ledger.attribute, Attempt(call, entry, "try"), M5, item)


# --- whose refusal it was ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ledger", [SeenIds(), SeenIds(retention=None), SeenIds(digest=True), HighWaterMark(), InSequence(5)]
)
def test_a_refusal_that_the_ledger_does_not_explain_is_the_callers_own(ledger: Ledger) -> None:
    assert verdict(ledger, ENTITY) == Rejected(M5, ENTITY)
    assert verdict(ledger, None) == Rejected(M5, None)
    assert verdict(ledger, {}) == Rejected(M5, {})


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"messageIDs_r1": {"699:m5", "~other"}}),
        (SeenIds(), {"messageIDs_r0": {"699:m5"}}),
        (SeenIds(), {"messageIDs_r4": {"698:m5"}}),
        (SeenIds(retention=None), {"messageIDs": {"m5"}, "messageIDs.attempt": "other"}),
        (SeenIds(retention=None), {"messageIDs": {"m5"}}),
        (HighWaterMark(), {"events.@s": Decimal(5), "events.~s": "other"}),
        (InSequence(), {"events.@s": Decimal(5), "events.~s": "other"}),
    ],
)
def test_a_message_that_the_ledger_holds_is_a_duplicate(ledger: Ledger, held: dict[str, Any]) -> None:
    assert verdict(ledger, {**ENTITY, **held}) == Duplicate(M5, ENTITY)


@pytest.mark.parametrize(
    "held", [{"messageIDs_r1": {"699:m6"}}, {"messageIDs_r2": {"699:m5"}}, {"messageIDs_r1": {"693:m5"}}]
)
def test_marks_of_other_messages_and_of_other_times_are_no_duplicates(held: dict[str, Any]) -> None:
    assert verdict(SeenIds(), {**ENTITY, **held}) == Rejected(M5, ENTITY)


def test_a_digest_is_found_as_boto3_returns_bytes() -> None:
    entry = SeenIds(digest=True).entry(M5, NOW)
    assert isinstance(entry.mark, bytes)
    item = {**ENTITY, "messageIDs_r1": {Binary(entry.mark), Binary(b"~other")}}
    assert verdict(SeenIds(digest=True), item) == Duplicate(M5, ENTITY)


def test_a_mark_that_is_past_the_message_makes_it_stale() -> None:
    assert verdict(HighWaterMark(), {**ENTITY, "events.@s": Decimal(7), "events.~s": "other"}) == Stale(M5, 7, ENTITY)
    assert verdict(InSequence(), {**ENTITY, "events.@s": Decimal(7), "events.~s": "other"}) == Stale(M5, 7, ENTITY)


def test_a_gap_defers_the_message() -> None:
    assert verdict(InSequence(), {**ENTITY, "events.@s": Decimal(3), "events.~s": "other"}) == Deferred(M5, 4, ENTITY)
    assert verdict(InSequence(), None) == Deferred(M5, 1, None)


def test_a_mark_is_an_int_again_and_not_a_decimal() -> None:
    outcome = verdict(HighWaterMark(), {"events.@s": Decimal(7), "events.~s": "other"})
    assert isinstance(outcome, Stale)
    assert type(outcome.mark) is int


# --- a lost answer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"messageIDs_r1": {"699:m5", "~try", "~other", "699:m4"}}),
        (SeenIds(retention=None), {"messageIDs": {"m5", "m4"}, "messageIDs.attempt": "try"}),
        (HighWaterMark(), {"events.@s": Decimal(5), "events.~s": "try"}),
        (InSequence(), {"events.@s": Decimal(5), "events.~s": "try"}),
    ],
)
def test_a_mark_beside_this_calls_own_token_is_its_own(ledger: Ledger, held: dict[str, Any]) -> None:
    item = {**ENTITY, **held}
    assert verdict(ledger, item) == Applied(M5, None, retried=True)
    assert verdict(ledger, item, ReturnValues="ALL_NEW") == Applied(M5, ENTITY, retried=True)
    assert verdict(ledger, item, ReturnValues="UPDATED_NEW") == Applied(M5, None, retried=True)


def test_the_token_is_found_as_boto3_returns_bytes() -> None:
    entry = SeenIds(digest=True).entry(M5, NOW)
    assert isinstance(entry.mark, bytes)
    item = {"messageIDs_r1": {Binary(entry.mark), Binary(b"~try")}}
    assert verdict(SeenIds(digest=True), item) == Applied(M5, None, retried=True)


def test_a_put_whose_answer_was_lost_is_applied_too() -> None:
    entry = HighWaterMark().entry(M5, NOW)
    attempt = Attempt(guard_put("events", entry, "try", {"Item": ENTITY}), entry, "try")
    held = {**ENTITY, "events.@s": Decimal(5), "events.~s": "try"}
    assert refused("events", attempt, M5, held) == Applied(M5, None, retried=True)


@pytest.mark.parametrize(
    ("ledger", "held", "expected"),
    [
        # The token of a call that is not this one's, or that stands where this call would not have put it.
        (SeenIds(), {"messageIDs_r1": {"699:m5", "try", "699:try"}}, Duplicate(M5, ENTITY)),
        (SeenIds(), {"messageIDs_r0": {"699:m5", "~try"}}, Duplicate(M5, ENTITY)),
        (SeenIds(retention=None), {"messageIDs": {"m5", "try", "~try"}}, Duplicate(M5, ENTITY)),
        # A token alone proves nothing: the mark decides.
        (SeenIds(), {"messageIDs_r1": {"699:m4", "~try"}}, Rejected(M5, ENTITY)),
        (SeenIds(retention=None), {"messageIDs": {"m4"}, "messageIDs.attempt": "try"}, Rejected(M5, ENTITY)),
        (HighWaterMark(), {"events.@s": Decimal(4), "events.~s": "try"}, Rejected(M5, ENTITY)),
        (HighWaterMark(), {"events.@s": Decimal(6), "events.~s": "try"}, Stale(M5, 6, ENTITY)),
        (InSequence(), {"events.@s": Decimal(3), "events.~s": "try"}, Deferred(M5, 4, ENTITY)),
    ],
)
def test_anothers_token_or_a_token_elsewhere_is_no_lost_answer(
    ledger: Ledger, held: dict[str, Any], expected: object
) -> None:
    assert verdict(ledger, {**ENTITY, **held}) == expected


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_an_entity_is_an_item_without_its_ledger() -> None:
    item = {"a": 1, "events": 2, "events.@s": 3, "events.": 4, "eventsx": 5, "x.events": 6}
    assert without_ledger("events", item) == {"a": 1, "eventsx": 5, "x.events": 6}


def test_a_stored_ledger_is_told_in_the_ledgers_own_words() -> None:
    item = {
        "n": 1,
        "a": {"x"},
        "a_r0": {Binary(b"y"), "z"},
        "a.r0": {"of nobody"},
        "a_r9": {"the entity's own"},
        "a.@s": Decimal(5),
        "a.@t": "text",
        "a.@b.c": Decimal("5E3"),
        "ab": {"x"},
    }
    assert stored("a", item) == {
        "": frozenset({"x"}),
        "r0": frozenset({b"y", "z"}),
        "@s": 5,
        "@t": "text",
        "@b.c": 5000,
    }


@pytest.mark.parametrize("value", ["5", None, [], [5], [5, "try"], {"a": 1}, True, Decimal("5.5")], ids=repr)
def test_what_is_no_ledger_is_refused(value: object) -> None:
    with pytest.raises(LedgerMismatch):
        verdict(HighWaterMark(), {"events.@s": value})


@pytest.mark.parametrize("value", [5, "699:m5", ["699:m5"], None, {Decimal(5)}], ids=repr)
def test_a_slot_that_holds_something_else_is_refused_and_no_duplicate(value: object) -> None:
    with pytest.raises(LedgerMismatch):
        verdict(SeenIds(), {"messageIDs_r1": value})


@pytest.mark.parametrize("value", [5, None])
def test_a_present_slot_that_holds_something_else_is_refused_though_an_older_one_holds_the_mark(value: object) -> None:
    with pytest.raises(LedgerMismatch):
        verdict(SeenIds(), {"messageIDs_r4": {"698:m5"}, "messageIDs_r1": value})
