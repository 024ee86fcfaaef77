"""Calls of one name: their tokens are equal, and prove nothing without the effect of the message itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onewrite import Event, Message, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay
from tests.engines.stores import create_table, places
from tests.support.seams import name_calls

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NOW = 1_790_000_000.0


def test_events_of_two_entities_differ_if_call_names_are_equal(mongo: Any, dynamo: DynamoDBClient) -> None:
    seams: Any = {"outbox": Outbox("shop"), "clock": lambda: NOW}
    told: list[Outgoing] = []
    for _ in range(2):
        name = next(places)
        create_table(dynamo, name)
        items = name_calls(GuardedTable(dynamo, SeenIds(), table_name=name, **seams), lambda: "one name")
        documents = name_calls(GuardedCollection(mongo.test[name], SeenIds(), **seams), lambda: "one name")
        items.put_item(Message("m1"), Item={"id": "o"}, emit=[Event("A", 1)])
        documents.insert_one(Message("m1"), {"_id": "o"}, emit=[Event("A", 1)])
        Relay(items, told.extend).sweep()
        Relay(documents, told.extend).sweep()
    assert len({event.id for event in told}) == len({event.source for event in told}) == len(told) == 4
