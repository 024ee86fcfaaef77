"""Compiles the native call of a store that has no ledger: what tells a redelivery stands elsewhere in its transaction. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from boto3.dynamodb.conditions import ConditionBase

from onewrite.dynamodb.expression import RESERVED, check_limits, read_condition, read_update
from onewrite.dynamodb.request import possible_keys, touches_ours, written_out
from onewrite.dynamodb.values import Convert
from onewrite.errors import InvalidUpdate
from onewrite.flow import Call
from onewrite.label import TOMBSTONE, is_ours

Native = Mapping[str, Any]


def plain_update(native: Native, convert: Convert) -> Call:
    """The caller's update. What is left of a deleted entity refuses it too."""
    native = _checked(native)
    if not native.get("UpdateExpression"):
        raise InvalidUpdate("A store without a ledger has nothing to record: give the write an UpdateExpression.")
    condition = _joined([f"attribute_not_exists({TOMBSTONE})"], native)
    return Call("update_item", (), {**_sent(native, convert), "ConditionExpression": condition})


def plain_put(native: Native, convert: Convert) -> Call:
    """A put that creates an item, and never replaces one."""
    native = _checked(native)
    item: Mapping[str, Any] = native.get("Item") or {}
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    keys = possible_keys(item)
    condition = _joined([f"attribute_not_exists({key})" for key in keys], native)
    names: Mapping[str, str] = native.get("ExpressionAttributeNames") or {}
    kwargs = {**_sent(native, convert), "Item": convert(item), "ConditionExpression": condition}
    return Call("put_item", (), {**kwargs, "ExpressionAttributeNames": {**names, **keys}})


def _checked(native: Native) -> Native:
    """The call with its condition as text, which touches nothing of ours."""
    if isinstance(native.get("ConditionExpression"), ConditionBase):
        native = written_out(native)
    names: Mapping[str, str] = native.get("ExpressionAttributeNames") or {}
    for root in _roots(native):
        if is_ours(names.get(root, root)):
            raise touches_ours(names.get(root, root))
    values: Mapping[str, Any] = native.get("ExpressionAttributeValues") or {}
    for placeholder in (*names, *values):
        if placeholder.startswith(RESERVED):
            raise InvalidUpdate(f"The placeholder {placeholder} begins as our own do: give it another name.")
    return native


def _roots(native: Native) -> Iterable[str]:
    """The attributes that the call names."""
    yield from native.get("Item") or native.get("Key") or ()
    if native.get("UpdateExpression"):
        yield from read_update(native["UpdateExpression"]).roots
    if native.get("ConditionExpression"):
        yield from read_condition(native["ConditionExpression"]).roots


def _joined(ours: list[str], native: Native) -> str:
    theirs = native.get("ConditionExpression")
    text = " AND ".join([*ours, read_condition(theirs).text] if theirs else ours)
    check_limits("ConditionExpression", text)
    return text


def _sent(native: Native, convert: Convert) -> dict[str, Any]:
    converted = ("Key", "ExpressionAttributeValues")
    values = {name: convert(native[name]) for name in converted if native.get(name)}
    return {**native, **values, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
