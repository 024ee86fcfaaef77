"""A counting ledger records what it refuses. These tests show the outcome if another writer comes before the record."""

from __future__ import annotations

from typing import Any

import pytest

from onewrite import (
    Deferred,
    Duplicate,
    EntityTooLarge,
    InSequence,
    Message,
    Missing,
    Rejected,
    Stale,
)
from onewrite.core.label import TOKEN
from onewrite.core.pipeline import make_token
from onewrite.dynamodb.flows import Flows
from onewrite.outcome import Outcome
from tests.support.driven import Table, play_requests, refusal, too_large

NOW = 1_790_000_000.0
ASKED: dict[str, Any] = {
    "Key": {"orderId": "o-1"},
    "UpdateExpression": "SET n = :n",
    "ConditionExpression": "n = :n",
    "ExpressionAttributeValues": {":n": 2},
    "rejected_ok": True,
}
LANDED: dict[str, Any] = {}


def at(sequence: int) -> Message:
    return Message("m", source="s", sequence=sequence)


def item(mark: int, **more: Any) -> dict[str, Any]:
    return {"orderId": "o-1", "n": 1, "ow_l": "ow1 marks", **({"ow_@s": mark} if mark else {}), **more}


def write(sequence: int, *answers: Any) -> Outcome:
    """The outcome of a write that gets these answers, one for each request."""
    flows = Flows(Table(), InSequence(), None, lambda: NOW, lambda: "call", is_async=False)
    outcome, calls = play_requests(flows.write(at(sequence), ASKED), *answers)
    assert len(calls) == len(answers)
    return outcome


OWN = {TOKEN: make_token("call")}
MEETS = {
    "nobody": (5, [LANDED], Rejected(at(5), item(4), settled=True)),
    "its own record": (5, [refusal(item(5, **OWN))], Rejected(at(5), item(4), settled=True)),
    "a copy": (5, [refusal(item(5))], Duplicate(at(5))),
    "a later message": (5, [refusal(item(6))], Stale(at(5), 6)),
    "a mark that was moved back": (5, [refusal(item(3))], Deferred(at(5), 4)),
    "no reason": (5, [refusal(item(4))], Rejected(at(5), settled=False)),
    "a delete": (1, [refusal(None)], Missing(at(1), settled=False)),
}


@pytest.mark.parametrize(("sequence", "answers", "expected"), MEETS.values(), ids=MEETS)
def test_outcome_of_a_refusal_depends_on_what_its_record_meets(sequence: int, answers: list[Any], expected: Outcome) -> None:
    outcome = write(sequence, refusal(item(sequence - 1)), *answers)
    assert (type(outcome), outcome.settled) == (type(expected), expected.settled)


def test_record_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(EntityTooLarge):
        write(5, refusal(item(4)), too_large(), refusal(item(4)))
