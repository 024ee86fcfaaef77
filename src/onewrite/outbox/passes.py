"""What a relay does, step by step, without a client and without a broker: the flows that both of its classes run.

The rules, each of which keeps an event from being lost, invented or overtaken:

- The entity is the truth: what goes out was read there, consistently, and never taken from a doorbell.
- Publish first, clear after, and only what was accepted, only from the front.
- At most one event of an entity is in a call to the broker, because a broker may accept the second and refuse the first.
- An event that is refused stops its entity and nothing else. It is never given up by itself: an operator may skip it.
- A clear demands that the outbox is as it was read: the count, the incarnation, and the nonce of the last event that goes.
  Whoever loses that race leaves it: another relay has published the same, and at worst a copy goes out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import CoroutineType
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from onewrite.errors import ConfigurationError, LedgerMismatch, OnewriteError
from onewrite.event import Outbox, moment, seconds
from onewrite.flow import Flow, Yielded
from onewrite.outbox.reports import Flushed, OutboxState, Swept, Waiting
from onewrite.pending import SKIPPED, Box, Broken, Outgoing, Pending

T = TypeVar("T")
Entity: TypeAlias = Mapping[str, Any]

# A relay that dies has published at most so many events of an entity that it has not cleared: they go out twice.
CHUNK = 25
_TRIES = 3  # of a change to an entity that others write too
# Seconds until an event is tried again, at most. After a refusal the wait is as long as the event has been waiting, so that it
# doubles each time. Where the call failed, the event may be as good as any, and the broker back in a moment.
_LONGEST_AFTER_REFUSAL = 300.0
_LONGEST_AFTER_FAILURE = 60.0


@dataclass(frozen=True, slots=True)
class Publish:
    """Hand these events to the broker. The reply is None, or the list of those that it did not accept."""

    events: tuple[Outgoing, ...]


_log = logging.getLogger("onewrite")

Pass: TypeAlias = Generator[Yielded | Publish, Any, T]


class Finder(Protocol):
    """Goes through the entities that have something pending."""

    def next(self) -> Flow[Box | Broken | None]: ...


class Outboxes(Protocol):
    """What a relay asks of a store. A change returns None, or the outbox as it is now if that is not the one that was read."""

    outbox: Outbox

    @property
    def target(self) -> Any: ...
    def entity(self, filter: object, key: object) -> Entity: ...
    def rung(self, told: Entity) -> Entity: ...
    def of_source(self, source: str) -> Entity: ...
    def read(self, entity: Entity, /) -> Flow[Box]: ...
    def clear(self, box: Box, count: int, now: float) -> Flow[Box | None]: ...
    def postpone(self, box: Box, due: str) -> Flow[Box | None]: ...
    def replace(self, box: Box, place: int, event: Pending) -> Flow[Box | None]: ...
    def restart(self, box: Box, incarnation: str) -> Flow[Box | None]: ...
    def finder(self, before: str | None) -> Finder: ...


@dataclass(slots=True)
class _Lane:
    """One entity in a pass: its events go out one after the other."""

    box: Box
    accepted: int = 0  # of the events in the box, from the front
    published: list[Outgoing] = field(default_factory=list[Outgoing])
    refused: Outgoing | None = None
    error: Exception | None = None
    cleared: bool = True  # False: another relay was faster, so that what is in the box is not known any more

    @property
    def runs(self) -> bool:
        halted = self.refused is not None or self.error is not None or not self.cleared
        return not halted and self.accepted < len(self.box.events)

    @property
    def event(self) -> Outgoing:
        return self.box.outgoing(self.accepted)

    def answered(self, event: Outgoing, *, accepted: bool) -> None:
        if accepted:
            self.published.append(event)
            self.accepted += 1
        else:
            self.refused = event


class Passes:
    """The flows of a relay. `stopping` is asked between two calls to the broker."""

    def __init__(
        self,
        boxes: Outboxes,
        clock: Callable[[], float],
        chance: Callable[[], float],
        batch: int,
        stopping: Callable[[], bool],
    ) -> None:
        self._boxes = boxes
        self._clock = clock
        self._chance = chance
        self._batch = batch
        self._stopping = stopping
        self._told: dict[str, float] = {}  # of which entity that cannot be read, and when

    def flush(self, entity: Entity) -> Pass[Flushed]:
        """One pass over one entity, also if it waits after a refusal."""
        lane = _Lane((yield from self._boxes.read(entity)))
        while lane.runs:
            yield from self._round([lane])
            yield from self._settle(lane)
        if lane.error is not None:
            raise lane.error
        return Flushed(tuple(lane.published), _remaining(lane.box, lane.accepted), lane.refused, lane.cleared)

    def sweep(self, older_than: float, within: float = inf) -> Pass[Swept]:
        """One pass over all that is due, oldest first. It ends where the broker takes no call at all, and after `within` seconds."""
        now = self._clock()
        return (yield from self._serve(self._boxes.finder(moment(now - older_than)), now + within))

    def ring(self, entities: Sequence[Entity], within: float = inf) -> Pass[Swept]:
        """One pass over those entities of which a doorbell has told. Those that wait after a refusal are left alone."""
        now = self._clock()
        return (yield from self._serve(_Rung(self._boxes, entities, now), now + within, complete=False))

    def _serve(self, finder: Finder, until: float, *, complete: bool = True) -> Pass[Swept]:
        swept, more, answers = Swept(complete=complete), True, True
        lanes: list[_Lane] = []
        while True:
            while more and answers and len(lanes) < self._batch and not self._is_over(until):
                found = yield from finder.next()
                more = found is not None
                if isinstance(found, Broken):
                    swept.broken.append(found)
                    self._tell(found)
                elif found is not None:
                    lanes.append(_Lane(found))
            if not lanes:
                return swept
            answers = yield from self._round(lanes)
            ends = not answers or self._is_over(until)
            for lane in lanes:
                yield from self._settle(lane, ends=ends)
                if ends or not lane.runs:
                    self._note(swept, lane, answers=answers)
            lanes = [lane for lane in lanes if lane.runs and not ends]

    def skip(self, entity: Entity, published_id: str) -> Pass[Outgoing | None]:
        """Replace one pending event by one that says that it was skipped. None: there is no such event, or no longer."""
        box = yield from self._boxes.read(entity)
        for _ in range(_TRIES):
            places = [n for n in range(len(box.events)) if box.outgoing(n).id == published_id]
            if not places:
                return None
            place = places[0]
            skipped = box.events[place].skipped(box.entity)
            if box.events[place].type == SKIPPED:
                return box.outgoing(place)
            changed = yield from self._boxes.replace(box, place, skipped)
            if changed is None:
                return box.with_event(place, skipped).outgoing(place)
            box = changed
        raise ConfigurationError("The entity changed at each try to skip the event: try again when it is quieter.")

    def look(self, entity: Entity) -> Pass[OutboxState | None]:
        """What the entity's outbox holds. None: it has none."""
        box = yield from self._boxes.read(entity)
        return None if box.is_unused else OutboxState(box.source, box.base, _remaining(box))

    def restart(self, entity: Entity, incarnation: str, source: str | None = None) -> Pass[str | None]:
        """Make the entity another source that counts from zero, as after a restore. None: it has no outbox.

        With `source` only if that is its source, so that what is asked for twice is done once.
        """
        box = yield from self._boxes.read(entity)
        for _ in range(_TRIES):
            if box.is_unused:
                return None
            if box.incarnation == incarnation:  # the answer was lost, and events may have been published since
                return box.source
            if source is not None and source not in (box.source, box.origin):
                raise ConfigurationError(f"{source} is no more: the entity's source is now {box.source}. Name that one.")
            changed = yield from self._boxes.restart(box, incarnation)
            if changed is None:
                return f"{box.origin}/{incarnation}"
            box = changed
        raise ConfigurationError("The entity changed at each try to restart it: stop its relays first.")

    def waiting(self, older_than: float, most: int) -> Pass[list[Waiting]]:
        """The entities whose oldest event has waited for longest."""
        finder, now, found = self._boxes.finder(None), self._clock(), list[Waiting]()
        while (box := (yield from finder.next())) is not None:
            if isinstance(box, Box) and (age := now - seconds(box.events[0].time)) >= older_than:
                found.append(Waiting(box.outgoing(0), age, len(box.events)))
                found = sorted(found, key=lambda each: -each.age)[:most]
        return found

    def broken(self, most: int) -> Pass[list[Broken]]:
        """The entities whose outbox cannot be read."""
        finder, found = self._boxes.finder(None), list[Broken]()
        while len(found) < most and (box := (yield from finder.next())) is not None:
            found += [box] if isinstance(box, Broken) else []
        return found

    def _tell(self, broken: Broken) -> None:
        """Write of an entity that cannot be read to the log, as often as of one whose event is refused: each pass meets it again."""
        now, named = self._clock(), repr(broken.entity)
        self._told = {each: at for each, at in self._told.items() if now - at < _LONGEST_AFTER_REFUSAL}
        if named not in self._told:
            self._told[named] = now
            _log.error("The outbox of %r cannot be read: %s", dict(broken.entity), broken.error)

    def _round(self, lanes: Sequence[_Lane]) -> Pass[bool]:
        """Publish the next event of each entity. Does the broker answer at all?

        Where a call of several fails, nothing is known about any. Then each goes by itself, so that one that cannot be published
        does not hold up the others.
        """
        answers = yield from self._publish(lanes)
        alone = () if answers or len(lanes) == 1 else lanes
        for lane in alone:
            answers = (yield from self._publish([lane])) or answers
        return answers

    def _publish(self, lanes: Sequence[_Lane]) -> Pass[bool]:
        events = [lane.event for lane in lanes]
        try:
            reply = yield Publish(tuple(events))
            refused = _refused(events, reply)
        except OnewriteError:
            raise
        except Exception as error:
            for lane in lanes:
                lane.error = error
            return False
        for lane, event in zip(lanes, events, strict=True):
            lane.error = None
            lane.answered(event, accepted=event.id not in refused)
        return True

    def _settle(self, lane: _Lane, *, ends: bool = False) -> Pass[None]:
        """Clear what was accepted, where that is due, and let a failing entity wait."""
        if lane.accepted and (ends or not lane.runs or lane.accepted == CHUNK):
            lane.cleared = yield from self._clear(lane.box, lane.accepted)
            if lane.cleared:
                lane.box, lane.accepted = lane.box.after(lane.accepted), 0
        if lane.cleared and (lane.refused is not None or lane.error is not None):
            longest = _LONGEST_AFTER_REFUSAL if lane.error is None else _LONGEST_AFTER_FAILURE
            yield from self._boxes.postpone(lane.box, self._later(lane.box, longest))

    def _clear(self, box: Box, count: int) -> Pass[bool]:
        for _ in range(_TRIES):
            found = yield from self._boxes.clear(box, count, self._clock())
            if found is None or found.is_after(box, count):
                return True  # an answer that was lost shows a clear that has landed already
            if not found.follows(box, count):
                return False
            box = found  # more was emitted meanwhile, or the entity was deleted
        return False

    def _later(self, box: Box, longest: float) -> str:
        now, began = self._clock(), seconds(box.events[0].time)
        waited = min(max(now - began, 1.0), longest)
        return moment(max(now, began) + waited * (0.5 + self._chance() / 2))

    def _is_over(self, until: float) -> bool:
        return self._stopping() or self._clock() >= until

    def _note(self, swept: Swept, lane: _Lane, *, answers: bool) -> None:
        swept.entities += 1
        swept.published += len(lane.published)
        if lane.published:
            swept.waited = max(swept.waited, self._clock() - seconds(lane.published[0].time))
        swept.overtaken += not lane.cleared
        if lane.refused is not None:
            swept.refused.append(lane.refused)
        if lane.error is not None:
            swept.failed.append((lane.event, lane.error))
            swept.error = swept.error if answers else lane.error
        waiting = lane.box.events[lane.accepted :] if lane.cleared else ()
        swept.pending += len(waiting)
        if waiting:
            swept.oldest = max(swept.oldest, self._clock() - seconds(waiting[0].time))


