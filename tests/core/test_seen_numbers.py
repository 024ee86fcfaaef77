"""The ledger of numbers by itself: what it takes, where it keeps them, and what it says of what is far ahead."""

from __future__ import annotations

from typing import Any

import mongomock
import pytest
from boto3.dynamodb.types import Binary

from onewrite import ConfigurationError, Duplicate, InvalidMessage, LedgerMismatch, Message, SeenIds, SeenNumbers, Stale
from onewrite.core.label import STEP, STEPS, Slot
from onewrite.core.ledgers.entry import ABSENT, Entry, Number
from onewrite.core.ledgers.seen_numbers import Blocks, Leap, blocks_of, leaps
from onewrite.core.step import step_mark
from onewrite.core.watch import Watch
from onewrite.core.write import NO_STEP, Finishes, NoStep, StepPart, Write, judge_refusal
from onewrite.dynamodb.layout import image_of, ledger_image_of
from onewrite.dynamodb.request import guard_put, guard_update, new_token
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import layout as mongodb_layout
from onewrite.mongodb.request import guard as guard_document
from onewrite.outcome import Rejected

NOW = 1_790_000_000.0
SMALL = SeenNumbers(8)  # blocks of two in five slots
TAG, SET = "ow_@%w8=s.t0", "ow_@%w8=s.s0"
LABEL = {"ow_l": "ow1 numbers 8"}
FINISH = Finishes("f", "ow_l")


def message(n: Any = 10, source: str = "s") -> Message:
    return Message(f"m{n}", source=source, sequence=n)


def number(n: int = 10, ledger: SeenNumbers = SMALL, source: str = "s") -> Number:
    own = ledger.entry(message(n, source), NOW).own
    assert isinstance(own, Number)
    return own


def write(entry: Entry, step: StepPart = NoStep(exact=False)) -> Write:  # noqa: B008  # a value
    """The parts of a write of message 10, by the call "try"."""
    return Write(message(), {"id": "e"}, NOW, entry, step, token=new_token("ow_l", "try", NOW))


# --- what it takes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [3, 10_001, 8.0, True])
def test_a_window_is_an_int_that_orders_something_and_fits_into_an_entity(window: Any) -> None:
    with pytest.raises(ConfigurationError, match="give an int from 4 to 10000"):
        SeenNumbers(window)


@pytest.mark.parametrize("sequence", [None, "5", -1])
def test_a_message_is_numbered_by_an_int_from_0_on(sequence: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"SeenNumbers keeps ints from 0 on: .* or use SeenIds"):
        SMALL.entry(message(sequence), NOW)


def test_a_number_that_an_engine_cannot_hold_is_refused_with_what_to_use_instead() -> None:
    large = number(10**38)
    with pytest.raises(InvalidMessage, match=r"38 digits .* use SeenIds"):
        guard_update(write(Entry(SMALL.terms, large)), {"Key": {"id": "e"}})
    with pytest.raises(InvalidMessage, match=r"64 bits .* use SeenIds"):
        guard_document(write(Entry(SMALL.terms, number(2**63)), NO_STEP), {"_id": "e"}, {"$set": {"a": 1}}, {})


@pytest.mark.parametrize(("window", "blocks"), [(4, (1, 5)), (5, (2, 4)), (101, (26, 5)), (10_000, (2500, 5))])
def test_a_block_is_a_quarter_of_the_window_and_there_are_five_slots_at_most(window: int, blocks: tuple[int, int]) -> None:
    assert blocks_of(window) == Blocks(*blocks)
    assert SeenNumbers(window).layout == f"numbers {window}"


# --- where it keeps them ----------------------------------------------------------------------------------------------


def test_the_slot_of_a_number_is_that_of_its_block() -> None:
    assert [number(n).tag.key for n in (0, 1, 2, 9, 10, 11)] == [f"%w8=s.t{slot}" for slot in (0, 0, 1, 4, 0, 0)]


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("a.b", "%w8=a%2Eb"),
        ("fourteen bytes", "%w8=fourteen bytes"),
        ("fifteen of them", "%w8=#yB2Cn3gRbD0H_Q"),
        ("é" * 8, "%w8=#U7hCTj2m7spIbw"),
    ],
)
def test_a_short_source_stands_in_the_name_and_a_long_one_as_a_hash(source: str, key: str) -> None:
    assert number(0, source=source).tag == Slot("ow_@", f"{key}.t0")


def test_what_is_only_looked_into_is_left_as_it_is() -> None:
    (looked,) = SeenIds(also=SMALL).entry(message(), NOW).also
    assert looked == number()._replace(form="asks")


