"""The stand-ins against the engines, on requests that are drawn at random. The same seed draws the same.

Each seed draws enough to meet every operator. A difference that one of them shows is a case for test_testing_standins.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeAlias

import boto3
import pytest
from botocore.exceptions import ClientError
from pymongo import MongoClient, ReturnDocument
from pymongo.errors import PyMongoError

from onewrite.testing import StandInLies, mongomock_collection
from onewrite.testing.servers.engines import Dynoxide
from onewrite.testing.standins.stores import moto_tables
from tests.support.ci import in_ci

pytestmark = pytest.mark.measured

SEEDS = range(4)
DRAWN = 250 if in_ci() else 50  # requests for each seed
Result: TypeAlias = tuple[Any, ...]


# ---------------------------------------------------------------- MongoDB

SCALARS = [0, 1, 2, -1, 1.0, 1.5, 2**31, "a", "b", "", "ab", None, True, False]
PATHS = ["a", "b", "c", "a.b", "a.0", "b.c", "a.b.c"]


def value(draw: Random, depth: int = 0) -> Any:
    share = draw.random()
    if depth < 2 and share < 0.12:
        return [value(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    if depth < 2 and share < 0.24:
        return {name: value(draw, depth + 1) for name in draw.sample("abc", draw.randint(0, 2))}
    return draw.choice(SCALARS)


def condition(draw: Random) -> Any:
    found: list[Callable[[], Any]] = [
        lambda: value(draw),
        lambda: value(draw),
        lambda: {draw.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]): value(draw)},
        lambda: {draw.choice(["$in", "$nin"]): [value(draw) for _ in range(draw.randint(0, 3))]},
        lambda: {"$exists": draw.choice([True, False])},
        lambda: {"$size": draw.randint(0, 3)},
        lambda: {"$mod": [draw.choice([1, 2, 3, -2]), draw.choice([0, 1, -1])]},
        lambda: {"$type": draw.choice(["string", "int", "double", "bool", "null", "array", "object", "number", 18])},
        lambda: {"$elemMatch": draw.choice([{"$gt": 0}, {"$eq": "a"}, {"a": 1}, {"$in": [1, "b"]}])},
        lambda: {"$all": [value(draw) for _ in range(draw.randint(1, 2))]},
        lambda: {"$regex": draw.choice(["^a", "b$", "A"]), "$options": "i"},
        lambda: {"$not": draw.choice([{"$gt": 0}, {"$in": ["a", None]}, {"$size": 1}, {"$regex": "^a"}, {"$type": "int"}])},
    ]
    return draw.choice(found)()


def query(draw: Random, depth: int = 0) -> dict[str, Any]:
    if depth < 2 and draw.random() < 0.2:
        return {draw.choice(["$and", "$or", "$nor"]): [query(draw, depth + 1) for _ in range(draw.randint(1, 2))]}
    return {draw.choice(PATHS): condition(draw) for _ in range(draw.choice([0, 1, 1, 2]))}


def pushed(draw: Random) -> Any:
    options: dict[str, Any] = {"$each": [value(draw) for _ in range(draw.randint(0, 2))]}
    for name, values in {"$slice": [-2, 0, 1], "$position": [0, 1, -1], "$sort": [1, -1]}.items():
        if draw.random() < 0.4:
            options[name] = draw.choice(values)
    return draw.choice([options, value(draw)])


OPERATORS: dict[str, Callable[[Random], Any]] = {
    "$set": value,
    "$setOnInsert": value,
    "$unset": lambda _: "",
    "$inc": lambda draw: draw.choice([1, 2, -1, 1.5, 0, 2**31, "a"]),
    "$mul": lambda draw: draw.choice([1, 2, -1, 1.5, 0]),
    "$min": value,
    "$max": value,
    "$push": pushed,
    "$addToSet": lambda draw: draw.choice([value(draw), {"$each": [value(draw) for _ in range(draw.randint(0, 2))]}]),
    "$pull": lambda draw: draw.choice([value(draw), {"$gt": 0}, {"$in": [1, "a"]}, {"a": 1}, {"$ne": 1}]),
    "$pullAll": lambda draw: [value(draw) for _ in range(draw.randint(0, 2))],
    "$pop": lambda draw: draw.choice([1, -1]),
    "$rename": lambda draw: draw.choice(["d", "e.f"]),
}


def update(draw: Random) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for _ in range(draw.choice([1, 1, 2])):
        operator = draw.choice(list(OPERATORS))
        found.setdefault(operator, {})[draw.choice(PATHS)] = OPERATORS[operator](draw)
    return found


def expression(draw: Random, depth: int = 0) -> Any:
    fields = ["$a", "$b", "$c", "$a.b", "$missing"]
    if depth == 2 or draw.random() < 0.5:
        return draw.choice([draw.choice(fields), {"$literal": draw.choice([1, "a", None])}])
    one, other = expression(draw, depth + 1), expression(draw, depth + 1)
    compared = {draw.choice(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]): [draw.choice(fields), draw.choice(fields)]}
    return draw.choice([{"$ifNull": [one, other]}, {"$cond": [compared, one, other]}, compared, {"$not": [compared]}])


def pipeline(draw: Random) -> list[dict[str, Any]]:
    stages: list[Callable[[], dict[str, Any]]] = [
        lambda: {"$set": {draw.choice(["a", "b", "d", "a.b"]): expression(draw)}},
        lambda: {"$set": {draw.choice(["a", "b"]): {"x": expression(draw)}}},
        lambda: {"$unset": draw.sample(["a", "b", "a.b", "zz"], draw.randint(1, 2))},
        lambda: {"$addFields": {"c": expression(draw), "e": expression(draw)}},
    ]
    return [draw.choice(stages)() for _ in range(draw.randint(1, 2))]


Ask: TypeAlias = Callable[[Any], Any]


def ask(draw: Random) -> tuple[str, Ask]:
    """What is asked of a collection, and how it reads in a report."""
    one = {"_id": 1}
    where = draw.choice([one, {**one, **query(draw)}, query(draw)])
    change = draw.choice([update(draw), update(draw), pipeline(draw)])
    upsert = draw.random() < 0.2 and where == one
    after = ReturnDocument.AFTER
    return draw.choice(
        [
            (f"find {where}", lambda things: sorted(found["_id"] for found in things.find(where))),
            (f"count {where}", lambda things: things.count_documents(where)),
            (
                f"update_one {where} {change} {upsert}",
                lambda things: counts(things.update_one(where, change, upsert=upsert)),
            ),
            (f"update_many {where} {change}", lambda things: counts(things.update_many(where, change))),
            (
                f"find_one_and_update {where} {change}",
                lambda things: things.find_one_and_update(one, change, upsert=upsert, return_document=after),
            ),
        ]
    )


def counts(result: Any) -> tuple[int, int, bool]:
    return result.matched_count, result.modified_count, result.upserted_id is not None


def on_collection(things: Any, documents: list[dict[str, Any]], ask: Ask) -> Result:
    things.delete_many({})
    things.insert_many(json.loads(json.dumps(documents)))
    try:
        answer = ask(things)
    except StandInLies as lie:
        return "refused", str(lie)
    except PyMongoError as error:
        answer = type(error).__name__, getattr(error, "code", None)
    return "answered", exact(answer), exact(list(things.find().sort("_id", 1)))


def exact(value: Any) -> Any:
    """A form in which values of different types and documents with their keys in another order are not equal."""
    if isinstance(value, dict):
        return [(name, exact(inner)) for name, inner in value.items()]
    if isinstance(value, list | tuple):
        return [exact(inner) for inner in value]
    return type(value).__name__.replace("Int64", "int"), value


def anyhow(form: Any) -> Any:
    """The same, whatever the order."""
    return sorted(map(anyhow, form), key=repr) if isinstance(form, list | tuple) else form


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.few(1)
def test_mongomock_answers_as_mongod_does(mongo: MongoClient[dict[str, Any]], seed: int) -> None:
    draw = Random(f"mongodb/{seed}")
    real = mongo.test.differential
    refused = 0
    with mongomock_collection() as stand_in:
        for _ in range(DRAWN):
            documents = [
                {"_id": number, **{name: value(draw) for name in draw.sample("abc", draw.randint(0, 3))}}
                for number in (1, 2)
            ]
            words, request = ask(draw)
            expected, found = on_collection(real, documents, request), on_collection(stand_in, documents, request)
            refused += found[0] == "refused"
            if found[0] == "refused":
                continue
            if (
                "[{'$" in words
            ):  # after a pipeline, a field that it removes and adds again is where the server finds it easiest
                expected, found = anyhow(expected), anyhow(found)
            assert found == expected, f"{words} on {documents}"
    assert refused < DRAWN / 20  # a stand-in that refuses much is no use


def ask_of_array(draw: Random, documents: list[dict[str, Any]]) -> tuple[str, Ask]:
    """An update of the place in an array that the filter finds, by one condition on it or by any others."""
    array = draw.choice("ab")
    member = draw.choice(documents[0][array] or [1])
    path, of = draw.choice(
        [(f"{array}.{name}", inner) for name, inner in member.items()] if isinstance(member, dict) else [(array, member)]
    )
    found = draw.choice(
        [of, {"$in": [of, 7]}, {draw.choice(["$eq", "$gte", "$lte"]): of}, {"$elemMatch": {"$eq": of}}, condition(draw)]
    )
    where = draw.choice([{path: found}, {"_id": 1, path: found}, {path: found, **query(draw)}])
    operator = draw.choice(["$set", "$set", *[name for name in OPERATORS if name != "$rename"]])
    change = {operator: {array + draw.choice([".$", ".$", ".$.a", ".$.c.b"]): OPERATORS[operator](draw)}}
    if draw.random() < 0.5:
        return f"update_one {where} {change}", lambda things: counts(things.update_one(where, change))
    return f"update_many {where} {change}", lambda things: counts(things.update_many(where, change))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.few(1)
def test_mongomock_updates_the_member_that_mongod_does_or_refuses(mongo: MongoClient[dict[str, Any]], seed: int) -> None:
    draw = Random(f"positional/{seed}")
    changed = 0
    with mongomock_collection() as stand_in:
        for _ in range(2 * DRAWN):
            documents: list[dict[str, Any]] = [
                {"_id": number, **{name: [value(draw, 1) or {"a": 1} for _ in range(draw.randint(0, 4))] for name in "ab"}}
                for number in (1, 2)
            ]
            words, request = ask_of_array(draw, documents)
            expected = on_collection(mongo.test.differential, documents, request)
            found = on_collection(stand_in, documents, request)
            assert found[0] == "refused" or found == expected, f"{words} on {documents}"
            changed += found[0] == "answered" and found[2] != exact(documents)
    assert changed > DRAWN / 10


# ---------------------------------------------------------------- DynamoDB

TABLES = ("things", "others")
KEY = {"id": {"S": "k1"}}
TYPED: list[dict[str, Any]] = [
    {"S": "x"}, {"S": ""}, {"N": "1"}, {"N": "-1.5"}, {"N": "10"}, {"BOOL": True}, {"NULL": True}, {"SS": ["a", "b"]},
    {"NS": ["1", "2"]}, {"B": b"x"}, {"BS": [b"x"]}, {"L": [{"S": "x"}, {"N": "1"}]}, {"L": []}, {"M": {"b": {"N": "1"}}}, {"M": {}},
]  # fmt: skip
WHERE = ["a", "b", "c", "a.b", "a[0]", "b[5]", "b.c", "zz"]
# dynoxide does these although AWS refuses them, as moto does: AWS looks at the types of operands before it reads any item.
LAXER = re.compile("Incorrect operand type|BETWEEN operator|document path provided|document paths overlap")

NAMED_FOR = [
    ("ConditionalCheckFailedException", ("ValidationException", [])),
    ("ValidationException", ("TransactionCanceledException", ["ValidationError"])),
]


class Expressions:
    """Draws expressions, and keeps the values for their placeholders."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.values: dict[str, Any] = {}

    def value(self, *of: dict[str, Any]) -> str:
        name = f":v{len(self.values)}"
        self.values[name] = self.draw.choice(of or TYPED)
        return name

    def path(self) -> str:
        return self.draw.choice(WHERE)

    def condition(self, depth: int = 0) -> str:
        draw, path = self.draw, self.path()
        found: list[Callable[[], str]] = [
            lambda: f"{path} {draw.choice(['=', '<>'])} {self.path() if draw.random() < 0.5 else self.value()}",
            lambda: f"{path} {draw.choice(['<', '<=', '>', '>='])} {self.value({'S': 'x'}, {'N': '1'})}",
            lambda: f"size({path}) > {self.value({'N': '0'})}",
            lambda: f"{path} BETWEEN {self.value({'N': '0'})} AND {self.value({'N': '5'})}",
            lambda: f"{path} IN ({self.value()}, {self.value()})",
            lambda: f"attribute_exists({path})",
            lambda: f"attribute_not_exists({path})",
            lambda: f"attribute_type({path}, {self.value({'S': 'S'}, {'S': 'N'}, {'S': 'M'}, {'S': 'NULL'})})",
            lambda: f"begins_with({path}, {self.value({'S': 'x'}, {'B': b'x'})})",
            lambda: f"contains({path}, {self.value({'S': 'a'}, {'N': '1'}, {'B': b'x'})})",
        ]
        if depth < 2:
            found.append(lambda: f"({self.condition(depth + 1)} {draw.choice(['AND', 'OR'])} {self.condition(depth + 1)})")
            found.append(lambda: f"NOT ({self.condition(depth + 1)})")
        return draw.choice(found)()

    def change(self) -> str:
        # dynoxide fills a list up with nulls where something is set far beyond its end. AWS appends it.
        draw, path = self.draw, self.draw.choice([one for one in WHERE if one != "b[5]"])
        found: list[Callable[[], str]] = [
            lambda: f"SET {path} = {self.value()}",
            lambda: f"SET {path} = {self.path()}",
            lambda: f"SET {path} = {self.path()} {draw.choice('+-')} {self.value({'N': '3'})}",
            lambda: f"SET {path} = if_not_exists({self.path()}, {self.value({'N': '0'})}) + {self.value({'N': '3'})}",
            lambda: (
                f"SET {path} = list_append(if_not_exists({path}, {self.value({'L': []})}), {self.value({'L': [{'S': 'q'}]})})"
            ),
            lambda: f"REMOVE {draw.choice(['a', 'b', 'c'])}",
            lambda: f"ADD {path} {self.value({'N': '5'}, {'SS': ['c']}, {'NS': ['2', '3']}, {'S': 'x'})}",
            lambda: f"DELETE {path} {self.value({'SS': ['a']}, {'NS': ['2']}, {'SS': ['a', 'b']}, {'N': '1'})}",
            lambda: f"SET {path} = {self.value()} REMOVE c ADD zz {self.value({'N': '1'})}",
        ]
        return draw.choice(found)()

    def into(self, request: dict[str, Any]) -> dict[str, Any]:
        return {**request, "ExpressionAttributeValues": self.values} if self.values else request


