"""Event loops in which nothing happens that the explorer has not decided.

While a call of the handler runs in an event loop, whatever waits in that loop waits for an answer of the explorer, for a timer, for
a thread, or for something outside. A loop asks its selector to wait once nothing in it can go on. So the selector is the place to
look: there the call stands still with all requests that are pending in it, and the explorer says which of them is answered. Time
goes on only there, and only where nothing else can happen, so nobody really sleeps.

Two runs of one schedule must do the same. So tasks know by which path they were made, and are hashed by it: a set of tasks, as
`asyncio.wait` returns it, has the same order in each run.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sysconfig
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn, Protocol, TypeAlias, cast

from onewrite.testing.taps.faults import Crash

# The number of a task among those that its parent has made, below the path of its parent.
TaskPath: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[str, int]  # a file and a line of the user's

# In a row without a request. Whoever looks at a clock that stands still would wait for ever, so it really waits then.
_MOST_TIMERS = 1000
_MOST_TIMERS_AT_THE_END = 100  # what has sent nothing by then may wait for ever
_MOST_CANCELLATIONS = 3  # of tasks that go on waiting though they were cancelled
_ASYNCIO = f"{Path(asyncio.__file__).parent}{os.sep}"
_OURS = f"{Path(__file__).parents[2]}{os.sep}"
_PYTHONS = f"{sysconfig.get_path('stdlib')}{os.sep}"
_PACKAGES = re.compile(r"[/\\](?:site|dist)-packages[/\\]")  # may be in the folder of Python's own modules
_WAITS_FOR_TASKS = frozenset({"_wait", "TaskGroup.__aexit__"})
_LOCKS = {"Lock.acquire": "Lock", "Semaphore.acquire": "Semaphore"}
_GIVEN_BY_ASYNCIO = re.compile(r"Task-\d+")
_DRIVERS = frozenset({"pymongo", "motor", "botocore", "aiobotocore", "aiohttp"})


class Task(asyncio.Task[Any]):
    """A task that knows where it comes from."""

    def __init__(self, path: TaskPath, made_at: Place | None, coro: Any, **options: Any) -> None:
        self.path = path
        self.made_at = made_at
        self.children = 0
        self.closes: Any = None  # the async generator that it closes, since the handler has left it open
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return hash(self.path)


class OwnLoop(asyncio.SelectorEventLoop):
    """A loop that the explorer has made, whatever the policy is: it has a selector that can be replaced.

    It says nothing of exceptions in tasks that nobody has looked at. In most schedules these are faults that the explorer has made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_exception_handler(lambda _loop, _context: None)


class StandsStill(Protocol):
    """The call that runs in a loop."""

    dead: bool

    @property
    def is_lost(self) -> bool: ...

    def stand_still(self, *, timers: bool) -> bool:
        """Wait until a request is answered. False: no request is pending."""
        ...

    def time_passes(self) -> bool:
        """Has the explorer decided that a timer goes off though requests are pending?"""
        ...

    def refuse_to_wait(self, what: str) -> NoReturn:
        """The call waits for what only another delivery can let go."""
        ...


