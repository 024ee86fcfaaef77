"""A machine answers as the store would, and asks the store only once."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Hashable, Iterator
from decimal import Decimal
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr
from botocore.exceptions import ClientError
from pymongo import IndexModel, WriteConcern
from pymongo.errors import DuplicateKeyError

from onewrite import ConfigurationError, Duplicate, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing.model import contents as keys
from onewrite.testing.model.contents import Contents, NotCanonicalError, canonical, digest, merge
from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import MakeTable, mongomock_collection, moto_tables
from tests.support.seams import name_calls


@pytest.fixture
def make() -> Iterator[MakeTable]:
    with moto_tables() as made:
        yield made


@pytest.fixture(params=["table", "collection"])
def counters(request: pytest.FixtureRequest) -> tuple[Machine, Callable[[str], int], Callable[[], Any]]:
    """A machine; `bump(id)` adds to an entity's counter, unguarded, and `read()` shows them all."""
    if request.param == "collection":
        machine = Machine(mongomock_collection)
        collection = machine.stores(machine.perform)

        def bump(name: str) -> int:
            return collection.find_one_and_update({"_id": name}, {"$inc": {"n": 1}}, upsert=True, return_document=True)["n"]

        return machine, bump, lambda: {each["_id"]: each["n"] for each in collection.find()}
    make = request.getfixturevalue("make")
    machine = Machine(lambda: make("orders", "id"))
    table = machine.stores(machine.perform)
    add = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}, "ReturnValues": "ALL_NEW"}

    def bump_item(name: str) -> int:
        return int(table.update_item(Key={"id": name}, **add)["Attributes"]["n"])

    return machine, bump_item, lambda: {each["id"]: int(each["n"]) for each in table.scan()["Items"]}


Counters = tuple[Machine, Callable[[str], int], Callable[[], Any]]


# ---------------------------------------------------------------- states and transitions


def test_what_was_done_once_is_known(counters: Counters) -> None:
    machine, bump, read = counters
    for _ in range(3):
        machine.reset()
        assert [bump("a"), bump("a"), bump("b")] == [1, 2, 1]
        assert read() == {"a": 2, "b": 1}
    assert (machine.misses, machine.hits) == (4, 8)
    assert machine.why_slow is None


def test_stores_that_hold_the_same_are_one_state(counters: Counters) -> None:
    machine, bump, _ = counters
    empty = machine.state
    bump("a")
    one = machine.state
    bump("b")
    both = machine.state
    machine.reset()
    assert machine.state is empty
    bump("b")
    assert machine.state is not one
    bump("a")
    assert machine.state is both
    assert len({empty, one, both}) == 3


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(retention=None), SeenIds(retention=None, readable=True)])
def test_ledgers_that_hold_the_same_messages_are_one_state_and_other_arrays_keep_their_order(ledger: SeenIds) -> None:
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    guarded = GuardedCollection(collection, ledger, clock=lambda: 1.79e9)

    def state_after(*names: str, plain: str = "") -> Hashable:
        machine.reset()
        for name in names:
            guarded.update_one(Message(name), {"_id": "a"}, {"$inc": {"n": 1}}, upsert=True)
        for name in plain:
            collection.update_one({"_id": "a"}, {"$push": {"plain": name}})
        return machine.state

    assert state_after("m1", "m2") is state_after("m2", "m1")
    assert state_after("m1", "m2") is not state_after("m1", "m3")
    assert state_after("m1", plain="xy") is not state_after("m1", plain="yx")
    state_after("m2", "m1")
    assert guarded.seen(Message("m1"), {"_id": "a"}) == Duplicate(Message("m1"), {"_id": "a", "n": 2})


def test_the_store_is_brought_to_the_present_state_for_what_is_new(counters: Counters) -> None:
    machine, bump, read = counters
    bump("a")
    bump("a")
    bump("b")
    machine.reset()
    bump("a")
    assert machine.misses == 3
    assert read() == {"a": 1}
    bump("c")
    assert read() == {"a": 1, "c": 1}
    machine.reset()
    assert read() == {}


def test_reading_moves_no_state(counters: Counters) -> None:
    machine, bump, read = counters
    bump("a")
    state = machine.state
    read()
    assert machine.state is state


