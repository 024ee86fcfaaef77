"""The broker to which relays publish, and that kills and freezes them: a thread, with a random generator of its own.

A relay dies before its call has reached the broker, after it, or at any moment. The broker refuses an event now and then, and
fails, having taken the events or not. A relay that is frozen wakes when others have published and cleared what it has read.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from tests.chaos.child import Child
from tests.chaos.relay import FAILS, Duty, relay_events
from tests.chaos.witness import Copy, Witness
from tests.chaos.worker import Target

_REFUSES, _FAILS, _KILLS, _FREEZES = 0.005, 0.005, 0.003, 0.003  # of a call
_KILLED_IDLE = 0.2  # of a second, at any moment
_TURN = 0.05


class _Process(Child):
    def __init__(self, target: Target, duty: Duty) -> None:
        super().__init__(relay_events, target, duty)
        self.duty = duty


class Relays:
    """Relays with these duties, until the end of the block. `counts` is where they are counted."""

    def __init__(self, target: Target, duties: Sequence[Duty], choice: random.Random, counts: Counter[str]) -> None:
        self._target, self._duties, self._random, self._counts = target, duties, choice, counts
        self.witness = Witness()
        self._processes: dict[Connection, _Process] = {}
        self._sleepers: list[tuple[float, _Process]] = []
        self._hostile, self._ends = True, False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="relays", daemon=True)

    def __enter__(self) -> Self:
        for duty in self._duties:
            self._hire(duty)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends = True
        self._thread.join()
        for process in self._processes.values():
            process.end()

    def check(self) -> None:
        """Raise what went wrong."""
        if self._error is not None:
            raise self._error

    def calm(self) -> None:
        """From now on nobody is killed, and everything is accepted."""
        self._hostile = False

    def _run(self) -> None:
        try:
            while not self._ends:
                self._turn()
        except BaseException as error:  # it has no other way out of this thread
            self._error = error

    def _turn(self) -> None:
        began = time.monotonic()
        for until, process in [*self._sleepers]:
            if until <= began or not self._hostile:
                process.signal(signal.SIGCONT)
                self._sleepers.remove((until, process))
        for pipe in wait([*self._processes], _TURN):
            self._hear(self._processes[pipe])  # type: ignore[index]  # only connections are waited for
        if self._hostile and self._processes and self._random.random() < _KILLED_IDLE * (time.monotonic() - began):
            self._random.choice([*self._processes.values()]).signal(signal.SIGKILL)

    def _hear(self, process: _Process) -> None:
        try:
            copies: list[Copy] = process.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(process)
            return
        self._counts["copies by notification" if process.duty.is_notified else "copies by sweep"] += len(copies)
        answer: Any = self._answer(process, copies) if self._hostile else self._take(copies)
        if answer is not None:
            try:
                process.pipe.send(answer)
            except (BrokenPipeError, ConnectionResetError):
                return  # its end will be heard

    def _answer(self, process: _Process, copies: Sequence[Copy]) -> Any:
        """What the relay is told: the places of what is refused, or that the call has failed. None: it dies first."""
        chance = self._random.random()
        if chance < _KILLS:
            if self._random.random() < 0.5:
                self._take(copies)
            process.signal(signal.SIGKILL)
            return None
        if (chance := chance - _KILLS) < _FAILS:
            if self._random.random() < 0.5:
                self._take(copies)
            self._counts["failed publishes"] += 1
            return FAILS
        if (chance := chance - _FAILS) < _REFUSES:
            place = self._random.randrange(len(copies))
            self._take([*copies[:place], *copies[place + 1 :]])
            self._counts["refused events"] += 1
            return [place]
        if chance - _REFUSES < _FREEZES:
            self._counts["relays frozen"] += 1
            process.signal(signal.SIGSTOP)
            self._sleepers.append((time.monotonic() + self._random.uniform(0.1, 1.5), process))
        return self._take(copies)

    def _take(self, copies: Sequence[Copy]) -> list[int]:
        self.witness.take(copies)
        return []

    def _bury(self, process: _Process) -> None:
        del self._processes[process.pipe]
        self._sleepers = [(until, sleeper) for until, sleeper in self._sleepers if sleeper is not process]
        process.end()
        if not process.is_killed:
            raise RuntimeError("a relay ended by itself: its last words are above")
        self._counts["relays killed"] += 1
        self._hire(process.duty)

    def _hire(self, duty: Duty) -> None:
        process = _Process(self._target, duty)
        self._processes[process.pipe] = process
