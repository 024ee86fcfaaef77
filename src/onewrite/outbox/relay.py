"""The relay: its flows, the blocking and the asynchronous class that run them, and its Lambda function.

A notification wakes a relay when events are emitted. The relay reads the events from the entity, so a lost or repeated notification does no
harm: a sweep finds the events that no notification has reported.
"""

# ruff: noqa: N803  # `Key` is boto3's own spelling

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from logging import ERROR, INFO, WARNING
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from onewrite.core.clock import random_name, random_share, wall_clock
from onewrite.core.features.pending import BrokenOutbox, Outgoing
from onewrite.core.flow import Do, Flow, FlowStep, Wait, adrive, drive, execute, execute_async
from onewrite.core.hook import as_async
from onewrite.core.label import OUTBOX
from onewrite.core.log import log
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.outbox.passes import (
    FOR_EVER,
    FlushReport,
    OutboxState,
    Passes,
    PendingEntity,
    StoredOutboxes,
    SweepReport,
)
from onewrite.process.failures import describe_error
from onewrite.process.loops import get_thread_runner, is_inner_cancellation
from onewrite.process.watch import Watch

T = TypeVar("T")
Where: TypeAlias = Mapping[str, Any] | None
# Publishes the events of one call, and returns None, or the events that weren't accepted.
Publish: TypeAlias = Callable[[list[Outgoing]], list[Outgoing] | None]
AsyncPublish: TypeAlias = Callable[[list[Outgoing]], Awaitable[list[Outgoing] | None] | list[Outgoing] | None]
OnPass: TypeAlias = Callable[[SweepReport], object]
StreamHandler: TypeAlias = Callable[[Mapping[str, Any], Any], dict[str, Any]]

_AT_ONCE = timedelta(0)
_MIN_PAUSE = 0.1  # seconds after the first failure. Each failure in a row doubles the pause.
_LOOKS_AHEAD_EVERY = 60.0  # seconds between two sweeps that look ahead, because they read the postponed entities too
_MAX_PAUSE = 60.0  # seconds between two passes while the broker or the database fails
_MAX_DOUBLINGS = 6
# Seconds before the end of an invocation: enough for the call in progress and the clears after it.
_MARGIN = timedelta(seconds=2)
_MAX_STEP = 30.0  # seconds until a call to the broker or the database counts as hanging
_WATCH = 60.0  # seconds between two looks at the call in progress, so that each call that hangs is logged once a minute


class EmittingStore(Protocol):
    """A guarded table or collection that was made with an outbox."""

    @property
    def outboxes(self) -> StoredOutboxes: ...