class WatchedLoop:
    """A loop, and the call that runs in it."""

    def __init__(self, loop: Any, call: StandsStill) -> None:
        self.loop = loop
        self.left: list[asyncio.Task[Any]] = []  # the tasks that had not ended when the loop was left
        self.is_running = False
        self.timer_set_at: Place | None = None  # that is going off
        self._call = call
        # The same in each run of a schedule, unless the loop has timers from before.
        self._now: float = loop.time() if getattr(loop, "_scheduled", ()) else 0.0
        self._timers = 0  # that have gone off since the last request
        self._in_threads = 0  # functions that the loop has given to threads, and that have not returned
        self._cancellations = 0
        self._quiet: asyncio.Future[None] | None = None  # done once nothing in the loop can go on
        self._orphans = 0
        # asyncio's own set has the tasks of all loops, and many of them are garbage that Python has not looked for yet.
        self._tasks = [] if isinstance(loop, OwnLoop) else [*asyncio.all_tasks(loop)]

    @staticmethod
    def can_watch(loop: object) -> bool:
        return hasattr(getattr(loop, "_selector", None), "get_map")

    @contextmanager
    def running(self) -> Generator[None]:
        """Watch the loop while it runs."""
        loop, real = self.loop, self.loop._selector  # noqa: SLF001  # asyncio takes a selector only when it makes a loop
        makes_tasks = loop.get_task_factory() is None
        loop._selector = _Selector(real, self._idle)  # noqa: SLF001  # the same
        loop.time, loop.run_in_executor, loop.call_at = self._time, self._run_in_executor, self._call_at
        loop._asyncgen_finalizer_hook = self._finalise  # noqa: SLF001  # what Python calls for a generator that nobody has any more
        if makes_tasks:
            loop.set_task_factory(self._task)
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False
            loop._selector = real  # noqa: SLF001  # the same
            del loop.time, loop.run_in_executor, loop.call_at, loop._asyncgen_finalizer_hook  # noqa: SLF001  # the same
            if makes_tasks:
                loop.set_task_factory(None)
            self.left += [task for task in self.tasks() if task not in self.left]

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Those that have not ended, in the order of their paths."""
        if self.loop.get_task_factory() not in (None, self._task):
            return sorted(asyncio.all_tasks(self.loop), key=path_of)
        self._tasks = [task for task in self._tasks if not task.done()]
        return sorted(self._tasks, key=path_of)

    @property
    def has_more(self) -> bool:
        """Is there anything left in the loop that may still go on?"""
        loop = self.loop
        waits = any(not handle.cancelled() for handle in getattr(loop, "_scheduled", ()))
        return waits or bool(getattr(loop, "_ready", ())) or bool(self.tasks()) or any(self._open_generators())

    def go_on(self) -> None:
        """Run the loop until nothing in it can go on."""
        for generator in self._open_generators():
            self._close(generator)
        self._quiet = self.loop.create_future()
        self._timers = self._cancellations = 0
        try:
            with self.running():
                self.loop.run_until_complete(self._quiet)
        finally:
            self._quiet = None

    def unfinished(self) -> list[asyncio.Task[Any]]:
        return [task for task in self.tasks() if not _is_a_drivers(task)]

    def clear(self) -> None:
        """Cancel the tasks that are left. A loop in which something goes on all the same is closed."""
        for _ in range(_MOST_CANCELLATIONS):
            tasks = self.tasks()
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.go_on()
        if isinstance(self.loop, OwnLoop) and self.has_more:
            for task in self.tasks():
                unlogged: Any = task
                unlogged._log_destroy_pending = False  # noqa: SLF001  # nobody can do anything about it
            self.loop.close()

    def _open_generators(self) -> Iterator[Any]:
        return (each for each in list(getattr(self.loop, "_asyncgens", ())) if each.ag_frame is not None)

    def _finalise(self, generator: Any) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._close, generator)

    def _close(self, generator: Any) -> None:
        task = self._task(self.loop, _closed(generator))
        task.closes = generator

    def _time(self) -> float:
        return self._now

    def _task(self, loop: Any, coro: Any, **options: Any) -> Task:
        parent = asyncio.current_task(loop)
        if isinstance(parent, Task):
            parent.children += 1
            path = (*parent.path, parent.children)
        else:
            self._orphans += 1
            path = (self._orphans,)
        task = Task(path, _place(inspect.currentframe()) or self.timer_set_at, coro, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _call_at(self, when: float, callback: Callable[..., Any], *args: Any, **options: Any) -> asyncio.TimerHandle:
        """Set a timer as the loop does, and remember where. `call_later` comes here too."""
        set_at = _place(inspect.currentframe())
        kind = cast("type[Any]", type(self.loop))
        handle: asyncio.TimerHandle = kind.call_at(
            self.loop, when, partial(self._go_off, set_at, callback), *args, **options
        )
        return handle

    def _go_off(self, set_at: Place | None, callback: Callable[..., Any], *args: Any) -> None:
        self.timer_set_at = set_at
        try:
            callback(*args)
        finally:
            self.timer_set_at = None

    def _run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> Any:
        kind = cast("type[Any]", type(self.loop))
        future: Any = kind.run_in_executor(self.loop, executor, function, *args)
        self._in_threads += 1
        future.add_done_callback(self._has_returned)
        return future

    def _has_returned(self, _: object) -> None:
        self._in_threads -= 1

    def _idle(self, real: Any, timeout: float | None) -> Any:
        """What the selector returns when nothing in the loop can go on before something happens."""
        events = real.select(0)
        if events:
            return events
        if self._call.is_lost:
            raise Crash("Nobody waits for this call any more.")
        if self._in_threads:
            return self._really_wait(real, timeout)
        if self._call.stand_still(timers=timeout is not None):
            self._timers = 0
            if timeout is not None and self._call.time_passes():
                self._now += timeout
            return []
        most = _MOST_TIMERS if self._quiet is None else _MOST_TIMERS_AT_THE_END
        if timeout is not None and not self._call.dead and self._timers < most:
            if len(real.get_map()) > 1:  # beside the loop's own socket, by which threads wake it
                return self._really_wait(real, timeout)
            self._timers += 1
            self._now += timeout
            return []
        if self._quiet is not None:
            if not self._quiet.done():
                self._quiet.set_result(None)
            return []
        if self._call.dead:
            self._end_what_waits()
            return []
        if timeout is None and len(real.get_map()) == 1 and (lock := self._lock()) is not None:
            self._call.refuse_to_wait(lock)
        return self._really_wait(real, timeout)

    def _lock(self) -> str | None:
        """The lock that a task waits for, in words, if nothing but the holder of such a lock can let the loop go on.

        What waits for something else, as for an event or a future, may be woken by a thread.
        """
        locks: list[str] = []
        for task in self.unfinished():
            coroutines = _coroutines(task)
            inner = cast("CodeType", coroutines[-1].cr_code) if coroutines else None
            if inner is not None and inner.co_filename.startswith(_ASYNCIO) and inner.co_qualname in _LOCKS:
                own = [each.cr_frame for each in coroutines if _is_the_users(each.cr_code.co_filename)]
                at = f" at {place_in_words((own[-1].f_code.co_filename, own[-1].f_lineno))}" if own else ""
                locks.append(f"an asyncio.{_LOCKS[inner.co_qualname]}{at}")
            elif not _waits_for_tasks(task, inner):
                return None
        return locks[0] if locks else None

    def _end_what_waits(self) -> None:
        """The process is dead, but the handler waits for something."""
        self._cancellations += 1
        if self._cancellations > _MOST_CANCELLATIONS:
            raise Crash("The process is dead.")
        for task in self.tasks():
            task.cancel()

    def _really_wait(self, real: Any, timeout: float | None) -> Any:
        before = time.monotonic()
        events = real.select(timeout)
        self._now += time.monotonic() - before
        return events


class _Selector:
    """A selector that asks before it waits."""

    def __init__(self, real: Any, idle: Callable[[Any, float | None], Any]) -> None:
        self._real = real
        self._idle = idle

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None and timeout <= 0:
            return self._real.select(timeout)
        return self._idle(self._real, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def path_of(task: asyncio.Task[Any] | None) -> TaskPath:
    return task.path if isinstance(task, Task) else ()


def in_words(task: asyncio.Task[Any]) -> str:
    """What a task runs and where it was made, and its name if it has been given one."""
    if isinstance(task, Task) and task.closes is not None:
        return f"the async generator {task.closes.__qualname__} ({_line(task.closes.ag_code)}) open"
    code: Any = getattr(task.get_coro(), "cr_code", None)
    runs = repr(task.get_coro()) if code is None else f"{code.co_qualname} ({_line(code)})"
    made_at = task.made_at if isinstance(task, Task) else None
    made = "" if made_at is None else f", created at {place_in_words(made_at)},"
    name = "" if _GIVEN_BY_ASYNCIO.fullmatch(task.get_name()) else f"{task.get_name()!r}, "
    return f"the task {name}{runs}{made} behind"


def _line(code: CodeType) -> str:
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def place_in_words(place: Place) -> str:
    file, line = place
    return f"{Path(file).name}:{line}"


def _place(frame: FrameType | None) -> Place | None:
    """The place in the user's code of this frame or of the nearest one around it. None: only Python and the explorer are there."""
    while frame is not None and not _is_the_users(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


@lru_cache(maxsize=1024)
def _is_the_users(file: str) -> bool:
    """Is this file of the user's code, or of a package?"""
    is_pythons = file.startswith((_PYTHONS, _ASYNCIO, "<frozen ")) and _PACKAGES.search(file) is None
    return not is_pythons and not file.startswith(_OURS)


def _coroutines(task: asyncio.Task[Any]) -> list[Any]:
    """The coroutine of a task, the one that it waits for, and so on."""
    found: list[Any] = []
    coroutine: Any = task.get_coro()
    while hasattr(coroutine, "cr_code"):
        found.append(coroutine)
        coroutine = coroutine.cr_await
    return found


def _waits_for_tasks(task: asyncio.Task[Any], inner: CodeType | None) -> bool:
    """Does it wait for other tasks, as `gather`, `wait` and `TaskGroup` do?"""
    waits_for: Any = getattr(task, "_fut_waiter", None)
    if isinstance(waits_for, asyncio.Task) or cast("type[Any]", type(waits_for)).__name__ == "_GatheringFuture":
        return True
    return inner is not None and inner.co_filename.startswith(_ASYNCIO) and inner.co_qualname in _WAITS_FOR_TASKS


def _is_a_drivers(task: asyncio.Task[Any]) -> bool:
    frame: Any = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _DRIVERS


async def _closed(generator: Any) -> None:
    await generator.aclose()
