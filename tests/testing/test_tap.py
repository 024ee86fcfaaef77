"""A tapped store looks like the store, and every request of it passes the gate."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import boto3
import bson
import mongomock
import pymongo
import pytest
from boto3.dynamodb.conditions import Key as KeyIs
from boto3.dynamodb.types import Binary
from pymongo import (
    DeleteOne,
    InsertOne,
    MongoClient,
    ReplaceOne,
    ReturnDocument,
    UpdateMany,
    UpdateOne,
    WriteConcern,
)
from pymongo.errors import DuplicateKeyError, InvalidOperation
from pymongo.results import UpdateResult

from onewrite import ConfigurationError, HighWaterMark, InSequence, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing.standins.stores import mongomock_collection, moto_tables
from onewrite.testing.taps import aws
from onewrite.testing.taps import mongodb_methods as methods
from onewrite.testing.taps.tap import send, tap
from onewrite.testing.taps.traffic import Request, describe

LEDGERS = [SeenIds(), SeenIds(retention=None), HighWaterMark(), InSequence()]
MESSAGE = Message("m-1", source="s", sequence=1)
SECOND = Message("m-2", source="s", sequence=2)


class Watch:
    """A gate that notes each request, and what came of it in words."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.seen: list[Request] = []
        self.words: list[str] = []

    @property
    def last(self) -> Request:
        return self.seen[-1]

    def __call__(self, request: Request) -> Any:
        self.seen.append(request)
        try:
            answer = send(self.raw, request)
        except Exception as error:
            self.words.append(describe(request, error))
            raise
        self.words.append(describe(request, answer))
        return answer


def watched(raw: Any) -> tuple[Any, Watch]:
    watch = Watch(raw)
    return tap(raw, watch), watch


def awatched(raw: Any) -> tuple[Any, list[Request]]:
    seen: list[Request] = []

    async def gate(request: Request) -> Any:
        seen.append(request)
        return await send(raw, request)

    return tap(raw, gate), seen


@pytest.fixture
def table() -> Iterator[Any]:
    with moto_tables() as make:
        yield make("customers", "id")


@pytest.fixture
def collection() -> Any:
    return mongomock_collection("customers")


def request(method: str = "GetItem", *, keys: Any = None, writes: bool = False, tables: Any = ("t",)) -> Request:
    return Request("store", method, {}, keys, writes, tables)


# ---------------------------------------------------------------- DynamoDB


def test_a_tables_request_is_seen_in_plain_values_and_answered_in_plain_values(table: Any) -> None:
    tapped, watch = watched(table)
    tapped.put_item(Item={"id": "c1", "orders": 3})
    assert tapped.get_item(Key={"id": "c1"})["Item"] == {"id": "c1", "orders": Decimal(3)}
    assert watch.last.arguments == {"TableName": "customers", "Key": {"id": "c1"}}
    assert [str(seen) for seen in watch.seen] == ["PutItem customers c1", "GetItem customers c1"]
    assert watch.words == ["applied", "read"]


def test_a_clients_request_is_seen_in_typed_values_and_has_the_same_key(table: Any) -> None:
    plain, watch_of_table = watched(table)
    plain.update_item(Key={"id": "c1"}, UpdateExpression="ADD n :n", ExpressionAttributeValues={":n": 1})
    typed = boto3.client("dynamodb", region_name="eu-west-1")
    tapped, watch = watched(typed)
    assert tapped.get_item(TableName="customers", Key={"id": {"S": "c1"}})["Item"]["n"] == {"N": "1"}
    assert watch.last.store == "dynamodb"
    assert watch.last.keys == watch_of_table.last.keys == (("customers", "c1"),)
    typed.close()


def test_whatever_a_table_offers_passes_the_gate(table: Any) -> None:
    tapped, watch = watched(table)
    with tapped.batch_writer() as batch:
        batch.put_item(Item={"id": "c1"})
        batch.delete_item(Key={"id": "c2"})
    tapped.query(KeyConditionExpression=KeyIs("id").eq("c1"))
    tapped.meta.client.get_item(TableName="customers", Key={"id": "c1"})
    pages = list(tapped.meta.client.get_paginator("scan").paginate(TableName="customers"))
    assert [seen.method for seen in watch.seen] == ["BatchWriteItem", "Query", "GetItem", "Scan"]
    assert watch.seen[0].keys == (("customers", "c1"), ("customers", "c2"))
    assert [seen.keys for seen in watch.seen[1:]] == [None, (("customers", "c1"),), None]
    assert [seen.writes for seen in watch.seen] == [True, False, False, False]
    assert pages[0]["Items"] == [{"id": "c1"}]


