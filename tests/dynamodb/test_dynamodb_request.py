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
from onewrite.dynamodb.request import build_begin, build_put, build_record, build_update
from onewrite.dynamodb.values import Members, sendable, typed_values
from tests.support.spelled import spell_condition, spell_update

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
TOKEN = bytes.fromhex("206dda326f31")  # of the name "try"
MARK = HighWaterMark()
KEY = {"Key": {"orderId": "o-1"}}
NOT_GONE = "attribute_not_exists(ow_tombstone)"
MARK_LABELLED = f"{NOT_GONE} AND (attribute_not_exists(ow_l) OR ow_l='ow1 marks')"
NO_STEP_OPEN = f"NOT contains(ow_steps,{HASH!r})"


def contains_none(*sets: str, mark: Any = HASH, steps: int = 1) -> str:
    """The condition that keeps out a duplicate: no step of it is open, and no live set has its mark."""
    return (
        f"NOT ({' OR '.join([*[f'contains(ow_steps,{HASH!r})'] * steps, *[f'contains({name},{mark!r})' for name in sets]])})"
    )


def write(ledger: Ledger = MARK, message: Message = M5, now: float = NOW) -> Write:
    """The parts of a write of the call "try"."""
    return Write(message, KEY["Key"], now, ledger.entry(message, now), NO_STEP, token=token_of("try"))


def update(ledger: Ledger = MARK, message: Message = M5, **native: Any) -> dict[str, Any]:
    return build_update(write(ledger, message), {**KEY, **native}).kwargs


def put(ledger: Ledger = MARK, message: Message = M5, **native: Any) -> dict[str, Any]:
    return build_put(write(ledger, message), {"Item": {"orderId": "o-1"}, **native}).kwargs


def listed(value: Any) -> Any:
    """Our sets as lists, to see their order."""
    if isinstance(value, dict):
        return {name: listed(member) for name, member in value.items()}
    return list(value) if isinstance(value, Members) else value


# --- expected requests ------------------------------------------------------------------------------------------------


def test_bounded_set_is_read_in_three_slots_and_emptied_in_three() -> None:
    request = update(
        SeenIds(),
        UpdateExpression="SET #s = :s REMOVE old ADD n :one",
        ConditionExpression="attribute_exists(orderId)",
        ExpressionAttributeNames={"#s": "status"},
        ExpressionAttributeValues={":s": "SHIPPED", ":one": 1},
        ReturnValues="ALL_NEW",
    )
    assert spell_update(request) == (
        f"SET #s = :s, ow_l='ow1 14d',ow_t={TOKEN!r} REMOVE old, ow_r2,ow_r3,ow_r5 ADD n :one, ow_r1 [{HASH!r}]"
    )
    assert spell_condition(request) == (
        f"{NOT_GONE} AND (attribute_not_exists(ow_l) OR ow_l='ow1 14d') AND {contains_none('ow_r4', 'ow_r0', 'ow_r1')} "
        "AND (attribute_exists(orderId))"
    )
    assert request["ExpressionAttributeNames"] == {"#s": "status"}
    assert request.keys() - {
        "UpdateExpression",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
    } == {
        *KEY,
        "ReturnValues",
        "ReturnValuesOnConditionCheckFailure",
    }


USES: dict[str, dict[str, Any]] = {
    "update": {"UpdateExpression": "REMOVE #x", "ExpressionAttributeNames": {"#x": "x"}},
    "put": {
        "ExpressionAttributeNames": {"#x": "x"},
        "ConditionExpression": "#x = :x",
        "ExpressionAttributeValues": {":x": 1},
    },
}


@pytest.mark.parametrize("build", [update, put], ids=["update", "put"])
@pytest.mark.parametrize(
    "ledger",
    [
        *(
            SeenIds(),
            SeenIds(name="ids-seen"),
            SeenIds(name="1st"),
            SeenIds(readable=True, also=MessageIDs()),
            MessageIDs("ids"),
        ),
        *(HighWaterMark(), HighWaterMark(name="ids-seen"), InSequence(5), InSequence(), SeenIds(also=InSequence())),
    ],
)
def test_request_has_no_placeholder_that_it_does_not_use(build: Any, ledger: Ledger) -> None:
    request = build(ledger, **USES[build.__name__])
    text = f"{request.get('UpdateExpression')} {request['ConditionExpression']}"
    assert {*re.findall(r"[#:]\w+", text)} == {*request["ExpressionAttributeNames"], *request["ExpressionAttributeValues"]}


def test_where_nobody_needs_a_placeholder_no_names_are_sent() -> None:
    assert "ExpressionAttributeNames" not in update(SeenIds(), UpdateExpression="REMOVE a", ExpressionAttributeNames={})


