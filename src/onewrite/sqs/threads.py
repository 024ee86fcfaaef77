"""The driver of a worker's threads. `WorkerState` makes all decisions, under one lock; here they are carried out.

- Each thread of the pool does the next thing to do: it processes a message, deletes settled ones, or asks for more. A thread that has received
  messages begins the first one itself, and wakes another thread if there is more to do. So quick handlers are not slowed down
  by threads that wait for one another. The messages of an `async` function are processed by the tasks of one event loop instead.
- The thread that calls `run` watches the time: waiting messages, timeouts, threads and loops that hang, and the end of the
  work. `Worker.run` watches this thread in turn, from another one that takes no lock.

An error in any of these threads ends the worker, because without that thread it would be alive and do nothing.
"""

from __future__ import annotations

import threading
import time
from asyncio import CancelledError
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from onewrite.aws_lambda.sources import lambda_record
from onewrite.batch.function import where_thread_stands
from onewrite.batch.handler import Handler
from onewrite.batch.order import RecordState
from onewrite.batch.report import Result
from onewrite.identity import record_id
from onewrite.sqs.health import Journal, format_name
from onewrite.sqs.queue import SqsQueue
from onewrite.sqs.state import DELETED_WITHIN, MAX_REQUESTS, Hide, Limits, Receive, Results, WorkerState
from onewrite.sqs.stopping import StopRequest
from onewrite.sqs.waiting import Load, QueueMessage, SqsMessage
from onewrite.sqs.watch import ADVICE, BEAT, SILENCE, Watch, WorkerStuck

if TYPE_CHECKING:
    from onewrite.sqs.tasks import Tasks

Conditions: TypeAlias = Callable[[threading.Lock], threading.Condition]
"""Makes what threads wait on, around a lock. `threading.Condition` is one."""

Job: TypeAlias = Load | Receive | Hide | list[SqsMessage]
"""A load to process, a request for messages, messages to hide, or settled ones to delete."""


