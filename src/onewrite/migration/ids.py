"""Plans for a set of ids that the user's own code keeps in an attribute of the entity, or an unbounded ledger that has its form.

Until the old attribute is dropped, consumers look into it by `also=SeenIds(retention=None, readable=True, attribute=...)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from onewrite.errors import ConfigurationError, LedgerMismatch
from onewrite.label import label_slot
from onewrite.ledgers import SeenIds
from onewrite.ledgers.entry import ABSENT, Entry, Lookup, Mark, Remember
from onewrite.message import Message
from onewrite.migration.plan import CarryIds, Drop, Fits, Found, Plan, State, check_template, filled, refusing

_KEPT = re.compile(r"@([^/]*)/(.+)", re.DOTALL)
_QUOTES = {"%2F": "/", "%2B": "+", "%25": "%"}
_QUOTED = re.compile("|".join(_QUOTES))
_NO_ROOM = "There is no room for the old set and the ledger together. --drop moves the ids in one write."


class _Carried(NamedTuple):
    """What the ledger holds of an old set, and what it lacks."""

    entry: Entry
    missing: tuple[Mark, ...]
    any_held: bool


@dataclass(frozen=True, slots=True)
class Ids:
    """The set in `attribute`, which is to be carried into `ledger`. `source`: that of its messages, as a template."""

    attribute: str
    ledger: SeenIds
    source: str
    _before: SeenIds = field(init=False, repr=False)
    _looking: SeenIds = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_template(self.source)
        if (self.ledger.retention, self.ledger.readable, self.ledger.attribute) == (None, True, self.attribute):
            raise ConfigurationError(
                f"{self.attribute!r} is where this ledger keeps the ids itself: there is nothing to carry. Give --to or --attribute."
            )
        if label_slot(self.attribute) in self.ledger.terms.no_label:
            raise ConfigurationError(
                f"Consumers with a look into {self.attribute!r} leave a label there, which a store without one would take for that of another "
                "ledger: give the new ledger an --attribute of its own."
            )
        before, target = SeenIds(None, self.attribute, readable=True), self.ledger
        looking = SeenIds(target.retention, target.attribute, readable=target.readable, also=before)
        object.__setattr__(self, "_before", before)
        object.__setattr__(self, "_looking", looking)

    def plan(self, found: Found, now: float, fits: Fits, *, drops: bool) -> Plan:
        """What is to be done with the entity. `drops`: may the old attribute be removed?"""
        return refusing(lambda: self._plan(found, now, fits, drops=drops))

    def _plan(self, found: Found, now: float, fits: Fits, *, drops: bool) -> Plan:
        carried, read = self._carried(found, now), found.held[self.attribute]
        if not carried.missing:
            return Plan(State.CARRIED, (Drop(self.attribute, carried.entry, read),) if drops else ())
        count = len(carried.missing)
        state = State.CHANGED if carried.any_held else State.FRESH
        step, drop = CarryIds(self.attribute, carried.entry, carried.missing), Drop(self.attribute, carried.entry, read)
        if fits(found, step):
            return Plan(state, (step,), count)
        # There is no room for both. So all ids change place in one write, which only a drop may do.
        step = step._replace(drop=drop)
        if not fits(found, step):
            return Plan(
                State.REFUSED, why="Even without the old set the entity would be too large for the database: split it first."
            )
        return Plan(State.TOO_LARGE, (step,) if drops else (), count, "" if drops else _NO_ROOM)

    def _carried(self, found: Found, now: float) -> _Carried:
        entry = self._looking.entry(Message("any"), now)
        entry.check(found.lookup)
        marks = self._marks(found, now)
        held = _held(cast("Remember", entry.own), found.lookup)
        missing = tuple([mark for mark in marks if mark not in held])
        return _Carried(entry, missing, len(missing) < len(marks))

    def _marks(self, found: Found, now: float) -> list[Mark]:
        """The marks of the old set's ids, in one order."""
        lookup = found.lookup
        old = self._before.look(Message("any"), now)
        texts = cast("list[str]", sorted(_held(old, lookup)))
        labelled, source = lookup(label_slot(self.attribute)) is not ABSENT, filled(self.source, found)
        messages = [self._message(text, source, now, labelled=labelled) for text in texts]
        return list(dict.fromkeys([self.ledger.look(message, now).mark for message in messages]))

    def _message(self, text: str, source: str, now: float, *, labelled: bool) -> Message:
        """The message whose mark stands in the old set."""
        if not text.startswith("@"):
            return Message(text, source=source)
        spelled = _KEPT.fullmatch(text)
        if labelled and spelled is not None:
            kept_source, *parts = [_QUOTED.sub(lambda each: _QUOTES[each[0]], name) for name in spelled[1].split("+")]
            message = Message(spelled[2], source=kept_source, parts=tuple(parts))
            if self._before.look(message, now).mark == text:
                return message
        raise LedgerMismatch(
            f"The old set holds {text!r}. Ids that begin with @ are spelled in another way by a ledger, so that consumers with a look "
            "into the set would not recognise this one: such an entity cannot be migrated while consumers run."
        )


def _held(change: Remember, lookup: Lookup) -> frozenset[Mark]:
    """The marks in all sets that a write would look into."""
    sets = [lookup(slot) for slot in change.sets.live]
    for held in sets:
        if held is not ABSENT and not (
            isinstance(held, frozenset)
            and all(isinstance(mark, change.sets.kind) for mark in cast("frozenset[object]", held))
        ):
            raise LedgerMismatch(
                f"Where a set of {'ids, as text,' if change.sets.kind is str else 'marks'} is expected the entity has something else."
            )
    return frozenset[Mark]().union(*[cast("frozenset[Mark]", held) for held in sets if held is not ABSENT])
