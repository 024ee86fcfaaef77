"""The requests of a guarded write on DynamoDB: the caller's own call, with what the parts of the write ask and change beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, cast

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

from onewrite.core.flow import Call
from onewrite.core.label import OURS
from onewrite.core.ledgers.entry import Terms
from onewrite.core.write import Write
from onewrite.dynamodb.dialect import Draft, PutDraft, add_parts, read_name, shape_of
from onewrite.dynamodb.expression import (
    OUR_PREFIXES,
    USE_LESS,
    check_limits,
    merge_update,
    read_condition,
    read_update,
)
from onewrite.dynamodb.values import Convert, sendable
from onewrite.errors import InvalidUpdate

_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"
LEGACY = frozenset({"AttributeUpdates", "Expected", "ConditionalOperator"})
_MAX_PLANS = 1024  # as many as the caller's source code has calls, for each moment of a ledger's ring


def build_update(write: Write, native: Mapping[str, Any], convert: Convert = sendable, *, exists: bool = False) -> Call:
    """Build the caller's update with our parts beside it. `exists`: only where the item is there."""
    if "Item" in native:
        raise InvalidUpdate("update_item takes no Item: give it an UpdateExpression, or create with put_item.")
    key = checked_key(native)
    native = _with_text(native)
    plan = _plan(write, native, tuple(key) if exists else ())
    kwargs = _fill(plan, write, native, convert)
    kwargs["UpdateExpression"] = plan.update
    if "Key" in native:  # without it, the driver says what is missing
        kwargs["Key"] = convert(key)
    return Call("update_item", (), kwargs)


