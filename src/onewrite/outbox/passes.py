"""The flows of a relay, without a client or a broker. Both relay classes run them.

These rules keep each event from being lost, invented, or overtaken:

- A relay publishes only events that it has read from the entity, consistently, and never an event from a notification.
- A relay publishes first and clears afterwards. It clears only accepted events, and only from the front of the outbox.
- A call to the broker contains at most one event of an entity, because a broker can accept the second event and refuse the first.
- A refused event stops its own entity only. The relay never drops the event, but an operator can skip it.
- A clear requires an unchanged outbox: the same count, incarnation, and nonce of the last cleared event. If a clear fails, the relay
  leaves the entity, because another relay has published the same events. At worst, some events are published twice.

A pass finds entities until one call to the broker is full, publishes the next event of each, writes the results to the
database, reports the finished entities, and begins again with the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from logging import ERROR, WARNING
from math import inf
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from onewrite.core.clock import checked_clock, random_share
from onewrite.core.features.pending import SKIPPED_TYPE, Box, BrokenOutbox, Outgoing, PendingEvent, Search, try_read
from onewrite.core.flow import Do, Flow
from onewrite.core.log import log
from onewrite.core.values import format_nearest_moment, moment, seconds
from onewrite.errors import ConfigurationError, LedgerMismatch, OnewriteError
from onewrite.process.failures import describe_error

Entity: TypeAlias = Mapping[str, Any]

MAX_UNCLEARED = 25  # published but uncleared events of one entity: a crash publishes at most this many twice
MAX_ATTEMPTS = 3  # to change an entity that other writers change too
# Seconds until an event is retried. After a refusal, the wait is as long as the event has been pending, so the wait doubles each time.
# After a failed call, the wait is shorter, because the broker might recover soon and nothing is known against the event.
_MAX_WAIT_AFTER_REFUSAL = 300.0
_MAX_WAIT_AFTER_FAILURE = 60.0
# Seconds until a relay retries an entity that couldn't be changed, and until the log repeats a broken entity.
_QUIET_PERIOD = 60.0
_MAX_SILENCE = 30.0  # seconds without a response until a pass ends: enough to get past many unpublishable events
_CLOCKS = "the clocks"  # the name of their warning among those of entities
_MAX_SEARCH = 1.0  # seconds that found entities wait for more
_MINUTE = 60.0  # seconds between two reports of a pass that goes on
_LOOK_AHEAD = 86_400.0  # seconds: no clock is ahead by more than a day, and no refused event is postponed for longer
_MAX_CLOCK_SKEW = 60.0  # seconds by which an event's time can be ahead until the relay doesn't wait for that time


# Finds the next entity with pending events. None means that there are no more.
Find: TypeAlias = Callable[[], Flow[Box | BrokenOutbox | Search | None]]
FOR_EVER = timedelta.max


class EntityFinder(Protocol):
    """Finds the entities with pending events, one after the other. It can count those that it will find, or at least the next of them."""

    def next(self) -> Flow[Box | BrokenOutbox | Search | None]: ...
    def count_remaining(self) -> Flow[int]: ...


class StoredOutboxes(Protocol):
    """The part of a store that a relay uses. A change returns None, or the current outbox if it differs from the given one."""

    @property
    def target(self) -> Any: ...
    def entity(self, filter: object, key: object) -> Entity: ...
    def canonical(self, entity: Entity, /) -> Hashable: ...
    def read_notified(self, entity: Entity, /) -> Entity: ...
    def read_source(self, source: str) -> Entity: ...
    def read(self, entity: Entity, /) -> Flow[Box]: ...
    def clear(self, box: Box, count: int, now: float) -> Flow[Box | None]: ...
    def postpone(self, box: Box, due: str) -> Flow[Box | None]: ...
    def replace(self, box: Box, place: int, event: PendingEvent) -> Flow[Box | None]: ...
    def restart(self, box: Box, incarnation: str) -> Flow[Box | None]: ...
    def finder(self, before: str | None, share: Callable[[], float]) -> EntityFinder: ...


@dataclass(frozen=True, slots=True)
class FlushReport:
    """The result of a pass over one entity: the events that the broker accepted, and the remaining events.

    `cleared` is False if another relay cleared the same events first. The remaining events are then unknown.
    """

    published: tuple[Outgoing, ...]
    remaining: tuple[Outgoing, ...]
    refused: Outgoing | None = None
    cleared: bool = True


@dataclass(slots=True)
class SweepReport:
    """The result of a pass over all due events.

    - `pending`: the number of events that the pass found but couldn't publish.
    - `oldest`: the age of the oldest pending event, in seconds.
    - `waited`: how long the oldest published event had been pending, in seconds.
    - `overtaken`: the number of entities whose events another relay cleared first.
    - `failed`: events whose call raised, or that were published but couldn't be cleared.
    - `error`: set if the broker or the database rejected every call at the end of the pass.
    - `complete`: whether the pass searched for all due events, so no pending event is older than `oldest`. A notification's pass never does.
    - `continues`: the pass goes on, and this is the report of its last minute. `pending` then includes one event of each entity that is
      known to wait for the pass, so at least as many events are pending.
    """

    entities: int = 0
    published: int = 0
    overtaken: int = 0
    pending: int = 0
    oldest: float = 0.0
    waited: float = 0.0
    refused: list[Outgoing] = field(default_factory=list[Outgoing])
    failed: list[tuple[Outgoing, Exception]] = field(default_factory=list[tuple[Outgoing, Exception]])
    broken: list[BrokenOutbox] = field(default_factory=list[BrokenOutbox])
    error: Exception | None = None
    complete: bool = True
    continues: bool = False


@dataclass(frozen=True, slots=True)
class PendingEntity:
    """An entity with pending events: the oldest event, its age in seconds, and the number of pending events."""

    event: Outgoing
    age: float
    pending: int

    @property
    def entity(self) -> Mapping[str, Any]:
        return self.event.entity


@dataclass(frozen=True, slots=True)
class OutboxState:
    """The contents of an entity's outbox: the source of its events, the number of sent events, and the pending events."""

    source: str
    sent: int
    pending: tuple[Outgoing, ...]


