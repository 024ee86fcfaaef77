"""Which messages there are, which of them may be delivered for the first time, and what must have come of them. Pure.

A source writes to one entity, under one ledger. Its messages are numbered 1, 2, 3.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from onewrite import HighWaterMark, InSequence, Message, SeenIds

AnyLedger = SeenIds | HighWaterMark | InSequence
_BATCH_SIZE = 4  # messages that are in one write
_LIFETIME = 5  # messages of a source to an entity that is deleted: the last one deletes it
SOURCES = 2  # of an entity


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to write. `at_once` is how many messages of a source are under way, and so how far they can overtake each other."""

    ledger: AnyLedger
    at_once: int = 8
    in_order: bool = False  # the ledger keeps effects in the order of their source
    entity: str = ""  # the same for kinds that write to the same entities
    tag: str = ""  # before a message's id in the list of effects, where two services get the same message


# HighWaterMark drops a message that a later one has overtaken, so its sources hand out a message only when the one before is settled.
KINDS: dict[str, Kind] = {
    "SeenIds": Kind(SeenIds()),
    "HighWaterMark": Kind(HighWaterMark(), 1, in_order=True),
    "InSequence": Kind(InSequence(), 4, in_order=True),
    "lean": Kind(SeenIds()),  # DynamoDB only
    "update_batch": Kind(SeenIds()),
    "update_batch in order": Kind(InSequence(), 4, in_order=True),
    "effect": Kind(SeenIds()),
    "delete": Kind(SeenIds()),
    "first service": Kind(SeenIds(name="first"), entity="services"),
    "second service": Kind(InSequence(name="second"), 4, in_order=True, entity="services", tag="second "),
}


class Delivery(NamedTuple):
    """A message on its way. `messages` are those that a batch writes with it: earlier ones of its source, redelivered."""

    kind: str
    entity: str
    message: Message
    messages: tuple[Message, ...] = ()

    @property
    def effect(self) -> str:
        return effect_of(self.kind, self.message)

    @property
    def deletes(self) -> bool:
        return self.kind == "delete" and int(self.message.id.rpartition("-")[2]) % _LIFETIME == 0


def effect_of(kind: str, message: Message) -> str:
    """What the message puts in the list of its entity, and its events in their bodies."""
    return KINDS[kind].tag + message.id


class Damage(NamedTuple):
    """The messages of an entity whose effect is wrong."""

    losses: list[str]
    doubles: list[str]
    misplacements: list[str]


@dataclass(slots=True)
class Source:
    kind: str
    entity: str
    name: str
    largest: int
    issued_count: int = 0
    unsettled_ids: set[str] = field(default_factory=set)

    @property
    def has_room(self) -> bool:
        return self.issued_count < self.largest and len(self.unsettled_ids) < KINDS[self.kind].at_once

    def issue(self) -> Delivery:
        self.issued_count += 1
        delivery = self.delivery(self.issued_count)
        self.unsettled_ids.add(delivery.message.id)
        return delivery

    def delivery(self, number: int) -> Delivery:
        first = max(1, number + 1 - _BATCH_SIZE) if self.kind.startswith("update_batch") else number
        messages = tuple(self._message(n) for n in range(first, number + 1))
        return Delivery(self.kind, self.entity_of(number), messages[-1], messages)

    def _message(self, number: int) -> Message:
        return Message(f"{self.name}-{number}", source=self.name, sequence=number)

    def deliveries(self) -> Iterator[Delivery]:
        return (self.delivery(number) for number in range(1, self.issued_count + 1))

    def entity_of(self, number: int) -> str:
        return f"{self.entity}.{(number - 1) // _LIFETIME}" if self.kind == "delete" else self.entity

    def entities(self) -> Iterator[str]:
        """Those that it writes to, each with what was issued for it so far."""
        if self.kind == "delete":
            yield from dict.fromkeys(self.entity_of(number) for number in range(1, self.issued_count + 1))
        else:
            yield self.entity


class Traffic:
    """All messages of a round. `largest` is how many a source has at most: it bounds the size of the entities, and of this object.
    `entities` are those of each kind.
    """

    def __init__(self, name: str, kinds: Sequence[str], largest: int, entities: int = 3) -> None:
        self.sources = {
            (kind, source): Source(kind, entity, source, largest)
            for kind in kinds
            for entity in (f"{name}-{KINDS[kind].entity or kind.replace(' ', '')}-{n}" for n in range(entities))
            for source in (f"{entity}.{n}" for n in range(SOURCES))
        }

    def fresh(self, choice: random.Random) -> Delivery | None:
        """A message that was never delivered, if one may be."""
        open_sources = [source for source in self.sources.values() if source.has_room]
        return choice.choice(open_sources).issue() if open_sources else None

    def settle(self, delivery: Delivery) -> None:
        self._source(delivery).unsettled_ids.discard(delivery.message.id)

    def is_settled(self, delivery: Delivery) -> bool:
        return delivery.message.id not in self._source(delivery).unsettled_ids

    def _source(self, delivery: Delivery) -> Source:
        return self.sources[delivery.kind, delivery.message.source]

    @property
    def unsettled_count(self) -> int:
        return sum(len(source.unsettled_ids) for source in self.sources.values())

    @property
    def most(self) -> int:
        """How many messages there can be."""
        return sum(source.largest for source in self.sources.values())

    @property
    def messages(self) -> int:
        return sum(source.issued_count for source in self.sources.values())

    def all_deliveries(self) -> Iterator[Delivery]:
        """Each message that was delivered, in the order of its source."""
        for source in self.sources.values():
            yield from source.deliveries()

    def entities(self) -> dict[str, list[Source]]:
        """Each entity, and the sources that write to it."""
        entities: dict[str, list[Source]] = {}
        for source in self.sources.values():
            for entity in source.entities():
                entities.setdefault(entity, []).append(source)
        return entities

    def must_exist(self) -> list[str]:
        """The entities that are there before their first message: an effect creates none."""
        return [entity for entity, sources in self.entities().items() if sources[0].kind == "effect"]


def issued_for(entity: str, sources: Sequence[Source]) -> list[Delivery]:
    return [delivery for source in sources for delivery in source.deliveries() if delivery.entity == entity]


def damage(entity: str, sources: Sequence[Source], n: int, effects: Sequence[str]) -> Damage:
    """What is wrong with an entity whose counter shows `n` and which holds these effects, in this order.

    A message that was never settled is not expected, and may be there: nobody was told that it is done.
    """
    count = Counter(effects)
    unsettled_effects = {effect_of(source.kind, Message(name)) for source in sources for name in source.unsettled_ids}
    issued_effects = [delivery.effect for delivery in issued_for(entity, sources)]
    losses = [effect for effect in issued_effects if not count[effect] and effect not in unsettled_effects]
    doubles = [effect for effect, times in count.items() if times > 1]
    # Counter and list are one write: if they differ, one of them has it once more or once less.
    losses += ["counter"] * (len(effects) - n)
    doubles += ["counter"] * (n - len(effects))
    return Damage(losses, doubles, [effect for source in sources for effect in _misplacements(source, effects)])


def _misplacements(source: Source, effects: Sequence[str]) -> list[str]:
    """The messages that took effect after a later one of their source, where the ledger keeps them in order."""
    kind = KINDS[source.kind]
    if not kind.in_order:
        return []
    highest, late_effects = 0, []
    for effect in dict.fromkeys(effects):  # what is doubled is counted as that
        name, _, number = effect.rpartition("-")
        if name == kind.tag + source.name:
            if int(number) < highest:
                late_effects.append(effect)
            highest = max(highest, int(number))
    return late_effects
