"""Calls of one name: their tokens are equal, and prove nothing without the effect of the message itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onewrite import (
    Applied,
    Duplicate,
    Event,
    Inbox,
    Message,
    Outbox,
    SeenIds,
)
from onewrite.dynamodb import GuardedTable, transact
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import transact as transact_documents
from onewrite.outbox import Outgoing, Relay
from onewrite.testing.servers.engines import Dynoxide
from tests.engines.stores import create_table, places
from tests.support.seams import name_calls

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NOW = 1_790_000_000.0


@pytest.fixture
def client_of_its_own(dynoxide: Dynoxide) -> Iterator[DynamoDBClient]:
    """A client whose transactions are told apart by DynamoDB, although their calls have one name."""
    client, tokens = dynoxide.client(), itertools.count()

    def told_apart(params: dict[str, Any], **_: object) -> None:
        params["ClientRequestToken"] = f"{next(places)} {next(tokens)}"

    client.meta.events.register("provide-client-params.dynamodb.TransactWriteItems", told_apart)
    yield client
    client.close()


def test_events_of_two_entities_differ_if_call_names_are_equal(
    mongo: Any, dynamo: DynamoDBClient, client_of_its_own: DynamoDBClient
) -> None:
    seams: Any = {"outbox": Outbox("shop"), "clock": lambda: NOW}
    told: list[Outgoing] = []
    for _ in range(2):
        name = next(places)
        create_table(dynamo, name)
        items = name_calls(GuardedTable(client_of_its_own, SeenIds(), table_name=name, **seams), lambda: "one name")
        documents = name_calls(GuardedCollection(mongo.test[name], SeenIds(), **seams), lambda: "one name")
        items.put_item(Message("m1"), Item={"id": "o"}, emit=[Event("A", 1)])
        documents.insert_one(Message("m1"), {"_id": "o"}, emit=[Event("A", 1)])
        writes = [items.updating(Key={"id": each}, UpdateExpression="SET n = id", emit=[Event("A", 1)]) for each in "pq"]
        assert isinstance(transact(Message("m2"), writes), Applied)
        Relay(items, told.extend).sweep()
        Relay(documents, told.extend).sweep()
    assert len({event.id for event in told}) == len({event.source for event in told}) == len(told) == 8


@pytest.mark.parametrize("engine", ["mongod", "dynoxide"])
def test_equal_token_in_an_inbox_does_not_prove_the_write(engine: str, request: pytest.FixtureRequest) -> None:
    client: Any = request.getfixturevalue("client_of_its_own" if engine == "dynoxide" else "mongo")
    message, name, inbox_name = Message("m1"), next(places), next(places)
    kept: Any = {"consumer": "c", "retention": timedelta(days=14)}
    if engine == "dynoxide":
        for each in (name, inbox_name):
            create_table(client, each)
        store: Any = name_calls(GuardedTable(client, SeenIds(), table_name=name, clock=lambda: NOW), lambda: "one name")
        inbox = Inbox(client, table_name=inbox_name, **kept)
        update: Any = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 1}}
        first, second = (transact(message, [store.updating(Key={"id": each}, **update)], inbox=inbox) for each in "ab")
        left = store.get_item(Key={"id": "b"})
    else:
        client.test.create_collection(inbox_name)
        client.test[name].insert_many([{"_id": "a"}, {"_id": "b"}])
        store = name_calls(GuardedCollection(client.test[name], SeenIds(), clock=lambda: NOW), lambda: "one name")
        inbox = Inbox(client.test[inbox_name], **kept)
        first, second = (
            transact_documents(message, [store.updating({"_id": each}, {"$set": {"n": 1}})], inbox=inbox) for each in "ab"
        )
        left = store.find_one({"_id": "b"})
    assert (type(first), type(second)) == (Applied, Duplicate)
    assert "n" not in (left or {})