def test_every_order_of_many_requests_is_answered_as_a_store_would(
    counters: Counters, request: pytest.FixtureRequest
) -> None:
    machine, bump, read = counters
    for number in range(64):
        machine.reset()
        expected = {"a": 0, "b": 0}
        for bit in range(6):
            name = "ab"[number >> bit & 1]
            expected[name] += 1
            assert bump(name) == expected[name]
        assert read() == {name: n for name, n in expected.items() if n}
    # Each state has two ways on, and is read at the end. Of a table each item has a way on, whatever the other one is.
    ways = 2 * 6 if request.node.callspec.params["counters"] == "table" else 2 * (1 + 2 + 3 + 4 + 5 + 6)
    assert machine.misses == ways + 7
    assert machine.why_slow is None


@pytest.mark.slow
def test_requests_about_one_item_are_answered_as_by_the_table_itself_whatever_the_other_items_are(make: MakeTable) -> None:
    """Puts, updates and deletions with conditions, and reads, in walks that begin anew, of three items in two tables."""

    def world(prefix: str) -> dict[str, Any]:
        two = make(f"{prefix}two", "id", sort_key="part", types={"part": "N"})
        return {"one": make(f"{prefix}one", "id"), "two": two}

    machine = Machine(lambda: world("explored-"))
    tables, chance = machine.stores(machine.perform), random.Random(5)
    keys: dict[str, list[dict[str, Any]]] = {
        "one": [{"id": "a"}, {"id": "b"}],
        "two": [{"id": "a", "part": 1}, {"id": "a", "part": 2}],
    }

    def step(table: Any, choice: random.Random, key: dict[str, Any]) -> object:
        count = {"ExpressionAttributeValues": {":n": choice.randrange(3)}}
        calls: list[Callable[[], Any]] = [
            lambda: table.get_item(Key=key),
            lambda: table.put_item(Item=key | {"n": choice.randrange(3)}, ReturnValues="ALL_OLD"),
            lambda: table.update_item(Key=key, UpdateExpression="ADD n :n", ReturnValues="ALL_NEW", **count),
            lambda: table.update_item(Key=key, UpdateExpression="SET m = n", ConditionExpression="n > :n", **count),
            lambda: table.delete_item(Key=key, ConditionExpression="n = :n", ReturnValues="ALL_OLD", **count),
            lambda: table.delete_item(Key=key),
        ]
        try:
            answer = choice.choice(calls)()
        except ClientError as error:
            return error.response.get("Error")
        # moto names the table in the capacity, which it returns unasked.
        return {name: value for name, value in answer.items() if name not in ("ResponseMetadata", "ConsumedCapacity")}

    for walk in range(20):
        machine.reset()
        plain = world("plain-")
        for number in range(8):
            name = chance.choice(["one", "two"])
            key, seed = chance.choice(keys[name]), chance.random()
            explored, real = (step(stores[name], random.Random(seed), key) for stores in (tables, plain))
            assert explored == real, (walk, number)
        for name, table in plain.items():
            assert sorted(tables[name].scan()["Items"], key=str) == sorted(table.scan()["Items"], key=str)
    assert machine.hits > 0
    assert machine.why_slow is None


def test_answers_are_the_handlers_own(make: MakeTable) -> None:
    machine = Machine(lambda: make("orders", "id"))
    table = machine.stores(machine.perform)
    table.put_item(Item={"id": "a", "lines": ["x"]})
    for _ in range(3):
        found = table.get_item(Key={"id": "a"})["Item"]
        assert found == {"id": "a", "lines": ["x"]}
        found["lines"].append("y")


def test_requests_are_what_they_were_when_they_were_made() -> None:
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    document = {"_id": 1, "lines": ["x"]}
    collection.insert_one(document)
    document["lines"] = []
    machine.reset()
    collection.insert_one({"_id": 1, "lines": ["x"]})
    assert collection.find_one({"_id": 1}) == {"_id": 1, "lines": ["x"]}


def test_a_refusal_is_known_with_its_class_and_its_contents_and_without_its_past(make: MakeTable) -> None:
    machine = Machine(lambda: make("orders", "id"))
    table = machine.stores(machine.perform)
    caught: list[Any] = []
    for _ in range(4):
        machine.reset()
        table.put_item(Item={"id": "a", "n": 1})
        with pytest.raises(table.meta.client.exceptions.ConditionalCheckFailedException) as refused:
            table.put_item(
                Item={"id": "a"}, ConditionExpression=Attr("id").not_exists(), ReturnValuesOnConditionCheckFailure="ALL_OLD"
            )
        caught.append(refused.value)
    assert machine.misses == 2
    assert [error.response["Item"] for error in caught] == [{"id": {"S": "a"}, "n": {"N": "1"}}] * 4
    assert {str(error) for error in caught} == {str(caught[0])}
    assert len({id(error) for error in caught}) == 4
    assert len(traceback.extract_tb(caught[2].__traceback__)) == len(traceback.extract_tb(caught[3].__traceback__))


