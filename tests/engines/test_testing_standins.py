"""The stand-ins say what the engines say: each case runs on both, where the engine at hand is itself right about it."""

from __future__ import annotations

import datetime as dt
import enum
import http
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.handlers import generate_idempotent_uuid
from bson import Binary, Decimal128, Int64, ObjectId, Regex
from pymongo import MongoClient, ReturnDocument
from pymongo.errors import DocumentTooLarge, DuplicateKeyError, OperationFailure, WriteError

from onewrite.dynamodb.size import item_size
from onewrite.dynamodb.values import plain_values
from onewrite.testing import StandInLies, mongomock_collection, moto_table
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
    names: dict[str, str] | None = None
    values: dict[str, Any] | None = None
    key: str = "a"
    returns: str = "ALL_NEW"


def condition(text: str, *, met: bool, before: dict[str, Any] | None = None, **values: Any) -> Case:
    """Of an update that sets `done`."""
    given = {f":{name}": value for name, value in values.items()}
    expected: Any = {**(before or {}), "done": S} if met else (NOT_MET, "")
    return Case(expected, "SET done=:x", before or {}, text, values={":x": S, **given})


def number(text: str, expected: str | tuple[str, str]) -> Case:
    return Case(
        {"n": {"N": expected}} if isinstance(expected, str) else expected, "SET n=:n", {}, values={":n": {"N": text}}
    )


DEEP: dict[str, Any] = {"S": "x"}
for _ in range(33):
    DEEP = {"M": {"m": DEEP}}
PATH = (REFUSED, "document path provided in the update expression is invalid for update")
OVERLAP = (REFUSED, "Two document paths overlap")
HALF = {"S": "x" * 204_800}
REST = {"S": "y" * (204_800 - len("id" + "a" + "v" + "w"))}

BOTH = {
    "an item of nearly 400 KB": Case(
        {"v": HALF, "w": {"S": "y" * 204_700}}, "SET w=:w", {"v": HALF}, values={":w": {"S": "y" * 204_700}}, returns="NONE"
    ),
    "an item of a byte more": Case(
        (REFUSED, "Item size to update has exceeded"), "SET w=:w", {"v": HALF}, values={":w": {"S": REST["S"] + "y"}}
    ),
    "the condition comes before the size": Case(
        (NOT_MET, ""),
        "SET w=:w",
        {"v": HALF},
        "attribute_exists(q)",
        values={":w": HALF},
    ),
    "a null that is false": Case(
        (REFUSED, "Null attribute value types must have the value of true"), "SET a=:a", {}, values={":a": {"NULL": False}}
    ),
    "an expression of 4097 bytes": Case(
        (REFUSED, "Expression size has exceeded the maximum allowed size; expression size: "),
        "SET v=:v REMOVE " + ",".join(f"a{n:04}" for n in range(700)),
        {},
        values={":v": S},
    ),
    "39 digits": number("1" * 39, (REFUSED, "more than 38 significant digits")),
    "38 digits and zeros": number("1" * 38 + "000", "1" * 38 + "000"),
    "too large a number": number("1E126", (REFUSED, "Number overflow")),
    "too small a number": number("1E-131", (REFUSED, "Number underflow")),
    "the largest exponent": number("1E125", "1" + "0" * 125),
    "zeros in front": number("000012", "12"),
    "a plus": number("+5", "5"),
    "zeros behind": number("1.50", "1.5"),
    "an exponent": number("1e-5", "0.00001"),
    "a negative zero": number("-0", "0"),
    "no number": number("abc", (REFUSED, "cannot be converted to a numeric value: abc")),
    "a sum beyond 38 digits": Case(
        (REFUSED, "more than 38 significant digits"),
        "ADD n :n",
        {"n": {"N": "1" * 30}},
        values={":n": {"N": "0.123456789"}},
    ),
    "a sum of 38 digits": Case(
        {"n": {"N": "1" * 29 + ".123456789"}}, "ADD n :n", {"n": {"N": "1" * 29}}, values={":n": {"N": "0.123456789"}}
    ),
    "a sum is written as a number is": Case(
        {"n": {"N": "3"}}, "SET n=n+:n", {"n": {"N": "1.5"}}, values={":n": {"N": "1.5"}}
    ),
    "a sum within a map": Case(
        {"m": {"M": {"n": {"N": "3"}}}}, "SET m.n=m.n+:n", {"m": {"M": {"n": {"N": "1.5"}}}}, values={":n": {"N": "1.5"}}
    ),
    "a sum within a list": Case(
        {"m": {"L": [{"N": "3"}]}}, "SET m[0]=m[0]+:n", {"m": {"L": [{"N": "1.5"}]}}, values={":n": {"N": "1.5"}}
    ),
    "a text twice in a set": Case(
        (REFUSED, "Input collection [a, a] contains duplicates"), "ADD v :v", {}, values={":v": {"SS": ["a", "a"]}}
    ),
    "a number twice in a set": Case(
        (REFUSED, "Input collection contains duplicates"), "ADD v :v", {}, values={":v": {"NS": ["1", "1.0"]}}
    ),
    "an empty set": Case((REFUSED, "string set  may not be empty"), "ADD v :v", {}, values={":v": {"SS": []}}),
    "nested 33 deep": Case((REFUSED, "Nesting Levels"), "SET v=:v", {}, values={":v": DEEP}),
    "an empty key": Case((REFUSED, "cannot contain an empty string value. Key: id"), "SET v=:v", key="", values={":v": S}),
    "below a text": Case(PATH, "SET m.x=:v", {"m": S}, values={":v": S}),
    "a path above another": Case(
        OVERLAP, "SET #m=if_not_exists(#m,:e), #m.#x=:v", {}, names={"#m": "m", "#x": "x"}, values={":e": {"M": {}}, ":v": S}
    ),
    "a list above its element": Case(OVERLAP, "SET #m=:e REMOVE #m[0]", {}, names={"#m": "m"}, values={":e": {"L": []}}),
    "no expression": Case({}, None),
    "the updated attributes alone": Case({"v": S}, "SET v=:v", values={":v": S}, returns="UPDATED_NEW"),
    "the size of what is missing": condition("size(q) < :n", met=False, n={"N": "9"}),
    "the size of a number": condition("size(q) < :n", met=False, before={"q": {"N": "1"}}, n={"N": "9"}),
    "the size of a text": condition("size(q) = :n", met=True, before={"q": S}, n={"N": "1"}),
    "two that are missing": condition("q = w", met=False),
    "two that are missing, differing": condition("q <> w", met=True),
    "true and 1": condition("q = :n", met=False, before={"q": {"BOOL": True}}, n={"N": "1"}),
    "true and 1, differing": condition("q <> :n", met=True, before={"q": {"BOOL": True}}, n={"N": "1"}),
    "null and null": condition("q = :n", met=True, before={"q": {"NULL": True}}, n={"NULL": True}),
    "a text below a number": condition("q < :n", met=False, before={"q": S}, n={"N": "1"}),
    "a number below a number": condition("q < :n", met=True, before={"q": {"N": "1"}}, n={"N": "2"}),
    "a text between numbers": condition("q BETWEEN :n AND :m", met=False, before={"q": S}, n={"N": "1"}, m={"N": "2"}),
    "a number between numbers": condition(
        "q BETWEEN :n AND :m", met=True, before={"q": {"N": "1"}}, n={"N": "1"}, m={"N": "2"}
    ),
    "true among numbers": condition("q IN (:n, :m)", met=False, before={"q": {"BOOL": True}}, n={"N": "1"}, m={"N": "0"}),
    "a number among numbers": condition("q IN (:n, :m)", met=True, before={"q": {"N": "0"}}, n={"N": "1"}, m={"N": "0"}),
}
# AWS alone: what its documentation says, and what a public suite that runs on AWS expects. dynoxide is wrong about these.
ON_AWS = {
    "an item of 400 KB": Case({"v": HALF, "w": REST}, "SET w=:w", {"v": HALF}, values={":w": REST}, returns="NONE"),
    "301 operators": Case(
        (REFUSED, "too many operators"), "SET v=:v", {}, " OR ".join(["attribute_exists(v)"] * 151), values={":v": S}
    ),
    "101 operands": Case((REFUSED, "IN operator"), "SET v=:v", {}, f"v IN ({','.join([':v'] * 101)})", values={":v": S}),
    "a placeholder of 256 bytes": Case(
        (REFUSED, "255"), f"SET #{'n' * 255}=:v", {}, names={"#" + "n" * 255: "n"}, values={":v": S}
    ),
    "a list below a list": Case((REFUSED, "operand type: L"), "SET v=:v", {}, "q < :l", values={":v": S, ":l": {"L": []}}),
    "a removal from an item that is not there": Case((NOT_MET, "no item"), "REMOVE v"),
    "a removal below a text": Case(PATH, "REMOVE m.x", {"m": S}),
}


