"""A message's entry, in the native call: the expected requests, and what is refused before anything is sent."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from bson import SON, Code, DBRef, Decimal128, Int64, Regex
from pymongo.collation import Collation

from onewrite import ConfigurationError, HighWaterMark, IdSet, InvalidMessage, InvalidUpdate, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.core.write import NO_EFFECT, Write
from onewrite.mongodb.dialect import GuardedUpdate, build_insert
from onewrite.mongodb.dialect import build_update as guard_request
from onewrite.mongodb.expression import check_update, read_entity_key
from onewrite.mongodb.layout import canonical
from onewrite.mongodb.settings import check_id_index, check_indexes

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
QUERY: dict[str, Any] = {"_id": "o-1"}
OPEN: Any = SimpleNamespace(in_transaction=True)
DEFAULT_SET = IdSet("messageIDs")


def write_of(ledger: Ledger, message: Message = M5) -> Write:
    return Write((message,), {}, NOW, ledger.entry(message, NOW), NO_EFFECT)


def guard_write(
    write: Write,
    fields: Any,
    query: Any,
    update: Any,
    native: Any,
    /,  # as a collection does it
) -> GuardedUpdate:
    terms = write.entry.terms
    if update is not None:
        check_update(terms, fields, update)
    return guard_request(write._replace(key=read_entity_key(query, fields, terms)), query, update, native)


def guard(
    ledger: Ledger, query: Any = QUERY, update: Any = None, /, message: Message = M5, fields: Any = (), **native: Any
) -> GuardedUpdate:
    change = {"$inc": {"n": 1}} if update is None else update
    return guard_write(write_of(ledger, message), fields, query, change, native)


# --- expected requests ------------------------------------------------------------------------------------------------


def test_callers_own_conditions_come_before_those_of_the_marks() -> None:
    assert guard(HighWaterMark(), {**QUERY, "$and": [{"n": 1}]}).filter["$and"][0] == {"n": 1}


def test_callers_documents_are_not_changed() -> None:
    query, update = {"_id": 1, "$and": [{"c": 1}]}, {"$set": {"a": 1}, "$push": {"b": 1}, "$unset": {"c": ""}}
    before = copy.deepcopy((query, update))
    for ledger in (SeenIds(), HighWaterMark()):
        guard(ledger, query, update)
    assert (query, update) == before


def test_pipeline_requires_values_of_the_expected_types() -> None:
    expected: dict[str, Any] = {"ow_r": {"$type": "object", "$not": {"$type": "array"}}, "ow_r.r1": {"$type": "array"}}
    conditions = [{"$or": [{path: {"$exists": False}}, {path: kind}]} for path, kind in expected.items()]
    assert guard(SeenIds(), QUERY, [{"$set": {"n": 1}}]).filter["$and"] == conditions


def test_write_removes_all_dead_sets() -> None:
    dead = dict.fromkeys(["ow_r.r2", "ow_r.r3", "ow_r.r5"], "$$REMOVE")
    guarded: Any = guard(SeenIds(), QUERY, [{"$set": {"n": 1}}])
    assert guarded.update[1]["$set"].items() >= dead.items()


def test_update_of_any_mapping_is_accepted() -> None:
    guarded: Any = guard(SeenIds(), QUERY, SON({"$set": SON({"a": 1})}))
    assert guarded.update["$set"]["a"] == 1


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_creation_inside_a_transaction_is_refused() -> None:
    assert guard(SeenIds(), session=OPEN).native == {"session": OPEN}
    with pytest.raises(InvalidUpdate, match="upsert=True in a transaction"):
        guard(SeenIds(), session=OPEN, upsert=True)
    with pytest.raises(InvalidUpdate, match="insert_one in a transaction"):
        build_insert(write_of(HighWaterMark()), {"_id": 1}, {"session": OPEN})


@pytest.mark.parametrize("sign", [1, -1])
def test_sequence_has_at_most_64_bits(sign: int) -> None:
    ledger = HighWaterMark()
    longest = sign * (2**63 - 1)
    guarded = guard(ledger, message=Message("m", source="s", sequence=longest))
    assert isinstance(guarded.update, dict)
    assert guarded.update["$set"]["ow_@.s"] == longest
    too_long = write_of(ledger, Message("m", source="s", sequence=longest + sign))
    with pytest.raises(InvalidMessage, match=r"64-bit.*sortable"):
        guard_write(too_long, (), QUERY, {"$inc": {"n": 1}}, {})
    with pytest.raises(InvalidMessage, match="64-bit"):
        build_insert(too_long, {"_id": 1}, {})


def test_sequence_in_a_lookup_has_at_most_64_bits() -> None:
    too_long = write_of(SeenIds(previous=HighWaterMark()), Message("m", source="s", sequence=2**63))
    with pytest.raises(InvalidMessage, match=r"64-bit.*sortable"):
        guard_write(too_long, (), QUERY, {"$inc": {"n": 1}}, {})
    with pytest.raises(InvalidMessage, match=r"64-bit.*sortable"):
        build_insert(too_long, {"_id": 1}, {})


TEXTS = [
    (SeenIds(readable=True), M5),
    (HighWaterMark(), Message("m", "s", sequence="a")),
    (SeenIds(name="ids", previous=DEFAULT_SET), M5),
]


@pytest.mark.parametrize("collation", [{"locale": "en", "strength": 2}, Collation("en"), {}])
@pytest.mark.parametrize(("ledger", "message"), TEXTS)
def test_collation_is_refused_if_marks_may_be_equal(ledger: Ledger, message: Message, collation: Any) -> None:
    with pytest.raises(InvalidUpdate, match="two entities or two marks can be equal"):
        guard(ledger, message=message, collation=collation)


@pytest.mark.parametrize("collation", [{"locale": "simple"}, Collation("simple"), None])
@pytest.mark.parametrize(("ledger", "message"), TEXTS)
def test_simple_collation_distinguishes_all_marks(ledger: Ledger, message: Message, collation: Any) -> None:
    assert guard(ledger, message=message, collation=collation).native == {"collation": collation}


@pytest.mark.parametrize(
    "query", [{"email": 1}, {"_id": "a"}, {"_id": {"tenant": {"name": "a"}}}, {"_id": DBRef("c", 1)}], ids=str
)
def test_collation_is_refused_if_entities_may_be_equal(query: Any) -> None:
    with pytest.raises(InvalidUpdate, match="two entities or two marks can be equal"):
        guard(SeenIds(), query, fields=("email",), collation=Collation("en", strength=2))


# --- what a collection must be like -----------------------------------------------------------------------------------

BY_ID: dict[str, Any] = {"_id_": {"v": 2, "key": [("_id", 1)]}}
UNIQUE: dict[str, Any] = {"email_1": {"v": 2, "key": [("email", 1)], "unique": True}}


@pytest.mark.parametrize(
    "indexes", [{}, UNIQUE, {"_id_hashed": {"key": [("_id", "hashed")]}}, {"both": {"key": [("_id", 1), ("at", 1)]}}]
)
def test_collection_without_an_index_on_id_is_refused(indexes: Any) -> None:
    with pytest.raises(ConfigurationError, match="doesn't keep _id unique"):
        check_id_index(indexes)


EMAIL: dict[str, Any] = {"v": 2, "key": [("email", 1)]}


@pytest.mark.parametrize(
    ("indexes", "fields", "unique"),
    [
        ({"email_1": {**EMAIL, "unique": True, "sparse": True}}, ("email",), True),  # it is given a value each time
        # Fewer fields are unique with more of them too.
        ({"email_1": {**EMAIL, "unique": True}}, ("shop", "email"), True),
        ({"both": {"key": [("shop", 1), ("email", -1)], "unique": True}}, ("email", "shop"), True),
        ({"email_1": EMAIL, "again": {**EMAIL, "unique": True}}, ("email",), True),
        ({"a.x_1": {"key": [("a.x", 1)], "unique": True}}, ("a.x", "a.y"), True),
        ({"both": {"key": [("a.x", 1), ("b.x", 1)], "unique": True}}, ("a.x", "b.x"), True),
        # Where `a` is an array, one element may have the first value and another the second.
        ({"both": {"key": [("a.x", 1), ("a.y", 1)], "unique": True}}, ("a.x", "a.y"), False),
        ({"both": {"key": [("a", 1), ("a.b.x", 1)], "unique": True}}, ("a", "a.b.x"), False),
        ({"email_1": EMAIL}, ("email",), False),
        ({"both": {"key": [("shop", 1), ("email", -1)], "unique": True}}, ("email",), False),
        ({"email_1": {**EMAIL, "unique": True, "partialFilterExpression": {"a": 1}}}, ("email",), False),
    ],
)
def test_fields_identify_an_entity_only_with_a_unique_index(indexes: Any, fields: Any, unique: bool) -> None:
    if unique:
        check_indexes({**BY_ID, **indexes}, fields, text=False)
        return
    with pytest.raises(ConfigurationError, match=r"key=\(.*there is no unique index"):
        check_indexes({**BY_ID, **indexes}, fields, text=False)


def test_variable_that_replaces_the_document_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match=r"let=.*would replace the document"):
        guard_request(write_of(SeenIds()), QUERY, {"$set": {"a": 1}}, {"let": {"CURRENT": {}}})


@pytest.mark.parametrize("path", ["lines.0.id", "lines.$[each].id", "lines.id.part", "lines"])
def test_update_cannot_change_a_field_of_the_key(path: str) -> None:
    with pytest.raises(InvalidUpdate, match=r"identifies the entity according to key="):
        check_update(SeenIds().terms, ("lines.id",), {"$set": {path: 1}})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Regex("a", 0), Regex("b", 0)),
        (Regex("a", 0), Regex("a", 2)),
        (Code("f", {"a": 1}), Code("f", {"a": 2})),
        (Code("f", {"a": 1}), Code("f")),
        (Decimal128("Infinity"), Decimal128("-Infinity")),
        (Decimal128("NaN"), Decimal128("Infinity")),
    ],
)
def test_different_values_identify_different_entities(one: Any, other: Any) -> None:
    assert canonical({"a": one}) == canonical({"a": copy.deepcopy(one)})
    assert canonical({"a": one}) != canonical({"a": other})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (Int64(1), Decimal128("1.0")),
        (Decimal128("NaN"), float("nan")),
        (Decimal128("sNaN"), float("nan")),
        (0, -0.0),
    ],
)
def test_equal_numbers_identify_one_entity(one: Any, other: Any) -> None:
    assert canonical({"a": one}) == canonical({"a": other})
