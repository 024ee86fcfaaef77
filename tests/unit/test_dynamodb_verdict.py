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
    InvalidMessage,
    LedgerMismatch,
    Message,
    Missing,
    Rejected,
    SeenIds,
    Stale,
    sortable,
)
from onewrite.dynamodb.verdict import refused
from onewrite.dynamodb.writing.attempt import new_attempt
from onewrite.dynamodb.writing.layout import lookup, without_ledger
from onewrite.dynamodb.writing.values import typed
from onewrite.label import Slot
from onewrite.ledgers import Ledger
from onewrite.ledgers.entry import ABSENT

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
TOKEN = bytes.fromhex("206dda326f31")  # of the name "try"
OTHER = b"\0\1\2"
ENTITY = {"orderId": "o-1", "n": 1}
BY_HAND = SeenIds(retention=None, readable=True)


def verdict(ledger: Ledger, item: dict[str, Any] | None, message: Message = M5, *, shows: bool = False) -> object:
    return refused(new_attempt(message, ledger.entry(message, NOW), "try", NOW), item, shows=shows)


def binaries(*members: bytes) -> set[Binary]:
    """A set of bytes as boto3 returns it."""
    return {Binary(member) for member in members}


# --- whose refusal it was ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ledger", [SeenIds(), SeenIds(retention=None), SeenIds(readable=True), BY_HAND, HighWaterMark(), InSequence(5)]
)
def test_a_refusal_that_the_ledger_does_not_explain_is_the_callers_own(ledger: Ledger) -> None:
    assert verdict(ledger, ENTITY) == Rejected(M5, ENTITY)
    assert verdict(ledger, None) == Missing(M5)


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"messageIDs_14d_r1": binaries(HASH, b"another")}),
        (SeenIds(), {"messageIDs_14d_r0": binaries(HASH)}),
        (SeenIds(), {"messageIDs_14d_r4": binaries(HASH)}),
        (SeenIds(readable=True), {"messageIDs_14dt_r4": {"@s/m5", "m4"}}),
        (SeenIds(retention=None), {"messageIDs_all": binaries(HASH)}),
        (BY_HAND, {"messageIDs": {"@s/m5"}}),
        (HighWaterMark(), {"events@s": Decimal(5)}),
        (InSequence(), {"events@s": Decimal(5)}),
        (SeenIds(attribute="ids", also=BY_HAND), {"messageIDs": {"m5"}}),
        (SeenIds(attribute="ids", also=BY_HAND), {"messageIDs": {"@s/m5"}}),
        (SeenIds(also=HighWaterMark()), {"events@s": Decimal(5)}),
    ],
)
def test_a_message_that_the_ledger_holds_is_a_duplicate(ledger: Ledger, held: dict[str, Any]) -> None:
    attempts = {f"{ledger.attribute}_try_r4": binaries(OTHER)}
    assert verdict(ledger, {**ENTITY, **held, **attempts}) == Duplicate(M5, ENTITY)
    assert verdict(ledger, {**ENTITY, **held}) == Duplicate(M5, ENTITY)


@pytest.mark.parametrize(
    "held",
    [
        {"messageIDs_14d_r1": binaries(b"another")},
        {"messageIDs_14d_r2": binaries(HASH)},
        {"messageIDs_all": binaries(HASH)},
        {"messageIDs_14dt_r1": {"@s/m5", "m5"}},
    ],
)
def test_marks_of_other_messages_and_in_other_places_are_no_duplicates(held: dict[str, Any]) -> None:
    assert verdict(SeenIds(), {**ENTITY, **held}) == Rejected(M5, ENTITY)


def test_the_same_id_of_another_source_or_in_another_part_is_another_message() -> None:
    item = {**ENTITY, "messageIDs_14d_r1": binaries(HASH)}
    for other in (Message("m5"), Message("m5", source="t"), M5.part("stock")):
        assert verdict(SeenIds(), item, other) == Rejected(other, ENTITY)


