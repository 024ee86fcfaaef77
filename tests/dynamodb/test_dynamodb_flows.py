"""What a guarded table does step by step: each flow is driven by hand, with the answers that DynamoDB would give."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from onewrite import (
    ConfigurationError,
    Deferred,
    Duplicate,
    EntityTooLarge,
    Event,
    Gone,
    InSequence,
    InvalidUpdate,
    Message,
    Missing,
    Outbox,
    Rejected,
    SeenIds,
    Stale,
    Tombstones,
)
from onewrite.core.clock import random_name
from onewrite.core.flow import Flow
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.flows import Flows
from tests.support.driven import Table, failure, play, refusal, too_large

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = "PKFN90PGmAw"  # of the source "s" and the id "m5"
TOKEN = "IG3aMm8x"  # of the name "try"
KEY: dict[str, Any] = {"Key": {"orderId": "o-1"}}
CLOSE: dict[str, Any] = {
    **KEY,
    "UpdateExpression": "SET closed = :yes",
    "ConditionExpression": "attribute_not_exists(closed)",
    "ExpressionAttributeValues": {":yes": True},
}
EFFECT: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(days=1)}
ENTITY: dict[str, Any] = {"orderId": "o-1", "n": Decimal(1)}
SEEN: dict[str, Any] = {**ENTITY, "ow_l": "ow1 14d", "ow_r1": {HASH}}


def flows(ledger: Ledger, *, client: bool = False) -> Flows:
    target, name = (object(), "orders") if client else (Table(), None)
    return Flows(target, ledger, name, lambda: NOW, lambda: "try", is_async=False)


def mistyped() -> ClientError:
    return failure("ValidationException", "An operand in the update expression has an incorrect data type")


def raised_by(flow: Flow[Any], *answers: Any) -> ClientError:
    """What the caller sees: the driver's own error, with nothing around it."""
    with pytest.raises(ClientError) as raised:
        play(flow, *answers)
    assert raised.value.__cause__ is None
    return raised.value


# --- a write ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["UPDATED_NEW", "UPDATED_OLD"])
def test_refusal_returns_no_entity_if_only_changes_are_requested(asked: str) -> None:
    native = {**CLOSE, "ReturnValues": asked}
    tombstone = {**KEY["Key"], "ow_tombstone": {"by": b"x", "at": "2026-09-21T14:13:20.000Z"}}
    expected = {Duplicate(M5): SEEN, Rejected(M5): ENTITY, Missing(M5): None, Gone(M5): tombstone}
    for outcome, held in expected.items():
        assert play(flows(SeenIds()).write(M5, native), refusal(held))[0] == outcome


# --- an entity that is too large, or that something else is in ----------------------------------------------------------


@pytest.mark.parametrize("held", [SEEN, None], ids=["there", "missing"])
def test_an_entity_that_a_large_event_would_fill_says_so(held: Any) -> None:
    guarded = Flows(Table(), SeenIds(), None, lambda: NOW, lambda: "try", outbox=Outbox("shop"), is_async=False)
    flow = guarded.write(Message("m6"), CLOSE, emit=[Event("A", "x" * 1000)])
    with pytest.raises(
        EntityTooLarge, match=r"The events of this write would add 1\d\d\d\. .* Emit less, and publish the pending events"
    ):
        play(flow, too_large(), refusal(held or None))


@pytest.mark.parametrize(
    "answer", [failure("AccessDeniedException"), refusal(None)], ids=["no right to read", "deleted meanwhile"]
)
def test_unreadable_entity_is_still_too_large(answer: Any) -> None:
    error = too_large()
    with pytest.raises(EntityTooLarge, match="its current size isn't known") as raised:
        play(flows(SeenIds()).write(M5, CLOSE), error, answer)
    assert raised.value.__cause__ is error


def test_too_large_expression_is_not_reported_as_large_item() -> None:
    text = "Invalid UpdateExpression: Expression size has exceeded the maximum allowed size; expression size: 4097"
    with pytest.raises(ClientError, match="expression size: 4097"):
        play(flows(SeenIds()).write(M5, CLOSE), failure("ValidationException", text))


