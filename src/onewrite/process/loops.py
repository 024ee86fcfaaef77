"""The event loop of a thread, in which blocking code runs asynchronous functions."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from onewrite.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class _ThisThread(threading.local):
    """The event loop of each thread."""

    runner: asyncio.Runner | None = None


_this_thread = _ThisThread()


def run_in_loop(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an async function to its end in this thread's event loop."""
    runner = get_thread_runner()
    try:
        return runner.run(function(), context=copy_context())
    except BaseException:
        # The next batch gets a new loop, because Ctrl-C or a task's exit has left tasks of this batch in this one.
        _this_thread.runner = None
        runner.close()
        raise


def get_thread_runner() -> asyncio.Runner:
    """Return this thread's event loop, the same on each call, because clients are bound to their loop."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no loop is running, as expected
        pass
    else:
        raise ConfigurationError(
            "The handler of an async function or an AsyncRelay runs its own event loop, but a loop is already running "
            "here. Call it with `await asyncio.to_thread(handler, event, context)`, or await handler.aprocess(record) "
            "or handler.function(message)."
        )
    if _this_thread.runner is None:
        _this_thread.runner = asyncio.Runner()
        # When the thread ends, its loop is garbage-collected, and asyncio warns about a loop that is still open.
        weakref.finalize(_this_thread.runner, _this_thread.runner.get_loop().close)
    return _this_thread.runner


def is_inner_cancellation(error: BaseException) -> bool:
    """Whether this is a CancelledError of an awaited task, not of the current task's own cancellation, as by a timeout."""
    import asyncio

    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is None or not task.cancelling()
