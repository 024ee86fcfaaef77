"""The stored form of an item. Each slot of a ledger is a top-level attribute. docs/format.md lists the attributes."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, cast

from boto3.dynamodb.types import Binary

from onewrite.core.effect import make_effect_error
from onewrite.core.features.tombstone import read_tombstone
from onewrite.core.label import EFFECT, EFFECTS, OURS, PREFIX, TOMBSTONE, Slot, plain
from onewrite.core.ledgers.entry import ABSENT, Lookup, Terms
from onewrite.core.ledgers.seen_ids import RING_LAYOUT
from onewrite.core.write import Image, Unreadable
from onewrite.dynamodb.values import STORED_PRECISION, is_typed, plain_values, read_bytes
from onewrite.outcome import Entity


def locate_slot(slot: Slot) -> str:
    """Return the name of the attribute that contains a slot.

    The name of a group of marks ends with "@", and the source follows: ow_@order-7. The name of a ring ends with "r". For a set of the
    ring, the set's own name replaces that letter: ow_36h_r and r0 become ow_36h_r0.
    """
    if not slot.key:
        return slot.group
    return f"{slot.group}{slot.key}" if slot.group[-1] == "@" else f"{slot.group[:-1]}{slot.key}"


_OF_SOURCE = re.compile(rf"(?P<group>{PREFIX}@)(?P<key>.+)", re.DOTALL)
_IN_RING = re.compile(rf"(?P<prefix>{PREFIX}{RING_LAYOUT})(?P<key>r\d)")


def read_slot(name: str) -> Slot:
    """Return the slot that an attribute contains: the inverse of `locate_slot`."""
    if match := _OF_SOURCE.fullmatch(name):
        return Slot(match["group"], match["key"])
    match = _IN_RING.fullmatch(name)
    return Slot(name) if match is None else Slot(f"{match['prefix']}r", match["key"])


def locate_effect(effect_hash: str) -> str:
    """Return the name of the attribute that contains the open effect with that hash."""
    return f"{EFFECT}{effect_hash}"


def without_ledger(terms: Terms, item: Mapping[str, Any]) -> Entity:
    """Return the item without any store's onewrite attributes. For a deleted item, return only its key."""
    attributes = {name: value for name, value in item.items() if not name.startswith(OURS) and name not in terms.plain_sets}
    if TOMBSTONE not in item:
        return attributes
    tombstone = item[TOMBSTONE]
    key = read_tombstone(plain_values({"map": tombstone})["map"] if is_typed(tombstone) else tombstone).key
    return {name: value for name, value in attributes.items() if name in key}


def lookup(item: Mapping[str, Any]) -> Lookup:
    """Return a function that looks up a slot in an item."""

    def look_up(slot: Slot) -> object:
        name = locate_slot(slot)
        return normalize(item[name]) if name in item else ABSENT

    return look_up


def read_image(terms: Terms, item: Mapping[str, Any] | None) -> Image:
    """Return the image of an item that DynamoDB returned with a refused write."""
    fields, is_gone = item or {}, item is not None and TOMBSTONE in item
    effects: dict[str, Any] = {}
    if EFFECTS in fields:
        hashes = cast("frozenset[str]", normalize(fields[EFFECTS]))
        if not isinstance(cast("object", hashes), frozenset) or not {*map(type, hashes)} <= {str}:
            raise make_effect_error()
        effects = {effect_hash: fields.get(locate_effect(effect_hash)) for effect_hash in hashes}
    is_shown = item is not None and not is_gone and not isinstance(item, Unreadable)
    entity = without_ledger(terms, fields) if is_shown else None
    return Image(item is not None, is_gone, entity, lookup(fields), effects, fields, is_null_absent=False)


def normalize(value: object) -> object:
    """Return a stored value in the form that ledgers compare: a frozenset for a set, an int for a whole number."""
    match value:
        case AbstractSet():
            return frozenset(map(normalize, cast("AbstractSet[object]", value)))
        case Decimal() if value == int(value):
            return int(value)
        case _:
            return value


# --- which keys identify the same item -----------------------------------------------------------------------------


def canonical(key: object) -> Hashable:
    """Return a value that is equal for two keys, in plain values, of the same item.

    Values that can't be part of a key are equal if their `repr` is.
    """
    if not isinstance(key, Mapping):
        return repr(key)
    attributes = cast("Mapping[str, object]", key)
    return tuple([(name, *_make_comparable(attributes[name])) for name in sorted(attributes, key=str)])


def format_number(value: int | Decimal) -> str:
    """Return a string that is the same for equal numbers, such as 1, 1.0, and 1E+0, or 0 and -0."""
    return f"{Decimal(value or 0).normalize(STORED_PRECISION):f}"


def _make_comparable(value: object) -> tuple[str, Hashable]:
    """Return the type and a comparable form of a key attribute's value. Other values have no type."""
    match value:
        case str():
            return "S", plain(value)
        case int() | Decimal() if not isinstance(value, bool) and Decimal(value).is_finite():
            return "N", format_number(value)
        case bytes() | bytearray() | Binary():
            return "B", bytes(read_bytes(value) if isinstance(value, Binary) else value)
        case _:
            return "", repr(value)
