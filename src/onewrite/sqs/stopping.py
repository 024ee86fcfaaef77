"""Stopping a worker: it ends when no message is in progress, or at a deadline if that is earlier."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue

_MAX_WAIT = 0.5  # seconds: a signal just before a wait doesn't end the wait, but is noticed after it
_LAST_RESPONSE = 1.0  # seconds that an idle worker waits for the responses to its last requests


class StopRequest:
    """A request to stop a worker, with its deadline. A request can't be withdrawn."""

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
