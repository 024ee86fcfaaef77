"""What a relay does, step by step, without a client and without a broker: the flows that both of its classes run.

The rules, each of which keeps an event from being lost, invented or overtaken:

- The entity is the truth: what goes out was read there, consistently, and never taken from a doorbell.
- Publish first, clear after, and only what was accepted, only from the front.
- At most one event of an entity is in a call to the broker, because a broker may accept the second and refuse the first.
- An event that is refused stops its entity and nothing else. It is never given up by itself: an operator may skip it.
- A clear demands that the outbox is as it was read: the count, the incarnation, and the nonce of the last event that goes.
  A relay whose clear fails leaves the entity: another relay has published the same events, and at worst some went out twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import ERROR, WARNING
from math import inf
from types import CoroutineType
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar, cast

from onewrite.errors import ConfigurationError, LedgerMismatch, OnewriteError
from onewrite.event import Outbox, moment, seconds
from onewrite.flow import Flow, Yielded
from onewrite.outbox.lanes import Lane, PassedOver, tell
from onewrite.outbox.reports import Flushed, Swept
from onewrite.pending import Box, Broken, Outgoing, Pending, Search

T = TypeVar("T")
Entity: TypeAlias = Mapping[str, Any]

# A relay that dies has published at most so many events of an entity that it has not cleared: they go out twice.
CHUNK = 25
TRIES = 3  # of a change to an entity that others write too
# Seconds until an event is tried again, at most. After a refusal the wait is as long as the event has been waiting, so that it
# doubles each time. Where the call failed, the event may be as good as any, and the broker back in a moment.
_LONGEST_AFTER_REFUSAL = 300.0
_LONGEST_AFTER_FAILURE = 60.0
_SHORTEST_WAIT = 1.0  # seconds until an entity is tried again which the database would not change
_LONGEST_SILENCE = (
    30.0  # seconds without an answer, after which a pass ends: enough to get past many events that cannot be published
)
_LONGEST_UNREAD = 300.0  # seconds in which nothing that was found can be read, after which a pass ends
_LONGEST_SEARCH = 1.0  # seconds that what was found waits for more


@dataclass(frozen=True, slots=True)
class Publish:
    """Hand these events to the broker. The reply is None, or the list of those that it did not accept."""

    events: tuple[Outgoing, ...]


Pass: TypeAlias = Generator[Yielded | Publish, Any, T]


class Finder(Protocol):
    """Goes through the entities that have something pending."""

    def next(self) -> Flow[Box | Broken | Search | None]: ...


class Outboxes(Protocol):
    """What a relay asks of a store. A change returns None, or the outbox as it is now if that is not the one that was read."""

    outbox: Outbox

    @property
    def target(self) -> Any: ...
    def entity(self, filter: object, key: object) -> Entity: ...
    def canonical(self, entity: Entity, /) -> Hashable: ...
    def rung(self, told: Entity) -> Entity: ...
    def of_source(self, source: str) -> Entity: ...
    def read(self, entity: Entity, /) -> Flow[Box]: ...
    def clear(self, box: Box, count: int, now: float) -> Flow[Box | None]: ...
    def postpone(self, box: Box, due: str) -> Flow[Box | None]: ...
    def replace(self, box: Box, place: int, event: Pending) -> Flow[Box | None]: ...
    def restart(self, box: Box, incarnation: str) -> Flow[Box | None]: ...
    def finder(self, before: str | None) -> Finder: ...


@dataclass(slots=True)
class _Work:
    """A pass that is under way. `silent_since`: since when the broker, or the database, has done nothing that it was asked to."""

    finder: Finder
    until: float
    silent_since: float | None = None
    swept: Swept = field(default_factory=Swept)
    lanes: list[Lane] = field(default_factory=list[Lane])
    more: bool = True
    ends: bool = False
    unfound: Exception | None = None  # what has ended the search for more
    reads: bool = False  # has anything that was found been read?
    unread: Exception | None = None  # why not, as long as nothing has
    unread_since: float = 0.0


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
        self._patience = _LONGEST_UNREAD
        self._passed_over = PassedOver(_SHORTEST_WAIT, _LONGEST_AFTER_REFUSAL)
        self._told = PassedOver(
            _LONGEST_AFTER_REFUSAL, _LONGEST_AFTER_REFUSAL
        )  # the entities that the log knows to be broken

    def flush(self, entity: Entity) -> Pass[Flushed]:
        """One pass over one entity, also if it waits after a refusal."""
        self._clock()  # a wrong one must not be noticed between the broker and the clear
        lane = Lane((yield from self._boxes.read(entity)))
        yield from self._to_the_end([lane], self._empty(lane))
        return _flushed(lane)

    def _empty(self, lane: Lane) -> Pass[None]:
        while lane.runs:
            yield from self._round([lane], inf)
            try:
                yield from self._settle(lane)
            except Exception as error:
                _raise_first(lane, error)

    def sweep(self, older_than: float, within: float = inf) -> Pass[Swept]:
        """One pass over all that is due. It ends after `within` seconds, and where for half a minute nobody has answered."""
        now = self._clock()
        return (yield from self._serve(self._boxes.finder(moment(now - older_than)), now + within))

    def ring(self, entities: Sequence[Entity], within: float = inf) -> Pass[Swept]:
        """One pass over those entities of which a doorbell has told. Those that wait after a refusal are left alone."""
        now = self._clock()
        swept = yield from self._serve(_Rung(self._boxes, entities, now), now + within)
        swept.complete = False
        return swept

    def _serve(self, finder: Finder, until: float) -> Pass[Swept]:
        now = self._clock()
        self._passed_over.forget(now)
        self._told.forget(now)
        work = _Work(finder, until)
        yield from self._to_the_end(work.lanes, self._do(work))
        work.swept.complete = work.swept.complete and not work.more
        work.swept.error = work.swept.error or work.unfound
        return work.swept

    def _to_the_end(self, lanes: Sequence[Lane], steps: Pass[T]) -> Pass[T]:
        """Run the steps. Before an error ends them, what has gone out is cleared, so that it does not go out again."""
        try:
            return (yield from steps)
        except Exception:
            for lane in lanes:
                with suppress(Exception):  # the first error is the one to tell
                    yield from self._settle(lane, ends=True)
            raise

    def _do(self, work: _Work) -> Pass[None]:
        swept, lanes = work.swept, work.lanes
        while True:
            if work.more and not work.ends:
                yield from self._fill(work)
            if not lanes:
                return
            work.ends = work.ends or self._is_over(work.until)
            since = self._clock() if work.silent_since is None else work.silent_since
            if not work.ends:
                swept.error = yield from self._round(lanes, min(work.until, since + _LONGEST_SILENCE))
                work.ends = self._is_over(work.until)
            failed = yield from self._settle_all(swept, lanes, ends=work.ends)
            swept.error = swept.error or failed
            work.silent_since = None if swept.error is None else since
            work.ends = work.ends or (swept.error is not None and self._clock() >= since + _LONGEST_SILENCE)
            for lane in lanes:
                if work.ends or not lane.runs:
                    self._note(swept, lane)
            lanes[:] = [lane for lane in lanes if lane.runs and not work.ends]

    def _fill(self, work: _Work) -> Pass[None]:
        """Take more entities into the pass. If the search fails, what was found goes out all the same, and the error is told at the end."""
        try:
            yield from self._take(work)
        except OnewriteError:
            raise
        except Exception as error:
            if not work.lanes and not work.swept.entities:
                raise
            work.unfound, work.more = error, False

    def _take(self, work: _Work) -> Pass[None]:
        """Take entities until a call to the broker is full. Those that were found wait for others for a second at most."""
        longest = self._clock() + _LONGEST_SEARCH
        while len(work.lanes) < self._batch and not self._is_over(min(work.until, longest) if work.lanes else work.until):
            found = yield from self._find(work)
            if found is None:
                work.more = False
                if work.unread is not None:
                    raise work.unread
                return
            if isinstance(found, Broken):
                self._found_broken(work.swept, found)
                self._note_unread(work, found)
            elif isinstance(found, Box):
                work.unread, work.reads = None, True
                if not self._is_taken(work, found):
                    work.lanes.append(Lane(found))

    def _note_unread(self, work: _Work, broken: Broken) -> None:
        """What cannot be read holds up no other. But where nothing at all can, the database or the rights fail, and not an entity."""
        if isinstance(broken.error, LedgerMismatch):
            work.unread, work.reads = None, True
            return
        work.swept.complete = False
        if work.reads:
            return
        work.unread_since = self._clock() if work.unread is None else work.unread_since
        work.unread = broken.error
        if self._clock() >= work.unread_since + self._patience:
            self._patience *= 2  # so that the next pass gets further, if it is these entities and not the database
            raise broken.error

    def _find(self, work: _Work) -> Pass[Box | Broken | Search | None]:
        """What is found next. An entity that cannot be read is passed over, unless that is so of several, or of the last one."""
        failed: list[Exception] = []
        while len(failed) < TRIES:
            try:
                found = yield from work.finder.next()
            except OnewriteError:
                raise
            except Exception as error:
                failed.append(error)
                work.swept.complete = False
                tell(WARNING, "Something that may be pending could not be read. A later sweep will find it: %r", error)
                continue
            if found is not None or not failed:
                return found
            break
        raise failed[-1]

    def _found_broken(self, swept: Swept, broken: Broken) -> None:
        swept.broken.append(broken)
        self._tell_of(broken)

    def _is_taken(self, work: _Work, found: Box) -> bool:
        """Is the entity in this pass already, or passed over because the database would not change it?"""
        name = self._boxes.canonical(found.entity)
        if any(self._boxes.canonical(lane.box.entity) == name for lane in work.lanes):
            return True
        now = self._clock()
        if not self._passed_over.has(name, now):
            return False
        work.swept.pending += len(found.events)
        work.swept.oldest = max(work.swept.oldest, now - seconds(found.events[0].time))
        return True

    def _settle_all(self, swept: Swept, lanes: Sequence[Lane], *, ends: bool) -> Pass[Exception | None]:
        """Settle each entity. What the database refuses of one holds up no other; what it refuses of all is returned."""
        for lane in lanes:
            try:
                yield from self._settle(lane, ends=ends)
            except LedgerMismatch as error:
                self._found_broken(swept, Broken(lane.box.entity, error))
                lane.broken = True
            except Exception as error:
                lane.unsettled = error
                wait = self._passed_over.add(self._boxes.canonical(lane.box.entity), self._clock())
                text = (
                    "What was published of %r, or refused, could not be noted there. It goes out again after %g seconds: %r"
                )
                tell(ERROR, text, dict(lane.box.entity), wait, error)
        return lanes[-1].unsettled if all(lane.unsettled is not None for lane in lanes) else None

    def _tell_of(self, broken: Broken) -> None:
        """Log that an entity cannot be read. Each pass meets it again, so that the line is written every five minutes at most."""
        now, name = self._clock(), self._boxes.canonical(broken.entity)
        if not self._told.has(name, now):
            self._told.add(name, now)
            tell(ERROR, "The outbox of %r cannot be read: %s", dict(broken.entity), broken.error)

    def _round(self, lanes: Sequence[Lane], until: float) -> Pass[Exception | None]:
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

    def _publish(self, lanes: Sequence[Lane]) -> Pass[Exception | None]:
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

    def _settle(self, lane: Lane, *, ends: bool = False) -> Pass[None]:
        """Clear what was accepted, where that is due, and let a failing entity wait."""
        if lane.accepted and (ends or not lane.runs or lane.accepted == CHUNK):
            lane.overtaken = not (yield from self._clear(lane.box, lane.accepted))
            if not lane.overtaken:
                lane.box, lane.accepted = lane.box.after(lane.accepted), 0
        if not lane.overtaken and (lane.refused is not None or lane.error is not None):
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

    def _note(self, swept: Swept, lane: Lane) -> None:
        swept.entities += 1
        swept.published += len(lane.published)
        if lane.published:
            swept.waited = max(swept.waited, self._clock() - seconds(lane.published[0].time))
        swept.overtaken += lane.overtaken
        if lane.refused is not None:
            swept.refused.append(lane.refused)
        if lane.error is not None:
            swept.failed.append((lane.event, lane.error))
        if lane.unsettled is not None:
            lane.accepted = 0
            if lane.error is None:
                swept.failed.append((lane.event, lane.unsettled))
        waiting = lane.box.events[lane.accepted :] if lane.is_known else ()
        swept.pending += len(waiting)
        if waiting:
            swept.oldest = max(swept.oldest, self._clock() - seconds(waiting[0].time))


class _Rung:
    """Finds the entities of which a doorbell has told."""

    def __init__(self, boxes: Outboxes, entities: Sequence[Entity], now: float) -> None:
        self._boxes = boxes
        self._entities = deque(entities)
        self._now = now

    def next(self) -> Flow[Box | Broken | Search | None]:
        if not self._entities:
            return None
        entity = self._entities.popleft()
        try:
            box = yield from self._boxes.read(entity)
        except ConfigurationError:
            raise
        except Exception as error:
            return Broken(entity, error)
        return box if box.events and not box.postponed(self._now) else Search.GOES_ON


def _raise_first(lane: Lane, error: Exception) -> NoReturn:
    """Raise what `publish` has raised, if it has, and not what the database has raised after it."""
    if lane.error is None:
        raise error
    raise lane.error from error


def _flushed(lane: Lane) -> Flushed:
    if lane.error is not None:
        raise lane.error
    return Flushed(tuple(lane.published), lane.box.waiting(lane.accepted), lane.refused, not lane.overtaken)


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
