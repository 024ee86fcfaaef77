"""What a relay does, step by step, without a client and without a broker: the flows that both of its classes run.

The rules, each of which keeps an event from being lost, invented or overtaken:

- The entity is the truth: what goes out was read there, consistently, and never taken from a doorbell.
- Publish first, clear after, and only what was accepted, only from the front.
- At most one event of an entity is in a call to the broker, because a broker may accept the second and refuse the first.
- An event that is refused stops its entity and nothing else. It is never given up by itself: an operator may skip it.
- A clear demands that the outbox is as it was read: the count, the incarnation, and the nonce of the last event that goes.
  A relay whose clear fails leaves the entity: another relay has published the same events, and at worst some went out twice.

A pass finds entities until one call to the broker is full, publishes the next event of each, settles what became of them in the
database, notes what it did with those that it leaves, and begins again with the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from logging import ERROR, WARNING
from math import inf
from types import CoroutineType
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from onewrite.core.event import Outbox, moment, seconds
from onewrite.core.flow import Flow, FlowStep
from onewrite.core.log import log
from onewrite.core.pending import SKIPPED_TYPE, Box, Broken, Outgoing, PendingEvent, Search, box_of
from onewrite.errors import ConfigurationError, LedgerMismatch, OnewriteError

T = TypeVar("T")
Entity: TypeAlias = Mapping[str, Any]

# A relay that dies has published at most so many events of an entity that it has not cleared: they go out twice.
CHUNK = 25
TRIES = 3  # of a change to an entity that others write too
# Seconds until an event is tried again, at most. After a refusal the wait is as long as the event has been waiting, so it
# doubles each time. Where the call failed, the event may be as good as any, and the broker back in a moment.
_LONGEST_AFTER_REFUSAL = 300.0
_LONGEST_AFTER_FAILURE = 60.0
_SHORTEST_WAIT = 1.0  # seconds until an entity is tried again which the database would not change
_LONGEST_SILENCE = 30.0  # seconds without an answer, after which a pass ends: enough to get past many unpublishable events
_LONGEST_UNREAD = 300.0  # seconds in which nothing that was found can be read, after which a pass ends
_LONGEST_SEARCH = 1.0  # seconds that what was found waits for more


@dataclass(frozen=True, slots=True)
class Publish:
    """Hand these events to the broker. The reply is None, or the list of those that it did not accept."""

    events: tuple[Outgoing, ...]


Pass: TypeAlias = Generator[FlowStep | Publish, Any, T]


class EntityFinder(Protocol):
    """Goes through the entities that have something pending."""

    def next(self) -> Flow[Box | Broken | Search | None]: ...


class StoredOutboxes(Protocol):
    """What a relay asks of a store. A change returns None, or the outbox as it is now if that is not the one that was read."""

    outbox: Outbox

    @property
    def target(self) -> Any: ...
    def entity(self, filter: object, key: object) -> Entity: ...
    def canonical(self, entity: Entity, /) -> Hashable: ...
    def of_doorbell(self, entity: Entity, /) -> Entity: ...
    def of_source(self, source: str) -> Entity: ...
    def read(self, entity: Entity, /) -> Flow[Box]: ...
    def clear(self, box: Box, count: int, now: float) -> Flow[Box | None]: ...
    def postpone(self, box: Box, due: str) -> Flow[Box | None]: ...
    def replace(self, box: Box, place: int, event: PendingEvent) -> Flow[Box | None]: ...
    def restart(self, box: Box, incarnation: str) -> Flow[Box | None]: ...
    def finder(self, before: str | None) -> EntityFinder: ...


@dataclass(frozen=True, slots=True)
class FlushReport:
    """One pass over one entity: what the broker has accepted, and what is left of what was read.

    `cleared`: False if another relay was faster. It has published the same, and what is left is not known.
    """

    published: tuple[Outgoing, ...]
    remaining: tuple[Outgoing, ...]
    refused: Outgoing | None = None
    cleared: bool = True


@dataclass(slots=True)
class SweepReport:
    """One pass over all that was due. `pending` and `oldest`, in seconds, are of what it met and could not publish.

    `waited`: for how many seconds the oldest of the published events had been pending.
    `overtaken` counts the entities whose events another relay has cleared first. `failed` are events whose call raised,
    or that were published and could not be cleared. `error`: at the end of the pass the broker or the database took no call at all.
    `complete`: it has looked for all that is due, so no event has been pending for longer than those it met. It is False for a
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


