"""Native filters and updates, read just far enough to be merged."""

from __future__ import annotations

import re
from typing import Any

import pytest

from onewrite import InvalidUpdate
from onewrite.mongodb.expression import check_document, check_filter, check_update, identity

TOUCHED = r"touches '.*', which belongs to the ledger"


@pytest.mark.parametrize(
    "query",
    [
        {"events": 1},
        {"events.@s": 1},
        {"events.@s": {"$gt": 1}},
        {"_id": 1, "events": {"$exists": True}},
        {"$or": [{"a": 1}, {"events": 1}]},
        {"$nor": [{"events.a": 1}]},
        {"$and": [{"$or": [{"$nor": [{"events": 1}]}]}]},
        {"$and": ({"events": 1},)},
        {"$expr": {"$gt": ["$events.@s", 1]}},
        {"$expr": "$events"},
        {"$expr": {"$gt": ["$$ROOT.events.a", 1]}},
        {"$expr": {"$gt": ["$$CURRENT.events", 1]}},
        {"$and": [{"$expr": {"$and": [{"$eq": ["$a", 1]}, {"$in": [1, ["$events"]]}]}}]},
    ],
    ids=str,
)
def test_a_filter_that_reads_the_ledger_is_refused(query: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=TOUCHED):
        check_filter("events", query)


@pytest.mark.parametrize(
    "query",
    [
        {"_id": 1},
        {},
        {"eventsx": 1, "x.events": 1, "event": 1},
        {"a": "events"},
        {"a": {"events": 1}},
        {"$or": [{"a": 1}, {"b": {"$elemMatch": {"events": 1}}}]},
        {"$expr": {"$gt": ["$a", "events"]}},
        {"$expr": {"$eq": ["$a", {"$literal": "$events"}]}},
        {"$expr": {"$eq": ["$a", b"$events"]}},
        {"$comment": "events"},
        {"$text": {"$search": "events"}},
    ],
    ids=str,
)
def test_a_filter_that_only_looks_like_reading_the_ledger_is_not_refused(query: dict[str, Any]) -> None:
    check_filter("events", query)


@pytest.mark.parametrize("query", [None, "o-1", 1, [("_id", 1)]])
def test_a_filter_is_a_document(query: Any) -> None:
    with pytest.raises(InvalidUpdate, match=f"The filter is a {type(query).__name__}: name the one entity"):
        check_filter("events", query)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"_id": 1}, {"_id": 1}),
        ({"_id": {"$eq": 1}}, {"_id": 1}),
        ({"_id": 1, "state": "new"}, {"_id": 1}),
        ({"_id": {"$eq": 1}, "state": "new"}, {"_id": 1}),
        ({"sku": 1, "left": {"$gte": 2}}, {"sku": 1}),
        ({"sku": 1, "shop": "a", "$or": [{"a": 1}]}, {"sku": 1, "shop": "a"}),
        ({"_id": {"$in": [1, 2]}, "sku": 1}, {"sku": 1}),
        ({"_id": {"a": 1, "b": 2}}, {"_id": {"a": 1, "b": 2}}),
        ({"_id": {}}, {"_id": {}}),
        ({"sku": None}, {"sku": None}),
        ({"sku": [1]}, {"sku": [1]}),
        ({"sku": 1, "state": {"$eq": "new"}}, {"sku": 1}),
        ({"a.b": 1}, {"a.b": 1}),
    ],
    ids=str,
)
def test_an_entity_is_named_by_its_id_or_by_fields_that_are_given_plain(query: dict[str, Any], expected: Any) -> None:
    assert identity(query) == expected


@pytest.mark.parametrize("query", [{}, {"_id": {"$in": [1]}}, {"$and": [{"_id": 1}]}, {"left": {"$gte": 1}}], ids=str)
def test_a_filter_without_any_value_names_no_entity(query: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match="names no entity: give _id"):
        identity(query)


def test_a_pattern_names_no_entity() -> None:
    with pytest.raises(InvalidUpdate, match="names no entity"):
        identity({"sku": re.compile("^a")})


