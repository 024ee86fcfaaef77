"""Whether two names mean one entity is what the engine says, for writes, effects, and relays."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from boto3.dynamodb.types import Binary as DynamoBinary
from bson import (
    SON,
    Binary,
    DatetimeMS,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    UuidRepresentation,
)
from bson.code import Code
from bson.codec_options import CodecOptions
from pymongo import MongoClient
from pymongo.collection import Collection

from onewrite import Applied, Begun, Event, InvalidUpdate, Message, Outbox, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.layout import canonical as item_name
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb.layout import canonical as document_name
from onewrite.outbox import Outgoing, Relay
from onewrite.testing.servers.engines import Dynoxide
from tests.engines.stores import places

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

M = Message("m1")
EFFECT: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}
STANDARD: CodecOptions[Any] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
_NAIVE = datetime(2026, 11, 24, 12, 0, 0, 123_456)  # noqa: DTZ001  # pymongo takes it for UTC

# Values of which some are one `_id` to MongoDB, and some look as if they were.
IDS: list[Any] = [
    *(1, 1.0, Int64(1), Decimal128("1"), Decimal128("1.0"), Decimal128("10E-1"), True, "1", b"1"),
    *(0, 0.0, -0.0, Decimal128("0"), Decimal128("-0"), Decimal128("0E+3"), False, ""),
    *(0.1, Decimal128("0.1"), 0.5, Decimal128("0.5"), 2**53, float(2**53), 2**53 + 1, Decimal128(str(2**53 + 1))),
    *(float("nan"), -float("nan"), Decimal128("NaN"), Decimal128("sNaN")),
    *(float("inf"), Decimal128("Infinity"), -float("inf"), Decimal128("-Infinity")),
    *({"a": 1, "b": 2}, {"b": 2, "a": 1}, SON([("a", 1.0), ("b", 2)]), {"a": True, "b": 2}, {"a": 1}, {"a": [1, {"b": 2}]}),
    *({"a": [1.0, {"b": Decimal128("2")}]}, {"a": [1, {"b": 2}, None]}, {"a": None}, {}),
    *(_NAIVE, _NAIVE.replace(tzinfo=UTC), _NAIVE.replace(microsecond=123_000), _NAIVE.replace(microsecond=124_000)),
    *(_NAIVE.replace(tzinfo=timezone(timedelta(hours=1))), DatetimeMS(_NAIVE), Timestamp(1, 1), Timestamp(1, 2)),
    *(UUID(int=1), Binary.from_uuid(UUID(int=1)), Binary(UUID(int=1).bytes, 3), UUID(int=1).bytes),
    *(Binary(b"1"), Binary(b"1", 128), ObjectId("6" * 24), "6" * 24, MinKey(), MaxKey()),
    *("é", "e\u0301", "A", "a", {"x": Regex("a", "i")}, {"x": Regex("a", "m")}),
    *(DBRef("c", 1), DBRef("c", 1.0), DBRef("c", 1, "d"), {"d": DBRef("c", 1)}, {"d": DBRef("c", Int64(1))}),
    *(Code("a"), Code("a", {}), Code("a", {"n": 1}), Code("a", {"n": 1.0})),
]


@pytest.fixture(scope="module")
def documents(mongo: MongoClient[dict[str, Any]]) -> Callable[[], Collection[dict[str, Any]]]:
    return lambda: mongo.test.get_collection(next(places), codec_options=STANDARD)


def test_ids_are_equal_exactly_if_mongodb_treats_them_as_equal(documents: Callable[[], Collection[dict[str, Any]]]) -> None:
    collection, wrong = documents(), []
    each_other = {str(place): [{"$match": {"_id": {"$eq": other}}}] for place, other in enumerate(IDS)}
    for one in IDS:
        collection.delete_many({})
        collection.insert_one({"_id": one})
        (found,) = collection.aggregate([{"$facet": each_other}])
        wrong += [
            (one, other)
            for place, other in enumerate(IDS)
            if (len(found[str(place)]) == 1)
            is not (document_name({"_id": one}, STANDARD) == document_name({"_id": other}, STANDARD))
        ]
    assert wrong == []


# --- what asks for it ---------------------------------------------------------------------------------------------------

PAIRS: list[tuple[Any, Any, bool]] = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
    (1, True, False),
    (1, Decimal128("1"), True),
    (UUID(int=1), Binary.from_uuid(UUID(int=1)), True),
    (_NAIVE, _NAIVE.replace(tzinfo=UTC, microsecond=123_999), True),
    (Code("a"), "a", False),
]
pairs = pytest.mark.parametrize(("one", "other", "is_same"), PAIRS, ids=repr)


def _store(collection: Collection[dict[str, Any]], *ids: Any) -> GuardedCollection:
    for each in ids:
        if collection.count_documents({"_id": {"$eq": each}}) == 0:
            collection.insert_one({"_id": each, "n": 0})
    return GuardedCollection(collection, SeenIds())


@pytest.mark.parametrize(
    "query",
    [{"_id": {"$eq": {"$gt": ""}}}, {"_id": {"$eq": re.compile("vic")}}, {"$and": [{"_id": {"$eq": {"$ne": 1}}}]}],
    ids=repr,
)
def test_query_operator_inside_eq_is_refused(
    documents: Callable[[], Collection[dict[str, Any]]], query: dict[str, Any]
) -> None:
    """As where {"$eq": ...} is to keep operators out that come from outside."""
    collection = documents()
    store = GuardedCollection(collection, SeenIds(), outbox=Outbox("shop"), tombstones=Tombstones(timedelta(days=14)))
    store.update_one(M, {"_id": "victim"}, {"$set": {"n": 1}}, upsert=True, emit=[Event("Paid", 1)])
    before, told = collection.find_one(), list[Outgoing]()
    update: Any = {"$set": {"n": 2}}
    calls: list[Callable[[], object]] = [
        lambda: store.update_one(M, query, update),
        lambda: store.find_one_and_delete(M, query),
        lambda: store.remember(M, query),
        lambda: store.preview(M, query),
        lambda: store.begin_effect(M, "charge", query, **EFFECT),
        lambda: store.open_effects(query),
        lambda: Relay(store, told.extend).flush(query),
    ]
    for call in calls:
        with pytest.raises(InvalidUpdate):
            call()
    assert store.find_one(query) is None
    assert (collection.find_one(), told) == (before, [])


@pairs
def test_effect_can_be_finished_with_any_equal_id(
    documents: Callable[[], Collection[dict[str, Any]]], one: Any, other: Any, is_same: bool
) -> None:
    store = _store(documents(), one, other)
    effect = store.begin_effect(M, "charge", {"_id": {"$eq": one}}, **EFFECT)
    assert isinstance(effect, Begun)
    if is_same:
        assert isinstance(store.remember(M, {"_id": {"$eq": other}}, finishes=effect), Applied)
    else:
        with pytest.raises(InvalidUpdate, match="belongs to a different entity"):
            store.remember(M, {"_id": {"$eq": other}}, finishes=effect)


@pytest.mark.parametrize(
    ("query", "is_conditional"),
    [
        ({"$and": [{"_id": "o"}]}, False),
        ({"$and": [{"$and": [{"_id": {"$eq": "o"}}]}]}, False),
        ({"$and": [{"_id": "o"}, {"n": 0}]}, True),
        ({"_id": {"$in": ["o", "p"]}, "$and": [{"_id": "o"}]}, True),
        ({"n": 0, "$and": [{"_id": "o"}]}, True),
        ({"$and": [{"n": {"$lt": 5}}, {"_id": "o"}, {"$or": [{"n": 0}, {"n": 1}]}]}, True),
    ],
    ids=repr,
)
def test_entity_can_be_identified_inside_and(
    documents: Callable[[], Collection[dict[str, Any]]], query: dict[str, Any], is_conditional: bool
) -> None:
    store = _store(documents(), "o", "p")
    update = {"$inc": {"n": 10}}
    assert isinstance(store.update_one(M, query, update), Applied)
    assert store.find_one({"_id": "o"}) == {"_id": "o", "n": 10}
    assert store.find_one({"_id": "p"}) == {"_id": "p", "n": 0}
    assert type(store.update_one(M, query, update)).__name__ == "Duplicate"
    assert isinstance(store.preview(M, query), type(store.update_one(M, query, update)))
    effect = store.begin_effect(Message("m2"), "charge", {"_id": "o"}, **EFFECT)
    assert isinstance(effect, Begun)
    if is_conditional:
        with pytest.raises(InvalidUpdate, match="can't have a condition"):
            store.remember(Message("m2"), query, finishes=effect)
    else:
        assert isinstance(store.remember(Message("m2"), query, finishes=effect), Applied)
        created = {"$and": [{"_id": "new"}]}
        assert isinstance(store.update_one(M, created, update, upsert=True), Applied)
        assert store.find_one({"_id": "new"}) == {"_id": "new", "n": 10}


# --- DynamoDB -----------------------------------------------------------------------------------------------------------


class Key(str, Enum):  # noqa: UP042  # a StrEnum's text is its value
    ONE = "1"


KEYS: list[Any] = [
    *(Key.ONE, "1", "", "é", "e\u0301", "1.0", "S"),
    *(b"1", DynamoBinary(b"1"), DynamoBinary(bytearray(b"1")), bytearray(b"1"), b"S"),
    *(1, Decimal(1), Decimal("1.0"), Decimal("1E+0"), Decimal("10E-1"), 0, Decimal("-0"), Decimal("0E5")),
    *(10**37, Decimal(10) ** 37, Decimal("1e-130"), Decimal("0.1")),
]


def test_keys_are_equal_exactly_if_dynamodb_treats_them_as_equal(dynoxide: Dynoxide, dynamo: DynamoDBClient) -> None:
    kinds = {"S": str, "N": (int, Decimal), "B": (bytes, bytearray, DynamoBinary)}
    for kind, types in kinds.items():
        name = next(places)
        dynoxide.table(name, "id", types={"id": kind})
        store = GuardedTable(dynamo, SeenIds(), table_name=name)
        values = [value for value in KEYS if isinstance(value, types) and value != ""]  # type: ignore[arg-type]  # a dict of types
        for n, (one, other) in enumerate(itertools.product(values, values)):
            message = Message(f"a{n}")
            is_same = item_name({"id": one}) == item_name({"id": other})
            assert isinstance(
                store.update_item(
                    message, Key={"id": one}, UpdateExpression="SET n = :n", ExpressionAttributeValues={":n": n}
                ),
                Applied,
            )
            found = store.get_item(Key={"id": other}, ConsistentRead=True)
            assert ((found or {}).get("n") == n) is is_same, (one, other)
