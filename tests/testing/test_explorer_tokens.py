"""Requests that differ only in the tokens of guarded writes are performed once, and have the effects that each would have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onewrite import Applied, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.testing import explore
from onewrite.testing.model.machine import Machine

KEYS = ("a", "b")
Step = tuple[str, str, int]  # an entity, a message, and the time that goes by


def make_world(moto_table: Any, *, typed: bool) -> Callable[[], Any]:
    def world() -> Any:
        table = moto_table("orders", key="id")
        return boto3.client("dynamodb", region_name="eu-west-1") if typed else table

    return world


def apply(store: Any, steps: list[Step], *, typed: bool) -> list[Any]:
    """Return the outcome of each guarded write, and the table after it."""
    options: dict[str, Any] = {"table_name": "orders"} if typed else {}
    orders = GuardedTable(store, SeenIds(), clock=lambda: 1_800_000_000.0, **options)
    seen: list[Any] = []
    for entity, message, amount in steps:
        outcome = orders.update_item(
            Message(message),
            Key={"id": entity},
            UpdateExpression="ADD points :n",
            ConditionExpression="attribute_not_exists(points) OR points < :most",
            ExpressionAttributeValues={":n": amount, ":most": 5},
            rejected_ok=True,
        )
        items = store.scan(TableName="orders")["Items"] if typed else store.scan()["Items"]
        seen.append((outcome, sorted(items, key=str)))
    return seen


def without_token(value: Any) -> str:
    outcome, items = value
    return f"{outcome} {[{name: each for name, each in item.items() if name != 'ow_t'} for item in items]}"


@pytest.mark.parametrize("typed", [False, True])
@given(steps=st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(["m1", "m2", "m3"]), st.integers(1, 3)), max_size=6))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_remembered_writes_have_the_effects_of_performed_ones(moto_table: Any, steps: list[Step], *, typed: bool) -> None:
    machine = Machine(make_world(moto_table, typed=typed))
    store = machine.stores(machine.perform)
    for _ in range(3):  # with other tokens each time
        machine.reset()
        explored = apply(store, steps, typed=typed)
        tokens = [item["ow_t"] for _, items in explored[-1:] for item in items]
        assert len({str(token) for token in tokens}) == len(tokens)
    served = apply(make_world(moto_table, typed=typed)(), steps, typed=typed)
    assert [*map(without_token, explored)] == [*map(without_token, served)]


def test_a_write_with_another_token_is_not_sent_again(moto_table: Any) -> None:
    machine = Machine(make_world(moto_table, typed=False))
    sent: list[str] = []
    perform = machine._perform
    machine._perform = lambda request, key: sent.append(request.method) or perform(request, key)  # type: ignore[method-assign,func-returns-value]
    store = machine.stores(machine.perform)
    for _ in range(3):
        machine.reset()
        apply(store, [("a", "m1", 1), ("a", "m1", 1)], typed=False)
    assert sent == ["UpdateItem", "Scan", "UpdateItem"]


def test_schedules_that_differ_only_in_tokens_are_pruned(moto_table: Any) -> None:
    def build(table: Any) -> Callable[[Message], None]:
        orders = GuardedTable(table, SeenIds())

        def handle(message: Message) -> None:
            for key in KEYS:
                orders.update_item(
                    message, Key={"id": key}, UpdateExpression="ADD points :n", ExpressionAttributeValues={":n": 1}
                )

        return handle

    messages = [Message("m1"), Message("m2")]
    report = explore(build, messages, make_world(moto_table, typed=False), lambda table: table.scan()["Count"])
    assert report.exhausted
    assert report.schedules < 1_200


def test_a_write_recognizes_its_own_token_among_others(moto_table: Any) -> None:
    def build(table: Any) -> Callable[[Message], None]:
        orders = GuardedTable(table, SeenIds())

        def handle(message: Message) -> None:
            outcome = orders.update_item(
                message, Key={"id": "a"}, UpdateExpression="ADD points :n", ExpressionAttributeValues={":n": 1}
            )
            retried.add(isinstance(outcome, Applied) and outcome.retried)

        return handle

    retried = set[bool]()
    report = explore(
        build, [Message("m1"), Message("m2")], make_world(moto_table, typed=False), lambda table: table.scan()["Count"]
    )
    report.assert_effectively_once()
    assert retried == {False, True}
