"""Native filters and updates, read just far enough to be merged."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from onewrite import HighWaterMark, IdSet, InvalidUpdate
from onewrite.mongodb.expression import (
    check_document,
    check_filter,
    check_projection,
    check_update,
    has_conditions,
    read_entity_key,
)

TOUCHED = r"touches '.*': names that begin with ow_ are reserved"
TERMS = HighWaterMark().terms


@pytest.mark.parametrize(
    "query",
    [
        {"ow_@.s": 1},
        {"$and": [{"$or": [{"$nor": [{"ow_l": 1}]}]}]},
        {"$and": ({"ow_l": 1},)},
        {"$expr": {"$gt": ["$$ROOT.ow_@.a", 1]}},
        {"$expr": {"$gt": ["$$CURRENT.ow_@", 1]}},
        {"$expr": {"$eq": [{"$getField": "ow_@"}, 1]}},
        {"$expr": {"$eq": [{"$getField": {"field": "ow_all", "input": "$$x"}}, 1]}},
        {"$expr": {"$eq": [{"$getField": {"field": {"$literal": "ow_l"}}}, 1]}},
        {"$where": "this.ow_l == 'x'"},
        {"$or": [{"$jsonSchema": {"not": {"required": ["a", "ow_@"]}}}]},
        {"$and": [{"$expr": {"$and": [{"$eq": ["$a", 1]}, {"$in": [1, ["$ow_@"]]}]}}]},
    ],
    ids=str,
)
def test_a_filter_that_reads_the_ledger_is_refused(query: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=TOUCHED):
        check_filter(TERMS, query)


@pytest.mark.parametrize("whole", ["$$ROOT", "$$CURRENT"])
def test_reading_the_whole_entity_is_refused(whole: str) -> None:
    said = f"{re.escape(whole)} is the whole entity, including the ledger"
    with pytest.raises(InvalidUpdate, match=said):
        check_filter(TERMS, {"_id": 1, "$expr": {"$gt": [{"$bsonSize": whole}, 1]}})
    merged = {"$mergeObjects": [whole, {"n": 1}]}
    renamed = {"$let": {"vars": {"all": whole}, "in": "$$all"}}
    for copy in (whole, {"copy": [whole]}, merged, {"$objectToArray": whole}, renamed):
        for stage in ("$set", "$addFields"):
            with pytest.raises(InvalidUpdate, match=said):
                check_update(TERMS, (), [{stage: {"before": copy}}])


@pytest.mark.parametrize("getter", [{"$concat": ["eve", "nts@"]}, {"field": 5}], ids=str)
def test_computed_field_name_is_refused(getter: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"\$getField reads .*, which can be a field of the ledger"):
        check_filter(TERMS, {"$expr": {"$eq": [{"$getField": getter}, 1]}})


@pytest.mark.parametrize(
    "query",
    [
        {"eventsx": 1, "x.ow_@": 1, "event": 1, "ow": 1, "owl": 1, "events_ledgers": 1},
        {"a": {"ow_@": 1}},
        {"$or": [{"a": 1}, {"b": {"$elemMatch": {"ow_@": 1}}}]},
        {"$or": 5},  # MongoDB says what is wrong with it
        {"$expr": {"$gt": ["$a", "ow_@"]}},
        {"$expr": {"$eq": ["$a", {"$literal": "$ow_@"}]}},
        {"$expr": {"$eq": [{"$getField": "events"}, {"$getField": {"$literal": "a.b"}}]}},
    ],
    ids=str,
)
def test_filter_that_only_seems_to_read_ledger_is_accepted(query: dict[str, Any]) -> None:
    check_filter(TERMS, query)


# --- which entity a filter means --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [[], ("a@b",), {"$eq": ["a@b"]}, {"$eq": ("a@b",)}], ids=str)
def test_list_in_a_filter_does_not_identify_an_entity(value: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"The value of email is a .*, which doesn't identify one entity"):
        read_entity_key({"email": value}, ("email",))


@pytest.mark.parametrize(
    "update",
    [
        {"$set": {"emails": 1, "address.street": 1, "a.email": 1, "addressx": 1, "number": 1, "2025": {}}},
        {"$rename": {"a": "b"}},
        [{"$set": {"a": "$email"}}],
    ],
    ids=str,
)
def test_update_next_to_the_identifying_fields_is_accepted(update: Any) -> None:
    check_update(TERMS, ("shop", "email", "address.zip", "2024.number"), update)


@pytest.mark.parametrize("query", [{"$and": [{"_id": 5}]}, {"_id": 5, "$and": [{"_id": {"$gt": 1}}]}], ids=str)
def test_value_identifies_an_entity_among_other_conditions(query: Any) -> None:
    assert read_entity_key(query) == {"_id": 5}


def test_comment_is_not_a_condition() -> None:
    assert not has_conditions({"_id": 5, "$comment": "why"}, {"_id": 5})


def test_float_identifies_an_entity() -> None:
    assert read_entity_key({"n": 0.5, "a": 1}, ("n",)) == {"n": 0.5}


def test_document_of_any_mapping_is_accepted() -> None:
    check_update(TERMS, (), MappingProxyType({"$set": MappingProxyType({"a": "ow_l"})}))


def test_update_inside_the_callers_own_set_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match="keeps IDs"):
        check_update(IdSet("messageIDs").terms, (), {"$set": {"messageIDs.0": "m1"}})


# --- updates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["$replaceWith", "$replaceRoot", "$project"])
def test_a_stage_that_would_erase_the_ledger_is_refused(stage: str) -> None:
    with pytest.raises(InvalidUpdate, match=re.escape(stage) + " would erase the ledger"):
        check_update(TERMS, (), [{"$set": {"a": 1}}, {stage: {"a": 1}}])


@pytest.mark.parametrize("update", [{"a": 1}, {"$set": {"b": 1}, "a": 1}])
def test_a_replacement_is_refused(update: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"'a' where an operator is expected.*erase its ledger"):
        check_update(TERMS, (), update)


@pytest.mark.parametrize(
    ("update", "problem"),
    [
        ({1: {"a": 1}}, "1 where an operator is expected"),
        ({"$set": {1: 2}}, "Field name: expected a string, got a int"),
        ({"$inc": {b"a": 2}}, "Field name: expected a string, got a bytes"),
        ({"$set": 1}, r"\$set expects a document of fields, got a int"),
        ({}, "The update is empty"),
        ([], "expected operators or a pipeline"),
        ("x", "expected operators or a pipeline"),
        ([{"$set": {1: 2}}], "Field name: expected a string, got a int"),
        ([{"$unset": ["a", 1]}], "Field name: expected a string, got a int"),
        ([{"$unset": 1}], "Field name: expected a string, got a int"),
        ([{"$addFields": 1}], r"\$addFields expects a document of fields, got a int"),
    ],
    ids=str,
)
def test_error_names_the_invalid_field_in_an_update(update: Any, problem: str) -> None:
    with pytest.raises(InvalidUpdate, match=problem):
        check_update(TERMS, (), update)


@pytest.mark.parametrize("name", [1, b"a", None])
def test_invalid_field_name_is_refused(name: Any) -> None:
    for check in (check_filter, check_document, check_projection):
        fields: Any = {"_id": 1, name: 1}
        with pytest.raises(InvalidUpdate, match="Field name"):
            check(TERMS, fields)


@pytest.mark.parametrize("stage", ["x", {}, {"$set": {"a": 1}, "$unset": "b"}])
def test_a_stage_is_a_document_with_one_operator(stage: Any) -> None:
    with pytest.raises(InvalidUpdate, match="isn't a pipeline stage"):
        check_update(TERMS, (), [stage])


@pytest.mark.parametrize("document", [{"a": 1}, {"_id": None}, None])
def test_new_document_without_id_is_refused(document: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"needs an _id.*each delivery"):
        check_document(TERMS, document)


@pytest.mark.parametrize("name", ["textScore", "recordId"])
def test_projection_can_include_metadata(name: str) -> None:
    check_projection(TERMS, {"n": 1, "x": {"$meta": name}})


@pytest.mark.parametrize("name", ["indexKey", "sortKey"])
@pytest.mark.parametrize("nest", [lambda meta: meta, lambda meta: {"y": meta}, lambda meta: {"$ifNull": [meta, 0]}])
def test_projection_of_an_index_key_is_refused(name: str, nest: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidUpdate, match=repr(name)):
        check_projection(TERMS, {"x": nest({"$meta": name})})


def test_projection_of_a_computed_ledger_slice_is_refused() -> None:
    check_projection(TERMS, {"lines": {"$slice": ["$all", 2]}})
    with pytest.raises(InvalidUpdate, match=TOUCHED):
        check_projection(TERMS, {"lines": {"$slice": ["$ow_@", 2]}})