def test_readable_ids_are_kept_in_sets_of_text() -> None:
    request = update(SeenIds(readable=True))
    assert "ADD ow_14dt_r1 ['@s/m5']" in spell_update(request)
    assert "contains(ow_14dt_r1,'@s/m5')" in spell_condition(request)


def test_a_set_that_is_kept_for_ever_is_one_attribute() -> None:
    request = update(SeenIds(retention=None), UpdateExpression="SET a = :a", ExpressionAttributeValues={":a": 1})
    assert spell_update(request) == f"SET a = :a, ow_l='ow1 all',ow_t={TOKEN!r} ADD ow_all [{HASH!r}]"
    labelled = f"{NOT_GONE} AND (attribute_not_exists(ow_l) OR ow_l='ow1 all')"
    assert spell_condition(request) == f"{labelled} AND {contains_none('ow_all')}"


def test_a_set_of_the_callers_has_no_label() -> None:
    request = update(MessageIDs(), Message("m5"))
    assert spell_update(request) == f"SET ow_t={TOKEN!r} ADD messageIDs ['m5']"
    step = step_mark("messageIDs", Message("m5"))
    assert spell_condition(request) == f"{NOT_GONE} AND NOT (contains(ow_steps,{step!r}) OR contains(messageIDs,'m5'))"


@pytest.mark.parametrize(
    ("ledger", "condition"),
    [
        (HighWaterMark(), "(attribute_not_exists({name}) OR {name}<5)"),
        (InSequence(), "{name}=4"),
        (InSequence(5), "(attribute_not_exists({name}) OR {name}=4)"),
    ],
)
@pytest.mark.parametrize(("source", "name"), [("s", "ow_@s"), ("a.b%", "ow_@a%2Eb%25")])
def test_a_mark_is_moved_where_it_may_be(ledger: Ledger, condition: str, source: str, name: str) -> None:
    message = Message("m5", source=source, sequence=5)
    request = update(ledger, message, UpdateExpression="REMOVE a", ConditionExpression="(b = c)")
    assert spell_update(request) == f"SET ow_l='ow1 marks',{name}=5,ow_t={TOKEN!r} REMOVE a"
    no_step = f"NOT contains(ow_steps,{step_mark('ow_l', message)!r})"
    assert spell_condition(request) == f"{MARK_LABELLED} AND {condition.format(name=name)} AND {no_step} AND (b = c)"


@pytest.mark.parametrize(
    ("sequence", "condition"),
    [
        ("$a", "ow_@s<'$a'"),
        (sortable(5), f"ow_@s<{sortable(5)!r}"),
        # Only a mark of as many digits compares as its number does.
        ("0050", "(size(ow_@s)=4 AND ow_@s>='0' AND ow_@s<'0050')"),
    ],
)
def test_a_sequence_of_text_is_compared_as_text(sequence: str, condition: str) -> None:
    request = update(message=Message("m5", source="s", sequence=sequence))
    assert spell_condition(request) == f"{MARK_LABELLED} AND (attribute_not_exists(ow_@s) OR {condition}) AND {NO_STEP_OPEN}"
    assert f"ow_@s={sequence!r}" in spell_update(request)


# --- after another ledger ---------------------------------------------------------------------------------------------


def test_a_ledger_before_this_one_is_looked_into_and_its_own_slots_emptied() -> None:
    request = update(SeenIds(timedelta(days=30), also=SeenIds()), UpdateExpression="REMOVE a")
    assert spell_update(request) == (
        f"SET ow_l='ow1 30d',ow_t={TOKEN!r} REMOVE a, ow_30d_r1,ow_30d_r3,ow_30d_r4,ow_r2,ow_r3,ow_r5 ADD ow_30d_r2 [{HASH!r}]"
    )
    sets = ("ow_30d_r5", "ow_30d_r0", "ow_30d_r2", "ow_r4", "ow_r0", "ow_r1")
    labelled = "(attribute_not_exists(ow_l) OR ow_l='ow1 30d' OR ow_l='ow1 14d')"
    assert spell_condition(request) == f"{NOT_GONE} AND {labelled} AND {contains_none(*sets)}"


def test_ids_that_were_kept_by_hand_are_looked_for_with_their_source_and_without() -> None:
    condition = spell_condition(update(SeenIds(name="ids", also=MessageIDs())))
    assert condition.endswith(" OR contains(messageIDs,'@s/m5') OR contains(messageIDs,'m5'))")
    assert condition.count("contains(ow_steps,") == 2  # a step may be open under either ledger


def test_a_ledger_that_is_followed_by_a_set_of_the_callers_says_where_that_is() -> None:
    request = update(MessageIDs("ids", also=SeenIds()))
    assert spell_update(request).startswith("SET ow_l='ow1 > ids',")
    assert "(attribute_not_exists(ow_l) OR ow_l='ow1 > ids' OR ow_l='ow1 14d')" in spell_condition(request)


