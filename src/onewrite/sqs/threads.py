"""Threads that are started when there is something for them to do, and not before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import NamedTuple, TypeAlias

Conditions: TypeAlias = Callable[[threading.Lock], threading.Condition]
"""Makes what threads wait on, around a lock. `threading.Condition` is one."""


class Time(NamedTuple):
    """How a worker tells how long something takes, how it waits, and what its threads wait on."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    conditions: Conditions = threading.Condition


class Threads:
    """Up to `most` threads that each do `work`, which waits by calling `rest`. The lock is held for `wake` and `rest`."""

    def __init__(self, name: str, lock: threading.Lock, conditions: Conditions, most: int, work: Callable[[], None]) -> None:
        self._name, self._lock, self._condition, self._most, self._work = name, lock, conditions(lock), most, work
        self._context = copy_context()
        self._started = 0
        self._resting = 0
        self._coming = False  # One was woken, and has not looked yet. It wakes the next one, if there is more to do.

    @property
    def may_come(self) -> bool:
        """Whether one may be woken: none has been that has not looked yet, and not all are busy."""
        return not self._coming and (self._resting > 0 or self._started < self._most)

    def wake(self) -> None:
        """One that `may_come` is to look for something to do. It is started if all others are busy."""
        if self._resting:
            self._condition.notify()
        else:
            # A daemon: the end of the process does not wait for a function that hangs.
            threading.Thread(target=self._context.copy().run, args=(self._begin,), name=self._name, daemon=True).start()
            self._started += 1
        self._coming = True  # not before, because the system may refuse a thread

    def rest(self) -> None:
        """Until woken."""
        self._resting += 1
        self._condition.wait()
        self._resting -= 1
        self._coming = False

    def wake_all(self) -> None:
        """The work is over."""
        self._condition.notify_all()

    def _begin(self) -> None:
        with self._lock:
            self._coming = False
        self._work()