@dataclass(slots=True)
class EntityLane:
    """One entity in a pass, whose events are published one after the other."""

    box: Box
    accepted_count: int = 0  # of the events in the box, from the front
    published_events: list[Outgoing] = field(default_factory=list[Outgoing])
    refusal: Outgoing | None = None
    error: Exception | None = None
    is_overtaken: bool = False  # another relay was faster, so the current outbox is unknown
    is_broken: bool = False  # the outbox has become unreadable
    settle_error: Exception | None = None  # the database refused to clear accepted events, or to postpone a refused one

    @property
    def has_next(self) -> bool:
        is_halted = bool(self.is_overtaken or self.is_broken or self.refusal or self.error or self.settle_error)
        return not is_halted and self.accepted_count < len(self.box.events)

    @property
    def event(self) -> Outgoing:
        return self.box.outgoing(self.accepted_count)


class Postponement(NamedTuple):
    """The pending events of an entity that this relay has postponed. `due` and `began` are in epoch seconds."""

    due: float
    began: float
    event_count: int


@dataclass(slots=True)
class _Progress:
    """The progress of a pass."""

    find: Find
    until: float
    report: SweepReport = field(default_factory=SweepReport)
    lanes: list[EntityLane] = field(default_factory=list[EntityLane])
    is_last: bool = False  # the time is up, or every call fails
    silent_since: float = 0.0  # the time since when the broker or the database has rejected every call
    has_more: bool = True  # the search can still find entities
    has_read: bool = False  # at least one found entity could be read
    failure: Exception | None = None  # the error that ended the search, or that kept every entity from being read
    on_minute: Callable[[SweepReport], None] | None = None
    count_remaining: Callable[[], Flow[int]] | None = None
    minute_ends: float = inf
    told: SweepReport = field(default_factory=SweepReport)  # the part of the report that `take_untold` has returned
    postponed: dict[Hashable, Postponement] = field(default_factory=dict[Hashable, Postponement])

    def take_untold(self) -> SweepReport:
        """Return the report without the counts and events that an earlier call returned."""
        total, told = self.report, self.told
        published = total.published + sum([len(lane.published_events) for lane in self.lanes])
        self.told = replace(
            total, published=published, refused=[*total.refused], failed=[*total.failed], broken=[*total.broken]
        )
        return replace(
            total,
            entities=total.entities - told.entities,
            published=published - told.published,
            overtaken=total.overtaken - told.overtaken,
            refused=total.refused[len(told.refused) :],
            failed=total.failed[len(told.failed) :],
            broken=total.broken[len(told.broken) :],
        )


