"""Detects a hanging worker, and names its activity and its line. Nothing here takes a lock, because a thread can hang on a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import NamedTuple

from onewrite.errors import OnewriteError
from onewrite.process.failures import find_thread_line

BEAT = 10.0  # maximum seconds between two signs of life
# Seconds until the health page and the log report a vital activity. Three missed beats can't be explained by a busy machine.
SILENCE = 30.0


class WorkerStuck(OnewriteError):
    """The worker hangs, or can't start its threads. Restart it, and follow the advice in the text."""


class _Activity(NamedTuple):
    text: str  # for the log and the health page
    began: float
    max_seconds: float  # seconds after which the worker counts as hanging
    thread: int | None
    is_vital: bool  # whether the worker can do nothing else in the meantime


class Watch:
    """The activities of a worker's or a relay's threads that can hang.

    `function` is the user's function, searched for in a thread's stack. `owner` is the word for the object to restart.
    """

    def __init__(self, clock: Callable[[], float], function: Callable[..., object], owner: str) -> None:
        self._clock, self._function = clock, function
        self.advice = f"Restart the {owner}, and set a timeout on the call that hangs."
        self._activities: dict[Hashable, _Activity] = {}

    def begin(self, name: Hashable, text: str, max_seconds: float, thread: int | None, *, is_vital: bool = False) -> None:
        """Record an activity. It counts as hanging after `max_seconds` seconds. If it's vital, the health page reports it after `SILENCE`."""
        self._activities[name] = _Activity(text, self._clock(), max_seconds, thread, is_vital)

    def end(self, name: Hashable) -> None:
        self._activities.pop(name, None)

    @contextmanager
    def doing(self, text: str, max_seconds: float) -> Generator[None, None, None]:
        """Record an activity of this thread for the duration of the `with` block."""
        me = threading.get_ident()
        self.begin(me, text, max_seconds, me)
        try:
            yield
        finally:
            self.end(me)

    def describe_trouble(self) -> str | None:
        """Describe a vital activity that has taken `SILENCE` or longer, or return None."""
        return self._describe(lambda activity, seconds: activity.is_vital and seconds >= SILENCE)

    def describe_slow(self, max_seconds: float) -> str | None:
        """Describe an activity that isn't vital and has taken this long, or return None."""
        return self._describe(lambda activity, seconds: not activity.is_vital and seconds >= max_seconds)

    def describe_hang(self, name: Hashable | None = None) -> str | None:
        """Describe an activity that has exceeded its maximum time, or return None. Pass a name to check one activity only."""
        hanging = self._describe(lambda activity, seconds: seconds >= activity.max_seconds, name)
        return None if hanging is None else f"{hanging} {self.advice}"

    def _describe(self, is_long: Callable[[_Activity, float], bool], name: Hashable | None = None) -> str | None:
        """Describe the first activity that has taken too long, by its name and by `is_long(activity, seconds)`. A name of None fits all."""
        now = self._clock()
        # Copied, because other threads begin and end activities.
        for activity_name, activity in self._activities.copy().items():
            if is_long(activity, now - activity.began) and name in (None, activity_name):
                place = find_thread_line(activity.thread, self._function)
                return f"{activity.text} for {now - activity.began:.0f} seconds{'' if place is None else f', at {place}'}."
        return None
