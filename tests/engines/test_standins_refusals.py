"""The engine responds to each request that a stand-in refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError
from pymongo import DeleteMany, InsertOne, MongoClient, UpdateOne
from pymongo.errors import PyMongoError

from onewrite.testing import UnsupportedByStandIn, mongomock_collection, moto_table
from onewrite.testing.servers.engines import Dynoxide

pytestmark = pytest.mark.measured

S = {"S": "x"}
KEY = {"id": {"S": "a"}}
ONE: dict[str, Any] = {"TableName": "things", "Key": KEY}
INVALID = "ValidationException"


class Refusal(NamedTuple):
    """What a test asks a store, the answer that the engine documents, and part of the words with which the stand-in refuses."""

    ask: Callable[[Any], Any]
    answer: Any
    words: str


def puts(count: int) -> list[Any]:
    return [{"PutRequest": {"Item": {"id": {"S": f"n{number}"}}}} for number in range(count)]


def repeated_token(client: Any) -> Any:
    for values in ({"n": {"N": "1"}}, {"n": {"N": "2"}}):
        put = {"Put": {"TableName": "things", "Item": {**KEY, **values}}}
        client.transact_write_items(TransactItems=[put], ClientRequestToken="a token of two")


def updated(client: Any, **arguments: Any) -> Any:
    client.update_item(**ONE, **arguments)
    return client.get_item(**ONE)["Item"]


DYNAMODB = {
    "PartiQL": Refusal(
        lambda client: client.execute_statement(Statement="UPDATE things SET n=2 WHERE id='a' AND n=7"),
        "ConditionalCheckFailedException",
        "a failed condition in PartiQL",
    ),
    "AttributesToGet": Refusal(
        lambda client: client.get_item(**ONE, AttributesToGet=["n"])["Item"], {"n": {"N": "1"}}, "ignores AttributesToGet"
    ),
    "AttributeUpdates": Refusal(
        lambda client: updated(client, AttributeUpdates={"b": {"Action": "PUT", "Value": {"BOOL": True}}})["b"],
        {"BOOL": True},
        "AttributeUpdates with other types",
    ),
    "a projection in a transaction": Refusal(
        lambda client: client.transact_get_items(TransactItems=[{"Get": {**ONE, "ProjectionExpression": "id, n"}}])[
            "Responses"
        ],
        [{"Item": {**KEY, "n": {"N": "1"}}}],
        "ProjectionExpression in a transaction",
    ),
    "UPDATED_NEW": Refusal(
        lambda client: client.update_item(**ONE, UpdateExpression="SET n = n", ReturnValues="UPDATED_NEW")["Attributes"],
        {"n": {"N": "1"}},
        "for UPDATED_NEW and UPDATED_OLD",
    ),
    "26 writes": Refusal(
        lambda client: client.batch_write_item(RequestItems={"things": puts(26)}), INVALID, "more than 25 writes in a batch"
    ),
    "a long expression": Refusal(
        lambda client: client.update_item(**ONE, UpdateExpression="REMOVE " + ",".join(f"a{n:04}" for n in range(700))),
        INVALID,
        "an expression of more than 4096 bytes",
    ),
    "a key of another type": Refusal(
        lambda client: client.get_item(TableName="things", Key={"id": {"N": "1"}}), INVALID, "accepts the key id="
    ),
    "an empty key": Refusal(
        lambda client: client.update_item(TableName="things", Key={"id": {"S": ""}}, UpdateExpression="REMOVE n"),
        INVALID,
        "accepts the key id=",
    ),
    "a token for two transactions": Refusal(
        repeated_token, "IdempotentParameterMismatchException", "doesn't support IdempotentParameterMismatchException"
    ),
    "many changes": Refusal(
        lambda client: len(updated(client, UpdateExpression=f"SET {','.join(f'a{n} = n' for n in range(300))}")),
        303,
        "fails at this request .* which DynamoDB supports",
    ),
}


def answer_of(ask: Callable[[Any], Any], store: Any) -> Any:
    try:
        return ask(store)
    except ClientError as error:
        return error.response.get("Error", {}).get("Code")
    except PyMongoError as error:
        return getattr(error, "code", None)
    except UnsupportedByStandIn:
        raise
    except Exception as error:  # a library may fail in any way
        return type(error)


def with_item(client: Any) -> Any:
    """A client with one item in the table `things`."""
    client.put_item(TableName="things", Item={**KEY, "n": {"N": "1"}, "t": S})
    return client


@pytest.mark.parametrize("case", DYNAMODB.values(), ids=DYNAMODB)
def test_dynamodb_response_to_unsupported_request_is_as_documented(case: Refusal, dynoxide: Dynoxide) -> None:
    dynoxide.table("things", "id")
    assert answer_of(case.ask, with_item(dynoxide.client())) == case.answer


@pytest.mark.parametrize("case", DYNAMODB.values(), ids=DYNAMODB)
def test_dynamodb_stand_in_refuses_unsupported_request(case: Refusal) -> None:
    with moto_table("things", "id"):
        stand_in = with_item(boto3.client("dynamodb"))
        with pytest.raises(UnsupportedByStandIn, match=rf"^moto .*{case.words}.*\. Run this test on dynoxide\(\)\.$"):
            case.ask(stand_in)


# ---------------------------------------------------------------- MongoDB


def changed(things: Any, update: Any, **query: Any) -> Any:
    things.update_one({"_id": 1, **query}, update)
    return things.find_one({"_id": 1})


def upserted(things: Any, query: dict[str, Any]) -> Any:
    return things.update_one(query, {"$set": {"t": 1}}, upsert=True).upserted_id


def written(things: Any, requests: list[Any], **options: Any) -> Any:
    things.bulk_write(requests, **options)
    return list(things.find({}, {"_id": 1}))


MONGODB = {
    "$mod": Refusal(lambda things: things.count_documents({"n": {"$mod": [2, 1]}}), 1, r"\$mod, \$mul, and \$bit"),
    "$mul": Refusal(lambda things: changed(things, {"$mul": {"n": 5}})["n"], 5, r"\$mod, \$mul, and \$bit"),
    "$bit": Refusal(lambda things: changed(things, {"$bit": {"n": {"or": 2}}})["n"], 3, r"\$mod, \$mul, and \$bit"),
    "$not of a list": Refusal(
        lambda things: things.count_documents({"$expr": {"$not": [{"$eq": ["$n", 7]}]}}),
        1,
        r"evaluates \$not of a list as false",
    ),
    "$$NOW": Refusal(lambda things: "at" in changed(things, [{"$set": {"at": "$$NOW"}}]), True, r"ignores \$\$NOW"),
    "a positional path": Refusal(
        lambda things: changed(things, {"$inc": {"a.$": 5}}, a={"$gt": 1})["a"], [1, 7, 3], "at a positional path"
    ),
    "$expr in an upsert": Refusal(
        lambda things: upserted(things, {"_id": 2, "$expr": {"$eq": ["$n", 7]}}),
        224,
        r"accepts \$expr in the filter of an upsert",
    ),
    "an _id in $and": Refusal(
        lambda things: upserted(things, {"$and": [{"_id": 2}]}),
        2,
        r"creates its own _id if \$and, \$or, or \$in contains it",
    ),
    "an _id in $in": Refusal(
        lambda things: upserted(things, {"_id": {"$in": [2]}}),
        2,
        r"creates its own _id if \$and, \$or, or \$in contains it",
    ),
    "$set of a part in a pipeline": Refusal(
        lambda things: changed(things, [{"$set": {"m": {"y": 2}}}])["m"],
        {"x": 1, "y": 2},
        r"replaces m, to which \$set adds",
    ),
    "$slice in a projection": Refusal(
        lambda things: things.find_one({"_id": 1}, {"a": {"$slice": 1}}).get("n"), 1, "for a projection with an expression"
    ),
    "an expression in a projection": Refusal(
        lambda things: things.find_one({"_id": 1}, {"x": "$n"}).get("x"), 1, "for a projection with an expression"
    ),
    "an expression in the projection of an update": Refusal(
        lambda things: things.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, {"x": "$n"}).get("x"),
        1,
        "for a projection with an expression",
    ),
    "an unordered bulk write": Refusal(
        lambda things: written(things, [DeleteMany({}), InsertOne({"_id": 2})], ordered=False), [], "ignores ordered=False"
    ),
    "a collation in a bulk write": Refusal(
        lambda things: written(things, [UpdateOne({}, {"$set": {"t": 1}}, collation={"locale": "en"})]),
        [{"_id": 1}],
        "ignores collation",
    ),
    "$max of another type": Refusal(lambda things: changed(things, {"$max": {"n": "x"}})["n"], "x", "fails at update_one"),
}


def with_document(things: Any) -> Any:
    things.drop()
    things.insert_one({"_id": 1, "a": [1, 2, 3], "m": {"x": 1}, "n": 1})
    return things


@pytest.mark.parametrize("case", MONGODB.values(), ids=MONGODB)
def test_mongodb_response_to_unsupported_call_is_as_documented(case: Refusal, mongo: MongoClient[dict[str, Any]]) -> None:
    assert answer_of(case.ask, with_document(mongo.test.refusals)) == case.answer


@pytest.mark.parametrize("case", MONGODB.values(), ids=MONGODB)
def test_mongodb_stand_in_refuses_unsupported_call(case: Refusal) -> None:
    with mongomock_collection() as things:
        before = with_document(things).find_one()
        with pytest.raises(UnsupportedByStandIn, match=rf"^mongomock.*{case.words}.*\. Run this test on mongod\(\)\.$"):
            case.ask(things)
        assert list(things.find()) == [before]
