"""What the ledgers ask for, and what they say about what is stored."""

from __future__ import annotations

import uuid
from datetime import timedelta
from hashlib import blake2b
from typing import Any

import pytest

from onewrite import (
    ConfigurationError,
    Deferred,
    Duplicate,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    LedgerMismatch,
    Message,
    SeenIds,
    Stale,
)
from onewrite.ledger import Advance, Entry, source_slot

NOW = 1_790_000_000.0
DAY = 86_400.0
ENTITY = {"n": 1}
M1 = Message("m1", source="s", sequence=1)


def at(sequence: Any) -> Message:
    return Message(f"m{sequence}", source="s", sequence=sequence)


# --- SeenIds ----------------------------------------------------------------------------------------------------------


def test_a_set_that_is_kept_for_ever_has_one_slot_and_no_laps() -> None:
    entry = SeenIds(retention=None).entry(M1, NOW)
    assert (entry.slot, entry.mark, entry.lacks) == ("", "m1", (("", "m1"),))
    assert (entry.ring.drops, entry.forgets) == ((), False)


def test_a_bounded_set_looks_at_three_slots_and_drops_the_rest() -> None:
    # Pinned: a change would make every entity forget its messages on the day of the upgrade.
    entry = SeenIds().entry(M1, NOW)
    assert (entry.slot, entry.mark) == ("r1", "699:m1")
    assert entry.lacks == (("r4", "698:m1"), ("r0", "699:m1"), ("r1", "699:m1"))
    assert (entry.ring.drops, entry.forgets) == (("r2", "r3", "r5"), True)


def test_a_mark_carries_the_lap_of_its_generation_as_text_or_as_bytes() -> None:
    text = {SeenIds().entry(M1, NOW + n * DAY).mark for n in range(0, 120, 7)}
    raw = {SeenIds(digest=True).entry(M1, NOW + n * DAY).mark for n in range(0, 120, 7)}
    assert text == {f"{lap}:m1" for lap in range(699, 704)}
    digest = blake2b(b"m1", digest_size=16).digest()
    assert raw == {str(lap).encode() + b":" + digest for lap in range(699, 704)}


@pytest.mark.parametrize(
    ("generation", "before", "after"),
    [(2763, ("r1", "699:m1"), ("r3", "699:m1")), (2764, ("r3", "699:m1"), ("r4", "699:m1"))],
)
def test_a_generation_of_the_default_begins_every_seven_days_and_a_half(generation: int, before: Any, after: Any) -> None:
    # Pinned, as above: half of 14 days, four times six hours, and two microseconds for rounding.
    begin = generation * (7.5 * DAY + 0.000_001)
    earlier, later = (SeenIds().entry(M1, begin + step) for step in (-0.000_002, 0.000_002))
    assert (earlier.slot, earlier.mark) == before
    assert (later.slot, later.mark) == after


def test_a_digest_keeps_a_uuid_exactly_and_hashes_anything_else() -> None:
    exact = str(uuid.UUID(int=0x1234))
    ledger = SeenIds(retention=None, digest=True)
    assert ledger.entry(Message(exact), NOW).mark == uuid.UUID(exact).bytes
    others = [
        exact.upper().replace("0", "A"),
        exact.replace("-", ""),
        "{" + exact + "}",
        "urn:uuid:" + exact,
        "x" * 36,
        "é" * 36,
    ]
    for other in others:
        assert ledger.entry(Message(other), NOW).mark == blake2b(other.encode(), digest_size=16).digest()


@pytest.mark.parametrize("digest", [False, True])
@pytest.mark.parametrize("retention", [None, timedelta(days=14)])
def test_what_is_in_any_live_slot_is_a_duplicate(retention: timedelta | None, *, digest: bool) -> None:
    entry = SeenIds(retention, digest=digest).entry(M1, NOW)
    for slot, mark in entry.lacks:
        stored = {slot: frozenset([mark, type(mark)()])}
        assert entry.judge(M1, stored, entity=ENTITY) == Duplicate(M1, ENTITY)