def _remaining(box: Box, accepted: int = 0) -> tuple[Outgoing, ...]:
    return tuple([box.outgoing(place) for place in range(accepted, len(box.events))])


class _Rung:
    """Finds the entities of which a doorbell has told."""

    def __init__(self, boxes: Outboxes, entities: Sequence[Entity], now: float) -> None:
        self._boxes = boxes
        self._entities = iter(entities)
        self._now = now

    def next(self) -> Flow[Box | Broken | None]:
        for entity in self._entities:
            try:
                box = yield from self._boxes.read(entity)
            except LedgerMismatch as error:
                return Broken(entity, error)
            if box.events and not box.postponed(self._now):
                return box
        return None


def _refused(events: Sequence[Outgoing], reply: object) -> frozenset[str]:
    """The ids of the events that the broker did not accept. Nothing is cleared where the reply is not understood."""
    if reply is None:
        return frozenset()
    if isinstance(reply, CoroutineType):
        reply.close()
        raise ConfigurationError("publish is asynchronous, and this relay does not await it: use AsyncRelay.")
    given = {event.id for event in events}
    members = cast("list[object]", reply) if isinstance(reply, list) else [reply]
    ids = [member.id for member in members if isinstance(member, Outgoing) and member.id in given]
    if not isinstance(reply, list) or len(ids) < len(members):
        raise ConfigurationError(
            f"publish returned {reply!r}: return None if all events were accepted, or the list of those that were not. Nothing of "
            "this call was cleared."
        )
    return frozenset(ids)
