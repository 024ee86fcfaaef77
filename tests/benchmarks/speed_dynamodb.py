"""A fresh message on DynamoDB: ours against the same writes with boto3 alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.testing.servers.engines import Dynoxide
from tests.benchmarks.measure import Contender, Duel, Entrant, Plan, Row, fight, fresh_messages
from tests.engines.stores import create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "orders"
BUSINESS: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status ADD shipments :one",
    "ExpressionAttributeNames": {"#status": "status"},
    "ExpressionAttributeValues": {":status": "SHIPPED", ":one": 1},
}


SET_BY_HAND: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status ADD shipments :one, #seen :ids",
    "ConditionExpression": "NOT contains(#seen, :id)",
    "ExpressionAttributeNames": {"#status": "status", "#seen": "messageIDs"},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as server, orders(server) as client:
        resource = server.resource()
        yield from fight(plan, list(_ids(plan, client, resource.Table(TABLE))))
        resource.meta.client.close()


@contextmanager
def orders(server: Dynoxide) -> Iterator[DynamoDBClient]:
    """A client, and the table that the benchmarks write to."""
    client = server.client()
    create_table(client, TABLE)
    yield client
    client.close()


def _ids(plan: Plan, client: Any, table: Any) -> Iterator[Duel]:
    messages = fresh_messages(plan)

    def values(turn: int) -> dict[str, Any]:
        mark = blake2b(f"0:36:{messages[turn].id}".encode(), digest_size=10).digest()
        return {":ow_0": mark, ":ow_1": {mark}, ":ow_token": secrets.token_bytes(6)}

    on_client, on_table = _entrants(messages, client, table)
    same_on_client, same_on_table = _same_by_hand(client, table, values)
    yield Duel("SeenIds, client", "the same request by hand, client", on_client, same_on_client, 1.08)
    yield Duel("SeenIds, Table", "the same request by hand, Table", on_table, same_on_table, 1.10)


def _entrants(messages: list[Message], client: Any, table: Any) -> tuple[Entrant, Entrant]:
    """On a client and on a Table."""

    def entrant(store: GuardedTable) -> Entrant:
        return lambda key: lambda turn: store.update_item(messages[turn], Key={"id": key(turn)}, **BUSINESS)

    return entrant(GuardedTable(client, SeenIds(), table_name=TABLE)), entrant(GuardedTable(table, SeenIds()))


def _same_by_hand(client: Any, table: Any, values: Callable[[int], dict[str, Any]]) -> tuple[Entrant, Entrant]:
    """What a guarded write sends, written out: on a client with typed values, on a Table with plain ones."""
    any_message = Message("any", "s", sequence=1)
    request = GuardedTable(table, SeenIds()).explain("update_item", any_message, Key={"id": "any"}, **BUSINESS)
    fixed: dict[str, Any] = request.pop("ExpressionAttributeValues")
    typed = {name: _typed(value) for name, value in fixed.items()}
    assert {*fixed} - {*values(0)} == {":ow_c0", *BUSINESS["ExpressionAttributeValues"]}, (
        "the values are those of another request"
    )

    def on_client(key: Callable[[int], str]) -> Contender:
        return lambda turn: client.update_item(
            **{
                **request,
                "TableName": TABLE,
                "Key": {"id": {"S": key(turn)}},
                "ExpressionAttributeValues": {**typed, **{name: _typed(value) for name, value in values(turn).items()}},
            }
        )

    def on_table(key: Callable[[int], str]) -> Contender:
        return lambda turn: table.update_item(
            **{**request, "Key": {"id": key(turn)}, "ExpressionAttributeValues": {**fixed, **values(turn)}}
        )

    return on_client, on_table


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int):
        return {"N": str(value)}
    return {"B": value} if isinstance(value, bytes) else {"BS": [*value]}
