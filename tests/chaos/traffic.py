"""Which messages there are, which of them may be delivered for the first time, and what must have come of them. Pure.

A lane is one source that writes to one entity, under one ledger. Its messages are numbered 1, 2, 3.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from onewrite import HighWaterMark, InSequence, Message, SeenIds

AnyLedger = SeenIds | HighWaterMark | InSequence
LEDGERS: dict[str, AnyLedger] = {"SeenIds": SeenIds(), "HighWaterMark": HighWaterMark(), "InSequence": InSequence()}
# How many messages of a source are under way at once, which is how far they overtake each other. A mark takes what was overtaken
# for old: such a source hands out its next message when the one before is settled.
_AT_ONCE = {"SeenIds": 8, "HighWaterMark": 1, "InSequence": 4}
ENTITIES, SOURCES = 3, 2  # for each ledger, and for each entity


class Letter(NamedTuple):
    """A message on its way."""

    ledger: str
    entity: str
    message: Message


class Damage(NamedTuple):
    """The messages of an entity whose effect is wrong."""

    lost: list[str]
    doubled: list[str]
    disordered: list[str]


@dataclass(slots=True)
class Lane:
    ledger: str
    entity: str
    source: str
    largest: int
    issued: int = 0
    unsettled: set[str] = field(default_factory=set)

    @property
    def has_room(self) -> bool:
        return self.issued < self.largest and len(self.unsettled) < _AT_ONCE[self.ledger]

    def issue(self) -> Letter:
        self.issued += 1
        letter = self.letter(self.issued)
        self.unsettled.add(letter.message.id)
        return letter

    def letter(self, number: int) -> Letter:
        return Letter(self.ledger, self.entity, Message(f"{self.source}-{number}", source=self.source, sequence=number))


class Traffic:
    """All messages of a round. `largest` bounds how many a source has, and so the size of an entity and of this."""

    def __init__(self, name: str, ledgers: Sequence[str], largest: int) -> None:
        self.lanes = {
            source: Lane(ledger, entity, source, largest)
            for ledger in ledgers
            for entity in (f"{name}-{ledger}-{n}" for n in range(ENTITIES))
            for source in (f"{entity}.{letter}" for letter in "ab"[:SOURCES])
        }

    def fresh(self, choice: random.Random) -> Letter | None:
        """A message that was never delivered, if one may be."""
        open_lanes = [lane for lane in self.lanes.values() if lane.has_room]
        return choice.choice(open_lanes).issue() if open_lanes else None

    def settle(self, letter: Letter) -> None:
        self.lanes[letter.message.source].unsettled.discard(letter.message.id)

    def is_settled(self, letter: Letter) -> bool:
        return letter.message.id not in self.lanes[letter.message.source].unsettled

    @property
    def unsettled(self) -> int:
        return sum(len(lane.unsettled) for lane in self.lanes.values())

    @property
    def messages(self) -> int:
        return sum(lane.issued for lane in self.lanes.values())

    def everything(self) -> Iterator[Letter]:
        """Each message that was delivered, in the order of its source."""
        for lane in self.lanes.values():
            yield from (lane.letter(number) for number in range(1, lane.issued + 1))

    def entities(self) -> list[str]:
        return [*dict.fromkeys(lane.entity for lane in self.lanes.values())]

    def damage(self, entity: str, n: int, effects: Sequence[str]) -> Damage:
        """What is wrong with an entity whose counter shows `n` and which holds these effects, in this order.

        A message that was never settled is not expected, and may be there: nobody was told that it is done.
        """
        lanes = [lane for lane in self.lanes.values() if lane.entity == entity]
        found = Counter(effects)
        issued = [letter.message.id for lane in lanes for letter in _letters(lane)]
        unsettled = set().union(*(lane.unsettled for lane in lanes))
        lost = [name for name in issued if not found[name] and name not in unsettled]
        doubled = [name for name, count in found.items() if count > 1]
        # Counter and list are one write: if they differ, one of them has it once more or once less.
        lost += ["counter"] * (len(effects) - n)
        doubled += ["counter"] * (n - len(effects))
        return Damage(lost, doubled, [name for lane in lanes for name in _disordered(lane, effects)])


def _letters(lane: Lane) -> list[Letter]:
    return [lane.letter(number) for number in range(1, lane.issued + 1)]


def _disordered(lane: Lane, effects: Sequence[str]) -> list[str]:
    """The messages that took effect after a later one of their source, where the ledger keeps them in order."""
    if lane.ledger == "SeenIds":
        return []
    highest, late = 0, []
    for effect in dict.fromkeys(effects):  # what is doubled is counted as that
        source, _, number = effect.rpartition("-")
        if source == lane.source:
            if int(number) < highest:
                late.append(effect)
            highest = max(highest, int(number))
    return late
