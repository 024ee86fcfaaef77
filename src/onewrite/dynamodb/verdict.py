"""Explains: what DynamoDB returned, as an outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.request import attempt_attribute, attempt_mark, attribute_of, slot_of
from onewrite.dynamodb.values import raw
from onewrite.flow import Call
from onewrite.ledger import Advance, Entry, Stored
from onewrite.message import Message
from onewrite.outcome import Applied, Duplicate, Entity, Outcome, Rejected


def without_ledger(attribute: str, item: Mapping[str, Any]) -> Entity:
    return {name: value for name, value in item.items() if slot_of(attribute, name) is None}


def stored(attribute: str, item: Mapping[str, Any]) -> Stored:
    """The ledger in an item, as the ledgers speak of it."""
    slots = {name: slot for name in item if (slot := slot_of(attribute, name)) is not None}
    return {slot: _neutral(item[name]) for name, slot in slots.items() if name == attribute_of(attribute, slot)}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call's request, with what is needed to read its refusal."""

    call: Call
    entry: Entry
    token: str


def refused(attribute: str, attempt: Attempt, message: Message, item: Entity | None) -> Outcome:
    """Why the condition failed, given the item as it was then. The ledger comes before the caller's own condition."""
    held = item or {}
    entity = None if item is None else without_ledger(attribute, item)
    refusal = attempt.entry.judge(message, stored(attribute, held), entity=entity)
    if isinstance(refusal, Duplicate) and _landed(attribute, attempt, held):
        wanted = attempt.call.kwargs.get("ReturnValues") == "ALL_NEW"
        return Applied(message, entity if wanted else None, retried=True)
    return Rejected(message, entity) if refusal is None else refusal


def _landed(attribute: str, attempt: Attempt, item: Entity) -> bool:
    """Did an earlier try of this very call put the mark there?"""
    entry = attempt.entry
    if isinstance(entry, Advance) or not entry.forgets:
        return bool(item.get(attempt_attribute(attribute, entry.slot)) == attempt.token)
    # The id may stand in the slot of another generation; this call would have put it here.
    held: AbstractSet[Any] = item.get(attribute_of(attribute, entry.slot), frozenset())
    return attempt_mark(attempt.token, entry.mark) in held


def _neutral(value: object) -> object:
    match value:
        case AbstractSet():
            members = cast("AbstractSet[object]", value)
            return frozenset([raw(member) if isinstance(member, Binary) else member for member in members])
        case Decimal() if value == int(value):
            return int(value)
        case _:
            return value
