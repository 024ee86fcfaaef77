"""Several messages in one write of a table: how many fit, and what each answer of DynamoDB means."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onewrite import Applied, Duplicate, HighWaterMark, InSequence, Message, Outcome, SeenIds
from onewrite.core.features.batches import update_batch
from onewrite.core.label import EFFECTS
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb.expression import MAX_EXPRESSION_BYTES, MAX_OPERATORS
from onewrite.dynamodb.flows import Flows
from tests.support.driven import Table, play_requests, refusal, too_large

NOW = 1_790_000_000.0
KEY = {"orderId": "o-1"}
TOKEN = "IG3aMm8x"  # of the name "try"
DONE: dict[str, Any] = {"ResponseMetadata": {}}
LEDGERS: dict[str, Ledger] = {
    "seen": SeenIds(),
    "seen readable": SeenIds(readable=True),
    "seen forever": SeenIds(retention=None),
    "seen forever readable": SeenIds(retention=None, readable=True),
    "seen after seen": SeenIds(timedelta(days=3), previous=SeenIds()),
    "seen after marks": SeenIds(previous=HighWaterMark()),
    "seen with a long name": SeenIds(name="a" * 32),
    "marks after seen": HighWaterMark(previous=SeenIds()),
    "mark": HighWaterMark(),
    "sequence": InSequence(),
}
WRITES = {"seen after seen": 2}  # if it is not one write


def flows(ledger: Ledger) -> Flows:
    return Flows(Table(), ledger, None, lambda: NOW, lambda: "try", is_async=False)


def message(n: int) -> Message:
    return Message(f"m{n}", source="s", sequence=n)


def messages(*numbers: int) -> list[Message]:
    return [message(n) for n in numbers]


def write(fresh: list[Message]) -> dict[str, Any]:
    return {"Key": KEY, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": len(fresh)}}


def kinds(outcomes: list[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]


def seen(*numbers: int, **more: Any) -> dict[str, Any]:
    """An item that holds the marks of these messages."""
    entries = [SeenIds().entry(message(n), NOW) for n in numbers]
    marks = {"ow_r1": {entry.own.mark for entry in entries}} if entries else {}
    return {**KEY, "n": 1, "ow_l": "ow1 14d", **marks, **more}


# --- how many fit -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEDGERS)
def test_forty_messages_with_a_condition_take_few_writes(name: str) -> None:
    def conditioned(fresh: list[Message]) -> dict[str, Any]:
        return {**write(fresh), "ConditionExpression": f"attribute_exists({'a' * 480})"}

    _, calls = play_requests(
        update_batch(flows(LEDGERS[name]), messages(*range(1, 41)), conditioned), *[DONE] * WRITES.get(name, 1)
    )
    assert all(len(call.kwargs["ConditionExpression"]) <= MAX_EXPRESSION_BYTES for call in calls)


def test_one_write_takes_the_documented_number_of_messages() -> None:
    ledgers = (SeenIds(), HighWaterMark())
    assert [flows(ledger).limit_messages(ledger.entry(message(1), NOW)) for ledger in ledgers] == [40, 1000]


def test_a_batch_too_long_beside_another_effect_is_halved() -> None:
    refused = refusal({**KEY, EFFECTS: {"0123456789A"}})
    flow = update_batch(flows(SeenIds()), messages(*range(40)), write)
    outcomes, calls = play_requests(flow, refused, refused, DONE, refused, DONE)
    assert kinds(outcomes) == [Applied] * 40
    last = repr(SeenIds().entry(message(39), NOW).own.mark)
    assert [last in repr(call.kwargs["ExpressionAttributeValues"]) for call in calls] == [True, False, False, True, True]


def test_batch_with_growing_string_is_halved_before_sending() -> None:
    asked: list[int] = []

    def listed(fresh: list[Message]) -> dict[str, Any]:
        asked.append(len(fresh))
        values = {f":value_{n}": each.id for n, each in enumerate(fresh)}
        sets = [f"field_{'x' * 150}_{n} = :value_{n}" for n in range(len(fresh))]
        return {"Key": KEY, "UpdateExpression": f"SET {', '.join(sets)}", "ExpressionAttributeValues": values}

    outcomes, calls = play_requests(update_batch(flows(SeenIds()), messages(*range(40)), listed), DONE, DONE)
    assert kinds(outcomes) == [Applied] * 40
    assert (asked, len(calls)) == ([40, 20, 20], 2)


def test_batch_counts_operators_and_bytes() -> None:
    def asks(fresh: list[Message]) -> dict[str, Any]:
        asked = " OR ".join([f"n = :n{n}" for n in range(30 * len(fresh))])
        return {**write(fresh), "ConditionExpression": asked}

    outcomes, calls = play_requests(update_batch(flows(HighWaterMark()), messages(*range(1, 9)), asks), DONE, DONE)
    assert kinds(outcomes) == [Applied] * 8
    assert len(calls) == 2
    assert MAX_OPERATORS == 300


# --- what an answer means ---------------------------------------------------------------------------------------------


def test_too_large_item_is_checked_for_duplicates() -> None:
    look = refusal(seen(1, 2))
    outcomes, calls = play_requests(update_batch(flows(SeenIds()), messages(1, 2, 3, 4), write), too_large(), look, DONE)
    assert kinds(outcomes) == [Duplicate, Duplicate, Applied, Applied]
    assert [call.method for call in calls] == ["update_item"] * 3


@pytest.mark.parametrize("count", [2, 4])
def test_item_without_room_for_all_takes_half(count: int) -> None:
    look = refusal(seen())
    outcomes, _ = play_requests(
        update_batch(flows(SeenIds()), messages(*range(count)), write), too_large(), look, DONE, DONE
    )
    assert kinds(outcomes) == [Applied] * count


def test_lost_response_is_detected_if_the_retry_is_too_large() -> None:
    look = refusal(seen(1, 2, ow_t=TOKEN))
    outcomes, _ = play_requests(update_batch(flows(SeenIds()), messages(1, 2), write), too_large(), look)
    assert outcomes == [Applied(each, retried=True) for each in messages(1, 2)]
