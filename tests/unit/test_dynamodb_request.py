"""A message's entry, folded into the native call: the expected requests, and what is refused before anything is sent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Set as AbstractSet
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr

from onewrite import HighWaterMark, InSequence, InvalidMessage, InvalidUpdate, Message, SeenIds
from onewrite.dynamodb.request import guard_put, guard_update, slot_of
from onewrite.dynamodb.values import Members
from onewrite.ledger import Ledger, Remember, Ring

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
MARK = HighWaterMark()
KEY = {"Key": {"orderId": "o-1"}}
SET_CONDITION = (
    "(attribute_not_exists(messageIDs_r1) OR attribute_type(messageIDs_r1,:ow_t)) "
    "AND NOT contains(messageIDs_r4,:ow_0) AND NOT contains(messageIDs_r0,:ow_1) AND NOT contains(messageIDs_r1,:ow_1)"
)
FOR_EVER = "(attribute_not_exists(#ow_0) OR attribute_type(#ow_0,:ow_t)) AND NOT contains(#ow_0,:ow_0)"


def update(ledger: Ledger = MARK, message: Message = M5, **native: Any) -> dict[str, Any]:
    entry = ledger.entry(message, NOW)
    return guard_update(ledger.attribute, entry, "try", {**KEY, **native}).kwargs


def put(ledger: Ledger = MARK, message: Message = M5, **native: Any) -> dict[str, Any]:
    entry = ledger.entry(message, NOW)
    return guard_put(ledger.attribute, entry, "try", {"Item": {"orderId": "o-1"}, **native}).kwargs


def listed(value: Any) -> Any:
    """Our sets as lists, to see their order."""
    if isinstance(value, dict):
        return {name: listed(member) for name, member in value.items()}
    return list(value) if isinstance(value, Members) else value


# --- expected requests ------------------------------------------------------------------------------------------------


def test_a_bounded_set_is_looked_at_in_three_slots_added_to_one_and_dropped_in_three() -> None:
    request = update(
        SeenIds(),
        UpdateExpression="SET #s = :s REMOVE old ADD n :one",
        ConditionExpression="attribute_exists(orderId)",
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={":s": "SHIPPED", ":one": 1},
        ReturnValues="ALL_NEW",
    )
    assert listed(request) == {
        **KEY,
        "UpdateExpression": "SET #s = :s REMOVE old, messageIDs_r2,messageIDs_r3,messageIDs_r5 ADD n :one, messageIDs_r1 :ow_m",
        "ConditionExpression": f"{SET_CONDITION} AND (attribute_exists(orderId))",
        "ExpressionAttributeNames": {"#s": "status"},
        "ExpressionAttributeValues": {
            ":s": "SHIPPED",
            ":one": 1,
            ":ow_0": "698:m5",
            ":ow_1": "699:m5",
            ":ow_t": "SS",
            ":ow_m": ["699:m5", "~try"],
        },
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@pytest.mark.parametrize("attribute", ["ids-seen", "1st", "größe", "a b", "_ids", "a.b"])
def test_an_attribute_that_no_expression_can_name_gets_placeholders(attribute: str) -> None:
    request = update(SeenIds(attribute=attribute), ExpressionAttributeNames={"#s": "status"})
    names = {f"#ow_{n}": f"{attribute}_r{slot}" for n, slot in enumerate([4, 0, 1, 2, 3, 5])}
    assert request["ExpressionAttributeNames"] == {"#s": "status", **names}
    assert request["UpdateExpression"] == "REMOVE #ow_3,#ow_4,#ow_5 ADD #ow_2 :ow_m"
    assert request["ConditionExpression"] == (
        "(attribute_not_exists(#ow_2) OR attribute_type(#ow_2,:ow_t)) "
        "AND NOT contains(#ow_0,:ow_0) AND NOT contains(#ow_1,:ow_1) AND NOT contains(#ow_2,:ow_1)"
    )


def test_where_nobody_needs_a_placeholder_no_names_are_sent() -> None:
    assert "ExpressionAttributeNames" not in update(SeenIds(), UpdateExpression="REMOVE a")
    assert "ExpressionAttributeNames" not in update(SeenIds(), UpdateExpression="REMOVE a", ExpressionAttributeNames={})


def test_digests_are_kept_in_sets_of_bytes() -> None:
    values = listed(update(SeenIds(digest=True)))["ExpressionAttributeValues"]
    assert values[":ow_t"] == "BS"
    assert values[":ow_m"] == [values[":ow_1"], b"~try"]
    assert values[":ow_1"].startswith(b"699:")


def test_a_set_that_is_kept_for_ever_has_its_attempt_beside_it() -> None:
    assert listed(update(SeenIds(retention=None), UpdateExpression="SET a = :a")) == {
        **KEY,
        "UpdateExpression": "SET a = :a, #ow_a=:ow_a ADD #ow_0 :ow_m",
        "ConditionExpression": FOR_EVER,
        "ExpressionAttributeNames": {"#ow_0": "messageIDs", "#ow_a": "messageIDs.attempt"},
        "ExpressionAttributeValues": {":ow_0": "m5", ":ow_t": "SS", ":ow_m": ["m5"], ":ow_a": "try"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@pytest.mark.parametrize(
    ("ledger", "condition", "values"),
    [
        (HighWaterMark(), "(attribute_not_exists(#ow_0) OR #ow_0<:ow_m)", {}),
        (InSequence(), "#ow_0=:ow_p", {":ow_p": 4}),
        (InSequence(5), "attribute_not_exists(#ow_0)", {}),
    ],
)
def test_a_mark_is_moved_where_it_may_be(ledger: Ledger, condition: str, values: dict[str, Any]) -> None:
    assert update(ledger, UpdateExpression="REMOVE a", ConditionExpression="(b = c)") == {
        **KEY,
        "UpdateExpression": "SET #ow_0=:ow_m,#ow_a=:ow_a REMOVE a",
        "ConditionExpression": f"{condition} AND (b = c)",
        "ExpressionAttributeNames": {"#ow_0": "events.@s", "#ow_a": "events.~s"},
        "ExpressionAttributeValues": {**values, ":ow_m": 5, ":ow_a": "try"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@pytest.mark.parametrize(
    ("ledger", "condition"),
    [
        (HighWaterMark(), "(attribute_not_exists(events_mark) OR events_mark<:ow_m)"),
        (InSequence(), "events_mark=:ow_p"),
        (InSequence(5), "attribute_not_exists(events_mark)"),
    ],
)
def test_the_mark_of_who_names_no_source_needs_no_placeholder(ledger: Ledger, condition: str) -> None:
    request = update(ledger, Message("m5", sequence=5), UpdateExpression="SET a = :a")
    assert request["UpdateExpression"] == "SET a = :a, events_mark=:ow_m,events_mark_attempt=:ow_a"
    assert request["ConditionExpression"] == condition
    assert "ExpressionAttributeNames" not in request
    created = put(ledger, Message("m5", sequence=5))
    assert created["Item"] == {"orderId": "o-1", "events_mark": 5, "events_mark_attempt": "try"}
    assert created["ExpressionAttributeNames"] == {"#ow_k0": "orderId"}


def test_an_attribute_that_no_expression_can_name_gets_placeholders_for_its_mark_too() -> None:
    request = update(HighWaterMark("the marks"), Message("m5", sequence=5))
    assert request["UpdateExpression"] == "SET #ow_0=:ow_m,#ow_a=:ow_a"
    assert request["ExpressionAttributeNames"] == {"#ow_0": "the marks_mark", "#ow_a": "the marks_mark_attempt"}


def test_a_new_item_gets_its_ledger_and_replaces_nothing_with_the_same_key() -> None:
    item = {
        "orderId": "o-1",
        "n": 1,
        "price": Decimal("1.5"),
        "raw": b"x",
        # none of these can be part of a key
        "open": True,
        "none": None,
        "lines": [1],
        "map": {"a": 1},
        "tags": {"a"},
    }
    request = put(Item=item, ConditionExpression="attribute_not_exists(x)", ExpressionAttributeNames={"#y": "y"})
    assert request == {
        "Item": {**item, "events.@s": 5, "events.~s": "try"},
        "ConditionExpression": (
            "attribute_not_exists(#ow_k0) AND attribute_not_exists(#ow_k1) AND attribute_not_exists(#ow_k2) AND "
            "attribute_not_exists(#ow_k3) AND (attribute_not_exists(#ow_0) OR #ow_0<:ow_m) AND (attribute_not_exists(x))"
        ),
        "ExpressionAttributeNames": {
            "#y": "y",
            "#ow_k0": "orderId",
            "#ow_k1": "n",
            "#ow_k2": "price",
            "#ow_k3": "raw",
            "#ow_0": "events.@s",
        },
        "ExpressionAttributeValues": {":ow_m": 5},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_a_new_items_first_message_needs_no_values() -> None:
    assert "ExpressionAttributeValues" not in put(InSequence(5))
    assert put(InSequence(5), ExpressionAttributeValues={":a": 1})["ExpressionAttributeValues"] == {":a": 1}


def test_a_new_item_has_the_slot_of_now_and_no_other() -> None:
    request = listed(put(SeenIds()))
    assert request["Item"] == {"orderId": "o-1", "messageIDs_r1": ["699:m5", "~try"]}
    assert request["ConditionExpression"] == f"attribute_not_exists(#ow_k0) AND {SET_CONDITION}"
    assert request["ExpressionAttributeNames"] == {"#ow_k0": "orderId"}
    assert request["ExpressionAttributeValues"] == {":ow_0": "698:m5", ":ow_1": "699:m5", ":ow_t": "SS"}


def test_a_new_item_whose_set_is_kept_for_ever_has_its_attempt_beside_it() -> None:
    request = listed(put(SeenIds(retention=None)))
    assert request["Item"] == {"orderId": "o-1", "messageIDs": ["m5"], "messageIDs.attempt": "try"}
    assert request["ExpressionAttributeNames"] == {"#ow_k0": "orderId", "#ow_0": "messageIDs"}
    assert request["ExpressionAttributeValues"] == {":ow_0": "m5", ":ow_t": "SS"}


def test_the_call_says_what_it_is() -> None:
    entry = HighWaterMark().entry(M5, NOW)
    assert guard_update("events", entry, "try", KEY).method == "update_item"
    assert guard_put("events", entry, "try", {"Item": {"a": 1}}).method == "put_item"


def test_the_callers_own_call_is_left_as_it_was() -> None:
    names, values = {"#a": "a"}, {":a": 1}
    update(SeenIds(), UpdateExpression="SET #a = :a", ExpressionAttributeNames=names, ExpressionAttributeValues=values)
    assert (names, values) == ({"#a": "a"}, {":a": 1})


def test_the_same_call_makes_the_same_bytes_whatever_the_hash_seed() -> None:
    program = """
