"""What DynamoDB returned, as an outcome."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import Binary

from onewrite import (
    Applied,
    Duplicate,
    HighWaterMark,
    InSequence,
    LedgerMismatch,
    Message,
    MessageIDs,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
)
from onewrite.core.ledgers import Ledger
from onewrite.core.write import NO_STEP, Write, has_landed, judge, token_of
from onewrite.dynamodb.layout import image_of

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
TOKEN = bytes.fromhex("206dda326f31")  # of the name "try"
OTHER = b"\0\1\2"
ENTITY = {"orderId": "o-1", "n": 1}


def verdict(ledger: Ledger, item: dict[str, Any] | None, message: Message = M5) -> object:
    """Why this item refused a write of the call "try"."""
    write = Write(message, {"orderId": "o-1"}, NOW, ledger.entry(message, NOW), NO_STEP, token=token_of("try"))
    image = image_of(ledger.terms, item)
    return Applied(message, image.entity, retried=True) if has_landed(write, image) else judge(write, image)


def binaries(*members: bytes) -> set[Binary]:
    """A set of bytes as boto3 returns it."""
    return {Binary(member) for member in members}


# --- whose refusal it was ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"ow_r0": binaries(HASH, b"another")}),
        (SeenIds(), {"ow_r4": binaries(HASH)}),
        (SeenIds(readable=True), {"ow_14dt_r4": {"@s/m5", "m4"}}),
        (SeenIds(retention=None), {"ow_all": binaries(HASH)}),
        (InSequence(), {"ow_@s": Decimal(5)}),
        (SeenIds(name="ids", also=MessageIDs()), {"messageIDs": {"m5"}}),
    ],
)
def test_a_message_that_the_ledger_holds_is_a_duplicate(ledger: Ledger, held: dict[str, Any]) -> None:
    assert verdict(ledger, {**ENTITY, **held}) == Duplicate(M5, ENTITY)


@pytest.mark.parametrize("held", [{"ow_r1": binaries(b"another")}, {"ow_r2": binaries(HASH)}, {"ow_all": binaries(HASH)}])
def test_marks_of_other_messages_and_in_other_places_are_no_duplicates(held: dict[str, Any]) -> None:
    assert verdict(SeenIds(), {**ENTITY, **held}) == Rejected(M5, ENTITY)


def test_a_message_before_the_first_of_its_source_is_stale() -> None:
    assert verdict(InSequence(first=7), None) == Stale(M5, 6, None)


def test_a_mark_is_an_int_again_and_not_a_decimal() -> None:
    outcome = verdict(HighWaterMark(), {"ow_@s": Decimal(7)})
    assert isinstance(outcome, Stale)
    assert type(outcome.mark) is int


# --- a lost answer ----------------------------------------------------------------------------------------------------

LANDED: list[tuple[Ledger, dict[str, Any]]] = [
    (SeenIds(), {"ow_r1": binaries(HASH, OTHER)}),
    (SeenIds(retention=None), {"ow_all": binaries(HASH)}),
    (HighWaterMark(), {"ow_@s": Decimal(5)}),
    (InSequence(), {"ow_@s": Decimal(5)}),
]


@pytest.mark.parametrize(("ledger", "held"), LANDED)
def test_what_holds_this_calls_own_token_was_written_by_an_earlier_try_of_it(ledger: Ledger, held: dict[str, Any]) -> None:
    assert verdict(ledger, {**ENTITY, **held, "ow_t": Binary(TOKEN)}) == Applied(M5, ENTITY, retried=True)


@pytest.mark.parametrize(
    ("ledger", "held", "expected"),
    [
        (SeenIds(), {"ow_r1": binaries(HASH, OTHER)}, Duplicate(M5, ENTITY)),
        (HighWaterMark(), {"ow_@s": Decimal(5)}, Duplicate(M5, ENTITY)),
        (HighWaterMark(), {"ow_@s": Decimal(9)}, Stale(M5, 9, ENTITY)),
        (InSequence(), {"ow_@s": Decimal(6)}, Stale(M5, 6, ENTITY)),
    ],
)
def test_a_write_that_another_has_overtaken_is_settled(ledger: Ledger, held: dict[str, Any], expected: Outcome) -> None:
    assert verdict(ledger, {**ENTITY, **held, "ow_t": Binary(OTHER)}) == expected
    assert expected.settled


@pytest.mark.parametrize(
    "held",
    [
        {"ow_t": Binary(OTHER)},
        {"ow_r0": binaries(TOKEN)},
    ],
)
def test_anothers_token_or_a_token_elsewhere_is_no_lost_answer(held: dict[str, Any]) -> None:
    item = {**ENTITY, "ow_r1": binaries(HASH), **held}
    outcome = verdict(SeenIds(), item)
    assert isinstance(outcome, Duplicate)


# --- what is stored ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["5", None, True, Decimal("5.5"), {Decimal(5)}], ids=repr)
@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence(), SeenIds(also=HighWaterMark())])
def test_what_is_no_mark_is_a_mismatch(ledger: Ledger, value: object) -> None:
    with pytest.raises(LedgerMismatch, match="do not compare"):
        verdict(ledger, {"ow_@s": value})


@pytest.mark.parametrize("value", ["m5", None, {Decimal(5)}, {"m5"}], ids=repr)
@pytest.mark.parametrize("slot", ["ow_r4", "ow_r1"])
def test_a_set_that_holds_something_else_is_a_mismatch_though_another_has_the_mark(slot: str, value: object) -> None:
    with pytest.raises(LedgerMismatch, match="set of bytes"):
        verdict(SeenIds(), {"ow_r0": binaries(HASH), slot: value})


@pytest.mark.parametrize("value", ["try", None, {"try"}, {Decimal(1)}, {TOKEN}, [TOKEN], {"t": TOKEN}], ids=repr)
def test_something_else_where_the_token_should_be_proves_nothing(value: object) -> None:
    item = {**ENTITY, "ow_t": value}
    assert verdict(SeenIds(), item) == Rejected(M5, ENTITY)
    assert verdict(SeenIds(), {**item, "ow_r1": binaries(HASH)}) == Duplicate(M5, ENTITY)


@pytest.mark.parametrize(
    ("ledger", "held", "said"),
    [
        (SeenIds(), {"ow_l": "ow1 30d"}, r"kept as '30d', and this store keeps '14d'.*also=SeenIds\(timedelta"),
        (SeenIds(), {"ow_l": "ow1 all text"}, r"also=SeenIds\(retention=None, readable=True\)"),
        (SeenIds(), {"ow_l": "ow1 > ow_ids:l"}, "has moved from 'ow_l' to 'ow_ids:l'"),
        (SeenIds(), {"ow_l": Decimal(5)}, "'ow_l' holds 5"),
        (SeenIds(), {"ow_l": "ow1 marks"}, r"kept as 'marks'.*also=HighWaterMark\(\)"),
    ],
)
def test_an_entity_with_another_ledger_is_a_mismatch(ledger: Ledger, held: dict[str, Any], said: str) -> None:
    with pytest.raises(LedgerMismatch, match=said):
        verdict(ledger, {**ENTITY, **held})
