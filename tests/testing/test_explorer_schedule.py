"""Which schedules there are within the bounds, and which steps may change places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from onewrite import ConfigurationError
from onewrite.testing.explorer.calls import Reply
from onewrite.testing.explorer.recall import comparable
from onewrite.testing.explorer.schedule import (
    Bounds,
    Delivery,
    Fault,
    Progress,
    ScheduleStep,
    TakenStep,
    decode,
    encode,
    faults_for,
)
from onewrite.testing.taps.traffic import Request

READ = Request("s", "find_one", {}, (("t", "a"),), writes=False, tables=("t",))
WRITE = Request("s", "update_one", {}, (("t", "a"),), writes=True, tables=("t",))
ELSEWHERE = Request("s", "update_one", {}, (("t", "b"),), writes=True, tables=("t",))
ON_NOTHING = Request("s", "update_one", {}, (), writes=True, tables=("t",))
ON_DYNAMODB = Request("s", "UpdateItem", {}, (("t", "a"),), writes=True, tables=("t",))
TRANSACTION = Request("s", "TransactWriteItems", {}, (("t", "a"),), writes=True, tables=("t",))
READ_IN_A_TRANSACTION = Request("s", "TransactGetItems", {}, (("t", "a"),), writes=False, tables=("t",))
BATCH = Request("s", "BatchWriteItem", {"RequestItems": {"t": [{}]}}, (("t", "a"),), writes=True, tables=("t",))
BATCH_OF_READS = Request("s", "BatchGetItem", {"RequestItems": {"t": {"Keys": [{}]}}}, None, writes=False, tables=("t",))
EMPTY_BATCH = Request("s", "BatchWriteItem", {"RequestItems": {"t": []}}, None, writes=True, tables=("t",))


def taken(
    message: int, number: int, fault: Fault = Fault.NONE, request: Request | None = WRITE, *, has_ended: bool = True
) -> TakenStep:
    settled = (message,) if has_ended and not fault.kills else ()
    return TakenStep(ScheduleStep(Delivery(message, number), fault), request, None, has_ended, settled)


def after(progress: Progress, *steps: TakenStep) -> Progress:
    for step in steps:
        progress = progress.after(step)
    return progress


def first_of(bounds: Bounds, sources: Sequence[str] = ("s", "s")) -> Progress:
    return Progress.at_start(bounds, [frozenset([source]) for source in sources])


# --- the bounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("deliveries", 0), ("deliveries", 27), ("deliveries", True), ("faults", -1), ("concurrency", 0), ("reorder", 1)],
)
def test_bounds_that_make_no_sense_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Bounds(**{name: wrong})


def test_within_source_order_is_kept_for_messages_of_one_source_only() -> None:
    progress = first_of(Bounds(reorder="within_source"), ["a", "b", "a"])
    assert progress.able() == [Delivery(0, 0), Delivery(1, 0)]
    assert after(progress, taken(0, 0)).able() == [Delivery(0, 1), Delivery(1, 0), Delivery(2, 0)]


def test_a_legal_end_has_nothing_under_way_and_everything_settled_at_least_once() -> None:
    progress = first_of(Bounds())
    assert not progress.is_legal_end
    assert not after(progress, taken(0, 0), taken(1, 0, Fault.CRASH_AFTER)).is_legal_end
    settled = after(progress, taken(1, 0), taken(0, 0))
    assert settled.is_legal_end
    assert settled.settled_parts == (1, 0)
    assert not after(settled, taken(0, 1, has_ended=False)).is_legal_end
    assert after(settled, taken(0, 1)).settled_parts == (1, 0)


@pytest.mark.parametrize(
    ("request_", "faults"),
    [
        (None, ""),
        (READ, "BLT"),
        (WRITE, "BALTN"),
        (ON_NOTHING, "BLT"),
        (ON_DYNAMODB, "BALRTN"),
        (TRANSACTION, "BALRTCN"),
        (READ_IN_A_TRANSACTION, "BLTC"),
        (BATCH, "BALRTNUV"),
        (BATCH_OF_READS, "BLTUV"),
        (EMPTY_BATCH, "BALRTN"),
    ],
    ids=str,
)
def test_a_request_meets_the_faults_that_make_a_difference(request_: Request | None, faults: str) -> None:
    assert "".join(faults_for(request_)) == faults


# --- events ------------------------------------------------------------------------------------------------------------


def an_event(*records: int) -> Progress:
    """One event with two records, of which these are settled, under deliveries that bring both."""
    start = Progress.at_start(Bounds(deliveries=3), [frozenset()], [2])
    return after(start, *[settling(number, record) for number, record in enumerate(records)])


def settling(number: int, *records: int) -> TakenStep:
    return TakenStep(ScheduleStep(Delivery(0, number)), ELSEWHERE, None, has_ended=True, settled_parts=records)


def test_an_event_comes_again_with_what_is_not_settled_and_then_whole() -> None:
    assert an_event().companies(0, None) == [(0, 1)]
    assert an_event(1).companies(0, None) == [(0,)]
    assert not an_event(1).is_legal_end
    assert an_event(1, 0).companies(0, None) == [(0, 1)]
    assert an_event(1, 0).is_legal_end


def test_an_answer_without_a_canonical_form_equals_no_other() -> None:
    formless = Reply(iter(()))
    one, same, other = Reply({"a": 1}), Reply({"a": 1, "ResponseMetadata": {"RequestId": "x"}}), Reply({"a": 2})
    assert comparable(one) == comparable(same) != comparable(other)
    assert comparable(formless) != comparable(formless)


# --- replay codes -----------------------------------------------------------------------------------------------------------

D1 = Delivery(0, 0)
STEPS = (ScheduleStep(D1), ScheduleStep(Delivery(11, 1), Fault.LOST), ScheduleStep(D1, Fault.CRASH_AFTER))
NAMES = [f"m{number}" for number in range(12)]


def test_a_replay_code_gives_back_its_steps() -> None:
    code = encode(STEPS, NAMES)
    assert decode(f" {code}\n", NAMES) == STEPS
    assert code.isprintable()
    assert len(code) < 30


def test_a_replay_code_of_no_steps_is_one_too() -> None:
    assert decode(encode((), NAMES), NAMES) == ()


def every_typo(code: str) -> Iterator[str]:
    for place in range(len(code)):
        yield code[:place] + code[place + 1 :]
        yield code[:place] + chr(ord(code[place]) ^ 1) + code[place + 1 :]


@pytest.mark.parametrize("wrong", ["", "hello", "1.abcd.1a", "1.abcd.1a1x?.0000", "1.abcd.0a.0000", None])
def test_what_is_no_replay_code_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no replay code"):
        decode(wrong, NAMES)


def test_a_replay_code_with_a_typo_is_refused() -> None:
    for typo in every_typo(encode(STEPS, NAMES)):
        with pytest.raises(ConfigurationError, match=r"is no replay code|is mistyped|another version"):
            decode(typo, NAMES)


def test_a_replay_code_of_other_messages_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="other messages than n1, n2"):
        decode(encode(STEPS, NAMES), ["n1", "n2"])


def test_a_replay_code_of_another_version_says_so() -> None:
    with pytest.raises(ConfigurationError, match="another version"):
        decode(encode(STEPS, NAMES).replace("1.", "2.", 1), NAMES)
