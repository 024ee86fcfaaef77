"""How far a command over all entities has come: a bar on a terminal, and elsewhere a line now and then. Both go to where errors go."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from onewrite.cli.terminal import is_plain

Shown: TypeAlias = Callable[[int, str], None]
_BETWEEN_LINES = 10.0  # seconds


@contextmanager
def progress(total: int, *, plain: bool = False) -> Generator[Shown]:
    """Yields what is told how many entities are read by now, and what became of them. `total` may be a guess."""
    if plain or is_plain(sys.stderr, os.environ):
        yield _lines(total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr, force_terminal=True)) as bar:
        task = bar.add_task("read", total=total)
        yield lambda read, said: bar.update(task, completed=read, total=max(total, read), description=said)


def _lines(total: int) -> Shown:
    last = time.monotonic()

    def shown(read: int, said: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _BETWEEN_LINES:
            last = time.monotonic()
            sys.stderr.write(f"onewrite: {read} of about {max(total, read)} read, {said}\n")

    return shown