import json
from onewrite import *
from onewrite.dynamodb import GuardedTable
ledgers = [SeenIds(), SeenIds(digest=True), SeenIds(retention=None), HighWaterMark(), InSequence(), InSequence(5)]
native = dict(UpdateExpression="SET a=:a REMOVE b,c ADD d :a", ConditionExpression="e=:a OR f=:a", ExpressionAttributeValues={":a": 1})
for ledger in ledgers:
    table = GuardedTable(object(), ledger, table_name="orders", clock=lambda: 1.79e9, attempts=lambda: "try")
    message = Message("m5", source="s", sequence=5)
    for call in [dict(Key={"k": "o"}, **native), dict(Item={"k": "o", "n": 1, "l": [1]})]:
        print(json.dumps(table.explain(message, **call), default=repr))
"""
    printed = {seed: _output(program, seed) for seed in ("1", "2")}
    assert printed["1"].count("\n") == 12
    assert printed["1"] == printed["2"]


def _output(program: str, seed: str) -> str:
    source = Path(sys.modules["onewrite"].__path__[0]).parent
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_request_of_a_fresh_message_is_one_text_for_all_messages_of_a_ledger() -> None:
    texts = {update(SeenIds(), Message(f"m{n}"))["ConditionExpression"] for n in range(3)}
    assert len(texts) == 1


def test_three_slots_of_one_lap_are_asked_for_one_mark() -> None:
    entry = Remember(("7:m",), Ring("r1", 0, (("r0", 0), ("r1", 0), ("r3", 0)), ("r2",), (7,)))
    request = guard_update("messageIDs", entry, "try", KEY).kwargs
    assert request["ConditionExpression"].count(":ow_0") == 3
    assert listed(request)["ExpressionAttributeValues"] == {":ow_0": "7:m", ":ow_t": "SS", ":ow_m": ["7:m", "~try"]}


def test_a_set_in_one_order_is_still_a_set() -> None:
    members = Members(["b", "a"])
    assert isinstance(members, AbstractSet)
    assert set(members) == {"a", "b"}
    assert list(members) == ["b", "a"]
    assert (len(members), "a" in members, "c" in members) == (2, True, False)
    assert repr(members) == "{'b', 'a'}"


# --- refusals ---------------------------------------------------------------------------------------------------------

TOUCHES: list[dict[str, Any]] = [
    {"UpdateExpression": "SET events = :v"},
    {"UpdateExpression": "SET a = :v REMOVE events"},
    {"UpdateExpression": "SET a = events"},
    {"UpdateExpression": "SET events.a = :v"},
    {"UpdateExpression": "SET a = if_not_exists(events.a, :v)"},
    {"UpdateExpression": "SET a = list_append(b, events[0])"},
    {"UpdateExpression": "ADD #e :v", "ExpressionAttributeNames": {"#e": "events"}},
    {"UpdateExpression": "REMOVE #e", "ExpressionAttributeNames": {"#e": "events.@s"}},
    {"UpdateExpression": "REMOVE #e.a[1]", "ExpressionAttributeNames": {"#e": "events.@t"}},
    {"UpdateExpression": "REMOVE #e", "ExpressionAttributeNames": {"#e": "events.attempt"}},
    {"UpdateExpression": "REMOVE a", "ConditionExpression": "attribute_exists(events)"},
    {"UpdateExpression": "REMOVE a", "ConditionExpression": "NOT (a = :v AND size(events) > :n)"},
    {"ConditionExpression": "#e = :v", "ExpressionAttributeNames": {"#e": "events.@s"}},
    {"ConditionExpression": "a BETWEEN events AND :v"},
    {"ConditionExpression": "a IN (:v, events.b)"},
]


@pytest.mark.parametrize("native", TOUCHES, ids=str)
def test_a_call_that_touches_the_ledger_is_refused(native: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=r"touches 'events.*belongs to the ledger"):
        update(**native)
    if "UpdateExpression" not in native:
        with pytest.raises(InvalidUpdate, match=r"touches 'events"):
            put(**native)


@pytest.mark.parametrize("name", ["events", "events.@s", "events."])
def test_a_new_item_that_brings_a_ledger_is_refused(name: str) -> None:
    with pytest.raises(InvalidUpdate, match="belongs to the ledger"):
        put(Item={"orderId": "o-1", name: 1})


@pytest.mark.parametrize(
    "native",
    [
        {"UpdateExpression": "SET a.events = :v"},
        {"UpdateExpression": "SET eventsx = :v"},
        {"UpdateExpression": "SET event = :v"},
        {"UpdateExpression": "SET #e = :v", "ExpressionAttributeNames": {"#e": "eventsx.a"}},
        {"UpdateExpression": "SET #events = :events", "ExpressionAttributeNames": {"#events": "a"}},
        {"UpdateExpression": "SET a.#e = :v", "ExpressionAttributeNames": {"#e": "events"}},
        {"UpdateExpression": "REMOVE a", "ConditionExpression": "contains(a.events, :events)"},
    ],
    ids=str,
)
def test_a_call_that_only_looks_like_touching_the_ledger_is_not_refused(native: dict[str, Any]) -> None:
    assert native["UpdateExpression"].partition(" ")[2] in update(**native)["UpdateExpression"]


def test_a_ledgers_attributes_are_its_own_those_that_begin_with_it_and_a_dot_and_a_few_more() -> None:
    theirs = ("a", "a.", "a.b", "a.b.c", "a.r0", "a_r0", "a_r5", "a_mark", "a_mark_attempt")
    others = ("ab", "b.a", "", "a_", "a_r", "a_r6", "a_r00", "a_x", "ar0", "b_r0", "a_attempt", "a_mark_", "amark")
    assert [name for name in (*theirs, *others) if slot_of("a", name) is not None] == [*theirs]


@pytest.mark.parametrize(
    "native",
    [
        {"ExpressionAttributeNames": {"#ow_": "a"}},
        {"ExpressionAttributeNames": {"#ow_x": "a"}},
        {"ExpressionAttributeValues": {":ow_0": 1}},
        {"UpdateExpression": "SET a = :ow_m"},
        {"UpdateExpression": "SET #ow_0 = :v"},
        {"UpdateExpression": "REMOVE a", "ConditionExpression": "#ow_0 = :v"},
        {"ConditionExpression": "attribute_type(a, :ow_t)"},
    ],
    ids=str,
)
def test_our_placeholders_are_refused_declared_or_merely_used(native: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=r"The placeholder [#:]ow_\w* begins as the ledger's own do"):
        update(**native)
    if "UpdateExpression" not in native:
        with pytest.raises(InvalidUpdate, match="The placeholder"):
            put(**native)


def test_a_placeholder_that_begins_otherwise_is_the_callers() -> None:
    values = {":ow": 1, ":owl": 2}
    assert (
        values.items()
        <= update(UpdateExpression="SET a=:ow,b=:owl", ExpressionAttributeValues=values)["ExpressionAttributeValues"].items()
    )


@pytest.mark.parametrize("name", ["AttributeUpdates", "Expected", "ConditionalOperator"])
@pytest.mark.parametrize("call", [update, put])
def test_the_old_way_is_refused(call: Any, name: str) -> None:
    with pytest.raises(InvalidUpdate, match=f"{name} is the old way"):
        call(**{name: {}})


BOTO3: list[tuple[Any, str, dict[str, str], dict[str, Any]]] = [
    (Attr("left").gte(2), "(#n0 >= :v0)", {"#n0": "left"}, {":v0": 2}),
    (Attr("a.b[1]").exists(), "(attribute_exists(#n0.#n1[1]))", {"#n0": "a", "#n1": "b"}, {}),
    (
        Attr("kind").is_in(["x", "y"]) & ~Attr("closed").eq(value=True),
        "(#n0 IN (:v0, :v1) AND (NOT #n1 = :v2))",
        {"#n0": "kind", "#n1": "closed"},
        {":v0": "x", ":v1": "y", ":v2": True},
    ),
]


@pytest.mark.parametrize(("condition", "text", "names", "values"), BOTO3, ids=[text for _, text, _, _ in BOTO3])
def test_a_condition_may_be_boto3s_own(condition: Any, text: str, names: dict[str, str], values: dict[str, Any]) -> None:
    said: dict[str, Any] = {"ExpressionAttributeNames": {"#s": "status"}, "ExpressionAttributeValues": {":s": "SHIPPED"}}
    request = update(UpdateExpression="SET #s = :s", ConditionExpression=condition, **said)
    assert request["ConditionExpression"] == f"(attribute_not_exists(#ow_0) OR #ow_0<:ow_m) AND {text}"
    assert request["ExpressionAttributeNames"] == {
        **said["ExpressionAttributeNames"],
        **names,
        "#ow_0": "events.@s",
        "#ow_a": "events.~s",
    }
    assert request["ExpressionAttributeValues"] == {
        **said["ExpressionAttributeValues"],
        **values,
        ":ow_m": 5,
        ":ow_a": "try",
    }
    created = put(ConditionExpression=condition)
    assert created["ConditionExpression"].endswith(text)
    assert names.items() <= created["ExpressionAttributeNames"].items()
    assert created["ExpressionAttributeValues"] == {**values, ":ow_m": 5}


def test_a_condition_of_boto3s_own_that_has_no_values_adds_none() -> None:
    assert "ExpressionAttributeValues" not in put(InSequence(5), ConditionExpression=Attr("a").not_exists())


@pytest.mark.parametrize("path", ["events", "events.@s", "events[0]"])
def test_a_condition_of_boto3s_own_may_not_touch_the_ledger(path: str) -> None:
    with pytest.raises(InvalidUpdate, match="'events', which belongs to the ledger"):
        update(ConditionExpression=Attr(path).exists())


@pytest.mark.parametrize("taken", [{"ExpressionAttributeNames": {"#n0": "a"}}, {"ExpressionAttributeValues": {":v0": 1}}])
def test_a_placeholder_that_boto3_makes_for_itself_is_refused(taken: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=r"boto3's Attr makes the placeholder [#:][nv]0 for itself"):
        update(ConditionExpression=Attr("left").gte(2), **taken)


@pytest.mark.parametrize(
    ("native", "said"),
    [
        ({"UpdateExpression": 3}, "UpdateExpression is a int: give it text"),
        ({"UpdateExpression": ["SET a = b"]}, "UpdateExpression is a list: give it text"),
        ({"ConditionExpression": ["a = b"]}, "ConditionExpression is a list: give it text"),
        ({"ConditionExpression": 0}, "ConditionExpression is a int: give it text"),
        ({"ExpressionAttributeNames": ["#a"]}, "ExpressionAttributeNames is a list: give it a dict"),
        ({"ExpressionAttributeNames": {"#a": 1}}, r"ExpressionAttributeNames\['#a'\] is a int: give it an attribute's name"),
        ({"ExpressionAttributeNames": {"#a": ["x"]}}, r"ExpressionAttributeNames\['#a'\] is a list"),
        ({"ExpressionAttributeNames": {1: "a"}}, "1 is a int: give it the name of a placeholder"),
        ({"ExpressionAttributeValues": "x"}, "ExpressionAttributeValues is a str: give it a dict"),
        ({"ExpressionAttributeValues": {1: 2}}, "1 is a int: give it the name of a placeholder"),
        ({"Key": "o-1"}, "Key is a str: give it a dict"),
    ],
    ids=str,
)
def test_what_is_of_the_wrong_type_is_refused_by_its_name(native: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidUpdate, match=said):
        update(**native)


def test_a_key_that_is_left_out_is_the_drivers_to_miss() -> None:
    assert "Key" not in guard_update("events", MARK.entry(M5, NOW), "try", {"UpdateExpression": "REMOVE a"}).kwargs


EMPTY: list[Any] = [set(), frozenset(), [set()], {"a": set()}, [1, {"a": [{"b": frozenset()}]}]]
EMPTY += [(set(),), MappingProxyType({"a": set()})]


@pytest.mark.parametrize("value", EMPTY, ids=repr)
def test_an_empty_set_is_refused_at_any_depth(value: Any) -> None:
    with pytest.raises(InvalidUpdate, match=":v is an empty set"):
        update(UpdateExpression="SET a = :v", ExpressionAttributeValues={":a": 1, ":v": value})
    with pytest.raises(InvalidUpdate, match="tags is an empty set"):
        put(Item={"orderId": "o-1", "tags": value})


@pytest.mark.parametrize("value", ["", b"", [], {}, [[]], [{}], {"a"}, [{"a"}], None])
def test_what_is_empty_and_no_set_is_stored(value: Any) -> None:
    assert update(ExpressionAttributeValues={":v": value})["ExpressionAttributeValues"][":v"] == value
    assert put(Item={"orderId": "o-1", "x": value})["Item"]["x"] == value


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("call", [update, put])
def test_a_sequence_has_38_digits_at_most(call: Any, ledger: Ledger, sign: int) -> None:
    longest = sign * (10**38 - 1)
    request = call(ledger, Message("m", sequence=longest))
    assert longest in [
        request.get("ExpressionAttributeValues", {}).get(":ow_m"),
        request.get("Item", {}).get("events_mark"),
    ]
    with pytest.raises(InvalidMessage, match=r"38 digits.*sortable"):
        call(ledger, Message("m", sequence=longest + sign))


def test_the_limits_hold_for_the_whole_expression_and_not_only_for_the_callers_part() -> None:
    ours = len(update(SeenIds(), UpdateExpression="REMOVE a")["UpdateExpression"]) - 1
    update(SeenIds(), UpdateExpression="REMOVE " + "a" * (4096 - ours))
    with pytest.raises(InvalidUpdate, match="UpdateExpression has 4097 bytes with the ledger's part"):
        update(SeenIds(), UpdateExpression="REMOVE " + "a" * (4097 - ours))
    ours = len(update(SeenIds(), ConditionExpression="(a)")["ConditionExpression"]) - 1
    update(SeenIds(), ConditionExpression=f"({'a' * (4096 - ours)})")
    with pytest.raises(InvalidUpdate, match="ConditionExpression has 4097 bytes with the ledger's part"):
        update(SeenIds(), ConditionExpression=f"({'a' * (4097 - ours)})")


def test_an_item_too_wide_to_be_put_is_told_another_way_to_be_created() -> None:
    item = {"orderId": "o-1", **{f"a{n}": n for n in range(120)}}
    with pytest.raises(InvalidUpdate, match="use update_item with ConditionExpression='attribute_not_exists"):
        put(Item=item)
