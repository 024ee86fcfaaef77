"""MongoDB: a filter names one entity, and the collection keeps one entity one; otherwise nothing is sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from bson import CodecOptions, UuidRepresentation
from bson.regex import Regex
from pymongo import MongoClient
from pymongo.collation import Collation
from pymongo.collection import Collection

from onewrite import (
    Applied,
    ConfigurationError,
    Duplicate,
    Event,
    HighWaterMark,
    IdSet,
    InSequence,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    Outbox,
    Outcome,
    SeenIds,
)
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay
from tests.engines.ledgers import AnyLedger, ledgers
from tests.engines.stores import increment, mongo_state

pytestmark = pytest.mark.measured

Documents = Collection[dict[str, Any]]
Client = MongoClient[dict[str, Any]]
M1, M2 = (Message(f"m-{n}", source="s", sequence=n) for n in (1, 2))
ADA = {"email": "ada@example.org"}
NO_CASE = Collation(locale="en", strength=2)

Call = Callable[[GuardedCollection, dict[str, Any]], Any]
CALLS: dict[str, Call] = {
    "update_one": lambda c, query: c.update_one(M1, query, {"$inc": {"n": 1}}),
    "upsert": lambda c, query: c.update_one(M1, query, {"$inc": {"n": 1}}, upsert=True),
    "pipeline": lambda c, query: c.update_one(M1, query, [{"$set": {"n": 1}}]),
    "find_one_and_update": lambda c, query: c.find_one_and_update(M1, query, {"$inc": {"n": 1}}),
    "remember": lambda c, query: c.remember(M1, query),
    "preview": lambda c, query: c.preview(M1, query),
    "explain": lambda c, query: c.explain("update_one", M1, query, {"$inc": {"n": 1}}),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)

NAMING_NONE: dict[str, dict[str, Any]] = {
    "empty": {},
    "another_field": ADA,
    "several_ids": {"_id": {"$in": ["e", "f"]}},
    "none": {"_id": None},
    "equal_to_none": {"_id": {"$eq": None}},
    "pattern": {"_id": re.compile("e")},
    "bson_pattern": {"_id": Regex("e")},
    "not": {"_id": {"$ne": "f"}},
    "or": {"$or": [{"_id": "e"}, {"_id": "f"}]},
    "and": {"$and": [{"_id": {"$in": ["e"]}}]},
    "inside": {"_id.part": "e"},
}


@pytest.mark.parametrize("representation", [UuidRepresentation.STANDARD, UuidRepresentation.PYTHON_LEGACY])
def test_events_of_a_document_with_uuid_id_are_published(collection: Documents, representation: int) -> None:
    documents: Documents = collection.with_options(CodecOptions(uuid_representation=representation))
    orders = GuardedCollection(documents, SeenIds(), outbox=Outbox("orders"))
    key, sent = {"_id": UUID(int=1)}, list[Outgoing]()
    orders.update_one(M1, key, {"$inc": {"n": 1}}, upsert=True, emit=[Event("A", 1)])
    relay = Relay(orders, sent.extend)
    assert relay.sweep().published == 1
    state = relay.peek(sent[0].source)
    assert state is not None
    assert state.sent == 1


@calls
@pytest.mark.parametrize("query", NAMING_NONE.values(), ids=NAMING_NONE)
def test_filter_that_does_not_identify_one_entity_is_refused(
    collection: Documents, query: dict[str, Any], call: Call
) -> None:
    collection.insert_many([{"_id": "e", **ADA}, {"_id": "f", **ADA}])
    before = list(collection.find())
    with pytest.raises(InvalidUpdate, match=r"identif|is a query"):
        call(GuardedCollection(collection, SeenIds()), query)
    assert list(collection.find()) == before


# ---------------------------------------------------------------- key=


@ledgers
def test_fields_with_a_unique_index_identify_an_entity(collection: Documents, ledger: AnyLedger) -> None:
    collection.create_index("email", unique=True)
    guarded = GuardedCollection(collection, ledger, key=("email",))
    for expected in (Applied, Duplicate):
        assert isinstance(guarded.update_one(M1, ADA, {"$inc": {"n": 1}}, upsert=True), expected)
    assert isinstance(guarded.find_one_and_update(M2, {"email": {"$eq": ADA["email"]}}, {"$inc": {"n": 1}}), Applied)
    for outcome in (guarded.preview(M2, ADA), guarded.remember(M2, ADA), guarded.update_one(M2, ADA, {"$inc": {"n": 1}})):
        assert isinstance(outcome, Duplicate)
        assert outcome.entity is not None
        assert outcome.entity["n"] == 2
    assert collection.count_documents({}) == 1


def test_entity_is_identified_by_key_fields_or_id(collection: Documents) -> None:
    collection.create_index([("tenant", 1), ("email", -1)], unique=True)
    guarded = GuardedCollection(collection, SeenIds(), key=["email", "tenant"])
    for tenant in ("a", "b"):
        assert isinstance(guarded.update_one(M1, {**ADA, "tenant": tenant}, {"$inc": {"n": 1}}, upsert=True), Applied)
    with pytest.raises(InvalidUpdate, match="email, tenant"):
        guarded.update_one(M1, ADA, {"$inc": {"n": 1}})
    for document in collection.find():
        assert isinstance(guarded.update_one(M1, {"_id": document["_id"]}, {"$inc": {"n": 1}}), Duplicate)


@calls
def test_identity_fields_without_a_unique_index_are_refused(collection: Documents, call: Call) -> None:
    collection.insert_many([ADA | {"_id": "e"}, ADA | {"_id": "f"}])
    collection.create_index("email")
    before = list(collection.find())
    guarded = GuardedCollection(collection, SeenIds(), key=("email",))
    if call is CALLS["explain"]:  # it sends nothing, and so asks for nothing
        assert call(guarded, ADA)["filter"]["email"] == ADA["email"]
        return
    with pytest.raises(ConfigurationError, match="unique index"):
        call(guarded, ADA)
    assert list(collection.find()) == before


RENAMING: dict[str, Any] = {
    "set": {"$set": {"email": "new@example.org"}},
    "rename_here": {"$rename": {"mail": "email"}},
    "set_on_insert": {"$setOnInsert": {"email": "new@example.org"}},
    "pipeline_add": [{"$addFields": {"email": {"$concat": ["$name", "@example.org"]}}}],
    "pipeline_unset": [{"$unset": ["n", "email"]}],
}


@pytest.mark.parametrize("update", RENAMING.values(), ids=RENAMING)
@pytest.mark.parametrize("writer", ["update_one", "find_one_and_update"])
def test_update_of_an_identity_field_is_refused(collection: Documents, writer: str, update: Any) -> None:
    collection.create_index("email", unique=True)
    collection.insert_one({**ADA, "_id": "e", "n": 1})
    guarded = GuardedCollection(collection, SeenIds(), key=("email",))
    with pytest.raises(InvalidUpdate, match="key="):
        getattr(guarded, writer)(M1, ADA, update, upsert=True)
    assert list(collection.find()) == [{**ADA, "_id": "e", "n": 1}]


# ---------------------------------------------------------------- collections that keep no entity one


@ledgers
def test_insert_into_a_time_series_is_refused(mongo: Client, collection: Documents, ledger: AnyLedger) -> None:
    series = mongo.test.create_collection(f"{collection.name}-series", timeseries={"timeField": "at"})
    guarded = GuardedCollection(series, ledger)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="time series"):
            guarded.insert_one(M1, {"_id": "e", "n": 1})
    assert series.count_documents({}) == 0


@pytest.fixture
def no_case(mongo: Client, collection: Documents) -> Documents:
    """A collection that does not tell upper case from lower."""
    return mongo.test.create_collection(f"{collection.name}-no-case", collation=NO_CASE)


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(None), HighWaterMark(), InSequence()], ids=str)
def test_hashes_and_numeric_marks_distinguish_case_under_a_collation(no_case: Documents, ledger: AnyLedger) -> None:
    guarded = GuardedCollection(no_case, ledger)
    messages = [Message(name, source=name, sequence=1) for name in ("ABC", "abc", "ABC", "abc")]
    outcomes = [guarded.update_one(message, {"_id": "e"}, increment(message), upsert=True) for message in messages]
    assert [type(outcome) for outcome in outcomes] == [Applied, Applied, Duplicate, Duplicate]
    assert mongo_state(no_case) == (2, ["ABC", "abc"])


TEXT: dict[str, tuple[AnyLedger, Message]] = {
    "readable": (SeenIds(readable=True), M1),
    "plain_set": (IdSet("messageIDs"), M1),
    "after_readable": (SeenIds(None, previous=SeenIds(readable=True)), M1),
    "text_sequence": (HighWaterMark(), Message("m-1", "s", sequence="a")),
}


@pytest.mark.parametrize(("ledger", "message"), TEXT.values(), ids=TEXT)
def test_ledger_with_strings_is_refused_under_a_collation(no_case: Documents, ledger: AnyLedger, message: Message) -> None:
    guarded = GuardedCollection(no_case, ledger)
    deliveries: list[Callable[[], Outcome]] = [
        lambda: guarded.update_one(message, {"_id": "e"}, {"$inc": {"n": 1}}, upsert=True),
        lambda: guarded.find_one_and_update(message, {"_id": "e"}, {"$inc": {"n": 1}}, upsert=True),
        lambda: guarded.insert_one(message, {"_id": "e"}),
        lambda: guarded.remember(message, {"_id": "e"}),
        lambda: guarded.preview(message, {"_id": "e"}),
    ]
    for deliver in [*deliveries, *deliveries]:
        with pytest.raises(ConfigurationError, match="collation 'en'"):
            deliver()
    assert no_case.find_one() is None


@pytest.mark.parametrize("way", ["update_one", "insert_one"])
def test_string_sequence_after_numbers_is_refused_under_a_collation(no_case: Documents, way: str) -> None:
    guarded = GuardedCollection(no_case, HighWaterMark())
    first, second = Message("m-1", source="n", sequence=1), Message("m-2", source="t", sequence="a")
    if way == "insert_one":
        assert isinstance(guarded.insert_one(first, {"_id": "e", "n": 1}), Applied)
    else:
        assert isinstance(guarded.update_one(first, {"_id": "e"}, {"$inc": {"n": 1}}, upsert=True), Applied)
    with pytest.raises(ConfigurationError, match="collation 'en'"):
        guarded.update_one(second, {"_id": "e"}, {"$inc": {"n": 1}})
    assert mongo_state(no_case).n == 1


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ({"outbox": Outbox("shop/orders")}, {"outbox": Outbox("Shop/Orders")}),
        ({"ledger": SeenIds(name="A", previous=SeenIds())}, {"ledger": SeenIds(name="a", previous=SeenIds())}),
    ],
    ids=["outboxes", "ledgers"],
)
def test_outbox_and_ledger_names_distinguish_case_under_a_collation(
    no_case: Documents, earlier: dict[str, Any], later: dict[str, Any]
) -> None:
    stores = [GuardedCollection(no_case, **{"ledger": SeenIds(), **options}) for options in (earlier, later)]
    emits: dict[str, Any] = {"emit": [Event("A", 1)]} if "outbox" in earlier else {}
    for _ in range(2):  # a store accepts its own label
        assert stores[0].update_one(M1, {"_id": "e"}, {"$inc": {"n": 1}}, upsert=True, **emits).settled
    with pytest.raises(LedgerMismatch):
        stores[1].update_one(M2, {"_id": "e"}, {"$inc": {"n": 1}}, **emits)
    assert mongo_state(no_case).n == 1


def test_identity_fields_are_refused_under_a_collation(no_case: Documents) -> None:
    no_case.create_index("email", unique=True)
    guarded = GuardedCollection(no_case, SeenIds(), key=("email",))
    with pytest.raises(ConfigurationError, match="identify entities by _id"):
        guarded.update_one(M1, ADA, {"$inc": {"n": 1}}, upsert=True)
    assert no_case.find_one() is None