class _RelayFlows(Passes):
    """The flows of both classes, which execute and wake them differently."""

    def __init__(
        self, store: EmittingStore, publish: Callable[[list[Outgoing]], Any], batch: int, clock: Callable[[], float]
    ) -> None:
        super().__init__(find_outboxes(store, publish), publish, batch, clock)
        self._watch = Watch(time.monotonic, publish, "relay")
        self._has_run = False

    @contextmanager
    def _doing(self, step: FlowStep, thread: int | None) -> Generator[None, None, None]:
        """Record the step for the watchdog."""
        if isinstance(step, Wait):
            yield
            return
        name = "publish" if isinstance(step, Do) and step.function is self._publish else "a request to the database"
        self._watch.begin(id(step), f"{name} hasn't returned", _MAX_STEP, thread)
        try:
            yield
        finally:
            self._watch.end(id(step))

    def _watched(self, flow: Flow[T]) -> Flow[T]:
        """Run the flow. Log a step that hangs, each minute until it ends."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(_WATCH):
                hang = self._watch.describe_hang()
                if hang is not None:
                    log(ERROR, "Relay: %s Its events stay pending.", hang)

        with suppress(RuntimeError):  # the system can refuse a thread
            threading.Thread(target=look, name="onewrite-relay-watch", daemon=True).start()
        try:
            return (yield from flow)
        finally:
            over.set()

    def _find_entity(self, filter: Where, key: Where, source: str | None) -> Mapping[str, Any]:
        """Return the entity with this key, filter, or source."""
        if source is None:
            return self._boxes.entity(filter, key)
        if filter is not None or key is not None:
            raise ConfigurationError(f"source={source!r} already names the entity. Omit the key and the filter.")
        return self._boxes.read_source(source)

    def _repeat(self, older_than: timedelta, poll: float, on_pass: OnPass | None) -> Flow[None]:
        """Sweep until stopped, and report each pass."""
        if self._is_stopped and self._has_run:
            raise ConfigurationError("run(): the relay was stopped, and doesn't run again. Create a new relay.")
        self._has_run = True
        report_minute = partial(report_pass, on_pass=on_pass, publish=self._publish)
        failures, looked_ahead = 0, -inf
        while not self._is_stopped:
            now = self._clock()
            looks_ahead = not looked_ahead <= now < looked_ahead + _LOOKS_AHEAD_EVERY  # the clock can be set back too
            looked_ahead = now if looks_ahead else looked_ahead
            try:
                progress = self._begin_sweep(older_than, on_minute=report_minute, looks_ahead=looks_ahead)
                yield from self._pass(progress)
                report = progress.take_untold()
            except OnewriteError:  # misuse, which no retry can cure
                raise
            except Exception as error:
                report = SweepReport(error=error, complete=False)
            report_pass(report, on_pass, publish=self._publish)
            failures = 0 if report.error is None else failures + 1
            yield Wait(compute_pause(failures, poll, random_share()))


class Relay(_RelayFlows):
    """Publishes the events of a store, in order within each entity, and clears what the broker has accepted.

    Any number of relays can work on one store: an event can be published more than once, each time with the same number. `publish` takes a
    list of at most `batch` events, each of a different entity. It returns None, or the list of events that weren't accepted. If it raises,
    the events are published again.
    """

    def __init__(
        self, store: EmittingStore, publish: Publish, *, batch: int = 10, clock: Callable[[], float] = wall_clock
    ) -> None:
        super().__init__(store, publish, batch, clock)
        self._wake: SimpleQueue[None] = SimpleQueue()  # a signal handler can put into it at any time

    def flush(self, filter: Where = None, *, Key: Where = None) -> FlushReport:
        """Publish the pending events of one entity, for example right after the write. It raises the errors of `publish`."""
        return self._run(self._flush(self._boxes.entity(filter, Key)))

    def notify(self, entities: Iterable[Mapping[str, Any]], *, within: timedelta = FOR_EVER) -> SweepReport:
        """Publish the pending events of these entities, named by keys (plain, or typed as in a stream) or by filters.

        Use it for notifications. It skips entities that were postponed after a refusal, because postponing sends a notification too. After the
        time `within`, it makes no more calls to the broker.
        """
        return self._run(self._notify(self._read_notified(entities), within))

    def sweep(self, older_than: timedelta = _AT_ONCE, *, within: timedelta = FOR_EVER) -> SweepReport:
        """Publish the events of all entities that have been pending for this long. After the time `within`, it makes no more calls to the broker."""
        return self._run(self._watched(self._sweep(older_than, within)))

    def skip(self, filter: Where = None, *, id: str, Key: Where = None, source: str | None = None) -> Outgoing | None:
        """Replace a pending event by one of type onewrite.skipped, and return that. Return None if no pending event has this ID.

        Pass the entity's key, its filter, or the source of its events.
        """
        return self._run(self._skip(self._find_entity(filter, Key, source), id))

    def restart(self, filter: Where = None, *, Key: Where = None, source: str | None = None) -> str | None:
        """Number the entity's events from 1 again, under a new source, for example after a restore from a backup.

        Publish pending events first. They get new IDs too, so consumers would count a second copy as a new event.

        Return the new source, or None if the entity never emitted an event. Pass the entity's key, its filter, or the current source of its
        events. With the current source, a repeated call is refused.
        """
        return self._run(self._restart(self._find_entity(filter, Key, source), random_name(), source))

    def peek(self, source: str) -> OutboxState | None:
        """Return the outbox of the entity whose events have or had this source, or None if it never emitted one."""
        return self._run(self._read_state(self._boxes.read_source(source)))

    def pending(self, older_than: timedelta = _AT_ONCE, *, limit: int = 100) -> list[PendingEntity]:
        """Return the entities with pending events, the longest wait first."""
        return self._run(self._waiting(older_than, limit))

    def broken(self, *, limit: int = 100) -> list[BrokenOutbox]:
        """Return the entities whose outbox can't be read, and why. Their events aren't published until you repair them."""
        return self._run(self._broken(limit))

    def run(self, *, poll: float = 1.0, older_than: timedelta = _AT_ONCE, on_pass: OnPass | None = None) -> None:
        """Sweep every `poll` seconds until `stop` is called. It logs a failure, and waits longer before the next pass.

        While a pass takes longer than a minute, `on_pass` also gets a report of each minute, with `continues=True`. A stopped relay doesn't run
        again.
        """
        if not isinstance(cast("object", poll), int | float) or not poll >= 0:
            raise ConfigurationError(f"poll={poll!r}: expected a number of seconds, 0 or more.")
        return self._run(self._watched(self._repeat(older_than, poll, on_pass)))

    def stop(self) -> None:
        """End `run` and `sweep` after the current call to the broker. A signal handler or a different thread can call it."""
        self._is_stopped = True
        self._wake.put(None)

    def _run(self, steps: Generator[FlowStep, Any, T]) -> T:
        return drive(steps, self._execute)

    def _execute(self, step: FlowStep) -> Any:
        with self._doing(step, threading.get_ident()):
            return execute(step, self._boxes.target, self._sleep)

    def _sleep(self, seconds: float) -> None:
        if not self._is_stopped:  # a different wait might have taken the value of `stop`
            with suppress(Empty):
                self._wake.get(timeout=min(seconds, threading.TIMEOUT_MAX))


class AsyncRelay(_RelayFlows):
    """`Relay` for an asynchronous store. It has the same methods. Await all but `stop`. `publish` can be a plain or an asynchronous function."""

    def __init__(
        self, store: EmittingStore, publish: AsyncPublish, *, batch: int = 10, clock: Callable[[], float] = wall_clock
    ) -> None:
        find_outboxes(store, publish)  # refuses wrong arguments, which the partial would hide
        super().__init__(store, partial(_publish_and_await, publish), batch, clock)
        self._wake = asyncio.Event()

    flush = as_async(Relay.flush)
    notify = as_async(Relay.notify)
    sweep = as_async(Relay.sweep)
    skip = as_async(Relay.skip)
    restart = as_async(Relay.restart)
    peek = as_async(Relay.peek)
    pending = as_async(Relay.pending)
    broken = as_async(Relay.broken)
    run = as_async(Relay.run)

    def stop(self) -> None:
        """End `run` and `sweep` after the current call to the broker. Call it in the event loop's thread."""
        self._is_stopped = True
        self._wake.set()

    async def _run(self, steps: Generator[FlowStep, Any, T]) -> T:
        return await adrive(steps, self._execute)

    async def _execute(self, step: FlowStep) -> Any:
        with self._doing(step, None):
            return await execute_async(step, self._boxes.target, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)


