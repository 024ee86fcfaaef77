"""The ways to handle a message on DynamoDB. The business write is the same for all of them, and a message is known by its id."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import typed_values
from onewrite.testing.servers.engines import Dynoxide, dynamo_client, dynamo_resource
from onewrite.testing.servers.process import find_dynoxide
from tests.benchmarks.orders import DYNAMODB_UPDATE as BUSINESS
from tests.benchmarks.orders import TABLE
from tests.benchmarks.peers.bills import DynamoDBProxy
from tests.benchmarks.peers.libraries import RECORDS, idemkit_on_dynamodb, powertools
from tests.benchmarks.peers.ways import BATCH_SIZE, Deliver, Unmeasured, Way
from tests.engines.stores import create_table

PROCESSED_TABLE = "processed"
_SET_BY_HAND: dict[str, Any] = {
    "UpdateExpression": "SET #status=:status ADD shipments :one, #seen :ids",
    "ConditionExpression": "NOT contains(#seen, :id)",
    "ExpressionAttributeNames": {"#status": "status", "#seen": "messageIDs"},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}
_DAY = 86_400
_MOST_AT_ONCE = 25  # that BatchWriteItem takes
_REFUSALS = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException"})


class OnDynamoDB:
    name = "DynamoDB"

    def __init__(self, stack: ExitStack) -> None:
        server = stack.enter_context(Dynoxide())
        self.port, self._client = server.port, server.client()
        stack.callback(self._client.close)
        version = subprocess.run([find_dynoxide(), "--version"], check=True, capture_output=True, text=True).stdout
        self.program = f"Dynoxide {version.split()[-1]}"
        for table in (TABLE, PROCESSED_TABLE, RECORDS):
            create_table(self._client, table)

    def ways(self, port: int, stack: ExitStack) -> list[Way | Unmeasured]:
        endpoint = f"http://127.0.0.1:{port}"
        client, resource = dynamo_client(endpoint), dynamo_resource(endpoint)
        stack.callback(client.close)
        stack.callback(resource.meta.client.close)
        table = resource.Table(TABLE)

        store = GuardedTable(client, SeenIds(), table_name=TABLE)
        lean = GuardedTable(client, SeenIds(), table_name=TABLE, lean=True)

        def plainly(entity: str) -> object:
            return table.update_item(Key={"id": entity}, **BUSINESS)

        return [
            Way("unguarded, `Table`", lambda _, entity: plainly(entity), guarded=False),
            Way("a set of IDs by hand, `Table`", _by_hand(table)),
            Way("onewrite, `Table`", _write_guarded(GuardedTable(table, SeenIds())), ours=True),
            Way("onewrite, client", _write_guarded(store), ours=True),
            Way("onewrite, client, `lean=True`", _write_guarded(lean), ours=True),
            Way(f"onewrite, client, `update_batch` of {BATCH_SIZE}", _update_batch(store), ours=True, batch=BATCH_SIZE),
            powertools(client, plainly),
            idemkit_on_dynamodb(endpoint, stack, plainly),
            Way("`TransactWriteItems` with a processed table", _transaction(client)),
        ]

    def create(self, entities: Iterable[str], text: str = "") -> None:
        puts: list[Any] = [{"PutRequest": {"Item": typed_values({"id": entity, "text": text})}} for entity in entities]
        for at in range(0, len(puts), _MOST_AT_ONCE):
            self._client.batch_write_item(RequestItems={TABLE: puts[at : at + _MOST_AT_ONCE]})

    def effects(self, entities: Iterable[str]) -> int:
        names, count = {*entities}, 0
        pages = self._client.get_paginator("scan").paginate(TableName=TABLE, ProjectionExpression="id, shipments")
        for page in pages:
            items = (item for item in page["Items"] if "shipments" in item and item["id"]["S"] in names)
            count += sum(int(item["shipments"]["N"]) for item in items)
        return count

    def proxy(self, stack: ExitStack) -> DynamoDBProxy:
        return stack.enter_context(DynamoDBProxy(self.port, self._client))


def _update_batch(store: GuardedTable) -> Deliver:
    """One write of all the messages: what one adds, as often as there are messages."""
    values = BUSINESS["ExpressionAttributeValues"]

    def update(entity: str, fresh: Sequence[Message]) -> dict[str, Any]:
        return {**BUSINESS, "Key": {"id": entity}, "ExpressionAttributeValues": {**values, ":one": len(fresh)}}

    return lambda messages, entity: store.update_batch([*messages], partial(update, entity))


def _transaction(client: Any) -> Deliver:
    """The business write and a mark in a table of processed messages, which must not be there yet. It expires some day."""
    update = {
        **BUSINESS,
        "ExpressionAttributeValues": typed_values(BUSINESS["ExpressionAttributeValues"]),
        "TableName": TABLE,
    }

    def deliver(messages: Sequence[Message], entity: str) -> object:
        mark = {"id": {"S": messages[0].id}, "expires": {"N": str(int(time.time()) + 14 * _DAY)}}
        put = {"TableName": PROCESSED_TABLE, "Item": mark, "ConditionExpression": "attribute_not_exists(id)"}
        actions = [{"Put": put}, {"Update": {**update, "Key": {"id": {"S": entity}}}}]
        return _unless_refused(lambda: client.transact_write_items(TransactItems=actions))

    return deliver


def _by_hand(table: Any) -> Deliver:
    """The ids in one set that is never emptied, and nothing else."""
    values = BUSINESS["ExpressionAttributeValues"]

    def deliver(messages: Sequence[Message], entity: str) -> object:
        identity = messages[0].id
        all_values = {**values, ":id": identity, ":ids": {identity}}
        return _unless_refused(
            lambda: table.update_item(Key={"id": entity}, ExpressionAttributeValues=all_values, **_SET_BY_HAND)
        )

    return deliver


def _write_guarded(store: GuardedTable) -> Deliver:
    return lambda messages, entity: store.update_item(messages[0], Key={"id": entity}, **BUSINESS)


def _unless_refused(write: Callable[[], object]) -> object:
    try:
        return write()
    except ClientError as error:
        if error.response["Error"]["Code"] not in _REFUSALS:
            raise
        return None
