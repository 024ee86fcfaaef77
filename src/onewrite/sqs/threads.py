"""The threads of a worker. All that they decide is decided by `WorkerState`, under one lock; here it is done.

- Workers do whatever is to be done next: process a message, delete those that are done, or ask for more. Whoever has received
  messages begins the first one itself, and wakes another thread if there is more to do. So quick handlers are not slowed down
  by threads that wait for one another. The messages of an `async` function are processed by the tasks of one event loop instead.
- One thread hides what is at hand for longer, and gives messages back. Because all of it is done by one thread, no extension
  is on its way when a message is given back. It might hide the message for long that is to come again soon.
- The thread that calls `run` watches the time: messages that wait, timeouts, whether all that does the work still stirs, and when the
  work is over. `Worker.run` watches this thread in turn, from another one that takes no lock.

An error in any of these threads ends the worker, because without that thread it would be alive and do nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from onewrite.aws_lambda.sources import lambda_record
from onewrite.batch.function import where_thread_stands
from onewrite.batch.handler import Handler
from onewrite.batch.order import RecordState
from onewrite.batch.report import Result
from onewrite.errors import OnewriteError
from onewrite.identity import record_id
from onewrite.sqs.health import Journal, name_of
from onewrite.sqs.queue import SqsQueue
from onewrite.sqs.state import (
    BEAT,
    DELETED_WITHIN,
    MOST_REQUESTS,
    SILENCE,
    Hide,
    Limits,
    QueueTerms,
    Receive,
    Results,
    WorkerState,
    ending_of,
)
from onewrite.sqs.waiting import Load, QueueMessage, SqsMessage

if TYPE_CHECKING:
    from onewrite.sqs.tasks import Tasks


Conditions: TypeAlias = Callable[[threading.Lock], threading.Condition]
"""Makes what threads wait on, around a lock. `threading.Condition` is one."""


Job: TypeAlias = Load | Receive | tuple[int, list[QueueMessage]]
"""To process, to ask for messages, or to delete those of a queue."""


class Time(NamedTuple):
    """How a worker tells how long something takes, how it waits, and what its threads wait on."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    conditions: Conditions = threading.Condition


class ThreadPool:
    """Up to `most` threads that each do `work`, which waits by calling `rest`. The lock is held for `wake` and `rest`."""

    def __init__(
        self, name: str, lock: threading.Lock, conditions: Conditions, limit: int, work: Callable[[], None]
    ) -> None:
        self._name, self._lock, self._condition, self._limit, self._work = name, lock, conditions(lock), limit, work
        self._context = copy_context()
        self._thread_count = 0
        self._resting_count = 0
        self._is_coming = False  # One was woken, and has not looked yet. It wakes the next one, if there is more to do.

    @property
    def may_come(self) -> bool:
        """Whether one may be woken: none has been that has not looked yet, and not all are busy."""
        return not self._is_coming and (self._resting_count > 0 or self._thread_count < self._limit)

    def wake(self) -> None:
        """One that `may_come` is to look for something to do. It is started if all others are busy."""
        if self._resting_count:
            self._condition.notify()
        else:
            # A daemon: the end of the process does not wait for a function that hangs.
            threading.Thread(target=self._context.copy().run, args=(self._begin,), name=self._name, daemon=True).start()
            self._thread_count += 1
        self._is_coming = True  # not before, because the system may refuse a thread

    def rest(self) -> None:
        """Until woken."""
        self._resting_count += 1
        self._condition.wait()
        self._resting_count -= 1
        self._is_coming = False

    def wake_all(self) -> None:
        """The work is over."""
        self._condition.notify_all()

    def _begin(self) -> None:
        with self._lock:
            self._is_coming = False
        self._work()


# --- the threads of a worker ------------------------------------------------------------------------------------------


_MOST_NAMED = 10  # messages in an error
# Seconds. With its defaults botocore gives up a request after eleven minutes: five tries, each of which may take a minute to connect
# and another one to wait for the answer.
_LONGEST_REQUEST = 900.0
_PATIENCE_FOR_LOCK = 1.0  # seconds that a page waits for it


class WorkerStuck(OnewriteError):
    """What does the work of a worker stirs no more: start it anew, and mend what hangs."""


