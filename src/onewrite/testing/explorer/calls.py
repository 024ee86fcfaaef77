"""Calls of the handler that pause at every request, so that the explorer decides which call continues.

Each call has its own thread. It runs until it needs a response to continue, or until it ends. Then it pauses, and the explorer
continues. A paused blocking handler has one pending request. A coroutine runs in an event loop of the thread, and its tasks can
have several pending requests. The explorer responds to one of them, and the call runs until it pauses again.

A call can outlast its handler. A task left behind by an error continues, as it would in a loop that outlives the message, and a
cancelled request can still arrive. The call ends when no such task or request remains.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
import os
import re
import sys
import sysconfig
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

from onewrite.batch.function import UnfinishedWrite
from onewrite.errors import ConfigurationError
from onewrite.testing.determinism import determine
from onewrite.testing.taps.everywhere import Listener, current_listener
from onewrite.testing.taps.faults import Crash
from onewrite.testing.taps.traffic import Request, name_transactions, transaction_names

# --- event loops ------------------------------------------------------------------------------------------------------
#
# Event loops in which the explorer decides each event.
#
# A task that waits in an event loop waits for a response from the explorer, a timer, a thread, or something outside the process. If
# no task in a loop can continue, the loop calls its selector. The selector therefore pauses the call with all of its pending
# requests, and the explorer chooses the request to respond to. The loop's clock advances only in the selector, and only if nothing
# else can happen, so `asyncio.sleep` doesn't take real time.
#
# Two runs of one schedule must have the same result. Each task is therefore hashed by the path of tasks that created it, so that a
# set of tasks, such as the result of `asyncio.wait`, has the same order in each run.

# The path of the task's parent, followed by the task's number among its parent's children.
TaskPath: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[str, int]  # a file and a line of the user's code

# In a row without a request. After these timers, the loop really waits. Otherwise, code that polls the real clock would never finish.
_MAX_TIMERS = 1000
_MAX_TIMERS_AT_THE_END = 100  # a task that hasn't sent a request by then might wait forever
_MAX_CANCELLATIONS = 3  # cancellations of tasks that continue to wait
_ASYNCIO = f"{Path(asyncio.__file__).parent}{os.sep}"
_OURS = f"{Path(__file__).parents[2]}{os.sep}"
_PYTHONS = f"{sysconfig.get_path('stdlib')}{os.sep}"
_PACKAGES = re.compile(r"[/\\](?:site|dist)-packages[/\\]")  # can be in the folder of Python's own modules
_DRIVERS = frozenset({"pymongo", "botocore", "aiobotocore", "aiohttp"})


class Task(asyncio.Task[Any]):
    """A task that knows its path, and the place in the user's code that created it."""

    def __init__(self, path: TaskPath, made_at: Place | None, coro: Any, **options: Any) -> None:
        self.path = path
        self.made_at = made_at
        self.children = 0
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return hash(self.path)


