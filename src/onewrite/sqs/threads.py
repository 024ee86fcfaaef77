"""The driver of a worker's threads. `WorkerState` makes all decisions under one lock, and this module carries them out.

- Each thread of the pool does the next job: it processes a message, deletes settled messages, or asks for more. A thread that has received
  messages begins the first message itself, and wakes another thread if there is more to do, so that quick handlers don't wait for
  thread switches. The messages of an `async` function are processed by the tasks of one event loop instead.
- The thread that calls `run` watches the time: waiting messages, timeouts, hanging threads and loops, and the end of the
  work. `Worker.run` watches that thread from another thread, without taking a lock.

An error in any of these threads ends the worker, because without that thread the worker would stay alive and do nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Hashable
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from math import inf
from typing import Any, NamedTuple, TypeAlias

from onewrite.aws_lambda.sources import make_lambda_record
from onewrite.batch.handler import Handler
from onewrite.batch.order import RecordState
from onewrite.batch.report import Result
from onewrite.identity import record_id
from onewrite.process.failures import find_thread_line
from onewrite.process.stopping import StopRequest
from onewrite.process.watch import BEAT, SILENCE, Watch, WorkerStuck
from onewrite.sqs.journal import SUMMARY, Journal, format_name
from onewrite.sqs.queue import MAX_ATTEMPTS, SqsQueue
from onewrite.sqs.state import DELETED_WITHIN, MAX_REQUESTS, Hide, Limits, Receive, Results, WorkerState
from onewrite.sqs.tasks import Tasks
from onewrite.sqs.waiting import Load, SqsMessage

Conditions: TypeAlias = Callable[[threading.Lock], threading.Condition]
"""Returns a condition for a lock, for example `threading.Condition`."""

Job: TypeAlias = Load | Receive | Hide | list[SqsMessage]
"""A load to process, a request for messages, messages to hide, or settled messages to delete."""


class Time(NamedTuple):
    """The clock of a worker, its sleep function, and the conditions on which its threads wait."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    conditions: Conditions = threading.Condition