OF_EACH_TYPE: list[dict[str, Any]] = [
    *[{"N": number} for number in ("0", "7", "-12.5", "1.5", "100.5", "2000", "1E20", "1" * 38, "-" + "1" * 38)],
    {"L": [{"BOOL": True}, {"NULL": True}]},
    {"M": {"k": {"NS": ["1", "200"]}}},
    {"B": b"abc"},
    {"SS": ["a", "bc"]},
]


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
    """What comes of a case: the attributes that are answered, or the error."""
    if case.before is not None:
        client.put_item(TableName="things", Item={"id": {"S": case.key}, **case.before})
    request = {
        "UpdateExpression": case.update,
        "ConditionExpression": case.condition,
        "ExpressionAttributeNames": case.names,
        "ExpressionAttributeValues": case.values,
    }
    given = {name: value for name, value in request.items() if value}
    try:
        answer = client.update_item(TableName="things", Key={"id": {"S": case.key}}, ReturnValues=case.returns, **given)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["Error"]["Message"]
    if case.returns == "UPDATED_NEW":
        return answer["Attributes"]
    item = item_of(client, case.key)
    if item is None:
        assert "Attributes" not in answer
        return NOT_MET, "no item"
    assert case.returns == "NONE" or answer["Attributes"] == {"id": {"S": case.key}, **item}
    return item


def item_of(client: Any, key: str = "a") -> dict[str, Any] | None:
    item = client.get_item(TableName="things", Key={"id": {"S": key}}, ConsistentRead=True).get("Item")
    return None if item is None else {name: value for name, value in item.items() if name != "id"}


def check(client: Any, case: Case) -> None:
    found = update(client, case)
    if isinstance(case.expected, dict):
        assert found == case.expected
        return
    assert isinstance(found, tuple)
    assert found[0] == case.expected[0]
    assert case.expected[1] in found[1]
    if case.key:
        assert item_of(client, case.key) == case.before  # a write that fails leaves nothing behind


@pytest.mark.parametrize("case", BOTH.values(), ids=BOTH)
def test_moto_answers_as_a_dynamodb_does(dynamodb: Any, case: Case) -> None:
    check(dynamodb, case)


@pytest.mark.parametrize("case", ON_AWS.values(), ids=ON_AWS)
def test_moto_answers_as_aws_does(moto: Any, case: Case) -> None:
    check(moto, case)


def test_a_transaction_with_the_token_of_another_is_done_once(dynamodb: Any) -> None:
    add = {"TableName": "things", "Key": {"id": {"S": "a"}}, "UpdateExpression": "ADD n :n"}
    once = [{"Update": {**add, "ExpressionAttributeValues": {":n": {"N": "1.0"}}}}]
    twice = [{"Update": {**add, "ExpressionAttributeValues": {":n": {"N": "2"}}}}]
    for _ in range(2):
        dynamodb.transact_write_items(TransactItems=once, ClientRequestToken="token")
    dynamodb.transact_write_items(TransactItems=once)
    assert item_of(dynamodb) == {"n": {"N": "2"}}
    sends_no_token(dynamodb)
    for _ in range(2):
        dynamodb.transact_write_items(TransactItems=once)
    assert item_of(dynamodb) == {"n": {"N": "4"}}
    with pytest.raises(ClientError) as refused:
        dynamodb.transact_write_items(TransactItems=twice, ClientRequestToken="token")
    assert refused.value.response["Error"]["Code"] == "IdempotentParameterMismatchException"


def sends_no_token(client: Any) -> None:
    """botocore would fill one in."""
    client.meta.events.unregister("before-parameter-build", generate_idempotent_uuid)


@pytest.mark.parametrize("too_much", [0, 1])
def test_what_is_updated_may_have_400_kb(moto: Any, too_much: int) -> None:
    item, rest = _item_and_rest(too_much)
    moto.put_item(TableName="things", Item=item)
    found = update(moto, Case({}, "SET v=:v", values={":v": rest}, returns="NONE"))
    assert found == ((REFUSED, "Item size to update has exceeded the maximum allowed size") if too_much else item_of(moto))


def _item_and_rest(too_much: int) -> tuple[dict[str, Any], dict[str, str]]:
    """An item with an empty `v`, and what `v` must be so the item has 400 KB and some bytes too much."""
    item: dict[str, Any] = {"id": {"S": "a"}, **{f"v{n}": value for n, value in enumerate(OF_EACH_TYPE)}, "v": {"S": ""}}
    return item, {"S": "x" * (409_600 - item_size(plain_values(item)) + too_much)}


@pytest.mark.parametrize("too_much", [0, 1])
def test_what_is_put_may_have_400_kb(dynamodb: Any, too_much: int) -> None:
    item, item["v"] = _item_and_rest(too_much)
    write = {"Put": {"TableName": "things", "Item": item}}
    if not too_much:
        dynamodb.put_item(TableName="things", Item=item)
        return
    with pytest.raises(ClientError, match="Item size has exceeded"):
        dynamodb.put_item(TableName="things", Item=item)
    with pytest.raises(ClientError, match=r"exceeded|cancelled"):
        dynamodb.transact_write_items(TransactItems=[write])
    with pytest.raises(ClientError, match="Item size has exceeded"):
        dynamodb.batch_write_item(RequestItems={"things": [{"PutRequest": {"Item": item}}]})
    assert item_of(dynamodb) is None