def test_a_mark_before_a_set_is_looked_at_and_not_moved() -> None:
    request = update(SeenIds(also=InSequence()), UpdateExpression="REMOVE a")
    assert " AND (attribute_not_exists(ow_@s) OR ow_@s<5) AND " in spell_condition(request)
    assert "ow_@s" not in spell_update(request)


def test_a_new_item_has_the_labels_of_all_its_ledgers() -> None:
    created = put(SeenIds(also=HighWaterMark()))
    assert listed(created["Item"]) == {"orderId": "o-1", "ow_l": "ow1 14d", "ow_t": TOKEN, "ow_r1": [HASH]}


# --- new items --------------------------------------------------------------------------------------------------------


def test_a_new_item_gets_its_ledger_and_replaces_nothing_with_the_same_key() -> None:
    keys = {"orderId": "o-1", "price": Decimal("1.5"), "raw": b"x"}
    no_keys = {"open": True, "none": None, "lines": [1], "map": {"a": 1}}
    item = {**keys, **no_keys, "tags": {"a"}}
    request = put(Item=item, ConditionExpression="attribute_not_exists(x)", ExpressionAttributeNames={"#y": "y"})
    assert listed(request["Item"]) == {**keys, **no_keys, "tags": ["a"], "ow_l": "ow1 marks", "ow_@s": 5, "ow_t": TOKEN}
    assert spell_condition(request) == (
        "attribute_not_exists(orderId) AND attribute_not_exists(price) AND attribute_not_exists(raw) AND "
        f"{MARK_LABELLED} AND (attribute_not_exists(ow_@s) OR ow_@s<5) AND {NO_STEP_OPEN} AND (attribute_not_exists(x))"
    )
    assert request["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"


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
    call = build_record(write(InSequence()), native)
    request = call.kwargs
    assert call.method == "update_item"
    assert {name: request[name] for name in key} == key
    assert spell_update(request) == f"SET ow_l='ow1 marks',ow_@s=5,ow_t={TOKEN!r}"
    there = "attribute_exists(shop) AND attribute_exists(size)"
    assert spell_condition(request) == f"{there} AND {MARK_LABELLED} AND ow_@s=4 AND {NO_STEP_OPEN}"
    assert "ReturnValues" not in request


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
    assert (
        spell_condition(request)
        == f"{MARK_LABELLED} AND (attribute_not_exists(ow_@s) OR ow_@s<5) AND {NO_STEP_OPEN} AND {text}"
    )
    names = {"#n0": "kind", "#n1": "a", "#n2": "b"}
    assert names.items() <= request["ExpressionAttributeNames"].items()
    values = {":v0": "x", ":v1": "y", ":v2": True}
    assert values.items() <= request["ExpressionAttributeValues"].items()
    assert values.items() <= put(ConditionExpression=condition)["ExpressionAttributeValues"].items()


def test_a_condition_of_boto3s_own_that_has_no_values_adds_none() -> None:
    created = put(InSequence(5), ConditionExpression=Attr("a").not_exists())
    assert [name for name in created["ExpressionAttributeValues"] if not name.startswith(":ow_")] == []


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
        (build_update, {"Key": {"orderId": {"S": "o-1"}}}, "orderId"),
        (build_update, {**KEY, "ExpressionAttributeValues": {":a": 1, ":v": {"N": "1"}}}, ":v"),
        (build_put, {"Item": {"orderId": "o-1", "tags": {"SS": ["a"]}}}, "tags"),
        (build_put, {"Item": {"orderId": "o-1"}, "ExpressionAttributeValues": {":v": {"BOOL": True}}}, ":v"),
    ],
)
def test_typed_values_are_refused_where_a_client_would_store_them_as_maps(guard: Any, native: Any, name: str) -> None:
    with pytest.raises(InvalidUpdate, match=f"{name} is {{.*}}, a typed value: .* Give it the value alone"):
        guard(write(), native, typed_values)
    assert guard(write(), native).kwargs  # a Table takes it for the map that it is


def test_one_native_call_is_read_once_for_a_table_and_for_a_client_and_never_mixed_up() -> None:
    native = {**KEY, "UpdateExpression": "REMOVE just_here"}
    for convert, label in ((sendable, "ow1 14d"), (typed_values, {"S": "ow1 14d"}), (sendable, "ow1 14d")):
        assert label in build_update(write(SeenIds()), native, convert).kwargs["ExpressionAttributeValues"].values()


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
    request = call(ledger, Message("m", "s", sequence=longest))
    assert longest in [*request["ExpressionAttributeValues"].values(), request.get("Item", {}).get("ow_@s")]
    with pytest.raises(InvalidMessage, match=r"38 digits.*sortable"):
        call(ledger, Message("m", "s", sequence=longest + sign))


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
        build_begin(write(), {**KEY, **native})
