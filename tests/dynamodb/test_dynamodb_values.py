"""Python's values as DynamoDB's typed ones, and back."""

from __future__ import annotations

from collections import OrderedDict
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from boto3.dynamodb.types import Binary, TypeSerializer

from onewrite import InvalidUpdate
from onewrite.dynamodb.layout import canonical
from onewrite.dynamodb.values import Members, plain_values, sendable, typed_values

VALUES: list[Any] = ["é", 0, 10**38 - 1, 1 - 10**38, Decimal("1.5"), True, False, None, b"x", Binary(b"x")]
VALUES += [[1, "a", [2, True], {"b": None}], {}, {"a": {"b": [1]}}, {"a"}, {1}, {b"x"}]


@pytest.mark.parametrize("value", [*VALUES, bytearray(b"x"), ("a", 1), Members(("b", "a"))], ids=repr)
def test_fast_paths_return_the_same_values_as_boto3(value: Any) -> None:
    assert typed_values({"a": value}) == {"a": TypeSerializer().serialize(value)}


@pytest.mark.parametrize("value", [10**38, -(10**38), 1.5, pytest.param(object(), id="an object")])
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [{"a": value}]])
def test_unsupported_value_is_refused_as_in_boto3(value: Any, wrap: Any) -> None:
    with pytest.raises(Exception) as theirs:  # of whatever type boto3 raises
        TypeSerializer().serialize(wrap(value))
    with pytest.raises(type(theirs.value)):
        typed_values({"a": wrap(value)})


def test_a_set_in_one_order_is_sent_in_that_order() -> None:
    assert typed_values({"a": Members(("b", "a", "c"))}) == {"a": {"SS": ["b", "a", "c"]}}
    assert typed_values({"a": Members((2, 1))}) == {"a": {"NS": ["2", "1"]}}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        pytest.param({"b", "a"}, Members(("a", "b")), id="texts"),
        pytest.param(frozenset({2, 1}), Members((1, 2)), id="numbers"),
        (({"b": {2, 1}},), [{"b": Members((1, 2))}]),
        ({"a": [1, None]}, {"a": [1, None]}),
        (1.5, 1.5),  # boto3 says what is wrong with it
    ],
    ids=repr,
)
def test_sets_are_sent_in_one_order_at_any_depth(value: Any, sent: Any) -> None:
    assert repr(sendable({":v": value})[":v"]) == repr(sent)


@pytest.mark.parametrize("value", [set(), {"a": (frozenset(),)}], ids=repr)
@pytest.mark.parametrize("convert", [sendable, typed_values])
def test_empty_set_is_refused_by_its_name(convert: Any, value: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"(:v|a) is an empty set, which DynamoDB can't store. REMOVE the attribute"):
        convert({":v": value})


TYPED: list[Any] = [
    {"S": "x"},
    OrderedDict(S="x"),  # as json.loads makes it where somebody asks it to
    MappingProxyType({"S": "x"}),
    {"N": "1"},
    {"B": b"x"},
    {"B": bytearray(b"x")},
    {"SS": ["x"]},
    {"NS": ("1",)},
    {"BS": {b"x"}},
]
TYPED += [{"M": {}}, {"L": []}, {"BOOL": False}, {"NULL": True}]


@pytest.mark.parametrize("value", TYPED, ids=repr)
def test_typed_value_is_refused(value: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r":v is .*, a typed value. A guarded client takes plain values"):
        typed_values({":v": value})[":v"]
    assert sendable({":v": value})[":v"]  # a Table takes it for the map that it is


@pytest.mark.parametrize(
    "value", [{"S": 1}, {"B": "x"}, {"X": "x"}, {"S": "x", "N": "1"}, {"NULL": None}, {1: "x"}], ids=repr
)
def test_plain_map_that_resembles_a_typed_value_is_plain(value: Any) -> None:
    assert typed_values({":v": value})[":v"] == TypeSerializer().serialize(value)
    assert typed_values({":v": {"a": {"S": "x"}}})[":v"] == {"M": {"a": {"M": {"S": {"S": "x"}}}}}


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_typed_values_are_returned_plain(value: Any) -> None:
    assert plain_values(typed_values({"a": value})) == {"a": value}


@pytest.mark.parametrize(
    ("one", "other"), [(b"x", Binary(b"x")), (bytearray(b"x"), b"x"), (1, Decimal("1.0")), (0, Decimal("-0"))]
)
def test_equal_keys_identify_one_item(one: Any, other: Any) -> None:
    assert canonical({"id": one}) == canonical({"id": other})


@pytest.mark.parametrize(("one", "other"), [(b"x", Binary(b"y")), (b"x", "x"), (1, "1"), (1, Decimal("1.1")), (1, True)])
def test_different_keys_identify_different_items(one: Any, other: Any) -> None:
    assert canonical({"id": one}) != canonical({"id": other})
