"""The verdict of every verb, where the driver cannot read the entity, or the server cannot compute what is to be shown of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import CodecOptions, UuidRepresentation, encode
from bson.binary import Binary
from bson.codec_options import TypeDecoder, TypeRegistry
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from onewrite import (
    Applied,
    Begun,
    Busy,
    Duplicate,
    Gone,
    HighWaterMark,
    IdSet,
    InSequence,
    Message,
    Rejected,
    SeenIds,
    Stale,
    Tombstones,
)
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Documents = Collection[dict[str, Any]]
Deliver = Callable[[Any, Message, Any], Any]
TOMBSTONES = Tombstones(timedelta(days=14))
EFFECT: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(days=1)}
M1, M2 = (Message(f"m{n}", source="s", sequence=n) for n in (1, 2))
LEDGERS: dict[str, Ledger] = {"ids": SeenIds(), "marks": HighWaterMark(), "sequence": InSequence()}
ledgers = pytest.mark.parametrize("ledger", LEDGERS.values(), ids=LEDGERS)
HERE, AFTER = {"_id": "o"}, ReturnDocument.AFTER
ADD, N_OR_0 = {"$inc": {"n": 1}}, {"$ifNull": ["$n", 0]}


# --- MongoDB: what the driver cannot read ---------------------------------------------------------------------------------


class _Raises(TypeDecoder):
    @property
    def bson_type(self) -> Any:
        return float

    def transform_bson(self, value: Any) -> Any:
        if value == 1.5:
            raise KeyError(value)
        return value


# What is in the document, in which "????" stands for bytes that are no UTF-8, and the options of the client.
UNREADABLE: dict[str, tuple[dict[str, Any], CodecOptions[Any]]] = {
    "a date": ({"at": DatetimeMS(10**15)}, CodecOptions()),
    "a date in an array": ({"lines": [{"at": DatetimeMS(-(10**15))}]}, CodecOptions(tz_aware=True)),
    "a text": ({"name": "????", "regex": {"$regex": "a"}, "data": b"x", "none": None}, CodecOptions()),
    "a name": ({"????": 1}, CodecOptions()),
    "a name and raw documents": ({"????": 1}, CodecOptions(document_class=RawBSONDocument)),
    "a type of the client's": ({"share": 1.5}, CodecOptions(type_registry=TypeRegistry([_Raises()]))),
}
unreadable = pytest.mark.parametrize(("fields", "codec"), UNREADABLE.values(), ids=UNREADABLE)

# Each takes a store, a message, and the filter that names the document.
WRITES: dict[str, Deliver] = {
    "update": lambda store, m, q: store.update_one(m, q, ADD),
    "upsert": lambda store, m, q: store.update_one(m, q, ADD, upsert=True),
    "pipeline": lambda store, m, q: store.update_one(m, q, [{"$set": {"n": {"$add": [N_OR_0, 1]}}}], upsert=True),
    "find before": lambda store, m, q: store.find_one_and_update(m, q, ADD, upsert=True),
    "find after": lambda store, m, q: store.find_one_and_update(m, q, ADD, return_document=AFTER, upsert=True),
    "remember": lambda store, m, q: store.remember(m, q),
    "update_batch": lambda store, m, q: store.update_batch([m], lambda _: {"filter": q, "update": ADD, "upsert": True}),
    "delete": lambda store, m, q: store.delete_one(m, q),
    "find and delete": lambda store, m, q: store.find_one_and_delete(m, q),
}
LOOKS: dict[str, Deliver] = {
    "preview": lambda store, m, q: store.preview(m, q),
    "begin_effect": lambda store, m, q: store.begin_effect(m, "charge", q, **EFFECT),
    "insert": lambda store, m, q: store.insert_one(m, q, rejected_ok=True),
    "several": lambda store, m, q: store.update_batch(
        [m, M2], lambda _: {"filter": {**q, "n": 1}, "update": ADD, "rejected_ok": True}
    ),
}


MakeStore = Callable[..., GuardedCollection]


@pytest.fixture
def make_store(collection: Documents) -> MakeStore:
    """A store of the test's collection, for a client with these options. The asynchronous store has the same flows."""

    def make(ledger: Ledger, codec: CodecOptions[Any] = UNREADABLE["a date"][1]) -> GuardedCollection:
        return GuardedCollection(collection.with_options(codec_options=codec), ledger, tombstones=TOMBSTONES)

    return make


def done(outcome: Any) -> list[tuple[type[Any], Any]]:
    """The outcomes of a call, as a list, with the names of their types and their entities."""
    outcomes: list[Any] = outcome if isinstance(outcome, list) else [outcome]
    return [(type(each), getattr(each, "entity", None)) for each in outcomes]


