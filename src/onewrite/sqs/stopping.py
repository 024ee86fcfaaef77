"""The end of a worker: when nothing is in progress, or at a deadline if that comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from math import inf
from queue import Empty, SimpleQueue

from onewrite.core.forking import handle_stop_signals, undo_in_children

_MAX_WAIT = 0.5  # seconds: a signal that arrives just before a wait does not end it, and is noticed after it
_LAST_RESPONSE = 1.0  # seconds that a worker with nothing in hand waits for messages that may be on their way to it


class StopRequest:
    """A request for a worker to stop, with its deadline. It is made once, and cannot be taken back."""

    def __init__(self, drain_seconds: float, clock: Callable[[], float]) -> None:
        self._drain_seconds = drain_seconds
        self._clock = clock
        # When the worker leaves at the latest if it is to stop, with nothing in hand and in any case, in the clock's seconds.
        self._idle_until = self.deadline = inf
        # What ends a wait. A signal handler may put into a SimpleQueue, whatever code it interrupts. It may not set an Event:
        # the interrupted code may hold the Event's own lock.
        self._wake: SimpleQueue[None] = SimpleQueue()

    @property
    def is_wanted(self) -> bool:
        return self.deadline < inf

    def ask(self) -> None:
        if not self.is_wanted:
            now = self._clock()
            self._idle_until = now + min(_LAST_RESPONSE, self._drain_seconds)
            self.deadline = now + self._drain_seconds
        self.wake()

    def ask_or_hurry(self) -> None:
        """Ask for a stop; the second time, ask for it at once."""
        if self.is_wanted:
            self._idle_until = self.deadline = self._clock()
        self.ask()

    def wake(self) -> None:
        """End a wait."""
        self._wake.put(None)

    def wait(self, *, is_busy: bool) -> bool:
        """Wait for a moment, or until woken. False: the deadline is over."""
        seconds = (self.deadline if is_busy else self._idle_until) - self._clock()
        if seconds > 0:
            with suppress(Empty):
                self._wake.get(timeout=min(seconds, _MAX_WAIT))
        return seconds > 0


@contextmanager
def on_signals(act: Callable[[], None]) -> Generator[None, None, None]:
    """Act on SIGTERM and SIGINT. Python lets only the main thread set signal handlers: in another thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    put_back = handle_stop_signals(lambda _number, _frame: act())
    try:
        with undo_in_children(put_back):
            yield
    finally:
        put_back()
