"""What a store says of itself in the log, and how seldom."""

from __future__ import annotations

import io
import logging
import sys
from datetime import timedelta

import pytest

from onewrite.core.watch import Watch

NOW = 1_790_000_000.0
SKEW = timedelta(hours=6)
HOURS = 3600.0


@pytest.fixture(name="said")
def _said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("DEBUG", logger="onewrite")
    return caplog


# --- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("skew", "before", "after", "server_second"),
    [
        (SKEW, NOW, NOW, NOW),
        (SKEW, NOW, NOW, NOW + 6 * HOURS),
        (SKEW, NOW, NOW, NOW - 6 * HOURS - 1),  # the server's clock showed up to a second more
        (timedelta(seconds=1), NOW, NOW + 140, NOW + 131),  # the last attempt of a slow request
        (timedelta(seconds=1), NOW, NOW + 140, NOW),
        (timedelta(seconds=1) / 56, NOW + 0.99, NOW + 1.01, NOW),
        (timedelta(seconds=1) / 56, NOW + 0.99, NOW + 1.01, NOW + 1),
    ],
)
def test_clock_that_might_be_right_is_not_logged(
    said: pytest.LogCaptureFixture, skew: timedelta, before: float, after: float, server_second: float
) -> None:
    Watch(skew, "ow_l").compare(before, after, int(server_second))
    assert said.messages == []


@pytest.mark.parametrize(
    ("skew", "apart", "text"),
    [
        (SKEW, 6 * HOURS + 1, "at least 21601 s behind the database, but the ledger tolerates only 21600 s"),
        (SKEW, -6 * HOURS - 2, "at least 21601 s ahead of the database, but the ledger tolerates only 21600 s"),
        (timedelta(seconds=10) / 56, 2, "at least 2 s behind the database, but the ledger tolerates only 0.18 s"),
    ],
)
def test_clock_skew_warning_includes_the_direction(
    said: pytest.LogCaptureFixture, skew: timedelta, apart: float, text: str
) -> None:
    Watch(skew, "ow_l").compare(NOW, NOW, int(NOW + apart))
    ((logger, level, line),) = [(record.name, record.levelname, record.message) for record in said.records]
    assert (logger, level) == ("onewrite", "WARNING")
    assert f"this process is {text}" in line


@pytest.mark.parametrize(("duration", "is_paused"), [(0.5, True), (5.0, False)])
def test_slow_request_is_followed_by_another_comparison(duration: float, *, is_paused: bool) -> None:
    watch = Watch(timedelta(seconds=1), "ow_l")
    watch.start_pause(NOW)
    watch.compare(NOW, NOW + duration, int(NOW))
    assert (watch.since < NOW + 10 < watch.until) is is_paused


@pytest.mark.parametrize("is_closed", [False, True])
def test_failing_log_filter_does_not_affect_the_write(monkeypatch: pytest.MonkeyPatch, *, is_closed: bool) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    if is_closed:
        stderr.close()

    def fails(line: logging.LogRecord) -> bool:
        raise ValueError

    logger = logging.getLogger("onewrite")
    logger.addFilter(fails)
    try:
        Watch(SKEW, "ow_l").compare(NOW, NOW, int(NOW + 7 * HOURS))
    finally:
        logger.removeFilter(fails)
    assert is_closed or stderr.getvalue() == "onewrite: a log line was lost: ValueError\n"