def test_a_transaction_touches_all_its_keys(table: Any) -> None:
    tapped, watch = watched(table)
    put = {"Put": {"TableName": "customers", "Item": {"id": "c1", "n": 1}}}
    update = {"Update": {"TableName": "customers", "Key": {"id": "c2"}, "UpdateExpression": "SET n = :n"}}
    update["Update"]["ExpressionAttributeValues"] = {":n": 1}
    tapped.meta.client.transact_write_items(TransactItems=[put, update])
    assert watch.last.keys == (("customers", "c1"), ("customers", "c2"))
    assert str(watch.last) == "TransactWriteItems customers c1 c2"


def test_a_table_that_is_not_there_raises_what_it_would_raise(table: Any) -> None:
    tapped, watch = watched(table)
    client = tapped.meta.client
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.put_item(TableName="nowhere", Item={"id": "c1"})
    assert watch.words == ["error ResourceNotFoundException"]


@pytest.mark.parametrize(
    ("typed", "plain"), [({"S": "c1"}, "c1"), ({"N": "1.0"}, Decimal(1)), ({"B": bytearray(b"c1")}, Binary(b"c1"))]
)
def test_typed_and_plain_keys_are_the_same_key(typed: Any, plain: Any) -> None:
    found = [aws.request_of("t", "GetItem", {"TableName": "t", "Key": {"id": value}}, {}).keys for value in (typed, plain)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert hash(found[0]) == hash(found[1])


@pytest.mark.parametrize(
    ("method", "arguments", "keys", "tables"),
    [
        ("GetItem", {"TableName": "t", "Key": {"sk": 1, "pk": "a"}}, (("t", ("a", 1)),), ("t",)),
        ("GetItem", {"TableName": "arn:aws:dynamodb:eu-west-1:1:table/t", "Key": {"pk": "a"}}, (("t", "a"),), ("t",)),
        ("PutItem", {"TableName": "t", "Item": {"pk": "a", "n": 1}}, (("t", "a"),), ("t",)),
        ("PutItem", {"TableName": "other", "Item": {"pk": "a"}}, None, ("other",)),
        ("PutItem", {"TableName": "t", "Item": {"n": 1}}, None, ("t",)),
        ("GetItem", {"TableName": "t", "Key": {"pk": {"N": "one"}}}, None, ("t",)),
        ("BatchGetItem", {"RequestItems": {"t": {"Keys": [{"pk": "a"}]}}}, (("t", "a"),), ("t",)),
        ("Scan", {"TableName": "t"}, None, ("t",)),
    ],
)
def test_a_call_names_its_tables_and_keys_where_they_are_known(method: str, arguments: Any, keys: Any, tables: Any) -> None:
    found = aws.request_of("store", method, arguments, {"t": ("pk",)})
    assert (found.keys, found.tables) == (keys, tables)


@pytest.mark.parametrize(
    ("method", "arguments", "writes"),
    [
        ("GetItem", {}, False),
        ("UpdateItem", {}, True),
        ("ExecuteStatement", {"Statement": " select * from t"}, False),
        ("ExecuteStatement", {"Statement": "DELETE FROM t WHERE id = 1"}, True),
        ("ExecuteTransaction", {}, True),
    ],
)
def test_a_call_is_known_to_write_or_only_to_read(method: str, arguments: Any, writes: bool) -> None:
    assert aws.request_of("store", method, arguments, {}).writes is writes


@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_guarded_table_works_behind_a_tap_and_reads_as_guarded(table: Any, ledger: Any) -> None:
    tapped, watch = watched(table)
    orders = GuardedTable(tapped, ledger)
    for _ in range(2):
        orders.update_item(MESSAGE, Key={"id": "c1"}, UpdateExpression="ADD n :n", ExpressionAttributeValues={":n": 1})
    orders.put_item(MESSAGE, Item={"id": "c2"})
    assert watch.words == ["guarded, applied", "guarded, refused", "guarded, applied"]
    assert orders.get_item(Key={"id": "c1"}) == {"id": "c1", "n": 1}


# ---------------------------------------------------------------- MongoDB


def test_a_collections_request_has_pymongos_names_however_it_was_written(collection: Any) -> None:
    tapped, watch = watched(collection)
    tapped.update_one({"_id": "c1"}, {"$inc": {"n": 1}}, True)
    assert watch.last.arguments == {"filter": {"_id": "c1"}, "update": {"$inc": {"n": 1}}, "upsert": True}
    assert watch.last.keys == (("customers", "c1"),)
    assert str(watch.last) == "update_one customers c1"
    assert tapped.find_one({"_id": "c1"}) == {"_id": "c1", "n": 1}
    assert watch.words == ["applied", "read"]


@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_guarded_collection_works_behind_a_tap_and_reads_as_guarded(collection: Any, ledger: Any) -> None:
    tapped, watch = watched(collection)
    stock = GuardedCollection(tapped, ledger)
    for _ in range(2):
        stock.update_one(MESSAGE, {"_id": "c1"}, {"$inc": {"n": 1}}, upsert=True)
    stock.update_one(SECOND, {"_id": "c1"}, [{"$set": {"paid": True}}])
    assert watch.words[:2] == ["guarded, applied", "guarded, refused"]
    assert watch.words[-1] == "guarded, applied"
    assert watch.seen[0].options["write_concern"] == WriteConcern("majority", j=True)


def test_a_handwritten_guard_reads_as_guarded_and_a_business_condition_does_not(collection: Any) -> None:
    tapped, watch = watched(collection)
    tapped.update_one({"_id": 1, "seen": {"$ne": "m"}}, {"$push": {"seen": "m"}}, upsert=True)
    tapped.update_one({"_id": 1, "state": "new"}, {"$set": {"state": "paid"}})
    tapped.update_one({"_id": 1, "n": {"$ne": 3}}, {"$set": {"n": 4}})
    assert watch.words == ["guarded, applied", "refused", "applied"]


def test_a_proxy_passes_for_the_collection(collection: Any) -> None:
    tapped, _ = watched(collection)
    assert isinstance(tapped, mongomock.Collection)
    assert isinstance(tapped.database, mongomock.Database)
    assert tapped == collection
    assert tapped != tap(collection.archive, print)
    with MongoClient[Any](connect=False) as client:
        assert isinstance(tap(client.shop.stock, print), pymongo.collection.Collection)


def test_collections_reached_from_a_tapped_one_are_tapped(collection: Any) -> None:
    tapped, watch = watched(collection)
    tapped.archive.insert_one({"_id": 1})
    tapped["archive"].insert_one({"_id": 2})
    tapped.database["other"].insert_one({"_id": 1})
    tapped.database.other.insert_one({"_id": 2})
    tapped.database.get_collection("other", write_concern=WriteConcern(1)).insert_one({"_id": 3})
    tapped.with_options(write_concern=WriteConcern(1)).insert_one({"_id": 4})
    assert [seen.tables for seen in watch.seen] == [("customers.archive",)] * 2 + [("other",)] * 3 + [("customers",)]
    assert [seen.options for seen in watch.seen[-2:]] == [{"write_concern": WriteConcern(1)}] * 2


def test_a_cursor_is_one_request_at_its_first_iteration_with_its_options(collection: Any) -> None:
    collection.insert_many([{"_id": number} for number in range(5)])
    tapped, watch = watched(collection)
    cursor = tapped.find({}).sort("_id", -1).skip(1).limit(3)
    assert watch.seen == []
    assert [document["_id"] for document in cursor] == [3, 2, 1]
    assert len(watch.seen) == 1
    with pytest.raises(InvalidOperation):
        cursor.sort("_id", 1)
    assert next(cursor.clone()) == cursor.rewind().next() == {"_id": 3}
    assert [document["_id"] for document in tapped.find({})[1:3]] == [1, 2]
    with tapped.find({}) as found:
        assert len(found.to_list(2)) == 2


def test_an_aggregation_is_sent_where_it_is_called(collection: Any) -> None:
    collection.insert_one({"_id": 1, "n": 2})
    tapped, watch = watched(collection)
    found = tapped.aggregate([{"$match": {"n": 2}}])
    assert [str(seen) for seen in watch.seen] == ["aggregate customers"]
    assert list(found) == [{"_id": 1, "n": 2}]


@pytest.mark.parametrize(
    ("method", "arguments", "keys"),
    [
        ("find_one", {"filter": {"_id": "a", "n": {"$gt": 1}}}, (("c", "a"),)),
        ("find_one", {"filter": {"_id": {"$eq": "a"}}}, (("c", "a"),)),
        ("find", {"filter": {"_id": 1.0}}, (("c", 1),)),
        ("find_one", {"filter": {"_id": {"$in": ["a"]}}}, None),
        ("find_one", {"filter": {"_id": re.compile("a")}}, None),
        ("find_one", {"filter": {"_id": "a"}, "collation": {"locale": "en"}}, None),
        ("find_one", {}, None),
        ("insert_one", {"document": {"_id": "a"}}, (("c", "a"),)),
        ("insert_one", {"document": {"n": 1}}, None),
        ("insert_many", {"documents": [{"_id": "a"}, {"_id": "b"}]}, (("c", "a"), ("c", "b"))),
        ("insert_many", {"documents": [{"_id": "a"}, {}]}, None),
        ("update_many", {"filter": {"n": 1}}, None),
        ("update_one", {"filter": {"$and": [{"_id": "a"}, {"_id": {"$exists": False}}]}}, ()),
        ("update_one", {"filter": {"_id": {"$exists": False}}}, ()),
        ("update_one", {"filter": {"_id": {"$exists": False}}, "upsert": True}, None),
        ("bulk_write", {"requests": [InsertOne({"_id": 1}), DeleteOne({"_id": 2})]}, (("c", 1), ("c", 2))),
        ("bulk_write", {"requests": [UpdateOne({"_id": 1}, {}, upsert=True), ReplaceOne({"_id": 1}, {})]}, (("c", 1),)),
        ("bulk_write", {"requests": [InsertOne({"_id": 1}), UpdateMany({"n": 1}, {})]}, None),
        ("bulk_write", {"requests": [DeleteOne({"_id": 1}, collation={"locale": "en"})]}, None),
    ],
)
def test_an_id_that_must_be_equal_is_the_key(method: str, arguments: Any, keys: Any) -> None:
    assert methods.request_of("c", "c", method, arguments, {}).keys == keys


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, bson.Decimal128("1")),
        ({"a": 1, "b": [2]}, {"b": (2.0,), "a": 1}),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, microsecond=900)),  # noqa: DTZ001  # pymongo takes it for UTC
    ],
)
def test_ids_that_are_one_id_to_the_server_are_one_key(one: Any, other: Any) -> None:
    found = [
        methods.request_of("c", "c", "find_one", {"filter": {"_id": {"$eq": value}}}, {}).keys for value in (one, other)
    ]
    assert found[0] == found[1]
    assert found[0] is not None


