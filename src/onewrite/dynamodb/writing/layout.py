"""Where a ledger's slots stand in an item: each is a top-level attribute. docs/format.md lists them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, NamedTuple, cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.writing.values import is_typed, plain, raw
from onewrite.label import OURS, STEP, TOMBSTONE, Slot, is_ours, prefix_of
from onewrite.ledgers.entry import ABSENT, Lookup, Terms
from onewrite.ledgers.seen_ids import KEPT, SLOTS
from onewrite.ledgers.seen_numbers import source_of
from onewrite.outcome import Entity
from onewrite.tombstone import read_tombstone

ATTEMPT_SLOTS = 5


def name_of(slot: Slot) -> str:
    """The name of the attribute that holds a slot. A set of a ring stands there in place of the ring, whose name ends with an "r"."""
    if not slot.key:
        return slot.group
    return f"{slot.group}{slot.key}" if slot.group[-1] == "@" else f"{slot.group[:-1]}{slot.key}"


def attempts_name(attribute: str, slot: str) -> str:
    return f"{prefix_of(attribute)}t{slot[1:]}"


def name_of_step(mark: bytes) -> str:
    """The attribute that holds the open step of that mark."""
    return f"{STEP}{mark.hex()}"


_OF_LEDGER = re.compile(rf"l|{KEPT}r[0-{SLOTS - 1}]|allt?|t[0-{ATTEMPT_SLOTS - 1}]|@.*", re.DOTALL)


def is_made_by(attribute: str, name: str) -> bool:
    """Does this attribute belong to the ledger that is known by that one?"""
    if not is_ours(attribute):
        return name == attribute
    prefix = prefix_of(attribute)
    return name.startswith(prefix) and _OF_LEDGER.fullmatch(name, len(prefix)) is not None


def without_ledger(terms: Terms, item: Mapping[str, Any]) -> Entity:
    """The item without all that is ours, whichever store has written it. Of a deleted item only the key is left."""
    own = business(terms, item)
    if TOMBSTONE not in item:
        return own
    key = read_tombstone(_plain_map(item[TOMBSTONE])).key
    return {name: value for name, value in own.items() if name in key}


def business(terms: Terms, item: Mapping[str, Any]) -> Entity:
    """The attributes that are the caller's own, those of a deleted item too that are still there."""
    plain_sets = terms.plain_sets
    return {name: value for name, value in item.items() if not name.startswith(OURS) and name not in plain_sets}


def _plain_map(value: Any) -> Any:
    """A plain or a typed map as a plain one."""
    return plain({"map": value})["map"] if is_typed(value) else value


class Held(NamedTuple):
    """What a plain item holds of a ledger. `tags`: those of a ledger of numbers, by their names."""

    attributes: Mapping[str, Any]
    sources: int
    tags: list[tuple[str, object]]


def held_of(terms: Terms, item: Mapping[str, Any]) -> Held:
    attributes = {
        name: value for name, value in item.items() if any(is_made_by(attribute, name) for attribute in terms.attributes)
    }
    numbered = [(name, _neutral(value)) for name, value in attributes.items() if "@%w" in name]
    return Held(attributes, len({source_of(name) for name in attributes if "@" in name}), numbered)


def lookup(item: Mapping[str, Any]) -> Lookup:
    """A function that looks up a slot in an item."""

    def held(slot: Slot) -> object:
        name = name_of(slot)
        return _neutral(item[name]) if name in item else ABSENT

    return held


def _neutral(value: object) -> object:
    match value:
        case AbstractSet():
            members = cast("AbstractSet[object]", value)
            return frozenset([raw(member) if isinstance(member, Binary) else _neutral(member) for member in members])
        case Decimal() if value == int(value):
            return int(value)
        case _:
            return value