def test_a_mark_that_is_past_the_message_makes_it_stale() -> None:
    assert verdict(HighWaterMark(), {**ENTITY, "events@s": Decimal(7)}) == Stale(M5, 7, ENTITY)
    assert verdict(InSequence(), {**ENTITY, "events@s": Decimal(7)}) == Stale(M5, 7, ENTITY)
    assert verdict(SeenIds(also=InSequence()), {**ENTITY, "events@s": Decimal(7)}) == Stale(M5, 7, ENTITY)


def test_a_gap_defers_the_message() -> None:
    assert verdict(InSequence(), {**ENTITY, "events@s": Decimal(3)}) == Deferred(M5, 4, ENTITY)
    assert verdict(InSequence(), None) == Deferred(M5, 1, None)


def test_a_message_before_the_first_of_its_source_is_stale() -> None:
    assert verdict(InSequence(first=7), None) == Stale(M5, 6, None)


def test_a_duplicate_of_one_ledger_weighs_more_than_what_another_says() -> None:
    item = {**ENTITY, "messageIDs_14d_r1": binaries(HASH), "events@s": Decimal(7)}
    assert verdict(SeenIds(also=HighWaterMark()), item) == Duplicate(M5, ENTITY)
    gap = {**ENTITY, "messageIDs_14d_r1": binaries(HASH), "events@s": Decimal(3)}
    assert verdict(InSequence(2, also=SeenIds()), gap) == Duplicate(M5, ENTITY)


def test_a_mark_that_one_ledger_has_passed_weighs_more_than_what_another_lets_in() -> None:
    both = {**ENTITY, "events@s": Decimal(3), "old@s": Decimal(9)}
    for before in (HighWaterMark("old"), InSequence(attribute="old")):
        assert verdict(HighWaterMark(also=before), both) == Stale(M5, 9, ENTITY)


def test_a_mark_is_an_int_again_and_not_a_decimal() -> None:
    outcome = verdict(HighWaterMark(), {"events@s": Decimal(7)})
    assert isinstance(outcome, Stale)
    assert type(outcome.mark) is int


# --- a lost answer ----------------------------------------------------------------------------------------------------

LANDED: list[tuple[Ledger, dict[str, Any]]] = [
    (SeenIds(), {"messageIDs_14d_r1": binaries(HASH), "messageIDs_try_r4": binaries(TOKEN, OTHER)}),
    (SeenIds(retention=None), {"messageIDs_all": binaries(HASH), "messageIDs_try_r4": binaries(TOKEN)}),
    (HighWaterMark(), {"events@s": Decimal(5), "events_try_r4": binaries(TOKEN)}),
    # Meanwhile others have written on top of it.
    (HighWaterMark(), {"events@s": Decimal(9), "events_try_r4": binaries(TOKEN, OTHER)}),
    (InSequence(), {"events@s": Decimal(6), "events_try_r4": binaries(TOKEN, OTHER)}),
]


@pytest.mark.parametrize(("ledger", "held"), LANDED)
def test_what_holds_this_calls_own_token_was_written_by_an_earlier_try_of_it(ledger: Ledger, held: dict[str, Any]) -> None:
    item = {**ENTITY, **held}
    assert verdict(ledger, item) == Applied(M5, None, retried=True)
    assert verdict(ledger, item, shows=True) == Applied(M5, ENTITY, retried=True)


@pytest.mark.parametrize(
    "held",
    [
        {"messageIDs_try_r4": binaries(OTHER)},
        {"messageIDs_try_r1": binaries(TOKEN)},  # tokens of another time
        {"events_try_r4": binaries(TOKEN)},  # and of another ledger
        {"messageIDs_14d_r0": binaries(TOKEN)},
    ],
)
def test_anothers_token_or_a_token_elsewhere_is_no_lost_answer(held: dict[str, Any]) -> None:
    item = {**ENTITY, "messageIDs_14d_r1": binaries(HASH), **held}
    outcome = verdict(SeenIds(), item)
    assert isinstance(outcome, Duplicate)


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_a_stored_ledger_is_told_in_the_ledgers_own_words() -> None:
    item = {
        "a": {"x"},
        "a_14d_r0": {Binary(b"y")},
        "a@s": Decimal(5),
        "a@%": "text",
        "a@b%2Ec": Decimal("5E3"),
        "a_ledger": "ow1 14d",
    }
    held = lookup(item)
    assert held(Slot("a")) == frozenset({"x"})
    assert held(Slot("a_14d", "r0")) == frozenset({b"y"})
    assert [held(Slot("a@", key)) for key in ("s", "%", "b%2Ec")] == [5, "text", 5000]
    assert held(Slot("a_ledger")) == "ow1 14d"
    assert held(Slot("a_14d", "r1")) is ABSENT


