"""Calls of the handler that stand still at every request, so that the explorer decides which of them goes on.

Each call has a thread of its own. It runs until nothing in it can go on before a request is answered, or until it ends. Then it
waits, and the explorer goes on. A blocking handler has one request pending then. A coroutine runs in an event loop of the thread,
and its tasks may have several: the explorer says which of them is answered, and the call runs on until it stands still again.

The end of the handler need not be the end of the call. A task that is left behind by an error goes on, as it does in a loop that
lives longer than the message, and a request that was cancelled may still arrive. The call ends when neither is left.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Any, NamedTuple, NoReturn, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.handler.determined import determine
from onewrite.testing.explorer.handler.loops import OwnLoop, Place, TaskPath, WatchedLoop, in_words, path_of, place_in_words
from onewrite.testing.taps.everywhere import Listener, listener
from onewrite.testing.taps.faults import Crash
from onewrite.testing.taps.mongodb.transaction_names import Owner, current_owner
from onewrite.testing.taps.traffic import Request

_SECONDS_TO_DIE = 1.0  # a call that is told to die and has not ended by then keeps its thread, and the explorer goes on
_MOST_STOPS_AFTER_THE_END = 100  # of tasks that an error has left behind: more than that looks like a loop that never ends


class Event(Enum):
    """What may happen to pending requests instead of an answer."""

    TIME_PASSES = auto()  # a timer goes off before any of them is answered
    NEVER_SENT = auto()  # a request that was cancelled has not been sent


class Answer(NamedTuple):
    """What came of a request or of a call: the value that was returned, or the exception that was raised."""

    value: Any = None
    error: BaseException | None = None
    form: Hashable = None  # equal for answers that are the same; None if it has not been made
    faulty: bool = False  # a fault has made it what it is


def without_frames(error: BaseException | None) -> None:
    """Take away the tracebacks of an error that is remembered, and of those that it came from.

    Their frames hold the error itself and all that is explored. Nothing of that would end before Python looks for garbage, and there
    would be so much that looking takes a third of the time.
    """
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:  # an error may have come from itself
            seen.add(id(each))
            each.__traceback__ = None
            left += [each.__cause__, each.__context__]


TIME_PASSES, NEVER_SENT = Answer(form=Event.TIME_PASSES, faulty=True), Answer(form=Event.NEVER_SENT)


class Asked(NamedTuple):
    """A pending request. If it is `cancelled`, nobody waits for the answer any more; it may have been sent, or not."""

    request: Request
    cancelled: bool = False


class Stop(NamedTuple):
    """Where a call stands still."""

    asked: tuple[Asked, ...] = ()
    in_turn: tuple[int, ...] = ()  # those of them that may be answered next where the tasks run one after the other
    timers: bool = False  # is a timer running that may go off before the answer?
    returned: bool = False  # has the handler ended? What is pending then was left behind

    @property
    def ended(self) -> bool:
        return self.returned and not self.asked


class _Waiting:
    """A request that somebody in the call waits for."""

    __slots__ = ("answer", "cancelled", "future", "request", "task")

    def __init__(self, request: Request, task: asyncio.Task[Any] | None, future: asyncio.Future[Any] | None) -> None:
        self.request = request
        self.task = task
        self.future = future  # None: the thread itself waits
        self.answer: Answer | None = None
        self.cancelled = False


class HandlerCall:
    """One call of the handler. It has ended, or stands still at `stop`, its latest one."""

    def __init__(self, thread: _CallThread, name: str, known: Iterable[tuple[int, Answer]] = ()) -> None:
        self.stops: list[Stop] = []
        self.stop = Stop()
        self.compared = 0  # how many of the stops have been compared with what is remembered of earlier calls
        self.keys: tuple[Hashable, ...] | None = None  # of the pending requests, where somebody has made them
        self.died = False
        self.dead = False  # the process is gone, perhaps after the end of the handler
        self.result = Answer()
        self.outcomes: list[object] = []  # what guarded stores returned, also where the handler does not return it
        self.thread = thread
        self.name = name
        # The answers to its first requests, each with the place of the request among the pending ones.
        self._known = iter(known)
        self._given = 0, Answer()
        self._waiting: list[_Waiting] = []
        self._in_order = 0  # how many of them were there at the last stop
        self._last: TaskPath = ()  # of the task that was answered last
        self._loops: list[WatchedLoop] = []
        self._returned = False
        self._is_over = False  # the thread has done its job
        self._misuse: ConfigurationError | None = None
        self._errors: list[BaseException] = []  # that it has been given for answers
        self._stops_after_end = 0

    # --- called from the explorer's thread ---

    @property
    def request(self) -> Request | None:
        """The first of the pending requests."""
        return self.stop.asked[0].request if self.stop.asked else None

    @property
    def is_at_start(self) -> bool:
        """Has it been given no answer yet?"""
        return len(self.stops) == 1

    @property
    def returned(self) -> bool:
        return self.stop.returned

    @property
    def ended(self) -> bool:
        return self.stop.ended

    def begin(self) -> None:
        """Let the call run until it needs an answer that is not known."""
        self._run_on()
        while self._is_over and (known := self._next_known()) is not None:
            which, answer = known
            self.resume(answer, which)

    def resume(self, answer: Answer, which: int = 0) -> None:
        """Answer one of the pending requests, and let the call go on until it stands still again."""
        if self._is_over:
            del self._waiting[which]  # it was cancelled: nobody waits for it
            self._stand(timers=False)
        else:
            self._given = which, answer
            self._run_on()

    def die(self) -> None:
        """Raise `Crash` in the handler. What it tries to send after that is not sent, and what was cancelled has not arrived."""
        self.died = self.died or not self._returned
        self.dead = True
        if self._is_over:
            self._waiting.clear()
            self._stand(timers=False)
        elif not self.thread.is_lost:
            self._run_on()

    def _run_on(self) -> None:
        self.thread.give_turn(self.name)
        if self._misuse is not None:
            raise self._misuse

    # --- called from the handler's thread ---

    def run(self, handler: Callable[[Any], Any], message: Any) -> None:
        current_call.set(self)
        current_owner.set(Owner(self.name))
        try:
            returned = handler(message)
            if inspect.isawaitable(returned):
                returned = self._complete(returned)
            self.result = Answer(returned)
        except BaseException as error:
            self.result = Answer(error=error)
        self._returned = True
        with suppress(BaseException):
            self._end_loops()
        for met in (*self._errors, self.result.error):
            # What stops the exploration keeps its traceback, for the user.
            if not isinstance(met, ConfigurationError):
                without_frames(met)
        self._loops.clear()  # their tasks have contexts in which this call is, and a circle stays until Python looks for garbage
        self._is_over = True
        if self.dead:
            self._waiting.clear()
        self._stand(timers=False)

    @property
    def runs_in_this_thread(self) -> bool:
        return threading.get_ident() == self.thread.ident and not self._is_over

    @property
    def is_lost(self) -> bool:
        return self.thread.is_lost

    def ask(self, request: Request) -> Any:
        """Wait until the explorer answers the request, and return the answer or raise the exception in it."""
        waiting = self._begin_to_wait(request, None)
        while waiting.answer is None:
            self._wait(timers=False)
        if waiting.answer.error is not None:
            raise waiting.answer.error
        return waiting.answer.value

    async def aask(self, request: Request) -> Any:
        """Wait for the answer while other tasks of the call go on."""
        loop = asyncio.get_running_loop()
        if not any(watched.loop is loop and watched.is_running for watched in self._loops):
            self._refuse(_on_a_loop_of_another_kind(request, loop))
        future = loop.create_future()
        waiting = self._begin_to_wait(request, future)
        try:
            return await future
        except asyncio.CancelledError:
            waiting.cancelled = True
            raise

    def stand_still(self, *, timers: bool) -> bool:
        if all(waiting.cancelled for waiting in self._waiting):
            return False
        self._wait(timers=timers)
        return True

    def refuse_to_wait(self, what: str) -> NoReturn:
        self._refuse(
            ConfigurationError(
                f"{self.name} waits for {what}, and nothing in its event loop can let go of that: probably another delivery holds it, which "
                "stands still. Each delivery has a loop of its own, and a lock between loops does not work. If deliveries of your process "
                "never overlap, explore with concurrency=1."
            )
        )

    def time_passes(self) -> bool:
        return self._given[1].form is Event.TIME_PASSES and not self.dead

    @contextmanager
    def running(self, loop: Any) -> Generator[None]:
        """Watch a loop while it runs."""
        watched = next((watched for watched in self._loops if watched.loop is loop), None)
        if watched is None and WatchedLoop.can_watch(loop):
            watched = WatchedLoop(loop, self)
            self._loops.append(watched)
        if watched is None or watched.is_running:
            yield
            return
        with watched.running():
            yield

    def _complete(self, awaitable: Awaitable[Any]) -> Any:
        loop = self.thread.loop()
        with self.running(loop):
            return loop.run_until_complete(_awaited(awaitable))

    def _begin_to_wait(self, request: Request, future: asyncio.Future[Any] | None) -> _Waiting:
        if self.dead:
            raise Crash(f"The process is dead, and does not send {request}.")
        waiting = _Waiting(request, _current_task(), future)
        if self._returned and not self._may_go_on:
            self._refuse(_left_behind(self.name, waiting.task, f"is about to send {request}", self._timer_set_at()))
        self._waiting.append(waiting)
        return waiting

    def _timer_set_at(self) -> Place | None:
        """Where the timer was set that is going off, if one is."""
        return next((watched.timer_set_at for watched in self._loops if watched.timer_set_at is not None), None)

    def _wait(self, *, timers: bool) -> None:
        """Stand still until a request is answered, and hand the answer to whom it belongs."""
        self._stops_after_end += self._returned
        if self._stops_after_end > _MOST_STOPS_AFTER_THE_END:
            task = next(waiting.task for waiting in self._waiting if not waiting.cancelled)
            self._refuse(_never_ends(self.name, task))
        self._stand(timers=timers)
        known = self._next_known()
        if known is None:
            self.thread.return_turn()
        else:
            self._given = known
        if self.dead:
            for waiting in self._waiting:
                _give(waiting, Answer(error=Crash(f"The process died at {waiting.request}.")))
            self._waiting.clear()
            return
        which, answer = self._given
        if answer.form is Event.TIME_PASSES:
            return
        waiting = self._waiting.pop(which)
        self._in_order -= 1
        if not waiting.cancelled:
            if answer.error is not None:
                self._errors.append(answer.error)
            self._last = path_of(waiting.task)
            _give(waiting, answer)

    def _next_known(self) -> tuple[int, Answer] | None:
        """The next answer that is known. None are left once one does not fit: then the handler does not do again what it did."""
        which, answer = known = next(self._known, (0, None))
        fits = which < len(self._waiting) and (answer is not NEVER_SENT or self._waiting[which].cancelled)
        if answer is None or not fits:
            self._known = iter(())
            return None
        return cast("tuple[int, Answer]", known)

    def _stand(self, *, timers: bool) -> None:
        """Note where the call stands still. Where several requests are new, their order does not depend on who was quicker."""
        if len(self._waiting) - self._in_order > 1:
            self._waiting[self._in_order :] = sorted(self._waiting[self._in_order :], key=lambda each: path_of(each.task))
        self._in_order = len(self._waiting)
        asked = tuple([Asked(waiting.request, waiting.cancelled) for waiting in self._waiting])
        self.stop = Stop(asked, self._in_turn(), timers, self._returned)
        self.stops.append(self.stop)

    def _in_turn(self) -> tuple[int, ...]:
        """The requests of those tasks that are nearest to the one that was answered last: itself, its children, its siblings."""
        if len(self._waiting) < 2:  # noqa: PLR2004  # there is nothing to choose
            return (0,) if self._waiting and not self._waiting[0].cancelled else ()
        near = [-1 if each.cancelled else _in_common(path_of(each.task), self._last) for each in self._waiting]
        nearest = max(near, default=-1)
        return tuple([place for place, distance in enumerate(near) if distance == nearest >= 0])

    # ------------------------------------------------------------ the end of the handler

    @property
    def _may_go_on(self) -> bool:
        """May what the handler has left behind go on?

        Whoever raises, or has met an error, may leave tasks behind: `gather` raises the first exception, and the others go on.
        Whoever leaves a task behind though all went well has not waited for it.
        """
        return self.result.error is not None or bool(self._errors)

    def _end_loops(self) -> None:
        """Let what the handler has left in its event loops come to an end, or refuse it."""
        for watched in self._loops:
            try:
                if not (self.dead or self._may_go_on):
                    self._check_nothing_waits(watched)
                if not (self.dead or watched.loop.is_closed()) and watched.has_more:
                    watched.go_on()
                    self._check_all_ended(watched)
            finally:
                self.dead = self.dead or self._misuse is not None
                if not watched.loop.is_closed():
                    watched.clear()

    def _check_nothing_waits(self, watched: WatchedLoop) -> None:
        """Refuse a task that waits for an answer, and one that was cancelled because its loop was closed."""
        for waiting in self._waiting:
            if not waiting.cancelled:
                self._refuse(_left_behind(self.name, waiting.task, f"is about to send {waiting.request}"))
        for task in watched.left:
            if watched.loop.is_closed() and (task.cancelled() or not task.done()):
                self._refuse(_left_behind(self.name, task, "had not ended when its event loop was closed"))

    def _check_all_ended(self, watched: WatchedLoop) -> None:
        """Refuse a task that waits for what does not come, as for what another delivery brings."""
        left = watched.unfinished()
        if left and not (self.dead or self._may_go_on):
            self._refuse(_left_behind(self.name, left[0], "has not ended"))

    def _refuse(self, error: ConfigurationError) -> NoReturn:
        self._misuse = self._misuse or error
        raise self._misuse


current_call: contextvars.ContextVar[HandlerCall | None] = contextvars.ContextVar("onewrite.testing.call", default=None)


# --- threads ----------------------------------------------------------------------------------------------------------


class CallThreads:
    """The threads in which calls run. A thread is used again when its call has ended."""

    def __init__(self, timeout: float, now: float = 0.0, hears: Listener | None = None) -> None:
        self._timeout = timeout
        self._now = now  # the time for stores that are given no clock
        self._hears = hears  # what handlers send by clients that the explorer did not give them
        self.names_used = False  # a guarded table has put the name of a call into a request
        self._idle: list[_CallThread] = []

    def begin(
        self, handler: Callable[[Any], Any], message: Any, name: str, known: Iterable[tuple[int, Answer]] = ()
    ) -> HandlerCall:
        """Call the handler, and return when it stands still without a known answer, or has ended."""
        thread = self._idle.pop() if self._idle else _CallThread(self._timeout)
        call = HandlerCall(thread, name, known)
        context = contextvars.copy_context()  # so that the handler sees the context variables of the test
        context.run(determine, name, self._now, self._use_name)
        context.run(listener.set, self._hears)
        thread.job = lambda: context.run(call.run, handler, message)
        call.begin()
        return call

    def release(self, call: HandlerCall) -> None:
        """Take back the thread of a call. A call that has not ended dies first."""
        thread = call.thread
        if not call.ended:
            thread.timeout = _SECONDS_TO_DIE
            with suppress(ConfigurationError):
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
    """A thread that takes turns with the explorer's thread by means of two locks. Queues would be far slower."""

    def __init__(self, timeout: float) -> None:
        self.job: Callable[[], None] | None = None
        self.timeout = timeout
        self._calls_turn, self._explorers_turn = threading.Lock(), threading.Lock()
        self._calls_turn.acquire()
        self._explorers_turn.acquire()
        self._loop: OwnLoop | None = None
        self.is_lost = False  # it did not return its turn in time: it is not used again, and ends when its job ends
        thread = threading.Thread(target=self._work, name="onewrite explorer", daemon=True)
        thread.start()
        self.ident = thread.ident

    # --- called from the explorer's thread ---

    def give_turn(self, name: str) -> None:
        """Let the job go on until it returns its turn."""
        self._calls_turn.release()
        if not self._explorers_turn.acquire(timeout=self.timeout):
            self.is_lost = True
            raise ConfigurationError(
                f"{name} has neither sent a request nor returned for {self.timeout:g} seconds. It probably waits for "
                "something that cannot happen while the other deliveries stand still, such as another thread, or a lock that "
                "another delivery holds. If it is only slow, raise timeout=. If deliveries of your process never overlap, "
                "explore with concurrency=1."
            )

    def stop(self) -> None:
        self.job = None
        self._calls_turn.release()

    # --- called from this thread ---

    def return_turn(self) -> None:
        """Let the explorer go on, and wait for the next turn."""
        self._explorers_turn.release()
        self._calls_turn.acquire()

    def loop(self) -> OwnLoop:
        """The event loop in which coroutines run. One that could not be cleared has been closed."""
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