def test_documents_are_given_the_ids_that_the_driver_would_give_them() -> None:
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    made = []
    for _ in range(2):
        machine.reset()
        one: dict[str, Any] = {"n": 1}
        two: dict[str, Any] = {"n": 2}
        collection.insert_one(one)
        collection.insert_many([two, {"_id": 3}])
        made.append((one["_id"], two["_id"]))
        assert collection.count_documents({"_id": {"$in": list(made[0])}}) == 2
    assert made[0] == made[1]
    assert machine.misses == 3


def test_guarded_writes_are_remembered(make: MakeTable) -> None:
    machine = Machine(lambda: make("orders", "id"))
    ids = iter("abcabc")
    orders = name_calls(GuardedTable(machine.stores(machine.perform), SeenIds(), clock=lambda: 1.79e9), lambda: next(ids))
    for _ in range(2):
        machine.reset()
        told = [orders.record(Message(name), Key={"id": "o"}) for name in ("m-1", "m-2", "m-1")]
        assert [type(outcome).__name__ for outcome in told] == ["Applied", "Applied", "Duplicate"]
    assert machine.misses == 3


# ---------------------------------------------------------------- more than one table


def test_a_world_may_hold_several_stores(make: MakeTable) -> None:
    machine = Machine(lambda: {"shop": make("orders", "id"), "stock": mongomock_collection("stock")})
    stores = machine.stores(machine.perform)
    for _ in range(2):
        machine.reset()
        stores["shop"].put_item(Item={"id": "a"})
        stores["stock"].insert_one({"_id": 1})
        assert stores["shop"].scan()["Items"] == [{"id": "a"}]
    assert machine.misses == 3


def test_a_clients_tables_are_all_part_of_the_state(make: MakeTable) -> None:
    def world() -> Any:
        make("archive", "id")
        return make("orders", "id").meta.client

    machine = Machine(world)
    client = machine.stores(machine.perform)
    start = machine.state
    client.put_item(TableName="archive", Item={"id": "a"})
    assert machine.state is not start
    machine.reset()
    assert client.scan(TableName="archive")["Items"] == []


def test_two_stores_that_reach_one_database_share_what_it_holds(make: MakeTable) -> None:
    def world() -> Any:
        table = make("orders", "id")
        return {"table": table, "client": table.meta.client}

    machine = Machine(world)
    stores = machine.stores(machine.perform)
    for _ in range(2):
        machine.reset()
        stores["table"].put_item(Item={"id": "a"})
        state = machine.state
        stores["client"].delete_item(TableName="orders", Key={"id": "a"})
        stores["client"].put_item(TableName="orders", Item={"id": "a"})
        assert machine.state is state
        assert stores["table"].scan()["Items"] == [{"id": "a"}]


def test_a_table_that_a_request_names_becomes_part_of_the_state(make: MakeTable) -> None:
    def world() -> Any:
        make("archive", "id").put_item(Item={"id": "old"})
        return make("orders", "id")

    machine = Machine(world)
    client = machine.stores(machine.perform).meta.client
    for _ in range(2):
        machine.reset()
        client.put_item(TableName="orders", Item={"id": "a"})
        client.delete_item(TableName="archive", Key={"id": "old"})
        assert client.scan(TableName="archive")["Items"] == []
        machine.reset()
        assert client.scan(TableName="archive")["Items"] == [{"id": "old"}]


def test_another_collection_that_a_request_names_becomes_part_of_the_state() -> None:
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    for number in (1, 2):
        machine.reset()
        collection.insert_one({"_id": 1})
        collection.database["outbox"].insert_one({"_id": number})
        collection.archive.insert_one({"_id": number})
        collection.aggregate([{"$match": {}}, {"$out": "copies"}])
        machine.reset()
        assert [each.count_documents({}) for each in (collection, collection.database.outbox, collection.archive)] == [0] * 3
        assert collection.database["copies"].find_one() is None