def put(collection: Documents, fields: Mapping[str, Any]) -> None:
    document: Any = RawBSONDocument(encode({"_id": "o", "n": 0, **fields}).replace(b"????", b"\xff\xfe\xfa\xf0"))
    collection.insert_one(document)


def n_of(collection: Documents) -> Any:
    return (collection.find_one(HERE, {"n": 1}) or {}).get("n")


@ledgers
@unreadable
@pytest.mark.parametrize("verb", WRITES)
def test_write_settles_if_document_is_unreadable(
    collection: Documents, make_store: MakeStore, ledger: Ledger, fields: Any, codec: Any, verb: str
) -> None:
    put(collection, fields)
    store = make_store(ledger, codec)
    assert done(WRITES[verb](store, M1, HERE)) == [(Applied, None)]
    assert done(WRITES[verb](store, M1, HERE)) == [(Duplicate, None)]
    assert n_of(collection) == (None if "delete" in verb else 0 if "remember" in verb else 1)


@ledgers
@unreadable
@pytest.mark.parametrize("verb", LOOKS)
def test_outcome_is_returned_if_document_is_unreadable(
    collection: Documents, make_store: MakeStore, ledger: Ledger, fields: Any, codec: Any, verb: str
) -> None:
    put(collection, fields)
    store = make_store(ledger, codec)
    expected: dict[str, list[type[Any]]] = {"preview": [Applied], "begin_effect": [Begun], "insert": [Rejected]}
    first = expected.get(verb, [Rejected, Rejected])
    assert done(LOOKS[verb](store, M1, HERE)) == [(kind, None) for kind in first]
    if verb == "begin_effect":
        assert done(LOOKS[verb](store, M1, HERE)) == done(store.update_one(M1, HERE, ADD)) == [(Busy, None)]
        assert done(store.open_effects(HERE)) == [(Busy, None)]
        return
    done(store.remember(M1, HERE))
    second: list[type[Any]] = [Duplicate, Rejected]
    if verb == "several" and isinstance(ledger, InSequence):  # it has remembered both refusals
        second = [Stale, Duplicate]
    assert done(LOOKS[verb](store, M1, HERE)) == [(kind, None) for kind in second[: len(first)]]


def test_set_with_an_unreadable_id_is_read_as_stored(collection: Documents, make_store: MakeStore) -> None:
    put(collection, {"messageIDs": ["????", "m0"]})
    store = make_store(IdSet("messageIDs"))
    assert [type(store.update_one(M1, HERE, ADD)) for _ in range(2)] == [Applied, Duplicate]
    assert n_of(collection) == 1


# --- MongoDB: responses that the driver cannot read -----------------------------------------------------------------------


def make_raw(fields: Mapping[str, Any]) -> RawBSONDocument:
    return RawBSONDocument(encode(fields).replace(b"????", b"\xff\xfe\xfa\xf0"))


# The `_id` of an entity, which the response to a failed creation quotes, and the options of the client.
QUOTED: dict[str, tuple[Any, CodecOptions[Any]]] = {
    "a date": (DatetimeMS(10**15), CodecOptions()),
    "a date in a document": ({"shop": 1, "at": DatetimeMS(-(10**15))}, CodecOptions(tz_aware=True)),
    "a text": (make_raw({"name": "????"}), CodecOptions()),
    "a text and raw documents": (make_raw({"name": "????"}), CodecOptions(document_class=RawBSONDocument)),
    "a name": (make_raw({"????": 1}), CodecOptions()),
    "a UUID": (Binary(b"short", 4), CodecOptions(uuid_representation=UuidRepresentation.STANDARD)),
    "a type of the client's": (1.5, CodecOptions(type_registry=TypeRegistry([_Raises()]))),
}
quoted = pytest.mark.parametrize(("key", "codec"), QUOTED.values(), ids=QUOTED)


def accept_lost_response(key: Any, kinds: list[type[Any]]) -> list[type[Any]]:
    """Accept `Duplicate` for a creation if no codec can read its response: whose mark is in the entity is then unknown."""
    is_lost = kinds[0] is Duplicate and key in (QUOTED["a name"][0], QUOTED["a UUID"][0])
    return [Applied, *kinds[1:]] if is_lost else kinds


CREATIONS: dict[str, Deliver] = {
    **{name: WRITES[name] for name in ("upsert", "pipeline", "find before", "find after", "remember", "update_batch")},
    "insert": lambda store, m, q: store.insert_one(m, {**q, "n": 1}, rejected_ok=True),
}


