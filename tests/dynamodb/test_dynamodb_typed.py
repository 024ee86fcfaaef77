"""A store made with `typed=True` does what one of plain values does, with typed values in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import boto3
import pytest

from onewrite import Begun, ConfigurationError, InvalidUpdate, Message, Rejected, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import typed_values
from onewrite.testing import moto_table

NOW = 1_700_000_000.0
EFFECT: dict[str, Any] = {"lease": timedelta(seconds=30), "key_valid_for": timedelta(hours=1)}
ITEM = {"id": "o-1", "n": 2, "name": "Ann", "tags": {"a", "b"}, "map": {"list": [True, None, b"x", Decimal("1.5")]}}
SET: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}, "ReturnValues": "ALL_NEW"}
KEY: dict[str, Any] = {"Key": {"id": "o-1"}}


Open = Callable[[str, bool], Any]


@pytest.fixture
def open_store() -> Iterator[Open]:
    with moto_table("plain", key="id"), moto_table("typed", key="id"):
        client = boto3.client("dynamodb")

        def open_it(name: str, typed: bool) -> Any:
            more: Any = {"clock": lambda: NOW, "tombstones": Tombstones(timedelta(days=1)), "typed": typed}
            return GuardedTable(client, SeenIds(), table_name=name, **more)

        yield open_it


def as_typed(native: Mapping[str, Any]) -> dict[str, Any]:
    parts = ("Key", "Item", "ExpressionAttributeValues")
    return {
        name: {inner: serialized(value) for inner, value in values.items()} if name in parts else values
        for name, values in native.items()
    }


def serialized(value: Any) -> Any:
    return boto3.dynamodb.types.TypeSerializer().serialize(value)


def run_story(store: Any, convert: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> list[Any]:
    """Call each verb of a store once or twice, and return the results."""

    def call(verb: str, *args: Any, **native: Any) -> Any:
        return getattr(store, verb)(*args, **convert(native))

    def messages(*names: str) -> list[Message]:
        return [Message(name) for name in names]

    refused = {**KEY, **SET, "ConditionExpression": "n > :many", "ExpressionAttributeValues": {":n": 1, ":many": 99}}
    story = [
        call("put_item", Message("m1"), Item=ITEM),
        call("put_item", Message("m1"), Item=ITEM),
        call("update_item", Message("m2"), **KEY, **SET),
        call("update_item", Message("m2"), **KEY, **SET),
        call("update_item", Message("m3"), **refused),
        call("remember", Message("m4"), **KEY),
        call("preview", Message("m4"), **KEY),
        call("update_batch", messages("m4", "m5", "m6"), lambda _: convert({**KEY, **SET})),
        call("get_item", **KEY),
        call("get_item", Key={"id": "none"}),
    ]
    begun = call("begin_effect", Message("m7"), "charge", **KEY, **EFFECT)
    story += [call("open_effects", **KEY), call("update_item", Message("m7"), **KEY, **SET, finishes=begun)]
    story += [
        call("perform_effect", Message("m8"), "charge", lambda _: "ch-1", then=lambda _: convert(SET), **KEY, **EFFECT)
    ]
    return [*story, call("delete_item", Message("m10"), **KEY, ReturnValues="ALL_OLD"), call("get_item", **KEY)]


def plain(result: Any) -> Any:
    """What a store of plain values returned, as one of typed values does."""
    if isinstance(result, list):
        return [*map(plain, result)]
    if isinstance(result, Mapping):
        return typed_values(result)
    return result if getattr(result, "entity", None) is None else replace(result, entity=typed_values(result.entity))


def comparable(result: Any) -> Any:
    """The result with the members of its sets in order."""
    if isinstance(result, list):
        return [*map(comparable, result)]
    if isinstance(result, Mapping):
        return {name: sorted(value) if name == "SS" else comparable(value) for name, value in result.items()}
    return result if getattr(result, "entity", None) is None else replace(result, entity=comparable(result.entity))


def test_each_verb_returns_typed_values_equal_to_plain_ones(open_store: Open) -> None:
    expected = run_story(open_store("plain", False), dict)
    found = run_story(open_store("typed", True), as_typed)
    assert [type(outcome) for outcome in found] == [type(outcome) for outcome in expected]
    for outcome, other in zip(found, expected, strict=True):
        if not isinstance(outcome, Begun):
            assert comparable(outcome) == comparable(plain(other))
    assert found[2].entity["n"] == {"N": "3"}
    assert isinstance(found[4], Rejected) and found[4].entity is not None  # noqa: PT018
    assert found[4].entity["map"] == {"M": {"list": {"L": [{"BOOL": True}, {"NULL": True}, {"B": b"x"}, {"N": "1.5"}]}}}


def test_explain_accepts_typed_values(open_store: Open) -> None:
    request = open_store("typed", True).explain("update_item", Message("m1"), **as_typed({**KEY, **SET}))
    assert request["Key"] == {"id": {"S": "o-1"}}
    assert request["ExpressionAttributeValues"][":n"] == {"N": "1"}


@pytest.mark.parametrize(
    "value", ["x", 1, None, {"S": 1}, {"S": "a", "N": "1"}, {"L": ["x"]}, {"M": {"a": 1}}, {"N": "x"}, {"X": "y"}, {}]
)
def test_plain_value_is_refused(open_store: Open, value: Any) -> None:
    store = open_store("typed", True)
    for native in (
        {"Key": {"id": value}},
        {**as_typed(KEY), "UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": value}},
    ):
        with pytest.raises(InvalidUpdate, match="isn't a typed value"):
            store.update_item(Message("m1"), **native)


def test_only_a_low_level_client_accepts_typed_values() -> None:
    with moto_table("orders") as table, pytest.raises(ConfigurationError, match="typed=True: a Table types values itself"):
        GuardedTable(table, SeenIds(), typed=True)  # type: ignore[call-overload]
