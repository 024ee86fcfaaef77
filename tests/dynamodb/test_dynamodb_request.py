"""A message's entry, folded into the native call: the expected requests, and what is refused before anything is sent."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr

from onewrite import (
    HighWaterMark,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    Message,
    MessageIDs,
    SeenIds,
    sortable,
)
from onewrite.core.ledgers import Ledger
from onewrite.core.step import step_mark
from onewrite.core.write import NO_STEP, Write, token_of
from onewrite.dynamodb.request import guard_begin, guard_put, guard_record, guard_update
from onewrite.dynamodb.values import Members, sendable, typed_values

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
TOKEN = bytes.fromhex("206dda326f31")  # of the name "try"
MARK = HighWaterMark()
KEY = {"Key": {"orderId": "o-1"}}
LABELLED = "(attribute_not_exists(ow_l) OR ow_l=:ow_l0)"


NOT_SHARED = "attribute_not_exists(ow_tombstone) AND NOT contains(ow_steps,:ow_o)"
SET_CONDITION = (
    f"{NOT_SHARED} AND {LABELLED} AND NOT contains(ow_r4,:ow_m0) "
    "AND NOT contains(ow_r0,:ow_m0) AND NOT contains(ow_r1,:ow_m0)"
)
STEP = {":ow_o": HASH}  # of a ledger without a name
SET_VALUES = {**STEP, ":ow_l0": "ow1 14d", ":ow_m0": HASH}
MARK_LABELLED = f"{NOT_SHARED} AND (attribute_not_exists(ow_l) OR ow_l=:ow_l0)"


def write(ledger: Ledger = MARK, message: Message = M5, now: float = NOW) -> Write:
    """The parts of a write of the call "try"."""
    return Write(message, KEY["Key"], now, ledger.entry(message, now), NO_STEP, token=token_of("try"))


def step_of(message: Message) -> dict[str, bytes]:
    """The value by which a write asks for the message's step."""
    return {":ow_o": step_mark("ow_l", message)}


def update(ledger: Ledger = MARK, message: Message = M5, **native: Any) -> dict[str, Any]:
    return guard_update(write(ledger, message), {**KEY, **native}).kwargs


def put(ledger: Ledger = MARK, message: Message = M5, **native: Any) -> dict[str, Any]:
    return guard_put(write(ledger, message), {"Item": {"orderId": "o-1"}, **native}).kwargs


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
        "UpdateExpression": ("SET #s = :s, ow_l=:ow_l0,ow_t=:ow_a REMOVE old, ow_r2,ow_r3,ow_r5 ADD n :one, ow_r1 :ow_s"),
        "ConditionExpression": f"{SET_CONDITION} AND (attribute_exists(orderId))",
        "ExpressionAttributeNames": {"#s": "status"},
        "ExpressionAttributeValues": {":s": "SHIPPED", ":one": 1, **SET_VALUES, ":ow_s": [HASH], ":ow_a": TOKEN},
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@pytest.mark.parametrize("name", ["ids-seen", "1st"])
@pytest.mark.parametrize("ledger", [SeenIds, HighWaterMark], ids=["set", "mark"])
@pytest.mark.parametrize("later", [0, 900, 1800, 2700])  # the ring of attempts turns within these
def test_names_that_no_expression_can_have_get_placeholders_and_none_is_left_over(
    name: str, ledger: Any, later: int
) -> None:
    now = NOW + later
    native = {**KEY, "UpdateExpression": "REMOVE #x", "ExpressionAttributeNames": {"#x": "x"}}
    request = guard_update(write(ledger(name=name), now=now), native).kwargs
    names = request["ExpressionAttributeNames"]
    text = f"{request['UpdateExpression']} {request['ConditionExpression']}"
    assert set(re.findall(r"#\w+", text)) == set(names)
    assert f"ow_{name}:" not in text
    plain = guard_update(write(ledger(name="ids"), now=now), {**KEY, "UpdateExpression": "REMOVE x"}).kwargs
    assert [spelt_out(request, part).replace(f"ow_{name}:", "ow_ids:") for part in EXPRESSIONS] == [
        spelt_out(plain, part) for part in EXPRESSIONS
    ]


EXPRESSIONS = ("UpdateExpression", "ConditionExpression")


def spelt_out(request: dict[str, Any], part: str) -> str:
    """An expression with the names that its placeholders stand for."""
    names = request["ExpressionAttributeNames"]
    return re.sub(r"#\w+", lambda found: names[found[0]], request[part])


