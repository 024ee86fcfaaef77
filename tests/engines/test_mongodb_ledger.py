"""MongoDB: a ledger that is full, broken or asked for the impossible. The entity stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from bson import Int64, UuidRepresentation
from bson.codec_options import CodecOptions, TypeDecoder, TypeEncoder, TypeRegistry
from pymongo.collection import Collection
from pymongo.errors import WriteError

from onewrite import (
    Applied,
    Begun,
    Busy,
    Duplicate,
    EntityTooLarge,
    HighWaterMark,
    InSequence,
    LedgerMismatch,
    Message,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
    sortable,
)
from onewrite.mongodb import GuardedCollection
from tests.engines.ledgers import LEDGERS, AnyLedger
from tests.engines.stores import increment, mongo_state

pytestmark = pytest.mark.measured

Documents = Collection[dict[str, Any]]
Deliver = Callable[[GuardedCollection, Message], Outcome]
M1, M2 = (Message(f"m-{n}", source="s", sequence=n) for n in (1, 2))

MB = 1024 * 1024
PIPELINE = [{"$set": {"n": {"$add": [{"$ifNull": ["$n", 0]}, 1]}}}]
WAYS: dict[str, Deliver] = {
    "update": lambda c, m: c.update_one(m, {"_id": "e"}, increment(m)),
    "upsert": lambda c, m: c.update_one(m, {"_id": "e"}, increment(m), upsert=True),
    "pipeline": lambda c, m: c.update_one(m, {"_id": "e"}, PIPELINE),
    "upserting_pipeline": lambda c, m: c.update_one(m, {"_id": "e"}, PIPELINE, upsert=True),
    "find_one_and_update": lambda c, m: c.find_one_and_update(m, {"_id": "e"}, increment(m)),
    "find_one_and_upsert": lambda c, m: c.find_one_and_update(m, {"_id": "e"}, increment(m), upsert=True),
    "remember": lambda c, m: c.remember(m, {"_id": "e"}),
    "insert": lambda c, m: c.insert_one(m, {"_id": "e"}),
}


# ---------------------------------------------------------------- 16 MB

SHARE = r"16777216 bytes\D+\d{8}\D+\d{2,3}\D"  # the limit, the entity, and its ledger's share of that
GROW: dict[str, Deliver] = {
    "operators": lambda c, m: c.update_one(m, {"_id": "e"}, {"$set": {"more": "y" * MB}}),  # 17419
    "pipeline": lambda c, m: c.update_one(m, {"_id": "e"}, [{"$set": {"more": "y" * MB}}]),  # 10334
    "find_one_and_update": lambda c, m: c.find_one_and_update(m, {"_id": "e"}, {"$set": {"more": "y" * MB}}),
    "beyond_the_wire": lambda c, m: c.update_one(m, {"_id": "e"}, {"$set": {"more": "y" * 49 * MB}}),  # DocumentTooLarge
}


@pytest.mark.parametrize("grow", GROW.values(), ids=GROW)
@pytest.mark.parametrize("ledger", [SeenIds(), HighWaterMark()], ids=["SeenIds", "HighWaterMark"])
def test_oversized_update_keeps_the_entity_and_its_ledger(collection: Documents, ledger: AnyLedger, grow: Deliver) -> None:
    guarded = GuardedCollection(collection, ledger)
    assert isinstance(guarded.insert_one(M1, {"_id": "e", "n": 1, "fill": "x" * (16 * MB - 1000)}), Applied)
    before = collection.find_one()
    with pytest.raises(EntityTooLarge, match=SHARE):
        grow(guarded, M2)
    assert collection.find_one() == before
    assert isinstance(grow(guarded, M1) if grow is not GROW["beyond_the_wire"] else WAYS["update"](guarded, M1), Duplicate)


CREATE: dict[str, Deliver] = {
    "insert": lambda c, m: c.insert_one(m, {"_id": "e", "fill": "x" * (16 * MB - 40)}),
    "large_insert": lambda c, m: c.insert_one(m, {"_id": "e", "fill": "x" * 17 * MB}),
    "upsert": lambda c, m: c.update_one(m, {"_id": "e"}, {"$set": {"fill": "x" * (16 * MB - 40)}}, upsert=True),
    "pipeline": lambda c, m: c.update_one(m, {"_id": "e"}, [{"$set": {"fill": "x" * (16 * MB - 40)}}], upsert=True),
}


@pytest.mark.parametrize("create", CREATE.values(), ids=CREATE)
def test_oversized_creation_creates_nothing(collection: Documents, create: Deliver) -> None:
    with pytest.raises(EntityTooLarge):
        create(GuardedCollection(collection, SeenIds()), M1)
    assert collection.find_one() is None


# ---------------------------------------------------------------- a client with types of its own


@dataclass(frozen=True)
class _Own:
    """What a client makes of a value that it reads, and cannot write again."""

    value: object


def reads_as_own(kind: type) -> CodecOptions[Any]:
    class Decoder(TypeDecoder):
        bson_type = kind

        def transform_bson(self, value: Any) -> _Own:
            return _Own(value)

    return CodecOptions(type_registry=TypeRegistry([Decoder()]))


@pytest.mark.parametrize("kind", [int, str, bytes])
@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(readable=True), HighWaterMark(), InSequence()], ids=str)
def test_outcomes_do_not_depend_on_custom_client_types(collection: Documents, ledger: AnyLedger, kind: type) -> None:
    documents: Documents = collection.with_options(codec_options=reads_as_own(kind))
    guarded, key = GuardedCollection(documents, ledger), {"_id": 1}
    new = [guarded.insert_one(M1, {"_id": n, "n": 1}) for n in (1, 2)]
    copies = [
        guarded.update_one(M1, key, {"$inc": {"n": 1}}),
        guarded.insert_one(M1, {**key, "n": 1}),
        guarded.find_one_and_update(M1, key, {"$inc": {"n": 1}}),
        guarded.preview(M1, key),
    ]
    assert [type(outcome) for outcome in [*new, *copies]] == [Applied] * 2 + [Duplicate] * 4
    entity = {"_id": _Own(1), "n": _Own(1)} if kind is int else {**key, "n": 1}
    assert copies[0].entity == guarded.find_one(key) == entity
    assert isinstance(guarded.insert_one(M2, {**key, "n": 2}), Rejected)


class _Written(TypeEncoder):
    python_type = _Own

    def transform_python(self, value: Any) -> object:
        return value.value


@pytest.mark.parametrize("_id", [UUID(int=5), _Own(5), {"shop": UUID(int=5), "own": _Own("a")}], ids=str)
def test_id_of_a_custom_client_type_identifies_its_entity(collection: Documents, _id: Any) -> None:
    codec = CodecOptions[Any](type_registry=TypeRegistry([_Written()]), uuid_representation=UuidRepresentation.PYTHON_LEGACY)
    guarded, key = GuardedCollection(collection.with_options(codec_options=codec), SeenIds()), {"_id": _id}
    terms: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}
    outcomes = [
        guarded.insert_one(M1, {**key, "n": 1}),
        guarded.insert_one(M1, {**key, "n": 1}),
        guarded.update_one(M1, key, {"$inc": {"n": 1}}),
        guarded.preview(M1, key),
        guarded.update_one(M2, {**key, "n": 9}, {"$inc": {"n": 1}}),
        guarded.begin_effect(M2, "charge", key, **terms),
        guarded.begin_effect(M2, "charge", key, **terms),
    ]
    assert [type(each) for each in outcomes] == [
        *[Applied, Duplicate, Duplicate, Duplicate],
        *[Rejected, Begun, Busy],
    ]


def test_find_one_and_update_accepts_pymongo_server_options(
    collection: Documents,
) -> None:
    documents = collection.database.create_collection(f"{collection.name}-valid", validator={"n": {"$lt": 5}})
    guarded = GuardedCollection(documents, SeenIds())
    native: Any = {"upsert": True, "maxTimeMS": 60_000, "bypassDocumentValidation": True}
    assert isinstance(guarded.find_one_and_update(M1, {"_id": 1}, {"$set": {"n": 9}}, **native), Applied)
    batched = guarded.update_batch([M1, M2], lambda _: {"filter": {"_id": 1}, "update": {"$inc": {"n": 1}}, **native})
    assert [type(outcome) for outcome in batched] == [Duplicate, Applied]
    assert guarded.find_one({"_id": 1}) == {"_id": 1, "n": 10}


UUIDS = CodecOptions[Any](uuid_representation=UuidRepresentation.STANDARD)
FILL = "x" * (16 * MB - 1000)
FAIL: dict[str, tuple[Callable[[GuardedCollection, UUID], object], type[Exception]]] = {
    "validated": (lambda c, id_: c.insert_one(M1, {"_id": id_, "n": 9}), WriteError),
    "too_large": (lambda c, id_: c.update_one(M2, {"_id": id_}, {"$set": {"more": "y" * MB}}), EntityTooLarge),
}


@pytest.mark.parametrize(("fail", "error"), FAIL.values(), ids=FAIL)
def test_document_with_uuid_id_raises_the_usual_errors(
    collection: Documents, fail: Callable[[GuardedCollection, UUID], object], error: type[Exception]
) -> None:
    name = f"{collection.name}-valid"
    documents = collection.database.create_collection(name, validator={"n": {"$lt": 5}}, codec_options=UUIDS)
    guarded = GuardedCollection(documents, SeenIds())
    if error is EntityTooLarge:
        documents.insert_one({"_id": UUID(int=5), "n": 1, "fill": FILL})
    with pytest.raises(error):
        fail(guarded, UUID(int=5))


# ---------------------------------------------------------------- a broken ledger

DOCUMENTS, ARRAYS = [{"a": 1}], [["m-1"]]


def in_each_slot(members: list[Any]) -> dict[str, Any]:
    return {f"r{n}": members for n in range(6)}


# What each ledger finds where its sets are: the name of the ledger, and the field.
STRANGE = [
    *[("for_ever", {"ow_all": members}) for members in (DOCUMENTS, ARRAYS)],
    *[("plain_set", {"messageIDs": members}) for members in (DOCUMENTS, ARRAYS)],
    *[("SeenIds", {"ow_r": in_each_slot(members)}) for members in (DOCUMENTS, ARRAYS)],
    *[("readable", {"ow_14dt_r": in_each_slot(members)}) for members in (DOCUMENTS, ARRAYS)],
]


@pytest.mark.parametrize("way", ["update", "upsert", "find_one_and_update", "find_one_and_upsert"])
@pytest.mark.parametrize(("name", "broken"), STRANGE, ids=str)
def test_invalid_set_members_do_not_change_the_outcome(
    collection: Documents, name: str, broken: dict[str, Any], way: str
) -> None:
    """An array takes whatever is put into it; what is no mark is met when the set is read."""
    guarded = GuardedCollection(collection, LEDGERS[name])
    collection.insert_one({"_id": "e", "n": 0, "effects": [], **broken})
    for message in (M1, M1, M2, M2):
        try:
            outcome = WAYS[way](guarded, message)
        except LedgerMismatch:
            continue
        assert isinstance(outcome, Applied)
    state = mongo_state(collection)
    assert state.n == len(state.effects) == len(set(state.effects))


# ---------------------------------------------------------------- sequences


def test_largest_and_sortable_sequences_keep_their_order(collection: Documents) -> None:
    guarded = GuardedCollection(collection, HighWaterMark())
    given: dict[str, list[int] | list[str]] = {"int": [2**31, 2**53 + 1, 2**63 - 1], "text": [sortable(9), sortable(10**55)]}
    for source, sequences in given.items():
        for sequence in sequences:
            message = Message(str(sequence), source=source, sequence=sequence)
            assert isinstance(WAYS["upsert"](guarded, message), Applied)
            assert isinstance(WAYS["upsert"](guarded, message), Duplicate)
        assert isinstance(WAYS["upsert"](guarded, Message("old", source=source, sequence=sequences[0])), Stale)
    assert mongo_state(collection).n == 5


@pytest.mark.parametrize("stored", [1, Int64(1), 1.0], ids=["int32", "int64", "double"])
@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()], ids=["HighWaterMark", "InSequence"])
def test_marks_of_all_integer_types_are_equal(collection: Documents, ledger: AnyLedger, stored: Any) -> None:
    guarded = GuardedCollection(collection, ledger)
    collection.insert_one({"_id": "e", "n": 0, "ow_@": {"s": stored}})
    assert isinstance(WAYS["update"](guarded, M1), Duplicate)
    assert isinstance(WAYS["update"](guarded, M2), Applied)