class WorkerThreads:
    """Runs the handler on the messages of the queues.

    `beat` is called at least every ten seconds while all is well. `is_to_stop` says whether the worker is to stop, and `stop` asks for it.
    """

    def __init__(
        self,
        queues: Sequence[SqsQueue],
        handler: Handler[Any],
        *,
        limits: Limits,
        journal: Journal,
        time: Time,
        beat: Callable[[], None],
        is_to_stop: Callable[[], bool],
        stop: Callable[[], None],
    ) -> None:
        self._queues, self._limits, self._journal = queues, limits, journal
        self._clock, self._beat, self._is_to_stop, self._stop = time.clock, beat, is_to_stop, stop
        self._lock = threading.Lock()
        self._handler = handler
        self._tasks: Tasks | None = None
        if handler.is_async:
            from onewrite.sqs.tasks import Tasks  # noqa: PLC0415  # asyncio is slow to import, and only these need it

            self._tasks = Tasks(self, handler.each)
        self._state = WorkerState([QueueTerms(queue.visibility, queue.fifo) for queue in queues], limits)
        most_threads = limits.slots + 2 * MOST_REQUESTS * len(queues)  # one that deletes for each one that receives
        self._workers = ThreadPool("onewrite-work", self._lock, time.conditions, most_threads, self._work)
        self._visibility, self._timer = time.conditions(self._lock), time.conditions(self._lock)
        self._looks_at = inf  # when the timer looks again by itself
        self._last_look = inf  # when it has last looked
        self._timer_thread: int | None = None
        self._threads: dict[Load, int] = {}  # which thread has a load
        self._reading: dict[int, float] = {}  # by their threads: since when the groups of messages are read
        self._last_resumption = -inf  # when the process has last gone on after it stood still
        self.failure: BaseException | None = None
        self.is_over = False
        self._is_abandoned = False

    @property
    def is_busy(self) -> bool:
        return not self.is_over and self._state.is_busy

    def counts(self) -> dict[str, int]:
        """None of them while something holds the lock that should not."""
        with self._lock_in_time() as is_held:
            return self._state.counts() if is_held else {}

    def trouble(self) -> str | None:
        """Why the worker is of no use, as far as that is known without the lock."""
        if self.failure is not None:
            return f"The worker ends: {self.failure}"
        silence = self._loop_silence(self._clock())
        return self._silence_words(silence) if silence >= SILENCE else None

    def _loop_silence(self, now: float) -> float:
        return 0.0 if self._tasks is None else self._tasks.silence(now)

    def under_way(self) -> list[QueueMessage]:
        """What has begun and not ended."""
        with self._lock_in_time() as is_held:
            return self._state.slots.under_way() if is_held else []

    def where_rounds_stand(self) -> str | None:
        return where_thread_stands(self._timer_thread, self._handler.each)

    def run(self) -> None:
        """Until the worker has stopped. An error that is no message's own ends the work and is raised."""
        hiding = threading.Thread(target=copy_context().run, args=(self._hide,), name="onewrite-visibility", daemon=True)
        hiding.start()
        self._timer_thread, self._last_look = threading.get_ident(), self._clock()
        try:
            while not self._look():
                self._beat()
        finally:
            self._end_threads()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """The worker has ended by an error, and nothing waits for what is under way: it must not go on by itself, should it be released."""
        self._is_abandoned = True
        self.look()

    def _end_threads(self) -> None:
        with self._lock:
            self.is_over = True
            self._workers.wake_all()
            self._visibility.notify_all()
        if self._tasks is not None:
            self._tasks.close()

    def look(self) -> None:
        """Something has happened that the timer does not know of. It looks by itself soon enough if the lock is not free."""
        with self._lock_in_time() as is_held:
            if is_held:
                self._timer.notify()

    @contextmanager
    def _lock_in_time(self) -> Generator[bool, None, None]:
        """The lock, unless something holds it that should not. False: it is not ours."""
        is_held = self._lock.acquire(timeout=_PATIENCE_FOR_LOCK)
        try:
            yield is_held
        finally:
            if is_held:
                self._lock.release()

    # ------------------------------------------------------------ watching the time

    def _look(self) -> bool:
        """Do what is due, and wait until more is. True: the work is over."""
        with self._lock:
            now = self._clock()
            self._notice_pause(now)
            news = self._listen(now)
            overdue_loads = self._state.to_give_up(now)
            self._decide_to_stop(now)  # before anything is begun in the slots that are left
            self._state.retry_due(now)
            self._state.give_back_what_cannot_begin(now)
            self._wake(now)
            is_over = self._is_over()
            returns = self._state.to_log()
            if not (overdue_loads or returns or news or is_over):
                self._looks_at = min(self._state.next_due(now), now + BEAT)
                self._timer.wait(max(0.0, self._looks_at - now))
                self._looks_at = inf
        if news:
            self._journal.warn(news)
        for load in overdue_loads:
            self._journal.log_overdue(load.members, self._limits.timeout, self._place_of(load))
            if self._tasks is not None:
                self._tasks.cancel(load)
        if stalled_count := sum(reason == "stalled" for _, reason in returns):
            self._journal.warn(
                f"{stalled_count} messages that wait to begin go back to the queue, and no more are received until one can begin: nothing has begun "
                f"for {SILENCE:g} seconds."
            )
        for message, reason in returns:
            self._journal.log_return(message, reason, self._queues[message.queue])
        return is_over

    def _notice_pause(self, now: float) -> None:
        """If nobody has looked for long, the process itself stood still, as a container does that is frozen. It proves nothing against what is under way."""
        if now - self._last_look > SILENCE:
            self._last_resumption = now
            self._state.slots.count_anew(now)
            if self._tasks is not None:
                self._tasks.count_anew(now)
        self._last_look = now

    def _listen(self, now: float) -> str | None:
        """Does the event loop go round? The answer is for the log, if it has changed."""
        if self._tasks is None:
            return None
        self._tasks.ask_for_a_sign(now)
        silence = self._tasks.silence(now)
        was_silent, self._state.is_silent = self._state.is_silent, silence >= SILENCE
        if was_silent == self._state.is_silent:
            return None
        return "The event loop goes round again." if was_silent else self._silence_words(silence)

    def _silence_words(self, silence: float) -> str:
        place = None if self._tasks is None else self._tasks.where_loop_stands()
        return (
            f"The event loop has not gone round for {silence:.0f} seconds, and no message can go on or begin: it stands at {place}. Await "
            "what takes long, or do it by asyncio.to_thread."
        )

    def _decide_to_stop(self, now: float) -> None:
        if self._state.is_stopping:
            return
        if self.failure is None and (stuck := self._stuck(now)) is not None:
            self.failure = WorkerStuck(stuck)
            self._stop()
        if self._is_to_stop() or self.failure is not None or self._state.has_nothing_to_do(now):
            self._state.stop()

    def loop_ended(self, error: BaseException) -> None:
        """The loop of the tasks has ended, and not by us."""
        stuck = WorkerStuck(
            f"Code that the function runs has ended the event loop, by {error!r}: no message can go on or begin."
        )
        stuck.__cause__ = error
        self.fail(stuck)

    def fail(self, error: BaseException) -> None:
        """The worker cannot go on. What is done is still told to SQS, within the drain's seconds."""
        with self._lock:
            self.failure = self.failure or error
            self._state.stop()
            self._timer.notify()
        self._stop()

    def _stop_if_asked(self) -> None:
        """Before anything is begun, so nothing is begun after a stop was asked for."""
        if self._is_to_stop():
            self._state.stop()

    def _is_over(self) -> bool:
        if self._is_abandoned:
            return True
        if not self._state.is_stopping or self._state.is_busy:
            return False
        return self.failure is not None or not self._state.waits_for_messages

    def _wake(self, now: float) -> None:
        """After a change: wake whoever has something to do now. The lock is held."""
        if self._tasks is not None and self._state.has_ready:
            self._tasks.wake()
        if self._workers.may_come and (  # first, because it is quick to ask, and this is done for each message
            (self._tasks is None and self._state.has_ready) or self._state.has_request(now)
        ):
            self._workers.wake()
        if self._state.gives_back:
            self._visibility.notify()
        if self._state.is_stopping:
            self._timer.notify()

    def _look_by(self, moment: float) -> None:
        if moment < self._looks_at:
            self._timer.notify()

    def _place_of(self, load: Load) -> str | None:
        """At which line of the user's code it stands."""
        if self._tasks is not None:
            return self._tasks.place_of(load)
        return where_thread_stands(self._threads.get(load), self._handler.each)

    def _stuck(self, now: float) -> str | None:
        """Why nothing gets done any more, if that is so."""
        slots, timeout = self._state.slots, self._limits.timeout
        advice = "Start the worker anew, and give what hangs a timeout of its own"
        silence = self._loop_silence(now)
        if silence >= max(timeout, SILENCE) or (silence >= SILENCE and slots.is_stuck(now)):
            return f"{self._silence_words(silence)} {advice}."
        if slots.is_stuck(now):
            lost_loads = slots.lost_loads(now)
            places = "; ".join(f"{name_of(load.members[0])} at {self._place_of(load)}" for load in lost_loads[:_MOST_NAMED])
            return (
                f"{len(lost_loads)} of {self._limits.slots} slots are lost to messages that have not ended {timeout:g} seconds "
                f"after they began: {places}{'; ...' * (len(lost_loads) > _MOST_NAMED)}. {advice}; if it only takes long, give the worker a longer timeout."
            )
        if slots.is_starved(now):
            return (
                f"{slots.late_count} messages, one after the other, have not ended {timeout:g} seconds after they began, and none has in between. Maybe "
                f"all of them wait for something that is never free again, as a pool of threads or connections. {advice}."
            )
        for queue in self._queues:
            if now >= self._last_resumption + _LONGEST_REQUEST and (
                request := queue.hanging_request(now - _LONGEST_REQUEST - self._limits.wait)
            ):
                place = where_thread_stands(request[0], self._handler.each)
                return f"{queue.url}: {request[1]} has not ended after {_LONGEST_REQUEST / 60:g} minutes: it stands at {place}. {advice}."
        for thread, began in [*self._reading.items()]:
            if now >= max(began, self._last_resumption) + timeout:
                place = where_thread_stands(thread, self._handler.each)
                return f"The groups of messages have not been read within {timeout:g} seconds: that stands at {place}. {advice}."
        return None

    # ------------------------------------------------------------ messages

    def _work(self) -> None:
        me, load_and_results = threading.get_ident(), None
        with self._failing():
            while (job := self._next_job(load_and_results)) is not None:
                load_and_results = None
                if isinstance(job, Load):
                    self._threads[job] = me
                    load_and_results = job, self._process(job)
                    del self._threads[job]
                elif isinstance(job, Receive):
                    self._receive(job)
                else:
                    self._delete(*job)

    def _process(self, load: Load) -> Results:
        """Process a load. What is no Exception ends the worker, and the messages of the load are not settled."""
        results: Results
        try:
            results = self._handler.process_together(self._records(load), **self._options(load))
        except BaseException as error:
            self.fail(error)
            results = self.failure_results(load, error)
        self._tell(load, results)
        return results

    def _tell(self, load: Load, results: Results) -> None:
        with self._failing():
            self._journal.tell(load.members, results, self._queues[load.members[0].queue])

    def _next_job(self, load_and_results: tuple[Load, Results] | None) -> Job | None:
        with self._lock:
            now = self._clock()
            if load_and_results is not None:
                self._end(*load_and_results, now)
            while not self.is_over:
                self._stop_if_asked()
                load = self._take(now) if self._tasks is None else None
                job: Job | None = load or self._state.to_delete(now) or self._state.to_receive(now)
                if job is not None:
                    self._wake(now)
                    return job
                self._workers.rest()
                now = self._clock()
        return None

    def _take(self, now: float) -> Load | None:
        """What to process; None if there is nothing now. The lock is held."""
        load = self._state.to_begin(now)
        if load is not None:
            self._look_by(now + self._limits.timeout)
        return load

    def ready_count(self) -> int:
        """How many loads may begin, for the tasks."""
        return self._state.ready_to_begin

    def take(self, *, is_last: bool) -> Load | None:
        """What a task that has just begun to run is to process, if there still is something. `is_last`: no other task will ask at once."""
        load = None
        with self._failing(), self._lock:
            now = self._clock()
            self._stop_if_asked()
            load = self._take(now)
            if is_last:
                self._wake(now)
        return load

    def _records(self, load: Load) -> list[RecordState]:
        """What the handler has read of its messages. What was read before is used once only, because the function may change it."""
        states: list[RecordState] = []
        for message in load.members:
            state, message.record_state = message.record_state, None
            states.append(state or self._handler.read(lambda_record(message.content, self._queues[message.queue].arn)))
            message.messages = states[-1].messages
        return states

    def _options(self, load: Load) -> dict[str, Any]:
        """How the handler is to process it. A worker that stops begins nothing more."""

        def time_left() -> float:
            return -inf if self._is_to_stop() else load.began + self._limits.timeout - self._clock()

        return {"in_order": load.members[0].group is not None, "time_left": time_left}

    async def aprocess(self, load: Load) -> Results:
        """For the tasks."""
        return await self._handler.aprocess_together(self._records(load), **self._options(load))

    def failure_results(self, load: Load, error: BaseException) -> Results:
        """The results of a load that ended with an error outside of the handler."""
        records = [lambda_record(message.content, self._queues[message.queue].arn) for message in load.members]
        return [Result(record, record_id(record), None, (), error, 0.0) for record in records]

    def bring(self, load: Load, results: Results) -> None:
        """A task has ended."""
        self._tell(load, results)
        with self._failing(), self._lock:
            now = self._clock()
            self._end(load, results, now)
            self._wake(now)

    def _end(self, load: Load, results: Results, now: float) -> None:
        self._journal.count(results)
        endings = [ending_of(result, self._handler.clock) for result in results]
        self._state.end(load, endings, now)
        waits = any(ending.kind in ("deferred", "busy") for ending in endings)
        self._look_by(self._state.next_due(now) if waits else now + DELETED_WITHIN)
        if self._state.is_stopping:
            self._timer.notify()

    # ------------------------------------------------------------ requests

    def _receive(self, request: Receive) -> None:
        began, messages, states = self._clock(), None, None
        with self._failing():
            messages = self._queues[request.queue].receive(request.number, self._limits.wait)
            if messages and self._handler.has_groups:
                states = self._read_groups(messages, request.queue)
        with self._lock:
            now = self._clock()
            self._stop_if_asked()
            if messages is None:
                self._state.note_failure(request, now)
            else:
                self._journal.receive_count += len(messages)
                self._state.take_in(request, messages, began, now, states)
            self._timer.notify()  # The queue may be empty, or a pause may have begun.
            self._wake(now)

    def _read_groups(self, messages: Sequence[SqsMessage], queue: int) -> list[tuple[Hashable, RecordState]]:
        """The group of each message, which is told by code of the user's, and what was read of it."""
        me = threading.get_ident()
        self._reading[me] = self._clock()
        try:
            states = [self._handler.read(lambda_record(message, self._queues[queue].arn)) for message in messages]
        finally:
            del self._reading[me]
        # What has no messages is done by itself. What has several belongs to the group of the first one.
        return [(state.keys[0] if state.keys else object(), state) for state in states]

    def _delete(self, queue: int, messages: list[QueueMessage]) -> None:
        with self._failing():
            self._queues[queue].delete([message.content for message in messages])
        with self._lock:
            self._state.end_deleting(queue)
            self._wake(self._clock())

    def _hide(self) -> None:
        with self._failing():
            while (hide := self._next_to_hide()) is not None:
                now, queue = self._clock(), self._queues[hide.queue]
                messages = [(message.content, seconds) for message, seconds in hide.messages]
                with self._failing():
                    if hide.gives_back:
                        queue.hide(messages)
                    else:
                        failures = queue.extend(messages)
                        with self._lock:
                            self._state.note_hidden(hide, failures, now)
                with self._lock:
                    self._state.end_hiding()
                    self._wake(self._clock())

    def _next_to_hide(self) -> Hide | None:
        with self._lock:
            while not self.is_over:
                now = self._clock()
                if (hide := self._state.to_hide(now)) is not None:
                    return hide
                self._visibility.wait(max(0.0, self._state.next_sweep - now))
        return None

    @contextmanager
    def _failing(self) -> Generator[None, None, None]:
        """Around a request: an error that will come again ends the worker. What is done is still told to SQS."""
        try:
            yield
        except BaseException as error:  # of any kind: `run` raises it
            self.fail(error)