# --- what is sent to DynamoDB; tests/core/test_seen_numbers_flows.py has what MongoDB gets -------------------------------


@pytest.mark.parametrize(
    ("form", "condition", "update", "values"),
    [
        (
            "joins",
            "(attribute_not_exists(#ow_m0) OR #ow_m0=:ow_b0) AND NOT contains(#ow_n0,:ow_m0)",
            "SET ow_l=:ow_l0,#ow_m0=:ow_b0 REMOVE {} ADD #ow_n0 :ow_s,{} :ow_a",
            {":ow_b0": 5, ":ow_m0": 10, ":ow_s": {10}},
        ),
        (
            "enters",
            "#ow_m0<:ow_b0",
            "SET ow_l=:ow_l0,#ow_m0=:ow_b0,#ow_n0=:ow_s REMOVE {} ADD {} :ow_a",
            {":ow_b0": 5, ":ow_s": {10}},
        ),
    ],
)
def test_each_form_has_its_expressions(form: Any, condition: str, update: str, values: dict[str, Any]) -> None:
    request = guard_update(write(Entry(SMALL.terms, number()._replace(form=form))), {"Key": {"id": "e"}}).kwargs
    ring = new_token("ow_l", "try", NOW).ring
    dead, live = (",".join(f"ow_t{slot[1:]}" for slot in slots) for slots in (ring.dead, (ring.present,)))
    assert request["UpdateExpression"] == update.format(dead, live)
    assert request["ConditionExpression"].endswith(f" AND {condition}")
    assert request["ExpressionAttributeNames"] == {"#ow_m0": TAG, "#ow_n0": SET}
    ours = request["ExpressionAttributeValues"]
    assert {name: set(value) if name == ":ow_s" else value for name, value in ours.items() if name in values} == values
    assert ours.keys() - values.keys() == {":ow_a", ":ow_l0"}


# --- what it says -----------------------------------------------------------------------------------------------------


def judged(held: dict[Slot, object], n: int = 10) -> object:
    return SMALL.entry(message(n), NOW).judge(message(n), lambda slot: held.get(slot, ABSENT))


def stored(tag: object, numbers: object) -> dict[Slot, object]:
    own = number()
    return {slot: value for slot, value in ((own.tag, tag), (own.numbers, numbers)) if value is not ABSENT}


@pytest.mark.parametrize("tag", [0, 4])
def test_whatever_an_older_block_has_left_is_no_copy(tag: int) -> None:
    assert judged(stored(tag, frozenset({10}))) is None
    assert judged(stored(tag, "something else")) is None


def test_a_number_that_is_held_is_a_duplicate_and_one_whose_slot_went_on_is_stale() -> None:
    assert judged(stored(5, frozenset({10, 11}))) == Duplicate(message())
    assert judged(stored(ABSENT, frozenset({10}))) == Duplicate(message())
    assert judged(stored(5, frozenset({11}))) is None
    assert judged(stored(5, ABSENT)) is None
    assert judged(stored(10, frozenset())) == Stale(message(), 20)


@pytest.mark.parametrize("numbers", [10, frozenset({"10"}), frozenset({True}), None])
def test_a_set_of_something_else_is_a_mismatch(numbers: object) -> None:
    with pytest.raises(LedgerMismatch, match="set of numbers"):
        judged(stored(5, numbers))


@pytest.mark.parametrize("tag", ["5", True, -1, None])
def test_a_slot_whose_block_is_no_number_is_a_mismatch(tag: object) -> None:
    with pytest.raises(LedgerMismatch, match="number of a block"):
        judged(stored(tag, frozenset({10})))


def test_a_refused_write_is_sent_again_in_the_form_that_fits_and_no_more_than_eight_times() -> None:
    tried = write(SMALL.entry(message(), NOW))
    item: dict[str, Any] = {"id": "e", **LABEL, TAG: 0, SET: {0}}
    for turn in range(1, 8):
        item[TAG] = 5 if turn % 2 == 0 else 0
        again = judge_refusal(tried, image_of(SMALL.terms, item))
        assert isinstance(again, Write)
        assert (again.turn, again.entry.form) == (turn, "joins" if turn % 2 == 0 else "enters")
        tried = again
    item[TAG] = 5
    assert judge_refusal(tried, image_of(SMALL.terms, item)) == Rejected(message(), {"id": "e"}, settled=False)


