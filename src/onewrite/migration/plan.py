"""What may become of one entity in a migration: the words of it, without an engine. Pure.

How consumers and the migration work side by side
-------------------------------------------------
Three kinds of consumers write to an entity, never more than two kinds at the same time:

- old: the user's own code. It looks into the old attribute, and writes it, in the write of the effect.
- between: a guarded store that looks into the old attribute and into the ledger. It writes the old attribute, so that it may
  run beside the old ones.
- new: a guarded store that looks into both as well, and writes the ledger alone. It may run beside those between, and not
  beside the old ones, which would not see what it has done.

The migration makes two kinds of writes, each to one entity, and each is safe at whatever moment it lands:

- *carry* adds to the ledger what the old attribute holds, and leaves the old attribute as it is. What the old attribute holds
  was done, and stays done: so it needs no other condition than that the entity is there and keeps its ledger as expected. No
  consumer refuses a message afterwards that it would have let in before, except new ones without a look into the old
  attribute, which are right to refuse it. So it is safe beside consumers of every kind.
- *drop* removes the old attribute, provided that it is exactly what was read, and that the ledger held all of it then. What a
  consumer between, or a new one, refused because of the old attribute it refuses because of the ledger now. An old consumer
  would take everything for fresh: so it is done only where the user says that none is left, and never where the old
  attribute has gained anything since it was carried, which shows that somebody still writes it.

A drop makes the look into the old attribute unnecessary. It comes in a later run than the carry, so that what is written
between the two shows.

What is carried counts as if it had arrived at this moment: a set has no times, and what it holds must be recognised for a whole
retention from now on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.ledgers.entry import Entry, Lookup, Mark, Remember, Sets
from onewrite.message import Message

_NAMES = re.compile(r"\{([^{}]+)\}")
REST = "*"  # in a template: what stands behind the prefix in the name of an old attribute


class State(Enum):
    """What an entity is found to be. The last that fits one of its attributes counts for all."""

    CARRIED = "carried"  # the ledger holds all that the old attribute holds
    FRESH = "to carry"  # nothing was carried before
    CHANGED = "changed"  # something was, and the old attribute has gained more since
    TOO_LARGE = "too large"  # there is no room for both
    REFUSED = "refused"  # somebody has to look at it

    def or_worse(self, other: State) -> State:
        order = list(State)
        return max(self, other, key=order.index)


class CarryIds(NamedTuple):
    """Put the marks beside those that are there. `drop` goes with it, where there is no room for both."""

    attribute: str
    entry: Entry  # of any message: it says where marks stand, and how the entity is labelled
    marks: tuple[Mark, ...]
    drop: Drop | None = None


class CarryMark(NamedTuple):
    """Record the message, whose sequence is what the old attribute holds."""

    attribute: str
    entry: Entry
    message: Message
    read: object


class Drop(NamedTuple):
    """Remove the old attribute, given that it is what was read. `entry`: as above."""

    attribute: str
    entry: Entry
    read: object


Step: TypeAlias = CarryIds | CarryMark | Drop


def dropped_by(step: Step) -> Drop | None:
    """What of the old attribute the step removes."""
    return step if isinstance(step, Drop) else step.drop if isinstance(step, CarryIds) else None


def sets_of(step: CarryIds) -> Sets:
    """The sets of marks of the ledger that gains some."""
    return cast("Remember", step.entry.own).sets


def text_or_integer(held: object) -> str | None:
    """The text by which all consumers would spell this in a source, or None where they may differ."""
    if isinstance(held, str):
        return held
    if isinstance(held, bool) or not isinstance(held, int | Decimal) or held != int(held):
        return None
    return str(int(held))


@dataclass(frozen=True, slots=True)
class Found:
    """An entity as it was read. `key` and `held` are the engine's, `name` is for people.

    `spelled` gives the text of what may stand in a source.
    """

    name: str
    key: Any
    held: Mapping[str, Any]
    lookup: Lookup
    size: int
    spelled: Callable[[object], str | None] = field(default=text_or_integer)


class Plan(NamedTuple):
    """What is to be done with an entity, in this order; and what of it there is to tell."""

    state: State
    steps: tuple[Step, ...] = ()
    marks: int = 0  # how many the ledger gains
    why: str = ""


class Fits(Protocol):
    """Would the entity after this step be as small as the engine demands?"""

    def __call__(self, found: Found, step: Step, /) -> bool: ...


class Origin(Protocol):
    """Where an entity's own code has kept what it remembers."""

    @property
    def attribute(self) -> str | None: ...  # its one name, by which a store finds such entities
    def plan(self, found: Found, now: float, fits: Fits, *, drops: bool) -> Plan: ...


def refusing(plan: Callable[[], Plan]) -> Plan:
    """The plan, or where the entity holds something else than expected, that it is refused."""
    try:
        return plan()
    except OnewriteError as error:
        return Plan(State.REFUSED, why=str(error))


def check_template(template: str) -> None:
    """Raise unless this can name a source."""
    if set("{}") & set(_NAMES.sub("", template)):
        raise ConfigurationError(f"--source {template!r}: a name stands in braces, as in orders/{{orderId}}.")


def filled(template: str, found: Found, rest: str = "") -> str:
    """The source of an entity's messages: each {name} is what the entity holds under that name."""

    def value(match: re.Match[str]) -> str:
        text = rest if match[1] == REST else found.spelled(found.held.get(match[1]))
        if text is None:
            raise ConfigurationError(
                f"The source is made with {match[0]}, and the entity has no text and no integer there: name another attribute in "
                "--source, or repair the entity."
            )
        return text

    return _NAMES.sub(value, template)
