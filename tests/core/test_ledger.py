"""What the ledgers ask for, and what they say about what is stored."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from onewrite import (
    ConfigurationError,
    Duplicate,
    HighWaterMark,
    IdSet,
    InSequence,
    InvalidMessage,
    LedgerMismatch,
    Message,
    Outbox,
    SeenIds,
    Stale,
    Tombstones,
    sortable,
)
from onewrite.core.label import Slot
from onewrite.core.ledgers.entry import ABSENT, Advance, Entry, Remember
from onewrite.core.ledgers.marks import locate_mark
from onewrite.core.ledgers.ring import make_window
from tests.core.test_message import Kind

AnyLedger = SeenIds | IdSet | HighWaterMark | InSequence

NOW = 1_790_000_000.0
MONTH = timedelta(days=30)
CENTURY = timedelta(days=36_525)
ENTITY = {"n": 1}
M1 = Message("m1", source="s", sequence=1)
PLAIN = IdSet("messageIDs")


def at(sequence: Any, source: str = "s") -> Message:
    return Message(f"m{sequence}", source=source, sequence=sequence)


class Held(dict[Slot, Any]):
    """An entity's ledger in memory."""

    def look(self, slot: Slot) -> object:
        return self.get(slot, ABSENT)

    def judge(self, ledger: AnyLedger, message: Message) -> object:
        return ledger.entry(message, NOW).judge(message, self.look)

    def write(self, ledger: AnyLedger, message: Message) -> object:
        """None for applied, otherwise the ledger's refusal."""
        entry = ledger.entry(message, NOW)
        refusal = entry.judge(message, self.look)
        if refusal is None:
            self.update({label.slot: label.text for label in entry.terms.labels})
            if isinstance(entry.own, Remember):
                present = entry.own.sets.present
                self[present] = self.get(present, frozenset()) | {entry.own.mark}
            elif isinstance(entry.own, Advance):
                self[entry.own.slot] = entry.own.mark
        return refusal


def written(ledger: AnyLedger, *messages: Message) -> Held:
    held = Held()
    assert [held.write(ledger, message) for message in messages] == [None] * len(messages)
    return held


# --- SeenIds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention", "said"),
    [
        (timedelta(seconds=1) - timedelta.resolution, "must be between a second and a hundred years"),
        (CENTURY + timedelta.resolution, r"a hundred years\. Pass None to never forget"),
        (3600, r"SeenIds\(retention=3600\): expected a timedelta"),
        (False, r"SeenIds\(retention=False\): expected a timedelta"),
    ],
)
def test_invalid_retention_is_refused(retention: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        SeenIds(retention)


@pytest.mark.parametrize(("id_", "held"), [("a", "a"), ("@a", "@a"), ("@a", "@/@a"), ("@/a", "@/@/a")])
def test_plain_id_counts_for_every_source(id_: str, held: str) -> None:
    message = Message(id_, "s")
    entry = PLAIN.entry(message, NOW)
    assert isinstance(entry.judge(message, lambda _: frozenset([held])), Duplicate)
    part = message.part("mail")
    assert PLAIN.entry(part, NOW).judge(part, lambda _: frozenset([held])) is None


def test_id_that_looks_like_a_source_is_another_message() -> None:
    assert PLAIN.entry(Message("@s/a"), NOW).own.mark != PLAIN.entry(Message("a", "s"), NOW).own.mark


# --- marks of sources -------------------------------------------------------------------------------------------------


def test_marks_need_a_sequence_and_gapless_ones_an_int() -> None:
    with pytest.raises(InvalidMessage, match=r"expected an int.*HighWaterMark"):
        InSequence().entry(at("1"), NOW)
    with pytest.raises(InvalidMessage, match="no sequence, but HighWaterMark compares"):
        HighWaterMark().entry(Message("m", "s"), NOW)


@pytest.mark.parametrize(("held", "sequence"), [("", "9"), ("-5", "55"), ("/", "0"), (sortable(9), "10"), ("#", "9")])
def test_text_that_sorts_before_digits_is_no_number(held: str, sequence: str) -> None:
    with pytest.raises(
        LedgerMismatch, match=rf"source 's' can't be compared with the entity's mark {re.escape(repr(held))}"
    ):
        judged(HighWaterMark().entry(at(sequence), NOW), at(sequence), held)


def test_digit_zero_is_a_mark_like_any_other() -> None:
    assert judged(HighWaterMark().entry(at("1"), NOW), at("1"), "0") is None


@pytest.mark.parametrize("held", ["9", "order-7", ""])
def test_sortable_text_is_not_compared_with_any_other(held: str) -> None:
    with pytest.raises(LedgerMismatch, match=r"only the sequence is from onewrite\.sortable"):
        judged(HighWaterMark().entry(at(sortable(10)), NOW), at(sortable(10)), held)


def judged(entry: Entry, message: Message, held: object) -> object:
    found = Held() if held is ABSENT else Held({Slot("ow_@", "s"): held})
    return entry.judge(message, found.look, entity=ENTITY)


# --- a ledger that is changed -----------------------------------------------------------------------------------------

# Each writes m1, whose sequence is 1, as its first message.
KEPT: dict[str, AnyLedger] = {
    "14d": SeenIds(),
    "30d": SeenIds(MONTH),
    "14d text": SeenIds(readable=True),
    "1500000us text": SeenIds(timedelta(seconds=1.5), readable=True),
    "all": SeenIds(None),
    "all text": SeenIds(None, readable=True),
    "plain": PLAIN,
    "mark": HighWaterMark(),
    "sequence": InSequence(),
}
SAME = {("mark", "sequence"), ("sequence", "mark")}
PAIRS = [(one, other) for one, other in product(KEPT, KEPT) if one != other and (one, other) not in SAME]
M2 = Message("m2", source="s", sequence=2)


# A set of the caller's has no label: nobody notices a change from it or to it.
@pytest.mark.parametrize(("one", "other"), [pair for pair in PAIRS if "plain" not in pair])
def test_refusal_names_the_ledger_that_was_used(one: str, other: str) -> None:
    before, now = KEPT[one], KEPT[other]
    held = written(before, M1)
    with pytest.raises(LedgerMismatch) as refused:
        held.judge(now, M1)
    also = _named(str(refused.value))
    assert (also.layout, also.attribute) == (before.layout, before.attribute)
    if isinstance(now, InSequence):  # the way to it leads over HighWaterMark
        assert "use HighWaterMark(previous=" in str(refused.value)
        now = HighWaterMark()
    assert held.judge(replace(now, previous=also), M1) == Duplicate(M1)


def _named(text: str) -> AnyLedger:
    """The ledger that a message tells to name in previous=."""
    found = re.search(r"previous=((?:SeenIds|HighWaterMark)\([^()]*(?:\([^()]*\))?[^()]*\))", text)
    assert found is not None
    return eval(found[1], {"SeenIds": SeenIds, "HighWaterMark": HighWaterMark, "timedelta": timedelta})  # noqa: S307  # our own text


def test_refusal_of_highest_precedence_is_returned() -> None:
    """Duplicate before Stale."""
    held = Held(written(HighWaterMark(name="a"), at(5)) | written(SeenIds(), at(3), at(7)))
    ledger = HighWaterMark(name="b", previous=(HighWaterMark(name="a"), SeenIds()))
    assert held.judge(ledger, at(3)) == Duplicate(at(3))
    assert held.judge(ledger, at(4)) == Stale(at(4), 5)


# --- labels -----------------------------------------------------------------------------------------------------------


def test_error_for_a_moved_ledger_names_its_location() -> None:
    moved = SeenIds(name="seen", previous=SeenIds())
    held = written(SeenIds(), M1)
    assert held.write(moved, M2) is None
    assert (held[Slot("ow_l")], held[Slot("ow_seen:l")]) == ("ow1 > ow_seen:l", "ow1 14d")
    with pytest.raises(LedgerMismatch, match=r"moved from 'ow_l' to 'ow_seen:l'.*pass it as previous="):
        held.judge(SeenIds(), M1)
    assert held.judge(SeenIds(previous=SeenIds(name="seen")), M2) == Duplicate(M2)


# --- wrong arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "said"),
    [("messageIDs", r"isn't a ledger: expected SeenIds\(\)"), (SeenIds, r"SeenIds is a class.*Write SeenIds\(\)")],
)
def test_invalid_ledger_is_refused(other: Any, said: str) -> None:
    for given in (other, (SeenIds(MONTH), other)):
        with pytest.raises(ConfigurationError, match=said):
            SeenIds(previous=given)


