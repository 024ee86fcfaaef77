"""Where a ledger's slots stand in an item: each is a top-level attribute. docs/format.md lists them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.writing.values import is_typed, plain, raw
from onewrite.label import STEP, TOMBSTONE, Slot, is_shared, labelled
from onewrite.ledgers.entry import ABSENT, Lookup, Terms
from onewrite.ledgers.seen_ids import SLOTS
from onewrite.ledgers.seen_numbers import source_of
from onewrite.outcome import Entity
from onewrite.tombstone import read_tombstone

ATTEMPT_SLOTS = 5


def name_of(slot: Slot) -> str:
    """The name of the attribute that holds a slot."""
    if not slot.key:
        return slot.group
    return f"{slot.group}{slot.key}" if slot.group[-1] == "@" else f"{slot.group}_{slot.key}"


def attempts_name(attribute: str, slot: str) -> str:
    return f"{attribute}_try_{slot}"


def name_of_step(mark: bytes) -> str:
    """The attribute that holds the open step of that mark."""
    return f"{STEP}{mark.hex()}"


@lru_cache(maxsize=256)
def _ledger_names(attribute: str) -> re.Pattern[str]:
    sets = rf"_(?:\d+(?:d|h|m|s|us)t?_r[0-{SLOTS - 1}]|all)"
    return re.compile(rf"{re.escape(attribute)}(?:_ledger|{sets}|_try_r[0-{ATTEMPT_SLOTS - 1}]|@.*)", re.DOTALL)


@lru_cache(maxsize=4096)  # callers name the same few attributes in every call
def belongs(terms: Terms, name: str) -> bool:
    """Does this attribute belong to the store's ledger, or to one named in its also=?"""
    return name in terms.plain_sets or any(is_made_by(attribute, name) for attribute in terms.attributes)


def is_made_by(attribute: str, name: str) -> bool:
    """Does this attribute belong to the ledger of that attribute, but for one that holds the ids itself?"""
    return name.startswith(attribute) and _ledger_names(attribute).fullmatch(name) is not None


def without_ledger(terms: Terms, item: Mapping[str, Any], names: tuple[str, ...] = ()) -> Entity:
    """The item without the store's ledger and the `names` of its outbox, and without any other whose label is in it.

    Of a deleted item only the key is left.
    """
    own = business(terms, item, names)
    if TOMBSTONE not in item:
        return own
    key = read_tombstone(_plain_map(item[TOMBSTONE])).key
    return {name: value for name, value in own.items() if name in key}


def business(terms: Terms, item: Mapping[str, Any], names: tuple[str, ...] = ()) -> Entity:
    """The attributes that are the caller's own, those of a deleted item too that are still there."""
    others, plain = labelled([(name, _text(value)) for name, value in item.items()])
    plain.update(names)
    return {
        name: value
        for name, value in item.items()
        if name not in plain
        and not belongs(terms, name)
        and not is_shared(name)
        and not any(is_made_by(other, name) for other in others)
    }


def _text(value: object) -> object:
    """The text of a plain or a typed value."""
    return cast("Mapping[str, object]", value).get("S") if isinstance(value, Mapping) else value


def _plain_map(value: Any) -> Any:
    """A plain or a typed map as a plain one."""
    return plain({"map": value})["map"] if is_typed(value) else value


class Held(NamedTuple):
    """What a plain item holds of a ledger. `tags`: those of a ledger of numbers, by their names."""

    attributes: Mapping[str, Any]
    sources: int
    tags: list[tuple[str, object]]


def held_of(terms: Terms, item: Mapping[str, Any]) -> Held:
    attributes = {name: value for name, value in item.items() if belongs(terms, name)}
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
