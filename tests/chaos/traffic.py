"""Which messages there are, which of them may be delivered for the first time, and what must have come of them. Pure.

A source writes to one entity, under one ledger. Its messages are numbered 1, 2, 3.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from onewrite import HighWaterMark, InSequence, Message, SeenIds, SeenNumbers

AnyLedger = SeenIds | HighWaterMark | InSequence | SeenNumbers
_WINDOW = 12  # small, so many messages enter a block
LEDGERS: dict[str, AnyLedger] = {
    "SeenIds": SeenIds(),
    "HighWaterMark": HighWaterMark(),
    "InSequence": InSequence(),
    "SeenNumbers": SeenNumbers(_WINDOW),
}
# How many messages of a source are under way at once, and so how far they can overtake each other. HighWaterMark drops a message
# that a later one has overtaken, so its sources hand out a message only when the one before is settled.
_AT_ONCE = {"SeenIds": 8, "HighWaterMark": 1, "InSequence": 4, "SeenNumbers": 8}
SOURCES = 2  # of an entity


class Delivery(NamedTuple):
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
class Source:
    ledger: str
    entity: str
    name: str
    largest: int
    issued: int = 0
    unsettled: set[str] = field(default_factory=set)

    @property
    def has_room(self) -> bool:
        if self.ledger == "SeenNumbers" and self.unsettled and self.issued + 1 - self._oldest >= _WINDOW:
            return False
        return self.issued < self.largest and len(self.unsettled) < _AT_ONCE[self.ledger]

    @property
    def _oldest(self) -> int:
        """The lowest number that is not settled."""
        return min([int(name.rpartition("-")[2]) for name in self.unsettled])

    def issue(self) -> Delivery:
        self.issued += 1
        delivery = self.delivery(self.issued)
        self.unsettled.add(delivery.message.id)
        return delivery

    def delivery(self, number: int) -> Delivery:
        return Delivery(self.ledger, self.entity, Message(f"{self.name}-{number}", source=self.name, sequence=number))

    def deliveries(self) -> Iterator[Delivery]:
        return (self.delivery(number) for number in range(1, self.issued + 1))


class Traffic:
    """All messages of a round. `largest` is how many a source has at most: it bounds the size of the entities, and of this object.
    `entities` are those of each ledger.
    """

    def __init__(self, name: str, ledgers: Sequence[str], largest: int, entities: int = 3) -> None:
        self.sources = {
            source: Source(ledger, entity, source, largest)
            for ledger in ledgers
            for entity in (f"{name}-{ledger}-{n}" for n in range(entities))
            for source in (f"{entity}.{n}" for n in range(SOURCES))
        }

    def fresh(self, choice: random.Random) -> Delivery | None:
        """A message that was never delivered, if one may be."""
        open_sources = [source for source in self.sources.values() if source.has_room]
        return choice.choice(open_sources).issue() if open_sources else None

    def settle(self, delivery: Delivery) -> None:
        self.sources[delivery.message.source].unsettled.discard(delivery.message.id)

    def is_settled(self, delivery: Delivery) -> bool:
        return delivery.message.id not in self.sources[delivery.message.source].unsettled

    @property
    def unsettled(self) -> int:
        return sum(len(source.unsettled) for source in self.sources.values())

    @property
    def most(self) -> int:
        """How many messages there can be."""
        return sum(source.largest for source in self.sources.values())

    @property
    def messages(self) -> int:
        return sum(source.issued for source in self.sources.values())

    def everything(self) -> Iterator[Delivery]:
        """Each message that was delivered, in the order of its source."""
        for source in self.sources.values():
            yield from source.deliveries()

    def entities(self) -> list[str]:
        return [*dict.fromkeys(source.entity for source in self.sources.values())]

    def damage(self, entity: str, n: int, effects: Sequence[str]) -> Damage:
        """What is wrong with an entity whose counter shows `n` and which holds these effects, in this order.

        A message that was never settled is not expected, and may be there: nobody was told that it is done.
        """
        sources = [source for source in self.sources.values() if source.entity == entity]
        found = Counter(effects)
        issued = [delivery.message.id for source in sources for delivery in source.deliveries()]
        unsettled = set().union(*(source.unsettled for source in sources))
        lost = [name for name in issued if not found[name] and name not in unsettled]
        doubled = [name for name, count in found.items() if count > 1]
        # Counter and list are one write: if they differ, one of them has it once more or once less.
        lost += ["counter"] * (len(effects) - n)
        doubled += ["counter"] * (n - len(effects))
        return Damage(lost, doubled, [name for source in sources for name in _disordered(source, effects)])


def _disordered(source: Source, effects: Sequence[str]) -> list[str]:
    """The messages that took effect after a later one of their source, where the ledger keeps them in order."""
    if source.ledger in ("SeenIds", "SeenNumbers"):
        return []
    highest, late = 0, []
    for effect in dict.fromkeys(effects):  # what is doubled is counted as that
        name, _, number = effect.rpartition("-")
        if name == source.name:
            if int(number) < highest:
                late.append(effect)
            highest = max(highest, int(number))
    return late