class Time(NamedTuple):
    """The clock of a worker, its way to wait, and the conditions on which its threads wait."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    conditions: Conditions = threading.Condition


class ThreadPool:
    """Up to `limit` threads that each do `work`, which waits by calling `rest`. The lock is held for `wake` and `rest`."""

    def __init__(
        self, name: str, lock: threading.Lock, conditions: Conditions, limit: int, work: Callable[[], None]
    ) -> None:
        self._name, self._lock, self._condition, self._limit, self._work = name, lock, conditions(lock), limit, work
        self._context = copy_context()
        self._thread_count = 0
        self._resting_count = 0
        self._is_coming = (
            False  # One was woken, and has not asked for work yet. It wakes the next one, if there is more to do.
        )

    @property
    def may_come(self) -> bool:
        """Whether a thread may be woken: not all are busy, and none that was woken is still on its way."""
        return not self._is_coming and (self._resting_count > 0 or self._thread_count < self._limit)

    def wake(self) -> None:
        """Wake a thread, or start one if all others are busy. Call it only if one `may_come`."""
        if self._resting_count:
            self._condition.notify()
        else:
            # A daemon: the end of the process does not wait for a function that hangs.
            threading.Thread(target=self._context.copy().run, args=(self._begin,), name=self._name, daemon=True).start()
            self._thread_count += 1
        self._is_coming = True  # not before, because the system may refuse a thread

    def rest(self) -> None:
        """Wait until woken."""
        self._resting_count += 1
        self._condition.wait()
        self._resting_count -= 1
        self._is_coming = False

    def wake_all(self) -> None:
        """Wake all threads, because the work is over."""
        self._condition.notify_all()

    def _begin(self) -> None:
        with self._lock:
            self._is_coming = False
        self._work()


# --- the threads of a worker ------------------------------------------------------------------------------------------


ROUNDS = "rounds"
_MAX_NAMED = 10  # messages in an error
# Seconds. With its defaults botocore gives up a request after eleven minutes: five attempts, each of which may take a minute to connect
# and another one to wait for the response.
_MAX_REQUEST = 900.0
_PATIENCE_FOR_LOCK = 1.0  # seconds that a page waits for it


class WorkerThreads:
    """Runs the handler on the messages of the queue."""

    def __init__(
        self,
        queue: SqsQueue,
        handler: Handler[Any],
        *,
        limits: Limits,
        journal: Journal,
        time: Time,
        stop: StopRequest,
    ) -> None:
        self._queue, self._handler, self._limits, self._journal = queue, handler, limits, journal
        self._clock, self._stop = time.clock, stop
        self.watch = Watch(time.clock, handler.each)
        self._lock = threading.Lock()
        self._tasks: Tasks | None = None
        if handler.is_async:
            from onewrite.sqs.tasks import Tasks  # noqa: PLC0415  # only these need an event loop

            self._tasks = Tasks(self, handler.each, limits.timeout)
        self._state = WorkerState(limits, visibility=queue.visibility, is_fifo=queue.is_fifo)
        max_threads = limits.slots + 2 * MAX_REQUESTS  # one that deletes for each one that receives
        self._workers = ThreadPool("onewrite-work", self._lock, time.conditions, max_threads, self._work)
        self._timer = time.conditions(self._lock)
        self._next_round = inf  # when the timer goes on by itself
        self._last_round = inf
        self.failure: BaseException | None = None
        self._is_over = False

    @property
    def is_busy(self) -> bool:
        return not self._is_over and self._state.is_busy

    def counts(self) -> dict[str, int]:
        """Return the counts of messages, or none while something holds the lock for long."""
        with self._lock_in_time() as is_held:
            return self._state.counts() if is_held else {}

    def trouble(self) -> str | None:
        """Return why the worker hangs or ends, as far as that is known without the lock."""
        return self.watch.trouble() if self.failure is None else f"The worker ends: {self.failure}"

    def list_under_way(self) -> list[QueueMessage]:
        """Return the messages in progress."""
        with self._lock_in_time() as is_held:
            return self._state.slots.list_messages() if is_held else []

    def run(self) -> None:
        """Work until the worker has stopped. An error that is no message's own ends the work and is raised."""
        me, self._last_round = threading.get_ident(), self._clock()
        try:
            while not self._is_over:
                longest = max(self._limits.timeout, SILENCE)
                self.watch.begin(ROUNDS, "The worker has done no rounds", longest, me, is_vital=True)
                self._journal.sum_up()
                self._go_round()
        finally:
            self.watch.end(ROUNDS)
            self.abandon()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Let all threads end, without waiting for the messages in progress. Code that hangs must not go on, should it be released."""
        self._is_over = True
        if self._tasks is not None:
            self._tasks.close()
        with self._lock_in_time() as is_held:
            if is_held:
                self._workers.wake_all()
                self._timer.notify()

    def look(self) -> None:
        """Begin a round, because of a change that the timer does not know of. Its next round comes soon enough if the lock is not free."""
        with self._lock_in_time() as is_held:
            if is_held:
                self._timer.notify()

    @contextmanager
    def _lock_in_time(self) -> Generator[bool, None, None]:
        """Hold the lock, unless something else holds it for long. False: it is not held."""
        is_held = self._lock.acquire(timeout=_PATIENCE_FOR_LOCK)
        try:
            yield is_held
        finally:
            if is_held:
                self._lock.release()

    # ------------------------------------------------------------ watching the time

    def _go_round(self) -> None:
        """Do everything that is due, and wait until more is."""
        with self._lock:
            now = self._clock()
            if now - self._last_round > SILENCE:  # The rounds did not go on, so the process itself was suspended.
                self._state.slots.restart_clocks(now)
                self.watch.restart_clocks(now)
            self._last_round = now
            news = self._listen(now)
            overdue_loads = self._state.take_overdue(now)
            self._decide_to_stop(now)  # before anything is begun in the slots that are left
            self._state.retry_due(now)
            self._state.give_back_stalled(now)
            self._wake(now)
            if self._state.is_stopping and not self._state.is_busy:
                self._is_over = self._is_over or self.failure is not None or not self._state.waits_for_messages
            returns = self._state.to_log()
            if not (overdue_loads or returns or news or self._is_over):
                self._next_round = min(self._state.next_due(now), now + BEAT)
                self._timer.wait(max(0.0, self._next_round - now))
                self._next_round = inf
        for text in news:
            self._journal.warn(text)
        for load in overdue_loads:
            self._journal.log_overdue(load.members, self._limits.timeout, self._find_place(load))
            if self._tasks is not None:
                self._tasks.cancel(load)
        for message, reason in returns:
            self._journal.log_return(message, reason)

    def _listen(self, now: float) -> list[str]:
        """Notice whether the event loop goes round, and return a line for the log if that has changed."""
        if self._tasks is None:
            return []
        self._tasks.ask_for_a_sign(now)
        trouble, was_silent = self.watch.trouble(), self._state.is_silent
        self._state.is_silent = trouble is not None
        if was_silent == self._state.is_silent:
            return []
        return [trouble or "The event loop goes round again."]

    def _decide_to_stop(self, now: float) -> None:
        if self._state.is_stopping:
            return
        if self.failure is None and (hang := self._hang(now)) is not None:
            self.failure = WorkerStuck(hang)
            self._stop.ask()
        if self._stop.is_wanted or self.failure is not None or self._state.has_nothing_to_do(now):
            self._state.stop()

    def _hang(self, now: float) -> str | None:
        """Return why no message ends any more, if that is so."""
        slots, timeout = self._state.slots, self._limits.timeout
        if (hang := self.watch.hang()) is not None:
            return hang
        lost_loads = slots.list_lost(now)
        if 2 * len(lost_loads) > self._limits.slots:
            places = "; ".join(
                [f"{format_name(load.members[0])} at {self._find_place(load)}" for load in lost_loads[:_MAX_NAMED]]
            )
            return self.watch.trouble() or (
                f"{len(lost_loads)} of {self._limits.slots} slots are lost to messages that have not ended {timeout:g} seconds "
                f"after they began: {places}{'; ...' * (len(lost_loads) > _MAX_NAMED)}. {ADVICE}; if it only takes long, set a longer timeout on the worker."
            )
        if late_count := slots.count_late(now):
            return (
                f"{late_count} messages, one after the other, have not ended {timeout:g} seconds after they began, and none has in between. Maybe "
                f"all of them wait for something that is never free again, such as a pool of threads or connections. {ADVICE}."
            )
        return None

    def fail(self, error: BaseException) -> None:
        """End the worker by an error. Settled messages are still deleted, within the drain's seconds."""
        with self._lock:
            self.failure = self.failure or error
            self._state.stop()
            self._timer.notify()
        self._stop.ask()

    @contextmanager
    def _failing(self) -> Generator[None, None, None]:
        """End the worker by an error that is raised in the `with` block."""
        try:
            yield
        except BaseException as error:  # of any kind: `run` raises it
            self.fail(error)

    def loop_ended(self, error: BaseException) -> None:
        """End the worker, because the user's code has ended the loop of the tasks."""
        if isinstance(error, Exception | CancelledError):
            stuck = WorkerStuck(
                f"The function's code has ended the event loop, by {error!r}: no message can go on or begin."
            )
            stuck.__cause__ = error
            error = stuck
        self.fail(error)

    def _stop_if_asked(self) -> None:
        """Stop before anything begins, so nothing begins after a stop was asked for."""
        if self._stop.is_wanted:
            self._state.stop()

    def _wake(self, now: float) -> None:
        """Wake the threads that have something to do after a change. The lock is held."""
        has_ready = self._state.ready_count > 0
        if has_ready and self._tasks is not None:
            self._tasks.wake()
        if self._workers.may_come and (  # first, because it is a quick check, and this is done for each message
            (has_ready and self._tasks is None) or self._state.has_request(now) or self._state.has_hide(now)
        ):
            self._workers.wake()
        if self._state.is_stopping:
            self._timer.notify()

    def _go_round_by(self, moment: float) -> None:
        if moment < self._next_round:
            self._timer.notify()

    def _find_place(self, load: Load) -> str | None:
        """Return the line of the user's code at which the load is."""
        if self._tasks is not None:
            return self._tasks.find_place(load)
        return where_thread_stands(load.thread, self._handler.each)

    # ------------------------------------------------------------ messages

    def _work(self) -> None:
        ended: tuple[Load, Results] | None = None
        with self._failing():
            while (job := self._next_job(ended)) is not None:
                ended = None
                if isinstance(job, Load):
                    ended = job, self._process(job)
                elif isinstance(job, Receive):
                    self._receive(job)
                elif isinstance(job, Hide):
                    self._hide(job)
                else:
                    self._delete(job)

    def _next_job(self, ended: tuple[Load, Results] | None) -> Job | None:
        with self._lock:
            now = self._clock()
            if ended is not None:
                self._end(*ended, now)
            while not self._is_over:
                self._stop_if_asked()
                load = self._take(now) if self._tasks is None else None
                job: Job | None = (
                    load or self._state.to_hide(now) or self._state.to_delete(now) or self._state.to_receive(now)
                )
                if self._state.next_sweep > now:
                    self._go_round_by(self._state.next_sweep)
                if job is not None:
                    self._wake(now)
                    return job
                self._workers.rest()
                now = self._clock()
        return None

    def _take(self, now: float) -> Load | None:
        """Return a load to process, if there is one now. The lock is held."""
        load = self._state.to_begin(now)
        if load is not None:
            self._go_round_by(now + self._limits.timeout)
        return load

    def _process(self, load: Load) -> Results:
        load.thread = threading.get_ident()
        try:
            results: Results = self._handler.process_together(self._records(load), **self._options(load))
        except BaseException as error:
            results = self.make_failures(load, error)
        load.thread = None
        self._log_results(load, results)
        return results

    def _log_results(self, load: Load, results: Results) -> None:
        with self._failing():
            self._journal.log_results(load.members, results)

    def _records(self, load: Load) -> list[RecordState]:
        states: list[RecordState] = []
        for message in load.members:
            states.append(self._handler.read(lambda_record(message.content, self._queue.arn)))
            message.messages = states[-1].messages
        return states

    def _options(self, load: Load) -> dict[str, Any]:
        """Return the handler's options for the load. A worker that stops begins nothing more."""

        def time_left() -> float:
            return -inf if self._stop.is_wanted else load.began + self._limits.timeout - self._clock()

        return {"in_order": load.members[0].group is not None, "time_left": time_left}

    def make_failures(self, load: Load, error: BaseException) -> Results:
        """Return the results of a load that ended with an error outside of the handler. An error that is no Exception ends the worker as well."""
        if not isinstance(error, Exception | CancelledError):
            self.fail(error)
        records = [lambda_record(message.content, self._queue.arn) for message in load.members]
        return [Result(record, record_id(record), None, (), error, 0.0) for record in records]

    def _end(self, load: Load, results: Results, now: float) -> None:
        self._journal.count(results)
        self._state.end(load, results, now)
        waits = not all(result is not None and result.settled for result in results)
        self._go_round_by(self._state.next_due(now) if waits else now + DELETED_WITHIN)
        if self._state.is_stopping:
            self._timer.notify()

    # ------------------------------------------------------------ for the tasks

    def ready_count(self) -> int:
        """Return how many loads may begin."""
        return self._state.ready_count

    def take(self, *, is_last: bool) -> Load | None:
        """Return a load for a task that has just begun to run, if there still is one. `is_last`: no other task will ask at once."""
        load = None
        with self._failing(), self._lock:
            now = self._clock()
            self._stop_if_asked()
            load = self._take(now)
            if is_last:
                self._wake(now)
        return load

    async def aprocess(self, load: Load) -> Results:
        return await self._handler.aprocess_together(self._records(load), **self._options(load))

    def bring(self, load: Load, results: Results) -> None:
        """Take the results of a task."""
        self._log_results(load, results)
        with self._failing(), self._lock:
            now = self._clock()
            self._end(load, results, now)
            self._wake(now)

    # ------------------------------------------------------------ requests

    def _requesting(self, method: str) -> Any:
        return self.watch.doing(f"{self._queue.url}: {method} has not ended", _MAX_REQUEST + self._limits.wait)

    def _receive(self, request: Receive) -> None:
        messages, keys = None, None
        began = self._clock()
        with self._failing():
            with self._requesting("receive_message"):
                messages = self._queue.receive(request.number, self._limits.wait)
            if messages and self._handler.has_groups:
                with self.watch.doing("The groups of messages have not been read", self._limits.timeout):
                    keys = [self._read_key(message) for message in messages]
        with self._lock:
            now = self._clock()
            self._stop_if_asked()
            if messages is None:
                self._state.note_failure(request, now)
            else:
                self._journal.receive_count += len(messages)
                self._state.take_in(request, messages, began, now, keys)
            self._timer.notify()  # The queue may be empty, or a pause may have begun.
            self._wake(now)

    def _read_key(self, message: SqsMessage) -> Hashable:
        """Return the group of a message. A record without messages has its own group. One with several has the group of the first one."""
        state = self._handler.read(lambda_record(message, self._queue.arn))
        return state.keys[0] if state.keys else object()

    def _delete(self, messages: list[SqsMessage]) -> None:
        with self._failing(), self._requesting("delete_message_batch"):
            self._queue.delete(messages)
        with self._lock:
            self._state.end_deleting()
            self._wake(self._clock())

    def _hide(self, hide: Hide) -> None:
        began = self._clock()
        messages = [(message.content, seconds) for message, seconds in hide.messages]
        failures: dict[str, bool] = {}
        with self._failing(), self._requesting("change_message_visibility_batch"):
            if hide.gives_back:
                self._queue.hide(messages)
            else:
                failures = self._queue.extend(messages)
        with self._lock:
            self._state.end_hiding(hide, failures, began)
            self._wake(self._clock())
