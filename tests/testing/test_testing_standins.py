"""The stand-ins as users hold them: how they are made, what they keep apart, and that they are atomic."""

from __future__ import annotations

import asyncio
import builtins
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import mongomock
import moto
import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError
from pymongo import UpdateOne, WriteConcern
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

import onewrite.testing
from onewrite import ConfigurationError, HighWaterMark, Message, OnewriteError, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing import StandInLies, dynamodb_stream_event, mongod, mongomock_collection, moto_table
from onewrite.testing.standins.stores import moto_tables

FIRST = Message("m1", source="s", sequence=1)


def in_threads(count: int, work: Callable[[], Any]) -> list[Any]:
    start = threading.Barrier(count)

    def run(_: int) -> Any:
        start.wait(10)
        return work()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.fixture
def nervous_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


# ---------------------------------------------------------------- the package


def test_importing_the_kit_imports_no_driver_and_no_stand_in() -> None:
    program = """
import sys
import onewrite.testing
import onewrite.testing.plugin
from onewrite.testing import lambda_context, mongod, mongomock_collection, moto_table, sqs_event
known = {"boto3", "botocore", "bson", "mongomock", "moto", "pymongo"}
print(*sorted(known & {name.split(".")[0] for name in sys.modules}))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'onewrite\.testing' has no attribute 'nonsense'"):
        _ = onewrite.testing.nonsense


@pytest.mark.parametrize(
    ("use", "module", "extra"),
    [
        (lambda: moto_table().__enter__(), "moto", "testing"),
        (lambda: mongomock_collection().__enter__(), "onewrite.testing.standins.collection", "testing,mongodb"),
        (mongod, "pymongo", "mongodb"),
        (lambda: dynamodb_stream_event((None, {"orderId": "o-1"})), "onewrite.dynamodb.values", "dynamodb"),
    ],
    ids=["moto_table", "mongomock_collection", "mongod", "dynamodb_stream_event"],
)
def test_what_is_not_installed_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[], object], module: str, extra: str
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setitem(sys.modules, "pymongo", None)  # what `import_module` looks at
    with pytest.raises(ConfigurationError) as missing:
        use()
    assert f'pip install "onewrite[{extra}]"' in str(missing.value)


def test_a_lie_is_an_error_of_ours_and_something_not_implemented() -> None:
    assert issubclass(StandInLies, OnewriteError)
    assert issubclass(StandInLies, NotImplementedError)


# ---------------------------------------------------------------- moto_table


def test_a_table_is_a_boto3_table_that_other_clients_see_too() -> None:
    with moto_table("orders", key="orderId") as table:
        orders = GuardedTable(table, HighWaterMark())
        update: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
        orders.update_item(FIRST, Key={"orderId": "o-1"}, **update)
        orders.update_item(FIRST, Key={"orderId": "o-1"}, **update)
        client = boto3.client("dynamodb")
        assert client.get_item(TableName="orders", Key={"orderId": {"S": "o-1"}})["Item"]["n"] == {"N": "1"}
        assert boto3.resource("dynamodb").Table("orders").item_count == 1
        client.close()


def test_a_table_shows_no_date_that_tells_a_test_with_another_clock_to_set_it_right(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with moto_table("orders", key="orderId") as table:
        orders = GuardedTable(table, SeenIds(), clock=lambda: 1_700_000_000.0)
        orders.record(FIRST, Key={"orderId": "o-1"})
    assert caplog.messages == []


def test_keys_have_names_and_types_and_the_rest_is_handed_on() -> None:
    index = {
        "IndexName": "by-day",
        "KeySchema": [{"AttributeName": "day", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    with moto_table(
        "lines", "order", sort_key="line", types={"line": "N", "day": "B"}, GlobalSecondaryIndexes=[index]
    ) as table:
        assert table.name == "lines"
        assert table.key_schema == [
            {"AttributeName": "order", "KeyType": "HASH"},
            {"AttributeName": "line", "KeyType": "RANGE"},
        ]
        types = {part["AttributeName"]: part["AttributeType"] for part in table.attribute_definitions}
        assert types == {"order": "S", "line": "N", "day": "B"}
        for line in (2, 1):
            table.put_item(Item={"order": "o-1", "line": line, "day": b"1"})
        with pytest.raises(ClientError):
            table.update_item(
                Key={"order": "o-1", "line": 1}, UpdateExpression="SET m.x=:x", ExpressionAttributeValues={":x": 1}
            )
        with pytest.raises(ClientError, match="maximum allowed size"):
            table.update_item(
                Key={"order": "o-1", "line": 1}, UpdateExpression="SET x=:x", ExpressionAttributeValues={":x": "x" * 410_000}
            )
        assert [item["line"] for item in table.scan()["Items"]] == [1, 2]
        assert table.query(IndexName="by-day", KeyConditionExpression=Key("day").eq(b"1"))["Count"] == 2


def test_native_arguments_win() -> None:
    schema = [{"AttributeName": "pk", "KeyType": "HASH"}]
    throughput = {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}
    with moto_table(TableName="native", KeySchema=schema, ProvisionedThroughput=throughput) as table:
        assert table.name == "native"
        assert table.attribute_definitions == [{"AttributeName": "pk", "AttributeType": "S"}]
        assert table.provisioned_throughput["ReadCapacityUnits"] == 1


@pytest.mark.parametrize(("types", "text"), [({"name": "S"}, "in no key"), ({"orderId": "X"}, "S, N or B")])
def test_a_type_that_makes_no_sense_is_refused(types: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text), moto_table(types=types):
        pytest.fail("never reached")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"key": ("order", "line")}, r"key=\('order', 'line'\): give a text, such as \"orderId\".*sort_key="),
        ({"key": {"orderId": "S"}}, "key=.*give a text"),
        ({"key": None}, "key=None: give a text"),
        ({"key": ""}, "key='': give a text"),
        ({"sort_key": ["line"]}, r"sort_key=\['line'\]: give a text"),
        ({"sort_key": "orderId"}, "sort_key='orderId' is the key too"),
        ({"name": 5}, "name=5: give a text"),
        ({"types": ["N"]}, r"types=\['N'\]: give a dict"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        moto_table(**arguments)


@pytest.mark.parametrize("arguments", [{"name": 5}, {"name": ""}, {"database": None}])
def test_a_collection_has_a_name_and_so_has_its_database(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="give a text, such as"):
        mongomock_collection(**arguments)


def test_several_tables_are_open_at_once_and_each_is_gone_with_its_block() -> None:
    with moto_table("one") as one:
        one.put_item(Item={"orderId": "o-1"})
        with moto_table("two") as two:
            names = boto3.client("dynamodb").list_tables()["TableNames"]
            assert names == ["one", "two"]
            two.put_item(Item={"orderId": "o-2"})
        assert boto3.client("dynamodb").list_tables()["TableNames"] == ["one"]
        assert one.scan()["Count"] == 1
    with moto_table("one") as one:
        assert one.scan()["Count"] == 0


def test_a_table_of_the_same_name_takes_the_place_of_the_first() -> None:
    with moto_tables() as make:
        first = make("orders")
        first.put_item(Item={"orderId": "o-1"})
        assert make("orders").scan()["Count"] == first.scan()["Count"] == 0
        make("orders", "id").put_item(Item={"id": "i-1"})
        assert make("orders").key_schema == [{"AttributeName": "orderId", "KeyType": "HASH"}]


def test_a_table_joins_the_mock_of_the_test() -> None:
    with moto.mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-1")
        with moto_table("theirs"):
            assert client.list_tables()["TableNames"] == ["theirs"]
        assert client.list_tables()["TableNames"] == []
        client.close()


def test_a_table_that_is_closed_sends_nothing() -> None:
    with moto_table() as table:
        pass
    with pytest.raises(ConfigurationError, match="closed"):
        table.get_item(Key={"orderId": "o-1"})


def test_neither_the_callers_account_nor_an_endpoint_of_theirs_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {
        "AWS_ACCESS_KEY_ID": "real",
        "AWS_PROFILE": "production",
        "AWS_ENDPOINT_URL_DYNAMODB": "http://localhost:1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    before = dict(os.environ)
    with moto_table() as table:
        assert table.table_arn.split(":")[3] == "us-east-1"
        table.put_item(Item={"orderId": "o-1"})
        assert boto3.resource("dynamodb").Table("orders").get_item(Key={"orderId": "o-1"})["Item"] == {"orderId": "o-1"}
        assert os.environ["AWS_ACCESS_KEY_ID"] != "real"
    assert dict(os.environ) == before


def test_without_a_region_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    with moto_table() as table:
        assert table.table_arn.split(":")[3] == "ap-south-1"
    monkeypatch.delenv("AWS_REGION")
    with moto_table() as table:
        assert table.table_arn.split(":")[3] == "eu-west-1"
        assert os.environ["AWS_REGION"] == "eu-west-1"


@pytest.mark.usefixtures("nervous_threads")
def test_one_conditional_write_wins_each_time() -> None:
    with moto_table() as table:

        def race() -> list[int]:
            wins = []
            for turn in range(12):
                try:
                    answer = table.update_item(
                        Key={"orderId": "o-1"},
                        UpdateExpression="SET v = :next ADD n :one",
                        ConditionExpression="attribute_not_exists(v) OR v < :next",
                        ExpressionAttributeValues={":next": turn + 1, ":one": 1},
                        ReturnValues="ALL_NEW",
                    )
                except table.meta.client.exceptions.ConditionalCheckFailedException:
                    continue
                wins.append(int(answer["Attributes"]["n"]))
            return wins

        wins = [win for wins in in_threads(6, race) for win in wins]
        assert len(wins) <= 12
        assert sorted(wins) == list(range(1, len(wins) + 1))
        assert table.get_item(Key={"orderId": "o-1"})["Item"]["n"] == len(wins)


@pytest.mark.usefixtures("nervous_threads")
def test_an_answer_is_of_the_write_itself() -> None:
    with moto_table() as table:
        table.put_item(Item={"orderId": "o-1", "n": 0})
        add = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}

        def work() -> list[int]:
            answers = [table.update_item(Key={"orderId": "o-1"}, ReturnValues="ALL_OLD", **add) for _ in range(20)]
            return [int(answer["Attributes"]["n"]) for answer in answers]

        assert sorted(old for part in in_threads(6, work) for old in part) == list(range(120))


def test_a_batch_is_read_and_written() -> None:
    with moto_table() as table:
        with table.batch_writer() as batch:
            batch.put_item(Item={"orderId": "o-1"})
            batch.delete_item(Key={"orderId": "o-2"})
        found = table.meta.client.batch_get_item(RequestItems={"orders": {"Keys": [{"orderId": "o-1"}]}})
        assert found["Responses"]["orders"] == [{"orderId": "o-1"}]
        table.meta.client.transact_write_items(
            TransactItems=[{"Delete": {"TableName": "orders", "Key": {"orderId": "o-1"}}}]
        )
        assert table.scan()["Count"] == 0


# ---------------------------------------------------------------- mongomock_collection


def test_a_collection_is_empty_and_on_a_server_of_its_own() -> None:
    with mongomock_collection() as one, mongomock_collection("orders", database="shop") as other:
        one.insert_one({"_id": 1})
        assert (one.full_name, other.full_name) == ("test.orders", "shop.orders")
        assert other.count_documents({}) == 0
        assert isinstance(one, mongomock.Collection)
        guarded = GuardedCollection(other, HighWaterMark())
        for _ in range(2):
            guarded.update_one(FIRST, {"_id": "o-1"}, {"$inc": {"n": 1}}, upsert=True)
        assert guarded.find_one({"_id": "o-1"}) == {"_id": "o-1", "n": 1}


def test_every_way_to_another_collection_shares_the_lock() -> None:
    with mongomock_collection("c") as collection:
        database = collection.database
        same = collection.with_options(read_concern=ReadConcern("majority"), read_preference=ReadPreference.PRIMARY)
        for other in (database["c"], database.c, database.get_collection("c"), same, collection.x.c, collection["x"]["c"]):
            assert type(other) is type(collection)
            assert other.database is database
        assert same.full_name == "test.c"
        assert same.write_concern == collection.write_concern


@pytest.mark.usefixtures("nervous_threads")
def test_a_collection_counts_right_under_threads() -> None:
    with mongomock_collection() as plain:
        things = plain.with_options(write_concern=WriteConcern("majority"))
        things.insert_one({"_id": 1, "n": 0})

        def work() -> list[int]:
            seen = [things.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}})["n"] for _ in range(50)]
            assert len(list(things.find())) == 1
            return seen

        assert sorted(n for part in in_threads(6, work) for n in part) == list(range(300))
        assert things.find_one({"_id": 1}) == {"_id": 1, "n": 300}


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda things: things.update_one({"_id": 1}, [{"$set": {"a": {"$mergeObjects": ["$a", {}]}}}]), "mergeObjects"),
        (lambda things: things.update_one({"_id": 1}, {"$inc": {"n": 1}}, hint="_id_"), "hint"),
        (
            lambda things: things.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, hint="_id_"),
            "does not do what hint asks for",
        ),
        (lambda things: things.update_one({"_id": 1}, {"$bit": {"n": {"or": 1}}}), "ValueError"),
        (lambda things: things.bulk_write([UpdateOne({"_id": 1}, {"$inc": {"n": 1}}, hint="_id_")]), "hint"),
        (lambda things: things.find_one({}, {"a": {"$slice": 1}}), "slice"),
        (lambda things: list(things.find({}, {"_id": 0, "a": {"$slice": 1}})), "slice"),
        (lambda things: list(things.aggregate([{"$group": {"_id": None, "m": {"$sum": {"$add": ["$a", 1]}}}}])), "group"),
    ],
    ids=[
        "an expression that mongomock does not know",
        "a hint",
        "a hint that would be ignored",
        "an unknown operator",
        "a hint in a bulk write",
        "a $slice alone",
        "a $slice alone of several",
        "a stage at which mongomock fails",
    ],
)
def test_what_mongomock_gets_wrong_beyond_mending_is_refused_with_the_way_out(
    ask: Callable[[Any], object], text: str
) -> None:
    with mongomock_collection() as things:
        things.insert_one({"_id": 1, "a": "x"})
        with pytest.raises(StandInLies, match=rf"{text}.*Run this test on mongod\(\)\."):
            ask(things)
        assert things.find_one() == {"_id": 1, "a": "x"}


def test_the_positional_operator_is_left_to_mongomock() -> None:
    with mongomock_collection() as things:
        things.insert_one({"_id": 1, "lines": [{"sku": "a", "n": 1}]})
        things.update_one({"_id": 1, "lines": {"$elemMatch": {"sku": "a"}}}, {"$inc": {"lines.$.n": 1}})
        assert things.find_one()["lines"] == [{"sku": "a", "n": 2}]


def test_a_unique_index_with_several_fields_is_named_whole() -> None:
    with mongomock_collection() as things:
        things.create_index([("a.x", 1), ("b", 1)], unique=True)
        things.insert_one({"_id": 1, "a": {"x": 1}, "b": 2})
        with pytest.raises(OperationFailure) as refused:
            things.insert_one({"_id": 2, "a": {"x": 1}, "b": 2})
        assert refused.value.details is not None
        assert refused.value.details["keyPattern"] == {"a.x": 1, "b": 1}


@pytest.mark.parametrize("document", [{"a": ["y", "x"]}, {"a": [{"x": 1}]}, {"a": []}], ids=str)
def test_an_array_in_a_unique_index_is_refused(document: dict[str, Any]) -> None:
    """MongoDB compares its members with those of other documents."""
    with mongomock_collection() as things:
        things.create_index("a", unique=True)
        things.insert_one({"_id": 1, "a": "x"})
        with pytest.raises(StandInLies, match="the unique index a_1"):
            things.insert_one({"_id": 2, **document})
        with pytest.raises(StandInLies, match="the unique index a_1"):
            things.update_one({"_id": 1}, {"$set": document})


def test_the_asynchronous_face_awaits_the_same_collection() -> None:
    async def run() -> None:
        with mongomock_collection("things", asynchronous=True) as plain:
            things = plain.with_options(write_concern=WriteConcern("majority"))
            await things.create_index("k", unique=True)
            await things.insert_one({"_id": 1, "k": 1, "n": 0})
            await asyncio.gather(*(things.update_one({"_id": 1}, {"$inc": {"n": 1}}) for _ in range(20)))
            assert await plain.find_one_and_update({"_id": 1}, {"$set": {"n": 0}}) == {"_id": 1, "k": 1, "n": 20}
            assert (await things.delete_one({"_id": 2})).deleted_count == 0
            assert await things.count_documents({}) == 1
            assert asyncio.iscoroutinefunction(things.update_one)
            assert things.name == "things"
            await things.insert_many([{"_id": n, "k": n} for n in (3, 2)])
            assert [found["_id"] async for found in things.find({"k": {"$gt": 1}}).sort("k", 1)] == [2, 3]
            assert await things.find().sort("k", -1).to_list(1) == [{"_id": 3, "k": 3}]
            grouped = await things.aggregate([{"$match": {"k": {"$gt": 1}}}, {"$count": "n"}])
            assert await grouped.to_list() == [{"n": 2}]
            with pytest.raises(AttributeError):
                things.find().nonsense()
            await AsyncGuardedCollection(things, HighWaterMark()).update_one(FIRST, {"_id": 2}, {"$inc": {"n": 1}})
            assert (await things.delete_many({})).deleted_count == 3
            assert await things.find_one({}) is None

    asyncio.run(run())


def test_the_asynchronous_face_leads_to_asynchronous_collections_only() -> None:
    async def run() -> None:
        with mongomock_collection("things", asynchronous=True) as things:
            database = things.database
            assert database.name == "test"
            for other in (database["c"], database.c, database.get_collection("c"), things.c, things["c"]):
                assert type(other) is type(things)
                await other.insert_one({})
            assert sorted(await database.list_collection_names()) == ["c", "things.c"]
            assert database.codec_options is not None

    asyncio.run(run())
