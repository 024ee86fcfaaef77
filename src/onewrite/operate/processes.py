"""Several worker processes under one that starts them, passes signals on, and starts anew what has died.

- What one of them dies of ends none of the others. It is started anew after 1, 2, 4 and so on to 60 seconds, whatever it died of: a token
  is renewed, a port becomes free, a queue is created again.
- Only if none of them has ever worked, and all have ended with `MISUSE`, is it the command that is wrong. Then this ends with it too.
- After a signal nothing is started. The exit code is then that of the first one that did not end in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from logging import WARNING

from onewrite.core.log import log
from onewrite.operate.early import EarlySignals

_PARENT = "ONEWRITE_WORKER_PARENT"  # tells a process which one has started it
_LOOK = 0.2  # seconds between two looks at the processes
_MISUSE = 2  # the exit code of a process that could not begin to work
_LONGEST_PAUSE = 60.0  # seconds before a process that dies again and again is started anew


class _WorkerProcess:
    """One of the processes."""

    def __init__(self, command: Sequence[str], now: float) -> None:
        self._command = command
        self._deaths = 0  # in a row: one that had worked for long is none of it
        self._again_at = 0.0
        self.is_misused = False  # Its last end was that of a wrong command, and it was not started anew since.
        self.start(now)

    def start(self, now: float) -> None:
        self._began = now
        self.is_misused = False
        # A session of its own: Ctrl-C reaches all processes of a terminal, and would be passed on to it as well.
        environment = {**os.environ, _PARENT: str(os.getpid())}
        self.popen = subprocess.Popen(self._command, env=environment, start_new_session=True)  # noqa: S603  # our own arguments

    def restart(self, now: float) -> None:
        """After a pause that doubles with each death."""
        if not self._again_at:
            self._deaths = 0 if now - self._began >= _LONGEST_PAUSE else self._deaths
            pause = min(2.0**self._deaths, _LONGEST_PAUSE)
            self._deaths = min(self._deaths + 1, 10)
            self._again_at = now + pause
            code = self.popen.returncode
            self.is_misused = code == _MISUSE
            details = {"process": self.popen.pid, "exit_code": code, "pause": pause}
            text = "Worker process %s ended with %s; another one starts in %g s"
            log(WARNING, text, self.popen.pid, code, pause, details=details)
        elif now >= self._again_at:
            self._again_at = 0.0
            self.start(now)


class Processes:
    """As many as there are lists of options, each of which is added to the arguments of the command."""

    _have_worked = False  # whether any of them has begun to work

    def __init__(
        self,
        arguments: Sequence[str],
        options: Sequence[Sequence[str]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        end = arguments.index("--") if "--" in arguments else len(arguments)  # nothing behind it is an option
        head, tail = [sys.executable, "-m", "onewrite", *arguments[:end]], arguments[end:]
        self._commands = [[*head, *own_options, *tail] for own_options in options]
        self._clock, self._sleep = clock, sleep
        self._signals = 0  # that have arrived
        self._passed_on = 0

    def run(self, early: EarlySignals) -> int:
        """Until all have ended. Returns 0 if all ended in order, and else the exit code of the first one that did not."""
        former = {number: signal.signal(number, self._count) for number in (signal.SIGTERM, signal.SIGINT)}
        early.pass_on(lambda: self._count(0, None))
        try:
            return self._supervise([_WorkerProcess(command, self._clock()) for command in self._commands])
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _count(self, _number: int, _frame: object) -> None:
        self._signals += 1

    def _supervise(self, processes: Sequence[_WorkerProcess]) -> int:
        code = 0
        running = list(processes)
        while running:
            self._pass_on(running)
            for process in list(running):
                exit_code = process.popen.poll()
                if exit_code is None:
                    continue
                self._have_worked = self._have_worked or exit_code != _MISUSE
                if self._signals or exit_code == 0:
                    running.remove(process)
                    # A signal that comes before a process can handle it ends one that has nothing in hand.
                    code = code or (0 if exit_code == -signal.SIGTERM else exit_code)
                else:
                    process.restart(self._clock())
            if running and not self._have_worked and all(process.is_misused for process in running):
                return _MISUSE
            self._sleep(_LOOK)
        return code

    def _pass_on(self, running: Sequence[_WorkerProcess]) -> None:
        for _ in range(self._signals - self._passed_on):
            for process in running:
                process.popen.send_signal(signal.SIGTERM)
        self._passed_on = self._signals


def watch_parent(stop: Callable[[], object], *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Stop when the process that has started this one is gone: nobody would pass a signal on any more."""
    parent = os.environ.get(_PARENT)
    if parent is None:
        return

    def watch() -> None:
        while str(os.getppid()) == parent:
            sleep(1.0)
        stop()

    threading.Thread(target=watch, name="onewrite-parent", daemon=True).start()
