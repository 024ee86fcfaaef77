"""The two requests of a delete from a table: what each says, and what happens where one of them, or the worker, is lost."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from onewrite import Applied, Duplicate, Gone, InvalidUpdate, Message, Outbox, SeenIds, Tombstones
from onewrite.core.flow import Call, Flow, drive, make_executor
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.deletes import delete
from onewrite.dynamodb.flows import Flows
from onewrite.dynamodb.values import typed_values
from onewrite.testing import Crash, Faults
from tests.support.driven import Table
from tests.support.seams import flows_of

NOW = 1_790_000_000.0
TOMBSTONES = Tombstones(timedelta(days=1))
EXPIRY = Decimal(NOW) + 86_400 + 3600
KEY: Any = {"orderId": "o"}
MADE: Any = {"UpdateExpression": "SET n=:n, colour=:n", "ExpressionAttributeValues": {":n": 7}}
M1, M2, M3 = Message("m1"), Message("m2"), Message("m3")


def deleting() -> Flow[Any]:
    """A delete that the test drives by hand."""
    flows = Flows(Table(), SeenIds(), None, lambda: NOW, lambda: "try", tombstones=TOMBSTONES, is_async=False)
    return delete(flows, M1, Key=KEY)


@pytest.fixture
def table(moto_table: Any) -> Any:
    return moto_table("orders", "orderId")


def guarded(store: Any, **more: Any) -> GuardedTable:
    return GuardedTable(store, SeenIds(), clock=lambda: NOW, outbox=Outbox("shop"), tombstones=TOMBSTONES, **more)


def item(table: Any) -> dict[str, Any]:
    return table.get_item(Key=KEY).get("Item", {})


def own(table: Any) -> dict[str, Any]:
    return {name: value for name, value in item(table).items() if not name.startswith(("messageIDs", "ow_"))}


@pytest.mark.parametrize("again", [M2, M3], ids=["redelivery", "another delete"])
def test_next_delete_removes_attributes_left_by_a_crashed_worker(table: Any, again: Message) -> None:
    guarded(table).update_item(M1, Key=KEY, **MADE)
    faults = Faults(table)
    faults.crash_after(1)
    with pytest.raises(Crash):
        guarded(faults.store).delete_item(M2, Key=KEY)
    orders = guarded(table)
    assert own(table) == {**KEY, "n": 7, "colour": 7}
    assert orders.get_item(Key=KEY) is None
    assert orders.get_item(Key=KEY, ProjectionExpression="n") is None
    assert orders.without_ledger(item(table)) == KEY
    assert orders.without_ledger(typed_values(item(table))) == typed_values(KEY)
    assert orders.update_item(M3, Key=KEY, **MADE) == Gone(M3)
    assert orders.delete_item(again, Key=KEY) == (Duplicate(M2) if again is M2 else Gone(M3))
    assert own(table) == {**KEY, "expiresAt": EXPIRY}


def test_deleted_item_is_returned_if_the_response_is_lost(table: Any) -> None:
    guarded(table).update_item(M1, Key=KEY, **MADE)
    faults = Faults(table)
    faults.lose_response(1)
    outcome = guarded(faults.store).delete_item(M2, Key=KEY, ReturnValues="ALL_OLD")
    assert outcome == Applied(M2, {**KEY, "n": 7, "colour": 7}, retried=True)


def test_clean_up_leaves_an_entity_made_after_the_tombstone(table: Any) -> None:
    orders = guarded(table)
    flow = delete(flows_of(orders), M1, Key=KEY)
    perform = make_executor(table)
    second = flow.send(perform(next(flow)))
    table.delete_item(Key=KEY)
    orders.update_item(M2, Key=KEY, **MADE)
    with pytest.raises(ClientError) as refusal:
        perform(second)
    with pytest.raises(StopIteration):
        flow.throw(refusal.value)
    assert orders.get_item(Key=KEY) == {**KEY, "n": 7, "colour": 7}


def test_many_attributes_are_removed_in_several_requests() -> None:
    flow = deleting()
    sent: list[Call] = []

    def answer(effect: Any) -> Any:
        sent.append(effect)
        return {"Attributes": {**KEY, **{f"name{n:04}": n for n in range(1200)}}} if len(sent) == 1 else {}

    assert isinstance(drive(flow, answer), Applied)
    updates = [call.kwargs["UpdateExpression"] for call in sent[1:]]
    assert all(len(update) <= 4096 for update in updates)
    assert ["SET" in update for update in updates] == [False, False, True]
    removed = [name for call in sent[1:] for name in call.kwargs["ExpressionAttributeNames"].values()]
    assert {f"name{n:04}" for n in range(1200)} <= {*removed}


def test_key_of_a_sparse_index_is_removed_too(moto_table: Any) -> None:
    index = {
        "IndexName": "by_email",
        "KeySchema": [{"AttributeName": "email", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    table = moto_table("orders", "orderId", types={"email": "S"}, GlobalSecondaryIndexes=[index])
    orders = guarded(table)
    orders.put_item(M1, Item={**KEY, "email": "a@b"})
    orders.delete_item(M2, Key=KEY)
    assert table.scan(IndexName="by_email")["Items"] == []


@pytest.mark.parametrize(
    ("native", "says"),
    [
        ({"UpdateExpression": "SET n=:n"}, "doesn't accept UpdateExpression"),
        ({"ReturnValues": "ALL_NEW"}, "expected 'ALL_OLD' or 'NONE'"),
    ],
)
def test_invalid_delete_is_refused(table: Any, native: Any, says: str) -> None:
    with pytest.raises(InvalidUpdate, match=says):
        guarded(table).delete_item(M1, Key=KEY, **native)
    assert item(table) == {}