@pytest.mark.parametrize(
    ("stages", "tables", "writes"),
    [
        ([{"$match": {}}], ("c",), False),
        ([{"$lookup": {"from": "d", "pipeline": [{"$unionWith": "e"}]}}], ("c", "d", "e"), False),
        ([{"$out": "d"}], ("c", "d"), True),
        ([{"$merge": {"into": {"db": "x", "coll": "d"}}}], ("c", "d"), True),
    ],
)
def test_a_pipeline_touches_the_collections_that_it_names(stages: Any, tables: Any, writes: bool) -> None:
    found = methods.request_of("c", "c", "aggregate", {"pipeline": stages}, {})
    assert (found.tables, found.writes, found.keys) == (tables, writes, None)


def test_documents_that_can_be_read_but_once_are_all_inserted(collection: Any) -> None:
    tapped, watch = watched(collection)
    tapped.insert_many({"_id": number} for number in range(4))
    assert collection.count_documents({}) == 4
    assert str(watch.last) == "insert_many customers (4 keys)"


def test_an_asynchronous_collection_awaits_its_gate() -> None:
    async def main() -> list[Request]:
        raw = mongomock_collection("customers", asynchronous=True)
        tapped, seen = awatched(raw)
        await AsyncGuardedCollection(tapped, SeenIds()).update_one(MESSAGE, {"_id": 1}, {"$inc": {"n": 1}}, upsert=True)
        await tapped.insert_many([{"_id": 2}, {"_id": 3}])
        assert [document["_id"] async for document in tapped.find({}).sort("_id", 1)] == [1, 2, 3]
        assert await (await tapped.aggregate([{"$match": {"_id": 1}}])).to_list(1) != []
        async with tapped.find({}) as cursor:
            assert (await cursor.next())["_id"] == 1
        await tapped.database["other"].insert_one({"_id": 1})
        return seen

    seen = asyncio.run(main())
    assert [each.method for each in seen] == ["update_one", "insert_many", "find", "aggregate", "find", "insert_one"]


