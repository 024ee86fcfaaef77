"""A run over all entities of a store, and what is shown of it meanwhile."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from onewrite.cli.migrating.bookmark import Bookmark
from onewrite.cli.terminal import is_plain
from onewrite.flow import run
from onewrite.migration.plan import Origin
from onewrite.migration.report import Asked, Report
from onewrite.migration.visit import Store, pause, visit

Shown: TypeAlias = Callable[[Report], None]
_BETWEEN_LINES = 10.0  # seconds


def migrate_all(
    store: Store, origin: Origin, asked: Asked, clock: Callable[[], float], *, rate: float, bookmark: Bookmark | None
) -> Report:
    """Visit each entity that has something to carry. Whoever is killed begins again at the bookmark, or at the beginning."""
    report, started = Report(asked), time.monotonic()
    with _progress(run(store.total(), store.target)) as shown:
        while (page := run(store.next(), store.target)) is not None:
            for found in page.entities:
                flow = visit(store, origin, found, clock, drops=asked.drops, writes=asked.writes)
                report.add(run(flow, store.target))
                if wait := pause(report.carried + report.dropped, time.monotonic() - started, rate):
                    time.sleep(wait)
            report.read += page.read
            shown(report)
            if bookmark is not None and asked.writes:
                bookmark.write(store.position)
    return report


@contextmanager
def _progress(total: int) -> Generator[Shown, None, None]:
    """A bar on a terminal, and elsewhere a line from time to time. Both go to where errors go."""
    if is_plain(sys.stderr, os.environ):
        yield _lines(total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr, force_terminal=True)) as bar:
        task = bar.add_task("read", total=total)
        yield lambda report: bar.update(
            task, completed=report.read, total=max(total, report.read), description=_said(report)
        )


def _lines(total: int) -> Shown:
    last = time.monotonic()

    def shown(report: Report) -> None:
        nonlocal last
        if time.monotonic() - last >= _BETWEEN_LINES:
            last = time.monotonic()
            sys.stderr.write(f"onewrite: {report.read} of about {total} read, {_said(report)}\n")

    return shown


def _said(report: Report) -> str:
    return f"{report.carried} carried, {report.dropped} dropped"
