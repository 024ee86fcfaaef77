"""The stand-ins answer as the engines do where they are mended: each case runs on both, where the engine at hand is itself right about it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.handlers import generate_idempotent_uuid
from pymongo import MongoClient, ReturnDocument
from pymongo.errors import DuplicateKeyError, WriteError

from onewrite.testing import mongomock_collection, moto_table
from onewrite.testing.servers.engines import Dynoxide

pytestmark = pytest.mark.measured

REFUSED = "ValidationException"
NOT_MET = "ConditionalCheckFailedException"
S = {"S": "x"}


class Case(NamedTuple):
    """An update of the item `a`, and what DynamoDB says: the item as it is then, or the code and part of the text."""

    expected: dict[str, Any] | tuple[str, str]
    update: str | None = None
    before: dict[str, Any] | None = None
    condition: str | None = None
    values: dict[str, Any] | None = None


def condition(text: str, *, met: bool, before: dict[str, Any] | None = None, **values: Any) -> Case:
    """Of an update that sets `done`."""
    given = {f":{name}": value for name, value in values.items()}
    expected: Any = {**(before or {}), "done": S} if met else (NOT_MET, "")
    return Case(expected, "SET done=:x", before or {}, text, {":x": S, **given})


PATH = (REFUSED, "document path provided in the update expression is invalid for update")
TYPE = (REFUSED, "incorrect data type")
SIZE = (REFUSED, "Item size to update has exceeded")
FULL = {"SS": [f"{n:04}{'x' * 196}" for n in range(2_015)]}

BOTH = {
    "a set that grows beyond 400 KB": Case(SIZE, "ADD v :v", {"v": FULL}, values={":v": {"SS": ["y" * 7_000]}}),
    "the condition comes before the size": Case(
        (NOT_MET, ""), "ADD v :v", {"v": FULL}, "attribute_exists(q)", {":v": {"SS": ["y" * 7_000]}}
    ),
    "a sum of 38 digits": Case(
        {"n": {"N": "1" * 29 + ".123456789"}}, "ADD n :n", {"n": {"N": "1" * 29}}, values={":n": {"N": "0.123456789"}}
    ),
    "a change before one that fails": Case(TYPE, "SET a=:s ADD t :n", {"t": S}, values={":s": S, ":n": {"N": "1"}}),
    "below a text": Case(PATH, "SET m.x=:v", {"m": S}, values={":v": S}),
    "a name in a list": Case(PATH, "SET l.x=:v", {"l": {"L": [S]}}, values={":v": S}),
    "the size of what is missing": condition("size(q) < :n", met=False, n={"N": "9"}),
    "the size of a number": condition("size(q) < :n", met=False, before={"q": {"N": "1"}}, n={"N": "9"}),
    "the size of a text": condition("size(q) = :n", met=True, before={"q": S}, n={"N": "1"}),
    "two that are missing": condition("q = w", met=False),
    "true and 1": condition("q = :n", met=False, before={"q": {"BOOL": True}}, n={"N": "1"}),
    "null and null": condition("q = :n", met=True, before={"q": {"NULL": True}}, n={"NULL": True}),
    "a text below a number": condition("q < :n", met=False, before={"q": S}, n={"N": "1"}),
    "a number below a number": condition("q < :n", met=True, before={"q": {"N": "1"}}, n={"N": "2"}),
    "a number between numbers": condition(
        "q BETWEEN :n AND :m", met=True, before={"q": {"N": "1"}}, n={"N": "1"}, m={"N": "2"}
    ),
    "a number among numbers": condition("q IN (:n, :m)", met=True, before={"q": {"N": "0"}}, n={"N": "1"}, m={"N": "0"}),
}


AFTER_AN_ENGINE = """
from onewrite.testing import moto_table
from onewrite.testing.servers.engines import dynamo_client

dynamo_client("http://127.0.0.1:9").close()
with moto_table() as table:
    table.put_item(Item={"orderId": "o"})
