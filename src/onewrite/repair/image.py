"""An entity as it was read, in no engine's words. An engine makes it, and everything here is told from it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from onewrite.errors import OnewriteError
from onewrite.label import OUTBOX, Slot, is_ours, prefix_of
from onewrite.ledgers.entry import Lookup


class CannotRepair(OnewriteError):
    """What was asked for would do harm, or would not help: nothing was written."""


class NothingToDo(OnewriteError):
    """What was asked for is so already: nothing was written."""


class Layout(NamedTuple):
    """How an engine keeps slots: `tokens` is how many slots each ledger has for the tokens of attempts."""

    engine: str
    field_of: Callable[[Slot], str]  # the top-level attribute or field in which a slot stands
    place_of: Callable[[Slot], str]  # the same, with the way to it
    is_made_by: Callable[[str, str], bool]  # (attribute, name of a field)
    tokens: int
    largest: int  # the largest number that it stores exactly


@dataclass(frozen=True, slots=True)
class Image:
    """One entity. `fields` are its top-level fields, `slots` what stands in each place, both in no engine's types.

    `sizes` are bytes of top-level fields, `slot_sizes` those of slots. `raw` is for the engine that has read it.
    """

    layout: Layout
    key: Mapping[str, Any]  # as the engine writes it in a request
    named: str
    fields: Mapping[str, object]
    slots: Mapping[Slot, object]
    lookup: Lookup
    steps: Mapping[str, object]  # those that are open, by their marks in hexadecimal
    sizes: Mapping[str, int]
    slot_sizes: Mapping[Slot, int]
    size: int
    raw: Mapping[str, Any] = field(repr=False)

    def fields_of(self, attribute: str) -> tuple[str, ...]:
        """The top-level fields of the ledger, the outbox or the set of ids that is known by this one."""
        if attribute == OUTBOX.label:
            return tuple([name for name in OUTBOX if name in self.fields])
        return tuple([name for name in self.fields if self.layout.is_made_by(attribute, name)])

    @property
    def ours(self) -> tuple[str, ...]:
        """All top-level fields that are not the user's own."""
        return tuple([name for name in self.fields if is_ours(name)])

    def bytes_of(self, names: tuple[str, ...]) -> int:
        return sum([self.sizes[name] for name in names])

    def tokens_of(self, attribute: str) -> tuple[Slot, ...]:
        """The slots of the tokens of attempts. There are none on an engine that recognises its own retries."""
        return tuple([Slot(f"{prefix_of(attribute)}t", f"t{n}") for n in range(self.layout.tokens)])


@dataclass(frozen=True, slots=True)
class Plan:
    """What one repair changes, all on the condition that the fields `as_read` are still as they were read, or absent.

    `removes` are whole top-level fields, `unsets` single slots, `drops` members of a set, `sets` new values of a slot.
    """

    as_read: tuple[str, ...]
    removes: tuple[str, ...] = ()
    unsets: tuple[Slot, ...] = ()
    drops: tuple[tuple[Slot, tuple[str | bytes | int, ...]], ...] = ()
    sets: tuple[tuple[Slot, int | str], ...] = ()
    deletes: bool = False  # the whole entity, of which nothing is left but what is ours


def without(image: Image, plan: Plan) -> Lookup:
    """What a look at the entity would show without the members that the plan drops."""
    drops = dict(plan.drops)

    def held(slot: Slot) -> object:
        found = image.lookup(slot)
        return cast("frozenset[object]", found) - frozenset(drops[slot]) if slot in drops else found

    return held