@pytest.mark.parametrize("value", ["5", None, [], [5], {"a": 1}, True, Decimal("5.5"), {Decimal(5)}], ids=repr)
@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence(), SeenIds(also=HighWaterMark())])
def test_what_is_no_mark_is_a_mismatch(ledger: Ledger, value: object) -> None:
    with pytest.raises(LedgerMismatch, match="do not compare"):
        verdict(ledger, {"events@s": value})


@pytest.mark.parametrize("value", [5, "m5", ["m5"], None, {Decimal(5)}, {"m5"}, {"a": 1}], ids=repr)
@pytest.mark.parametrize("slot", ["messageIDs_14d_r4", "messageIDs_14d_r1"])
def test_a_set_that_holds_something_else_is_a_mismatch_though_another_has_the_mark(slot: str, value: object) -> None:
    with pytest.raises(LedgerMismatch, match="set of bytes"):
        verdict(SeenIds(), {"messageIDs_14d_r0": binaries(HASH), slot: value})


def test_hashes_where_readable_ids_should_be_are_a_mismatch() -> None:
    with pytest.raises(LedgerMismatch, match="set of str"):
        verdict(BY_HAND, {"messageIDs": binaries(HASH)})


@pytest.mark.parametrize(
    "value",
    [
        Decimal(5),
        "try",
        None,
        True,
        ["try"],
        {"a": 1},
        {"try"},
        {Decimal(1)},
        TOKEN,
        Binary(TOKEN),
        [Binary(TOKEN)],
        [TOKEN],
        {TOKEN: 1},
    ],
    ids=repr,
)
def test_something_else_where_the_tokens_should_be_proves_nothing(value: object) -> None:
    item = {**ENTITY, "messageIDs_try_r4": value}
    assert verdict(SeenIds(), item) == Rejected(M5, ENTITY)
    assert verdict(SeenIds(), {**item, "messageIDs_14d_r1": binaries(HASH)}) == Duplicate(M5, ENTITY)


@pytest.mark.parametrize(
    ("ledger", "held", "said"),
    [
        (SeenIds(), {"messageIDs_ledger": "ow1 30d"}, r"kept as '30d', and this store keeps '14d'.*also=SeenIds\(timedelta"),
        (SeenIds(), {"messageIDs_ledger": "ow1 all text"}, r"also=SeenIds\(None, 'messageIDs', readable=True\)"),
        (SeenIds(), {"messageIDs_ledger": "ow1 > ids"}, "has moved from 'messageIDs' to 'ids'"),
        (SeenIds(), {"messageIDs_ledger": "note"}, "'messageIDs_ledger' holds 'note', which no ledger put there"),
        (SeenIds(), {"messageIDs_ledger": Decimal(5)}, "'messageIDs_ledger' holds 5"),
        (SeenIds(), {"events_ledger": "ow1 marks"}, r"another kind in 'events'.*also=HighWaterMark\(attribute='events'\)"),
        (HighWaterMark(), {"messageIDs_ledger": "ow1 14d"}, "another kind in 'messageIDs'"),
        (SeenIds(), {"messageIDs": {"m1"}}, "holds a set, as a handler keeps it that remembers ids by itself"),
        (SeenIds(), {"messageIDs": {Decimal(1)}}, "holds a set"),
        (SeenIds(), {"messageIDs": {Binary(b"x")}}, "holds a set"),
        (SeenIds(), {"messageIDs": ["m5"]}, "holds a set"),
    ],
)
def test_an_entity_with_another_ledger_is_a_mismatch(ledger: Ledger, held: dict[str, Any], said: str) -> None:
    with pytest.raises(LedgerMismatch, match=said):
        verdict(ledger, {**ENTITY, **held})