@dataclass(slots=True)
class EntityLane:
    """One entity in a pass: its events go out one after the other."""

    box: Box
    accepted_count: int = 0  # of the events in the box, from the front
    published_events: list[Outgoing] = field(default_factory=list[Outgoing])
    refusal: Outgoing | None = None
    error: Exception | None = None
    is_overtaken: bool = False  # another relay was faster, so what is in the box is not known any more
    is_broken: bool = False  # something else stands in the outbox by now
    settle_error: Exception | None = None  # the database would not clear what was accepted, or put off what was refused

    @property
    def is_known(self) -> bool:
        """Is the outbox still as the box says?"""
        return not self.is_overtaken and not self.is_broken

    @property
    def has_next(self) -> bool:
        is_halted = self.refusal is not None or self.error is not None or self.settle_error is not None or not self.is_known
        return not is_halted and self.accepted_count < len(self.box.events)

    @property
    def event(self) -> Outgoing:
        return self.box.outgoing(self.accepted_count)


class PassedOver:
    """Entities, by their canonical names, that a pass passes over for some time, which is twice as long each time."""

    def __init__(self, shortest: float, longest: float) -> None:
        self._shortest, self._longest = shortest, longest
        self._waits: dict[Hashable, tuple[float, float]] = {}  # until when, and for how long

    def add(self, entity: Hashable, now: float) -> float:
        """For how many seconds is the entity passed over from now on?"""
        _, last_wait = self._waits.get(entity, (now, 0.0))
        wait = min(max(2 * last_wait, self._shortest), self._longest)
        self._waits[entity] = now + wait, wait
        return wait

    def has(self, entity: Hashable, now: float) -> bool:
        until, _ = self._waits.get(entity, (now, 0.0))
        return until > now

    def forget(self, now: float) -> None:
        """Forget those of which nothing was heard for long."""
        self._waits = {entity: (until, wait) for entity, (until, wait) in self._waits.items() if until + self._longest > now}


@dataclass(slots=True)
class _Progress:
    """How far a pass has come."""

    finder: EntityFinder
    until: float
    report: SweepReport = field(default_factory=SweepReport)
    lanes: list[EntityLane] = field(default_factory=list[EntityLane])
    has_more: bool = True  # may the finder find more?
    search_error: Exception | None = None  # what has ended the search
    has_read: bool = False  # has anything that was found been read?
    read_error: Exception | None = None  # why not, as long as nothing has
    read_error_since: float = 0.0
    logged_errors: set[str] = field(default_factory=set[str])  # the same one is said once in a pass