def test_what_is_in_no_live_slot_is_fresh() -> None:
    entry = SeenIds().entry(M1, NOW)
    stored = {slot: frozenset(["699:m2", "697:m1", "m1"]) for slot in ("r0", "r1", "r2", "r3", "r4", "r5")}
    assert entry.judge(M1, stored) is None
    assert entry.judge(M1, {"r2": frozenset(["699:m1"])}) is None  # dropped, and not looked at
    assert entry.judge(M1, {}) is None


@pytest.mark.parametrize(
    "held",
    [
        "699:m1",
        None,
        3,
        {},
        [],
        ["699:m1"],
        {"699:m1"},
        frozenset([b"699:m1"]),
        pytest.param(frozenset(["699:m1", 3]), id="a set of both"),
    ],
    ids=repr,
)
def test_something_else_in_a_live_slot_is_a_mismatch_and_never_a_duplicate(held: object) -> None:
    with pytest.raises(LedgerMismatch, match=r"is a \w+ here.*attribute of its own"):
        SeenIds().entry(M1, NOW).judge(M1, {"r0": held})


def test_text_where_digests_should_be_is_a_mismatch() -> None:
    with pytest.raises(LedgerMismatch, match="`digest` was changed"):
        SeenIds(digest=True).entry(M1, NOW).judge(M1, {"r0": frozenset(["699:m1"])})


@pytest.mark.parametrize("retention", [timedelta(0), timedelta(days=-1), timedelta(seconds=1) - timedelta.resolution])
def test_an_id_is_kept_for_a_second_at_least(retention: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="a second at least"):
        SeenIds(retention)


def test_a_second_is_long_enough() -> None:
    assert len(SeenIds(timedelta(seconds=1)).entry(M1, NOW).lacks) == 3


def test_the_default_outlives_every_redelivery_that_sqs_makes() -> None:
    assert SeenIds().retention == timedelta(days=14)


# --- marks ------------------------------------------------------------------------------------------------------------


def test_a_high_water_mark_moves_its_sources_mark() -> None:
    assert HighWaterMark().entry(at(5), NOW) == Advance("@s", 5, "below")
    assert HighWaterMark().entry(at("e"), NOW) == Advance("@s", "e", "below")


def test_a_high_water_mark_needs_a_sequence() -> None:
    with pytest.raises(InvalidMessage, match=r"'m1' has no sequence.*SeenIds"):
        HighWaterMark().entry(Message("m1"), NOW)


@pytest.mark.parametrize("sequence", [None, "1"])
def test_a_gapless_sequence_needs_an_int(sequence: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"counts in ints.*HighWaterMark"):
        InSequence().entry(Message("m1", sequence=sequence), NOW)


@pytest.mark.parametrize(
    ("first", "sequence", "rule"),
    [(1, 1, "absent"), (1, 2, "next"), (1, 0, "next"), (0, 0, "absent"), (0, 1, "next"), (-3, -3, "absent")],
)
def test_a_gapless_sequence_begins_where_there_is_no_mark(first: int, sequence: int, rule: Any) -> None:
    assert InSequence(first).entry(at(sequence), NOW) == Advance("@s", sequence, rule, first)


ABSENT = object()


@pytest.mark.parametrize(
    ("held", "sequence", "expected"),
    [
        (ABSENT, 5, None),
        (4, 5, None),
        (-1, 0, None),
        (1, 5, None),
        (5, 5, Duplicate(at(5), ENTITY)),
        (6, 5, Stale(at(5), 6, ENTITY)),
        (10**40, 5, Stale(at(5), 10**40, ENTITY)),
        (ABSENT, "b", None),
        ("", "b", None),
        ("a", "b", None),
        ("B", "b", None),
        ("b", "b", Duplicate(at("b"), ENTITY)),
        ("ba", "b", Stale(at("b"), "ba", ENTITY)),
        ("9", "10", Stale(at("10"), "9", ENTITY)),
    ],
)
def test_a_high_water_mark_lets_in_what_is_above_it(held: Any, sequence: Any, expected: Any) -> None:
    assert judged(HighWaterMark().entry(at(sequence), NOW), at(sequence), held) == expected