def _give(waiting: _Waiting, answer: Answer) -> None:
    waiting.task = None  # an exception that the task keeps leads to this object, and would keep the task
    if waiting.future is None:
        waiting.answer = answer
    elif answer.error is not None:
        waiting.future.set_exception(answer.error)
    else:
        waiting.future.set_result(answer.value)


def _in_common(one: TaskPath, other: TaskPath) -> int:
    """How many ancestors two tasks have in common, themselves included."""
    for length, (ours, others) in enumerate(zip(one, other, strict=False)):
        if ours != others:
            return length
    return min(len(one), len(other))


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running
        return None


def _left_behind(
    name: str, task: asyncio.Task[Any] | None, what: str, timer_set_at: Place | None = None
) -> ConfigurationError:
    """`what` the task does now that the handler has returned, or the timer that was set there."""
    return ConfigurationError(
        f"{name} has returned and left {_what(task, timer_set_at)}, which {what}. The message counts as done by then, so what is not done yet is lost if "
        "the process ends. Wait for it before the handler returns: await the task or create it in an asyncio.TaskGroup, and close "
        "async generators with contextlib.aclosing."
    )


def _never_ends(name: str, task: asyncio.Task[Any] | None) -> ConfigurationError:
    return ConfigurationError(
        f"{name} has failed and left {_what(task)}, which has sent {_MOST_STOPS_AFTER_THE_END} requests since then. Cancel it when the "
        "handler fails, or create it in an asyncio.TaskGroup, which does that."
    )


def _what(task: asyncio.Task[Any] | None, timer_set_at: Place | None = None) -> str:
    if task is not None:
        return in_words(task)
    if timer_set_at is not None:
        return f"a timer of its event loop, set at {place_in_words(timer_set_at)}, behind"
    return "a callback of its event loop behind"


def _on_a_loop_of_another_kind(request: Request, loop: object) -> ConfigurationError:
    return ConfigurationError(
        f"{request} was sent in an event loop of the kind {type(loop).__module__}.{type(loop).__qualname__}, in which the explorer "
        "cannot tell which request comes first. Let the handler be a coroutine function, or use asyncio.run() while it is explored."
    )


def in_an_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