# ---------------------------------------------------------------- more than contents


def test_an_index_is_undone_by_a_new_world_and_made_again_where_it_was() -> None:
    worlds = []

    def world() -> Any:
        worlds.append(mongomock_collection())
        return worlds[-1]

    machine = Machine(world)
    collection = machine.stores(machine.perform)
    empty = machine.state
    collection.create_index("sku", unique=True)
    assert machine.state is not empty
    collection.insert_one({"_id": 1, "sku": "a"})
    machine.reset()
    collection.insert_one({"_id": 1, "sku": "a"})
    collection.insert_one({"_id": 2, "sku": "a"})
    assert len(worlds) == 2
    machine.reset()
    collection.create_index("sku", unique=True)
    collection.insert_one({"_id": 1, "sku": "a"})
    with pytest.raises(DuplicateKeyError):
        collection.insert_one({"_id": 2, "sku": "a"})
    assert len(worlds) == 3
    assert machine.why_slow is None


def test_an_index_without_a_canonical_form_is_an_index_of_its_own() -> None:
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    start = machine.state
    collection.create_indexes(IndexModel(name) for name in "ab")
    assert machine.state is not start
    collection.drop()
    machine.reset()
    assert list(collection.index_information()) == []


def test_a_table_that_is_deleted_and_made_anew_is_another(make: MakeTable) -> None:
    def world() -> Any:
        make("orders", "id")
        return make("lines", "id").meta.client

    machine = Machine(world)
    client = machine.stores(machine.perform)
    for _ in range(2):
        machine.reset()
        client.put_item(TableName="orders", Item={"id": "a"})
        client.delete_table(TableName="orders")
        with pytest.raises(client.exceptions.ResourceNotFoundException):
            client.get_item(TableName="orders", Key={"id": "a"})
        client.create_table(
            TableName="orders",
            KeySchema=[{"AttributeName": "line", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "line", "AttributeType": "N"}],
            BillingMode="PAY_PER_REQUEST",
        )
        client.put_item(TableName="orders", Item={"line": 1})
        assert client.scan(TableName="orders")["Items"] == [{"line": 1}]
        machine.reset()
        client.put_item(TableName="orders", Item={"id": "b"})
        assert client.scan(TableName="orders")["Items"] == [{"id": "b"}]
    assert machine.why_slow is None


# ---------------------------------------------------------------- what cannot be remembered


def test_a_request_without_a_canonical_form_is_performed_each_time_and_what_follows_is_known() -> None:
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    for _ in range(3):
        machine.reset()
        collection.insert_one({"_id": 1}, comment=Lock())
        assert collection.find_one({}) == {"_id": 1}
    assert (machine.misses, machine.hits) == (4, 2)
    assert machine.why_slow is None


def test_an_answer_that_cannot_be_copied_is_given_by_the_store_each_time() -> None:
    raw = mongomock_collection()
    locks = [Lock(), Lock()]
    waiting = list(locks)
    raw.distinct = lambda key: waiting.pop(0)
    machine = Machine(lambda: raw)
    collection = machine.stores(machine.perform)
    assert [collection.distinct("n") for _ in range(2)] == locks


def test_a_store_that_changes_by_itself_is_performed_from_a_new_world_each_time() -> None:
    stores: list[Any] = []

    def world() -> Any:
        stores.append(mongomock_collection())
        return stores[-1]

    machine = Machine(world)
    collection = machine.stores(machine.perform)

    def bump(number: int) -> None:
        collection.update_one({"_id": number}, {"$inc": {"n": 1}}, upsert=True)

    def deliver() -> list[int]:
        machine.reset()
        bump(1)
        with pytest.raises(DuplicateKeyError):
            collection.insert_one({"_id": 1})
        bump(2)
        return [each["n"] for each in collection.find()]

    assert deliver() == [1, 1]
    first = stores[0]
    first.insert_one = lambda document: type(first).insert_one(first, {**document, "n": 99})
    machine.reset()
    bump(3)
    machine.reset()
    bump(1)
    with pytest.raises(DuplicateKeyError):
        collection.insert_one({"_id": 1})
    bump(1)  # the store was at 3, and cannot be brought back to 1
    assert machine.why_slow is not None
    assert "somebody else" in machine.why_slow
    assert collection.find_one({"_id": 1}) == {"_id": 1, "n": 2}
    known = machine.hits
    for _ in range(2):
        assert deliver() == [1, 1]
    assert machine.hits == known
    assert len(stores) == 4


