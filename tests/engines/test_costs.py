"""What `onewrite plan` predicts is what the engines store and charge.

Dynoxide counts write units as AWS documents them, for tables and for each index. moto counts a half for every update, so it is no judge.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import bson
import pytest
from boto3.dynamodb.types import Binary
from pymongo.collection import Collection

from onewrite import Applied, Event, HighWaterMark, Message, Outbox, SeenIds
from onewrite.core.flow import run
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.size import item_size
from onewrite.dynamodb.values import bytes_of, plain_values, typed_values
from onewrite.mongodb import GuardedCollection
from onewrite.operate.dynamodb import TableStore
from onewrite.operate.mongodb import CollectionStore
from onewrite.operate.plan import dynamodb as items
from onewrite.operate.plan.dynamodb import ItemLedger, OnDynamoDB, SecondaryIndex, indexes_of, table_sample
from onewrite.operate.plan.inputs import SECOND, IndexLoad, Inputs, MessageStream, Texts
from onewrite.operate.plan.mongodb import DocumentLedger, collection_sample
from onewrite.operate.plan.ways import ways
from onewrite.outbox import Relay
from tests.engines.stores import create_table_with_outbox
from tests.support.ci import in_ci
from tests.support.seams import name_calls
from tests.support.write_units import Bill, bill

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.measured

HOUR = timedelta(hours=1)
LEDGERS: list[Ledger] = [
    SeenIds(HOUR),
    SeenIds(HOUR, readable=True),
    SeenIds(None),
    SeenIds(None, readable=True),
    HighWaterMark(),
]
NAMES = ("a", "b", "c", "d")  # of attributes; the first three are keys of indexes too
NOW = 1_790_000_000.0
ITEMS, TABLES = 1000 if in_ci() else 300, 10


def numbered() -> Callable[[], str]:
    return map(str, itertools.count()).__next__


# --- write units ---------------------------------------------------------------------------------------------------------


@dataclass
class Table:
    """A table with random indexes."""

    client: DynamoDBClient
    name: str
    indexes: list[SecondaryIndex]


def random_table(client: DynamoDBClient, name: str, dice: random.Random) -> Table:
    def projection() -> dict[str, Any]:
        kind = dice.choice(["ALL", "KEYS_ONLY", "INCLUDE"])
        return {"ProjectionType": kind, **({"NonKeyAttributes": dice.sample(NAMES, 2)} if kind == "INCLUDE" else {})}

    keys = dice.sample(NAMES[:3], dice.randint(1, 3))
    indexes = [
        {"IndexName": f"by-{key}", "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}], "Projection": projection()}
        for key in keys
    ]
    described = client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in ("id", *keys)],
        GlobalSecondaryIndexes=indexes,  # type: ignore[arg-type]  # the stubs want literals
        BillingMode="PAY_PER_REQUEST",
    )["TableDescription"]
    return Table(client, name, indexes_of(described))


def random_values(dice: random.Random) -> dict[str, str]:
    return {name: "x" * dice.choice([1, 2, 40, 900, 1100, 3000]) for name in NAMES if dice.random() < 0.6}


def test_the_predicted_units_of_random_writes_are_those_that_dynamodb_charges(dynamo: DynamoDBClient) -> None:
    dice, wrong = random.Random(16), []
    for table_number in range(TABLES):
        table = random_table(dynamo, f"random-{table_number}", dice)
        items_of = {f"{n}": dice.choice(LEDGERS) for n in range(ITEMS // TABLES)}
        befores = {key: random_item(key, ledger, dice) for key, ledger in items_of.items()}
        put(table, [item for item in befores.values() if item])
        for key, ledger in items_of.items():
            predicted, charged = one_write(table, ledger, key, befores[key], dice)
            if predicted != charged:
                wrong.append((table.indexes, predicted, charged))
    assert wrong == []


@pytest.mark.parametrize(("name", "body"), [("light", 300), ("heavy", 2800)])
def test_a_message_with_an_event_and_the_relay_that_clears_it_cost_what_is_predicted(
    name: str, body: int, dynamo: DynamoDBClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table_with_outbox(dynamo, name)
    everything: Any = {"Projection": {"ProjectionType": "ALL"}}
    by_day: Any = {"IndexName": "by-day", "KeySchema": [{"AttributeName": "day", "KeyType": "HASH"}], **everything}
    dynamo.update_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in ("id", "day")],
        GlobalSecondaryIndexUpdates=[{"Create": by_day}],
    )
    dynamo.put_item(TableName=name, Item=typed_values({"id": "e", "day": "monday", "text": "x" * 60}))
    charged, update = list[float](), dynamo.update_item

    def noted(**request: Any) -> Any:
        answer = update(**request, ReturnConsumedCapacity="TOTAL")
        charged.append(answer["ConsumedCapacity"]["CapacityUnits"])
        return answer

    monkeypatch.setattr(dynamo, "update_item", noted)
    store = GuardedTable(dynamo, SeenIds(), table_name=name, outbox=Outbox("a/b", index="pending"))
    event = Event("Paid", "y" * body)
    store.update_item(Message("m"), Key={"id": "e"}, UpdateExpression="REMOVE unpaid", emit=[event])
    assert Relay(store, lambda _: None).sweep().published == 1
    index = IndexLoad("by-day", 100, copies_ledger=True, does="changes")
    inputs = Inputs(
        engine="dynamodb", item_bytes=100, per_day=1, entities=1, indexes=(index,), events=1, event_bytes=body + 200
    )
    fresh = ways(inputs, OnDynamoDB(inputs))[0].fresh
    assert fresh is not None
    assert sum(charged) == fresh.mean


def random_item(key: str, ledger: Ledger, dice: random.Random) -> dict[str, Any]:
    """An item that may have got messages before; sometimes there is none."""
    if dice.random() < 0.1:
        return {}
    item: dict[str, Any] = {"id": key, **random_values(dice)}
    for n in range(dice.choice([0, 1, 3])):
        item = items.written_item(item, ledger, Message(f"m{n}", source="s", sequence=n), NOW, f"{n}")
    return item


def put(table: Table, items: list[dict[str, Any]]) -> None:
    requests: list[Any] = [{"PutRequest": {"Item": typed_values(item)}} for item in items]
    for at in range(0, len(requests), 25):  # as many as one request takes
        table.client.batch_write_item(RequestItems={table.name: requests[at : at + 25]})


def one_write(table: Table, ledger: Ledger, key: str, before: dict[str, Any], dice: random.Random) -> tuple[Bill, Bill]:
    """What a guarded write to an item should cost, and what it does."""
    changed, removed = random_values(dice), dice.sample(NAMES, 2)
    message = Message("fresh", source="s", sequence=30)
    after = items.written_item(before or {"id": key}, ledger, message, NOW + 1, "the call")
    after = {name: value for name, value in {**after, **changed}.items() if name not in removed or name in changed}
    outcome = guarded(table, ledger).update_item(message, **native(key, changed, removed))
    assert isinstance(outcome, Applied)
    assert comparable(plain_values(outcome.response["Attributes"])) == comparable(after)
    used = outcome.response["ConsumedCapacity"]
    indexes = {name: int(each["CapacityUnits"]) for name, each in used.get("GlobalSecondaryIndexes", {}).items()}
    return bill(before or None, after, table.indexes), Bill(int(used["Table"]["CapacityUnits"]), indexes)


def guarded(table: Table, ledger: Ledger) -> GuardedTable:
    return name_calls(GuardedTable(table.client, ledger, table_name=table.name, clock=lambda: NOW + 1), lambda: "the call")


def native(key: str, changed: Mapping[str, str], removed: list[str]) -> dict[str, Any]:
    gone = [name for name in removed if name not in changed]
    sets = f"SET {','.join([f'#{name}=:{name}' for name in changed])}" if changed else ""
    removes = f"REMOVE {','.join([f'#{name}' for name in gone])}" if gone else ""
    return {
        "Key": {"id": key},
        "UpdateExpression": f"{sets} {removes}".strip(),
        "ExpressionAttributeNames": {f"#{name}": name for name in (*changed, *gone)},
        "ExpressionAttributeValues": {f":{name}": value for name, value in changed.items()},
        "ReturnConsumedCapacity": "INDEXES",
        "ReturnValues": "ALL_NEW",
    }


def comparable(item: Mapping[str, Any]) -> dict[str, Any]:
    """The item with its sets as text: bytes and numbers come back as types of boto3's own."""
    return {name: sorted(map(text, value)) if isinstance(value, set | frozenset) else value for name, value in item.items()}