def test_an_answer_has_the_capacity_only_where_it_was_asked_for(dynamodb: Any) -> None:
    key = {"TableName": "things", "Key": {"id": {"S": "a"}}}
    assert "ConsumedCapacity" not in dynamodb.update_item(**key)
    assert "ConsumedCapacity" in dynamodb.update_item(**key, ReturnConsumedCapacity="TOTAL")


def test_what_moto_gets_wrong_beyond_mending_is_refused_with_the_way_out(moto: Any) -> None:
    with pytest.raises(StandInLies, match=r"PartiQL.*ConditionalCheckFailedException.*dynoxide\(\)"):
        moto.execute_statement(Statement="UPDATE things SET n=1 WHERE id='a' AND n=2")
    key, sets = {"id": {"S": "a"}}, ",".join(f"a{n}=:v" for n in range(300))
    with pytest.raises(StandInLies, match=r"RecursionError.*dynoxide\(\)"):
        moto.update_item(TableName="things", Key=key, UpdateExpression=f"SET {sets}", ExpressionAttributeValues={":v": S})
    assert item_of(moto) is None


EMPTY_NAME: dict[str, Any] = {"L": [{"M": {"": S}}]}


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("put_item", {"Item": {"id": {"S": "a"}, "": S}}),
        ("put_item", {"Item": {"id": {"S": "a"}, "v": EMPTY_NAME}}),
        ("update_item", {"UpdateExpression": "SET v=:v", "ExpressionAttributeValues": {":v": EMPTY_NAME}}),
        (
            "update_item",
            {
                "UpdateExpression": "SET v.#n=:v",
                "ExpressionAttributeNames": {"#n": ""},
                "ExpressionAttributeValues": {":v": S},
            },
        ),
    ],
    ids=["in an item", "in a map that is put", "in a map that is set", "in a path"],
)
def test_an_empty_attribute_name_is_refused_which_moto_takes(moto: Any, method: str, arguments: dict[str, Any]) -> None:
    key = {"Key": {"id": {"S": "a"}}} if method == "update_item" else {}
    with pytest.raises(StandInLies, match="a name has at least one character"):
        getattr(moto, method)(TableName="things", **key, **arguments)
    assert item_of(moto) is None


# ---------------------------------------------------------------- requests that are refused, and what is shown

PUT = {"PutRequest": {"Item": {"id": {"S": "a"}}}}
DELETE = {"DeleteRequest": {"Key": {"id": {"S": "a"}}}}
NUMBER = {"id": {"N": "1"}}


def puts(count: int) -> list[Any]:
    return [{"PutRequest": {"Item": {"id": {"S": f"n{number}"}}}} for number in range(count)]


REFUSED_REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "26 puts": ("batch_write_item", {"RequestItems": {"things": puts(26)}}),
    "26 puts in two tables": ("batch_write_item", {"RequestItems": {"things": puts(13), "others": puts(13)}}),
    "a put and a delete of one item": ("batch_write_item", {"RequestItems": {"things": [PUT, DELETE]}}),
    "a delete by a number": ("batch_write_item", {"RequestItems": {"things": [{"DeleteRequest": {"Key": NUMBER}}]}}),
    "a put by a number": (
        "batch_write_item",
        {"RequestItems": {"others": puts(1), "things": [{"PutRequest": {"Item": NUMBER}}]}},
    ),
    "a get by a number": ("get_item", {"TableName": "things", "Key": NUMBER}),
    "a delete by a number alone": ("delete_item", {"TableName": "things", "Key": NUMBER}),
    "gets by a number": ("batch_get_item", {"RequestItems": {"things": {"Keys": [NUMBER]}}}),
    "one item twice": ("transact_get_items", {"TransactItems": [{"Get": {"TableName": "things", "Key": {"id": S}}}] * 2}),
    "a path below another": ("get_item", {"TableName": "things", "Key": {"id": S}, "ProjectionExpression": "m, m.x"}),
    "begins_with a number": (
        "update_item",
        {
            "TableName": "things",
            "Key": {"id": S},
            "UpdateExpression": "REMOVE a",
            "ConditionExpression": "begins_with(a, :n)",
            "ExpressionAttributeValues": {":n": {"N": "1"}},
        },
    ),
    "BETWEEN a text and a number": (
        "put_item",
        {
            "TableName": "things",
            "Item": {"id": S},
            "ConditionExpression": "a BETWEEN :s AND :n",
            "ExpressionAttributeValues": {":s": S, ":n": {"N": "1"}},
        },
    ),
    "a name in a list": (
        "update_item",
        {"TableName": "things", "Key": {"id": {"S": "full"}}, "UpdateExpression": "SET l.x = l"},
    ),
    "a value that is not used": (
        "scan",
        {"TableName": "things", "FilterExpression": "a = :a", "ExpressionAttributeValues": {":a": S, ":b": S}},
    ),
}