class OwnLoop(asyncio.SelectorEventLoop):
    """A loop with a replaceable selector, which the explorer creates regardless of the event loop policy.

    It doesn't report exceptions that were never retrieved from tasks, because most of them are the explorer's own faults.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_exception_handler(lambda _loop, _context: None)


class WatchedLoop:
    """A loop, and the call that runs in it."""

    def __init__(self, loop: Any, call: HandlerCall) -> None:
        self.loop = loop
        self.leftovers: list[asyncio.Task[Any]] = []  # the tasks that hadn't ended when the loop stopped
        self.is_running = False
        self._call = call
        # The start time is the same in each run of a schedule, unless the loop already has timers.
        self._now: float = loop.time() if getattr(loop, "_scheduled", ()) else 0.0
        self._timers = 0  # timers that have fired since the last request
        self._in_threads = 0  # functions that the loop has passed to threads, and that haven't returned
        self._cancellations = 0  # how often the waiting tasks of a crashed process were cancelled
        self._quiet: asyncio.Future[None] | None = None  # done when nothing in the loop can continue
        self._orphans = 0  # tasks that no watched task has created
        # asyncio's own set contains the tasks of all loops, including many that Python hasn't garbage-collected yet.
        self._tasks = [] if isinstance(loop, OwnLoop) else [*asyncio.all_tasks(loop)]

    @staticmethod
    def can_watch(loop: object) -> bool:
        """Whether the loop has a selector that can be replaced. Loops of Windows's proactor and of uvloop don't."""
        return hasattr(getattr(loop, "_selector", None), "get_map")

    @contextmanager
    def running(self) -> Generator[None]:
        """Watch the loop while it runs."""
        loop, real = self.loop, self.loop._selector
        has_no_factory = loop.get_task_factory() is None
        # The user might have set `time` or `run_in_executor` on the loop itself, not only in its class.
        own_attributes = {name: value for name, value in loop.__dict__.items() if name in ("time", "run_in_executor")}
        loop._selector = _Selector(real, self._idle)
        loop.time, loop.run_in_executor = lambda: self._now, partial(self._run_in_executor, loop.run_in_executor)
        if has_no_factory:
            loop.set_task_factory(self._make_task)
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False
            loop._selector = real
            del loop.time, loop.run_in_executor
            loop.__dict__.update(own_attributes)
            if has_no_factory:
                loop.set_task_factory(None)
            self.leftovers += [task for task in self.tasks() if task not in self.leftovers]

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that haven't ended, sorted by path."""
        if self.loop.get_task_factory() not in (None, self._make_task):
            return sorted(asyncio.all_tasks(self.loop), key=format_path)
        self._tasks = [task for task in self._tasks if not task.done()]
        return sorted(self._tasks, key=format_path)

    @property
    def has_more(self) -> bool:
        """Whether the loop still has tasks, timers, callbacks, or open generators."""
        loop = self.loop
        waits = any(not handle.cancelled() for handle in getattr(loop, "_scheduled", ()))
        return waits or bool(getattr(loop, "_ready", ())) or bool(self.tasks()) or any(self._open_generators())

    def go_on(self) -> None:
        """Run the loop until nothing in it can continue."""
        for generator in self._open_generators():
            self._make_task(self.loop, generator.aclose())
        self._quiet = self.loop.create_future()
        self._timers = self._cancellations = 0
        try:
            with self.running():
                self.loop.run_until_complete(self._quiet)
        finally:
            self._quiet = None

    def clear(self) -> None:
        """Cancel the remaining tasks. Close the loop if some of them continue anyway."""
        for _ in range(_MAX_CANCELLATIONS):
            tasks = self.tasks()
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.go_on()
        if isinstance(self.loop, OwnLoop) and self.has_more:
            for task in self.tasks():
                raw_task: Any = task
                raw_task._log_destroy_pending = False
            self.loop.close()

    def _open_generators(self) -> Iterator[Any]:
        return (generator for generator in list(getattr(self.loop, "_asyncgens", ())) if generator.ag_frame is not None)

    def _make_task(self, loop: Any, coro: Any, **options: Any) -> Task:
        """Return a new task, as the loop's task factory. Its path continues the path of the task that creates it."""
        parent = asyncio.current_task(loop)
        if isinstance(parent, Task):
            parent.children += 1
            path = (*parent.path, parent.children)
        else:
            self._orphans += 1
            path = (self._orphans,)
        task = Task(path, _find_place(inspect.currentframe()), coro, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _run_in_executor(self, original: Callable[..., Any], *args: Any) -> Any:
        """Call the loop's original method, and count the function as running until its future is done."""
        future = original(*args)
        self._in_threads += 1
        future.add_done_callback(self._note_return)
        return future

    def _note_return(self, _: object) -> None:
        self._in_threads -= 1

    def _idle(self, real: Any, timeout: float | None) -> Any:
        """Pause the call if the loop has no events and nothing in it can continue. Return the selector's events.

        `timeout` is the time until the loop's next timer, or None if it has none.
        """
        events = real.select(0)
        if events:
            return events
        if self._call.thread.is_lost:
            raise Crash("The explorer no longer waits for this call.")
        if self._in_threads:  # a function in a thread returns on its own, in real time
            return self._select_events(real, timeout)
        if self._call.stand_still(timers=timeout is not None):
            self._timers = 0
            if timeout is not None and self._call.time_passes():
                self._now += timeout
            return []
        # No request is pending. The call continues by a timer, or ends.
        max_timers = _MAX_TIMERS if self._quiet is None else _MAX_TIMERS_AT_THE_END
        if timeout is not None and not self._call.is_dead and self._timers < max_timers:
            if len(real.get_map()) > 1:  # in addition to the socket by which threads wake the loop
                return self._select_events(real, timeout)
            self._timers += 1
            self._now += timeout
            return []
        if self._quiet is not None:
            if not self._quiet.done():
                self._quiet.set_result(None)
            return []
        if self._call.is_dead:
            self._cancel_tasks()
            return []
        # The handler waits for something outside the explorer's control, such as its own socket.
        return self._select_events(real, timeout)

    def _cancel_tasks(self) -> None:
        """Cancel the waiting tasks of a crashed process."""
        self._cancellations += 1
        if self._cancellations > _MAX_CANCELLATIONS:
            raise Crash("The process is dead.")
        for task in self.tasks():
            task.cancel()

    def _select_events(self, selector: Any, timeout: float | None) -> Any:
        """Wait for the selector's events, and count the time that this takes as the loop's."""
        before = time.monotonic()
        events = selector.select(timeout)
        self._now += time.monotonic() - before
        return events


class _Selector:
    """A selector that calls `idle` instead of blocking."""

    def __init__(self, real: Any, idle: Callable[[Any, float | None], Any]) -> None:
        self._real = real
        self._idle = idle

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout <= 0:
            return self._real.select(timeout)
        return self._idle(self._real, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def format_path(task: asyncio.Task[Any] | None) -> TaskPath:
    return task.path if isinstance(task, Task) else ()


def place_in_words(place: Place) -> str:
    file, line = place
    return f"{Path(file).name}:{line}"


def _find_place(frame: FrameType | None) -> Place | None:
    """Return the innermost place in the user's code on this frame's call stack, or None if the stack has none."""
    while frame is not None and not _is_the_users(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


@lru_cache(maxsize=1024)
def is_own_code(file: str) -> bool:
    """Whether this file belongs to the user's code and not to a package."""
    return _is_the_users(file) and _PACKAGES.search(file) is None and not file.startswith("<")


@lru_cache(maxsize=1024)
def _is_the_users(file: str) -> bool:
    """Whether this file belongs to the user's code or to a package."""
    is_pythons = file.startswith((_PYTHONS, _ASYNCIO, "<frozen ")) and _PACKAGES.search(file) is None
    return not is_pythons and not file.startswith(_OURS)


def _is_a_drivers(task: asyncio.Task[Any]) -> bool:
    """Whether a database driver created the task for its own use, such as monitoring a connection."""
    frame: Any = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _DRIVERS


class BlockedError(ConfigurationError):
    """A delivery waits for a lock that another, paused delivery holds."""


# --- calls ------------------------------------------------------------------------------------------------------------

_SECONDS_TO_DIE = 1.0  # if a killed call hasn't ended by then, it keeps its thread, and the explorer continues
_SECONDS_UNTIL_CHECK = 0.25  # interval of checks where a running call is, while other calls are paused
_MAX_UNCHANGED = 5  # checks in a row: on a busy machine, a call that isn't waiting can stay at one position for a while
_MAX_ALL_UNCHANGED = 10  # checks per exploration: a wait with a timeout ends, but would take that time in every schedule
_MAX_STOPS_AFTER_THE_END = 100  # stops of tasks that an error has left behind. More stops suggest an endless loop.


_FOREIGN_LOOP = (
    "{name} uses a lock or a queue of asyncio that another delivery has used in its own event loop ({error}). Create "
    "these in build(store), because two processes don't share them."
)

WaitFor: TypeAlias = Callable[[Any], Any]  # returns the handler's result, awaited if it is awaitable
HandlerFunction: TypeAlias = Callable[[Any, WaitFor], Any]


class Reply(NamedTuple):
    """The result of a request or a call: the returned value, or the raised exception."""

    value: Any = None
    error: BaseException | None = None
    faulty: bool = False  # whether a fault changed it


def remove_frames(error: BaseException | None) -> None:
    """Remove the tracebacks of a stored error, and of its causes and contexts.

    Their frames refer to the error itself and to the whole exploration. These reference cycles would live until a garbage
    collection, and collecting so many objects takes a third of the time.
    """
    todo, known_ids = [error], set[int]()
    while todo:
        current = todo.pop()
        if current is not None and id(current) not in known_ids:  # an error can be its own cause
            known_ids.add(id(current))
            current.__traceback__ = None
            todo += [current.__cause__, current.__context__]


# Events that pending requests can get instead of a response.
TIME_PASSES = Reply("time passes", faulty=True)  # a timer fires before any response
NEVER_SENT = Reply("never sent")  # a cancelled request wasn't sent


class PendingRequest(NamedTuple):
    """A pending request. If it is `cancelled`, the handler no longer waits for the response, and the request might not be sent."""

    request: Request
    cancelled: bool = False


class Standstill(NamedTuple):
    """The point at which a call pauses."""

    pending: tuple[PendingRequest, ...] = ()
    in_turn: tuple[int, ...] = ()  # indexes of the requests that can be next if tasks take turns
    timers: bool = False  # a timer is running that can fire before the response
    has_returned: bool = False  # if so, the handler left the pending requests behind

    @property
    def has_ended(self) -> bool:
        return self.has_returned and not self.pending


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request whose response a task or the call's thread waits for."""

    request: Request
    task: asyncio.Task[Any] | None
    future: asyncio.Future[Any] | None  # None if the thread itself waits
    answer: Reply | None = None
    cancelled: bool = False

    def give(self, answer: Reply) -> None:
        """Pass the response to the task or the thread that waits for it."""
        self.task = None  # the task's exception refers to this object, and a reference to the task would be a cycle
        if self.future is None:
            self.answer = answer
        elif answer.error is not None:
            self.future.set_exception(answer.error)
        else:
            self.future.set_result(answer.value)


class HandlerCall:
    """One call of the handler. `stop` is the point of its latest pause."""

    def __init__(
        self,
        thread: _CallThread,
        name: str,
        answers: Iterable[tuple[int, Reply]],
        others_stand: Callable[[], bool],
        *,
        now: float,
    ) -> None:
        self.now = now  # in seconds since 1970, for stores without their own clock
        self.others_stand = others_stand  # whether another call is paused, and might hold a lock
        self.stops: list[Standstill] = []
        self.stop = Standstill()
        self.compared_count = 0  # the number of stops already compared with the recorded behavior
        self.has_died = False
        self.is_dead = False  # whether the process has crashed, even if after the handler's end
        self.result = Reply()
        self.failures: list[str] = []  # the handler's own errors, and where they were raised
        self.effect_name = ""  # the name of the last effect that a guarded store began
        self.outcomes: list[object] = []  # the outcomes of guarded stores, even if the handler doesn't return them
        self.thread = thread
        self.name = name
        # The responses to the call's next requests, each with the request's index among the pending requests.
        self._known_answers = iter(answers)
        self._latest_answer = 0, Reply()
        self._waiters: list[_Waiter] = []
        self._in_order = 0  # the number of waiters that are already sorted
        self._last: TaskPath = ()  # the path of the task that got the last response
        self._loops: list[WatchedLoop] = []
        self._has_returned = False
        self._is_over = False  # whether the thread has finished its job
        self._misuse: Exception | None = None
        self._errors: list[BaseException] = []  # received instead of responses
        self._stops_after_end = 0

    # --- called from the explorer's thread ---

    @property
    def is_at_start(self) -> bool:
        """Whether the call hasn't received a response yet."""
        return len(self.stops) == 1

    @property
    def has_returned(self) -> bool:
        return self.stop.has_returned

    @property
    def has_ended(self) -> bool:
        return self.stop.has_ended

    def begin(self) -> None:
        """Run the call until it needs an unknown response."""
        self._run_on()
        self._respond_after_end()

    def resume(self, answer: Reply, index: int = 0, later: Iterable[tuple[int, Reply]] = ()) -> None:
        """Respond to one of the pending requests, and run the call until it pauses again. The next requests get the `later` responses."""
        self._known_answers = iter(later)
        self._respond(answer, index)
        self._respond_after_end()

    def _respond(self, answer: Reply, index: int) -> None:
        if self._is_over:
            del self._waiters[index]  # the request was cancelled, so no task waits for it
            self._record_stop(timers=False)
        else:
            self._latest_answer = index, answer
            self._run_on()

    def _respond_after_end(self) -> None:
        """Pass the known responses to cancelled requests that the thread has left behind."""
        while self._is_over and (known_answer := self._next_known_answer()) is not None:
            index, answer = known_answer
            self._respond(answer, index)

    def die(self) -> None:
        """Raise `Crash` in the handler. Its later requests aren't sent, and its cancelled requests don't arrive."""
        self.has_died = self.has_died or not self._has_returned
        self.is_dead = True
        if self._is_over:
            self._waiters.clear()
            self._record_stop(timers=False)
        elif not self.thread.is_lost:
            self._run_on()

    def _run_on(self) -> None:
        self.thread.give_turn(self.name, others_stand=self.others_stand())
        if self._misuse is not None:
            raise self._misuse

    # --- called from the handler's thread ---

    def run(self, handler: HandlerFunction, message: Any) -> None:
        """Call the handler, record its result or error, and finish the tasks that it left behind."""
        current_call.set(self)
        transaction_names.set(name_transactions(self.name))
        try:
            self.result = Reply(handler(message, self._wait_for))
        except BaseException as error:  # any error is the handler's result, also a crash that the explorer raised
            self.result = Reply(error=error)
            self.note_failure(error)
            if isinstance(error, RuntimeError) and "different event loop" in str(error):
                self.stop_exploring(ConfigurationError(_FOREIGN_LOOP.format(name=self.name, error=error)))
        self._has_returned = True
        with suppress(BaseException):  # a refusal is remembered, and abandoned tasks can raise anything
            self._end_loops()
        for raised_error in (*self._errors, self.result.error):
            # An error that stops the exploration keeps its traceback for the user.
            if not isinstance(raised_error, ConfigurationError):
                remove_frames(raised_error)
        self._loops.clear()  # the contexts of their tasks refer to this call: avoid a cycle
        self._is_over = True
        if self.is_dead:
            self._waiters.clear()
        self._record_stop(timers=False)

    def _wait_for(self, value: Any) -> Any:
        """Return the value that the handler returned. If it is awaitable, await it in a loop of this thread."""
        if not inspect.isawaitable(value):
            return value
        loop = self.thread.loop()
        context = contextvars.copy_context()
        try:
            with self.running(loop):
                return loop.run_until_complete(loop.create_task(await_result(value), context=context))
        finally:  # a consumer that awaits the handler has its context variables, too
            for variable, changed in context.items():
                variable.set(changed)

    def note_failure(self, error: BaseException) -> None:
        """Record the handler's own error and its line for the report."""
        if not (isinstance(error, Crash) or any(error is given for given in self._errors)):
            self.failures.append(error_in_words(error))

    @property
    def runs_in_this_thread(self) -> bool:
        return threading.get_ident() == self.thread.ident and not self._is_over

    def ask(self, request: Request) -> Any:
        """Wait until the explorer responds to the request. Return the response, or raise its exception."""
        waiter = self._begin_to_wait(request, None)
        while waiter.answer is None:
            self._wait(timers=False)
        if waiter.answer.error is not None:
            raise waiter.answer.error
        return waiter.answer.value

    async def aask(self, request: Request) -> Any:
        """Wait for the response while other tasks of the call continue."""
        loop = asyncio.get_running_loop()
        if not any(watch.loop is loop and watch.is_running for watch in self._loops):
            self._refuse(
                ConfigurationError(
                    f"{request} was sent in an event loop of the kind {type(loop).__module__}.{type(loop).__qualname__}, in which the "
                    "explorer can't control the order of requests. Make the handler a coroutine function, or use asyncio.run() in the "
                    "exploration."
                )
            )
        future = loop.create_future()
        waiter = self._begin_to_wait(request, future)
        try:
            return await future
        except asyncio.CancelledError:
            waiter.cancelled = True
            raise

    def stand_still(self, *, timers: bool) -> bool:
        """Wait until a request gets a response. Return False immediately if no request is pending."""
        if all(waiter.cancelled for waiter in self._waiters):
            return False
        self._wait(timers=timers)
        return True

    def time_passes(self) -> bool:
        """Whether the explorer has decided that a timer fires although requests are pending."""
        return self._latest_answer[1] is TIME_PASSES and not self.is_dead

    @contextmanager
    def running(self, loop: Any) -> Generator[None]:
        """Watch a loop while it runs."""
        watch = next((watch for watch in self._loops if watch.loop is loop), None)
        if watch is None and WatchedLoop.can_watch(loop):
            watch = WatchedLoop(loop, self)
            self._loops.append(watch)
        if watch is None or watch.is_running:
            yield
            return
        with watch.running():
            yield

    def _begin_to_wait(self, request: Request, future: asyncio.Future[Any] | None) -> _Waiter:
        """Make the request a pending one. Raise if the process has crashed, or if the handler has left behind the task that sends it."""
        if self.is_dead:
            raise Crash(f"The process is dead, so {request} isn't sent.")
        waiter = _Waiter(request, asyncio.current_task() if is_in_event_loop() else None, future)
        if self._has_returned and not self._may_go_on:
            self._refuse_left_behind(waiter.task, f"is about to send {request}")
        self._waiters.append(waiter)
        return waiter

    def _wait(self, *, timers: bool) -> None:
        """Pause until a request gets a response, and pass the response to its waiter."""
        self._stops_after_end += self._has_returned
        if self._stops_after_end > _MAX_STOPS_AFTER_THE_END:
            task = next(waiter.task for waiter in self._waiters if not waiter.cancelled)
            self._refuse(
                ConfigurationError(
                    f"{self.name} has failed and left behind {_describe_task(task)}, which has sent {_MAX_STOPS_AFTER_THE_END} requests "
                    "since then. Cancel the task when the handler fails, or create it in an asyncio.TaskGroup, which cancels it."
                )
            )
        self._record_stop(timers=timers)
        known_answer = self._next_known_answer()
        if known_answer is None:
            self.thread.return_turn()
        else:
            self._latest_answer = known_answer
        if self.is_dead:
            for waiter in self._waiters:
                waiter.give(Reply(error=Crash(f"The process died at {waiter.request}.")))
            self._waiters.clear()
            return
        index, answer = self._latest_answer
        if answer is TIME_PASSES:
            return
        waiter = self._waiters.pop(index)
        self._in_order -= 1
        if not waiter.cancelled:
            if answer.error is not None:
                self._errors.append(answer.error)
            self._last = format_path(waiter.task)
            waiter.give(answer)

    def _next_known_answer(self) -> tuple[int, Reply] | None:
        """Return the next known response. If it doesn't fit the call, forget the rest, because the handler behaves differently this time."""
        known_answer = next(self._known_answers, None)
        if known_answer is not None:
            index, answer = known_answer
            if index < len(self._waiters) and (answer is not NEVER_SENT or self._waiters[index].cancelled):
                return known_answer
        self._known_answers = iter(())
        return None

    def _record_stop(self, *, timers: bool) -> None:
        """Record where the call pauses. Sort new requests by task, so that their order doesn't depend on timing."""
        new = sorted(self._waiters[self._in_order :], key=lambda waiter: format_path(waiter.task))
        self._waiters[self._in_order :] = new
        self._in_order = len(self._waiters)
        pending = tuple([PendingRequest(waiter.request, waiter.cancelled) for waiter in self._waiters])
        self.stop = Standstill(pending, self._in_turn(), timers, self._has_returned)
        self.stops.append(self.stop)

    def _in_turn(self) -> tuple[int, ...]:
        """Return the indexes of the requests whose tasks are most closely related to the task that got the last response."""
        if len(self._waiters) == 1:  # the usual case, made fast
            return () if self._waiters[0].cancelled else (0,)
        able = [index for index, waiter in enumerate(self._waiters) if not waiter.cancelled]
        counts = {index: _count_common_ancestors(format_path(self._waiters[index].task), self._last) for index in able}
        most = max(counts.values(), default=0)
        return tuple([index for index in able if counts[index] == most])

    # ------------------------------------------------------------ the end of the handler

    @property
    def _may_go_on(self) -> bool:
        """Whether tasks that the handler left behind are tolerated.

        A crash ends them. A handler that raises, or encounters an error, can leave tasks behind, because `gather` raises the first
        exception while the other tasks continue. Otherwise, a leftover task means that the handler didn't await it.
        """
        # These errors come from writes that the handler didn't await, not from the handler itself.
        is_unseen = isinstance(self.result.error, UnfinishedWrite | asyncio.CancelledError)
        return self.is_dead or (self.result.error is not None and not is_unseen) or bool(self._errors)

    def _end_loops(self) -> None:
        """Finish the handler's remaining tasks in its event loops, or refuse a handler that returned before its work was done."""
        for watch in self._loops:
            try:
                if not self._may_go_on:
                    for waiter in self._waiters:
                        if not waiter.cancelled:
                            self._refuse_left_behind(waiter.task, f"is about to send {waiter.request}")
                    for task in watch.leftovers:
                        if watch.loop.is_closed() and (task.cancelled() or not task.done()):
                            self._refuse_left_behind(task, "had not ended when its event loop was closed")
                if not (self.is_dead or watch.loop.is_closed()) and watch.has_more:
                    watch.go_on()
                    # The remaining tasks wait for something that doesn't happen, such as another delivery.
                    open_tasks = [task for task in watch.tasks() if not _is_a_drivers(task)]
                    if open_tasks and not self._may_go_on:
                        self._refuse_left_behind(open_tasks[0], "has not ended")
            finally:
                self.is_dead = self.is_dead or self._misuse is not None
                if not watch.loop.is_closed():
                    watch.clear()

    def _refuse_left_behind(self, task: asyncio.Task[Any] | None, state: str) -> NoReturn:
        """Refuse a handler that returned before its work was done. `state` describes the leftover task's state."""
        self._refuse(
            ConfigurationError(
                f"{self.name} has returned and left behind {_describe_task(task)}, which {state}. The message counts as done by then, so "
                "unfinished work is lost if the process ends. Before the handler returns, await the task, or create it in an "
                "asyncio.TaskGroup, and close async generators with contextlib.aclosing."
            )
        )

    def _refuse(self, error: ConfigurationError) -> NoReturn:
        self.stop_exploring(error)
        raise error

    def stop_exploring(self, error: Exception) -> None:
        """Raise this error in the explorer's thread at its next turn."""
        self._misuse = self._misuse or error


current_call: contextvars.ContextVar[HandlerCall | None] = contextvars.ContextVar("onewrite.testing.call", default=None)


# --- threads ----------------------------------------------------------------------------------------------------------


class CallThreads:
    """The threads in which calls run. A thread is reused when its call has ended."""

    def __init__(self, timeout: float, listener: Listener | None = None) -> None:
        self._timeout = timeout
        self._listener = listener  # for requests of clients that the handler didn't get from the explorer
        self.context: contextvars.Context | None = None  # the context of all calls, or None if each call has its own
        self.names_used = False  # whether a guarded table has put a call's name into a request
        self._all_unchanged = itertools.count(1)
        self._idle: list[_CallThread] = []
        self._open: set[HandlerCall] = set()

    def begin(
        self,
        handler: HandlerFunction,
        message: Any,
        name: str,
        answers: Iterable[tuple[int, Reply]] = (),
        *,
        now: float = 0.0,
    ) -> HandlerCall:
        """Call the handler, and return when it needs an unknown response or has ended."""
        thread = self._idle.pop() if self._idle else _CallThread(self._timeout, self._all_unchanged)
        call = HandlerCall(thread, name, answers, lambda: len(self._open) > 1, now=now)
        self._open.add(call)
        context = self.context or contextvars.copy_context()  # so that the handler sees the test's context variables
        context.run(determine, name, lambda: call.now, self._use_name)
        context.run(current_listener.set, self._listener)
        thread.job = lambda: context.run(call.run, handler, message)
        try:
            call.begin()
        except BaseException:  # the caller gets no call that it could release
            self.release(call)
            raise
        return call

    def release(self, call: HandlerCall) -> None:
        """Take back the thread of a call. Kill the call first if it hasn't ended."""
        thread = call.thread
        self._open.discard(call)
        if not call.has_ended:
            thread.timeout = _SECONDS_TO_DIE
            # The call is released anyway, even if it doesn't end in that time, or raises the error that has stopped the exploration.
            with suppress(Exception):
                call.die()
            thread.timeout = self._timeout
        if not thread.is_lost:
            self._idle.append(thread)

    def _use_name(self) -> None:
        self.names_used = True

    def close(self) -> None:
        for thread in self._idle:
            thread.stop()
        self._idle.clear()


class _CallThread:
    """A thread that takes turns with the explorer's thread, using two locks, which are much faster than queues."""

    def __init__(self, timeout: float, all_unchanged: Iterator[int]) -> None:
        self.job: Callable[[], None] | None = None
        self.timeout = timeout
        self._all_unchanged = all_unchanged  # counts the checks of all threads that found an unchanged position
        self._calls_turn, self._explorers_turn = threading.Lock(), threading.Lock()
        self._calls_turn.acquire()
        self._explorers_turn.acquire()
        self._loop: OwnLoop | None = None
        self.is_lost = False  # whether it didn't return its turn in time: it isn't reused, and ends with its job
        thread = threading.Thread(target=self._work, name="onewrite explorer", daemon=True)
        thread.start()
        self.ident = thread.ident

    # --- called from the explorer's thread ---

    def give_turn(self, name: str, *, others_stand: bool) -> None:
        """Run the job until it returns its turn. Raise if it waits for a lock while other calls are paused, or takes too long."""
        self._calls_turn.release()
        waited, position, unchanged_count = 0.0, None, 0
        while not self._explorers_turn.acquire(timeout=min(_SECONDS_UNTIL_CHECK, self.timeout - waited)):
            waited += _SECONDS_UNTIL_CHECK
            earlier, position = position, self._read_position() if others_stand else None
            is_unchanged = position is not None and position == earlier
            unchanged_count = unchanged_count + 1 if is_unchanged else 0
            waits_often = is_unchanged and next(self._all_unchanged) > _MAX_ALL_UNCHANGED
            is_too_slow = waited >= self.timeout
            self.is_lost = is_too_slow or unchanged_count == _MAX_UNCHANGED or waits_often
            if self.is_lost and not is_too_slow:
                raise BlockedError(
                    f"{name} waits for a lock or a queue forever. Probably a paused delivery holds it. Create locks in build(store), "
                    "because two processes don't share them. If your service is one process whose deliveries never overlap, explore with "
                    "concurrency=1."
                )
            if self.is_lost:
                raise ConfigurationError(
                    f"{name} has neither sent a request nor returned for {self.timeout:g} seconds. It probably waits for another "
                    "thread, or for an asyncio.Event that another delivery sets. If it's only slow, pass a longer timeout=."
                )

    def _read_position(self) -> object:
        """Return the position of the job, which doesn't change while it waits."""
        frame = sys._current_frames().get(cast("int", self.ident))  # pyright: ignore[reportPrivateUsage]  # the only way to see the frame
        return None if frame is None else (id(frame), frame.f_lasti)

    def stop(self) -> None:
        self.job = None
        self._calls_turn.release()

    # --- called from this thread ---

    def return_turn(self) -> None:
        """Return the turn to the explorer, and wait for the next turn."""
        self._explorers_turn.release()
        self._calls_turn.acquire()

    def loop(self) -> OwnLoop:
        """Return the thread's event loop. Create it if there is none yet, or if the last one was closed."""
        if self._loop is None or self._loop.is_closed():
            self._loop = OwnLoop()
        return self._loop

    def _work(self) -> None:
        self._calls_turn.acquire()
        while self.job is not None:
            self.job()
            if self.is_lost:
                break
            self.return_turn()
        if self._loop is not None:
            self._loop.close()


def _count_common_ancestors(one: TaskPath, other: TaskPath) -> int:
    """Return the number of common ancestors of two tasks, including the tasks themselves."""
    for length, (ours, others) in enumerate(zip(one, other, strict=False)):
        if ours != others:
            return length
    return min(len(one), len(other))


def error_in_words(error: BaseException) -> str:
    """Describe the error, and the line of the user's code that raised it or called the code that did."""
    place, trace = "", error.__traceback__
    while trace is not None:
        if _is_the_users(trace.tb_frame.f_code.co_filename):
            place = f" at {place_in_words((trace.tb_frame.f_code.co_filename, trace.tb_lineno))}"
        trace = trace.tb_next
    text = str(error)
    return f"{type(error).__name__}{f': {text}' if text else ''}{place}"


async def await_result(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _describe_task(task: asyncio.Task[Any] | None) -> str:
    code: CodeType | None = getattr(None if task is None else task.get_coro(), "cr_code", None)
    if code is None:
        return "a callback, a timer or an async generator of its event loop"
    made_at = task.made_at if isinstance(task, Task) else None
    return f"the task {code.co_qualname}, created at {place_in_words(made_at or (code.co_filename, code.co_firstlineno))}"


def is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