def text(member: Any) -> str:
    return str(bytes_of(member) if isinstance(member, Binary) else member)


# --- bytes ---------------------------------------------------------------------------------------------------------------

MESSAGES = 45


@pytest.mark.parametrize("ledger", LEDGERS, ids=str)
@pytest.mark.parametrize(("texts", "gap"), [(Texts(36, 16, 1), 30), (Texts(9, 0, 1), 700), (Texts(20, 20, 3), 5000)])
@pytest.mark.few(3)
def test_the_predicted_bytes_of_a_ledger_are_those_that_stand_in_the_item(
    ledger: Ledger, texts: Texts, gap: int, dynamo: DynamoDBClient, table: str
) -> None:
    stream, now, predicted = MessageStream(gap * SECOND), [0.0], ItemLedger(ledger, texts)
    store = name_calls(GuardedTable(dynamo, ledger, table_name=table, clock=lambda: now[0]), numbered())
    add: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}, "ReturnValues": "ALL_NEW"}
    for n in range(MESSAGES):
        now[0] = stream.moment(n) / SECOND
        outcome = store.update_item(texts.message(n), Key={"id": "e"}, **add)
        assert isinstance(outcome, Applied)
        held = {name: value for name, value in outcome.response["Attributes"].items() if name not in ("id", "n")}  # typed
        assert sum(part.size(stream, stream.moment(n)) for part in predicted.parts) == item_size(plain_values(held))