@pytest.mark.parametrize(
    "call",
    [
        lambda store, table: store.update_item(M5, **CLOSE, **table),
        lambda store, table: store.put_item(M5, Item=KEY["Key"], **table),
        lambda store, table: store.delete_item(M5, **KEY, **table),
        lambda store, table: store.remember(M5, **KEY, **table),
        lambda store, table: store.begin_effect(M5, "charge", **EFFECT, **KEY, **table),
        lambda store, table: store.perform_effect(M5, "charge", print, then=lambda _: CLOSE, **EFFECT, **KEY, **table),
        lambda store, table: store.open_effects(**KEY, **table),
        lambda store, table: store.preview(M5, **KEY, **table),
        lambda store, table: store.get_item(**KEY, **table),
        lambda store, table: store.update_batch([M5, Message("m6", source="s", sequence=6)], lambda _: {**CLOSE, **table}),
    ],
)
def test_call_with_a_table_name_is_refused_before_sending(call: Callable[[Any, dict[str, Any]], Any]) -> None:
    store = GuardedTable(Table(), SeenIds(), tombstones=Tombstones(timedelta(days=30)))
    with pytest.raises(InvalidUpdate, match="TableName"):
        call(store, {"TableName": "others"})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda store, native: store.remember(M5, **KEY, **native), "remember changes only the ledger"),
        (
            lambda store, native: store.begin_effect(M5, "charge", **EFFECT, **KEY, **native),
            "begin_effect changes only the effect",
        ),
    ],
)
@pytest.mark.parametrize("native", [{"UpdateExpression": "SET a = :a"}, {"Item": {}}], ids=list)
def test_change_is_refused_where_nothing_else_changes(call: Callable[..., Any], native: Any, said: str) -> None:
    with pytest.raises(InvalidUpdate, match=said):
        call(GuardedTable(Table(), SeenIds()), native)


def test_callers_wrong_type_is_refused_by_the_driver() -> None:
    error = mistyped()
    assert raised_by(flows(SeenIds()).write(M5, CLOSE), error, refusal(ENTITY)) is error


def test_redelivery_is_a_duplicate_if_its_update_no_longer_fits() -> None:
    assert play(flows(SeenIds()).write(M5, CLOSE), mistyped(), refusal(SEEN))[0] == Duplicate(M5, ENTITY)


# --- a refusal in a sequence ------------------------------------------------------------------------------------------

FOURTH: dict[str, Any] = {**ENTITY, "closed": True, "ow_l": "ow1 marks", "ow_@s": Decimal(4)}
CLOSED: dict[str, Any] = {**ENTITY, "closed": True}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (None, Deferred(M5, 2)),  # the entity was deleted meanwhile
        ({**FOURTH, "ow_@s": Decimal(5)}, Duplicate(M5, CLOSED)),
        ({**FOURTH, "ow_@s": Decimal(7)}, Stale(M5, 7, CLOSED)),
        ({**FOURTH, "ow_@s": Decimal(2)}, Deferred(M5, 3, CLOSED)),
        ({**FOURTH, "ow_@s": Decimal(5), "ow_t": TOKEN}, Rejected(M5, CLOSED, settled=True)),  # its answer was lost
        (FOURTH, Rejected(M5, CLOSED)),  # nothing explains the refusal
    ],
)
def test_change_before_the_mark_moves_is_reported(held: Any, expected: object) -> None:
    flow = flows(InSequence(first=2)).write(M5, {**CLOSE, "rejected_ok": True})
    assert play(flow, refusal(FOURTH), refusal(held))[0] == expected


def test_refusal_record_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(EntityTooLarge):
        play(flows(InSequence()).write(M5, {**CLOSE, "rejected_ok": True}), refusal(FOURTH), too_large(), refusal(FOURTH))


# --- names of attempts, clocks and sizes ------------------------------------------------------------------------------


def dated(date: str | None) -> dict[str, Any]:
    return {"ResponseMetadata": {"RequestId": "r", "HTTPHeaders": {} if date is None else {"date": date}}}


# 1,790,000,000 is the 21st of September 2026, 14:13:20.
def test_clock_skew_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "onewrite")
    clock = iter([NOW, NOW, NOW + 1, NOW + 4000, NOW + 4000, NOW + 8000, NOW + 8000])
    steady = Flows(Table(), SeenIds(), None, lambda: next(clock), lambda: "try", is_async=False)
    for date in ("Mon, 21 Sep 2026 14:13:20 GMT", None, "Mon, 21 Sep 2026 22:13:20 GMT", "Mon, 21 Sep 2026 22:13:20 GMT"):
        play(steady.write(M5, CLOSE), dated(date))
    assert [record.getMessage().partition(". ")[0] for record in caplog.records] == [
        "Clock skew: this process is at least 24800 s behind the database, but the ledger tolerates only 21600 s"
    ]


def test_clocks_are_compared_hourly_and_after_being_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times, compared, now = [0, 1, 3599, 3600, 3601, 7200, 3601, 3600], list[float](), [NOW]
    steady = Flows(Table(), SeenIds(), None, lambda: now[0], lambda: "try", is_async=False)
    monkeypatch.setattr(steady.watch, "compare", lambda before, *_: compared.append(before - NOW))
    for time in times:
        now[0] = NOW + time
        play(steady.write(M5, CLOSE), dated("Mon, 21 Sep 2026 14:13:20 GMT"))
    assert compared == [0, 3600, 7200, 3600]


# --- putting together -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "name", "said"),
    [
        (object(), None, "name with table_name="),
        (object(), "", "name with table_name="),
        (Table(), "orders", "A Table has a name already"),
    ],
)
def test_a_table_is_named_once(table: object, name: str | None, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Flows(table, SeenIds(), name, lambda: NOW, random_name, is_async=False)
