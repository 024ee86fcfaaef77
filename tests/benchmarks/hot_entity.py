"""The write units of the last of many messages for one entity, by each guard, at two rates.

A rate is that of the store's clock, so a run takes as long as its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

from onewrite import HighWaterMark, InSequence, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.testing.servers.engines import Dynoxide
from tests.benchmarks.measure import Plan
from tests.benchmarks.sections import Section
from tests.engines.stores import create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MESSAGES = 3000
RATES = (1, 10)  # messages per second

Write = Callable[[int], Any]
"""Writes the message with this number, and returns the response."""
Guard = Callable[["DynamoDBClient", int], Write]
"""Returns the write of a guard, given the messages per second."""


def rows(plan: Plan) -> Iterator[Section]:
    del plan  # units have no spread
    head = [
        f"| write units of message {MESSAGES:,} | {' | '.join([f'{rate} per second' for rate in RATES])} |",
        "|---|---|---|",
    ]
    lines = [
        f"| {name} | {' | '.join([f'{_measure(guard, rate):g}' for rate in RATES])} |" for name, guard in _GUARDS.items()
    ]
    yield Section("hot entity", "\n".join(head + lines))


def _measure(guard: Guard, rate: int) -> float:
    """Return the units of the last message. An ID has 36 characters, like a UUID."""
    with Dynoxide() as server:
        client = server.client()
        create_table(client, "orders")
        create_table(client, "processed")
        write = guard(client, rate)
        for number in range(1, MESSAGES):
            write(number)
        capacity = write(MESSAGES)["ConsumedCapacity"]
        client.close()
    return sum(each["CapacityUnits"] for each in (capacity if isinstance(capacity, list) else [capacity]))


def _onewrite(ledger: Ledger, client: DynamoDBClient, rate: int) -> Write:
    now = time()  # the store would warn of a clock that differs from the database's by hours

    def write(number: int) -> Any:
        nonlocal now
        now += 1 / rate
        message = Message(f"{number:036}", source="s", sequence=number)
        outcome: Any = store.update_item(
            message, Key={"id": "e"}, **_EFFECT, ExpressionAttributeValues={":cents": 1}, ReturnConsumedCapacity="TOTAL"
        )
        return outcome.response

    store = GuardedTable(client, ledger, table_name="orders", clock=lambda: now)
    return write


_EFFECT: Any = {"UpdateExpression": "ADD cents :cents"}


def _update(client: DynamoDBClient, update: str, condition: str, values: dict[str, Any]) -> Any:
    return client.update_item(
        TableName="orders",
        Key={"id": {"S": "e"}},
        UpdateExpression=update,
        ConditionExpression=condition,
        ExpressionAttributeValues={":cents": {"N": "1"}, **values},
        ReturnConsumedCapacity="TOTAL",
    )


def _number_by_hand(client: DynamoDBClient, _: int) -> Write:
    update, condition = "SET last_seen = :n ADD cents :cents", "attribute_not_exists(last_seen) OR last_seen < :n"
    return lambda number: _update(client, update, condition, {":n": {"N": str(number)}})


def _set_by_hand(client: DynamoDBClient, _: int) -> Write:
    update, condition = "ADD cents :cents, seen_ids :ids", "NOT contains(seen_ids, :id)"
    return lambda number: _update(
        client, update, condition, {":ids": {"SS": [f"{number:036}"]}, ":id": {"S": f"{number:036}"}}
    )


def _processed_table(client: DynamoDBClient, _: int) -> Write:
    def write(number: int) -> Any:
        mark: Any = {
            "TableName": "processed",
            "Item": {"id": {"S": f"{number:036}"}},
            "ConditionExpression": "attribute_not_exists(id)",
        }
        update: Any = {
            "TableName": "orders",
            "Key": {"id": {"S": "e"}},
            **_EFFECT,
            "ExpressionAttributeValues": {":cents": {"N": "1"}},
        }
        return client.transact_write_items(TransactItems=[{"Put": mark}, {"Update": update}], ReturnConsumedCapacity="TOTAL")

    return write


_GUARDS: dict[str, Guard] = {
    "**onewrite, `HighWaterMark()`**": partial(_onewrite, HighWaterMark()),
    "**onewrite, `InSequence()`**": partial(_onewrite, InSequence()),
    "**onewrite, `SeenIds()`**": partial(_onewrite, SeenIds()),
    "a number by hand": _number_by_hand,
    "a set of IDs by hand": _set_by_hand,
    "`TransactWriteItems` with a processed table": _processed_table,
}
