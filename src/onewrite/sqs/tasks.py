"""The tasks that process the messages of an asynchronous function, in one event loop with a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, Protocol

from onewrite.batch.handler import Handler
from onewrite.sqs.bench import Bench, Results
from onewrite.sqs.deciding.lines import Load
from onewrite.sqs.whereabouts import where_frame_stands

_GRACE = 5.0  # seconds that a cancelled task has to end: for an `await` in a `finally`, as when it closes a connection


class Desk(Protocol):
    """Where the tasks get messages, and bring the results. None of this waits."""

    def take_all(self) -> list[Load]: ...

    def ended(self, load: Load, results: Results) -> None: ...


class Tasks:
    """One task for each slot that is busy."""

    grace = _GRACE

    def __init__(self, handler: Handler[Any], bench: Bench, desk: Desk) -> None:
        self._handler, self._bench, self._desk = handler, bench, desk
        self._tasks: dict[Load, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = False
        self._over: Future[None] = Future()

    def wake(self) -> None:
        """Messages are ready. The desk's lock is held."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._run, args=(self._loop,), name="onewrite-tasks", daemon=True).start()
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._begin)

    def close(self) -> None:
        """Nothing is begun any more, and what has not ended is cancelled."""
        self._over.set_result(None)

    def cancel(self, load: Load) -> None:
        """A task that has ended meanwhile is not touched."""
        task = self._tasks.get(load)
        if task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(task.cancel)

    def where(self, load: Load) -> str | None:
        """The line of the user's code at which a task waits."""
        task = self._tasks.get(load)
        frames = [] if task is None else task.get_stack()
        return where_frame_stands(frames[-1], self._handler.each) if frames else None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._until_over())

    async def _until_over(self) -> None:
        await asyncio.wrap_future(self._over)

    def _begin(self) -> None:
        self._woken = False  # before the look, so that what becomes ready during it is not missed
        for load in self._desk.take_all():
            self._tasks[load] = asyncio.get_running_loop().create_task(self._process(load))

    async def _process(self, load: Load) -> None:
        results: Results
        try:
            results = await self._bench.aprocess(load)
        except (
            BaseException
        ) as error:  # It was cancelled. Whatever is raised here would end the loop, and with it all other tasks.
            results = self._bench.failed(load, error)
        del self._tasks[load]
        self._desk.ended(load, results)
