"""The requests of a guarded write on DynamoDB: the caller's own call, with what the parts of the write ask and change beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

from onewrite.core.flow import Call
from onewrite.core.label import OURS
from onewrite.core.ledgers.entry import Terms
from onewrite.core.write import Write
from onewrite.dynamodb.dialect import Draft, PutDraft, add_parts
from onewrite.dynamodb.expression import OUR_PREFIXES, USE_LESS, check_limits, merge_update, read_condition, read_update
from onewrite.dynamodb.values import Convert, sendable
from onewrite.errors import InvalidUpdate

_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"
LEGACY = frozenset({"AttributeUpdates", "Expected", "ConditionalOperator"})
_MAX_TEXTS = 1024  # as many as the caller's source code has calls, for each moment of a ledger's ring


def build_update(write: Write, native: Mapping[str, Any], convert: Convert = sendable, *, exists: bool = False) -> Call:
    """Build the caller's update with our parts beside it. `exists`: only where the item is there."""
    if "Item" in native:
        raise InvalidUpdate("update_item takes no Item: give it an UpdateExpression, or create with put_item.")
    request = Draft(repeats=bool(write.other_messages))
    key = checked_key(native)
    if exists:
        request.ask(*[f"attribute_exists({request.name(name)})" for name in key])
    add_parts(write, request)
    kwargs, texts = _merge(write, native, request, convert)
    kwargs["UpdateExpression"] = texts.update
    if "Key" in native:  # without it, the driver says what is missing
        kwargs["Key"] = convert(key)
    return Call("update_item", (), kwargs)


def build_put(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """Build a put that creates an item, and never replaces one."""
    item = mapping_of(native, "Item")
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    _check_roots(write.entry.terms, {}, item)
    request = PutDraft()
    request.ask(*[f"attribute_not_exists({request.name(name)})" for name in possible_keys(item)])
    add_parts(write, request)
    kwargs, _ = _merge(write, native, request, convert, _WIDE_ITEM)
    kwargs["Item"] = convert({**item, **request.item})
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


class _Texts(NamedTuple):
    update: str
    condition: str


_texts: dict[object, _Texts] = {}  # of writes that differ in values only: to check the limits takes longer than all else


def _merge(
    write: Write, native: Mapping[str, Any], request: Draft, convert: Convert, remedy: str = USE_LESS
) -> tuple[dict[str, Any], _Texts]:
    """Merge our names, values and condition into the arguments of the caller's call."""
    if isinstance(native.get("ConditionExpression"), ConditionBase):
        native = with_condition_text(native)
    names, values = mapping_of(native, "ExpressionAttributeNames"), mapping_of(native, "ExpressionAttributeValues")
    our_condition, our_clauses = request.condition, {name: ",".join(texts) for name, texts in request.clauses.items()}
    shape = (  # what decides the texts, and whether the call may be sent
        *(write.entry.terms, our_condition, *our_clauses.items()),
        *(tuple(native), native.get("UpdateExpression"), native.get("ConditionExpression")),
        *(tuple(names.items()), tuple(values)),
    )
    try:
        texts = _texts.get(shape)
    except TypeError:  # a part of the call is not hashable, which is refused below
        texts = None
    if texts is None:
        texts = _merge_texts(write.entry.terms, native, our_condition, our_clauses, remedy)
        if len(_texts) >= _MAX_TEXTS:
            _texts.clear()
        _texts[shape] = texts
    kwargs: dict[str, Any] = {**native, "ConditionExpression": texts.condition}
    for name, ours, theirs in (
        ("ExpressionAttributeNames", request.names, names),
        ("ExpressionAttributeValues", request.values, values),
    ):
        if ours or theirs:
            kwargs[name] = {**theirs, **ours}
        else:  # DynamoDB refuses an empty map
            kwargs.pop(name, None)
    kwargs["ExpressionAttributeValues"] = convert(kwargs["ExpressionAttributeValues"])
    kwargs["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    return kwargs, texts


def _merge_texts(
    terms: Terms, native: Mapping[str, Any], our_condition: str, our_clauses: Mapping[str, str], remedy: str
) -> _Texts:
    """Refuse what would touch what is ours or cannot be merged with it, and merge the rest."""
    names, values = mapping_of(native, "ExpressionAttributeNames"), mapping_of(native, "ExpressionAttributeValues")
    update, condition = native.get("UpdateExpression"), native.get("ConditionExpression")
    _check_arguments(native, names)
    _check_placeholders([*names, *values])
    user_update = None if update is None else read_update(update)
    if user_update is not None:
        _check_roots(terms, names, user_update.roots)
    if condition is not None:
        user_condition = read_condition(condition)
        _check_roots(terms, names, user_condition.roots)
        our_condition = f"{our_condition} AND {user_condition.text}"
    merged_update = merge_update(user_update, our_clauses)
    check_limits("UpdateExpression", merged_update)
    check_limits("ConditionExpression", our_condition, remedy)
    return _Texts(merged_update, our_condition)


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
