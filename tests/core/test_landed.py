"""What proves that a write has landed whose answer was lost, what a full entity is made of, and what a creation finds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from onewrite import HighWaterMark, Message, Rejected, SeenIds
from onewrite.core.judging import has_landed, judge_creation
from onewrite.core.label import TOKEN, Slot
from onewrite.core.ledgers.entry import ABSENT, Advance, Entry, Remember
from onewrite.core.ledgers.seen_ids import hash_message
from onewrite.core.pipeline import make_token
from onewrite.core.write import NO_EFFECT, Image, Size, Write, make_too_large_error
from onewrite.outcome import ENTITY_EXISTS, ENTITY_IS_BARE

NOW = 1_790_000_000.0
CALL = make_token("try")


def at(sequence: Any) -> Message:
    return Message(f"m{sequence}", source="s", sequence=sequence)


M10 = at(10)


def landed(entry: Entry, stored: Mapping[Slot, object], effects: Mapping[str, Any] = {}) -> bool:
    """Is a write taken for one that has landed, in an entity whose ledger holds this in its slots?"""
    write = Write((M10,), {"id": "e"}, NOW, entry, NO_EFFECT, token=CALL)
    image = Image(True, False, {}, lambda slot: stored.get(slot, ABSENT), effects, {TOKEN: CALL}, is_null_absent=False)
    return has_landed(write, image)


def written(ledger: SeenIds) -> tuple[Entry, dict[Slot, object]]:
    """What a write asks, and the ledger after it."""
    entry = ledger.entry(M10, NOW)
    assert isinstance(entry.own, Remember)
    return entry, {entry.own.sets.present: frozenset({entry.own.mark})}


@pytest.mark.parametrize(
    ("sequence", "stored", "expected"),
    [
        *[(5, 5, True), (5, 6, True), (5, 4, False), (5, "5", False), (5, True, False), (5, ABSENT, False)],
        *[("b", "b", True), ("b", "c", True), ("b", "a", False), ("b", 5, False)],
    ],
)
def test_write_has_landed_if_its_mark_is_reached(sequence: Any, stored: object, *, expected: bool) -> None:
    entry = HighWaterMark().entry(at(sequence), NOW)
    assert isinstance(entry.own, Advance)
    assert landed(entry, {entry.own.slot: stored}) is expected


def test_write_has_not_landed_if_its_effect_is_open() -> None:
    entry, stored = written(SeenIds())
    mine, other = (hash_message(message, "ow_l") for message in (M10, at(11)))
    assert not landed(entry, stored, effects={mine: {}})
    assert landed(entry, stored, effects={other: {}})


# --- an entity that is full ----------------------------------------------------------------------------------------------


def test_full_entity_is_reported_with_its_sizes() -> None:
    text = str(make_too_large_error("the limit", Size(1000, caller=600, outbox=150, new_events=30), "Split it."))
    assert re.findall(r"\d+", text) == ["1000", "250", "150", "600", "30"]
    assert re.findall(r"\d+", str(make_too_large_error("the limit", Size(1000, 600, 0), "Split it."))) == [
        "1000",
        "400",
        "600",
    ]


@pytest.mark.parametrize(
    ("outbox", "new_events", "helps"),
    [(0, 0, True), (200, 0, True), (150, 100, True), (201, 0, False), (150, 101, False), (0, 401, False)],
)
def test_remedy_for_a_full_entity_depends_on_its_events(outbox: int, new_events: int, *, helps: bool) -> None:
    text = str(make_too_large_error("the limit", Size(1000, 600, outbox, new_events), "Split it."))
    assert text.endswith("Split it.") is helps


# --- what a creation finds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"id": "e"}, ENTITY_IS_BARE),  # as a write leaves it that came first and changed nothing but the ledger
        ({"id": "e", "n": 1}, ENTITY_EXISTS),  # all that it would create is there
        ({"id": "f"}, ENTITY_EXISTS),
        ({"id": "e", "n": 1, "m": 1}, ENTITY_EXISTS),
        (None, ENTITY_EXISTS),  # it can't be read
    ],
    ids=str,
)
def test_refused_creation_says_what_it_found(found: dict[str, object] | None, reason: str) -> None:
    outcome = judge_creation(Rejected(M10, found), {"id": "e", "n": 1}, max_keys=2)
    assert (outcome, outcome.reason) == (Rejected(M10, found), reason)  # type: ignore[union-attr]