@pytest.mark.parametrize(
    "value",
    ["x", Decimal(1), {"a": 1}, None, True, Binary(b"x")],
    ids=repr,
)
def test_what_stands_beside_a_ledger_and_is_no_set_is_the_callers_own(value: object) -> None:
    item = {**ENTITY, "messageIDs": value}
    assert verdict(SeenIds(), {**item, "messageIDs_14d_r1": binaries(HASH)}) == Duplicate(M5, item)


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(also=HighWaterMark()), {"messageIDs_ledger": "ow1 14d", "events_ledger": "ow1 marks"}),
        (SeenIds(also=HighWaterMark()), {"messageIDs_ledger": "ow1 > events", "events_ledger": "ow1 > messageIDs"}),
        (SeenIds(also=SeenIds(None)), {"messageIDs_ledger": "ow1 all"}),
        (SeenIds(attribute="ids"), {"events_ledger": "ow1 marks", "messageIDs_ledger": "ow1 14d"}),
    ],
)
def test_an_entity_with_a_ledger_that_is_known_is_none(ledger: Ledger, held: dict[str, Any]) -> None:
    assert isinstance(verdict(ledger, {**ENTITY, **held}), Rejected)


@pytest.mark.parametrize(
    ("sequence", "mark", "error"),
    [
        ("10", "9", InvalidMessage),
        ("9", "10", InvalidMessage),
        (sortable(9), "5", LedgerMismatch),
        ("5555", sortable(9), LedgerMismatch),  # as many letters, and yet no number
        ("5555", "-001", LedgerMismatch),
        ("9", "-", LedgerMismatch),
        ("10", sortable(9), LedgerMismatch),
    ],
)
def test_text_that_does_not_compare_is_refused_and_not_taken_for_the_callers_refusal(
    sequence: str, mark: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        verdict(HighWaterMark(), {"events@s": mark}, Message("m", source="s", sequence=sequence))


# --- the entity without its ledger ------------------------------------------------------------------------------------

BUSINESS: dict[str, Any] = {
    "orderId": "o-1",
    "events": ["placed"],
    "events.x": 1,
    "events_note": "x",
    "messageIDs": Decimal(1),
    "messageIDs_note": "x",
    "messageIDs_r0": {"x"},
    "note_ledger": "ow2 14d",
    "map": {"messageIDs_all": {"x"}},
}
OWN: dict[str, Any] = {
    "messageIDs_ledger": "ow1 14d",
    "messageIDs_14d_r0": binaries(HASH),
    "messageIDs_30dt_r5": {"m1"},
    "messageIDs_all": binaries(HASH),
    "messageIDs_try_r4": binaries(TOKEN),
}
SECOND: dict[str, Any] = {
    "other_ledger": "ow1 marks",
    "other@s": Decimal(5),
    "other@%": "text",
    "other_try_r0": binaries(TOKEN),
}
PLAIN_SECOND = {"ids_ledger": "ow1 all text", "ids": {"m1"}, "ids_try_r0": binaries(TOKEN)}


@pytest.mark.parametrize("spelt", [dict, typed], ids=["plain", "typed"])
def test_an_entity_is_an_item_without_its_ledger_and_without_any_other_that_left_its_label(spelt: Any) -> None:
    business, every = spelt(BUSINESS), spelt({**OWN, **BUSINESS, **SECOND, **PLAIN_SECOND})
    assert without_ledger(SeenIds().terms, every) == business


@pytest.mark.parametrize("spelt", [dict, typed], ids=["plain", "typed"])
def test_what_looks_like_another_ledger_and_has_no_label_is_the_callers_own(spelt: Any) -> None:
    unlabelled = {name: value for name, value in {**SECOND, **PLAIN_SECOND}.items() if not name.endswith("_ledger")}
    item = spelt({**BUSINESS, **unlabelled, "other_ledger": Decimal(1)})
    assert without_ledger(SeenIds().terms, item) == item


def test_a_set_that_was_kept_by_hand_is_part_of_the_ledger_that_looks_into_it() -> None:
    item = {**ENTITY, "messageIDs": {"m1"}, "ids_14d_r0": binaries(HASH)}
    assert without_ledger(SeenIds(attribute="ids", also=BY_HAND).terms, item) == ENTITY