class Passes:
    """The flows of a relay."""

    def __init__(
        self, boxes: StoredOutboxes, publish: Callable[[list[Outgoing]], Any], batch: int, clock: Callable[[], float]
    ) -> None:
        if type(batch) is not int or batch < 1:
            raise ConfigurationError(f"batch={batch!r}: expected an int of 1 or more.")
        self._boxes, self._publish, self._batch, self._clock = boxes, publish, batch, checked_clock(clock)
        # Draws from 0 to 1, so that several relays don't retry at the same time, and don't take the same entities.
        self._share: Callable[[], float] = random_share
        self._is_stopped = False
        # By the entity's canonical name: the time from which the log repeats a broken entity, or the relay retries an unchangeable one.
        self._log_again_at, self._retry_at = dict[Hashable, float](), dict[Hashable, float]()
        # A sweep doesn't find these entities until they're due, but their events are pending.
        self._postponed: dict[Hashable, Postponement] = {}

    def _flush(self, entity: Entity) -> Flow[FlushReport]:
        """Make one pass over one entity, even if the entity is postponed after a refusal."""
        self._clock()  # a faulty clock must raise now, not between publishing and clearing
        lane = EntityLane((yield from self._boxes.read(entity)))
        try:
            while lane.has_next:
                yield from self._try_publishing([lane], inf)
                yield from self._settle(lane)
        except Exception as error:
            yield from self._clear_after_error([lane])
            if lane.error is None:
                raise
            raise lane.error from error  # the broker failed first
        if lane.error is not None:
            raise lane.error
        remaining = lane.box.list_outgoing(lane.accepted_count)
        return FlushReport(tuple(lane.published_events), remaining, lane.refusal, not lane.is_overtaken)

    def _sweep(self, older_than: timedelta, within: timedelta = FOR_EVER) -> Flow[SweepReport]:
        """Make one pass over all due events. End it after `within`, or after half a minute in which every call failed."""
        progress = self._begin_sweep(older_than, within, looks_ahead=True)
        yield from self._pass(progress)
        return progress.report

    def _begin_sweep(
        self,
        older_than: timedelta,
        within: timedelta = FOR_EVER,
        on_minute: Callable[[SweepReport], None] | None = None,
        *,
        looks_ahead: bool,
    ) -> _Progress:
        """Return the progress of a new pass over all due events. `on_minute` gets a report each minute while the pass goes on.

        A pass that looks ahead also counts the events that aren't due yet after a refusal. It publishes events whose time is far in the
        future, because their writer's clock is ahead, or this one is behind.
        """
        now = self._clock()
        latest = now - read_seconds("older_than", older_than)
        latest_text = format_nearest_moment(latest)  # no event has another date
        before = format_nearest_moment(max(now, latest) + _LOOK_AHEAD) if looks_ahead else latest_text
        finder = self._boxes.finder(before, self._share)

        def find() -> Flow[Box | BrokenOutbox | Search | None]:
            item = yield from finder.next()
            if not isinstance(item, Box) or item.is_due(latest_text):
                return item
            began = seconds(item.events[0].time)
            if item.due is not None and item.is_postponed(now):
                name = self._boxes.canonical(item.entity)
                if name not in self._postponed:
                    postponement = Postponement(seconds(item.due), began, len(item.events))
                    self._postponed[name] = progress.postponed[name] = postponement
            elif began > now + _MAX_CLOCK_SKEW:
                self._warn_of_clocks(began - now)
                return item
            return Search.CONTINUES

        until = now + read_seconds("within", within)
        progress = _Progress(find, until, on_minute=on_minute, minute_ends=now + _MINUTE)
        if on_minute is not None:
            progress.count_remaining = finder.count_remaining
        # A pass that looks ahead finds the postponed entities again.
        waiting = {} if looks_ahead else self._postponed
        self._postponed = {name: postponement for name, postponement in waiting.items() if postponement.due > latest}
        progress.postponed = {**self._postponed}
        return progress

    def _read_notified(self, entities: Iterable[Mapping[str, Any]]) -> list[Entity]:
        """Return the entities that a notification names."""
        named = [*entities]  # an iterator can be read only once
        if not all(isinstance(entity, Mapping) for entity in cast("list[object]", named)):
            raise ConfigurationError(
                f"notify({entities!r}): expected a list of keys or filters, for example notify([{{'orderId': 'o-1'}}])."
            )
        return [self._boxes.read_notified(entity) for entity in named]

    def _notify(self, entities: Sequence[Entity], within: timedelta) -> Flow[SweepReport]:
        """Make one pass over these entities. Skip postponed entities."""
        unread_entities, now = deque(entities), self._clock()

        def find() -> Flow[Box | BrokenOutbox | Search | None]:
            if not unread_entities:
                return None
            box = yield from try_read(self._boxes.read, unread_entities.popleft())
            has_nothing_due = isinstance(box, Box) and (not box.events or box.is_postponed(now))
            return Search.CONTINUES if has_nothing_due else box

        progress = _Progress(find, now + read_seconds("within", within))
        yield from self._pass(progress)
        progress.report.complete = False  # other entities can have older events
        return progress.report

    def _pass(self, progress: _Progress) -> Flow[None]:
        """Make one pass over the found entities, in rounds of a call to the broker each, and report it."""
        for times in (self._log_again_at, self._retry_at):
            for name in [name for name, time in times.items() if time <= self._clock()]:
                del times[name]
        report, lanes, until = progress.report, progress.lanes, progress.until
        try:
            while (yield from self._take_entities(progress)):
                if report.error is None:  # the last call succeeded, or this is the first call
                    progress.silent_since = self._clock()
                if not self._is_over(until):
                    silent_until = progress.silent_since + _MAX_SILENCE
                    report.error = yield from self._try_publishing(lanes, min(until, silent_until))
                progress.is_last = self._is_over(until)
                yield from self._settle_all(progress)
                for lane in lanes:
                    if progress.is_last or not lane.has_next:
                        self._report_lane(report, lane)
                lanes[:] = [lane for lane in lanes if lane.has_next and not progress.is_last]
                yield from self._report_minute(progress)
        except Exception:
            yield from self._clear_after_error(lanes)
            raise
        for postponement in progress.postponed.values():  # those that the pass hasn't found
            report.pending += postponement.event_count
            report.oldest = max(report.oldest, self._clock() - postponement.began)
        report.complete = report.complete and not progress.has_more
        report.error = report.error or progress.failure

    def _warn_of_clocks(self, ahead: float) -> None:
        """Log that an event's time is in the future, at most once a minute."""
        if _CLOCKS not in self._log_again_at:
            self._log_again_at[_CLOCKS] = self._clock() + _QUIET_PERIOD
            text = (
                "Relay: an event's time is %.0f s ahead of this relay's clock. Such events are published, but up to a minute late. Correct "
                "the clock of their writer or of this machine"
            )
            log(WARNING, text, ahead)

    def _report_minute(self, progress: _Progress) -> Flow[None]:
        """Report the last minute of a pass that goes on, and what remains."""
        now = self._clock()
        if progress.on_minute is None or progress.count_remaining is None or now < progress.minute_ends:
            return
        progress.minute_ends = now + _MINUTE
        minute = progress.take_untold()
        minute.complete, minute.continues = False, True
        for lane in progress.lanes:
            self._note_pending(minute, lane.box.events[lane.accepted_count :])
            if lane.published_events:
                minute.waited = max(minute.waited, now - seconds(lane.published_events[0].time))
        with suppress(Exception):  # if the database fails, the search reports it
            minute.pending += yield from progress.count_remaining()
        progress.on_minute(minute)

    def _take_entities(self, progress: _Progress) -> Flow[bool]:
        """Take entities into the pass until a call to the broker is full, and return whether the pass has an entity.

        Found entities wait for others for at most a second. If the search fails, the found entities' events are still published.
        """
        report, lanes = progress.report, progress.lanes
        publish_by = min(progress.until, self._clock() + _MAX_SEARCH)
        while progress.has_more and not progress.is_last and len(lanes) < self._batch:
            if self._is_over(publish_by if lanes else progress.until):
                break
            try:
                item = yield from progress.find()
            except OnewriteError:  # misuse, which isn't a failed search
                raise
            except Exception as error:
                item = None
                report.complete, progress.failure = False, error
            match item:
                case Box():
                    progress.has_read, progress.failure = True, None
                    name = self._boxes.canonical(item.entity)
                    self._postponed.pop(name, None)
                    progress.postponed.pop(name, None)
                    if name in self._retry_at:  # the database recently refused to change the entity
                        self._note_pending(report, item.events)
                    elif all(self._boxes.canonical(lane.box.entity) != name for lane in lanes):  # not found twice
                        lanes.append(EntityLane(item))
                case BrokenOutbox():
                    self._note_unreadable(progress, item)
                case None:
                    progress.has_more = False
                    if progress.failure is not None and not lanes and not report.entities:
                        raise progress.failure  # there is nothing else to report
                case Search.CONTINUES:
                    yield from self._report_minute(progress)  # a search of a large table can take long
        return bool(lanes)

    def _note_unreadable(self, progress: _Progress, broken: BrokenOutbox) -> None:
        """Report an unreadable entity, which doesn't block the others. If no entity is readable, the pass fails."""
        self._note_broken(progress.report, broken)
        if isinstance(broken.error, LedgerMismatch):
            progress.has_read, progress.failure = True, None
        else:
            progress.report.complete = False
            progress.failure = None if progress.has_read else broken.error

    def _try_publishing(self, lanes: Sequence[EntityLane], until: float) -> Flow[Exception | None]:
        """Publish the next event of each entity. Return the error if every call failed.

        If a call with several events fails, any of them might be the cause. Each event is then published alone, so that an
        unpublishable event doesn't block the others.
        """
        events = [lane.event for lane in lanes]
        try:
            refused_ids = _read_refused_ids(events, (yield Do(self._publish, ([*events],))))
        except ConfigurationError:  # `publish` returned something invalid
            raise
        except Exception as error:
            for lane in lanes:
                lane.error = error
            if len(lanes) == 1:
                return error
            last_error, has_success = error, False
            for lane in lanes:
                if self._is_over(until):
                    break
                failure = yield from self._try_publishing([lane], until)
                has_success = has_success or failure is None
                last_error = failure or last_error
            return None if has_success else last_error
        for lane, event in zip(lanes, events, strict=True):
            lane.error = None
            if event.id in refused_ids:
                lane.refusal = event
            else:
                lane.published_events.append(event)
                lane.accepted_count += 1
        return None

    def _settle_all(self, progress: _Progress) -> Flow[None]:
        """Settle each entity. A database error on one entity doesn't stop the others. If all of them fail, the pass fails.

        End the pass if every call to the broker or the database has failed for half a minute.
        """
        report, lanes = progress.report, progress.lanes
        for lane in lanes:
            try:
                yield from self._settle(lane, is_last=progress.is_last)
            except LedgerMismatch as error:
                lane.is_broken = True
                self._note_broken(report, BrokenOutbox(lane.box.entity, error))
            except Exception as error:
                lane.settle_error = error
                lane.accepted_count = 0  # the accepted events are still in the outbox
                self._retry_at[self._boxes.canonical(lane.box.entity)] = self._clock() + _QUIET_PERIOD
                text = "Relay: the database refused to record the published or refused events of %r. Publishing them again in %g s: %s"
                log(ERROR, text, dict(lane.box.entity), _QUIET_PERIOD, describe_error(error, self._publish))
        if report.error is None and all(lane.settle_error is not None for lane in lanes):
            report.error = lanes[-1].settle_error
        if report.error is not None and self._clock() >= progress.silent_since + _MAX_SILENCE:
            progress.is_last = True

    def _settle(self, lane: EntityLane, *, is_last: bool = False) -> Flow[None]:
        """Clear accepted events if that is due, and postpone a failing entity."""
        if lane.accepted_count and (is_last or not lane.has_next or lane.accepted_count == MAX_UNCLEARED):
            yield from self._clear(lane)
        if not lane.is_overtaken and (lane.refusal is not None or lane.error is not None):
            now, began = self._clock(), seconds(lane.box.events[0].time)
            wait = min(max(now - began, 1.0), _MAX_WAIT_AFTER_REFUSAL if lane.error is None else _MAX_WAIT_AFTER_FAILURE)
            # A writer's clock can be ahead, and only a due time after the event's postpones it.
            due = max(now, began) + wait * (0.5 + self._share() / 2)
            if (yield from self._boxes.postpone(lane.box, moment(due))) is None:
                name, count = self._boxes.canonical(lane.box.entity), len(lane.box.events) - lane.accepted_count
                self._postponed[name] = Postponement(due, began, count)

    def _clear(self, lane: EntityLane) -> Flow[None]:
        """Clear the accepted events, unless the outbox shows that another relay was faster."""
        box, count = lane.box, lane.accepted_count
        for _ in range(MAX_ATTEMPTS):
            stored_box = yield from self._boxes.clear(box, count, self._clock())
            # If the response to a successful clear was lost, the stored outbox shows that the clear is done.
            if stored_box is None or stored_box.is_after(box, count):
                lane.box, lane.accepted_count = lane.box.after(count), 0  # a later pass publishes the events emitted since
                return
            if not stored_box.has_first_events(box, count):
                break
            box = stored_box  # the entity emitted more events in the meantime, or was deleted
        lane.is_overtaken = True

    def _clear_after_error(self, lanes: Sequence[EntityLane]) -> Flow[None]:
        """Clear published events before an error ends the pass, so that they aren't published again."""
        for lane in lanes:
            with suppress(Exception):  # the caller raises the first error
                yield from self._settle(lane, is_last=True)

    def _is_over(self, until: float) -> bool:
        return self._is_stopped or self._clock() >= until

    def _note_broken(self, report: SweepReport, broken: BrokenOutbox) -> None:
        """Report a broken entity. Each pass finds it again, so log it at most once a minute."""
        report.broken.append(broken)
        name = self._boxes.canonical(broken.entity)
        if name not in self._log_again_at:
            self._log_again_at[name] = self._clock() + _QUIET_PERIOD
            text = "Relay: the outbox of %r can't be read, so its events aren't published: %s"
            log(ERROR, text, dict(broken.entity), broken.error)

    def _report_lane(self, report: SweepReport, lane: EntityLane) -> None:
        """Add a finished entity to the report."""
        report.entities += 1
        report.published += len(lane.published_events)
        if lane.published_events:
            report.waited = max(report.waited, self._clock() - seconds(lane.published_events[0].time))
        report.overtaken += lane.is_overtaken
        if lane.refusal is not None:
            report.refused.append(lane.refusal)
        error = lane.error or lane.settle_error
        if error is not None:
            report.failed.append((lane.event, error))
        if not lane.is_overtaken and not lane.is_broken:  # otherwise the pending events are unknown
            self._note_pending(report, lane.box.events[lane.accepted_count :])

    def _note_pending(self, report: SweepReport, events: Sequence[PendingEvent]) -> None:
        """Add the events that an entity keeps to the report."""
        report.pending += len(events)
        if events:
            report.oldest = max(report.oldest, self._clock() - seconds(events[0].time))

    def _skip(self, entity: Entity, published_id: str) -> Flow[Outgoing | None]:
        """Replace a pending event by one of type onewrite.skipped, and return the replacement, or None if the event isn't pending."""
        box = yield from self._boxes.read(entity)
        place = next((n for n, event in enumerate(box.list_outgoing()) if event.id == published_id), None)
        if place is None:
            return None
        if box.events[place].type == SKIPPED_TYPE:  # a second replacement would lose the type of the original event
            return box.outgoing(place)
        replacement = box.events[place].replacement(box.entity)
        if (yield from self._boxes.replace(box, place, replacement)) is not None:
            raise ConfigurationError(f"Event {published_id} wasn't skipped, because its entity has changed. Try again.")
        return box.with_event(place, replacement).outgoing(place)

    def _read_state(self, entity: Entity) -> Flow[OutboxState | None]:
        """Return the contents of the entity's outbox, or None if it has none."""
        box = yield from self._boxes.read(entity)
        return None if box.is_unused else OutboxState(box.source, box.base, box.list_outgoing())

    def _restart(self, entity: Entity, incarnation: str, source: str | None = None) -> Flow[str | None]:
        """Give the entity a new source, whose events are numbered from 1. Return the source, or None if the entity has no outbox.

        Pass `source` to restart only from this source, so that a repeated command has no second effect.
        """
        box = yield from self._boxes.read(entity)
        if box.is_unused:
            return None
        if source is not None and source not in (box.source, box.origin):
            raise ConfigurationError(f"A restart has replaced {source}. The entity's source is now {box.source}.")
        changed_box = yield from self._boxes.restart(box, incarnation)
        # If the incarnation is the new one, only the response was lost.
        if changed_box is not None and changed_box.incarnation != incarnation:
            raise ConfigurationError("The entity changed, so it wasn't restarted. Stop its relays, and try again.")
        return f"{box.origin}/{incarnation}"

    def _waiting(self, older_than: timedelta, limit: int) -> Flow[list[PendingEntity]]:
        """Return up to `limit` entities, those whose oldest event has been pending the longest."""
        min_age, now = read_seconds("older_than", older_than), self._clock()
        finder = self._boxes.finder(None, keep_order)
        rows: list[PendingEntity] = []
        names: set[Hashable] = set()
        while (box := (yield from finder.next())) is not None:
            if not isinstance(box, Box):
                continue
            name = self._boxes.canonical(box.entity)
            if name in names:
                continue  # the finder can return an entity twice if it is written in the meantime
            names.add(name)
            age = now - seconds(box.events[0].time)
            if min_age <= 0 or age >= min_age:  # the age is negative if the writer's clock is ahead
                rows.append(PendingEntity(box.outgoing(0), age, len(box.events)))
            if len(rows) == 2 * limit:  # keeps the list short, and sorts only once for `limit` entities
                rows = sorted(rows, key=lambda row: -row.age)[:limit]
        return sorted(rows, key=lambda row: -row.age)[:limit]

    def _broken(self, limit: int) -> Flow[list[BrokenOutbox]]:
        """Return up to `limit` entities whose outbox can't be read."""
        finder, rows = self._boxes.finder(None, keep_order), list[BrokenOutbox]()
        while len(rows) < limit:
            box = yield from finder.next()
            if box is None:
                break
            if isinstance(box, BrokenOutbox):
                rows.append(box)
        return rows


def keep_order() -> float:
    """Return the share with which a finder doesn't shuffle its pages."""
    return 0.0


def read_seconds(name: str, time: object) -> float:
    """Return the seconds of a user's timedelta."""
    if not isinstance(time, timedelta):
        raise ConfigurationError(f"{name}={time!r}: expected a timedelta, for example timedelta(seconds=5).")
    return time.total_seconds()


def _read_refused_ids(events: Sequence[Outgoing], reply: object) -> frozenset[str]:
    """Return the IDs of the events that the broker refused. Raise if the reply isn't valid, so that no event is cleared."""
    if reply is None:
        return frozenset()
    event_ids = {event.id for event in events}
    members = cast("list[object]", reply) if isinstance(reply, list) else [reply]
    ids = [member.id for member in members if isinstance(member, Outgoing) and member.id in event_ids]
    if not isinstance(reply, list) or len(ids) < len(members):
        raise ConfigurationError(
            f"publish returned a {type(cast('object', reply)).__name__}: expected None, or the list of events that the broker refused. No event of this call was cleared."
        )
    return frozenset(ids)
