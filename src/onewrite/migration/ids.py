"""Plans for a set of ids that the user's own code keeps in an attribute of the entity, or that `MessageIDs` keeps there.

Until the old attribute is dropped, consumers look into it by `also=MessageIDs(...)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from onewrite.errors import LedgerMismatch
from onewrite.ledgers import MessageIDs, SeenIds
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
    _before: MessageIDs = field(init=False, repr=False)
    _looking: SeenIds = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_template(self.source)
        before, target = MessageIDs(self.attribute), self.ledger
        looking = SeenIds(target.retention, name=target.name, readable=target.readable, also=before)
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
        source = filled(self.source, found)
        messages = [message for text in texts for message in self._messages(text, source, now)]
        return list(dict.fromkeys([self.ledger.look(message, now).mark for message in messages]))

    def _messages(self, text: str, source: str, now: float) -> list[Message]:
        """The messages for which consumers with a look into the old set take this. An id that begins with "@" may be the user's own."""
        own = Message(text, source=source)
        if not text.startswith("@"):
            return [own]
        spelled = _KEPT.fullmatch(text)
        if spelled is not None:
            kept_source, *parts = [_QUOTED.sub(lambda each: _QUOTES[each[0]], name) for name in spelled[1].split("+")]
            message = Message(spelled[2], source=kept_source, parts=tuple(parts))
            if self._before.look(message, now).mark == text:
                return [message, own]
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