@pytest.fixture
def two_tables(dynamodb: Any) -> Any:
    """`things` with the item `full`, and `others`."""
    with suppress(ClientError):
        dynamodb.create_table(
            TableName="others",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    for table in ("things", "others"):
        for item in dynamodb.scan(TableName=table)["Items"]:
            dynamodb.delete_item(TableName=table, Key={"id": item["id"]})
    dynamodb.put_item(
        TableName="things", Item={"id": {"S": "full"}, "l": {"L": [S]}, "m": {"M": {"x": S}}, "b": {"B": b"abc"}}
    )
    return dynamodb


@pytest.mark.parametrize(("method", "arguments"), REFUSED_REQUESTS.values(), ids=REFUSED_REQUESTS)
def test_moto_refuses_the_requests_that_a_dynamodb_refuses_and_does_nothing_of_them(
    two_tables: Any, method: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(two_tables, method)(**arguments)
    assert refused.value.response["Error"]["Code"] == REFUSED
    assert [two_tables.scan(TableName=table)["Count"] for table in ("things", "others")] == [1, 0]


@pytest.fixture
def indexed(dynamodb: Any) -> Any:
    """`orders` with a sort key, and an index by state. It holds one order."""
    with suppress(ClientError):
        dynamodb.delete_table(TableName="orders")
    dynamodb.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}, {"AttributeName": "made", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("id", "made", "state")],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by-state",
                "KeySchema": [{"AttributeName": "state", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.put_item(TableName="orders", Item={"id": S, "made": S, "state": {"S": "NEW"}, "made_in": S})
    return dynamodb


@pytest.mark.parametrize("state", [{"N": "1"}, {"S": ""}, {"NULL": True}], ids=str)
@pytest.mark.parametrize("method", ["put_item", "batch_write_item", "transact_write_items"])
def test_the_key_of_an_index_has_its_type(indexed: Any, method: str, state: dict[str, Any]) -> None:
    put: dict[str, Any] = {"TableName": "orders", "Item": {"id": {"S": "y"}, "made": S, "state": state}}
    requests: dict[str, dict[str, Any]] = {
        "put_item": put,
        "batch_write_item": {"RequestItems": {"orders": [{"PutRequest": {"Item": put["Item"]}}]}},
        "transact_write_items": {"TransactItems": [{"Put": put}]},
    }
    with pytest.raises(ClientError) as refused:
        getattr(indexed, method)(**requests[method])
    assert refused.value.response["Error"]["Code"] in (REFUSED, "TransactionCanceledException")
    assert indexed.scan(TableName="orders")["Count"] == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [("made > :x", {}), ("size(made_in) > :n AND #a = :x", {"#a": "made"}), ("NOT begins_with(made, :x)", {})],
)
def test_a_query_cannot_filter_by_a_key(indexed: Any, text: str, names: dict[str, str]) -> None:
    values = {":id": S, **{name: value for name, value in {":x": S, ":n": {"N": "0"}}.items() if name in text}}
    with pytest.raises(ClientError) as refused:
        indexed.query(
            TableName="orders",
            KeyConditionExpression="id = :id",
            FilterExpression=text,
            ExpressionAttributeValues=values,
            **({"ExpressionAttributeNames": names} if names else {}),
        )
    assert refused.value.response["Error"]["Code"] == REFUSED


def test_a_query_may_filter_by_what_only_looks_like_a_key(indexed: Any) -> None:
    asked = {
        "FilterExpression": "made_in = :x AND attribute_not_exists(m.made)",
        "ExpressionAttributeValues": {":id": S, ":x": S},
    }
    assert indexed.query(TableName="orders", KeyConditionExpression="id = :id", **asked)["Count"] == 1
    of_the_table = {"FilterExpression": "id = :x", "ExpressionAttributeValues": {":state": {"S": "NEW"}, ":x": S}}
    by_state = {"IndexName": "by-state", "KeyConditionExpression": "#state = :state"}
    names = {"ExpressionAttributeNames": {"#state": "state"}}
    assert indexed.query(TableName="orders", **by_state, **names, **of_the_table)["Count"] == 1
    assert indexed.scan(TableName="orders", FilterExpression="made = :x", ExpressionAttributeValues={":x": S})["Count"] == 1


def test_a_batch_may_write_the_same_key_of_two_tables(two_tables: Any) -> None:
    two_tables.batch_write_item(RequestItems={"things": [PUT], "others": [PUT]})
    assert [two_tables.scan(TableName=table)["Count"] for table in ("things", "others")] == [2, 1]
    two_tables.batch_write_item(RequestItems={"things": [DELETE], "others": [DELETE]})
    two_tables.batch_write_item(RequestItems={"things": puts(12), "others": puts(13)})
    assert [two_tables.scan(TableName=table)["Count"] for table in ("things", "others")] == [13, 13]


@pytest.mark.parametrize("kind", ["Put", "Delete", "Update"])
def test_a_transaction_with_a_key_of_the_wrong_type_is_cancelled(two_tables: Any, kind: str) -> None:
    wrong: dict[str, Any] = {"TableName": "things", **({"Item": NUMBER} if kind == "Put" else {"Key": NUMBER})}
    if kind == "Update":
        wrong["UpdateExpression"] = "REMOVE a"
    right = {"Put": {"TableName": "others", "Item": {"id": S}}}
    with pytest.raises(ClientError) as cancelled:
        two_tables.transact_write_items(TransactItems=[right, {kind: wrong}])
    reasons = [reason["Code"] for reason in cancelled.value.response["CancellationReasons"]]
    assert reasons == ["None", "ValidationError"]
    assert two_tables.scan(TableName="others")["Count"] == 0


def test_what_is_asked_for_is_all_that_is_shown(two_tables: Any) -> None:
    key = {"TableName": "things", "Key": {"id": {"S": "full"}}}
    assert two_tables.get_item(**key, AttributesToGet=["m"])["Item"] == {"m": {"M": {"x": S}}}
    projected = {"Get": {**key, "ProjectionExpression": "id, #m.x", "ExpressionAttributeNames": {"#m": "m"}}}
    found = two_tables.transact_get_items(TransactItems=[projected])["Responses"]
    assert found == [{"Item": {"id": {"S": "full"}, "m": {"M": {"x": S}}}}]
    asked = {"things": {"Keys": [key["Key"]], "AttributesToGet": ["l"]}}
    assert two_tables.batch_get_item(RequestItems=asked)["Responses"]["things"] == [{"l": {"L": [S]}}]


def test_an_attribute_that_is_set_to_what_it_was_is_shown_and_bytes_contain_bytes(two_tables: Any) -> None:
    done = two_tables.update_item(
        TableName="things",
        Key={"id": {"S": "full"}},
        UpdateExpression="SET l = l, #b = :b",
        ConditionExpression="contains(#b, :part)",
        ExpressionAttributeNames={"#b": "b"},
        ExpressionAttributeValues={":b": {"B": b"x"}, ":part": {"B": b"bc"}},
        ReturnValues="UPDATED_NEW",
    )
    assert done["Attributes"] == {"l": {"L": [S]}, "b": {"B": b"x"}}


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
    text: str | None = None


REFUSALS = {
    "two operators on a path": Refusal(40, {}, {"$set": {"z": 1, "a": 1}, "$inc": {"a": 1}}, "conflict at 'a'"),
    "a path above another": Refusal(40, {}, {"$set": {"a": 1}, "$push": {"a.b": 1}}, "conflict at 'a'"),
    "a path above another in one operator": Refusal(40, {}, {"$set": {"a.b": 1, "a": 1}}),
    "the new name of a field": Refusal(40, {"a": 1}, {"$rename": {"a": "b"}, "$set": {"b": 1}}),
    "an empty name": Refusal(56, {}, {"$set": {"a..b": 1}}, "contains an empty field name"),
    "$inc of a text": Refusal(14, {"a": "x"}, {"$set": {"z": 1}, "$inc": {"a": 1}}, "non-numeric type"),
    "$inc of null": Refusal(14, {"a": None}, {"$inc": {"a": 1}}),
    "$inc of a boolean": Refusal(14, {"a": True}, {"$inc": {"a": 1}}),
    "$inc by a text": Refusal(14, {"a": 1}, {"$inc": {"a": "x"}}, "non-numeric argument"),
    "$inc in an array": Refusal(14, {"a": ["x"]}, {"$inc": {"a.0": 1}}),
    "$inc past 64 bits": Refusal(2, {"a": 2**62}, {"$set": {"z": 1}, "$inc": {"a": 2**62}}, r"Failed to apply \$inc"),
    "$push to a text": Refusal(2, {"a": "x"}, {"$set": {"z": 1}, "$push": {"a": 1}}, "must be an array"),
    "$addToSet to a text": Refusal(2, {"a": "x"}, {"$set": {"z": 1}, "$addToSet": {"a": 1}}),
    "$pull from a text": Refusal(2, {"a": "x"}, {"$set": {"z": 1}, "$pull": {"a": 1}}),
    "$pop from a text": Refusal(14, {"a": "x"}, {"$set": {"z": 1}, "$pop": {"a": 1}}),
    "a field below a text": Refusal(28, {"a": "x"}, {"$set": {"z": 1, "a.b": 1}}, "Cannot create field 'b'"),
    "a place in an array that was not asked for": Refusal(
        2, {"a": [{"b": 1}]}, {"$set": {"a.$.b": 2}}, "positional operator"
    ),
    "a place that is asked for twice": Refusal(2, {"a": [{"b": [1]}]}, {"$set": {"a.$.b.$": 2}}, "positional"),
    "a place in a new name": Refusal(2, {"a": [1], "b": 1}, {"$rename": {"b": "a.$"}}, "positional|dynamic"),
    "a name below an array": Refusal(28, {"a": [1]}, {"$set": {"z": 1, "a.b": 1}}, "Cannot create field 'b'"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_mongomock_refuses_what_mongodb_refuses_and_leaves_the_document_whole(mongodb: Any, case: Refusal) -> None:
    mongodb.insert_one({"_id": 1, **case.document})
    with pytest.raises(WriteError, match=case.text) as refused:
        mongodb.update_one({"_id": 1}, case.update)
    assert refused.value.code == case.code
    with pytest.raises(OperationFailure) as refused_again:
        mongodb.find_one_and_update({"_id": 1}, case.update)
    assert (type(refused_again.value), refused_again.value.code) == (OperationFailure, case.code)
    assert mongodb.find_one() == {"_id": 1, **case.document}


APPLIED = {
    "$set of a missing field": ({"a": 1, "b": 2}, [{"$set": {"a": "$c", "d": "$b"}}], {"b": 2, "d": 2}),
    "$set of a part": ({"a": {"x": 1}}, [{"$set": {"a": {"y": {"$literal": {}}}}}], {"a": {"x": 1, "y": {}}}),
    "$unset in a pipeline": ({"a": {"x": 1, "y": 2}, "b": 1}, [{"$unset": ["a.x", "b"]}], {"a": {"y": 2}}),
    "a comparison with a missing field": (
        {"a": 1},
        [{"$set": {"less": {"$lt": ["$b", "$a"]}, "null": {"$eq": ["$b", None]}}}],
        {"a": 1, "less": True, "null": False},
    ),
    "an empty document": ({}, {"$set": {"b": {}}, "$push": {"c": {}}}, {"b": {}, "c": [{}]}),
    "$max of other types": ({"a": 1, "b": None}, {"$max": {"a": "x", "b": False}}, {"a": "x", "b": False}),
    "$mul of what is missing": ({}, {"$mul": {"a": 2, "b": 1.5}}, {"a": 0, "b": 0.0}),
    "$pop and $pullAll of what is missing": ({"n": 1}, {"$pop": {"a.b": 1}, "$pullAll": {"c.d": [1]}}, {"n": 1}),
    "$rename into a document": ({"a": 1}, {"$rename": {"a": "b.c"}}, {"b": {"c": 1}}),
    "true is not 1": ({"a": [True]}, {"$addToSet": {"a": 1}, "$pull": {"b": 1}}, {"a": [True, 1]}),
    "$push that sorts": (
        {"a": [3, "x"]},
        {"$push": {"a": {"$each": [None, 1], "$sort": 1, "$slice": 3}}},
        {"a": [None, 1, 3]},
    ),
    "$setOnInsert beside": ({"a": 1}, {"$setOnInsert": {"a.b": 1}, "$inc": {"n": 1}}, {"a": 1, "n": 1}),
    "$inc beyond the end": ({"a": [1]}, {"$inc": {"a.1": 2}}, {"a": [1, 2]}),
    "$unset below a text": ({"a": "x"}, {"$unset": {"a.b": 1}, "$set": {"n": 1}}, {"a": "x", "n": 1}),
    "$not of a list": (
        {"a": 2},
        [{"$set": {"n": {"$cond": [{"$not": [{"$eq": ["$a", 1]}]}, {"$literal": "$$NOW"}, 0]}}}],
        {"a": 2, "n": "$$NOW"},
    ),
}


@pytest.mark.parametrize(("before", "change", "after"), APPLIED.values(), ids=APPLIED)
def test_mongomock_applies_what_mongodb_applies(
    mongodb: Any, before: dict[str, Any], change: Any, after: dict[str, Any]
) -> None:
    mongodb.insert_one({"_id": 1, **before})
    mongodb.update_one({"_id": 1}, change)
    assert mongodb.find_one() == {"_id": 1, **after}


AT_MATCHED_PLACE: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any], list[Any]]] = {
    "a value": ([1, 2, 2], {"a": 2}, {"$set": {"a.$": 9}}, [1, 9, 2]),
    "a comparison": ([1, "x", 3], {"a": {"$gt": 1}}, {"$inc": {"a.$": 5}}, [1, "x", 8]),
    "a list": ([[2], 1, 2], {"a": {"$in": [2, 3]}}, {"$unset": {"a.$": 1}}, [[2], 1, None]),
    "a field": ([{"b": 1}, {"b": 2}], {"a.b": 2}, {"$push": {"a.$.c": 1}}, [{"b": 1}, {"b": 2, "c": [1]}]),
    "a field of each": ([{"b": [1]}, {"b": [2, 3]}], {"a.b": 3}, {"$set": {"a.$.b": 0}}, [{"b": [1]}, {"b": 0}]),
    "a member": (
        [{"b": 1, "c": 2}, {"b": 2}],
        {"a": {"$elemMatch": {"b": {"$gt": 1}}}},
        {"$set": {"a.$": 9}},
        [{"b": 1, "c": 2}, 9],
    ),
    "what is not": ([1, 2, 3], {"a": {"$gt": 1, "$ne": 7}, "c": {"$ne": 1}}, {"$set": {"a.$": 9}}, [1, 9, 3]),
    "a part": ([1, 2, 3], {"$and": [{"a": 3}, {"c": None}]}, {"$set": {"a.$": 9}}, [1, 2, 9]),
}


@pytest.mark.parametrize(("before", "query", "change", "after"), AT_MATCHED_PLACE.values(), ids=AT_MATCHED_PLACE)
@pytest.mark.parametrize("method", ["update_one", "update_many", "find_one_and_update"])
def test_mongomock_changes_the_member_of_an_array_that_mongodb_changes(
    mongodb: Any, method: str, before: list[Any], query: dict[str, Any], change: dict[str, Any], after: list[Any]
) -> None:
    mongodb.insert_one({"_id": 1, "a": before})
    getattr(mongodb, method)(query, change)
    assert mongodb.find_one() == {"_id": 1, "a": after}


def test_a_positional_path_conflicts_with_the_place_that_it_stands_for(mongodb: Any) -> None:
    mongodb.insert_one({"_id": 1, "a": [1, 2]})
    with pytest.raises(WriteError) as refused:
        mongodb.update_one({"a": 2}, {"$set": {"a.$": 9, "a.1": 8}})
    assert refused.value.code == 40


def test_an_upsert_that_creates_the_document_has_found_no_place(mongodb: Any) -> None:
    with pytest.raises(WriteError, match="positional operator"):
        mongodb.update_one({"_id": 1, "a": 2}, {"$set": {"a.$": 9}}, upsert=True)
    assert mongodb.find_one() is None


FOUND: dict[str, tuple[dict[str, Any], list[int]]] = {
    "an empty document": ({"a": {}}, [5]),
    "an empty document below nothing": ({"z.y": {}}, []),
    "$mod": ({"a": {"$mod": [2, 1]}}, [1, 3]),
    "$mod of what is negative": ({"b": {"$mod": [3, -1]}}, [2]),
    "$not of an operator": ({"a": {"$not": {"$gt": 2}}}, [1, 2, 4, 5, 6, 7]),
    "$not of a pattern": ({"c": {"$not": {"$regex": "^x"}}}, [2, 3, 4, 5, 6, 7]),
    "$not of several": ({"a": {"$not": {"$gte": 1, "$lt": 3}}}, [2, 3, 4, 5, 6, 7]),
    "null and missing": ({"a": None}, [4, 6]),
    "null below a value": ({"c.d": None}, [1, 2, 3, 4, 5, 6, 7]),
    "not null": ({"a": {"$ne": None}}, [1, 2, 3, 5, 7]),
    "true is not 1": ({"a": True}, [7]),
    "1 is not true": ({"a": 1}, [1]),
    "the order of keys": ({"m": {"y": 2, "x": 1}}, []),
    "the same order of keys": ({"m": {"x": 1, "y": 2}}, [6]),
    "a size": ({"a": {"$size": 1}}, [2]),
    "a size of text is none": ({"c": {"$size": 1}}, []),
    "all of nothing": ({"a": {"$all": []}}, []),
    "a type": ({"a": {"$type": "null"}}, [4]),
    "a number": ({"a": {"$type": "number"}}, [1, 3]),
    "of one type only": ({"c": {"$gt": 0}}, []),
    "in an array": ({"a": {"$in": ["q", None]}}, [2, 4, 6]),
    "by place": ({"a.0": "q"}, [2]),
    "one of an array": ({"a": {"$elemMatch": {"$gt": "p"}}}, [2]),
}
DOCUMENTS = [
    {"_id": 1, "a": 1, "c": "xy"},
    {"_id": 2, "a": ["q"], "b": -4},
    {"_id": 3, "a": 3.0},
    {"_id": 4, "a": None},
    {"_id": 5, "a": {}},
    {"_id": 6, "m": {"x": 1, "y": 2}},
    {"_id": 7, "a": True},
]


@pytest.mark.parametrize(("query", "found"), FOUND.values(), ids=FOUND)
def test_mongomock_finds_what_mongodb_finds(mongodb: Any, query: dict[str, Any], found: list[int]) -> None:
    mongodb.insert_many(DOCUMENTS)
    assert sorted(document["_id"] for document in mongodb.find(query)) == found
    assert [document["_id"] for document in mongodb.aggregate([{"$match": query}, {"$sort": {"_id": 1}}])] == found


@pytest.mark.parametrize(
    "query",
    [
        {"a": {"$mod": [0, 1]}},
        {"a": {"$not": 1}},
        {"a": {"$nothing": 1}},
        {"$or": []},
        {"a": {"$in": 1}},
        {"a": {"$size": -1}},
    ],
    ids=str,
)
def test_a_filter_that_mongodb_refuses_is_refused_on_an_empty_collection_too(mongodb: Any, query: dict[str, Any]) -> None:
    with pytest.raises(OperationFailure) as refused:
        mongodb.find_one(query)
    assert refused.value.code == 2


@pytest.mark.parametrize("query", [{"$where": "true"}, {"a": {"$bitsAllSet": 1}}, {"$text": {"$search": "x"}}], ids=str)
def test_a_filter_that_the_stand_in_does_not_know_is_refused_as_such(query: dict[str, Any]) -> None:
    with mongomock_collection() as things, pytest.raises(StandInLies, match=r"does not know .*mongod\(\)"):
        things.find_one(query)


@pytest.mark.parametrize(
    ("before", "change", "modified"),
    [
        ({"a": 1}, {"$set": {"a": 1.0}}, 1),
        ({"a": 1}, {"$set": {"a": True}}, 1),
        ({"a": 1}, {"$set": {"a": 1}}, 0),
        ({"a": {"x": 1, "y": 2}}, {"$set": {"a": {"y": 2, "x": 1}}}, 1),
        ({"a": [1]}, {"$addToSet": {"a": 1.0}}, 0),
    ],
    ids=str,
)
def test_mongomock_counts_as_modified_what_mongodb_counts(
    mongodb: Any, before: dict[str, Any], change: Any, modified: int
) -> None:
    mongodb.insert_one({"_id": 1, **before})
    assert mongodb.update_one({"_id": 1}, change).modified_count == modified


@pytest.mark.parametrize(
    ("replacement", "modified"), [({"a": 1}, 1), ({"_id": 1, "a": 1}, 0), ({"_id": 1, "a": 2}, 1)], ids=str
)
def test_a_replacement_without_an_id_counts_as_a_change(mongodb: Any, replacement: dict[str, Any], modified: int) -> None:
    mongodb.insert_one({"_id": 1, "a": 1})
    assert mongodb.replace_one({"_id": 1}, replacement).modified_count == modified


def test_nothing_is_counted_where_nothing_is_found(mongodb: Any) -> None:
    counted = [{"$match": {"a": 1}}, {"$count": "n"}]
    assert list(mongodb.aggregate(counted)) == []
    mongodb.insert_many([{"a": 1}, {"a": 1}, {"a": 2}])
    assert list(mongodb.aggregate(counted)) == [{"n": 2}]


def test_new_fields_come_in_the_order_in_which_mongodb_adds_them(mongodb: Any) -> None:
    mongodb.insert_one({"_id": 1, "z": 1})
    mongodb.update_one({"_id": 1}, {"$set": {"d": 1, "b.y": 1, "b.x": 1}, "$inc": {"a": 1}, "$push": {"c": 1}})
    document = mongodb.find_one()
    assert (list(document), list(document["b"])) == (["_id", "z", "a", "b", "c", "d"], ["x", "y"])


UPSERTS = {
    "$and": ({"$and": [{"_id": "a"}, {"t": 1}, {"q": {"$gt": 3}}]}, {"_id": "a", "t": 1}),
    "$in of one": ({"_id": {"$in": ["a"]}}, {"_id": "a"}),
    "$or of one": ({"_id": "a", "$or": [{"q": 1}]}, {"_id": "a", "q": 1}),
    "$or of two": ({"_id": "a", "$or": [{"q": 1}, {"q": 2}]}, {"_id": "a"}),
    "$all of one": ({"_id": "a", "q": {"$all": [1]}}, {"_id": "a", "q": 1}),
    "$all of a condition": ({"_id": "a", "q": {"$all": [{"$elemMatch": {"b": 1}}]}}, {"_id": "a"}),
    "$eq": ({"_id": {"$eq": "a"}, "q": {"$eq": 2}}, {"_id": "a", "q": 2}),
    "$ne and a pattern": ({"_id": "a", "q": {"$ne": 1}, "t": {"$regex": "x"}}, {"_id": "a"}),
    "a pattern alone": ({"_id": "a", "t": re.compile("x")}, {"_id": "a"}),
    "patterns in operators": ({"_id": "a", "$and": [{"s": Regex("x")}], "t": {"$in": [re.compile("x")]}}, {"_id": "a"}),
    "$all of a pattern": ({"_id": "a", "t": {"$all": [re.compile("x")]}}, {"_id": "a"}),
}


@pytest.mark.parametrize(("query", "created"), UPSERTS.values(), ids=UPSERTS)
def test_an_upsert_on_mongomock_takes_from_its_filter_what_mongodb_takes(
    mongodb: Any, query: dict[str, Any], created: dict[str, Any]
) -> None:
    done = mongodb.update_one(query, {"$inc": {"n": 1}}, upsert=True)
    assert (done.upserted_id, done.did_upsert, done.matched_count) == ("a", True, 0)
    assert mongodb.find_one() == {**created, "n": 1}


@pytest.mark.parametrize(
    ("code", "query"),
    [
        (224, {"_id": 1, "$expr": {"$eq": ["$a", 1]}}),
        (54, {"_id": 1, "$and": [{"q": 1}, {"q": 2}]}),
        (54, {"_id": 1, "q": {"$all": [1, 2]}}),
    ],
    ids=["$expr", "a field twice", "$all of two"],
)
def test_an_upsert_on_mongomock_is_refused_where_mongodb_refuses_it(mongodb: Any, code: int, query: dict[str, Any]) -> None:
    with pytest.raises(WriteError) as refused:
        mongodb.update_one(query, {"$inc": {"n": 1}}, upsert=True)
    assert refused.value.code == code
    assert mongodb.count_documents({}) == 0


def test_a_pattern_for_the_id_gives_an_upsert_a_new_id(mongodb: Any) -> None:
    done = mongodb.update_one({"_id": re.compile("x")}, {"$inc": {"n": 1}}, upsert=True)
    assert isinstance(done.upserted_id, ObjectId)


@pytest.mark.parametrize(
    ("code", "name"),
    [(53, re.compile("x")), (53, Regex("x")), (53, [1]), (52, {"$a": 1}), (52, {"a": [{"$b": 1}]})],
    ids=str,
)
def test_what_cannot_be_an_id_is_refused_with_its_code(mongodb: Any, code: int, name: Any) -> None:
    with pytest.raises(WriteError) as refused:
        mongodb.insert_one({"_id": name})
    assert refused.value.code == code
    assert mongodb.count_documents({}) == 0


@pytest.mark.parametrize("name", [re.compile("x"), [1]], ids=str)
def test_an_upsert_of_what_cannot_be_an_id_is_refused_with_its_code(mongodb: Any, name: Any) -> None:
    with pytest.raises(WriteError) as refused:
        mongodb.update_one({"_id": {"$eq": name}}, {"$inc": {"n": 1}}, upsert=True)
    assert refused.value.code == 53
    with pytest.raises(OperationFailure) as refused_again:
        mongodb.find_one_and_update({"_id": {"$eq": name}}, {"$inc": {"n": 1}}, upsert=True)
    assert refused_again.value.code == 53


SAME_IN_PYTHON = [(1, True), (False, 0), ({"a": 1}, {"a": True}), ({"a": 1, "b": 2}, {"b": 2, "a": 1})]


@pytest.mark.parametrize(("one", "other"), SAME_IN_PYTHON, ids=str)
def test_an_id_that_only_python_takes_for_equal_is_another_one_or_refused(mongodb: Any, one: Any, other: Any) -> None:
    mongodb.insert_one({"_id": one})
    writes: list[Callable[[], Any]] = [
        lambda: mongodb.insert_one({"_id": other}),
        lambda: mongodb.update_one({"_id": other}, {"$inc": {"n": 1}}, upsert=True),
    ]
    for write in writes:
        with suppress(StandInLies):  # which is what mongomock says
            write()
            mongodb.delete_one({"_id": other})
        assert mongodb.count_documents({}) == 1
        assert type(mongodb.find_one()["_id"]) is type(one)


@pytest.mark.parametrize(("one", "other"), SAME_IN_PYTHON, ids=str)
def test_a_unique_index_compares_as_mongodb_does(mongodb: Any, one: Any, other: Any) -> None:
    mongodb.create_index("u", unique=True)
    mongodb.insert_many([{"u": one}, {"u": other}])
    with pytest.raises(DuplicateKeyError):
        mongodb.insert_one({"u": other})


@pytest.mark.parametrize("other", [1.0, Int64(1), 1], ids=repr)
def test_numbers_of_one_value_are_one_id(mongodb: Any, other: Any) -> None:
    mongodb.insert_one({"_id": 1})
    with pytest.raises(DuplicateKeyError):
        mongodb.insert_one({"_id": other})


def test_a_filter_that_is_none_is_refused(mongodb: Any) -> None:
    with pytest.raises((OperationFailure, TypeError)):
        mongodb.count_documents({"$and": ["x"]})


def test_expressions_are_judged_in_filters_and_pipelines_alike(mongodb: Any) -> None:
    mongodb.insert_one({"_id": 1, "a": 2, "text": "$$NOW"})
    negated = {"$expr": {"$not": [{"$eq": ["$a", 1]}]}}
    assert mongodb.count_documents({"$and": [negated, {"text": "$$NOW"}]}) == 1
    assert mongodb.update_one(negated, {"$inc": {"n": 1}}).matched_count == 1
    assert [found["_id"] for found in mongodb.aggregate([{"$match": negated}])] == [1]
    assert mongodb.update_one({"_id": 1}, [{"$set": {"at": "$$NOW"}}]).did_upsert is False
    assert isinstance(mongodb.find_one()["at"], dt.datetime)


@pytest.mark.parametrize("projection", [{"_id": 0}, {"_id": 0, "n": 1}, ["n"], None], ids=str)
@pytest.mark.parametrize("which", [ReturnDocument.BEFORE, ReturnDocument.AFTER], ids=["before", "after"])
def test_a_projection_does_not_lose_the_document(mongodb: Any, projection: Any, which: bool) -> None:
    mongodb.insert_one({"_id": 1, "n": 0})
    found = mongodb.find_one_and_update({"n": {"$lt": 1}}, {"$inc": {"n": 1}}, projection=projection, return_document=which)
    shown = {} if isinstance(projection, dict) else {"_id": 1}
    assert found == {**shown, "n": 1 if which is ReturnDocument.AFTER else 0}
    assert mongodb.find_one_and_update({"n": 7}, {"$inc": {"n": 1}}, projection=projection) is None


def test_a_duplicate_key_says_which_index_refused(mongodb: Any) -> None:
    mongodb.create_index("k", unique=True, sparse=True)
    mongodb.create_index("other")
    mongodb.insert_one({"_id": 1, "k": 1})
    mongodb.insert_one({"_id": 2, "k": 2})
    details = []
    writes: list[Callable[[], object]] = [
        lambda: mongodb.insert_one({"_id": 1}),
        lambda: mongodb.update_one({"_id": 1, "n": 5}, {"$inc": {"x": 1}}, upsert=True),
        lambda: mongodb.insert_one({"_id": 3, "k": 1}),
        lambda: mongodb.update_one({"_id": 2}, {"$set": {"k": 1}}),
        lambda: mongodb.find_one_and_update({"_id": 2}, {"$set": {"k": 1}}),
    ]
    for write in writes:
        with pytest.raises(DuplicateKeyError, match="E11000 duplicate key error") as refused:
            write()
        assert refused.value.details is not None
        details.append((refused.value.code, refused.value.details["keyPattern"], refused.value.details["keyValue"]))
    assert details == [(11000, {"_id": 1}, {"_id": 1})] * 2 + [(11000, {"k": 1}, {"k": 1})] * 3
    assert list(mongodb.find()) == [{"_id": 1, "k": 1}, {"_id": 2, "k": 2}]


@pytest.mark.parametrize(
    ("error", "write"),
    [
        (DocumentTooLarge, lambda things: things.insert_one({"_id": 1, "b": "x" * 17_000_000})),
        (OverflowError, lambda things: things.insert_one({"_id": 1, "b": 2**63})),
        (OverflowError, lambda things: things.update_one({"_id": 2**64}, {"$set": {"b": 1}})),
        (UnicodeEncodeError, lambda things: things.update_one({"_id": 1}, {"$set": {"b": "\ud800"}}, upsert=True)),
    ],
    ids=["16 MB", "an integer in a document", "an integer in a filter", "half a character"],
)
def test_what_the_driver_cannot_send_is_refused_as_the_driver_refuses_it(
    mongodb: Any, error: type[Exception], write: Callable[[Any], object]
) -> None:
    with pytest.raises(error):
        write(mongodb)
    assert mongodb.count_documents({}) == 0


class Status(enum.StrEnum):
    PAID = "paid"


class Moment(dt.datetime):
    """As libraries have them that set the time of a test."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Status.PAID, "paid"),
        (http.HTTPStatus.OK, 200),
        (2**40, Int64(2**40)),
        (Binary(b"a", 0), b"a"),
        (re.compile("a"), Regex("a", re.UNICODE)),
        (Moment(2020, 1, 1, microsecond=1999, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, microsecond=1000)),  # noqa: DTZ001  # as read
    ],
    ids=repr,
)
def test_what_is_read_is_what_bson_has(mongodb: Any, value: Any, expected: Any) -> None:
    mongodb.insert_one({"_id": 1, "a": value})
    mongodb.update_one({"_id": 1}, {"$set": {"b": value}, "$push": {"c": value}})
    mongodb.update_one({"_id": 2, "a": {"$eq": value}}, {"$setOnInsert": {"b": value}}, upsert=True)
    read = mongodb.find_one({"_id": 1, "a": {"$in": [value]}})
    upserted = mongodb.find_one({"_id": 2})
    found = [read["a"], read["b"], *read["c"], upserted["a"], upserted["b"]]
    assert [(type(one), one) for one in found] == [(type(expected), expected)] * 5


@pytest.mark.parametrize(
    ("before", "operator", "argument", "expected"),
    [
        (Decimal128("1234567890123456789012345678901234"), "$inc", 1, Decimal128("1234567890123456789012345678901235")),
        (0.1, "$inc", Decimal128("0.2"), Decimal128("0.300000000000000")),
        (1.5, "$mul", Decimal128("2"), Decimal128("3.00000000000000")),
        (Decimal128("Infinity"), "$mul", 0, Decimal128("NaN")),
        (None, "$mul", Decimal128("0.01"), Decimal128("0.00")),
        (None, "$mul", Int64(5), Int64(0)),
    ],
    ids=str,
)
def test_a_decimal_has_34_digits_and_a_double_beside_it_15(
    mongodb: Any, before: Any, operator: str, argument: Any, expected: Any
) -> None:
    mongodb.insert_one({"_id": 1} if before is None else {"_id": 1, "n": before})
    mongodb.update_one({"_id": 1}, {operator: {"n": argument}})
    found = mongodb.find_one()["n"]
    assert (type(found), str(found)) == (type(expected), str(expected))


@pytest.mark.parametrize("argument", [0, True, "1"])
def test_a_pop_of_something_else_is_refused_though_there_is_nothing_to_take(mongodb: Any, argument: Any) -> None:
    with pytest.raises(WriteError) as refused:
        mongodb.update_one({"_id": 1}, {"$pop": {"a": argument}}, upsert=True)
    assert refused.value.code == 9
    assert mongodb.find_one() is None


def test_a_projection_stays_as_it_is_and_leaves_out_what_is_there(mongodb: Any) -> None:
    mongodb.insert_one({"_id": 1, "a": [1, 2], "b": 1, "c": "x"})
    one, others = {"a": {"$slice": 1}, "b": 1}, {"a": 0, "c.d": 0}
    for _ in range(2):
        assert mongodb.find_one({}, one) == {"_id": 1, "a": [1], "b": 1}
        assert mongodb.find_one({}, others) == {"_id": 1, "b": 1, "c": "x"}
    assert (one, others) == ({"a": {"$slice": 1}, "b": 1}, {"a": 0, "c.d": 0})


def test_an_upsert_by_a_field_and_what_is_in_it_is_refused(mongodb: Any) -> None:
    with pytest.raises(WriteError) as refused:
        mongodb.update_one({"_id": 1, "a": 1, "a.b": 2}, {"$set": {"c": 1}}, upsert=True)
    assert refused.value.code == 54


@pytest.mark.parametrize(
    "ask",
    [
        lambda things: things.find_one({}, {"x": "$a"}),
        lambda things: things.find_one({}, {"x": {"$literal": 1}}),
        lambda things: things.insert_one({"_id": Decimal128("1")}),
        lambda things: list(things.find().sort("a")),
        lambda things: things.distinct("a"),
        lambda things: things.update_one({"_id": 2, "a": 1, "a.b": {"$ne": 1}}, {"$set": {"b": 1}}, upsert=True),
    ],
    ids=["a computed field", "a constant", "an _id", "a sort", "distinct values", "an upsert"],
)
def test_what_mongomock_cannot_do_is_refused_as_such(ask: Callable[[Any], object]) -> None:
    with mongomock_collection() as things:
        things.insert_many([{"_id": 0, "a": Decimal128("1.5")}, {"_id": 1, "a": Decimal128("2.5")}])
        with pytest.raises(StandInLies, match="mongod"):
            ask(things)


def test_an_update_cannot_make_a_document_of_more_than_16_mb(mongodb: Any) -> None:
    mongodb.insert_one({"_id": 1, "a": "x" * 9_000_000})
    with pytest.raises(WriteError) as refused:
        mongodb.update_one({"_id": 1}, {"$set": {"b": "x" * 9_000_000}})
    assert refused.value.code in {17419, 10334}  # the second where a secondary could ask for it
    assert list(mongodb.find_one()) == ["_id", "a"]


def test_a_comment_changes_nothing(mongodb: Any) -> None:
    mongodb.insert_many([{"_id": 1}, {"_id": 2}], comment="c")
    assert mongodb.update_many({}, {"$inc": {"n": 1}}, comment="c").modified_count == 2
    assert mongodb.replace_one({"_id": 1}, {"n": 5}, comment="c").modified_count == 1
    assert mongodb.find_one({"_id": 1}, comment="c") == {"_id": 1, "n": 5}