def test_a_finish_takes_the_form_that_fits_and_gives_up_where_none_ever_does() -> None:
    tried, mark = write(SMALL.entry(message(), NOW), FINISH), step_mark("ow_l", message())
    step = {"id": "m10", "key": "k", "fence": "f", "since": "2026-11-22T08:00:00.000Z", "first": True}
    stored = {STEPS: {Binary(mark)}, f"{STEP}{mark.hex()}": {**step, "until": step["since"], "source": "s"}}
    item = {"id": "e", **LABEL, **stored}
    for tag, form in ((0, "enters"), (20, "overtaken"), (5, "joins")):
        again = judge_refusal(tried, image_of(SMALL.terms, {**item, TAG: tag}))
        assert isinstance(again, Write) == (form != "joins")
        assert not isinstance(again, Write) or again.entry.form == form
    assert judge_refusal(tried._replace(turn=8), image_of(SMALL.terms, {**item, TAG: 0})) is None


def test_a_creation_asks_and_does_not_care_for_the_form() -> None:
    creation = write(SMALL.entry(message(), NOW).as_question)
    item = guard_put(creation, {"Item": {"id": "e"}}).kwargs["Item"]
    assert item[TAG] == 5
    assert set(item[SET]) == {10}
    held = image_of(SMALL.terms, {"id": "e", **LABEL, TAG: 0})
    assert judge_refusal(creation, held) == Rejected(message(), {"id": "e"})


def test_a_ledger_without_forms_has_none() -> None:
    entry = SeenIds().entry(message(), NOW)
    assert (entry.form, entry.as_question, entry.fit_to(lambda _: ABSENT)) == (None, entry, entry)
    assert entry.like(SMALL.entry(message(), NOW).as_question).form == "asks"


# --- what is far ahead ------------------------------------------------------------------------------------------------


def tags(*blocks: int) -> list[tuple[str, object]]:
    return [(f"ow_@%w8=s.t{block % 5}", block) for block in blocks]


@pytest.mark.parametrize(
    "held",
    [
        (),
        tags(3),
        tags(3, 4, 5, 6),
        tags(0, 41, 42, 43),  # the source has gone on
        tags(0, 10**9 + 1),  # nobody knows which of the two is right
        [("ow_@order-7", 10**9), ("ow_@%w8=s.s0", {1}), ("ow_@%w8=s.t0", "x"), *tags(1, 2)],
    ],
)
def test_numbers_that_may_all_be_right_are_not_mentioned(held: list[tuple[str, object]]) -> None:
    assert leaps(held) == []


def test_a_number_far_ahead_is_named_with_what_mends_its_slot() -> None:
    (leap,) = leaps(tags(11, 12, 14, 5_000_003))
    assert leap == Leap("ow_@%w8=s.t3", 10_000_006, 29, 18)
    assert leap.remedy % 5 == 3
    assert leap.remedy > 14


def test_a_number_is_far_ahead_from_ten_windows_on() -> None:
    assert leaps(tags(31, 32, 34, 70)) == []
    assert [leap.number for leap in leaps(tags(31, 32, 34, 75))] == [150]


def test_a_wrong_number_is_said_once_for_each_slot_and_a_store_remembers_little(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(None)
    for _ in range(2):
        watch.numbers(tags(11, 12, 14, 5_000_003))
    (text,) = caplog.messages
    assert "from 10000006 on" in text
    assert "set 'ow_@%w8=s.t3' to 18" in text
    for n in range(200):
        watch.numbers([(f"ow_@%w8={n}.t{block % 5}", block) for block in (1, 2, 1003)])
    assert len(caplog.messages) == 100


def test_both_engines_show_the_tags_and_count_a_source_once() -> None:
    item = {"ow_@%w8=s.t0": 5, "ow_@%w8=s.s0": {10}, "ow_@%w8=s.t1": 1, "ow_@%w8=u.t1": 1, "ow_@v": 7, "n": 1}
    assert ledger_image_of(SMALL.terms, item).sources == 3
    assert ledger_image_of(SMALL.terms, item).tags[0] == ("ow_@%w8=s.t0", 5)
    document = {"ow_@": {"%w8=s": {"t0": 5.0, "s0": [10]}, "%w8=broken": 1, "v": 7}, "n": 1}
    held = mongodb_layout.ledger_image_of(SMALL.terms, document)
    assert (held.sources, held.tags) == (3, [("ow_@.%w8=s.t0", 5), ("ow_@.%w8=s.s0", frozenset({10}))])


# --- what it cannot do ------------------------------------------------------------------------------------------------


def test_a_fold_is_refused_before_the_function_is_asked() -> None:
    store = GuardedCollection(mongomock.MongoClient().shop.stock, SMALL)
    with pytest.raises(ConfigurationError, match="cannot take several messages in one write"):
        store.fold([message(1), message(2)], lambda _: pytest.fail("asked"))
