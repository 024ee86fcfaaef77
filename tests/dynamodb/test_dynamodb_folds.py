"""Several messages in one write of a table: the expected requests, how many fit, and what each answer of DynamoDB means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from botocore.exceptions import ClientError

from onewrite import (
    Applied,
    ConfigurationError,
    Duplicate,
    EntityTooLarge,
    Event,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    Outbox,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
    sortable,
)
from onewrite.core.event import moment
from onewrite.core.label import STEP, STEPS
from onewrite.core.ledgers import Ledger
from onewrite.core.step import step_mark
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.expression import LONGEST_EXPRESSION, MOST_OPERATORS
from onewrite.dynamodb.flows import Flows
from onewrite.dynamodb.folds import Folds, fold_into
from onewrite.testing import moto_table
from tests.support.driven import Table, failure, play_requests, refusal, too_large
from tests.support.spelled import spell_condition, spell_update

NOW = 1_790_000_000.0
KEY = {"orderId": "o-1"}
TOKEN = bytes.fromhex("206dda326f31")  # of the name "try"
NOT_SHARED = "attribute_not_exists(ow_tombstone) AND attribute_not_exists(ow_steps)"
LABELLED = "(attribute_not_exists(ow_l) OR ow_l='ow1 14d')"
MARKS_LABELLED = "(attribute_not_exists(ow_l) OR ow_l='ow1 marks')"
DONE: dict[str, Any] = {"ResponseMetadata": {}}
LEDGERS: dict[str, Ledger] = {
    "seen": SeenIds(),
    "seen readable": SeenIds(readable=True),
    "seen forever": SeenIds(retention=None),
    "seen forever readable": SeenIds(retention=None, readable=True),
    "seen after seen": SeenIds(timedelta(days=3), also=SeenIds()),
    "seen after marks": SeenIds(also=HighWaterMark()),
    "seen with a long name": SeenIds(name="a" * 32),
    "marks after seen": HighWaterMark(also=SeenIds()),
    "mark": HighWaterMark(),
    "sequence": InSequence(),
}


def flows(ledger: Ledger, **more: Any) -> Flows:
    return Flows(Table(), ledger, None, lambda: NOW, lambda: "try", is_async=False, **more)


def message(n: int | str, source: str = "s") -> Message:
    return Message(f"m{n}", source=source, sequence=n)


def messages(*numbers: int) -> list[Message]:
    return [message(n) for n in numbers]


def write(fresh: list[Message], entity: Mapping[str, Any] = MappingProxyType({"Key": KEY})) -> dict[str, Any]:
    return {**entity, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": len(fresh)}}


def requested(ledger: Ledger, given: list[Message], **options: Any) -> dict[str, Any]:
    outcomes, (call,) = play_requests(fold_into(flows(ledger, **options), given, write), DONE)
    assert outcomes == [Applied(each) for each in given]
    return call.kwargs


def kinds(outcomes: list[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]


def seen(*numbers: int, **more: Any) -> dict[str, Any]:
    """An item that holds the marks of these messages."""
    entries = [SeenIds().entry(message(n), NOW) for n in numbers]
    marks = {"ow_r1": {entry.own.mark for entry in entries}} if entries else {}
    return {**KEY, "n": 1, "ow_l": "ow1 14d", **marks, **more}


def with_step(item: dict[str, Any], number: int) -> dict[str, Any]:
    mark = step_mark("ow_l", message(number))
    step = {"id": f"m{number}", "source": "s", "key": "k", "fence": "f", "first": True}
    step |= {"since": moment(NOW), "until": moment(NOW + 60)}
    return {**item, STEPS: {mark}, f"{STEP}{mark.hex()}": step}


# --- expected requests ------------------------------------------------------------------------------------------------


def test_ids_are_looked_for_in_three_slots_and_added_to_one_all_at_once() -> None:
    request = requested(SeenIds(), messages(1, 2))
    one, two = [SeenIds().entry(each, NOW).own.mark for each in messages(1, 2)]
    none = [f"contains({slot},{mark!r})" for mark in (one, two) for slot in ("ow_r4", "ow_r0", "ow_r1")]
    assert spell_condition(request).endswith(f"{LABELLED} AND NOT ({' OR '.join(none)})")
    assert (
        spell_update(request) == f"SET ow_l='ow1 14d',ow_t={TOKEN!r} REMOVE ow_r2,ow_r3,ow_r5 ADD n :n, ow_r1 {[one, two]}"
    )


def test_a_mark_must_be_below_the_first_sequence_and_goes_to_the_last() -> None:
    request = requested(HighWaterMark(), messages(5, 6, 9))
    assert spell_condition(request) == f"{NOT_SHARED} AND {MARKS_LABELLED} AND (attribute_not_exists(ow_@s) OR ow_@s<5)"
    assert spell_update(request).startswith(f"SET ow_l='ow1 marks',ow_@s=9,ow_t={TOKEN!r} ")


def test_each_source_that_counts_is_asked_for_its_own_mark() -> None:
    given = [message(1), message(7, "t"), message(2), message(8, "t"), message(3, "u")]
    request = requested(InSequence(), given)
    past = "(attribute_not_exists(ow_@s) OR ow_@s=0) AND ow_@t=6 AND ow_@u=2"
    assert spell_condition(request) == f"{NOT_SHARED} AND {MARKS_LABELLED} AND {past}"
    assert ",ow_@s=2,ow_@t=8,ow_@u=3," in spell_update(request)


@pytest.fixture(scope="module")
def table() -> Iterator[Any]:
    with moto_table() as made:
        yield made


@pytest.mark.parametrize("texts", [("10", "11"), (sortable(9), sortable(10)), (1, 2)], ids=["digits", "sortable", "numbers"])
def test_a_request_has_no_name_and_no_value_that_it_does_not_use(table: Any, texts: tuple[Any, Any]) -> None:
    given = [message(texts[0]), message(texts[1]), message(texts[0], "t")]
    for name, ledger in LEDGERS.items():
        if name == "sequence" and texts != (1, 2):
            continue  # it counts in numbers
        guarded = GuardedTable(table, ledger, clock=lambda: NOW)
        for has_step in (False, True):
            key = {"orderId": f"{name} {texts} {has_step}"}
            if has_step:
                table.put_item(Item={**key, STEPS: {b"0123456789"}})
            outcomes = guarded.fold(given, partial(write, entity={"Key": key}))  # moto refuses what is not used
            assert kinds(outcomes) == [Applied] * 3


def test_a_step_of_another_message_makes_a_fold_ask_for_its_own() -> None:
    others = {**KEY, STEPS: {b"0123456789"}}
    flow = fold_into(flows(HighWaterMark()), messages(1, 2, 3), write)
    outcomes, (first, second) = play_requests(flow, refusal(others), DONE)
    assert kinds(outcomes) == [Applied] * 3
    assert "AND attribute_not_exists(ow_steps) AND" in first.kwargs["ConditionExpression"]
    request = second.kwargs
    steps = [f"contains(ow_steps,{step_mark('ow_l', each)!r})" for each in messages(1, 2, 3)]
    assert spell_condition(request).endswith(f" AND NOT ({' OR '.join(steps)})")


def emits(fresh: list[Message]) -> dict[str, Any]:
    return {**write(fresh), "emit": [Event("Added", each.sequence, cause=each) for each in fresh]}


def test_events_are_emitted_in_the_order_of_the_function_each_with_the_id_of_its_message() -> None:
    _, (call,) = play_requests(fold_into(flows(SeenIds(), outbox=Outbox("shop")), messages(1, 2), emits), DONE)
    (stored,) = [value for value in call.kwargs["ExpressionAttributeValues"].values() if isinstance(value, list) and value]
    assert [(event["cause"], event["body"]) for event in stored] == [("m1", "1"), ("m2", "2")]
    assert "emit" not in call.kwargs


def test_events_need_an_outbox() -> None:
    with pytest.raises(ConfigurationError, match="no outbox"):
        play_requests(fold_into(flows(SeenIds()), messages(1, 2), emits))


def test_a_sequence_that_no_number_holds_is_refused_wherever_it_stands() -> None:
    with pytest.raises(InvalidMessage, match="38 digits"):
        play_requests(fold_into(flows(HighWaterMark()), [message(1), message(10**38)], write))


# --- how many fit -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEDGERS)
def test_as_many_as_a_fold_begins_with_fit_beside_a_condition_of_usual_length(name: str) -> None:
    store = flows(LEDGERS[name])
    assert Folds(store).most >= (20 if name != "seen after seen" else 17)

    def conditioned(fresh: list[Message]) -> dict[str, Any]:
        return {**write(fresh), "ConditionExpression": f"attribute_exists({'a' * 480})"}

    given = [Message(f"m{n}", source="s", sequence=n) for n in range(1, Folds(store).most + 1)]
    _, (call,) = play_requests(fold_into(store, given, conditioned), DONE)
    assert len(call.kwargs["ConditionExpression"]) <= LONGEST_EXPRESSION
    more = [*given, Message("one more", source="s", sequence=len(given) + 1)]
    if not isinstance(LEDGERS[name], HighWaterMark | InSequence):
        _, calls = play_requests(fold_into(store, more, conditioned), DONE, DONE)
        assert len(calls) == 2


def test_the_documentation_says_how_many_ids_one_write_takes() -> None:
    assert [Folds(flows(ledger)).most for ledger in (SeenIds(), HighWaterMark())] == [44, 1000]


def test_a_fold_too_long_beside_another_step_is_halved() -> None:
    refused = refusal({**KEY, STEPS: {b"0123456789"}})
    flow = fold_into(flows(SeenIds()), messages(*range(40)), write)
    outcomes, calls = play_requests(flow, refused, refused, DONE, refused, DONE)
    assert kinds(outcomes) == [Applied] * 40
    last = repr(SeenIds().entry(message(39), NOW).own.mark)
    assert [last in spell_condition(call.kwargs) for call in calls] == [True, False, False, True, True]


def test_where_the_callers_text_grows_with_the_messages_the_write_is_halved_before_it_is_sent() -> None:
    asked: list[int] = []

    def listed(fresh: list[Message]) -> dict[str, Any]:
        asked.append(len(fresh))
        values = {f":value_{n}": each.id for n, each in enumerate(fresh)}
        sets = [f"field_{'x' * 150}_{n} = :value_{n}" for n in range(len(fresh))]
        return {"Key": KEY, "UpdateExpression": f"SET {', '.join(sets)}", "ExpressionAttributeValues": values}

    outcomes, calls = play_requests(fold_into(flows(SeenIds()), messages(*range(40)), listed), DONE, DONE)
    assert kinds(outcomes) == [Applied] * 40
    assert (asked, len(calls)) == ([40, 20, 20], 2)


def test_operators_count_as_well_as_bytes() -> None:
    def asks(fresh: list[Message]) -> dict[str, Any]:
        asked = " OR ".join([f"n = :n{n}" for n in range(30 * len(fresh))])
        return {**write(fresh), "ConditionExpression": asked}

    outcomes, calls = play_requests(fold_into(flows(HighWaterMark()), messages(*range(1, 9)), asks), DONE, DONE)
    assert kinds(outcomes) == [Applied] * 8
    assert len(calls) == 2
    assert MOST_OPERATORS == 300


def test_one_message_that_is_too_much_by_itself_raises_what_a_single_write_raises() -> None:
    def long(fresh: list[Message]) -> dict[str, Any]:
        return {**write(fresh), "ConditionExpression": f"attribute_exists({'a' * 5000})"}

    with pytest.raises(InvalidUpdate, match="DynamoDB takes 4096"):
        play_requests(fold_into(flows(SeenIds()), messages(1, 2), long))


# --- what an answer means ---------------------------------------------------------------------------------------------


def test_an_answer_that_was_lost_is_applied_retried_for_all_messages_of_the_write() -> None:
    item = seen(1, 2, ow_t=TOKEN)
    outcomes, calls = play_requests(fold_into(flows(SeenIds()), messages(1, 2), write), refusal(item))
    assert outcomes == [Applied(each, retried=True) for each in messages(1, 2)]
    assert len(calls) == 1


def test_the_entity_asked_for_is_there_after_a_lost_answer() -> None:
    def shows(fresh: list[Message]) -> dict[str, Any]:
        return {**write(fresh), "ReturnValues": "ALL_NEW"}

    item = seen(1, 2, ow_t=TOKEN)
    outcomes, _ = play_requests(fold_into(flows(SeenIds()), messages(1, 2), shows), refusal(item))
    assert [outcome.entity for outcome in outcomes] == [{**KEY, "n": 1}] * 2


def test_the_entity_is_the_one_after_the_write_and_the_drivers_answer_is_kept() -> None:
    answer = {**DONE, "Attributes": seen(1, 2)}
    outcomes, _ = play_requests(fold_into(flows(SeenIds()), messages(1, 2), write), answer)
    assert [(outcome.entity, outcome.response) for outcome in outcomes] == [({**KEY, "n": 1}, answer)] * 2


def test_a_step_of_another_message_costs_one_more_request_and_the_function_is_not_asked_again() -> None:
    store, asked = flows(SeenIds()), list[int]()

    def counts(fresh: list[Message]) -> dict[str, Any]:
        asked.append(len(fresh))
        return write(fresh)

    outcomes, calls = play_requests(fold_into(store, messages(1, 2), counts), refusal(with_step(seen(), 9)), DONE)
    assert kinds(outcomes) == [Applied, Applied]
    assert ["ow_steps" in call.kwargs["ConditionExpression"] for call in calls] == [True, True]
    assert ["contains(ow_steps," in call.kwargs["ConditionExpression"] for call in calls] == [False, True]
    assert asked == [2]


def test_a_condition_may_refuse_a_fold_beside_another_step() -> None:
    refused = refusal(with_step(seen(), 9))
    flow = fold_into(flows(SeenIds()), messages(1, 2), write)
    outcomes, calls = play_requests(flow, refused, refused, refused, DONE)
    assert kinds(outcomes) == [Rejected, Applied]
    assert len(calls) == 4


def test_an_item_that_would_be_too_large_is_looked_at_and_what_it_holds_drops_out() -> None:
    look = {"Item": seen(1, 2)}
    outcomes, calls = play_requests(fold_into(flows(SeenIds()), messages(1, 2, 3, 4), write), too_large(), look, DONE)
    assert kinds(outcomes) == [Duplicate, Duplicate, Applied, Applied]
    assert [call.method for call in calls] == ["update_item", "get_item", "update_item"]


def test_an_item_that_has_no_room_for_all_may_have_it_for_half_of_them() -> None:
    look = {"Item": seen()}
    outcomes, _ = play_requests(fold_into(flows(SeenIds()), messages(1, 2, 3, 4), write), too_large(), look, DONE, DONE)
    assert kinds(outcomes) == [Applied] * 4


def test_an_item_that_has_no_room_for_one_raises_as_for_a_single_write() -> None:
    look = {"Item": seen()}
    with pytest.raises(EntityTooLarge, match="409600 bytes"):
        play_requests(fold_into(flows(SeenIds()), messages(1, 2), write), too_large(), look, too_large(), look)


def test_a_lost_answer_of_a_write_that_is_then_too_large_is_found() -> None:
    look = {"Item": seen(1, 2, ow_t=Binary(TOKEN))}
    outcomes, _ = play_requests(fold_into(flows(SeenIds()), messages(1, 2), write), too_large(), look)
    assert outcomes == [Applied(each, retried=True) for each in messages(1, 2)]


def test_a_value_of_the_wrong_type_raises_the_drivers_error_once_no_message_is_a_duplicate() -> None:
    wrong = failure("ValidationException", "An operand in the update expression has an incorrect data type")
    with pytest.raises(ClientError, match="incorrect data type"):
        play_requests(fold_into(flows(SeenIds()), messages(1, 2), write), wrong, {"Item": seen(2)}, wrong, {"Item": seen(2)})


def test_a_write_that_is_too_large_for_an_item_that_may_not_be_read_is_made_smaller() -> None:
    denied = failure("AccessDeniedException")
    with pytest.raises(EntityTooLarge, match="not known"):
        play_requests(fold_into(flows(InSequence()), messages(5, 6), write), too_large(), denied, too_large(), denied)


def test_a_conflict_with_a_transaction_is_waited_for() -> None:
    conflict = failure("TransactionConflictException")
    outcomes, calls = play_requests(fold_into(flows(SeenIds()), messages(1, 2), write), conflict, DONE)
    assert kinds(outcomes) == [Applied, Applied]
    assert len(calls) == 2


def test_what_else_the_driver_raises_passes_through() -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        play_requests(fold_into(flows(SeenIds()), messages(1, 2), write), failure("AccessDeniedException"))


def test_an_outbox_that_is_not_ours_is_a_mismatch() -> None:
    store = flows(SeenIds(), outbox=Outbox("shop"))
    with pytest.raises(LedgerMismatch, match="something other than events"):
        play_requests(fold_into(store, messages(1, 2), emits), refusal({**seen(), "ow_events": "mine"}))


def test_a_mark_of_another_source_is_no_reason() -> None:
    item = {**KEY, "ow_l": "ow1 marks", "ow_@s": 2, "ow_@t": 9}
    given = [message(2), message(3), message(3, "t")]
    outcomes, _ = play_requests(fold_into(flows(HighWaterMark()), given, write), refusal(item), DONE)
    assert kinds(outcomes) == [Duplicate, Applied, Stale]


def test_the_servers_clock_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    headers = {"date": "Mon, 01 Jan 2024 00:00:00 GMT"}
    play_requests(fold_into(flows(SeenIds()), messages(1, 2), write), {"ResponseMetadata": {"HTTPHeaders": headers}})
    assert "clock" in caplog.text
