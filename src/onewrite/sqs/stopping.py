"""When a worker stops. A signal or another thread asks for it; it happens when nothing is under way, or at a deadline if that comes first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from queue import Empty, SimpleQueue
from types import FrameType

_LONGEST_WAIT = 0.5  # seconds: a signal that arrives just before a wait does not end it, and is noticed after it
_LOOKS = 4  # two seconds
_LAST_ANSWER = 1.0  # seconds that a worker with nothing in hand waits for messages that may be on their way to it


@dataclass(frozen=True, slots=True)
class _Deadlines:
    """When the worker leaves at the latest, in the clock's seconds: with nothing under way, and with something under way."""

    idle: float
    busy: float


class Stop:
    """Whether and until when a worker is to stop. It is asked for once, and cannot be taken back."""

    def __init__(self, drain_seconds: float, clock: Callable[[], float]) -> None:
        self._drain_seconds = drain_seconds
        self._clock = clock
        self._deadlines: _Deadlines | None = None
        # What ends a wait. A signal handler may put into a SimpleQueue, whatever code it interrupts. It may not set an Event:
        # the interrupted code may hold the Event's own lock.
        self._wake: SimpleQueue[None] = SimpleQueue()

    @property
    def asked(self) -> bool:
        return self._deadlines is not None

    @property
    def deadline(self) -> float:
        """When what is under way is left behind."""
        return inf if self._deadlines is None else self._deadlines.busy

    def ask(self) -> None:
        if self._deadlines is None:
            now = self._clock()
            last = now + self._drain_seconds
            self._deadlines = _Deadlines(idle=min(now + _LAST_ANSWER, last), busy=last)
        self._wake.put(None)

    def ask_or_hurry(self) -> None:
        """Ask for a stop; the second time, ask for it at once."""
        if self._deadlines is not None:
            self._deadlines = _Deadlines(idle=self._clock(), busy=self._clock())
        self.ask()

    def wait(
        self, work: Future[None], is_busy: Callable[[], bool], when_asked: Callable[[], object], is_lost: Callable[[], bool]
    ) -> None:
        """Wait for the end of the work or for the deadline. `when_asked` is called once, when a stop has been asked for.

        What `is_lost` for several looks in a row is not waited for. One look alone may come just when the whole process goes on after it stood still.
        """
        work.add_done_callback(lambda _: self._wake.put(None))
        told, looks = False, 0
        while not work.done():
            looks = looks + 1 if is_lost() else 0
            if looks >= _LOOKS:
                return
            if self.asked and not told:
                told = True
                when_asked()
            seconds = self._seconds_left(is_busy)
            if seconds <= 0:
                return
            with suppress(Empty):
                self._wake.get(timeout=min(seconds, _LONGEST_WAIT))

    def _seconds_left(self, is_busy: Callable[[], bool]) -> float:
        if self._deadlines is None:
            return inf
        return (self._deadlines.busy if is_busy() else self._deadlines.idle) - self._clock()


@contextmanager
def on_signals(act: Callable[[], None]) -> Generator[None, None, None]:
    """Act on SIGTERM and SIGINT. Python lets only the main thread set signal handlers: in another thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: the handler was not set from Python, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
