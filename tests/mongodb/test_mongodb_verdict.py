"""What MongoDB returned, as an outcome."""

from __future__ import annotations

from typing import Any

import pytest
from bson.decimal128 import Decimal128
from pymongo.errors import DuplicateKeyError

from onewrite import Duplicate, HighWaterMark, InSequence, LedgerMismatch, Message, MessageIDs, Rejected, SeenIds
from onewrite.core.label import Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.write import NO_STEP, Write, judge
from onewrite.mongodb.flows import is_of_entity
from onewrite.mongodb.layout import image_of, lookup

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
ENTITY = {"_id": "o-1", "n": 1}


def verdict(ledger: Ledger, document: dict[str, Any] | None, message: Message = M5) -> object:
    write = Write(message, {"_id": "o-1"}, NOW, ledger.entry(message, NOW), NO_STEP)
    return judge(write, image_of(ledger.terms, document))


# --- whose refusal it was ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ledger", "held"),
    [
        (SeenIds(), {"ow_r": {"r0": [b"another", HASH]}}),
        (SeenIds(), {"ow_r": {"r4": [HASH]}}),
        (SeenIds(readable=True), {"ow_14dt_r": {"r4": ["@s/m5"]}}),
        (SeenIds(retention=None), {"ow_all": [HASH]}),
        (InSequence(), {"ow_@": {"s": 5}}),
        (SeenIds(name="ids", also=MessageIDs()), {"messageIDs": ["m5"]}),
    ],
)
def test_a_message_that_the_ledger_holds_is_a_duplicate(ledger: Ledger, held: Any) -> None:
    assert verdict(ledger, {**ENTITY, **held}) == Duplicate(M5, ENTITY)


@pytest.mark.parametrize("held", [{"ow_r": {"r1": [b"another"]}}, {"ow_r": {"r2": [HASH]}}, {"ow_all": [HASH]}])
def test_marks_of_other_messages_and_in_other_places_are_no_duplicates(held: Any) -> None:
    assert verdict(SeenIds(), {**ENTITY, **held}) == Rejected(M5, ENTITY)


@pytest.mark.parametrize("held", ["5", True, 4.5, Decimal128("5"), [5], float("inf"), float("nan")], ids=repr)
@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence(), SeenIds(also=HighWaterMark())])
def test_a_mark_of_another_type_is_a_mismatch(ledger: Ledger, held: Any) -> None:
    with pytest.raises(LedgerMismatch):
        verdict(ledger, {**ENTITY, "ow_@": {"s": held}})


@pytest.mark.parametrize("held", ["m5", None, {"a": 1}, [HASH, "text"], [HASH, {"a": 1}], [[HASH]]], ids=repr)
@pytest.mark.parametrize("slot", ["r4", "r1"])
def test_a_slot_that_holds_something_else_is_a_mismatch_though_another_has_the_mark(slot: str, held: Any) -> None:
    with pytest.raises(LedgerMismatch, match="set of bytes"):
        verdict(SeenIds(), {**ENTITY, "ow_r": {"r0": [HASH], slot: held}})


@pytest.mark.parametrize("held", [None, 5, []], ids=repr)
@pytest.mark.parametrize(("ledger", "field"), [(SeenIds(), "ow_r"), (HighWaterMark(), "ow_@")])
def test_something_else_in_place_of_the_ledger_is_a_mismatch(ledger: Ledger, field: str, held: Any) -> None:
    with pytest.raises(LedgerMismatch, match=f"'{field}' holds a {type(held).__name__} where the ledger keeps a document"):
        verdict(ledger, {**ENTITY, field: held})


@pytest.mark.parametrize(
    ("ledger", "held", "said"),
    [
        (SeenIds(), {"ow_l": "ow1 30d"}, "kept as '30d', and this store keeps '14d'"),
        (SeenIds(), {"ow_l": "ow1 > ow_ids:l"}, "has moved from 'ow_l' to 'ow_ids:l'"),
        (SeenIds(), {"ow_l": ["ow1 14d"]}, "which no ledger of this version"),
    ],
)
def test_an_entity_with_another_ledger_is_a_mismatch(ledger: Ledger, held: dict[str, Any], said: str) -> None:
    with pytest.raises(LedgerMismatch, match=said):
        verdict(ledger, {**ENTITY, **held})


# --- what is stored ---------------------------------------------------------------------------------------------------


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