class Passes:
    """The flows of a relay. `stopping` is asked between two calls to the broker; `share` draws a part of one, which keeps relays apart."""

    def __init__(
        self,
        boxes: StoredOutboxes,
        clock: Callable[[], float],
        share: Callable[[], float],
        batch: int,
        stopping: Callable[[], bool],
    ) -> None:
        self._boxes, self._clock, self._share, self._batch, self._stopping = boxes, clock, share, batch, stopping
        self._patience = _LONGEST_UNREAD
        self._waiting_entities = PassedOver(_SHORTEST_WAIT, _LONGEST_AFTER_REFUSAL)
        # The entities of which the log says already that they are broken.
        self._logged_entities = PassedOver(_LONGEST_AFTER_REFUSAL, _LONGEST_AFTER_REFUSAL)

    def flush(self, entity: Entity) -> Pass[FlushReport]:
        """One pass over one entity, also if it waits after a refusal."""
        self._clock()  # a wrong one must not be noticed between the broker and the clear
        lane = EntityLane((yield from self._boxes.read(entity)))
        try:
            while lane.has_next:
                yield from self._publish([lane], inf)
                yield from self._settle(lane)
        except Exception as error:
            yield from self._clear_after_error([lane])
            if lane.error is None:
                raise
            raise lane.error from error
        if lane.error is not None:
            raise lane.error
        return FlushReport(
            tuple(lane.published_events), lane.box.outgoing_from(lane.accepted_count), lane.refusal, not lane.is_overtaken
        )

    def sweep(self, older_than: float, within: float = inf) -> Pass[SweepReport]:
        """One pass over all that is due. It ends after `within` seconds, and where for half a minute nobody has answered."""
        now = self._clock()
        return (yield from self._pass(self._boxes.finder(moment(now - older_than)), now + within))

    def ring(self, entities: Sequence[Entity], within: float = inf) -> Pass[SweepReport]:
        """One pass over the entities that a doorbell names. Those that wait after a refusal are left alone."""
        now = self._clock()
        report = yield from self._pass(_OfDoorbell(self._boxes, entities, now), now + within)
        report.complete = False
        return report

    def _pass(self, finder: EntityFinder, until: float) -> Pass[SweepReport]:
        now = self._clock()
        self._waiting_entities.forget(now)
        self._logged_entities.forget(now)
        progress = _Progress(finder, until)
        report, lanes = progress.report, progress.lanes
        silent_since: float | None = None  # since then the broker, or the database, has done nothing that it was asked to
        is_last = False
        try:
            while not is_last:
                if progress.has_more:
                    yield from self._find(progress)
                if not lanes:
                    break

                is_last = self._is_over(until)
                since = self._clock() if silent_since is None else silent_since
                if not is_last:
                    report.error = yield from self._publish(lanes, min(until, since + _LONGEST_SILENCE))
                    is_last = self._is_over(until)

                # What the database refuses of one entity holds up no other. What it refuses of all is the error of the pass.
                for lane in lanes:
                    try:
                        yield from self._settle(lane, is_last=is_last)
                    except LedgerMismatch as error:
                        lane.is_broken = True
                        self._note_broken(report, Broken(lane.box.entity, error))
                    except Exception as error:
                        lane.settle_error = error
                        wait = self._waiting_entities.add(self._boxes.canonical(lane.box.entity), self._clock())
                        text = "What was published of %r, or refused, could not be noted there. It goes out again after %g seconds: %r"
                        log(ERROR, text, dict(lane.box.entity), wait, error)
                if report.error is None and all(lane.settle_error is not None for lane in lanes):
                    report.error = lanes[-1].settle_error
                silent_since = None if report.error is None else since
                is_last = is_last or (report.error is not None and self._clock() >= since + _LONGEST_SILENCE)

                for lane in lanes:
                    if is_last or not lane.has_next:
                        self._note(report, lane)
                lanes[:] = [lane for lane in lanes if lane.has_next]
        except Exception:
            yield from self._clear_after_error(lanes)
            raise
        report.complete = report.complete and not progress.has_more
        report.error = report.error or progress.search_error
        return report

    def _find(self, progress: _Progress) -> Pass[None]:
        """Take entities into the pass until a call to the broker is full. Those that were found wait a second at most for others.

        If the search fails, what was found goes out all the same, and the error is told at the end of the pass.
        """
        report, lanes, until = progress.report, progress.lanes, progress.until
        longest = self._clock() + _LONGEST_SEARCH
        while len(lanes) < self._batch and not self._is_over(min(until, longest) if lanes else until):
            item: Box | Broken | Search | None = None
            failure: Exception | None = None
            for _ in range(TRIES):  # what cannot be found is passed over, unless that is so of several, or of the last one
                try:
                    item = yield from progress.finder.next()
                    break
                except OnewriteError:
                    raise
                except Exception as error:
                    failure, report.complete = error, False
                    if repr(error) not in progress.logged_errors:
                        progress.logged_errors.add(repr(error))
                        log(
                            WARNING, "Something that may be pending could not be read. A later sweep will find it: %r", error
                        )
            if isinstance(item, Broken):
                self._note_broken(report, item)
            if isinstance(item, Box) or (isinstance(item, Broken) and isinstance(item.error, LedgerMismatch)):
                progress.has_read, progress.read_error = True, None
            elif isinstance(item, Broken):
                # An entity that cannot be read holds up no other. But where nothing at all can, the database or the rights fail.
                report.complete = False
                if not progress.has_read:
                    progress.read_error_since = self._clock() if progress.read_error is None else progress.read_error_since
                    progress.read_error = item.error
                    if self._clock() >= progress.read_error_since + self._patience:
                        self._patience *= 2  # so the next pass gets further, if it is these entities and not the database
                        failure = item.error
                        item = None
            if item is None:
                failure = failure or progress.read_error
                if failure is not None and not lanes and not report.entities:
                    raise failure
                progress.has_more, progress.search_error = False, failure
                return
            if isinstance(item, Box):
                self._take(progress, item)

    def _take(self, progress: _Progress, box: Box) -> None:
        """Take the entity into the pass, unless it is there already, or is passed over because the database would not change it."""
        name, now = self._boxes.canonical(box.entity), self._clock()
        if any(self._boxes.canonical(lane.box.entity) == name for lane in progress.lanes):
            return
        if self._waiting_entities.has(name, now):
            progress.report.pending += len(box.events)
            progress.report.oldest = max(progress.report.oldest, now - seconds(box.events[0].time))
        else:
            progress.lanes.append(EntityLane(box))

    def _publish(self, lanes: Sequence[EntityLane], until: float) -> Pass[Exception | None]:
        """Publish the next event of each entity. Returns what was raised if the broker has answered no call.

        Where a call of several fails, nothing is known about any. Then each goes by itself, so one that cannot be published
        does not hold up the others.
        """
        events = [lane.event for lane in lanes]
        try:
            reply = yield Publish(tuple(events))
            refused_ids = _refused_ids(events, reply)
        except ConfigurationError:
            raise
        except Exception as error:
            silence: Exception | None = error
            for lane in lanes:
                lane.error = error
        else:
            for lane, event in zip(lanes, events, strict=True):
                lane.error = None
                if event.id in refused_ids:
                    lane.refusal = event
                else:
                    lane.published_events.append(event)
                    lane.accepted_count += 1
            return None
        for lane in lanes if len(lanes) > 1 else ():
            if not self._is_over(until):
                failure = yield from self._publish([lane], until)
                silence = silence and failure
        return silence

    def _settle(self, lane: EntityLane, *, is_last: bool = False) -> Pass[None]:
        """Clear what was accepted, where that is due, and let a failing entity wait."""
        if lane.accepted_count and (is_last or not lane.has_next or lane.accepted_count == CHUNK):
            box = lane.box
            for _ in range(TRIES):
                stored_box = yield from self._boxes.clear(box, lane.accepted_count, self._clock())
                # An answer that was lost shows a clear that has landed already.
                if stored_box is None or stored_box.is_after(box, lane.accepted_count):
                    lane.box, lane.accepted_count = lane.box.after(lane.accepted_count), 0
                    break
                if not stored_box.follows(box, lane.accepted_count):
                    lane.is_overtaken = True
                    break
                box = stored_box  # more was emitted meanwhile, or the entity was deleted
            else:
                lane.is_overtaken = True
        if not lane.is_overtaken and (lane.refusal is not None or lane.error is not None):
            now, began = self._clock(), seconds(lane.box.events[0].time)
            wait = min(max(now - began, 1.0), _LONGEST_AFTER_REFUSAL if lane.error is None else _LONGEST_AFTER_FAILURE)
            due = max(now, began) + wait * (0.5 + self._share() / 2)
            yield from self._boxes.postpone(lane.box, moment(due))

    def _clear_after_error(self, lanes: Sequence[EntityLane]) -> Pass[None]:
        """Clear what has gone out before an error ends the pass, so it does not go out again."""
        for lane in lanes:
            with suppress(Exception):  # the first error is the one to tell
                yield from self._settle(lane, is_last=True)

    def _is_over(self, until: float) -> bool:
        return self._stopping() or self._clock() >= until

    def _note_broken(self, report: SweepReport, broken: Broken) -> None:
        """Each pass meets such an entity again, so the log has a line about it every five minutes at most."""
        report.broken.append(broken)
        now, name = self._clock(), self._boxes.canonical(broken.entity)
        if not self._logged_entities.has(name, now):
            self._logged_entities.add(name, now)
            log(ERROR, "The outbox of %r cannot be read: %s", dict(broken.entity), broken.error)

    def _note(self, report: SweepReport, lane: EntityLane) -> None:
        report.entities += 1
        report.published += len(lane.published_events)
        if lane.published_events:
            report.waited = max(report.waited, self._clock() - seconds(lane.published_events[0].time))
        report.overtaken += lane.is_overtaken
        if lane.refusal is not None:
            report.refused.append(lane.refusal)
        if lane.error is not None:
            report.failed.append((lane.event, lane.error))
        if lane.settle_error is not None:
            lane.accepted_count = 0
            if lane.error is None:
                report.failed.append((lane.event, lane.settle_error))
        pending_events = lane.box.events[lane.accepted_count :] if lane.is_known else ()
        report.pending += len(pending_events)
        if pending_events:
            report.oldest = max(report.oldest, self._clock() - seconds(pending_events[0].time))

    def skip(self, entity: Entity, published_id: str) -> Pass[Outgoing | None]:
        """Replace one pending event by one that says that it was skipped. None: there is no such event, or no longer."""
        box = yield from self._boxes.read(entity)
        for _ in range(TRIES):
            places = [n for n in range(len(box.events)) if box.outgoing(n).id == published_id]
            if not places:
                return None
            place = places[0]
            replacement = box.events[place].replacement(box.entity)
            if box.events[place].type == SKIPPED_TYPE:
                return box.outgoing(place)
            changed_box = yield from self._boxes.replace(box, place, replacement)
            if changed_box is None:
                return box.with_event(place, replacement).outgoing(place)
            box = changed_box
        raise ConfigurationError("The entity changed at each try to skip the event: try again when it is quieter.")

    def look(self, entity: Entity) -> Pass[OutboxState | None]:
        """What the entity's outbox holds. None: it has none."""
        box = yield from self._boxes.read(entity)
        return None if box.is_unused else OutboxState(box.source, box.base, box.outgoing_from())

    def restart(self, entity: Entity, incarnation: str, source: str | None = None) -> Pass[str | None]:
        """Make the entity another source that counts from zero, as after a restore. None: it has no outbox.

        With `source` only if that is its source, so what is asked for twice is done once.
        """
        box = yield from self._boxes.read(entity)
        for _ in range(TRIES):
            if box.is_unused:
                return None
            if box.incarnation == incarnation:  # the answer was lost, and events may have been published since
                return box.source
            if source is not None and source not in (box.source, box.origin):
                raise ConfigurationError(f"{source} is no more: the entity's source is now {box.source}. Name that one.")
            changed_box = yield from self._boxes.restart(box, incarnation)
            if changed_box is None:
                return f"{box.origin}/{incarnation}"
            box = changed_box
        raise ConfigurationError("The entity changed at each try to restart it: stop its relays first.")

    def waiting(self, older_than: float, most: int) -> Pass[list[Waiting]]:
        """The entities whose oldest event has waited for longest."""
        now, finder, rows, names = self._clock(), self._boxes.finder(None), list[Waiting](), set[Hashable]()
        while (box := (yield from finder.next())) is not None:
            if not isinstance(box, Box) or (name := self._boxes.canonical(box.entity)) in names:
                continue  # what is written to meanwhile may come up twice
            names.add(name)
            age = now - seconds(box.events[0].time)
            if older_than <= 0 or age >= older_than:  # the clock of its writer may be ahead, so its age is below zero
                rows.append(Waiting(box.outgoing(0), age, len(box.events)))
            if len(rows) == 2 * most:
                rows = sorted(rows, key=lambda row: -row.age)[:most]
        return sorted(rows, key=lambda row: -row.age)[:most]

    def broken(self, most: int) -> Pass[list[Broken]]:
        """The entities whose outbox cannot be read."""
        finder, rows = self._boxes.finder(None), list[Broken]()
        while len(rows) < most and (box := (yield from finder.next())) is not None:
            rows += [box] if isinstance(box, Broken) else []
        return rows


