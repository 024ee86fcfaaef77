"""A fresh message on DynamoDB: ours against the same writes with boto3 alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onewrite import HighWaterMark, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.testing.servers import Dynoxide
from tests.benchmarks.measure import Contender, Plan, Row, message_ids, ratio, take_turns

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "orders"
BUSINESS: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status ADD shipments :one",
    "ExpressionAttributeNames": {"#status": "status"},
    "ExpressionAttributeValues": {":status": "SHIPPED", ":one": 1},
}
TYPED_VALUES: dict[str, Any] = {":status": {"S": "SHIPPED"}, ":one": {"N": "1"}}
MARK_BY_HAND: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status, #mark=:sequence ADD shipments :one",
    "ConditionExpression": "attribute_not_exists(#mark) OR #mark < :sequence",
    "ExpressionAttributeNames": {"#status": "status", "#mark": "mark"},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}
SET_BY_HAND: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status ADD shipments :one, #seen :ids",
    "ConditionExpression": "NOT contains(#seen, :id)",
    "ExpressionAttributeNames": {"#status": "status", "#seen": "messageIDs"},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as server, orders(server) as client:
        resource, lean = server.resource(), server.client(parameter_validation=False)
        table = resource.Table(TABLE)
        yield from _marks(plan, client, lean, table)
        yield from _ids(plan, client, lean, table)
        resource.meta.client.close()
        lean.close()


@contextmanager
def orders(server: Dynoxide) -> Iterator[DynamoDBClient]:
    """A client, and the table that the benchmarks write to."""
    client = server.client()
    client.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield client
    client.close()


def _marks(plan: Plan, client: Any, lean: Any, table: Any) -> Iterator[Row]:
    ledger, messages = HighWaterMark(), numbered(plan)
    on_client, on_lean = (GuardedTable(each, ledger, table_name=TABLE) for each in (client, lean))
    on_table = GuardedTable(table, ledger)
    contenders: dict[str, Contender] = {
        "client": lambda turn: on_client.update_item(messages[turn], Key={"id": plan.key(0, turn)}, **BUSINESS),
        "lean": lambda turn: on_lean.update_item(messages[turn], Key={"id": plan.key(9, turn)}, **BUSINESS),
        "table": lambda turn: on_table.update_item(messages[turn], Key={"id": plan.key(1, turn)}, **BUSINESS),
        "by hand": lambda turn: table.update_item(
            Key={"id": plan.key(2, turn)},
            ExpressionAttributeValues={":status": "SHIPPED", ":one": 1, ":sequence": turn + 1},
            **MARK_BY_HAND,
        ),
        "by hand, client": lambda turn: client.update_item(
            TableName=TABLE,
            Key={"id": {"S": plan.key(7, turn)}},
            ExpressionAttributeValues={**TYPED_VALUES, ":sequence": {"N": str(turn + 1)}},
            **MARK_BY_HAND,
        ),
        "unguarded": lambda turn: table.update_item(Key={"id": plan.key(3, turn)}, **BUSINESS),
    }
    took = take_turns(contenders, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    yield ratio("HighWaterMark, client", "by hand, Table", took["client"], took["by hand"], target=0.92)
    yield ratio("HighWaterMark, client", "unguarded, Table", took["client"], took["unguarded"], target=1.0)
    yield ratio("HighWaterMark, client without validation", "by hand, Table", took["lean"], took["by hand"])
    yield ratio("HighWaterMark, Table", "by hand, Table", took["table"], took["by hand"], target=1.08)
    yield ratio("the same by hand, client", "by hand, Table", took["by hand, client"], took["by hand"])


def _ids(plan: Plan, client: Any, lean: Any, table: Any) -> Iterator[Row]:
    ids = message_ids(plan.warmup + plan.rounds, plan.seed)
    messages = [Message(each) for each in ids]
    on_client, on_lean = (GuardedTable(each, SeenIds(), table_name=TABLE) for each in (client, lean))
    on_table = GuardedTable(table, SeenIds())
    contenders: dict[str, Contender] = {
        "client": lambda turn: on_client.update_item(messages[turn], Key={"id": plan.key(4, turn)}, **BUSINESS),
        "lean": lambda turn: on_lean.update_item(messages[turn], Key={"id": plan.key(10, turn)}, **BUSINESS),
        "table": lambda turn: on_table.update_item(messages[turn], Key={"id": plan.key(5, turn)}, **BUSINESS),
        "by hand": lambda turn: table.update_item(
            Key={"id": plan.key(6, turn)},
            ExpressionAttributeValues={":status": "SHIPPED", ":one": 1, ":id": ids[turn], ":ids": {ids[turn]}},
            **SET_BY_HAND,
        ),
        "by hand, client": lambda turn: client.update_item(
            TableName=TABLE,
            Key={"id": {"S": plan.key(8, turn)}},
            ExpressionAttributeValues={**TYPED_VALUES, ":id": {"S": ids[turn]}, ":ids": {"SS": [ids[turn]]}},
            **SET_BY_HAND,
        ),
    }
    took = take_turns(contenders, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    yield ratio("SeenIds, client", "one set for ever by hand, Table", took["client"], took["by hand"], target=1.0)
    yield ratio("SeenIds, client without validation", "one set for ever by hand, Table", took["lean"], took["by hand"])
    yield ratio("SeenIds, Table", "one set for ever by hand, Table", took["table"], took["by hand"], target=1.08)
    yield ratio(
        "one set for ever by hand, client", "one set for ever by hand, Table", took["by hand, client"], took["by hand"]
    )


def numbered(plan: Plan) -> list[Message]:
    return [Message(f"message-{turn}", sequence=turn + 1) for turn in range(plan.warmup + plan.rounds)]