def test_where_nobody_needs_a_placeholder_no_names_are_sent() -> None:
    assert "ExpressionAttributeNames" not in update(SeenIds(), UpdateExpression="REMOVE a", ExpressionAttributeNames={})


def test_readable_ids_are_kept_in_sets_of_text() -> None:
    request = listed(update(SeenIds(readable=True)))
    assert "ADD ow_14dt_r1 :ow_s" in request["UpdateExpression"]
    values = {**STEP, ":ow_l0": "ow1 14d text", ":ow_m0": "@s/m5", ":ow_s": ["@s/m5"], ":ow_a": TOKEN}
    assert request["ExpressionAttributeValues"] == values


def test_a_set_that_is_kept_for_ever_is_one_attribute() -> None:
    assert listed(update(SeenIds(retention=None), UpdateExpression="SET a = :a")) == {
        **KEY,
        "UpdateExpression": ("SET a = :a, ow_l=:ow_l0,ow_t=:ow_a ADD ow_all :ow_s"),
        "ConditionExpression": f"{NOT_SHARED} AND {LABELLED} AND NOT contains(ow_all,:ow_m0)",
        "ExpressionAttributeValues": {**SET_VALUES, ":ow_l0": "ow1 all", ":ow_s": [HASH], ":ow_a": TOKEN},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_a_set_of_the_callers_has_no_label() -> None:
    request = listed(update(MessageIDs(), Message("m5")))
    assert spelt_out(request, "UpdateExpression") == "SET ow_t=:ow_a ADD messageIDs :ow_s"
    assert spelt_out(request, "ConditionExpression") == f"{NOT_SHARED} AND NOT contains(messageIDs,:ow_m0)"
    assert request["ExpressionAttributeValues"] == {
        ":ow_o": step_mark("messageIDs", Message("m5")),
        ":ow_m0": "m5",
        ":ow_s": ["m5"],
        ":ow_a": TOKEN,
    }


@pytest.mark.parametrize(
    ("ledger", "condition", "values"),
    [
        (HighWaterMark(), "(attribute_not_exists(#ow_m0) OR #ow_m0<:ow_m0)", {}),
        (InSequence(), "#ow_m0=:ow_p", {":ow_p": 4}),
        (InSequence(5), "(attribute_not_exists(#ow_m0) OR #ow_m0=:ow_p)", {":ow_p": 4}),
    ],
)
@pytest.mark.parametrize(("source", "name"), [("s", "ow_@s"), ("", "ow_@%"), ("a.b%", "ow_@a%2Eb%25")])
def test_a_mark_is_moved_where_it_may_be(
    ledger: Ledger, condition: str, values: dict[str, Any], source: str, name: str
) -> None:
    message = Message("m5", source=source, sequence=5)
    assert listed(update(ledger, message, UpdateExpression="REMOVE a", ConditionExpression="(b = c)")) == {
        **KEY,
        "UpdateExpression": "SET ow_l=:ow_l0,#ow_m0=:ow_m0,ow_t=:ow_a REMOVE a",
        "ConditionExpression": f"{MARK_LABELLED} AND {condition} AND (b = c)",
        "ExpressionAttributeNames": {"#ow_m0": name},
        "ExpressionAttributeValues": {**values, **step_of(message), ":ow_l0": "ow1 marks", ":ow_m0": 5, ":ow_a": TOKEN},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@pytest.mark.parametrize(
    ("sequence", "condition", "values"),
    [
        ("$a", "#ow_m0<:ow_m0", {}),
        (sortable(5), "#ow_m0<:ow_m0", {}),
        # Only a mark of as many digits compares as its number does.
        ("0050", "(size(#ow_m0)=:ow_n0 AND #ow_m0>=:ow_z AND #ow_m0<:ow_m0)", {":ow_n0": 4, ":ow_z": "0"}),
    ],
)
def test_a_sequence_of_text_is_compared_as_text(sequence: str, condition: str, values: dict[str, Any]) -> None:
    request = update(message=Message("m5", source="s", sequence=sequence))
    assert request["ConditionExpression"] == f"{MARK_LABELLED} AND (attribute_not_exists(#ow_m0) OR {condition})"
    sent = listed(request["ExpressionAttributeValues"])
    assert sent == {**STEP, ":ow_l0": "ow1 marks", ":ow_m0": sequence, **values, ":ow_a": TOKEN}


# --- after another ledger ---------------------------------------------------------------------------------------------


def test_a_ledger_before_this_one_is_looked_into_and_its_own_slots_emptied() -> None:
    request = listed(update(SeenIds(timedelta(days=30), also=SeenIds()), UpdateExpression="REMOVE a"))
    assert request["UpdateExpression"] == (
        "SET ow_l=:ow_l0,ow_t=:ow_a REMOVE a, ow_30d_r1,ow_30d_r3,ow_30d_r4,ow_r2,ow_r3,ow_r5 ADD ow_30d_r2 :ow_s"
    )
    own = " AND ".join(f"NOT contains(ow_30d_{slot},:ow_m0)" for slot in ("r5", "r0", "r2"))
    before = " AND ".join(f"NOT contains(ow_{slot},:ow_m1)" for slot in ("r4", "r0", "r1"))
    labelled = "(attribute_not_exists(ow_l) OR ow_l=:ow_l0 OR ow_l=:ow_l0_1)"
    assert request["ConditionExpression"] == f"{NOT_SHARED} AND {labelled} AND {own} AND {before}"
    labels, marks = {":ow_l0": "ow1 30d", ":ow_l0_1": "ow1 14d"}, {":ow_m0": HASH, ":ow_m1": HASH}
    assert request["ExpressionAttributeValues"] == {**STEP, **labels, **marks, ":ow_s": [HASH], ":ow_a": TOKEN}


def test_ids_that_were_kept_by_hand_are_looked_for_with_their_source_and_without() -> None:
    request = listed(update(SeenIds(name="ids", also=MessageIDs())))
    assert spelt_out(request, "ConditionExpression") == (
        f"{NOT_SHARED} AND NOT contains(ow_steps,:ow_o0_1) AND (attribute_not_exists(ow_ids:l) OR ow_ids:l=:ow_l0 OR ow_ids:l=:ow_l0_1) "
        "AND NOT contains(ow_ids:r4,:ow_m0) AND NOT contains(ow_ids:r0,:ow_m0) "
        "AND NOT contains(ow_ids:r1,:ow_m0) AND NOT contains(messageIDs,:ow_m1) AND NOT contains(messageIDs,:ow_m1_0)"
    )
    assert spelt_out(request, "UpdateExpression").startswith("SET ow_ids:l=:ow_l0,ow_t=:ow_a REMOVE ow_ids:r2,")
    values = request["ExpressionAttributeValues"]
    assert (values[":ow_m1"], values[":ow_m1_0"], values[":ow_l0"]) == ("@s/m5", "m5", "ow1 14d")


def test_a_ledger_that_is_followed_by_a_set_of_the_callers_says_where_that_is() -> None:
    request = listed(update(MessageIDs("ids", also=SeenIds())))
    values = request["ExpressionAttributeValues"]
    assert spelt_out(request, "UpdateExpression").startswith("SET ow_l=:ow_l0,ow_t=:ow_a REMOVE ")
    assert (values[":ow_l0"], values[":ow_l0_1"]) == ("ow1 > ids", "ow1 14d")


def test_a_mark_before_a_set_is_looked_at_and_not_moved() -> None:
    request = listed(update(SeenIds(also=InSequence()), UpdateExpression="REMOVE a"))
    assert request["ConditionExpression"].endswith(" AND (attribute_not_exists(#ow_m1) OR #ow_m1<:ow_m1)")
    assert request["ExpressionAttributeNames"] == {"#ow_m1": "ow_@s"}
    assert "#ow_m1" not in request["UpdateExpression"]
    assert request["ExpressionAttributeValues"][":ow_m1"] == 5


def test_a_new_item_has_the_labels_of_all_its_ledgers() -> None:
    created = listed(put(SeenIds(also=HighWaterMark())))
    assert created["Item"] == {"orderId": "o-1", "ow_l": "ow1 14d", "ow_t": TOKEN, "ow_r1": [HASH]}
    used = set(re.findall(r"[#:]ow_\w+", created["ConditionExpression"]))
    assert {*created["ExpressionAttributeNames"], *created["ExpressionAttributeValues"]} == used


# --- new items --------------------------------------------------------------------------------------------------------


def test_a_new_item_gets_its_ledger_and_replaces_nothing_with_the_same_key() -> None:
    keys = {"orderId": "o-1", "price": Decimal("1.5"), "raw": b"x"}
    no_keys = {"open": True, "none": None, "lines": [1], "map": {"a": 1}}
    item = {**keys, **no_keys, "tags": {"a"}}
    request = put(Item=item, ConditionExpression="attribute_not_exists(x)", ExpressionAttributeNames={"#y": "y"})
    assert listed(request) == {
        "Item": {**keys, **no_keys, "tags": ["a"], "ow_l": "ow1 marks", "ow_@s": 5, "ow_t": TOKEN},
        "ConditionExpression": (
            "attribute_not_exists(#ow_k0) AND attribute_not_exists(#ow_k1) AND attribute_not_exists(#ow_k2) AND "
            f"{MARK_LABELLED} AND (attribute_not_exists(#ow_m0) OR #ow_m0<:ow_m0) AND (attribute_not_exists(x))"
        ),
        "ExpressionAttributeNames": {"#y": "y", "#ow_k0": "orderId", "#ow_k1": "price", "#ow_k2": "raw", "#ow_m0": "ow_@s"},
        "ExpressionAttributeValues": {**STEP, ":ow_l0": "ow1 marks", ":ow_m0": 5},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_a_new_items_first_message_sends_no_value_that_its_condition_does_not_use() -> None:
    ours = {**STEP, ":ow_l0": "ow1 marks", ":ow_p": 4}
    assert put(InSequence(5))["ExpressionAttributeValues"] == ours
    assert put(InSequence(5), ExpressionAttributeValues={":a": 1})["ExpressionAttributeValues"] == {":a": 1, **ours}


def test_a_new_item_in_an_attribute_that_no_expression_can_name_sends_no_name_that_its_condition_does_not_use() -> None:
    request = put(SeenIds(name="ids-seen"))
    assert set(re.findall(r"#\w+", request["ConditionExpression"])) == set(request["ExpressionAttributeNames"])


def test_a_record_is_the_ledgers_own_part_in_an_item_that_is_there() -> None:
    key = {"TableName": "orders", "Key": {"shop": "a", "size": 1}}
    values = {"ExpressionAttributeNames": {"#a": "a"}, "ExpressionAttributeValues": {":a": 1}}
    native = {
        **key,
        **values,
        "UpdateExpression": "SET #a = :a",
        "ConditionExpression": "#a < :a",
        "ReturnValues": "ALL_NEW",
    }
    call = guard_record(write(InSequence()), native)
    assert call.method == "update_item"
    assert listed(call.kwargs) == {
        **key,
        "UpdateExpression": "SET ow_l=:ow_l0,#ow_m0=:ow_m0,ow_t=:ow_a",
        "ConditionExpression": f"attribute_exists(#ow_k0) AND attribute_exists(#ow_k1) AND {MARK_LABELLED} AND #ow_m0=:ow_p",
        "ExpressionAttributeNames": {"#ow_k0": "shop", "#ow_k1": "size", "#ow_m0": "ow_@s"},
        "ExpressionAttributeValues": {**STEP, ":ow_l0": "ow1 marks", ":ow_m0": 5, ":ow_p": 4, ":ow_a": TOKEN},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_the_callers_own_call_is_left_as_it_was() -> None:
    names, values = {"#a": "a"}, {":a": 1}
    update(SeenIds(), UpdateExpression="SET #a = :a", ExpressionAttributeNames=names, ExpressionAttributeValues=values)
    assert (names, values) == ({"#a": "a"}, {":a": 1})


# --- refusals ---------------------------------------------------------------------------------------------------------

TOUCHES: list[dict[str, Any]] = [
    {"UpdateExpression": "SET a = :v REMOVE ow_t"},
    {"UpdateExpression": "SET a = if_not_exists(ow_l.a, :v)"},
    {"UpdateExpression": "SET a = list_append(b, ow_36ht_r5[0])"},
    {"UpdateExpression": "REMOVE #e.a[1]", "ExpressionAttributeNames": {"#e": "ow_@t"}},
    {"UpdateExpression": "REMOVE #e", "ExpressionAttributeNames": {"#e": "ow_@a\nb"}},
    {"UpdateExpression": "REMOVE a", "ConditionExpression": "NOT (a = :v AND size(ow_all) > :n)"},
    {"ConditionExpression": "#e = :v", "ExpressionAttributeNames": {"#e": "ow_@s"}},
    {"ConditionExpression": "a IN (:v, ow_90s_r0.b)"},
]


@pytest.mark.parametrize("native", TOUCHES, ids=str)
def test_a_call_that_touches_the_ledger_is_refused(native: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=r"touches 'ow_.*onewrite's own"):
        update(**native)
    if "UpdateExpression" not in native:
        with pytest.raises(InvalidUpdate, match=r"touches 'ow_"):
            put(**native)


@pytest.mark.parametrize(
    "native",
    [
        {"UpdateExpression": "SET a.ow_l = :v"},
        {"UpdateExpression": "SET #e = :v", "ExpressionAttributeNames": {"#e": "events.x"}},
        {"UpdateExpression": "SET #owl = :events", "ExpressionAttributeNames": {"#owl": "a"}},
        {"UpdateExpression": "SET a.#e = :v", "ExpressionAttributeNames": {"#e": "ow_l"}},
        {"UpdateExpression": "REMOVE a", "ConditionExpression": "contains(a.ow_all, :owall)"},
    ],
    ids=str,
)
def test_a_call_that_only_looks_like_touching_the_ledger_is_not_refused(native: dict[str, Any]) -> None:
    assert native["UpdateExpression"].partition(" ")[2] in update(**native)["UpdateExpression"]


@pytest.mark.parametrize(
    "native",
    [
        {"ExpressionAttributeNames": {"#ow_": "a"}},
        {"ExpressionAttributeValues": {":ow_0": 1}},
        {"UpdateExpression": "SET a = :ow_m0"},
        {"UpdateExpression": "SET #ow_0 = :v"},
        {"ConditionExpression": "attribute_type(a, :ow_ss)"},
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


def test_a_condition_may_be_boto3s_own() -> None:
    said: dict[str, Any] = {"ExpressionAttributeNames": {"#s": "status"}, "ExpressionAttributeValues": {":s": "SHIPPED"}}
    condition = Attr("kind").is_in(["x", "y"]) & ~Attr("a.b[1]").eq(value=True)
    request = listed(update(UpdateExpression="SET #s = :s", ConditionExpression=condition, **said))
    text = "(#n0 IN (:v0, :v1) AND (NOT #n1.#n2[1] = :v2))"
    mark = "(attribute_not_exists(#ow_m0) OR #ow_m0<:ow_m0)"
    assert request["ConditionExpression"] == f"{MARK_LABELLED} AND {mark} AND {text}"
    names = {"#n0": "kind", "#n1": "a", "#n2": "b"}
    assert request["ExpressionAttributeNames"] == {"#s": "status", **names, "#ow_m0": "ow_@s"}
    values = {":v0": "x", ":v1": "y", ":v2": True, **STEP, ":ow_l0": "ow1 marks", ":ow_m0": 5}
    assert request["ExpressionAttributeValues"] == {":s": "SHIPPED", **values, ":ow_a": TOKEN}
    assert put(ConditionExpression=condition)["ExpressionAttributeValues"] == values


def test_a_condition_of_boto3s_own_that_has_no_values_adds_none() -> None:
    created = put(InSequence(5), ConditionExpression=Attr("a").not_exists())
    assert created["ExpressionAttributeValues"] == {**STEP, ":ow_l0": "ow1 marks", ":ow_p": 4}


def test_a_condition_of_boto3s_own_may_not_touch_the_ledger() -> None:
    with pytest.raises(InvalidUpdate, match="'ow_all': every name that begins with ow_ is onewrite's own"):
        update(ConditionExpression=Attr("ow_all[0]").exists())


@pytest.mark.parametrize("taken", [{"ExpressionAttributeNames": {"#n0": "a"}}, {"ExpressionAttributeValues": {":v0": 1}}])
def test_a_placeholder_that_boto3_makes_for_itself_is_refused(taken: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=r"boto3's Attr makes the placeholder [#:][nv]0 for itself"):
        update(ConditionExpression=Attr("left").gte(2), **taken)


@pytest.mark.parametrize(
    ("native", "said"),
    [
        ({"UpdateExpression": 3}, "UpdateExpression is a int: give it text"),
        ({"ConditionExpression": 0}, "ConditionExpression is a int: give it text"),
        ({"ExpressionAttributeNames": ["#a"]}, "ExpressionAttributeNames is a list: give it a dict"),
        ({"ExpressionAttributeNames": {"#a": 1}}, r"ExpressionAttributeNames\['#a'\] is a int: give it an attribute's name"),
        ({"ExpressionAttributeValues": "x"}, "ExpressionAttributeValues is a str: give it a dict"),
        ({"ExpressionAttributeValues": {1: 2}}, "1 is a int: give it the name of a placeholder"),
        ({"Key": "o-1"}, "Key is a str: give it a dict"),
    ],
    ids=str,
)
def test_what_is_of_the_wrong_type_is_refused_by_its_name(native: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidUpdate, match=said):
        update(**native)


@pytest.mark.parametrize(
    ("guard", "native", "name"),
    [
        (guard_update, {"Key": {"orderId": {"S": "o-1"}}}, "orderId"),
        (guard_update, {**KEY, "ExpressionAttributeValues": {":a": 1, ":v": {"N": "1"}}}, ":v"),
        (guard_put, {"Item": {"orderId": "o-1", "tags": {"SS": ["a"]}}}, "tags"),
        (guard_put, {"Item": {"orderId": "o-1"}, "ExpressionAttributeValues": {":v": {"BOOL": True}}}, ":v"),
    ],
)
def test_typed_values_are_refused_where_a_client_would_store_them_as_maps(guard: Any, native: Any, name: str) -> None:
    with pytest.raises(InvalidUpdate, match=f"{name} is {{.*}}, a typed value: .* Give it the value alone"):
        guard(write(), native, typed_values)
    assert guard(write(), native).kwargs  # a Table takes it for the map that it is


def test_one_native_call_is_read_once_for_a_table_and_for_a_client_and_never_mixed_up() -> None:
    native = {**KEY, "UpdateExpression": "REMOVE just_here"}
    for convert, label in ((sendable, "ow1 14d"), (typed_values, {"S": "ow1 14d"}), (sendable, "ow1 14d")):
        assert guard_update(write(SeenIds()), native, convert).kwargs["ExpressionAttributeValues"][":ow_l0"] == label


@pytest.mark.parametrize("value", [set(), [1, {"a": [{"b": frozenset()}]}], MappingProxyType({"a": (set(),)})], ids=repr)
def test_an_empty_set_is_refused_at_any_depth(value: Any) -> None:
    with pytest.raises(InvalidUpdate, match=":v is an empty set"):
        update(UpdateExpression="SET a = :v", ExpressionAttributeValues={":a": 1, ":v": value})
    with pytest.raises(InvalidUpdate, match="tags is an empty set"):
        put(Item={"orderId": "o-1", "tags": value})


@pytest.mark.parametrize("value", ["", [], {}, {"a"}])
def test_what_is_empty_and_no_set_is_stored(value: Any) -> None:
    assert update(ExpressionAttributeValues={":v": value})["ExpressionAttributeValues"][":v"] == value
    assert put(Item={"orderId": "o-1", "x": value})["Item"]["x"] == value


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("call", [update, put])
def test_a_sequence_has_38_digits_at_most(call: Any, ledger: Ledger, sign: int) -> None:
    # What counts is compared with the one before, which has 38 digits at most too.
    longest = sign * (10**38 - 1) + (sign < 0 and isinstance(ledger, InSequence))
    request = call(ledger, Message("m", sequence=longest))
    assert longest in [request.get("ExpressionAttributeValues", {}).get(":ow_m0"), request.get("Item", {}).get("ow_@%")]
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


def test_an_item_that_is_missing_or_empty_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match="put_item needs the Item to create"):
        put(Item={})
    with pytest.raises(InvalidUpdate, match="put_item needs the Item to create"):
        put(Item=None)


def test_an_update_brings_no_item() -> None:
    with pytest.raises(InvalidUpdate, match="update_item takes no Item"):
        update(Item={"orderId": "o-1"})


def test_an_item_too_wide_to_be_put_is_told_another_way_to_be_created() -> None:
    item = {"orderId": "o-1", **{f"a{n}": n for n in range(120)}}
    with pytest.raises(InvalidUpdate, match="use update_item with ConditionExpression='attribute_not_exists"):
        put(Item=item)


@pytest.mark.parametrize(
    "native", [{"UpdateExpression": "REMOVE a"}, {"ReturnValues": "ALL_NEW"}, {"Item": {"orderId": "o-1"}}]
)
def test_a_begin_takes_nothing_that_belongs_to_its_finish(native: dict[str, Any]) -> None:
    (name,) = native
    with pytest.raises(InvalidUpdate, match=rf"begin .* leave out {name}"):
        guard_begin(write(), {**KEY, **native})