"""


def test_moto_table_works_after_a_client_of_an_engine() -> None:
    """Both have one session, which moto must see although it was imported later."""
    subprocess.run([sys.executable, "-c", AFTER_AN_ENGINE], check=True, timeout=60)


@pytest.fixture
def moto() -> Iterator[Any]:
    """A client of an empty table `things`."""
    with moto_table("things", "id"):
        client = boto3.client("dynamodb")
        yield client
        client.close()


@pytest.fixture(params=["moto", "dynoxide"])
def dynamodb(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "moto":
        yield request.getfixturevalue("moto")
    else:
        server: Dynoxide = request.getfixturevalue("dynoxide")
        server.table("things", "id")
        client = server.client()
        yield client
        client.close()


def update(client: Any, case: Case) -> Any:
    """What comes of a case: the item, or the error."""
    if case.before is not None:
        client.put_item(TableName="things", Item={"id": {"S": "a"}, **case.before})
    request = {
        "UpdateExpression": case.update,
        "ConditionExpression": case.condition,
        "ExpressionAttributeValues": case.values,
    }
    given = {name: value for name, value in request.items() if value}
    try:
        client.update_item(TableName="things", Key={"id": {"S": "a"}}, **given)
    except ClientError as error:
        response: Any = error.response
        return response["Error"]["Code"], response["Error"]["Message"]
    item = item_of(client)
    return (NOT_MET, "no item") if item is None else item


def item_of(client: Any) -> dict[str, Any] | None:
    item = client.get_item(TableName="things", Key={"id": {"S": "a"}}, ConsistentRead=True).get("Item")
    return None if item is None else {name: value for name, value in item.items() if name != "id"}


def check(client: Any, case: Case) -> None:
    found = update(client, case)
    if isinstance(case.expected, dict):
        assert found == case.expected
        return
    assert isinstance(found, tuple)
    assert found[0] == case.expected[0]
    assert case.expected[1] in found[1]
    assert item_of(client) == case.before  # a write that fails leaves nothing behind


@pytest.mark.parametrize("case", BOTH.values(), ids=BOTH)
def test_moto_response_equals_the_dynamodb_response(dynamodb: Any, case: Case) -> None:
    check(dynamodb, case)


def test_removal_from_a_missing_item_does_not_create_the_item(moto: Any) -> None:
    """As AWS documents it, and a public suite that runs on AWS expects; dynoxide is wrong about this."""
    check(moto, Case((NOT_MET, "no item"), "REMOVE v"))


def test_transaction_with_a_repeated_token_is_applied_once(dynamodb: Any) -> None:
    add = {"TableName": "things", "Key": {"id": {"S": "a"}}, "UpdateExpression": "ADD n :n"}
    once = [{"Update": {**add, "ExpressionAttributeValues": {":n": {"N": "1"}}}}]
    for _ in range(2):
        dynamodb.transact_write_items(TransactItems=once, ClientRequestToken="token")
    dynamodb.transact_write_items(TransactItems=once)
    assert item_of(dynamodb) == {"n": {"N": "2"}}
    sends_no_token(dynamodb)
    for _ in range(2):
        dynamodb.transact_write_items(TransactItems=once)
    assert item_of(dynamodb) == {"n": {"N": "4"}}


def sends_no_token(client: Any) -> None:
    """botocore would fill one in."""
    client.meta.events.unregister("before-parameter-build", generate_idempotent_uuid)


# ---------------------------------------------------------------- MongoDB


@pytest.fixture(params=["mongomock", "mongod"])
def mongodb(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An empty collection."""
    if request.param == "mongomock":
        with mongomock_collection() as collection:
            yield collection
    else:
        mongo: MongoClient[dict[str, Any]] = request.getfixturevalue("mongo")
        collection = mongo.test.standins
        collection.drop()
        yield collection


class Refusal(NamedTuple):
    code: int
    document: dict[str, Any]
    update: dict[str, Any]


