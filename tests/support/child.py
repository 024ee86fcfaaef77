"""A server of the tests' own in a process of its own, so it does not share the processor time of the test."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self


class Child:
    """The module runs as a program for a `with` block. The first thing that it prints is the port on which it listens."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