class _OfDoorbell:
    """Goes through the entities that a doorbell names."""

    def __init__(self, boxes: StoredOutboxes, entities: Sequence[Entity], now: float) -> None:
        self._boxes = boxes
        self._entities = deque(entities)
        self._now = now

    def next(self) -> Flow[Box | Broken | Search | None]:
        if not self._entities:
            return None
        box = yield from box_of(self._boxes.read, self._entities.popleft())
        waits = isinstance(box, Box) and (not box.events or box.is_postponed(self._now))
        return Search.GOES_ON if waits else box


def _refused_ids(events: Sequence[Outgoing], reply: object) -> frozenset[str]:
    """The ids of the events that the broker did not accept. Nothing is cleared where the reply is not understood."""
    if reply is None:
        return frozenset()
    if isinstance(reply, CoroutineType):
        reply.close()
        raise ConfigurationError("publish is asynchronous, and this relay does not await it: use AsyncRelay.")
    event_ids = {event.id for event in events}
    members = cast("list[object]", reply) if isinstance(reply, list) else [reply]
    ids = [member.id for member in members if isinstance(member, Outgoing) and member.id in event_ids]
    if not isinstance(reply, list) or len(ids) < len(members):
        raise ConfigurationError(
            f"publish returned {reply!r}: return None if all events were accepted, or the list of those that were not. Nothing of "
            "this call was cleared."
        )
    return frozenset(ids)
