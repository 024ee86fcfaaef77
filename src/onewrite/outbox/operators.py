"""What an operator asks of outboxes, step by step: which events wait, what cannot be read, to skip an event, to restart an entity."""

from __future__ import annotations

from collections.abc import Hashable

from onewrite.errors import ConfigurationError
from onewrite.event import seconds
from onewrite.flow import Flow
from onewrite.outbox.passes import TRIES, Entity, Outboxes
from onewrite.outbox.reports import OutboxState, Waiting
from onewrite.pending import SKIPPED, Box, Broken, Outgoing


def skip(boxes: Outboxes, entity: Entity, published_id: str) -> Flow[Outgoing | None]:
    """Replace one pending event by one that says that it was skipped. None: there is no such event, or no longer."""
    box = yield from boxes.read(entity)
    for _ in range(TRIES):
        places = [n for n in range(len(box.events)) if box.outgoing(n).id == published_id]
        if not places:
            return None
        place = places[0]
        skipped = box.events[place].skipped(box.entity)
        if box.events[place].type == SKIPPED:
            return box.outgoing(place)
        changed = yield from boxes.replace(box, place, skipped)
        if changed is None:
            return box.with_event(place, skipped).outgoing(place)
        box = changed
    raise ConfigurationError("The entity changed at each try to skip the event: try again when it is quieter.")


def look(boxes: Outboxes, entity: Entity) -> Flow[OutboxState | None]:
    """What the entity's outbox holds. None: it has none."""
    box = yield from boxes.read(entity)
    return None if box.is_unused else OutboxState(box.source, box.base, box.waiting())


def restart(boxes: Outboxes, entity: Entity, incarnation: str, source: str | None = None) -> Flow[str | None]:
    """Make the entity another source that counts from zero, as after a restore. None: it has no outbox.

    With `source` only if that is its source, so that what is asked for twice is done once.
    """
    box = yield from boxes.read(entity)
    for _ in range(TRIES):
        if box.is_unused:
            return None
        if box.incarnation == incarnation:  # the answer was lost, and events may have been published since
            return box.source
        if source is not None and source not in (box.source, box.origin):
            raise ConfigurationError(f"{source} is no more: the entity's source is now {box.source}. Name that one.")
        changed = yield from boxes.restart(box, incarnation)
        if changed is None:
            return f"{box.origin}/{incarnation}"
        box = changed
    raise ConfigurationError("The entity changed at each try to restart it: stop its relays first.")


def waiting(boxes: Outboxes, now: float, older_than: float, most: int) -> Flow[list[Waiting]]:
    """The entities whose oldest event has waited for longest."""
    finder, found, met = boxes.finder(None), list[Waiting](), set[Hashable]()
    while (box := (yield from finder.next())) is not None:
        if not isinstance(box, Box) or (name := boxes.canonical(box.entity)) in met:
            continue  # what is written to meanwhile may come up twice
        met.add(name)
        age = now - seconds(box.events[0].time)
        if older_than <= 0 or age >= older_than:  # the clock of its writer may be ahead, so that its age is below zero
            found.append(Waiting(box.outgoing(0), age, len(box.events)))
        if len(found) == 2 * most:
            found = _oldest(found, most)
    return _oldest(found, most)


def _oldest(found: list[Waiting], most: int) -> list[Waiting]:
    return sorted(found, key=lambda each: -each.age)[:most]


def broken(boxes: Outboxes, most: int) -> Flow[list[Broken]]:
    """The entities whose outbox cannot be read."""
    finder, found = boxes.finder(None), list[Broken]()
    while len(found) < most and (box := (yield from finder.next())) is not None:
        found += [box] if isinstance(box, Broken) else []
    return found
