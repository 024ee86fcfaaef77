"""The rights that docs/operations.md names for each method are those that the method uses: no more, and no fewer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient, monitoring

from onewrite import Begun, Event, Message, Outbox, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable, transact
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.engines.stores import create_table
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TEXT = (ROOT / "docs" / "operations.md").read_text()
ROW = re.compile(r"^\| (`.+?`.*?) \| ((?:`[\w:]+`(?:, )?)+) \|$", re.MULTILINE)
LEASE: Any = {"lease": timedelta(minutes=1), "safe_for": timedelta(hours=1)}
M = [Message(f"m-{n}") for n in range(4)]
KEY = {"id": "e"}
ADD: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
IMPOSSIBLE_AND_TWICE: list[Any] = [{"ConditionExpression": "attribute_exists(nothing)"}, {}, {}]
ONE = {"_id": "e"}
INC = {"$inc": {"n": 1}}


def steps(begin: Callable[[Message], object], release: Callable[[Begun], None]) -> None:
    """A step that is begun, one that is Busy, one that is let go, and one that is taken over."""
    begun = begin(M[1])
    begin(M[1])
    assert isinstance(begun, Begun)
    release(begun)
    begin(M[1])


def transfer(table: GuardedTable) -> None:
    for _ in range(2):
        transact(M[1], [table.updating(Key=KEY, **ADD), table.putting(Item={"id": "other"})])


def look(table: GuardedTable) -> None:
    table.seen(M[0], Key=KEY)
    table.get_item(Key=KEY)
    table.open_steps(Key=KEY)


# Each is called with a table whose item is there, and does what its method can do: fresh, duplicate, refused.
ON_TABLE: dict[str, Callable[[GuardedTable], object]] = {
    "`update_item`": lambda table: [table.update_item(M[1], Key=KEY, **ADD, **more) for more in IMPOSSIBLE_AND_TWICE],
    "`put_item`": lambda table: [table.put_item(message, Item={"id": "new"}) for message in (M[1], M[1], M[2])],
    "`record`": lambda table: [table.record(M[1], Key=KEY) for _ in range(2)],
    "`delete_item`": lambda table: [table.delete_item(M[1], Key=KEY) for _ in range(2)],
    "`fold`": lambda table: table.fold(M, lambda fresh: {"Key": KEY, **ADD}),
    "`seen`, `get_item`, `open_steps`": look,
    "`begin`, `release`": lambda table: steps(lambda m: table.begin(m, "charge", Key=KEY, **LEASE), table.release),
    "`transact` of `updating` and `putting`": transfer,
    "`Relay.flush`": lambda table: Relay(table, lambda events: None).flush(Key=KEY),
    "`Relay.sweep` without an index": lambda table: Relay(table, lambda events: None).sweep(),
}


def look_at_document(stock: GuardedCollection) -> None:
    stock.seen(M[0], ONE)
    stock.find_one(ONE)
    stock.open_steps(ONE)


ON_COLLECTION: dict[str, Callable[[GuardedCollection], object]] = {
    "`update_one`": lambda stock: [stock.update_one(M[1], {**ONE, **more}, INC) for more in ({"no": 1}, {}, {})],
    "`find_one_and_update`": lambda stock: [stock.find_one_and_update(M[1], ONE, INC) for _ in range(2)],
    "`record`": lambda stock: [stock.record(M[1], ONE) for _ in range(2)],
    "`seen`, `find_one`, `open_steps`": look_at_document,
    "`begin`, `release`": lambda stock: steps(lambda m: stock.begin(m, "charge", ONE, **LEASE), stock.release),
}


def named(text: str) -> dict[str, set[str]]:
    return {row[1]: set(re.findall(r"`([^`]+)`", row[2])) for row in ROW.finditer(text)}


DYNAMODB, MONGODB = map(named, TEXT.split("| MongoDB | commands on the collection |"))


def test_each_row_of_the_page_is_tried() -> None:
    assert list(DYNAMODB) == list(ON_TABLE)
    assert list(MONGODB) == list(ON_COLLECTION)


@pytest.fixture
def asked(dynoxide: Dynoxide) -> Iterator[tuple[DynamoDBClient, set[str]]]:
    client, actions = dynoxide.client(), set[str]()

    def note(request: Any, event_name: str, **_: Any) -> None:
        operation = event_name.rpartition(".")[2]
        if operation == "TransactWriteItems":  # which IAM sees as its parts
            actions.update(f"dynamodb:{kind}Item" for part in json.loads(request.body)["TransactItems"] for kind in part)
        else:
            actions.add(f"dynamodb:{operation}")

    client.meta.events.register("before-send.dynamodb", note)
    yield client, actions
    client.close()


@pytest.mark.parametrize("row", ON_TABLE)
def test_a_method_of_a_table_takes_the_actions_that_the_page_names(row: str, asked: tuple[DynamoDBClient, set[str]]) -> None:
    client, actions = asked
    create_table(client, name := f"rights-{list(ON_TABLE).index(row)}")
    outbox = Outbox("shop/orders") if "Relay" in row else None
    tombstones = Tombstones(timedelta(days=30)) if "delete" in row else None
    table = GuardedTable(client, SeenIds(), table_name=name, outbox=outbox, tombstones=tombstones)
    table.update_item(M[0], Key=KEY, emit=[Event("Paid", {})] if outbox else None, **ADD)
    actions.clear()
    ON_TABLE[row](table)
    assert actions == DYNAMODB[row]


class Commands(monitoring.CommandListener):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.names.add(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


@pytest.mark.parametrize("row", ON_COLLECTION)
def test_a_method_of_a_collection_sends_the_commands_that_the_page_names(row: str, mongod: Mongod) -> None:
    heard = Commands()
    with MongoClient[dict[str, Any]](mongod.uri, event_listeners=[heard]) as client:
        collection = client.rights[f"of{list(ON_COLLECTION).index(row)}"]
        stock = GuardedCollection(collection, SeenIds())
        stock.update_one(M[0], ONE, INC, upsert=True)
        heard.names.clear()
        ON_COLLECTION[row](stock)
        assert heard.names == MONGODB[row]
