"""A message's entry, in the native call: the expected requests, and what is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr

from onewrite import HighWaterMark, InSequence, InvalidMessage, InvalidUpdate, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.core.pipeline import make_token
from onewrite.core.write import NO_EFFECT, Write
from onewrite.dynamodb.dialect import build_put, build_update
from onewrite.dynamodb.values import typed_values

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
MARK = HighWaterMark()
KEY = {"Key": {"orderId": "o-1"}}


def write(ledger: Ledger = MARK, message: Message = M5) -> Write:
    """The parts of a write of the call "try"."""
    return Write((message,), KEY["Key"], NOW, ledger.entry(message, NOW), NO_EFFECT, token=make_token("try"))


def update(ledger: Ledger = MARK, message: Message = M5, **native: Any) -> dict[str, Any]:
    return build_update(write(ledger, message), {**KEY, **native}).kwargs


def put(ledger: Ledger = MARK, message: Message = M5, **native: Any) -> dict[str, Any]:
    return build_put(write(ledger, message), {"Item": {"orderId": "o-1"}, **native}).kwargs


# --- new items --------------------------------------------------------------------------------------------------------


def test_callers_arguments_are_not_changed() -> None:
    names, values = {"#a": "a"}, {":a": 1}
    update(SeenIds(), UpdateExpression="SET #a = :a", ExpressionAttributeNames=names, ExpressionAttributeValues=values)
    assert (names, values) == ({"#a": "a"}, {":a": 1})


def test_empty_names_are_left_out_as_dynamodb_refuses_them() -> None:
    assert "ExpressionAttributeNames" not in update(SeenIds(), ExpressionAttributeNames={})


# --- refusals ---------------------------------------------------------------------------------------------------------


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
def test_reserved_placeholders_are_refused(native: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=r"The placeholder [#:]ow_\w* begins like those of the ledger"):
        update(**native)
    if "UpdateExpression" not in native:
        with pytest.raises(InvalidUpdate, match="The placeholder"):
            put(**native)


@pytest.mark.parametrize("name", ["AttributeUpdates", "Expected", "ConditionalOperator"])
@pytest.mark.parametrize("call", [update, put])
def test_legacy_parameters_are_refused(call: Any, name: str) -> None:
    with pytest.raises(InvalidUpdate, match=f"{name} is a legacy argument"):
        call(**{name: {}})


def test_boto3_condition_on_the_ledger_is_refused() -> None:
    with pytest.raises(InvalidUpdate, match="'ow_all': names that begin with ow_ are reserved"):
        update(ConditionExpression=Attr("ow_all[0]").exists())


@pytest.mark.parametrize("taken", [{"ExpressionAttributeNames": {"#n0": "a"}}, {"ExpressionAttributeValues": {":v0": 1}}])
def test_placeholder_generated_by_boto3_is_refused(taken: dict[str, Any]) -> None:
    with pytest.raises(InvalidUpdate, match=r"boto3's Attr uses the placeholder [#:][nv]0 itself"):
        update(ConditionExpression=Attr("left").gte(2), **taken)


@pytest.mark.parametrize(
    ("native", "said"),
    [
        ({"UpdateExpression": 3}, "UpdateExpression is a int: expected text"),
        ({"ConditionExpression": 0}, "ConditionExpression is a int: expected text"),
        ({"ExpressionAttributeNames": ["#a"]}, "ExpressionAttributeNames is a list: expected a dict"),
        (
            {"ExpressionAttributeNames": {"#a": 1}},
            r"ExpressionAttributeNames\['#a'\] is a int: expected an attribute's name",
        ),
        ({"ExpressionAttributeValues": "x"}, "ExpressionAttributeValues is a str: expected a dict"),
        ({"ExpressionAttributeValues": {1: 2}}, "1 is a int: expected the name of a placeholder"),
        ({"Key": "o-1"}, "Key is a str: expected a dict"),
        ({"Item": {}}, "update_item doesn't accept Item"),
        ({"ConditionExpression": ""}, "ConditionExpression is empty. Omit it"),
    ],
    ids=str,
)
def test_argument_of_wrong_type_is_refused_by_name(native: dict[str, Any], said: str) -> None:
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
def test_typed_values_are_refused_if_stored_as_maps(guard: Any, native: Any, name: str) -> None:
    with pytest.raises(InvalidUpdate, match=rf"{name} is {{.*}}, a typed value\. .* Pass the plain value"):
        guard(write(), native, typed_values)
    assert guard(write(), native).kwargs  # a Table takes it for the map that it is


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence(first=-(10**40))])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("call", [update, put])
def test_sequence_has_at_most_38_digits(call: Any, ledger: Ledger, sign: int) -> None:
    # What counts is compared with the one before, which has 38 digits at most too.
    longest = sign * (10**38 - 1) + (sign < 0 and isinstance(ledger, InSequence))
    request = call(ledger, Message("m", "s", sequence=longest))
    assert longest in [*request["ExpressionAttributeValues"].values(), request.get("Item", {}).get("ow_@s")]
    with pytest.raises(InvalidMessage, match=r"38 digits.*sortable"):
        call(ledger, Message("m", "s", sequence=longest + sign))


def test_limits_hold_for_the_whole_expression() -> None:
    ours = len(update(SeenIds(), UpdateExpression="REMOVE a")["UpdateExpression"]) - 1
    update(SeenIds(), UpdateExpression="REMOVE " + "a" * (4096 - ours))
    with pytest.raises(InvalidUpdate, match="UpdateExpression has 4097 bytes, including the ledger's part"):
        update(SeenIds(), UpdateExpression="REMOVE " + "a" * (4097 - ours))
    ours = len(update(SeenIds(), ConditionExpression="(a)")["ConditionExpression"]) - 1
    update(SeenIds(), ConditionExpression=f"({'a' * (4096 - ours)})")
    with pytest.raises(InvalidUpdate, match="ConditionExpression has 4097 bytes, including the ledger's part"):
        update(SeenIds(), ConditionExpression=f"({'a' * (4097 - ours)})")


def test_error_for_item_too_wide_to_put_names_the_remedy() -> None:
    item = {"orderId": "o-1", **{f"a{n}": n for n in range(120)}}
    with pytest.raises(InvalidUpdate, match="use update_item with ConditionExpression='attribute_not_exists"):
        put(Item=item)