def item(draw: Random, name: str = "k1") -> dict[str, Any]:
    return {"id": {"S": name}, **{field: draw.choice(TYPED) for field in draw.sample("abc", draw.randint(0, 3))}}


def writes(draw: Random) -> dict[str, Any]:
    """A BatchWriteItem, right or wrong in one of the ways in which one can be wrong."""

    def one() -> dict[str, Any]:
        name = draw.choice(["k1", "k2", "k3"])
        return draw.choice([{"PutRequest": {"Item": item(draw, name)}}, {"DeleteRequest": {"Key": {"id": {"S": name}}}}])

    def many(count: int) -> list[Any]:
        return [{"PutRequest": {"Item": {"id": {"S": f"n{number}"}}}} for number in range(count)]

    return draw.choice(
        [
            {"things": [one()], "others": [one()]},
            {"things": [one(), one()]},
            {"things": [one(), one()], "others": [one()]},
            {"things": many(draw.choice([25, 26]))},
            {"things": many(13), "others": many(draw.choice([12, 13]))},
            {"things": [{"DeleteRequest": {"Key": {"id": {"N": "1"}}}}]},
            {"things": [{"PutRequest": {"Item": {"id": {"N": "1"}}}}]},
            {"things": [one()], "nowhere": [one()]},
        ]
    )


