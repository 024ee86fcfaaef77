"""The stand-ins as users hold them: how they are made, what they keep apart, and that they are atomic."""

from __future__ import annotations

import asyncio
import builtins
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import moto
import pytest
from pymongo import WriteConcern

from onewrite import ConfigurationError, Message, OnewriteError, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.testing import UnsupportedByStandIn, dynamodb_stream_event, explore, mongod, mongomock_collection, moto_table

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


@pytest.mark.parametrize(
    ("use", "module", "extra"),
    [
        (lambda: moto_table().__enter__(), "moto", "testing"),
        (lambda: mongomock_collection().__enter__(), "onewrite.testing.standins.collection", "testing,mongodb"),
        (mongod, "pymongo", "mongodb"),
        (lambda: dynamodb_stream_event((None, {"orderId": "o-1"})), "onewrite.dynamodb.values", "dynamodb"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
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


def test_refusal_is_an_onewrite_error_and_a_not_implemented_error() -> None:
    assert issubclass(UnsupportedByStandIn, OnewriteError)
    assert issubclass(UnsupportedByStandIn, NotImplementedError)


# ---------------------------------------------------------------- moto_table


def test_clock_skew_is_not_reported_for_a_table(caplog: pytest.LogCaptureFixture) -> None:
    with moto_table("orders", key="orderId") as table:
        orders = GuardedTable(table, SeenIds(), clock=lambda: 1_700_000_000.0)
        orders.remember(FIRST, Key={"orderId": "o-1"})
    assert caplog.messages == []


@pytest.mark.parametrize(
    "index", [{"IndexName": "by-day"}, {"KeySchema": [{"KeyType": "HASH"}]}, {"KeySchema": None}, "by-day"]
)
def test_index_without_key_attributes_is_refused(index: Any) -> None:
    with (
        pytest.raises(ConfigurationError, match="needs a KeySchema such as"),
        moto_table("lines", "order", GlobalSecondaryIndexes=[index]),
    ):
        pass


def test_native_arguments_take_precedence() -> None:
    schema = [{"AttributeName": "pk", "KeyType": "HASH"}]
    throughput = {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}
    with moto_table(TableName="native", KeySchema=schema, ProvisionedThroughput=throughput) as table:
        assert table.attribute_definitions == [{"AttributeName": "pk", "AttributeType": "S"}]
        assert table.provisioned_throughput["ReadCapacityUnits"] == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"key": ("order", "line")}, r"key=\('order', 'line'\): expected a string, such as \"orderId\".*sort_key="),
        ({"key": ""}, "key='': expected a string"),
        ({"sort_key": ["line"]}, r"sort_key=\['line'\]: expected a string"),
        ({"name": 5}, "name=5: expected a string"),
        ({"types": {"name": "S"}}, "has no key attribute name"),
    ],
)
def test_invalid_key_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        moto_table(**arguments)


@pytest.mark.parametrize("arguments", [{"name": ""}, {"database": None}])
def test_collection_without_a_valid_name_or_database_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected a string, such as"):
        mongomock_collection(**arguments)


def test_table_uses_an_active_moto_mock() -> None:
    with moto.mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-1")
        with moto_table("theirs"):
            assert client.list_tables()["TableNames"] == ["theirs"]
        assert client.list_tables()["TableNames"] == []
        client.close()


def test_closed_table_refuses_requests() -> None:
    with moto_table() as table:
        pass
    with pytest.raises(ConfigurationError, match="closed"):
        table.get_item(Key={"orderId": "o-1"})


def list_tables() -> list[str]:
    client = boto3.client("dynamodb", region_name="eu-west-1")
    names = client.list_tables()["TableNames"]
    client.close()
    return names


def test_table_without_a_block_exists_as_long_as_its_client() -> None:
    client = moto_table().meta.client
    assert client.list_tables()["TableNames"] == ["orders"]
    del client
    with moto.mock_aws():
        assert list_tables() == []


def test_closing_a_replaced_table_keeps_the_newer_one() -> None:
    first = moto_table()
    with moto_table():
        first.close_stand_in()
        assert list_tables() == ["orders"]


def test_exploration_closes_the_tables_of_its_world() -> None:
    def build(table: Any) -> Any:
        return lambda message: table.put_item(Item={"orderId": message})

    exploration = explore(build, ["o-1"], moto_table, lambda table: table.scan()["Items"])
    with moto.mock_aws():
        assert list_tables() == []
    exploration.assert_effectively_once()


def test_the_callers_account_and_endpoint_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "real")
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://localhost:1")
    before = dict(os.environ)
    with moto_table() as table:
        table.put_item(Item={"orderId": "o-1"})
        assert boto3.resource("dynamodb").Table("orders").scan()["Count"] == 1
        assert os.environ["AWS_ACCESS_KEY_ID"] != "real"
    assert dict(os.environ) == before


def test_table_uses_a_default_region_if_none_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    with moto_table() as table:
        assert table.table_arn.split(":")[3] == "ap-south-1"
    monkeypatch.delenv("AWS_REGION")
    with moto_table() as table:
        assert table.table_arn.split(":")[3] == "eu-west-1"


@pytest.mark.usefixtures("nervous_threads")
def test_conditional_write_race_has_one_winner() -> None:
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


# ---------------------------------------------------------------- mongomock_collection


def test_each_collection_has_its_own_server() -> None:
    with mongomock_collection() as one, mongomock_collection("orders", database="shop") as other:
        one.insert_one({"_id": 1})
        assert (one.full_name, other.full_name) == ("test.orders", "shop.orders")
        assert other.count_documents({}) == 0


@pytest.mark.usefixtures("nervous_threads")
def test_concurrent_increments_are_counted_exactly() -> None:
    with mongomock_collection() as plain:
        things = plain.with_options(write_concern=WriteConcern("majority"))
        things.insert_one({"_id": 1, "n": 0})

        def work() -> list[int]:
            seen = [things.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}})["n"] for _ in range(50)]
            assert len(list(things.find())) == 1
            return seen

        assert sorted(n for part in in_threads(6, work) for n in part) == list(range(300))
        assert things.find_one({"_id": 1}) == {"_id": 1, "n": 300}


def test_async_stand_in_uses_the_same_collection() -> None:
    async def run() -> None:
        with mongomock_collection("things", asynchronous=True) as plain:
            things = plain.with_options(write_concern=WriteConcern("majority"))
            await things.create_index("k", unique=True)
            await things.insert_one({"_id": 1, "k": 1, "n": 0})
            await asyncio.gather(*(things.update_one({"_id": 1}, {"$inc": {"n": 1}}) for _ in range(20)))
            assert await plain.find_one({"_id": 1}) == {"_id": 1, "k": 1, "n": 20}
            await things.insert_many([{"_id": n, "k": n} for n in (3, 2)])
            assert [found["_id"] async for found in things.find({"k": {"$gt": 1}}).sort("k", 1)] == [2, 3]
            assert await things.find().sort("k", -1).to_list(1) == [{"_id": 3, "k": 3}]
            grouped = await things.aggregate([{"$match": {"k": {"$gt": 1}}}, {"$count": "n"}])
            assert await grouped.to_list() == [{"n": 2}]

    asyncio.run(run())
