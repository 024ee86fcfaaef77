"""Where a ledger's slots stand in a document: each group of them is a field. docs/format.md lists them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.errors import LedgerMismatch
from onewrite.label import OURS, STEPS, TOMBSTONE, Slot, is_ours, prefix_of
from onewrite.ledgers.entry import ABSENT, Lookup, Terms
from onewrite.ledgers.seen_ids import KEPT
from onewrite.outcome import Entity
from onewrite.step import no_step
from onewrite.tombstone import read_tombstone
from onewrite.write import Image

Document: TypeAlias = Mapping[str, Any]

_NO_MARK = object()  # stands for documents and arrays, which are not hashable


@lru_cache(maxsize=1024)  # as many as there are sources
def path_of(slot: Slot) -> str:
    return f"{slot.group}.{slot.key}" if slot.key else slot.group


_OF_LEDGER = rf"(?:l|{KEPT}r|allt?|@)"


@lru_cache(maxsize=64)
def names_of(*attributes: str) -> re.Pattern[str]:
    """The names of all fields that belong to the ledgers that are known by these."""
    every = [f"{re.escape(prefix_of(each))}{_OF_LEDGER}" if is_ours(each) else re.escape(each) for each in attributes]
    return re.compile("|".join(every) or "(?!)")


def is_made_by(attribute: str, name: str) -> bool:
    """Does this field belong to the ledger that is known by that one?"""
    return names_of(attribute).fullmatch(name) is not None


def without_ledger(terms: Terms, document: Document) -> Entity:
    """The document without all that is ours, whichever store has written it. Of a deleted document only the key is left."""
    plain_sets = terms.plain_sets
    key = read_tombstone(document[TOMBSTONE]).key if TOMBSTONE in document else document
    return {
        name: value
        for name, value in document.items()
        if name in key and not name.startswith(OURS) and name not in plain_sets
    }


class Held(NamedTuple):
    """What a document holds of a ledger. `tags`: those of a ledger of numbers, by their paths."""

    fields: Document
    sources: int
    tags: list[tuple[str, object]]


def held_of(terms: Terms, document: Document) -> Held:
    is_made = names_of(*terms.attributes).fullmatch
    fields = {name: value for name, value in document.items() if is_made(name)}
    groups = {
        name: cast("Document", value) for name, value in fields.items() if name[-1] == "@" and isinstance(value, Mapping)
    }
    tags = [
        (f"{name}.{source}.{part}", _neutral(value))
        for name, group in groups.items()
        for source, parts in group.items()
        if source.startswith("%w") and isinstance(parts, Mapping)
        for part, value in cast("Document", parts).items()
    ]
    return Held(fields, sum(map(len, groups.values())), tags)


def lookup(document: Document) -> Lookup:
    """A function that looks up a slot in a document."""

    def held(slot: Slot) -> object:
        found: object = document.get(slot.group, ABSENT)
        # No key has a "." that is not a step into a document.
        for name in slot.key.split(".") if slot.key and found is not ABSENT else ():
            if not isinstance(found, Mapping):
                raise LedgerMismatch(
                    f"{slot.group!r} holds a {type(found).__name__} where the ledger keeps a document: another writer uses the "
                    "name. Repair the entity."
                )
            found = cast("Document", found).get(name, ABSENT)
            if found is ABSENT:
                break
        return _neutral(found)

    return held


def image_of(terms: Terms, document: Document | None) -> Image:
    """The document as somebody found it who looked why it did not match."""
    held: Document = document or {}
    steps: object = held.get(STEPS, {})
    if not isinstance(steps, Mapping):
        raise no_step()
    gone = TOMBSTONE in held
    entity = None if document is None or gone else without_ledger(terms, held)
    return Image(document is not None, gone, entity, lookup(held), cast("Document", steps), held, later=True)


def _neutral(value: object) -> object:
    match value:
        case list():
            members = cast("list[object]", value)
            return frozenset([_neutral(member) if isinstance(member, Hashable) else _NO_MARK for member in members])
        case float() if value.is_integer():  # mongosh writes numbers as doubles
            return int(value)
        case int() if not isinstance(value, bool):
            return int(value)  # bson.Int64 is a subclass of int
        case _:
            return value