def keyed(draw: Random, request: dict[str, Any]) -> dict[str, Any]:
    keys = [KEY, KEY, KEY, {"id": {"N": "1"}}, {"id": {"S": "k1"}, "x": {"S": "y"}}, {"x": {"S": "k1"}}, {"id": {"S": ""}}]
    return {**request, "Key": draw.choice(keys)}


def action(draw: Random, name: str) -> dict[str, Any]:
    """One operation of a transaction."""
    drawn = Expressions(draw)
    table = {"TableName": draw.choice(TABLES)}
    kind = draw.choice(["Put", "Update", "Delete", "ConditionCheck"])
    request: dict[str, Any] = {**table, "Item": item(draw, name)} if kind == "Put" else {**table, "Key": {"id": {"S": name}}}
    if kind == "Update":
        request["UpdateExpression"] = drawn.change()
    if kind == "ConditionCheck" or draw.random() < 0.4:
        request["ConditionExpression"] = drawn.condition()
    return {kind: drawn.into(request)}


def request(draw: Random) -> tuple[str, dict[str, Any]]:
    drawn, table = Expressions(draw), {"TableName": "things"}

    def guard() -> dict[str, str]:
        return {"ConditionExpression": drawn.condition()} if draw.random() < 0.4 else {}

    shown = draw.choice(["a, b", "a", "id, c", "a, a.b"])
    match draw.choice(
        ["update", "update", "update", "put", "delete", "get", "writes", "reads", "write all", "read all", "scan"]
    ):
        case "update":
            returns = draw.choice(["NONE", "ALL_NEW", "ALL_OLD", "UPDATED_NEW"])
            change = {"UpdateExpression": drawn.change(), "ReturnValues": returns}
            return "update_item", drawn.into({**keyed(draw, table), **change, **guard()})
        case "put":
            key: dict[str, Any] = draw.choice([{}, {}, {"id": {"N": "1"}}, {"id": {"NULL": True}}])
            return "put_item", drawn.into({**table, "Item": {**item(draw), **key}, "ReturnValues": "ALL_OLD", **guard()})
        case "delete":
            return "delete_item", drawn.into({**keyed(draw, table), "ReturnValues": "ALL_OLD", **guard()})
        case "get":
            how: dict[str, Any] = draw.choice([{}, {"ProjectionExpression": shown}, {"AttributesToGet": ["a", "id"]}])
            return "get_item", {**keyed(draw, table), **how}
        case "writes":
            return "batch_write_item", {"RequestItems": writes(draw)}
        case "reads":
            keys = draw.choice(
                [[KEY], [KEY, KEY], [{"id": {"N": "1"}}], [{"id": {"S": f"n{number}"}} for number in range(101)]]
            )
            how = draw.choice([{}, {"ProjectionExpression": "a"}, {"AttributesToGet": ["a"]}])
            return "batch_get_item", {"RequestItems": {"things": {"Keys": keys, **how}, "others": {"Keys": [KEY]}}}
        case "write all":
            actions = [action(draw, name) for name in draw.sample(["k1", "k2", "k3"], draw.randint(1, 3))]
            wrong = [
                {"Put": {**table, "Item": {"id": {"N": "1"}}}},
                {"Delete": {**table, "Key": {"id": {"N": "1"}}}},
                actions[0],
            ]
            return "transact_write_items", {"TransactItems": [*actions, *draw.choice([[], [], [], [draw.choice(wrong)]])]}
        case "read all":
            get = {"Get": {**table, "Key": KEY}}
            # dynoxide shows the key of what is projected, and AWS does not.
            projected = {"Get": {**table, "Key": KEY, "ProjectionExpression": "id, a"}}
            gets = draw.choice(
                [[get], [projected], [get, get], [{"Get": {**table, "Key": {"id": {"N": "1"}}}}], [get] * 101]
            )
            return "transact_get_items", {"TransactItems": gets}
        case _:
            return "scan", drawn.into({**table, "FilterExpression": drawn.condition()})