# ---------------------------------------------------------------- any store


def test_what_is_no_store_is_refused_by_name(table: Any, collection: Any) -> None:
    sqs = boto3.client("sqs", region_name="eu-west-1")
    guarded = GuardedTable(table, SeenIds())
    for wrong in (sqs, guarded, None, "orders", collection.database, GuardedCollection(collection, SeenIds())):
        with pytest.raises(ConfigurationError, match="give a"):
            tap(wrong, print)


# ---------------------------------------------------------------- describe


class Answer:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


@pytest.mark.parametrize(
    ("method", "arguments", "answer", "words"),
    [
        ("update_one", {}, UpdateResult({"n": 1}, acknowledged=True), "applied"),
        ("update_one", {}, UpdateResult({"n": 0}, acknowledged=True), "refused"),
        ("update_one", {}, UpdateResult({}, acknowledged=False), "sent"),
        ("delete_one", {}, Answer(deleted_count=0), "refused"),
        ("find_one_and_update", {}, None, "refused"),
        ("find_one_and_update", {"upsert": True, "return_document": ReturnDocument.BEFORE}, None, "applied"),
        ("insert_one", {}, DuplicateKeyError("E11000"), "refused"),
        ("insert_one", {}, ConnectionError("no"), "error ConnectionError"),
    ],
)
def test_what_came_of_a_write_in_words(method: str, arguments: Any, answer: Any, words: str) -> None:
    assert describe(Request("s", method, arguments, None, writes=True), answer) == words