@pytest.mark.parametrize("name", ["a:b", "é", "a\n", "a" * 33, None])
@pytest.mark.parametrize("make", [SeenIds, HighWaterMark, InSequence])
def test_a_ledgers_name_is_short_and_plain(make: Any, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="up to 32 letters, digits"):
        make(name=name)


def test_enum_member_is_accepted_as_a_name() -> None:
    for make in (SeenIds, HighWaterMark, InSequence):
        assert written(make(name=Kind.PAID), M1) == written(make(name="paid"), M1)
    assert Outbox(Kind.PAID).label == Outbox("paid").label
    for name in (IdSet(Kind.PAID).attribute, Tombstones(MONTH, Kind.PAID).ttl_attribute):
        assert (type(name), name) == (str, "paid")


@pytest.mark.parametrize("attribute", ["", "_id", "$set", "a.b", "a\0b", "ow_mine", None])
def test_message_ids_ledger_needs_an_attribute_name(attribute: Any) -> None:
    with pytest.raises(ConfigurationError, match="doesn't begin with ow_"):
        IdSet(attribute)


@pytest.mark.parametrize("first", ["1", 1.0, True, None])
def test_first_sequence_must_be_an_int(first: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected an int"):
        InSequence(first)


# --- names and wiring -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (Message("m", "order-7"), "order-7"),
        (Message("m", "a.b"), "a%2Eb"),
        (Message("m", "$a"), "%24a"),
        (Message("m", "a\0"), "a%00"),
        (Message("m", "%2E"), "%252E"),
        (Message("m", "%"), "%25"),
        (Message("m", "s").part("p.q"), "s%+p%2Eq"),
        (Message("m").part("p").part(""), "%+p%+"),
        (Message("m", "%+p"), "%25+p"),
    ],
)
def test_a_source_is_escaped_where_a_database_reads_a_path(message: Message, key: str) -> None:
    # Pinned: a change would make every entity forget its marks on the day of the upgrade.
    assert locate_mark("ow_l", message.source, message.parts) == Slot("ow_@", key)


# --- what is kept between two moments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", ["behind", "present", "ahead"])
@pytest.mark.parametrize("generation", [40_000, 40_001])
def test_used_ledger_gives_same_outcomes_as_a_new_one(edge: str, generation: int) -> None:
    """The sets are kept until the ring turns, which it does at three moments of each generation: one microsecond more would be wrong."""
    retention = timedelta(hours=1)
    reach = make_window(retention, SeenIds(retention).skew or timedelta())
    turns = generation * reach.width + {"behind": reach.behind, "present": 0, "ahead": -reach.ahead}[edge]
    used = SeenIds(retention)
    for microseconds in (turns - reach.width // 4, turns - 1, turns, turns + 1, turns - 1):
        now = (microseconds + 0.5) / 1_000_000  # a float never shows the whole microsecond
        assert used.entry(Message("m"), now).own == SeenIds(retention).entry(Message("m"), now).own