@pytest.mark.parametrize(
    ("first", "held", "sequence", "expected"),
    [
        (1, ABSENT, 1, None),
        (1, 1, 2, None),
        (1, 2, 1, Stale(at(1), 2, ENTITY)),
        (1, 1, 1, Duplicate(at(1), ENTITY)),
        (1, 3, 3, Duplicate(at(3), ENTITY)),
        (1, 3, 5, Deferred(at(5), 4, ENTITY)),
        (1, 1, 10**20, Deferred(at(10**20), 2, ENTITY)),
        (1, ABSENT, 2, Deferred(at(2), 1, ENTITY)),
        (1, ABSENT, 0, Stale(at(0), 0, ENTITY)),
        (5, ABSENT, 3, Stale(at(3), 4, ENTITY)),
        (5, ABSENT, 6, Deferred(at(6), 5, ENTITY)),
        (0, ABSENT, 0, None),
        (0, 0, 1, None),
        # Another ledger, or an older `first`, left a mark below: what follows it is still the next one.
        (5, 2, 3, None),
        (5, 2, 5, Deferred(at(5), 3, ENTITY)),
    ],
)
def test_a_gapless_sequence_lets_in_the_next_one(first: int, held: Any, sequence: int, expected: Any) -> None:
    assert judged(InSequence(first).entry(at(sequence), NOW), at(sequence), held) == expected


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()])
@pytest.mark.parametrize("held", ["5", None, 4.0, True, b"5", [4, "x"], {}, frozenset([4])], ids=repr)
def test_a_mark_of_another_type_is_a_mismatch(ledger: HighWaterMark | InSequence, held: object) -> None:
    with pytest.raises(LedgerMismatch, match=r"The mark of source 's' is .*sequence is 5.*do not compare"):
        ledger.entry(at(5), NOW).judge(at(5), {"@s": held})


@pytest.mark.parametrize("held", [5, None, ["a", "x"]])
def test_a_number_where_text_is_compared_is_a_mismatch(held: object) -> None:
    with pytest.raises(LedgerMismatch, match="do not compare"):
        HighWaterMark().entry(at("a"), NOW).judge(at("a"), {"@s": held})


def test_another_sources_mark_says_nothing() -> None:
    assert HighWaterMark().entry(at(5), NOW).judge(at(5), {"@t": 9, "": 9, "s": 9}) is None


def judged(entry: Entry, message: Message, held: object) -> object:
    return entry.judge(message, {} if held is ABSENT else {"@s": held}, entity=ENTITY)


# --- names and wiring -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "slot"),
    [
        ("", "@"),
        ("order-7", "@order-7"),
        ("a.b", "@a%2Eb"),
        ("$a", "@%24a"),
        ("a\0", "@a%00"),
        ("%2E", "@%252E"),
        ("12", "@12"),
        ("é", "@é"),
    ],
)
def test_a_source_is_escaped_where_a_database_reads_a_path(source: str, slot: str) -> None:
    # Pinned: a change would make every entity forget its marks on the day of the upgrade.
    assert source_slot(source) == slot


@pytest.mark.parametrize("attribute", ["", "_id", "$set", "a$b", "a\0b", None, 3])
@pytest.mark.parametrize("make", [SeenIds, HighWaterMark, InSequence])
def test_a_ledger_needs_a_field_of_its_own(make: Any, attribute: Any) -> None:
    with pytest.raises(ConfigurationError, match="name a field of the entity"):
        make(attribute=attribute)


@pytest.mark.parametrize("first", ["1", 1.0, True, None])
def test_numbering_starts_at_an_int(first: Any) -> None:
    with pytest.raises(ConfigurationError, match="starts at an int"):
        InSequence(first)


def test_the_ledgers_have_attributes_of_their_own_unless_told_otherwise() -> None:
    assert [ledger.attribute for ledger in (SeenIds(), HighWaterMark(), InSequence())] == ["messageIDs", "events", "events"]