async def _publish_and_await(publish: AsyncPublish, events: list[Outgoing]) -> Any:
    """Return the reply of `publish`. A cancellation that `publish` itself caused is its error, and doesn't cancel the relay."""
    try:
        reply = publish(events)
        return await reply if isawaitable(reply) else reply
    except asyncio.CancelledError as error:
        if not is_inner_cancellation(error):
            raise
        raise RuntimeError("publish raised CancelledError") from error


# A relay, or an asynchronous function that creates one, if its client must be created in the event loop.
HandledRelay: TypeAlias = Relay | AsyncRelay | Callable[[], Awaitable[AsyncRelay]]


def stream_handler(relay: HandledRelay, *, on_pass: OnPass | None = None) -> StreamHandler:
    """Return a Lambda function for the stream of the relay's DynamoDB table, and for a schedule.

    For stream records, the function publishes the events of the named items, and always succeeds: a refused event stays in its entity,
    and must not block the shard. For any other event, such as a schedule's, it makes a sweep, and raises the database's errors. In the
    last two seconds, it doesn't begin a call to the broker.

    With an `AsyncRelay`, or an asynchronous function that creates one at the first invocation, all invocations share one event loop.
    """
    if isinstance(relay, type) or not (isinstance(relay, Relay | AsyncRelay) or callable(relay)):
        raise ConfigurationError(
            f"stream_handler({relay!r}): expected a Relay, an AsyncRelay, or an async function that returns an AsyncRelay."
        )
    async_relays = [relay] if isinstance(relay, AsyncRelay) else []  # created only once, at the first invocation

    async def make_async_pass(event: Mapping[str, Any], within: timedelta) -> Any:
        if not async_relays:
            async_relays.append(await _create_relay(cast("Callable[[], object]", relay)))
        return await _make_pass(async_relays[0], event, within)

    def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        try:
            milliseconds_left = getattr(context, "get_remaining_time_in_millis", None)
            within = FOR_EVER if milliseconds_left is None else timedelta(milliseconds=milliseconds_left()) - _MARGIN
            if isinstance(relay, Relay):
                report = _make_pass(relay, event, within)
            else:
                report = get_thread_runner().run(make_async_pass(event, within))
        except OnewriteError:  # misuse, which a sweep can't make up for
            raise
        except Exception as error:
            if "Records" not in event:  # a sweep, whose failure the invocation reports
                raise
            text = "Relay: a pass over stream records failed. A sweep will publish their events: %s"
            log(WARNING, text, describe_error(error, handler))
        else:
            report_pass(report, on_pass)
        return {"batchItemFailures": []}

    return handler


