"""A run over all entities of a store, and what is shown of it meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

from onewrite.cli.migrating.bookmark import Bookmark
from onewrite.cli.progress import progress
from onewrite.flow import run
from onewrite.migration.plan import Origin
from onewrite.migration.report import Asked, Report
from onewrite.migration.visit import Store, pause, visit


def migrate_all(
    store: Store, origin: Origin, asked: Asked, clock: Callable[[], float], *, rate: float, bookmark: Bookmark | None
) -> Report:
    """Visit each entity that has something to carry. Whoever is killed begins again at the bookmark, or at the beginning."""
    report, started = Report(asked), time.monotonic()
    with progress(run(store.total(), store.target)) as shown:
        while (page := run(store.next(), store.target)) is not None:
            for found in page.entities:
                flow = visit(store, origin, found, clock, drops=asked.drops, writes=asked.writes)
                report.add(run(flow, store.target))
                if wait := pause(report.carried + report.dropped, time.monotonic() - started, rate):
                    time.sleep(wait)
            report.read += page.read
            shown(report.read, _said(report))
            if bookmark is not None and asked.writes:
                bookmark.write(store.position)
    return report


def _said(report: Report) -> str:
    return f"{report.carried} carried, {report.dropped} dropped"