def test_a_cancelled_transaction_was_refused_if_one_of_its_conditions_was(table: Any) -> None:
    tapped, watch = watched(table)
    check = {"TableName": "customers", "Key": {"id": "c1"}, "ConditionExpression": "attribute_exists(id)"}
    with pytest.raises(tapped.meta.client.exceptions.TransactionCanceledException):
        tapped.meta.client.transact_write_items(TransactItems=[{"ConditionCheck": check}])
    assert watch.words == ["refused"]


def test_a_read_that_finds_nothing_says_so(table: Any) -> None:
    tapped, watch = watched(table)
    tapped.get_item(Key={"id": "c1"})
    assert watch.words == ["read, nothing there"]


@pytest.mark.parametrize(
    ("filter_", "update"),
    [
        ({"_id": 1}, {"$push": {"seen": "m"}}),
        ({"_id": 1, "a": {"$ne": 1}}, [{"$set": {"a": {"$concatArrays": ["$a", {"$literal": []}]}}}]),
        ({"_id": 1, "a": {"$ne": 1}}, [{"$set": {"a": {"$add": [1, 2]}}}]),
    ],
)
def test_an_update_whose_filter_lets_its_own_mark_in_is_not_guarded(filter_: Any, update: Any) -> None:
    odd = Request("s", "update_one", {"filter": filter_, "update": update}, None, writes=True)
    assert describe(odd, UpdateResult({"n": 1}, acknowledged=True)) == "applied"


def test_a_request_reads_in_words() -> None:
    assert str(Request("s", "GetItem", {}, (("t", ("a", 1)),), writes=False, tables=("t",))) == "GetItem t a/1"
