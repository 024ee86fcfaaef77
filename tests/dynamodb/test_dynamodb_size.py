"""The bytes of items and values are those that DynamoDB counts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import Binary

from onewrite.dynamodb.values import measure_item, measure_value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("é", 2),
        (Binary(b"abc"), 3),
        (True, 1),
        pytest.param({"ab", "c"}, 3, id="two texts"),
        (["ab", True], 3 + (1 + 2) + (1 + 1)),
        ({"né": "abc"}, 3 + 1 + 3 + 3),
        ({"a": {"b": []}}, 3 + 1 + 1 + 3 + 1 + 1 + 3),
        pytest.param(object(), 1, id="an object"),
    ],
    ids=repr,
)
def test_value_size_matches_dynamodbs_count(value: Any, expected: int) -> None:
    assert measure_value(value) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0", 1),
        ("100", 2),  # the pairs 01 and 00, of which the zeros are not stored
        ("1.5", 3),  # 01 and 50
        ("0.05", 2),
        ("-12.5", 4),
        ("1E-130", 2),
        ("-1." + "1" * 37, 21),
    ],
)
def test_digits_of_a_number_are_counted_in_pairs(number: str, expected: int) -> None:
    assert measure_value(Decimal(number)) == expected


def test_attribute_names_count_toward_item_size() -> None:
    assert measure_item({}) == 0
    assert measure_item({"né": "abc", "n": 1}) == 3 + 3 + 1 + 2
