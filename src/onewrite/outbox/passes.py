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
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from types import CoroutineType
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from onewrite.errors import ConfigurationError, LedgerMismatch
from onewrite.event import Outbox, moment, seconds
from onewrite.flow import Flow, Yielded
from onewrite.outbox.reports import Flushed, Swept
from onewrite.pending import Box, Broken, Outgoing, Pending

T = TypeVar("T")
Entity: TypeAlias = Mapping[str, Any]

# A relay that dies has published at most so many events of an entity that it has not cleared: they go out twice.
CHUNK = 25
TRIES = 3  # of a change to an entity that others write too
# Seconds until an event is tried again, at most. After a refusal the wait is as long as the event has been waiting, so that it
# doubles each time. Where the call failed, the event may be as good as any, and the broker back in a moment.
_LONGEST_AFTER_REFUSAL = 300.0
_LONGEST_AFTER_FAILURE = 60.0
# After each failure in a row a relay waits twice as long and makes twice as many tries, until both are 64 times as many.
MOST_DOUBLINGS = 6


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
    unsettled: Exception | None = None  # the database would not clear what was accepted, or put off what was refused

    @property
    def runs(self) -> bool:
        halted = self.refused is not None or self.error is not None or self.unsettled is not None or not self.cleared
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
        self._failed_sweeps = 0  # in a row
        self._left_alone: dict[str, float] = {}  # until when a pass passes over which entity
        self._told: dict[str, float] = {}  # until when the log need not be told again of which entity that cannot be read

    def flush(self, entity: Entity) -> Pass[Flushed]:
        """One pass over one entity, also if it waits after a refusal."""
        lane = _Lane((yield from self._boxes.read(entity)))
        yield from self._to_the_end([lane], self._empty(lane))
        if lane.error is not None:
            raise lane.error
        return Flushed(tuple(lane.published), lane.box.waiting(lane.accepted), lane.refused, lane.cleared)

    def _empty(self, lane: _Lane) -> Pass[None]:
        while lane.runs:
            yield from self._round([lane])
            yield from self._settle(lane)

    def sweep(self, older_than: float, within: float = inf) -> Pass[Swept]:
        """One pass over all that is due, oldest first. It ends after `within` seconds, and where the broker takes no call at all.

        Many events that cannot be published look like a broker that is away. So each sweep in a row that has failed makes twice
        as many tries as the one before it, and comes to the entities behind them.
        """
        now, tries = self._clock(), 1 << min(self._failed_sweeps, MOST_DOUBLINGS)
        swept = yield from self._serve(self._boxes.finder(moment(now - older_than)), now + within, tries)
        self._failed_sweeps = 0 if swept.error is None else self._failed_sweeps + 1
        return swept

    def ring(self, entities: Sequence[Entity], within: float = inf) -> Pass[Swept]:
        """One pass over those entities of which a doorbell has told. Those that wait after a refusal are left alone."""
        now = self._clock()
        finder = _Rung(self._boxes, entities, now, lambda: self._is_over(now + within))
        swept = yield from self._serve(finder, now + within, inf)
        swept.complete = False
        return swept

    def _serve(self, finder: Finder, until: float, tries: float) -> Pass[Swept]:
        """Publish the events of all entities that are found, until so many rounds in a row were answered by nobody."""
        self._left_alone, self._told = self._of_the_future(self._left_alone), self._of_the_future(self._told)
        lanes: list[_Lane] = []
        return (yield from self._to_the_end(lanes, self._serve_in(lanes, finder, until, tries)))

    def _to_the_end(self, lanes: Sequence[_Lane], steps: Pass[T]) -> Pass[T]:
        """Run the steps. Before an error ends them, what has gone out is cleared, so that it does not go out again."""
        try:
            return (yield from steps)
        except Exception:
            for lane in lanes:
                with suppress(Exception):  # the first error is the one to tell
                    yield from self._settle(lane, ends=True)
            raise

    def _serve_in(self, lanes: list[_Lane], finder: Finder, until: float, tries: float) -> Pass[Swept]:
        swept, more, ends, silent = Swept(), True, False, 0
        while True:
            while more and not ends and len(lanes) < self._batch and not self._is_over(until):
                more = yield from self._take(swept, finder, lanes)
            if not lanes:
                swept.complete = not more
                return swept
            if not (ends := self._is_over(until)):
                swept.error = yield from self._round(lanes, until)
                silent = 0 if swept.error is None else silent + 1
                ends = silent >= tries or self._is_over(until)
            failed = yield from self._settle_all(swept, lanes, ends=ends)
            if failed is not None:
                swept.error, ends = failed, True
            for lane in lanes:
                if ends or not lane.runs:
                    self._note(swept, lane)
            lanes[:] = [lane for lane in lanes if lane.runs and not ends]

    def _take(self, swept: Swept, finder: Finder, lanes: list[_Lane]) -> Pass[bool]:
        """Take the next entity into the pass. Is there one?"""
        found = yield from finder.next()
        if isinstance(found, Broken):
            self._found_broken(swept, found)
        elif found is not None and not self._is_taken(swept, found, lanes):
            lanes.append(_Lane(found))
        return found is not None

    def _found_broken(self, swept: Swept, broken: Broken) -> None:
        swept.broken.append(broken)
        self._tell(broken)

    def _is_taken(self, swept: Swept, found: Box, lanes: Sequence[_Lane]) -> bool:
        """Is the entity in this pass already, or left alone because the database has refused to clear its events?"""
        if any(lane.box.entity == found.entity for lane in lanes):
            return True
        if repr(found.entity) not in self._left_alone:
            return False
        swept.pending += len(found.events)
        swept.oldest = max(swept.oldest, self._clock() - seconds(found.events[0].time))
        return True

    def _settle_all(self, swept: Swept, lanes: Sequence[_Lane], *, ends: bool) -> Pass[Exception | None]:
        """Settle each entity. What the database refuses of one holds up no other; what it refuses of all is returned."""
        for lane in lanes:
            try:
                yield from self._settle(lane, ends=ends)
            except LedgerMismatch as error:
                self._found_broken(swept, Broken(lane.box.entity, error))
                lane.cleared = False
            except Exception as error:
                lane.unsettled = error
                self._leave_alone(lane.box.entity, error)
        return lanes[-1].unsettled if all(lane.unsettled is not None for lane in lanes) else None

    def _leave_alone(self, entity: Entity, error: Exception) -> None:
        self._left_alone[repr(entity)] = self._clock() + _LONGEST_AFTER_FAILURE
        text = "What was published of %r, or refused, could not be noted there, so that it goes out again in a minute: %r"
        _log.error(text, dict(entity), error)

    def _tell(self, broken: Broken) -> None:
        """Write of an entity that cannot be read to the log, as often as of one whose event is refused: each pass meets it again."""
        named = repr(broken.entity)
        if named not in self._told:
            self._told[named] = self._clock() + _LONGEST_AFTER_REFUSAL
            _log.error("The outbox of %r cannot be read: %s", dict(broken.entity), broken.error)

    def _of_the_future(self, times: Mapping[str, float]) -> dict[str, float]:
        now = self._clock()
        return {each: until for each, until in times.items() if until > now}

    def _round(self, lanes: Sequence[_Lane], until: float = inf) -> Pass[Exception | None]:
        """Publish the next event of each entity. Returns what was raised if the broker has answered no call.

        Where a call of several fails, nothing is known about any. Then each goes by itself, so that one that cannot be published
        does not hold up the others.
        """
        silence = yield from self._publish(lanes)
        for lane in () if silence is None or len(lanes) == 1 else lanes:
            if not self._is_over(until):
                error = yield from self._publish([lane])
                silence = silence and error
        return silence

    def _publish(self, lanes: Sequence[_Lane]) -> Pass[Exception | None]:
        events = [lane.event for lane in lanes]
        try:
            reply = yield Publish(tuple(events))
            refused = _refused(events, reply)
        except ConfigurationError:
            raise
        except Exception as error:
            for lane in lanes:
                lane.error = error
            return error
        for lane, event in zip(lanes, events, strict=True):
            lane.error = None
            lane.answered(event, accepted=event.id not in refused)
        return None

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
        for _ in range(TRIES):
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

    def _note(self, swept: Swept, lane: _Lane) -> None:
        swept.entities += 1
        swept.published += len(lane.published)
        if lane.published:
            swept.waited = max(swept.waited, self._clock() - seconds(lane.published[0].time))
        swept.overtaken += not lane.cleared
        if lane.refused is not None:
            swept.refused.append(lane.refused)
        if lane.unsettled is not None:
            swept.failed.append((lane.box.outgoing(0), lane.unsettled))
            lane.accepted = 0
        if lane.error is not None:
            swept.failed.append((lane.event, lane.error))
        waiting = lane.box.events[lane.accepted :] if lane.cleared else ()
        swept.pending += len(waiting)
        if waiting:
            swept.oldest = max(swept.oldest, self._clock() - seconds(waiting[0].time))


class _Rung:
    """Finds the entities of which a doorbell has told."""

    def __init__(self, boxes: Outboxes, entities: Sequence[Entity], now: float, is_over: Callable[[], bool]) -> None:
        self._boxes = boxes
        self._entities = deque(entities)
        self._now = now
        self._is_over = is_over
        self._was_read = False  # any of them

    def next(self) -> Flow[Box | Broken | None]:
        while self._entities and not self._is_over():
            entity = self._entities.popleft()
            try:
                box = yield from self._boxes.read(entity)
            except LedgerMismatch as error:
                return Broken(entity, error)
            except Exception as error:
                if not self._entities and not self._was_read:
                    raise
                _log.warning("A doorbell told of %r, which could not be read. A sweep will find it: %r", dict(entity), error)
                continue
            self._was_read = True
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