REFUSALS = {
    "two operators on a path": Refusal(40, {}, {"$set": {"z": 1, "a": 1}, "$inc": {"a": 1}}),
    "a path above another": Refusal(40, {}, {"$set": {"a": 1}, "$push": {"a.b": 1}}),
    "a path above another in one operator": Refusal(40, {}, {"$set": {"a.b": 1, "a": 1}}),
    "$push to a text": Refusal(2, {"a": "x"}, {"$set": {"z": 1}, "$push": {"a": 1}}),
    "$push to null": Refusal(2, {"a": None}, {"$set": {"z": 1}, "$push": {"a": 1}}),
    "$addToSet to a text": Refusal(2, {"a": "x"}, {"$set": {"z": 1}, "$addToSet": {"a": 1}}),
    "$pull from a text": Refusal(2, {"a": "x"}, {"$set": {"z": 1}, "$pull": {"a": 1}}),
    "$pop from a text": Refusal(14, {"a": "x"}, {"$set": {"z": 1}, "$pop": {"a": 1}}),
    "a field below a text": Refusal(28, {"a": "x"}, {"$set": {"z": 1, "a.b": 1}}),
    "a field below null": Refusal(28, {"a": None}, {"$inc": {"a.b": 1}}),
    "a name below an array": Refusal(28, {"a": [1]}, {"$set": {"z": 1, "a.b": 1}}),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_mongomock_refuses_an_update_that_mongodb_refuses(mongodb: Any, case: Refusal) -> None:
    mongodb.insert_one({"_id": 1, **case.document})
    with pytest.raises(WriteError) as refused:
        mongodb.update_one({"_id": 1}, case.update)
    assert refused.value.code == case.code
    assert mongodb.find_one() == {"_id": 1, **case.document}


APPLIED = {
    "$set of a missing field": ({"a": 1, "b": 2}, [{"$set": {"a": "$c", "d": "$b"}}], {"b": 2, "d": 2}),
    "$$REMOVE": ({"a": {"x": 1, "y": 2}}, [{"$set": {"a.x": "$$REMOVE"}}], {"a": {"y": 2}}),
    "two stages": ({"a": 1}, [{"$set": {"b": "$a"}}, {"$set": {"c": "$b", "a": 2}}], {"a": 2, "b": 1, "c": 1}),
    "$unset below a text": ({"a": "x"}, {"$unset": {"a.b": 1}, "$set": {"n": 1}}, {"a": "x", "n": 1}),
    "$setOnInsert below a number": ({"a": 1}, {"$setOnInsert": {"a.b": 1}, "$inc": {"n": 1}}, {"a": 1, "n": 1}),
    "$push into an array": ({"a": [[1]]}, {"$push": {"a.0": 2}}, {"a": [[1, 2]]}),
}


@pytest.mark.parametrize(("before", "change", "after"), APPLIED.values(), ids=APPLIED)
def test_mongomock_applies_an_update_that_mongodb_applies(
    mongodb: Any, before: dict[str, Any], change: Any, after: dict[str, Any]
) -> None:
    mongodb.insert_one({"_id": 1, **before})
    mongodb.update_one({"_id": 1}, change)
    assert mongodb.find_one() == {"_id": 1, **after}


def test_update_result_states_whether_a_document_was_inserted(mongodb: Any) -> None:
    done = [mongodb.update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True) for _ in range(2)]
    assert [(one.did_upsert, one.upserted_id, one.matched_count) for one in done] == [(True, 1, 0), (False, None, 1)]


@pytest.mark.parametrize("projection", [{"_id": 0}, {"_id": 0, "n": 1}, ["n"], None], ids=str)
@pytest.mark.parametrize("which", [ReturnDocument.BEFORE, ReturnDocument.AFTER], ids=["before", "after"])
def test_update_with_a_projection_finds_the_document(mongodb: Any, projection: Any, which: bool) -> None:
    mongodb.insert_one({"_id": 1, "n": 0})
    found = mongodb.find_one_and_update({"n": {"$lt": 1}}, {"$inc": {"n": 1}}, projection=projection, return_document=which)
    shown = {} if isinstance(projection, dict) else {"_id": 1}
    assert found == {**shown, "n": 1 if which is ReturnDocument.AFTER else 0}
    assert mongodb.find_one_and_update({"n": 7}, {"$inc": {"n": 1}}, projection=projection) is None


def test_update_that_violates_a_unique_index_changes_nothing(mongodb: Any) -> None:
    mongodb.create_index("k", unique=True)
    mongodb.insert_many([{"_id": 1, "k": 1}, {"_id": 2, "k": 2}])
    with pytest.raises(DuplicateKeyError):
        mongodb.update_one({"_id": 2}, {"$set": {"k": 1}})
    assert list(mongodb.find()) == [{"_id": 1, "k": 1}, {"_id": 2, "k": 2}]


def test_update_beyond_16_mb_is_refused(mongodb: Any) -> None:
    mongodb.insert_one({"_id": 1, "a": "x" * 9_000_000})
    with pytest.raises(WriteError) as refused:
        mongodb.update_one({"_id": 1}, {"$set": {"b": "x" * 9_000_000}})
    assert refused.value.code in {17419, 10334}  # the second where a secondary could ask for it
    assert list(mongodb.find_one()) == ["_id", "a"]


def test_comment_option_does_not_change_the_result(mongodb: Any) -> None:
    mongodb.insert_many([{"_id": 1}, {"_id": 2}], comment="c")
    assert mongodb.update_many({}, {"$inc": {"n": 1}}, comment="c").modified_count == 2
    assert mongodb.replace_one({"_id": 1}, {"n": 5}, comment="c").modified_count == 1
    assert mongodb.find_one({"_id": 1}, comment="c") == {"_id": 1, "n": 5}
