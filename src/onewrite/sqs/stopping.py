"""When a worker stops: asked by a signal or another thread, at the end of its batch or at a deadline, whichever comes first."""

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

_LOOK = 0.5  # seconds: a signal that comes just before a wait begins does not end it, and is acted on after it
_LAST_ANSWER = 1.0  # seconds that a worker with nothing in hand waits for messages that may be on their way to it


@dataclass(frozen=True, slots=True)
class _Deadlines:
    """In the clock's seconds: with nothing in hand, and with a batch in hand."""

    idle: float
    busy: float


class Stop:
    """Asked for once, and for good. `busy` is whether a batch is in hand."""

    def __init__(self, drain_seconds: float, clock: Callable[[], float]) -> None:
        self.busy = False
        self._drain_seconds = drain_seconds
        self._clock = clock
        self._deadlines: _Deadlines | None = None
        # A signal handler may put into a SimpleQueue, whatever it interrupts. An Event's own lock may be held just then.
        self._news: SimpleQueue[None] = SimpleQueue()

    @property
    def asked(self) -> bool:
        return self._deadlines is not None

    @property
    def deadline(self) -> float:
        """Of a batch in hand."""
        return inf if self._deadlines is None else self._deadlines.busy

    def ask(self) -> None:
        if self._deadlines is None:
            now = self._clock()
            last = now + self._drain_seconds
            self._deadlines = _Deadlines(idle=min(now + _LAST_ANSWER, last), busy=last)
        self._news.put(None)

    def insist(self) -> None:
        """Ask; and the second time, for a stop at once."""
        if self._deadlines is not None:
            self._deadlines = _Deadlines(idle=self._clock(), busy=self._clock())
        self.ask()

    def wait(self, end: Future[None]) -> None:
        """Until the end of the work, or the deadline."""
        end.add_done_callback(lambda _: self._news.put(None))
        while not end.done():
            patience = self._patience()
            if patience <= 0:
                return
            with suppress(Empty):
                self._news.get(timeout=min(patience, _LOOK))

    def _patience(self) -> float:
        """The work first says that it is busy and then looks whether to stop; here it is the other way round."""
        if self._deadlines is None:
            return inf
        return (self._deadlines.busy if self.busy else self._deadlines.idle) - self._clock()


@contextmanager
def on_signals(act: Callable[[], None]) -> Generator[None, None, None]:
    """Act on SIGTERM and SIGINT. Only the main thread may ask for that: in another one, nothing changes."""
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
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
