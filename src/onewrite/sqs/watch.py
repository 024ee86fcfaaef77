"""Notices that a worker hangs: in which activity, since when, and at which line. Nothing here takes a lock, because a lock may be what hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import NamedTuple

from onewrite.batch.function import where_thread_stands
from onewrite.errors import OnewriteError

BEAT = 10.0  # seconds after which the worker shows at the latest that it is alive
# Seconds. A worker does its rounds at every beat, so it is no accident of a busy machine if a vital activity
# takes as long as this. Then its health page and its log say so.
SILENCE = 30.0
ADVICE = "Start the worker again, and set a timeout on the call that hangs"


class WorkerStuck(OnewriteError):
    """The worker hangs: start it again, and set a timeout on the call that hangs."""


class _Activity(NamedTuple):
    text: str  # for the log and the health page
    began: float
    longest: float  # seconds, after which the worker hangs
    thread: int | None
    is_vital: bool  # nothing else goes on meanwhile


class Watch:
    """The activities of a worker's threads that may hang. `function` is the user's, which is looked for in the stack of a thread."""

    def __init__(self, clock: Callable[[], float], function: Callable[..., object]) -> None:
        self._clock, self._function = clock, function
        self._activities: dict[Hashable, _Activity] = {}

    def begin(self, name: Hashable, text: str, longest: float, thread: int | None, *, is_vital: bool = False) -> None:
        """Note an activity. For a vital one, the page shows trouble before the worker hangs."""
        self._activities[name] = _Activity(text, self._clock(), longest, thread, is_vital)

    def end(self, name: Hashable) -> None:
        self._activities.pop(name, None)

    @contextmanager
    def doing(self, text: str, longest: float) -> Generator[None, None, None]:
        """Note an activity of this thread, in a `with` block."""
        me = threading.get_ident()
        self.begin(me, text, longest, me)
        try:
            yield
        finally:
            self.end(me)

    def trouble(self) -> str | None:
        """Describe the vital activity that has gone on for long."""
        return self._describe(lambda each, seconds: each.is_vital and seconds >= SILENCE)

    def hang(self, name: Hashable | None = None) -> str | None:
        """Describe the activity that has gone on for so long that it won't end: the one of this name, or any."""
        hanging = self._describe(lambda each, seconds: seconds >= each.longest, name)
        return None if hanging is None else f"{hanging} {ADVICE}."

    def _describe(self, is_long: Callable[[_Activity, float], bool], name: Hashable | None = None) -> str | None:
        now = self._clock()
        for each_name, each in self._activities.copy().items():  # a copy, because other threads begin and end activities
            if is_long(each, now - each.began) and name in (None, each_name):
                place = where_thread_stands(each.thread, self._function)
                return f"{each.text} for {now - each.began:.0f} seconds: it is at {place}."
        return None