def on_tables(client: Any, items: dict[str, dict[str, Any]], method: str, arguments: dict[str, Any]) -> Result:
    for table in TABLES:
        for found in client.scan(TableName=table)["Items"]:
            client.delete_item(TableName=table, Key={"id": found["id"]})
    for table, found in items.items():
        client.put_item(TableName=table, Item=found)
    text = ""
    try:
        answer = getattr(client, method)(**arguments)
    except StandInLies as lie:
        return "refused", str(lie)
    except ClientError as error:
        # In which order a transaction is checked that is wrong in two ways is the engine's own affair.
        codes = [reason.get("Code") for reason in error.response.get("CancellationReasons", [])]
        reasons = ["ValidationError"] if "ValidationError" in codes else codes
        answer, text = (error.response["Error"]["Code"], reasons), error.response["Error"]["Message"]
    held = [sorted(map(repr, plain(client.scan(TableName=table)["Items"]))) for table in TABLES]
    return "answered", plain(answer), held, text


def plain(value: Any) -> Any:
    """Without metadata, and with items and sets in one order."""
    if isinstance(value, dict):
        return {
            name: sorted(map(repr, inner)) if name in ("SS", "NS", "BS") else plain(inner)
            for name, inner in sorted(value.items())
            if name != "ResponseMetadata"
        }
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture
def clients(dynoxide: Dynoxide) -> Iterator[tuple[Any, Any]]:
    """Of dynoxide, and of moto."""
    real = dynoxide.client()
    for table in TABLES:
        dynoxide.table(table, key="id")
    with moto_tables() as make:
        for table in TABLES:
            make(table, "id")
        yield real, boto3.client("dynamodb", region_name="eu-west-1")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.few(1)
def test_moto_answers_as_dynoxide_does(clients: tuple[Any, Any], seed: int) -> None:
    draw = Random(f"dynamodb/{seed}")
    real, stand_in = clients
    refused = 0
    for _ in range(DRAWN):
        items = {table: item(draw) for table in TABLES if draw.random() < 0.7}
        method, arguments = request(draw)
        expected, found = on_tables(real, items, method, arguments), on_tables(stand_in, items, method, arguments)
        refused += found[0] == "refused"
        if found[0] == "refused" or LAXER.search(found[3]):
            continue
        # Of no item, dynoxide makes one of the key alone where something is removed, and shows one as it was. AWS does neither.
        of_none = "'UpdateExpression': 'REMOVE" in repr(arguments) or arguments.get("ReturnValues") == "ALL_OLD"
        compared = slice(1) if of_none and ("things" not in items or "TransactItems" in arguments) else slice(3)
        # Of two mistakes in one request, each names another.
        one_of_two = isinstance(found[1], tuple) and (found[1][0], expected[1]) in NAMED_FOR
        assert one_of_two or found[compared] == expected[compared], (
            f"{method} {arguments} on {items}: {found[3]!r} and not {expected[3]!r}"
        )
    assert refused < DRAWN / 20
