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


@pytest.mark.parametrize("apart", [0.0, 1.0, 6 * HOURS, -6 * HOURS])
def test_clock_within_the_allowed_skew_is_not_logged(said: pytest.LogCaptureFixture, apart: float) -> None:
    Watch(SKEW).compare(NOW, NOW + apart)
    assert said.messages == []


@pytest.mark.parametrize(("apart", "way"), [(6 * HOURS + 1, "behind"), (-6 * HOURS - 1, "ahead of")])
def test_clock_skew_warning_includes_the_direction(said: pytest.LogCaptureFixture, apart: float, way: str) -> None:
    Watch(SKEW).compare(NOW, NOW + apart)
    ((logger, level, text),) = [(record.name, record.levelname, record.message) for record in said.records]
    assert (logger, level) == ("onewrite", "WARNING")
    assert f"this process is 21601 s {way} the database, but the ledger tolerates only 21600 s" in text


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
        Watch(SKEW).compare(NOW, NOW + 7 * HOURS)
    finally:
        logger.removeFilter(fails)
    assert is_closed or stderr.getvalue() == "onewrite: a log line was lost: ValueError\n"