async def _create_relay(function: Callable[[], object]) -> AsyncRelay:
    """Return the relay that the user's plain or asynchronous function creates."""
    created = function()
    relay = await created if isawaitable(created) else created
    if not isinstance(relay, AsyncRelay):
        raise ConfigurationError(
            f"The function of stream_handler returned a {type(relay).__name__}: expected an AsyncRelay. To use a Relay, pass it itself "
            "instead of a function."
        )
    return relay


def _make_pass(relay: Relay | AsyncRelay, event: Mapping[str, Any], within: timedelta) -> Any:
    """Notify the relay of the items of stream records, or sweep for any other event. Return the report, or an awaitable of it for an `AsyncRelay`."""
    if "Records" not in event:
        return relay.sweep(within=within)
    return relay.notify(list_changed_keys(event["Records"]), within=within)


def list_changed_keys(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the distinct typed keys of the items that can have pending events.

    An item whose image has no events is left out, because later events have their own record.
    """
    keys: dict[str, dict[str, Any]] = {}
    for record in records:
        if (source := record.get("eventSource", "aws:dynamodb")) != "aws:dynamodb":
            raise ConfigurationError(
                f"stream_handler got an event of {source}: expected records of a DynamoDB stream. Map the function to the stream of the relay's "
                "table. For a queue, use @sqs_handler."
            )
        change = cast("Mapping[str, Any]", record.get("dynamodb") or {})
        image = change.get("NewImage")
        if record.get("eventName") != "REMOVE" and (image is None or OUTBOX.events in image) and change.get("Keys"):
            keys[repr(sorted(change["Keys"].items()))] = change["Keys"]
    return [*keys.values()]


def find_outboxes(store: object, publish: object) -> StoredOutboxes:
    """Return the outboxes of the relay's store."""
    if isinstance(store, type) or not hasattr(type(store), "outboxes"):
        raise ConfigurationError(
            f"Relay({store!r}, ...): expected a guarded store, for example Relay(GuardedTable(table, SeenIds(), outbox=Outbox('shop/orders')), "
            "publish)."
        )
    if not callable(publish):
        raise ConfigurationError(
            f"Relay(store, {publish!r}): expected a function of a list of events, for example to_sqs(client, queue_url)."
        )
    return cast("EmittingStore", store).outboxes


def report_pass(report: SweepReport, on_pass: OnPass | None, publish: object = None) -> None:
    """Log a pass, and pass its report to the hook. A failing hook doesn't stop the relay. `publish` is the function searched for in tracebacks."""
    if report.continues:
        text = "Relay: %d events published in the last minute. The pass continues: at least %d events are pending, the oldest for %.0f s"
        log(INFO, text, report.published, report.pending, max(report.oldest, report.waited))
    for event in report.refused:
        text = "Relay: the broker refused event %s of %s. Its entity publishes no later event until the broker accepts it or you skip it"
        log(WARNING, text, event.id, event.source)
    if report.error is not None:
        text = (
            "Relay: a pass failed, and the next one retries: %s. Failed events: %d. If this repeats, check the broker, the database, and the "
            "credentials and limits of both"
        )
        log(WARNING, text, describe_error(report.error, publish), len(report.failed))
    else:
        for event, error in report.failed:
            text = "Relay: event %s of %s failed, and is retried later: %s"
            log(WARNING, text, event.id, event.source, describe_error(error, publish))
    try:
        if on_pass is not None:
            on_pass(report)
    except Exception as error:
        text = "Relay: on_pass raised %s. The relay continues, but its metrics are incomplete"
        log(ERROR, text, describe_error(error, on_pass))


def compute_pause(failures: int, poll: float, share: float) -> float:
    """Return the seconds before the next pass. They double with each failure in a row. `share` spreads the passes of several relays."""
    shortest = max(poll, _MIN_PAUSE) if failures else poll
    longest = min(shortest * (1 << min(failures, _MAX_DOUBLINGS)), max(poll, _MAX_PAUSE))
    return longest * (0.5 + share / 2)
