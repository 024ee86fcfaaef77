"""A fresh message on DynamoDB: ours against the same writes with boto3 alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onewrite import HighWaterMark, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.ledger import Ledger
from onewrite.testing.servers import Dynoxide
from tests.benchmarks.measure import Contender, Duel, Entrant, Plan, Row, fought, message_ids, numbered

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "orders"
BUSINESS: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status ADD shipments :one",
    "ExpressionAttributeNames": {"#status": "status"},
    "ExpressionAttributeValues": {":status": "SHIPPED", ":one": 1},
}
MARK_BY_HAND: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status, #mark=:sequence, #attempt=:attempt ADD shipments :one",
    "ConditionExpression": "attribute_not_exists(#mark) OR #mark < :sequence",
    "ExpressionAttributeNames": {"#status": "status", "#mark": "mark", "#attempt": "attempt"},
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
        yield from fought(plan, [*_marks(plan, client, lean, resource.Table(TABLE))])
        yield from fought(plan, [*_ids(plan, client, lean, resource.Table(TABLE))])
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


def _marks(plan: Plan, client: Any, lean: Any, table: Any) -> Iterator[Duel]:
    def by_hand(key: Callable[[int], str]) -> Contender:
        return lambda turn: table.update_item(
            Key={"id": key(turn)},
            ExpressionAttributeValues={
                ":status": "SHIPPED",
                ":one": 1,
                ":sequence": turn + 1,
                ":attempt": secrets.token_urlsafe(6),
            },
            **MARK_BY_HAND,
        )

    def by_hand_on_client(key: Callable[[int], str]) -> Contender:
        return lambda turn: client.update_item(
            TableName=TABLE,
            Key={"id": {"S": key(turn)}},
            ExpressionAttributeValues={
                ":status": {"S": "SHIPPED"},
                ":one": {"N": "1"},
                ":sequence": {"N": str(turn + 1)},
                ":attempt": {"S": secrets.token_urlsafe(6)},
            },
            **MARK_BY_HAND,
        )

    def unguarded(key: Callable[[int], str]) -> Contender:
        return lambda turn: table.update_item(Key={"id": key(turn)}, **BUSINESS)

    on_client, on_lean, on_table = _guarded(HighWaterMark(), numbered(plan), client, lean, table)
    yield Duel("HighWaterMark, client", "by hand, Table", on_client, by_hand, 0.92)
    yield Duel("HighWaterMark, client", "unguarded, Table", on_client, unguarded, 1.0)
    yield Duel("HighWaterMark, client without validation", "by hand, Table", on_lean, by_hand, 0.92)
    yield Duel("HighWaterMark, client without validation", "unguarded, Table", on_lean, unguarded, 1.0)
    yield Duel("HighWaterMark, Table", "by hand, Table", on_table, by_hand, 1.08)
    yield Duel("by hand, client", "by hand, Table", by_hand_on_client, by_hand)


def _ids(plan: Plan, client: Any, lean: Any, table: Any) -> Iterator[Duel]:
    ids = message_ids(plan.warmup + plan.rounds, plan.seed)

    def by_hand(key: Callable[[int], str]) -> Contender:
        return lambda turn: table.update_item(
            Key={"id": key(turn)},
            ExpressionAttributeValues={":status": "SHIPPED", ":one": 1, ":id": ids[turn], ":ids": {ids[turn]}},
            **SET_BY_HAND,
        )

    on_client, on_lean, on_table = _guarded(SeenIds(), [Message(each) for each in ids], client, lean, table)
    yield Duel("SeenIds, client", "one set for ever by hand, Table", on_client, by_hand, 1.0)
    yield Duel("SeenIds, client without validation", "one set for ever by hand, Table", on_lean, by_hand)
    yield Duel("SeenIds, Table", "one set for ever by hand, Table", on_table, by_hand, 1.08)


def _guarded(ledger: Ledger, messages: list[Message], client: Any, lean: Any, table: Any) -> tuple[Entrant, ...]:
    """On a client, on one without validation, on a Table. The messages are there already, as the handler's caller has them."""

    def entrant(guarded: GuardedTable) -> Entrant:
        return lambda key: lambda turn: guarded.update_item(messages[turn], Key={"id": key(turn)}, **BUSINESS)

    on_clients = [entrant(GuardedTable(each, ledger, table_name=TABLE)) for each in (client, lean)]
    return (*on_clients, entrant(GuardedTable(table, ledger)))
