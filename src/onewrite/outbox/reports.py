"""What the passes of a relay have done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onewrite.pending import Broken, Outgoing


@dataclass(frozen=True, slots=True)
class Flushed:
    """One pass over one entity: what the broker has accepted, and what is left of what was read.

    `cleared`: False if another relay was faster. It has published the same, and what is left is not known.
    """

    published: tuple[Outgoing, ...]
    remaining: tuple[Outgoing, ...]
    refused: Outgoing | None = None
    cleared: bool = True


@dataclass(slots=True)
class Swept:
    """One pass over all that was due. `pending` and `oldest`, in seconds, are of what it met and could not publish.

    `waited`: for how many seconds the oldest of the published events had been pending.
    `overtaken` counts the entities whose events another relay has cleared first. `failed` are events whose call raised,
    or that were published and could not be cleared. `error`: at the end of the pass the broker or the database took no call at all.
    `complete`: it has looked for all that is due, so that no event has been pending for longer than those it met. It is False for a
    doorbell's pass, which looks only at what it was told of, and for one whose search has not come to its end.
    """

    entities: int = 0
    published: int = 0
    overtaken: int = 0
    pending: int = 0
    oldest: float = 0.0
    waited: float = 0.0
    refused: list[Outgoing] = field(default_factory=list[Outgoing])
    failed: list[tuple[Outgoing, Exception]] = field(default_factory=list[tuple[Outgoing, Exception]])
    broken: list[Broken] = field(default_factory=list[Broken])
    error: Exception | None = None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Waiting:
    """An entity with something pending: its oldest event, how long that has been waiting in seconds, and how many there are."""

    event: Outgoing
    age: float
    pending: int

    @property
    def entity(self) -> Mapping[str, Any]:
        return self.event.entity


@dataclass(frozen=True, slots=True)
class OutboxState:
    """What an entity's outbox holds: the source of its events, how many of them were sent, and those that are pending."""

    source: str
    sent: int
    pending: tuple[Outgoing, ...]
