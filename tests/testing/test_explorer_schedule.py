"""Which schedules there are within the bounds, and which steps may change places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onewrite import ConfigurationError
from onewrite.testing.explorer.schedule import (
    Bounds,
    Delivery,
    Fault,
    ScheduleStep,
    decode,
    encode,
    faults_for,
)
from onewrite.testing.taps.traffic import Request

READ = Request("s", "find_one", {}, (("t", "a"),), writes=False, tables=("t",))
WRITE = Request("s", "update_one", {}, (("t", "a"),), writes=True, tables=("t",))
ON_NOTHING = Request("s", "update_one", {}, (), writes=True, tables=("t",))
ON_DYNAMODB = Request("s", "UpdateItem", {}, (("t", "a"),), writes=True, tables=("t",))
TRANSACTION = Request("s", "TransactWriteItems", {}, (("t", "a"),), writes=True, tables=("t",))
READ_IN_A_TRANSACTION = Request("s", "TransactGetItems", {}, (("t", "a"),), writes=False, tables=("t",))
BATCH = Request("s", "BatchWriteItem", {"RequestItems": {"t": [{}]}}, (("t", "a"),), writes=True, tables=("t",))
BATCH_OF_READS = Request("s", "BatchGetItem", {"RequestItems": {"t": {"Keys": [{}]}}}, None, writes=False, tables=("t",))
EMPTY_BATCH = Request("s", "BatchWriteItem", {"RequestItems": {"t": []}}, None, writes=True, tables=("t",))


# --- the bounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("deliveries", 0), ("deliveries", 27), ("deliveries", True), ("faults", -1), ("concurrency", 0), ("reorder", 1)],
)
def test_bounds_that_make_no_sense_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Bounds(**{name: wrong})


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


# --- replay codes -----------------------------------------------------------------------------------------------------------

D1 = Delivery(0, 0)
STEPS = (ScheduleStep(D1), ScheduleStep(Delivery(11, 1), Fault.LOST), ScheduleStep(D1, Fault.CRASH_AFTER))
NAMES = [f"m{number}" for number in range(12)]


def test_a_replay_code_gives_back_its_steps() -> None:
    code = encode(STEPS, NAMES)
    assert decode(f" {code}\n", NAMES) == STEPS
    assert code.isprintable()
    assert len(code) < 30


def every_typo(code: str) -> Iterator[str]:
    for place in range(len(code)):
        yield code[:place] + code[place + 1 :]
        yield code[:place] + chr(ord(code[place]) ^ 1) + code[place + 1 :]


@pytest.mark.parametrize("wrong", ["", "hello", "1.abcd.1a", "1.abcd.1a1x?.0000", "1.abcd.0a.0000", None])
def test_what_is_no_replay_code_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="isn't a replay code"):
        decode(wrong, NAMES)


def test_a_replay_code_with_a_typo_is_refused() -> None:
    for typo in every_typo(encode(STEPS, NAMES)):
        with pytest.raises(ConfigurationError, match=r"isn't a replay code|is mistyped|another version"):
            decode(typo, NAMES)


def test_a_replay_code_of_other_messages_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="other messages than n1, n2"):
        decode(encode(STEPS, NAMES), ["n1", "n2"])


def test_a_replay_code_of_another_version_says_so() -> None:
    with pytest.raises(ConfigurationError, match="another version"):
        decode(encode(STEPS, NAMES).replace("1.", "2.", 1), NAMES)