def test_pickles_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_MOST_PICKLES", 3)
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    for _ in range(2):
        for number in range(10):
            assert collection.find_one({"_id": number}) is None
    assert (machine.misses, machine.hits) == (10, 10)


def test_the_same_request_may_give_its_arguments_in_another_order(make: MakeTable) -> None:
    machine = Machine(lambda: make("orders", "id"))
    table = machine.stores(machine.perform)
    assert table.get_item(Key={"id": "a"}, ConsistentRead=True) != {}
    table.get_item(ConsistentRead=True, Key={"id": "a"})
    assert (machine.misses, machine.hits) == (1, 1)


def test_numbers_that_python_holds_for_equal_are_different_requests(make: MakeTable) -> None:
    machine = Machine(lambda: make("orders", "id"))
    table = machine.stores(machine.perform)
    for value in (1, True, Decimal("1.0"), Decimal(1)):
        machine.reset()
        table.put_item(Item={"id": "a", "value": value})
        assert type(table.get_item(Key={"id": "a"})["Item"]["value"]) is (bool if value is True else Decimal)
    assert machine.hits == 0 or machine.misses == 8 - machine.hits


def test_options_of_a_collection_tell_requests_apart() -> None:
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    collection.find_one({"_id": 1})
    collection.with_options(write_concern=WriteConcern(1)).find_one({"_id": 1})
    assert machine.misses == 2


# ---------------------------------------------------------------- asynchronous stores


def test_an_asynchronous_collection_is_remembered() -> None:
    async def main() -> None:
        machine = Machine(lambda: mongomock_collection(asynchronous=True))
        assert machine.is_async
        stock = AsyncGuardedCollection(machine.stores(machine.aperform), SeenIds(), clock=lambda: 1.79e9)
        for _ in range(2):
            machine.reset()
            for name in ("m-1", "m-2", "m-1"):
                await stock.update_one(Message(name), {"_id": "a"}, {"$inc": {"n": 1}}, upsert=True)
            assert await stock.find_one({"_id": "a"}) == {"_id": "a", "n": 2}
        assert (machine.misses, machine.hits) == (5, 5)
        with pytest.raises(DuplicateKeyError):
            await machine.stores(machine.aperform).insert_one({"_id": "a"})

    asyncio.run(main())


# ---------------------------------------------------------------- worlds that are not empty


def test_a_world_may_begin_with_something_and_every_reset_leads_back_to_it(make: MakeTable) -> None:
    def world() -> Any:
        table = make("orders", "id")
        table.put_item(Item={"id": "a", "n": 5})
        return table

    machine = Machine(world)
    table = machine.stores(machine.perform)
    for _ in range(2):
        machine.reset()
        assert table.get_item(Key={"id": "a"})["Item"] == {"id": "a", "n": 5}
        table.delete_item(Key={"id": "a"})
        assert "Item" not in table.get_item(Key={"id": "a"})


def test_an_asynchronous_world_may_begin_with_something_too() -> None:
    async def main() -> None:
        collection = mongomock_collection(asynchronous=True)
        await collection.insert_one({"_id": 1})
        machine = Machine(lambda: collection)
        assert await machine.stores(machine.aperform).find_one({}) == {"_id": 1}

    asyncio.run(main())


def test_a_world_that_begins_otherwise_when_it_is_made_again_is_refused() -> None:
    """It is made again to be rid of an index."""
    beginnings: Iterator[list[dict[str, Any]]] = iter([[], [{"_id": 1}, {"_id": 2}]])

    def world() -> Any:
        collection = mongomock_collection()
        for document in next(beginnings):
            collection.insert_one(document)
        return collection

    machine = Machine(world)
    orders = machine.stores(machine.perform)
    orders.create_index("left")
    machine.reset()
    with pytest.raises(
        ConfigurationError, match=r"'orders' began with nothing, and then with \{'_id': 1\} and more\. Let it"
    ):
        orders.insert_one({"_id": "x"})


# ---------------------------------------------------------------- worlds that are refused


def test_a_world_of_stores_of_both_kinds_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="one kind"):
        Machine(lambda: {"orders": mongomock_collection(), "stock": mongomock_collection(asynchronous=True)})