@pytest.mark.parametrize("ledger", LEDGERS, ids=str)
@pytest.mark.parametrize(("texts", "gap"), [(Texts(36, 16, 1), 30), (Texts(9, 0, 1), 700), (Texts(20, 20, 3), 5000)])
@pytest.mark.few(3)
def test_the_predicted_bytes_of_a_document_are_those_of_mongodb(
    ledger: Ledger, texts: Texts, gap: int, collection: Collection[dict[str, Any]]
) -> None:
    stream, now, predicted = MessageStream(gap * SECOND), [0.0], DocumentLedger(ledger, texts)
    store = GuardedCollection(collection, ledger, clock=lambda: now[0], durability="acknowledged")
    collection.insert_one({"_id": "e", "n": -1})
    for n in range(MESSAGES):
        now[0] = stream.moment(n) / SECOND
        assert isinstance(store.update_one(texts.message(n), {"_id": "e"}, {"$set": {"n": n}}), Applied)
        held = {name: value for name, value in (collection.find_one() or {}).items() if name not in ("_id", "n")}
        (part,) = predicted.parts
        assert part.size(stream, stream.moment(n)) == len(bson.encode(held)) - len(bson.encode({}))


# --- what a live store shows -----------------------------------------------------------------------------------------------


def test_a_sample_of_a_table_tells_its_indexes_and_the_share_of_the_ledger(dynamo: DynamoDBClient) -> None:
    def index(name: str, key: str, projection: dict[str, Any]) -> Any:
        return {"IndexName": name, "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}], "Projection": projection}

    dynamo.create_table(
        TableName="sampled",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in ("id", "a", "b", "c")],
        GlobalSecondaryIndexes=[
            index("all", "a", {"ProjectionType": "ALL"}),
            index("keys", "b", {"ProjectionType": "KEYS_ONLY"}),
            index("unused", "c", {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["a"]}),
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    store = GuardedTable(dynamo, SeenIds(), table_name="sampled")
    for n in range(4):
        own = {"id": f"e{n}", "a": "x" * 10, "b": "y" * 20, "body": "z" * 100}
        store.put_item(Message(f"m{n}"), Item=own)
    found = run(table_sample(TableStore(dynamo, "sampled", clock=lambda: NOW), 3), dynamo)
    assert (found.engine, found.looked_at, found.own) == ("dynamodb", 3, item_size(own))
    assert found.largest == found.own + found.ledger
    assert found.largest_share == found.ledger / found.largest
    assert found.kept == {"ow_l: 14d": 3}
    assert found.indexes == (
        IndexLoad("all", item_size(own), copies_ledger=True, does="changes"),
        IndexLoad("keys", item_size({"id": "e1", "b": "y" * 20}), copies_ledger=False, does="still"),
    )
    assert found.unused == ("unused",)


def test_a_sample_of_a_collection_tells_the_share_of_the_ledger(collection: Collection[dict[str, Any]]) -> None:
    store = GuardedCollection(collection, SeenIds(None))
    for n in range(4):
        store.insert_one(Message(f"m{n}"), {"_id": f"e{n}", "body": "z" * 100})
    found = run(collection_sample(CollectionStore(collection, clock=lambda: NOW), 3), collection)
    assert (found.engine, found.name, found.entities, found.looked_at) == ("mongodb", collection.full_name, 4, 3)
    assert found.own == len(bson.encode({"_id": "e0", "body": "z" * 100}))
    assert found.largest == len(bson.encode(collection.find_one() or {}))
    assert found.kept == {"ow_l: all": 3}