def build_put(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Build a put that creates an item, and never replaces one."""
    item = mapping_of(native, "Item")
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    _check_roots(write.entry.terms, {}, item)
    native = _with_text(native)
    plan = _plan(write, native, tuple(possible_keys(item)), creates=True)
    kwargs = _fill(plan, write, native, convert)
    kwargs["Item"] = convert({**item, **cast("PutDraft", plan.draft).read_item(write)})
    return Call("put_item", (), kwargs)


def build_record(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Build an update of an existing item that changes nothing but its ledger."""
    return build_update(write, {name: native[name] for name in ("TableName", "Key") if name in native}, convert, exists=True)


def build_begin(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Build the begin of a step, in an item that is there."""
    for name in ("UpdateExpression", "ReturnValues", "Item"):
        if name in native:
            raise InvalidUpdate(
                f"begin changes nothing but the step: leave out {name}, which is for the write that finishes it."
            )
    return build_update(write, native, convert, exists=True)


def possible_keys(item: Mapping[str, Any]) -> list[str]:
    """Return the attributes that may be the key, since the call does not say which are.

    An item that is there has its key: so the condition asks that none of these attributes is there.
    """
    return [name for name, value in item.items() if not isinstance(value, bool | AbstractSet | Mapping | list | None)]


# --- the expressions, checked and merged -------------------------------------------------------------------------------


class _Plan(NamedTuple):
    """What all writes of one shape have in common."""

    draft: Draft
    update: str
    condition: str


_plans: dict[object, _Plan] = {}


def _plan(write: Write, native: Mapping[str, Any], keys: tuple[str, ...], *, creates: bool = False) -> _Plan:
    """Return the plan of such a write. `keys`: attributes that must be there, or must not be if it creates the item."""
    names, values = mapping_of(native, "ExpressionAttributeNames"), mapping_of(native, "ExpressionAttributeValues")
    shape = (
        *(shape_of(write), keys, creates, tuple(native), native.get("UpdateExpression"), native.get("ConditionExpression")),
        *(tuple(names.items()) if names else (), tuple(values)),
    )
    try:
        plan = _plans.get(shape)
    except TypeError:  # a part of the call is not hashable, which is refused below
        plan = None
    if plan is None:
        draft = PutDraft() if creates else Draft(repeats=bool(write.other_messages))
        draft.ask(*[f"attribute_{'not_' if creates else ''}exists({draft.name(key)})" for key in keys])
        add_parts(write, draft)
        update, condition = _merge_texts(write.entry.terms, native, draft, _WIDE_ITEM if creates else USE_LESS)
        plan = _Plan(draft, update, condition)
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[shape] = plan
    return plan


def _fill(plan: _Plan, write: Write, native: Mapping[str, Any], convert: Convert) -> dict[str, Any]:
    """Return the arguments of the caller's call with the condition, our names, and our values in them."""
    draft = plan.draft
    kwargs: dict[str, Any] = {**native, "ConditionExpression": plan.condition}
    if draft.names:
        our_names = {placeholder: read_name(name, write) for placeholder, name in draft.names.items()}
        kwargs["ExpressionAttributeNames"] = {**mapping_of(native, "ExpressionAttributeNames"), **our_names}
    elif not native.get("ExpressionAttributeNames"):  # DynamoDB refuses an empty map
        kwargs.pop("ExpressionAttributeNames", None)
    our_values = {placeholder: read(write) for placeholder, read in draft.values.items()}
    kwargs["ExpressionAttributeValues"] = convert({**mapping_of(native, "ExpressionAttributeValues"), **our_values})
    kwargs["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return kwargs


def _with_text(native: Mapping[str, Any]) -> Mapping[str, Any]:
    return with_condition_text(native) if isinstance(native.get("ConditionExpression"), ConditionBase) else native


def _merge_texts(terms: Terms, native: Mapping[str, Any], draft: Draft, remedy: str) -> tuple[str, str]:
    """Refuse what would touch what is ours or cannot be merged with it, and merge the rest."""
    names, values = mapping_of(native, "ExpressionAttributeNames"), mapping_of(native, "ExpressionAttributeValues")
    update, condition = native.get("UpdateExpression"), native.get("ConditionExpression")
    _check_arguments(native, names)
    _check_placeholders([*names, *values])
    user_update = None if update is None else read_update(update)
    if user_update is not None:
        _check_roots(terms, names, user_update.roots)
    our_condition = draft.condition
    if condition is not None:
        user_condition = read_condition(condition)
        _check_roots(terms, names, user_condition.roots)
        our_condition = f"{our_condition} AND {user_condition.text}"
    merged_update = merge_update(user_update, draft.clauses)
    check_limits("UpdateExpression", merged_update)
    check_limits("ConditionExpression", our_condition, remedy)
    return merged_update, our_condition


# --- the caller's part ---------------------------------------------------------------------------------------------------


def with_condition_text(native: Mapping[str, Any]) -> Mapping[str, Any]:
    """The call with its condition as text, where it was made with boto3's Attr."""
    expression = ConditionExpressionBuilder().build_expression(native["ConditionExpression"])
    placeholders_of = {
        "ExpressionAttributeNames": expression.attribute_name_placeholders,
        "ExpressionAttributeValues": expression.attribute_value_placeholders,
    }
    result: dict[str, Any] = {**native, "ConditionExpression": expression.condition_expression}
    for name, placeholders in placeholders_of.items():
        user_entries = mapping_of(native, name)
        for placeholder in placeholders:
            if placeholder in user_entries:
                raise InvalidUpdate(f"boto3's Attr makes the placeholder {placeholder} for itself: give yours another name.")
        if placeholders:
            result[name] = {**user_entries, **placeholders}
    return result


def mapping_of(native: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value: Any = native.get(name)
    if not value:
        return {}
    mapping: Mapping[str, Any] = value
    if type(value) is not dict and not isinstance(value, Mapping):
        raise _type_error(name, value, "a dict")
    return mapping


def _type_error(name: str, value: object, remedy: str) -> InvalidUpdate:
    return InvalidUpdate(f"{name} is a {type(value).__name__}: give it {remedy}.")


def _check_arguments(native: Mapping[str, Any], names: Mapping[str, object]) -> None:
    for name in native:
        if name in LEGACY:
            raise InvalidUpdate(f"{name} is the old way, which DynamoDB does not mix with expressions: write expressions.")
    for expression in ("UpdateExpression", "ConditionExpression"):
        if not isinstance(native.get(expression), str | None):
            raise _type_error(expression, native[expression], "text")
    for placeholder, attribute in names.items():
        if not isinstance(attribute, str):
            raise _type_error(f"ExpressionAttributeNames[{placeholder!r}]", attribute, "an attribute's name")


def _check_placeholders(placeholders: Iterable[object]) -> None:
    for placeholder in placeholders:
        if not isinstance(placeholder, str):
            raise _type_error(repr(placeholder), placeholder, "the name of a placeholder or an attribute")
        if placeholder.startswith(OUR_PREFIXES):
            raise InvalidUpdate(f"The placeholder {placeholder} begins as the ledger's own do: give it another name.")


def checked_key(native: Mapping[str, Any]) -> Mapping[str, Any]:
    """The caller's key, which has no name of ours."""
    key = mapping_of(native, "Key")
    for name in key:
        if type(name) is str and name.startswith(OURS):
            raise touches_ours(name)
    return key


def _check_roots(terms: Terms, names: Mapping[str, str], roots: Iterable[str]) -> None:
    _check_placeholders(roots)
    for root in roots:
        name = names.get(root, root)
        if name.startswith(OURS):
            raise touches_ours(name)
        if name in terms.plain_sets:
            raise InvalidUpdate(
                f"This call touches {name!r}, in which the store's ledger keeps ids: leave it out, or give MessageIDs another attribute."
            )


def touches_ours(name: str) -> InvalidUpdate:
    return InvalidUpdate(
        f"This call touches {name!r}: every name that begins with {OURS} is onewrite's own, in every entity. Leave it out, or give yours "
        "another name."
    )