class ThreadPool:
    """Up to `limit` threads that each run `work`, which waits by calling `rest`. Hold the lock when you call `wake` or `rest`."""

    def __init__(
        self, name: str, lock: threading.Lock, conditions: Conditions, limit: int, work: Callable[[], None]
    ) -> None:
        self._name, self._lock, self._condition, self._limit, self._work = name, lock, conditions(lock), limit, work
        self._context = copy_context()
        self._thread_count = 0
        self._resting_count = 0
        # A woken thread hasn't asked for work yet. It will wake the next thread if there is more to do.
        self._is_coming = False
        self.refusal: str | None = None  # why the system refused the last new thread, for the log

    @property
    def may_come(self) -> bool:
        """Whether a thread can be woken. Then not all threads are busy, and no woken thread is still on its way."""
        return not self._is_coming and (self._resting_count > 0 or self._thread_count < self._limit)

    def wake(self) -> None:
        """Wake a resting thread, or start a thread if none rests. Call it only if `may_come` is true.

        If the system refuses a thread, the others do its work. Each later call tries again, at the latest in the next round.
        """
        if self._resting_count:
            self._condition.notify()
        else:
            # The threads are daemons, so that the process can end while a function hangs.
            thread = threading.Thread(target=self._context.copy().run, args=(self._begin,), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.refusal = f"{error}. The worker continues with {self._thread_count} of {self._limit} threads"
                return
            self._thread_count += 1
        self._is_coming = True

    def rest(self) -> None:
        """Wait until woken."""
        self._resting_count += 1
        self._condition.wait()
        self._resting_count -= 1
        self._is_coming = False

    def wake_all(self) -> None:
        """Wake all threads, so that they notice the end of the work."""
        self._condition.notify_all()

    def _begin(self) -> None:
        with self._lock:
            self._is_coming = False
        self._work()


# --- the threads of a worker ------------------------------------------------------------------------------------------


ROUNDS = "rounds"
_MORE_THREADS = "Raise the limit of processes of the container or the user, or pass a smaller in_flight= to the worker."
# Seconds. With its defaults, botocore gives up a request after about eleven minutes, which are five attempts with a minute each to
# connect and to wait for the response.
_MAX_REQUEST = 900.0
_SLOW = 60.0  # seconds, in addition to a long poll's wait, until the log names a request in progress
_PATIENCE_FOR_LOCK = 1.0  # seconds, because your `backoff` is called under the lock, and can hang


class WorkerThreads:
    """Runs the handler on the messages of the queue."""

    def __init__(
        self,
        queue: SqsQueue,
        handler: Handler[Any],
        *,
        limits: Limits,
        journal: Journal,
        timing: Time,
        stop: StopRequest,
    ) -> None:
        self._queue, self._handler, self._limits, self._journal = queue, handler, limits, journal
        self._clock, self._stop = timing.clock, stop
        self.watch = Watch(timing.clock, handler.function, "worker")
        self._lock = threading.Lock()
        self._tasks: Tasks | None = None
        if handler.is_async:
            self._tasks = Tasks(self.watch, handler.function, limits.timeout, begin=self._begin_tasks, failing=self._failing)
        self.state = WorkerState(limits, visibility=queue.visibility, is_fifo=queue.is_fifo)
        max_threads = limits.slots + 2 * MAX_REQUESTS + 1  # as many deleting as receiving threads, and one that hides
        self._workers = ThreadPool("onewrite-work", self._lock, timing.conditions, max_threads, self._work)
        self._timer = timing.conditions(self._lock)
        self._next_round = inf  # the time at which the timer wakes on its own
        self._warned_at: dict[str, float] = {}  # the time of the last warning of each kind
        self.failure: BaseException | None = None
        self._is_over = False

    @property
    def is_busy(self) -> bool:
        return not self._is_over and self.state.is_busy

    def describe_trouble(self) -> str | None:
        """Return why the worker hangs or ends, or None. Takes no lock."""
        return self.watch.describe_trouble() if self.failure is None else f"The worker is ending: {self.failure}"

    def run(self) -> None:
        """Work until the worker has stopped. An error outside of a message ends the work and is raised."""
        me = threading.get_ident()
        try:
            while not self._is_over:
                max_seconds = max(self._limits.timeout, SILENCE)
                self.watch.begin(ROUNDS, "The worker hasn't begun a round", max_seconds, me, is_vital=True)
                self._journal.sum_up()
                self._go_round()
        finally:
            self.watch.end(ROUNDS)
            self.abandon()
            with self._lock:
                self._workers.wake_all()
        if self.failure is not None:
            raise self.failure

    def log_unfinished(self) -> None:
        """Log the messages that the worker still has. Takes no lock."""
        members = self.state.list_messages()
        if members:
            self._journal.log_unfinished(members)

    def abandon(self) -> None:
        """End all threads in the next round, without waiting for the messages in progress. Released code then begins nothing more."""
        self._is_over = True
        if self._tasks is not None:
            self._tasks.close()
        self.begin_round()

    def begin_round(self) -> None:
        """Begin a round after a state change. If the lock stays taken, skip this, because the timer also wakes on its own."""
        if self._lock.acquire(timeout=_PATIENCE_FOR_LOCK):
            self._timer.notify()
            self._lock.release()

    # ------------------------------------------------------------ watching the time

    def _go_round(self) -> None:
        """Do everything that is due, and wait for the next due time."""
        with self._lock:
            now = self._clock()
            loop_change = self._check_event_loop(now)
            overdue_loads = self.state.take_overdue(now)
            self._decide_to_stop(now)  # before the remaining slots begin another load
            self.state.retry_due(now)
            self._wake(now)
            if self.state.is_stopping and not self.state.is_busy:
                self._is_over = self._is_over or self.failure is not None or not self.state.reserved_messages
            returns = self.state.to_log()
            warnings = self._list_warnings(now)
            if not (overdue_loads or returns or loop_change or warnings or self._is_over):  # log these before waiting
                self._next_round = min(self.state.find_next_due(now), now + BEAT)
                self._timer.wait(max(0.0, self._next_round - now))
                self._next_round = inf
        for warning in ([] if loop_change is None else [loop_change]) + warnings:
            self._journal.warn(warning)
        for load in overdue_loads:
            self._journal.log_overdue(load.members, self._limits.timeout, self._find_place(load))
            if self._tasks is not None:
                self._tasks.cancel(load)
        self._journal.log_returns(returns)

    def _check_event_loop(self, now: float) -> str | None:
        """Ask the event loop for a sign of life, and return a line for the log if the loop stopped responding or responds again."""
        if self._tasks is not None:
            self._tasks.ask_for_a_sign(now)
        trouble, was_silent = self.watch.describe_trouble(), self.state.is_silent
        self.state.is_silent = trouble is not None
        if was_silent == self.state.is_silent:
            return None
        return trouble or "The event loop responds again."

    def _list_warnings(self, now: float) -> list[str]:
        """Return lines for the log about a refused thread and a slow request to SQS, each once a minute at most."""
        refusal = self._workers.refusal or (None if self._tasks is None else self._tasks.refusal)
        slow = self.watch.describe_slow(_SLOW + self._limits.wait)
        warnings = {
            "refusal": None if refusal is None else f"The system refused a thread: {refusal}. {_MORE_THREADS}",
            "slow": slow and f"{slow} The worker waits for this call, and ends if it hangs. Check why it doesn't return.",
        }
        due = {kind: text for kind, text in warnings.items() if text and now >= self._warned_at.get(kind, -inf) + SUMMARY}
        self._warned_at.update(dict.fromkeys(due, now))
        if "refusal" in due:
            self._workers.refusal = None
        return [*due.values()]

    def _decide_to_stop(self, now: float) -> None:
        """Stop if asked, if nothing is left to do, or if the worker hangs, which becomes its failure."""
        if self.state.is_stopping:
            return
        hang = self._describe_hang(now) if self.failure is None else None
        if hang is not None:
            self.failure = WorkerStuck(hang)
            self._stop.ask()
        if self._stop.is_wanted or self.failure is not None or self.state.has_nothing_to_do(now):
            self.state.stop()

    def _describe_hang(self, now: float) -> str | None:
        """Return why the worker can't continue, or None if it can."""
        lost_loads = self.state.slots.list_lost(now)
        if 2 * len(lost_loads) <= self._limits.slots:
            return self.watch.describe_hang()
        lost_load = lost_loads[0]
        # Report a blocked event loop rather than the lost slots, because it is their cause.
        return self.watch.describe_trouble() or (
            f"{len(lost_loads)} of {self._limits.slots} slots are lost to messages that haven't finished {self._limits.timeout:g} seconds "
            f"after they began, for example {format_name(lost_load.members[0])} at {self._find_place(lost_load)}. {self.watch.advice} "
            "If the call is only slow, pass a longer timeout= to the worker."
        )

    def _fail(self, error: BaseException) -> None:
        """End the worker with an error. It still deletes settled messages, within `drain_seconds`."""
        with self._lock:
            self.failure = self.failure or error
            self.state.stop()
            self._timer.notify()
        self._stop.ask()

    @contextmanager
    def _failing(self) -> Generator[None, None, None]:
        """End the worker with an error that is raised in the `with` block."""
        try:
            yield
        except BaseException as error:  # any error, because `run` raises it
            self._fail(error)

    def _stop_if_asked(self) -> None:
        """Stop now if a stop was requested. Nothing begins afterwards."""
        if self._stop.is_wanted:
            self.state.stop()

    def _wake(self, now: float) -> None:
        """Wake the threads that have something to do after a change. The caller holds the lock."""
        has_ready = self.state.ready_count > 0
        if has_ready and self._tasks is not None:
            self._tasks.wake()
        if self._workers.may_come and (  # the quick check first, because this runs for each message
            (has_ready and self._tasks is None) or self.state.has_request(now) or self.state.has_hide(now)
        ):
            self._workers.wake()
        if self.state.is_stopping:
            self._timer.notify()

    def _go_round_by(self, moment: float) -> None:
        """Wake the timer if it would sleep beyond this time. It then computes its next round again."""
        if moment < self._next_round:
            self._timer.notify()

    def _find_place(self, load: Load) -> str | None:
        """Return the line of the user's code that the load is executing."""
        if self._tasks is not None:
            return self._tasks.find_place(load)
        return find_thread_line(load.thread, self._handler.function)

    # ------------------------------------------------------------ messages

    def _work(self) -> None:
        """Do one job after the other until the worker ends. A thread of the pool runs this."""
        with self._failing():
            while (job := self._next_job()) is not None:
                if isinstance(job, Load):
                    self._finish(job, self._process(job))
                elif isinstance(job, Receive):
                    self._receive(job)
                elif isinstance(job, Hide):
                    self._hide(job)
                else:
                    self._delete(job)

    def _next_job(self) -> Job | None:
        """Wait for the most urgent job, and return it, or None at the end of the work."""
        with self._lock:
            now = self._clock()
            while not self._is_over:
                self._stop_if_asked()
                job: Job | None = self._begin_load(now) if self._tasks is None else None
                job = job or self.state.to_hide(now) or self.state.to_delete(now) or self.state.to_receive(now)
                if self.state.next_sweep > now:
                    self._go_round_by(self.state.next_sweep)
                if job is not None:
                    self._wake(now)
                    return job
                self._workers.rest()
                now = self._clock()
        return None

    def _begin_load(self, now: float) -> Load | None:
        """Begin the next load and return it, or None if no load can begin. The caller holds the lock."""
        load = self.state.to_begin(now)
        if load is not None:
            self._go_round_by(now + self._limits.timeout)
        return load

    def _process(self, load: Load) -> Results:
        """Process a load in this thread. An error outside of the handler fails each of its messages."""
        load.thread = threading.get_ident()
        try:
            results: Results = self._handler.process_together(self._read_records(load), **self._build_options(load))
        except BaseException as error:  # `_make_failures` decides which errors also end the worker
            results = self._make_failures(load, error)
        load.thread = None
        return results

    def _read_records(self, load: Load) -> list[RecordState]:
        """Return the load's records with their messages. Note the messages in the load, too, because the log names them."""
        states: list[RecordState] = []
        for message in load.members:
            states.append(self._handler.read(make_lambda_record(message.content, self._queue.arn)))
            message.messages = states[-1].messages
        return states

    def _build_options(self, load: Load) -> dict[str, Any]:
        """Return the handler's options for the load. In a stopping worker no time is left, and no message begins."""

        def time_left() -> float:
            return -inf if self._stop.is_wanted else load.began + self._limits.timeout - self._clock()

        return {"in_order": load.members[0].group is not None, "time_left": time_left}

    def _make_failures(self, load: Load, error: BaseException) -> Results:
        """Return the results of a load that ended with an error outside of the handler. An error such as SystemExit also ends the worker."""
        # A cancellation isn't the end of the worker, because the worker itself cancels the task of an overdue load.
        if not isinstance(error, Exception | asyncio.CancelledError):
            self._fail(error)
        records = [make_lambda_record(message.content, self._queue.arn) for message in load.members]
        return [Result(record, record_id(record), message=None, outcomes=(), error=error, seconds=0.0) for record in records]

    def _finish(self, load: Load, results: Results) -> None:
        """Log and count the results of a load, and end it."""
        with self._failing():  # on its own, so that the load ends even if the log fails
            self._journal.log_results(load.members, results)
        with self._failing(), self._lock:
            now = self._clock()
            self._journal.count(results)
            self.state.end(load, results, now)
            is_settled = all(result is not None and result.settled for result in results)
            self._go_round_by(now + DELETED_WITHIN if is_settled else now)
            if self._tasks is not None or self.state.is_stopping:  # otherwise this thread takes the next job itself
                self._wake(now)

    # ------------------------------------------------------------ in the event loop

    def _begin_tasks(self) -> None:
        """Begin the ready loads. Each task starts before a cancellation can reach it, because the loop runs callbacks in order."""
        with self._failing(), self._lock:
            now = self._clock()
            self._stop_if_asked()
            while (load := self._begin_load(now)) is not None:
                load.task = asyncio.get_running_loop().create_task(self._aprocess(load))
            self._wake(now)

    async def _aprocess(self, load: Load) -> None:
        """Process a load and finish it. Each load in progress has a task that runs this."""
        try:
            results: Results = await self._handler.aprocess_together(self._read_records(load), **self._build_options(load))
        except BaseException as error:  # a raised error would end the event loop, and with it all other tasks
            results = self._make_failures(load, error)
        self._finish(load, results)
        load.task = None

    # ------------------------------------------------------------ requests

    def _requesting(self, method: str) -> AbstractContextManager[None]:
        """Watch a request of this thread during the `with` block. The worker hangs if it takes too long."""
        return self.watch.doing(f"{self._queue.url}: {method} hasn't returned", _MAX_REQUEST + self._limits.wait)

    def _receive(self, request: Receive) -> None:
        """Send a request for messages, and take in the response. A failed request pauses the next one."""
        messages, keys = None, None
        began = self._clock()
        with self._failing():
            with self._requesting("receive_message"):
                messages = self._queue.receive(request.number, self._limits.wait)
            if messages and self._handler.has_groups:
                with self.watch.doing("The handler's identity or group_by hasn't returned", self._limits.timeout):
                    keys = [self._read_key(message) for message in messages]
        with self._lock:
            now = self._clock()
            self._stop_if_asked()
            if messages is None:
                self.state.note_failure(request, now)
            else:
                self.state.take_in(request, messages, began, now, keys)
            self._timer.notify()  # the queue might be empty, or a pause might have begun
            self._wake(now)

    def _read_key(self, message: SqsMessage) -> Hashable:
        """Return the group of a record, which is its first message's group. A record without messages has its own group."""
        state = self._handler.read(make_lambda_record(message, self._queue.arn))
        return state.keys[0] if state.keys else object()

    def _delete(self, messages: list[SqsMessage]) -> None:
        """Delete settled messages. A failure is logged; the messages' redeliveries are Duplicates."""
        with self._failing(), self._requesting("delete_message_batch"):
            self._queue.delete(messages)
        with self._lock:
            self.state.end_deleting()
            self._wake(self._clock())

    def _hide(self, hide: Hide) -> None:
        """Return messages to the queue, or hide kept messages for longer."""
        began = self._clock()
        messages = [(message.content, seconds) for message, seconds in hide.messages]
        failures: dict[str, bool] = {}
        with self._failing(), self._requesting("change_message_visibility_batch"):
            # Retry a failed return here. The next sweep repeats a failed extension.
            failures = self._queue.hide(messages, max_attempts=MAX_ATTEMPTS if hide.is_return else 1)
        with self._lock:
            self.state.end_hiding(hide, failures, began)
            self._wake(self._clock())