def test_a_large_table_is_read_whole(make: MakeTable) -> None:
    """moto gives a megabyte at a time."""
    machine = Machine(lambda: make("orders", "id"))
    table = machine.stores(machine.perform)
    for number in range(4):
        table.put_item(Item={"id": str(number), "text": "x" * 300_000})
    machine.reset()
    table.put_item(Item={"id": "5"})
    assert table.scan()["Items"] == [{"id": "5"}]
    assert machine.why_slow is None


@pytest.mark.slow
def test_a_client_of_many_tables_is_read_whole(make: MakeTable) -> None:
    """moto names a hundred at a time."""

    def world() -> Any:
        return [make(f"table{number:03}", "id") for number in range(101)][-1].meta.client

    client = Machine(world).stores(print)
    assert client is not None


def test_a_store_that_cannot_be_read_says_why(make: MakeTable) -> None:
    table = make("orders", "id")
    table.meta.client.meta.events.register("before-call.dynamodb.Scan", denied)
    try:
        with pytest.raises(PermissionError):
            Machine(lambda: table)
    finally:
        table.meta.client.meta.events.unregister("before-call.dynamodb.Scan", denied)


def denied(**_: Any) -> None:
    raise PermissionError


@pytest.mark.parametrize("given", [None, "orders", {"shop": None}, [mongomock_collection]])
def test_a_world_of_no_stores_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="no store"):
        Machine(lambda: given)


def test_a_world_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="made no store"):
        Machine(dict)


@pytest.mark.parametrize("second", ["lines", {"shop": "orders"}, {"orders": "lines"}])
def test_a_world_must_be_the_same_each_time(second: Any) -> None:
    worlds: list[Any] = [
        mongomock_collection("orders"),
        {name: mongomock_collection(inner) for name, inner in second.items()}
        if isinstance(second, dict)
        else mongomock_collection(second),
    ]
    machine = Machine(lambda: worlds.pop(0))
    collection = machine.stores(machine.perform)
    collection.create_index("n")
    machine.reset()
    with pytest.raises(ConfigurationError, match="the same names"):
        collection.insert_one({"_id": 1})


def test_a_world_must_be_new_each_time() -> None:
    collection = mongomock_collection()
    machine = Machine(lambda: collection)
    store = machine.stores(machine.perform)
    store.insert_one({"_id": 1})
    store.create_index("n")
    machine.reset()
    with pytest.raises(ConfigurationError, match="each time"):
        store.find_one({"_id": 1})


# ---------------------------------------------------------------- canonical forms


def test_a_canonical_form_is_the_same_for_equal_values_and_no_other() -> None:
    values = [1, True, 1.0, "1", b"1", None, [1], (1,), {1}, {"a": 1}, Decimal(1), 0.0, -0.0, [], {}, int]
    forms = [canonical(value, ordered=True) for value in values]
    assert len(set(forms)) == len(values)
    assert len({digest(form) for form in forms}) == len(values)
    assert canonical({"a", "b", "c"}, ordered=True) == canonical({"c", "b", "a"}, ordered=True)


def test_the_order_of_names_counts_where_it_is_asked_for() -> None:
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert canonical(one, ordered=False) == canonical(other, ordered=False)
    assert canonical(one, ordered=True) != canonical(other, ordered=True)


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize("value", [iter([1]), (part for part in list[int]()), lambda: 1, Lock(), endless()])
def test_what_has_a_state_of_its_own_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(NotCanonicalError):
        canonical(value, ordered=True)


def test_a_transaction_of_a_session_that_is_not_tapped_is_refused() -> None:
    machine = Machine(mongomock_collection)
    collection = machine.stores(machine.perform)
    with pytest.raises(ConfigurationError, match="its commit would not be seen"):
        collection.insert_one({"_id": 1}, session=SimpleNamespace(in_transaction=True))


def test_what_a_transaction_deletes_is_gone_and_what_another_wrote_meanwhile_stays() -> None:
    def held(**entities: int) -> Contents:
        return Contents(("_id",), {name: {"n": n} for name, n in entities.items()}, dict(entities.items()), b"")

    after = merge(
        held(deleted=1, changed=1, untouched=5), held(changed=2, untouched=1, created=3), ["deleted", "changed", "created"]
    )
    assert after.entities == {"changed": {"n": 2}, "untouched": {"n": 5}, "created": {"n": 3}}
