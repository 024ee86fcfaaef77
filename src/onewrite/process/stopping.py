"""Requests to stop the process, and the signals that make them. A forked child undoes its parent's signal handlers and listening sockets.

A message handler can fork, as `multiprocessing` does. With the parent's handler of SIGTERM, `terminate()` would not end the child. With
the parent's listener, the child would keep its port.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from math import inf
from queue import Empty, SimpleQueue
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Mask(threading.local):
    """The signals that this thread had blocked before it forked."""

    before: set[int] | None = None


_undos: dict[object, Callable[[], object]] = {}
_mask = _Mask()


def handle_stop_signals(handle: Callable[[int, FrameType | None], object]) -> Callable[[], None]:
    """Install the handler for the stop signals, and return a function that restores the earlier handlers."""
    earlier_handlers = {number: signal.signal(number, handle) for number in STOP_SIGNALS}

    def put_back() -> None:
        for number, handler in earlier_handlers.items():
            # A handler of None wasn't set from Python, and can't be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    return put_back


@contextmanager
def undo_in_children(undo: Callable[[], object]) -> Generator[None, None, None]:
    """Call `undo` in each process that is forked within this block."""
    key = object()
    _undos[key] = undo
    try:
        yield
    finally:
        del _undos[key]


@contextmanager
def on_signals(act: Callable[[], None]) -> Generator[None, None, None]:
    """Call `act` on SIGTERM and SIGINT. Do nothing outside the main thread, because only it can set signal handlers in Python."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    put_back = handle_stop_signals(lambda _number, _frame: act())
    try:
        with undo_in_children(put_back):
            yield
    finally:
        put_back()


def _block() -> None:
    """Block the stop signals. A signal to the child then waits until its handlers are reset."""
    if _undos:
        _mask.before = {*signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)}


def _unblock() -> None:
    """Restore the signals that were blocked before the fork."""
    if _mask.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)
        _mask.before = None


def _undo_all() -> None:
    """Undo everything in a child, and let its signals arrive."""
    for undo in reversed([*_undos.values()]):  # the last one first, because each restores the state that it found
        undo()
    _undos.clear()
    _unblock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_undo_all)


# --- a worker's request to stop ---------------------------------------------------------------------------------------


_MAX_WAIT = 0.5  # seconds. A signal just before a wait doesn't end the wait, but is noticed after it.
_LAST_RESPONSE = 1.0  # seconds that an idle worker waits for the responses to its last requests


class StopRequest:
    """A request to stop a worker, which can't be withdrawn. The worker ends when no message is in progress, at the latest at the deadline."""

    def __init__(self, drain_seconds: float, clock: Callable[[], float]) -> None:
        self._drain_seconds = drain_seconds
        self._clock = clock
        # The latest times, in the clock's seconds, at which a stopping worker ends: with no message in progress, and in any case.
        self._idle_until = self.deadline = inf
        # A signal handler can safely put into a SimpleQueue. It must not set an Event, because the interrupted code might hold the
        # Event's lock.
        self._wake: SimpleQueue[None] = SimpleQueue()

    @property
    def is_wanted(self) -> bool:
        return self.deadline < inf

    def ask(self) -> None:
        """Ask for a stop, and wake `wait`. Only the first call sets the deadline."""
        if not self.is_wanted:
            now = self._clock()
            self._idle_until = now + min(_LAST_RESPONSE, self._drain_seconds)
            self.deadline = now + self._drain_seconds
        self.wake()

    def ask_or_hurry(self) -> None:
        """Ask for a stop. The second call asks for an immediate stop."""
        if self.is_wanted:
            self._idle_until = self.deadline = self._clock()
        self.ask()

    def wake(self) -> None:
        """End a wait."""
        self._wake.put(None)

    def wait(self, *, is_busy: bool) -> bool:
        """Wait for up to half a second, or until woken. Return False if the deadline has passed."""
        seconds = (self.deadline if is_busy else self._idle_until) - self._clock()
        if seconds > 0:
            with suppress(Empty):
                self._wake.get(timeout=min(seconds, _MAX_WAIT))
        return seconds > 0
