"""What consumers are told of each entity, and what is wrong with that. Pure.

A message emits as many events as its number says, in the write in which it takes effect. So the list of an entity's effects says
which events there must be, in which order, and the numbers of a source begin at 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from onewrite import Event

_MOST = 8  # events of a message


class Copy(NamedTuple):
    """An event as a relay publishes it."""

    source: str
    sequence: int
    id: str
    body: str


class Harm(NamedTuple):
    """The events of an entity that are wrong."""

    losses: list[str]
    inventions: list[str]
    misplacements: list[str]


def emitted_by(effect: str) -> list[Event]:
    """The events of the write that has this effect."""
    return [Event("Added", body) for body in bodies_of(effect)]


def bodies_of(effect: str) -> list[str]:
    count = int(effect.rpartition("-")[2]) % _MOST + 1
    return [f"{effect}/{place}" for place in range(count)]


class Witness:
    """Keeps the first copy of each event, and what came out of order."""

    def __init__(self) -> None:
        self.copies = 0
        self._copies: defaultdict[str, dict[int, Copy]] = defaultdict(dict)  # by source and number, as they came
        self._wrong: defaultdict[str, list[str]] = defaultdict(list)  # by source

    def take(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            copies_of_source = self._copies[copy.source]
            first_copy = copies_of_source.setdefault(copy.sequence, copy)
            if first_copy is not copy:
                self.copies += 1
                if first_copy != copy:
                    self._wrong[copy.source].append(f"{copy.sequence} is {first_copy.body}, and {copy.body} too")
            elif copy.sequence != len(copies_of_source):
                self._wrong[copy.source].append(f"{copy.sequence} is the {len(copies_of_source)}th to come: {copy.body}")

    @property
    def events(self) -> int:
        return sum(map(len, self._copies.values()))

    def effects(self, entity: str) -> list[str]:
        """What the events of an entity say that happened to it, in order: of one that is deleted they alone can say it."""
        copies = [copy for source in self._sources(entity) for copy in self._copies[source].values()]
        return list(dict.fromkeys(copy.body.strip('"').rpartition("/")[0] for copy in copies))

    def harm(self, entity: str, effects: Sequence[str]) -> Harm:
        """What is wrong with the events of an entity that has these effects."""
        sources = self._sources(entity)
        bodies = [copy.body for source in sources for copy in self._copies[source].values()]
        emitted_bodies = [f'"{body}"' for effect in effects for body in bodies_of(effect)]
        losses = [body for body in emitted_bodies if body not in set(bodies)]
        inventions = [body for body in bodies if body not in set(emitted_bodies)] + [
            f"source {source}" for source in sources[1:]
        ]
        misplacements = [wrong for source in sources for wrong in self._wrong[source]]
        if not losses and not inventions and bodies != emitted_bodies:
            misplacements.append("the events are told in another order than that of the effects")
        return Harm(losses, inventions, misplacements)

    def _sources(self, entity: str) -> list[str]:
        return [source for source in self._copies if source.rpartition("/")[0].endswith(f"=S:{entity}")]
