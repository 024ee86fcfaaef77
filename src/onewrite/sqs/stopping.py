"""When a worker stops: when nothing is under way, or at a deadline if that comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from math import inf
from queue import Empty, SimpleQueue
from types import FrameType

from onewrite.core.forking import handle_stop_signals, undone_in_children

_LONGEST_WAIT = 0.5  # seconds: a signal that arrives just before a wait does not end it, and is noticed after it
_LOOKS = 4  # two seconds
_LAST_ANSWER = 1.0  # seconds that a worker with nothing in hand waits for messages that may be on their way to it


class StopRequest:
    """Whether and until when a worker is to stop. It is asked for once, and cannot be taken back."""

    def __init__(self, drain_seconds: float, clock: Callable[[], float]) -> None:
        self._drain_seconds = drain_seconds
        self._clock = clock
        # When the worker leaves at the latest, in the clock's seconds, if it is to stop.
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
            self._idle_until = now + min(_LAST_ANSWER, self._drain_seconds)
            self.deadline = now + self._drain_seconds
        self._wake.put(None)

    def ask_or_hurry(self) -> None:
        """Ask for a stop; the second time, ask for it at once."""
        if self.is_wanted:
            self._idle_until = self.deadline = self._clock()
        self.ask()

    def wait(
        self, work: Future[None], is_busy: Callable[[], bool], when_wanted: Callable[[], object], is_lost: Callable[[], bool]
    ) -> None:
        """Wait for the end of the work or for the deadline. `when_wanted` is called once, when a stop has been asked for.

        What `is_lost` for several looks in a row is not waited for. One look alone may come just when the whole process goes on after it stood still.
        """
        work.add_done_callback(lambda _: self._wake.put(None))
        is_announced, looks = False, 0
        while not work.done():
            looks = looks + 1 if is_lost() else 0
            if looks >= _LOOKS:
                return
            if self.is_wanted and not is_announced:
                is_announced = True
                when_wanted()
            seconds = inf
            if self.is_wanted:
                seconds = (self.deadline if is_busy() else self._idle_until) - self._clock()
            if seconds <= 0:
                return
            with suppress(Empty):
                self._wake.get(timeout=min(seconds, _LONGEST_WAIT))


@contextmanager
def on_signals(act: Callable[[], None]) -> Generator[None, None, None]:
    """Act on SIGTERM and SIGINT. Python lets only the main thread set signal handlers: in another thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    put_back = handle_stop_signals(handle)
    try:
        with undone_in_children(put_back):
            yield
    finally:
        put_back()
