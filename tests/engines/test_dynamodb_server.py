"""DynamoDB: what only an engine that checks sizes, types and expressions can show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr

from onewrite import (
    Applied,
    Duplicate,
    EntityTooLarge,
    Message,
    Outcome,
    Rejected,
)
from onewrite.dynamodb import GuardedTable
from onewrite.testing.servers.engines import Dynoxide
from tests.engines.ledgers import AnyLedger, ledgers
from tests.engines.stores import addition

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

M1, M2 = (Message(f"m-{n}", source="s", sequence=n) for n in (1, 2))
KEY = {"id": {"S": "e"}}
SHARE = r"409600 bytes\D+409\d{3}\D+\d{2}\D"  # the limit, the entity, and its ledger's share of that


def guard(client: DynamoDBClient, table: str, ledger: AnyLedger) -> GuardedTable:
    return GuardedTable(client, ledger, table_name=table)


def add(table: GuardedTable, message: Message, **native: Any) -> Outcome:
    return table.update_item(message, **addition(message, "e"), **native)


def raw(client: DynamoDBClient, table: str) -> dict[str, Any]:
    return dict(client.get_item(TableName=table, Key=KEY, ConsistentRead=True).get("Item", {}))


# ---------------------------------------------------------------- conditions


@ledgers
@pytest.mark.parametrize("on", ["client", "Table"])
def test_attr_condition_has_same_effect_as_string_condition(
    dynamo: DynamoDBClient, dynoxide: Dynoxide, table: str, ledger: AnyLedger, on: str
) -> None:
    resource = dynoxide.resource()
    guarded = guard(dynamo, table, ledger) if on == "client" else GuardedTable(resource.Table(table), ledger)
    is_open = Attr("closed").not_exists() & Attr("kind").is_in(["retail", "trade"])
    dynamo.put_item(TableName=table, Item={**KEY, "kind": {"S": "trade"}})
    assert isinstance(add(guarded, M1, ConditionExpression=is_open), Applied)
    dynamo.put_item(TableName=table, Item=raw(dynamo, table) | {"closed": {"BOOL": True}})
    assert isinstance(add(guarded, M1, ConditionExpression=is_open), Duplicate)
    assert isinstance(add(guarded, M2, ConditionExpression=is_open), Rejected)
    resource.meta.client.close()


@ledgers
@pytest.mark.parametrize("condition", [":cents <= :most", "attribute_exists(vip)"])
def test_put_with_a_false_condition_is_rejected(
    dynamo: DynamoDBClient, table: str, ledger: AnyLedger, condition: str
) -> None:
    values = {"ExpressionAttributeValues": {":cents": 900, ":most": 500}} if ":" in condition else {}
    native: Any = {"Item": {"id": "e"}, "ConditionExpression": condition, **values}
    assert isinstance(guard(dynamo, table, ledger).put_item(M1, **native), Rejected)
    assert raw(dynamo, table) == {}


# ---------------------------------------------------------------- size


@ledgers
def test_oversized_update_keeps_the_entity_and_its_ledger(dynamo: DynamoDBClient, table: str, ledger: AnyLedger) -> None:
    guarded = guard(dynamo, table, ledger)
    add(guarded, M1)
    fill = {":fill": {"S": "x" * 409_000}}
    dynamo.update_item(TableName=table, Key=KEY, UpdateExpression="SET fill=:fill", ExpressionAttributeValues=fill)
    before = raw(dynamo, table)
    with pytest.raises(EntityTooLarge, match=SHARE):
        guarded.update_item(
            M2, Key={"id": "e"}, UpdateExpression="SET more=:more", ExpressionAttributeValues={":more": "y" * 1000}
        )
    assert raw(dynamo, table) == before
    assert isinstance(add(guarded, M1), Duplicate)


@ledgers
def test_oversized_creation_creates_nothing(dynamo: DynamoDBClient, table: str, ledger: AnyLedger) -> None:
    with pytest.raises(EntityTooLarge, match=SHARE):
        guard(dynamo, table, ledger).put_item(M1, Item={"id": "e", "fill": "x" * 409_598})
    assert raw(dynamo, table) == {}


def count(key: dict[str, Any]) -> dict[str, Any]:
    return {"Key": key, "UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}


@ledgers
def test_entities_with_a_sort_key_are_guarded_separately(dynoxide: Dynoxide, table: str, ledger: AnyLedger) -> None:
    sorted_table = dynoxide.table(f"{table}-sorted", "name", sort_key="order", types={"order": "N"})
    guarded = GuardedTable(sorted_table, ledger)
    keys: list[dict[str, Any]] = [{"name": "a", "order": 1}, {"name": "a", "order": 2}, {"name": "b", "order": 1}]
    for key in keys:
        assert isinstance(guarded.put_item(M1, Item={**key, "n": 1}), Applied)
        assert isinstance(guarded.put_item(M1, Item={**key, "n": 1}), Duplicate)
        assert isinstance(guarded.put_item(M2, Item={**key, "n": 1}), Rejected)
        assert isinstance(guarded.update_item(M2, **count(key)), Applied)
        assert isinstance(guarded.update_item(M2, **count(key)), Duplicate)
        assert guarded.get_item(Key=key) == {**key, "n": 2}