@ledgers
@quoted
@pytest.mark.parametrize("verb", CREATIONS)
def test_creation_settles_if_the_response_is_unreadable(
    collection: Documents, make_store: MakeStore, ledger: Ledger, key: Any, codec: Any, verb: str
) -> None:
    store = make_store(ledger, codec)
    create = CREATIONS[verb]
    kinds = [done(create(store, message, {"_id": key}))[0][0] for message in (M1, M1, M2, M2)]
    kinds = accept_lost_response(key, kinds)
    counts = isinstance(ledger, InSequence)
    second: list[type[Any]]
    second = [Rejected, Duplicate if counts else Rejected] if verb == "insert" else [Applied, Duplicate]
    assert kinds == [Applied, Duplicate, *second]
    n = 1 if verb == "insert" else 2
    assert collection.find_one({"_id": key}, {"n": 1, "_id": 0}) == ({} if verb == "remember" else {"n": n})


@ledgers
@quoted
@pytest.mark.parametrize("verb", ["delete_one", "find_one_and_delete"])
def test_delete_settles_if_the_response_is_unreadable(
    collection: Documents,
    make_store: MakeStore,
    ledger: Ledger,
    key: Any,
    codec: Any,
    verb: str,
) -> None:
    delete = getattr(make_store(ledger, codec), verb)
    kinds = [done(delete(message, {"_id": key}))[0][0] for message in (M1, M1, M2)]
    assert accept_lost_response(key, kinds) == [Applied, Duplicate, Gone]


# --- MongoDB: what the server cannot compute ------------------------------------------------------------------------------

DIVIDES = {"$expr": {"$gt": [{"$divide": ["$cents", "$parts"]}, 1]}}


def test_redelivery_is_recognized_if_condition_now_fails(collection: Documents, make_store: MakeStore) -> None:
    put(collection, {"cents": 100, "parts": 4})
    store, query = make_store(SeenIds()), {**HERE, **DIVIDES}
    assert done(store.find_one_and_update(M1, query, ADD))[0][0] is Applied
    assert done(store.update_one(M2, query, ADD))[0][0] is Applied
    collection.update_one(HERE, {"$set": {"parts": 0}})
    assert done(store.find_one_and_update(M1, query, ADD))[0][0] is Duplicate
    assert done(store.update_one(M2, query, ADD))[0][0] is Duplicate
    with pytest.raises(OperationFailure):
        done(store.update_one(Message("m3"), query, ADD))


# --- DynamoDB -------------------------------------------------------------------------------------------------------------

KEY = {"id": "o"}
LONG: dict[str, Any] = {"id": {"S": "o"}, "n": {"N": "0"}, "big": {"N": "1E+125"}, "set": {"NS": ["1E+125", "1"]}}


def _adding(shown: str) -> Callable[[Any, Message], Any]:
    add = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}, "ReturnValues": shown}
    return lambda store, message: store.update_item(message, Key=KEY, **add)


ITEM_WRITES: dict[str, Callable[[Any, Message], Any]] = {
    **{f"update {shown}": _adding(shown) for shown in ("NONE", "ALL_NEW", "ALL_OLD", "UPDATED_NEW")},
    "update what is long": lambda store, m: store.update_item(
        m, Key=KEY, UpdateExpression="SET n = big", ReturnValues="UPDATED_NEW"
    ),
    "remember": lambda store, m: store.remember(m, Key=KEY),
    "update_batch": lambda store, m: store.update_batch([m], lambda _: {"Key": KEY, "UpdateExpression": "SET n = big"})[0],
    "delete": lambda store, m: store.delete_item(m, Key=KEY, ReturnValues="ALL_OLD"),
}


@ledgers
@pytest.mark.parametrize("verb", ITEM_WRITES.values(), ids=ITEM_WRITES)
@pytest.mark.parametrize("typed", [False, True], ids=["table", "client"])
def test_write_settles_if_boto3_cannot_read_a_number(
    dynoxide: Dynoxide, dynamo: DynamoDBClient, table: str, ledger: Ledger, verb: Callable[[Any, Message], Any], typed: bool
) -> None:
    dynamo.put_item(TableName=table, Item=LONG)
    more: Any = {"tombstones": TOMBSTONES} | ({"table_name": table} if typed else {})
    store = GuardedTable(dynamo if typed else dynoxide.resource().Table(table), ledger, **more)
    assert [type(verb(store, M1)) for _ in range(2)] == [Applied, Duplicate]
    assert type(store.preview(M1, Key=KEY)) is Duplicate
    assert type(store.begin_effect(M2, "charge", Key=KEY, **EFFECT)) in (Begun, Gone)
