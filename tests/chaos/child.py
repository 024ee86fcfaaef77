"""A process of its own that can be killed and frozen at any moment, and the pipe to it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable

# A server of processes that has imported everything: a new one is there in milliseconds.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.chaos.worker"])


class Child:
    """Calls `work` with these arguments and its end of the pipe."""

    def __init__(self, work: Callable[..., object], *arguments: object) -> None:
        self.pipe, other_end = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=work, args=(*arguments, other_end), daemon=True)
        self._process.start()
        other_end.close()  # else the end of the process is no end of the pipe
        self.is_killed = False

    @property
    def number(self) -> int:
        """That of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        self.is_killed = self.is_killed or number == signal.SIGKILL
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()