@pytest.mark.parametrize(
    "update",
    [
        {"$set": {"events": 1}},
        {"$set": {"a": 1, "events.@s": 1}},
        {"$inc": {"a": 1}, "$unset": {"events": ""}},
        {"$push": {"events.r0": 1}},
        {"$rename": {"events": "a"}},
        {"$rename": {"a": "events"}},
        {"$rename": {"a": "events.b"}},
        {"$setOnInsert": {"events": {}}},
        {"$currentDate": {"events.a": True}},
        [{"$set": {"events": 1}}],
        [{"$set": {"a": 1}}, {"$addFields": {"events.b": 1}}],
        [{"$unset": "events"}],
        [{"$unset": ["a", "events.b"]}],
        [{"$set": {"a": "$events"}}],
        [{"$set": {"a": {"$add": [1, {"$size": "$events.r0"}]}}}],
        [{"$set": {"a": ["$$ROOT.events"]}}],
        ({"$set": {"events": 1}},),
    ],
    ids=str,
)
def test_an_update_that_touches_the_ledger_is_refused(update: Any) -> None:
    with pytest.raises(InvalidUpdate, match=TOUCHED):
        check_update("events", update)


@pytest.mark.parametrize(
    "update",
    [
        {"$set": {"a": "events"}},
        {"$set": {"a": {"events": 1}}},
        {"$set": {"a": "$events"}},
        {"$set": {"a.events": 1, "eventsx": 1}},
        {"$rename": {"a": "eventsx"}},
        [{"$set": {"a": {"$literal": "$events"}}}],
        [{"$set": {"a": "$eventsx", "b": "events"}}],
        [{"$unset": "eventsx"}, {"$unset": ["a", "b"]}],
        [{"$addFields": {"a": [1, "$b"]}}],
    ],
    ids=str,
)
def test_an_update_that_only_looks_like_touching_the_ledger_is_not_refused(update: Any) -> None:
    check_update("events", update)


@pytest.mark.parametrize("stage", ["$replaceWith", "$replaceRoot", "$project"])
def test_a_stage_that_would_erase_the_ledger_is_refused(stage: str) -> None:
    with pytest.raises(InvalidUpdate, match=re.escape(stage) + " would erase the ledger"):
        check_update("events", [{"$set": {"a": 1}}, {stage: {"a": 1}}])


@pytest.mark.parametrize("update", [{"a": 1}, {"a": 1, "$set": {"b": 1}}, {"$set": {"b": 1}, "a": 1}])
def test_a_replacement_is_refused(update: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"'a' where operators belong.*erase its ledger"):
        check_update("events", update)


@pytest.mark.parametrize("update", [[], (), None, "x", b"x", 1])
def test_what_is_no_update_is_refused(update: Any) -> None:
    with pytest.raises(InvalidUpdate, match="neither operators nor a pipeline"):
        check_update("events", update)


def test_an_empty_update_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match=r"The update is empty.*record"):
        check_update("events", {})


@pytest.mark.parametrize("change", [None, "a", [("a", 1)]])
def test_an_operator_takes_a_document(change: Any) -> None:
    with pytest.raises(InvalidUpdate, match=rf"\$set takes a document of fields, not a {type(change).__name__}"):
        check_update("events", {"$set": change})


@pytest.mark.parametrize("stage", [None, "x", {}, {"$set": {"a": 1}, "$unset": "b"}])
def test_a_stage_is_a_document_with_one_operator(stage: Any) -> None:
    with pytest.raises(InvalidUpdate, match="is no pipeline stage"):
        check_update("events", [stage])


@pytest.mark.parametrize("document", [{}, {"a": 1}, {"_id": None}, None, [("_id", 1)]])
def test_a_new_document_needs_an_id_of_its_own(document: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"needs an _id of its own.*each delivery"):
        check_document("events", document)


@pytest.mark.parametrize("name", ["events", "events.a"])
def test_a_new_document_that_brings_a_ledger_is_refused(name: str) -> None:
    with pytest.raises(InvalidUpdate, match=TOUCHED):
        check_document("events", {"_id": 1, name: 1})


@pytest.mark.parametrize("identifier", [0, "", False, {"a": 1}])
def test_every_id_but_none_will_do(identifier: Any) -> None:
    check_document("events", {"_id": identifier, "eventsx": 1})
